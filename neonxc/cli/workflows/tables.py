"""Explanations of the clusters of a table by its columns."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from neonxc import plot
from neonxc.attribution.neon import NEON
from neonxc.cli.options import CHOICES, TABLES
from neonxc.cli.workflows.result import Result
from neonxc.common.storage import save, staged_folder
from neonxc.convert import neuralize
from neonxc.data.preparation import Preparation
from neonxc.evaluation.choice import Choice
from neonxc.report.clusters import Clusters


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
