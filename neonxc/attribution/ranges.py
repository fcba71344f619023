"""Rows unlike those of their cluster: values far outside of the range that its rows had before.

Of the values of a column in a cluster of the first table, `low` is the minimum and `high` the maximum; a cluster
without values has those of all rows. With the standard deviation s of the column in all rows,

    margin  = max(RANGES (high - low), DEVIATIONS s, ROUNDING max(|low|, |high|)),

and a value x of the second table is far outside if x < low - margin or x > high + margin.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from neonxc.attribution.moments import Moments
from neonxc.common.memory import blocks
from neonxc.data.sparse import SparseRows
from neonxc.data.table import Table
from neonxc.head.answer import rows
from neonxc.inputs import Inputs

RANGES = 0.5
DEVIATIONS = 2.0
"""Minimum distance from the range: a fraction of it, and standard deviations of the column. On random halves of
wine, breast_cancer, digits and iris 0 to 2% of the new rows are farther away, and all rows whose values are
tripled."""
ROUNDING = 1e-6  # the minimum distance relative to the values, for constant columns in single precision


def count_outside(
    inputs: Inputs,
    tables: tuple[Table, Table],
    codes: tuple[np.ndarray, np.ndarray],
    k: int,
    weights: tuple[np.ndarray, np.ndarray] | None = None,
) -> tuple[np.ndarray, pd.Series]:
    """Count the rows of the second table with a value far outside of the range of their cluster in the first one.

    Parameters
    ----------
    codes : pair of ndarray of int
        Positions of the clusters of the rows of both tables.
    k : int
        Number of clusters.
    weights : pair of ndarray or None
        Weights of the rows of both tables.

    Returns
    -------
    clusters : ndarray [k] of int
        Number of such rows of every cluster. Texts have no ranges, and categories and missing values are left out.
    columns : Series
        Number of these rows by column, the most frequent first, without columns that have none.
    """
    dtype = int if weights is None else float
    by_cluster = np.zeros(k, dtype)
    by_column = np.zeros(len(inputs.units), dtype)
    if not inputs.in_texts:
        low, high = _limits(inputs, tables[0], codes[0], k, weights and weights[0])
        first = 0
        for values, clusters in _values(inputs, tables[1], codes[1]):
            is_outside = (values < low[clusters]) | (values > high[clusters])
            if weights is None:
                mass = np.ones(len(clusters), int)
            else:
                mass = weights[1][first : first + len(clusters)]
            first += len(clusters)
            np.add.at(by_cluster, clusters, is_outside.any(axis=1) * mass)
            by_column += mass @ is_outside
    counts = pd.Series(by_column, inputs.units).sort_values(ascending=False, kind="stable")
    return by_cluster, counts[counts > 0]


def _limits(
    inputs: Inputs, table: Table, codes: np.ndarray, k: int, weight: np.ndarray | None
) -> tuple[NDArray, NDArray]:
    """Compute the limits [k, d] ``low - margin`` and ``high + margin`` of the values in every cluster."""
    first = 0
    low, high = np.full((2, k, len(inputs.units)), np.nan)
    moments = Moments(1, len(inputs.units))  # of all rows
    for values, clusters in _values(inputs, table, codes):
        for cluster in np.unique(clusters):
            members = values[clusters == cluster]
            low[cluster] = np.fmin(low[cluster], np.fmin.reduce(members))
            high[cluster] = np.fmax(high[cluster], np.fmax.reduce(members))

        mass = None
        if weight is not None:
            mass = weight[first : first + len(values)]
            first += len(values)
        moments.add(values, np.zeros(len(values), np.int64), mass)

    # clusters without values have the range of all rows
    low = np.where(np.isnan(low), np.fmin.reduce(low), low)
    high = np.where(np.isnan(high), np.fmax.reduce(high), high)
    standard_deviation = moments.deviations()[0].numpy()
    largest = np.maximum(abs(low), abs(high))
    minimum = np.maximum(DEVIATIONS * standard_deviation, ROUNDING * largest)
    margin = np.maximum(RANGES * (high - low), minimum)
    return low - margin, high + margin


def _values(inputs: Inputs, table: Table, codes: np.ndarray) -> Iterator[tuple[NDArray, np.ndarray]]:
    """Yield the values [n, d] of the columns, NaN for what is not a number, and the codes [n] of their rows."""
    encoded = inputs.table(table.data)
    if encoded is not None:
        _, numbers_by_column = encoded
        values = np.full((len(table), len(inputs.units)), np.nan)
        for column, numbers in numbers_by_column.items():
            values[:, column] = numbers
        yield values, codes
        return

    first = 0
    for x in inputs.parts(table.data):
        points = inputs.values(x, rows(inputs.features(x)))
        for block in blocks(len(points), 8 * len(inputs.units)):
            chunk = points[block]
            if isinstance(chunk, SparseRows):
                chunk = chunk.dense()
            yield chunk.double().cpu().numpy(), codes[first : first + len(chunk)]
            first += len(chunk)
