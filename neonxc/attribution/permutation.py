"""Permutation of columns: a second opinion on which columns matter, for the decisions of any clustering.

Of the points i of a cluster with weights w_i (1 by default), the fraction that leave it if column j is permuted is

    sum_i w_i [cluster(x_i with x_ij replaced by x_pi(i)j) is another one] / sum_i w_i,

averaged over several permutations pi. With weights, pi(i) is drawn from all points in proportion to the weights.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from torch import Tensor

from neonxc.common.progress import progress_bar
from neonxc.common.sizes import SAMPLED_ROWS
from neonxc.common.types import TableLike
from neonxc.data.inputs import as_array
from neonxc.data.table import Table
from neonxc.network import NeuralizedClustering

# 2,000 rows and 5 permutations give a standard error of about half a percent
N_PERMUTATIONS = 5


def permuted(net: NeuralizedClustering, X: TableLike | Table, weight: np.ndarray | None = None) -> np.ndarray:
    """Compute the fraction [K, d] of each cluster's points that leave it if one column is permuted.

    This is the G2PC of C. A. Ellis et al., "Algorithm-agnostic explainability for unsupervised clustering", 2021,
    for every cluster, on at most 2,000 points and for five permutations among all of these. With weights [N],
    values are drawn by the weights instead of permuted, and the fractions are those of the sum of the weights.

    Returns
    -------
    ndarray [K, d]
        0 to 1; 0 for clusters without points.

    Raises
    ------
    ValueError
        The inputs are not a table, so that they have no columns to permute.
    """
    table = Table.read(X)
    n_columns = len(net.inputs.units)
    if net.features is not None or table.shape[1:] != (n_columns,):
        raise ValueError('method="permute" needs a table whose columns can be permuted; use method="lrp"')
    random = np.random.default_rng(0)

    # at most SAMPLED_ROWS rows, of those with a weight > 0
    candidates = np.arange(len(table)) if weight is None else np.flatnonzero(weight)
    rows = np.sort(random.permutation(candidates)[:SAMPLED_ROWS])
    table = Table(table.take(rows).dense())
    if weight is None:
        mass = np.ones(len(rows))
        orders = [random.permutation(len(rows)) for _ in range(N_PERMUTATIONS)]
    else:
        mass = weight[rows]
        probability = mass / mass.sum()
        orders = [random.choice(len(rows), len(rows), p=probability) for _ in range(N_PERMUTATIONS)]

    labels = as_array(net.predict(table.data))
    is_member = labels == net.classes_[:, None]  # [K, rows]
    leaving = np.zeros((len(net.classes_), n_columns))  # sums of weights over the permutations
    for column in progress_bar(range(n_columns), desc="permuted columns"):
        for order in orders:
            has_left = as_array(net.predict(_permuted(table, column, order))) != labels
            leaving[:, column] += (is_member & has_left) @ mass

    sizes = is_member @ mass
    divisor = np.where(sizes > 0, sizes, 1)
    return leaving / (N_PERMUTATIONS * divisor[:, None])


def _permuted(table: Table, column: int, order: np.ndarray) -> pd.DataFrame | np.ndarray | Tensor:
    """Return the table with the values of one column in another order."""
    if isinstance(table.data, pd.DataFrame):
        frame = table.data.copy(deep=False)
        values = frame.iloc[order, column].array
        frame.isetitem(column, values)
        return frame
    X = table.data.clone() if table.is_tensor else table.data.copy()
    X[:, column] = X[order, column]
    return X
