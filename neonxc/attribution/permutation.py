"""Permutation of columns: a second opinion on which columns matter, for the decisions of any clustering."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from neonxc.common.progress import progress_bar
from neonxc.data.inputs import as_array
from neonxc.data.table import Table
from neonxc.network import NeuralizedClustering

# rows at most, and permutations: a standard error of about half a percent
ROWS = 2000
REPEATS = 5


def permuted(net: NeuralizedClustering, X: Any, weight: np.ndarray | None = None) -> np.ndarray:
    """Share of each cluster's points that leave it if the values of one column are permuted among all points.

    This is the G2PC of C. A. Ellis et al., "Algorithm-agnostic explainability for unsupervised clustering", 2021,
    for every cluster, on at most 2,000 points and for five permutations. With weights [N], values are drawn by
    them instead of permuted, and shares are those of the weights.

    Returns
    -------
    ndarray [K, d]
        0 to 1; 0 for clusters without points.

    Raises
    ------
    ValueError
        The inputs are no table, so that they have no columns to permute.
    """
    table = Table.read(X)
    units = net.inputs.units
    if net.features is not None or table.shape[1:] != (len(units),):
        raise ValueError('method="permute" needs a table whose columns can be permuted; use method="lrp"')
    draw = np.random.default_rng(0)
    rows = np.arange(len(table)) if weight is None else np.flatnonzero(weight)
    rows = np.sort(draw.permutation(rows)[:ROWS])
    table = Table(table.take(rows).dense())
    mass = np.ones(len(rows)) if weight is None else weight[rows]
    own = as_array(net.predict(table.data))
    inside = own == net.classes_[:, None]
    left = np.zeros((len(net.classes_), len(units)))
    if weight is None:
        orders = [draw.permutation(len(table)) for _ in range(REPEATS)]
    else:
        orders = [draw.choice(len(table), len(table), p=mass / mass.sum()) for _ in range(REPEATS)]
    for column in progress_bar(range(len(units)), desc="permuted columns"):
        for order in orders:
            moved = as_array(net.predict(_permuted(table, column, order))) != own
            left[:, column] += (inside & moved) @ mass
    total = inside @ mass
    return left / (REPEATS * np.where(total > 0, total, 1)[:, None])


def _permuted(table: Table, column: int, order: np.ndarray) -> Any:
    """The table with the values of one column in another order."""
    X = table.data
    if isinstance(X, pd.DataFrame):
        X = X.copy(deep=False)
        X.isetitem(column, X.iloc[order, column].array)
        return X
    X = X.clone() if table.is_tensor else X.copy()
    X[:, column] = X[order, column]
    return X
