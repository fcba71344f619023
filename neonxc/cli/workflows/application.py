"""Application of a saved model to the rows of a table."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pandas as pd
import torch

from neonxc.common.arguments import unused
from neonxc.common.storage import load
from neonxc.data.files import read_table
from neonxc.network import NeuralizedClustering
from neonxc.rules import Rules


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
