"""A saved model, applied to the rows of a table."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pandas as pd
import torch

from neonxc.files import load
from neonxc.network import NeuralizedClustering
from neonxc.rules import Rules
from neonxc.tables import free_name, read_table


def applied(model: str | os.PathLike[str], file: str | os.PathLike[str]) -> pd.DataFrame:
    """A table with the cluster that a saved network, tree or set of rules gives to every row.

    Parameters
    ----------
    model : path-like
        What :func:`neonxc.save` wrote.
    file : path-like, or "-"
        As for :func:`~neonxc.tables.read_table`. It may have further columns.

    Returns
    -------
    DataFrame
        The table, ``cluster``, and for a network ``logit``: by how much it is that cluster and no other. If the
        table has columns of these names, the new ones are numbered.

    Raises
    ------
    ValueError
        The file holds something that has no clusters, or the table lacks columns.
    """
    fitted = load(model)
    if not hasattr(fitted, "predict"):
        raise ValueError(f"{model} holds no clustering but {type(fitted).__name__}")
    names = _columns(fitted)
    table = read_table(file, needed=names)
    points = table if names is None else table[names]
    new = {"cluster": fitted.predict(points)}
    if isinstance(fitted, NeuralizedClustering):
        new["logit"] = _logits(fitted, points)
    for name, values in new.items():
        table[free_name(name, table.columns)] = values
    return table


def _columns(fitted: Any) -> list[str] | None:
    """Names of the columns that a model needs; None where it remembers none."""
    names: Any = [column.key for column in fitted.columns] if isinstance(fitted, Rules) else None
    for attribute in ("feature_names_", "feature_names_in_", "feature_names"):
        names = getattr(fitted, attribute, None) if names is None else names
    return None if names is None or not all(isinstance(name, str) for name in names) else [str(n) for n in names]


@torch.no_grad()
def _logits(net: NeuralizedClustering, points: pd.DataFrame) -> np.ndarray:
    """Of every point, that of its own cluster: the greatest."""
    tensor = net.batch(points).tensor
    return torch.cat([net(tensor[part]).amax(dim=1) for part in net.carrier.blocks(tensor)]).cpu().numpy()
