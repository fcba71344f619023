"""Explanations of the clusters of a table by its columns, and the clusters of its rows by a saved model."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from neonxc import plot
from neonxc.attribution.neon import NEON
from neonxc.cli.options import CHOICES, TABLES
from neonxc.cli.workflows.result import Result
from neonxc.common.arguments import unused
from neonxc.common.storage import load, save, staged_folder
from neonxc.convert import neuralize
from neonxc.data.files import read_table
from neonxc.data.preparation import Preparation
from neonxc.evaluation.choice import Choice
from neonxc.network import NeuralizedClustering
from neonxc.report.clusters import Clusters
from neonxc.rules import Rules


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


def applied(model: str | os.PathLike[str], file: str | os.PathLike[str]) -> pd.DataFrame:
    """Return a table with the cluster that a saved network, tree or set of rules assigns to every row.

    Parameters
    ----------
    model : path-like
        A file that :func:`neonxc.save` has written.
    file : path-like, or "-"
        A table as for :func:`~neonxc.data.files.read_table`. It may have further columns.

    Returns
    -------
    DataFrame
        The table with the column ``cluster`` and, for a network, ``logit``, the margin of the cluster over the
        others. If the table has columns of these names, the new columns are numbered.

    Raises
    ------
    ValueError
        If the file contains an object without clusters, or the table lacks columns.
    """
    fitted = load(model)
    if not hasattr(fitted, "predict"):
        raise ValueError(f"{model} contains no clustering, but an object of class {type(fitted).__name__}")
    names = _columns(fitted)
    table = read_table(file, needed=names)
    points = table if names is None else table[names]
    new = {"cluster": fitted.predict(points)}
    if isinstance(fitted, NeuralizedClustering):
        new["logit"] = _logits(fitted, points)
    for name, values in new.items():
        table[unused(name, "_", table.__contains__)] = values
    return table


def _columns(fitted: Any) -> list[str] | None:
    """Return the names of the columns that a model needs; None if it does not know them."""
    names: Any = [column.key for column in fitted.columns] if isinstance(fitted, Rules) else None
    for attribute in ("feature_names_", "feature_names_in_", "feature_names"):
        names = getattr(fitted, attribute, None) if names is None else names
    return None if names is None or not all(isinstance(name, str) for name in names) else [str(n) for n in names]


@torch.no_grad()
def _logits(net: NeuralizedClustering, points: pd.DataFrame) -> np.ndarray:
    """Return the logit of every point for its own cluster, which is the largest."""
    tensor = net.batch(points).tensor
    return torch.cat([net(tensor[part]).amax(dim=1) for part in net.carrier.blocks(tensor)]).cpu().numpy()
