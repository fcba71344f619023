"""Rows unlike those of their cluster: values far outside of the range that its rows had before."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from neonxc.common.memory import blocks
from neonxc.data.sparse import SparseRows
from neonxc.data.table import Table
from neonxc.head.answer import rows
from neonxc.inputs import Inputs

RANGES = 0.5
DEVIATIONS = 2.0
"""Least distance from the range: a share of it, and standard deviations of the column. On random halves of wine,
breast_cancer, digits and iris 0 to 2% of the new rows are farther away, and all rows whose values are tripled."""
ROUNDING = 1e-6  # the least distance relative to the values, for constant columns in single precision


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
    kind = int if weights is None else float
    clusters = np.zeros(k, kind)
    columns = np.zeros(len(inputs.units), kind)
    if not inputs.in_texts:
        low, high = _limits(inputs, tables[0], codes[0], k, weights and weights[0])
        first = 0
        for values, own in _values(inputs, tables[1], codes[1]):
            far = (values < low[own]) | (values > high[own])
            mass = np.ones(len(own), int) if weights is None else weights[1][first : first + len(own)]
            first += len(own)
            np.add.at(clusters, own, far.any(axis=1) * mass)
            columns += mass @ far
    counts = pd.Series(columns, inputs.units).sort_values(ascending=False, kind="stable")
    return clusters, counts[counts > 0]


def _limits(
    inputs: Inputs, table: Table, codes: np.ndarray, k: int, weight: np.ndarray | None
) -> tuple[NDArray, NDArray]:
    """Values [k, units] between which rows of the clusters are not far outside; of all rows for empty clusters."""
    first = 0
    low, high = np.full((2, k, len(inputs.units)), np.nan)
    means, squares, counts = np.zeros((3, len(inputs.units)))
    for values, own in _values(inputs, table, codes):
        for cluster in np.unique(own):
            part = values[own == cluster]
            low[cluster] = np.fmin(low[cluster], np.fmin.reduce(part))
            high[cluster] = np.fmax(high[cluster], np.fmax.reduce(part))
        known: NDArray = ~np.isnan(values)
        if weight is not None:
            known = known * weight[first : first + len(values), None]
            first += len(values)
        together = counts + known.sum(axis=0)
        together = np.where(together > 0, together, 1)
        change = np.where(known, values - means, 0.0)
        center = means + (known * change).sum(axis=0) / together
        squares += (known * change * np.where(known, values - center, 0.0)).sum(axis=0)  # as Welford's method does
        means = center
        counts = counts + known.sum(axis=0)
    low, high = (
        np.where(np.isnan(own), end(own), own) for own, end in ((low, np.fmin.reduce), (high, np.fmax.reduce))
    )
    spread = np.sqrt(squares / np.where(counts > 0, counts, 1))
    least = np.maximum(DEVIATIONS * spread, ROUNDING * np.maximum(abs(low), abs(high)))
    margin = np.maximum(RANGES * (high - low), least)
    return low - margin, high + margin


def _values(inputs: Inputs, table: Table, codes: np.ndarray) -> Iterator[tuple[NDArray, np.ndarray]]:
    """Yield the values [n, units] of the units, NaN for those that are no numbers, and the codes of their rows."""
    if (encoded := inputs.table(table.data)) is not None:
        values = np.full((len(table), len(inputs.units)), np.nan)
        for column, numbers in encoded[1].items():
            values[:, column] = numbers
        yield values, codes
        return
    first = 0
    for x in inputs.parts(table.data):
        found = inputs.values(x, rows(inputs.features(x)))
        for block in blocks(len(found), 8 * len(inputs.units)):
            part = found[block].dense() if isinstance(found, SparseRows) else found[block]
            yield part.double().cpu().numpy(), codes[first : first + len(part)]
            first += len(part)
