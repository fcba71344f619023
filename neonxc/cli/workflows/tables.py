"""Explanations of the clusters of a table by its columns."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from neonxc import plot
from neonxc.attribution.neon import NEON
from neonxc.cli.options import CHOICES, TABLES
from neonxc.cli.workflows.clusters import Clusters, by_kmeans
from neonxc.cli.workflows.result import Result
from neonxc.common.arguments import as_range
from neonxc.common.storage import save, staged_folder
from neonxc.convert import neuralize
from neonxc.data.distinct import n_distinct
from neonxc.data.preparation import Preparation, prepare
from neonxc.evaluation.choice import Choice, choose_k
from neonxc.pipelines.encoding import as_frame

USUAL = 8
"""Largest number of clusters that is tried if none is given."""


def table_attributions(
    prepared: Preparation, clusters: Clusters, out: str | Path, choice: Choice | None = None
) -> Result:
    """Explain the clusters of a table by its raw columns, and write the results to the folder `out`."""
    table = prepared.frame
    net = neuralize(clusters.model, table)
    neon = NEON(net)
    relevance, summary = neon.attribute(table), neon.summary(table)
    # Conservation: the relevance of a row sums to its logit.
    rows = pd.DataFrame({"cluster": net.predict(table), "logit": relevance.sum(axis=1)})
    if clusters.given:
        rows.insert(0, "label", clusters.labels)
    described = pd.DataFrame({"cluster": summary.classes, "rows": summary.sizes})
    described["prototype_rows"] = [" ".join(map(str, typical)) for typical in summary.prototypes]
    described["what_speaks_for_it"] = [", ".join(summary.reasons(k)) for k in range(len(described))]
    files = [*TABLES]
    with staged_folder(out) as folder:
        rows = pd.concat([rows, relevance], axis=1).reset_index(drop=True)
        rows.to_csv(folder / files[0], index_label="row")
        described.to_csv(folder / files[1], index=False)
        summary.to_frame().rename_axis(["cluster", "column"]).to_csv(folder / files[2])
        plot.summary_bars(summary).savefig(folder / files[3], dpi=200)
        save(net, folder / files[4])
        if choice is not None:
            files += CHOICES
            choice.frame.to_csv(folder / files[-2])
            choice.plot().savefig(folder / files[-1], dpi=200)
    result = Result(
        clusters.what,
        ["cluster", "rows", "what speaks for it: mean relevance (mean in the cluster vs overall)"],
        Path(out),
        files=files,
    )
    for k, size in enumerate(summary.sizes):
        result.rows.append([str(summary.classes[k]), str(size), "\n".join(summary.reasons(k, 4))])
    return result


def by_choice(prepared: Preparation, clusters: range | None, name: str) -> tuple[Clusters, Choice | None]:
    """Cluster a table by k-means; return the comparison of numbers of clusters too, if there is a choice.

    Raises
    ------
    ValueError
        If the table has too few different rows.
    """
    if clusters is None:
        different = n_distinct(prepared.frame)
        if different < 3:
            raise ValueError(f"{name} has only {different} different rows: there is nothing to cluster")
        clusters = range(2, min(USUAL, different - 1, max(2, len(prepared.frame) // 2)) + 1)
    if len(prepared.frame) < clusters[-1]:
        raise ValueError(
            f"{clusters[-1]} clusters need at least as many different rows of {name}; got {len(prepared.frame)}"
        )
    if len(clusters) == 1:
        return by_kmeans(prepared, clusters[0], name), None
    try:
        choice = choose_k(prepared.frame, clusters, preprocessing=prepared.pipeline)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    found = by_kmeans(prepared, choice.k, name)
    return replace(found, notes=[f"The number of clusters was chosen by a comparison: {choice.reason}"]), choice


def of_data(data: Any, clusters: Any, name: str) -> tuple[Preparation, Clusters]:
    """Prepare and cluster a table, which messages call `name`; `clusters` is as for :func:`neonxc.explain`."""
    prepared = prepare(as_frame(data))
    return prepared, by_choice(prepared, None if clusters is None else as_range(clusters), name)[0]
