"""Clusters of the rows of a table, explained by its columns."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from neonxc import plot
from neonxc.attribution import NEON
from neonxc.evaluation.choice import Choice, choose_k
from neonxc.files import save, staged_folder
from neonxc.neuralize import neuralize
from neonxc.preparation import Preparation
from neonxc.workflows.clusters import Clusters
from neonxc.workflows.result import Result


def table_attributions(
    prepared: Preparation, clusters: Clusters, out: str | Path, choice: Choice | None = None
) -> Result:
    """Explain the clusters of a table by its raw columns."""
    table = prepared.frame
    net = neuralize(clusters.model, table)
    neon = NEON(net)
    relevance, summary = neon.attribute(table), neon.summary(table)
    # Conservation: the relevance of a row sums to its logit.
    rows = pd.DataFrame({"cluster": net.predict(table), "logit": relevance.sum(axis=1)})
    if clusters.given:
        rows.insert(0, "label", clusters.labels)
    means = pd.DataFrame({"cluster": summary.classes, "rows": summary.sizes})
    means["prototype_rows"] = [" ".join(map(str, typical + 1)) for typical in summary.prototypes]
    mean_relevance = pd.DataFrame(summary.relevance, columns=summary.feature_names)
    files = ["relevance.csv", "clusters.csv", "clusters.png", "model.safetensors"]
    with staged_folder(out) as folder:
        pd.concat([rows, relevance], axis=1).to_csv(folder / files[0], index=False)
        pd.concat([means, mean_relevance], axis=1).to_csv(folder / files[1], index=False)
        plot.summary_bars(summary).savefig(folder / files[2], dpi=200)
        save(net, folder / files[3])
        if choice is not None:
            files += ["choose-k.csv", "choose-k.png"]
            choice.frame.to_csv(folder / files[-2])
            choice.plot().savefig(folder / files[-1], dpi=200)
    result = Result(clusters.what, ["cluster", "rows", "what speaks for it"], Path(out), files=files)
    for k, size in enumerate(summary.sizes):
        reasons = ", ".join(f"{name} {value:+.3g}" for name, value in summary.top(k, 4))
        result.rows.append([str(summary.classes[k]), str(size), reasons])
    return result


def number_of_clusters(prepared: Preparation, clusters: Iterable[int], name: str) -> Choice:
    """Compare numbers of clusters of a table."""
    try:
        return choose_k(prepared.frame, clusters, preprocessing=prepared.pipeline)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
