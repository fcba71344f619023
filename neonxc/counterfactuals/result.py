"""The result of :func:`neonxc.counterfactual`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Generic

import numpy as np
import pandas as pd

from neonxc.common.cluster_names import cluster_text, label_text
from neonxc.common.locales import printed_like
from neonxc.common.numbers import plural, text
from neonxc.common.result import Result, preformatted
from neonxc.common.types import RowLabels, Rows
from neonxc.data.files.format import PLAIN, ColumnFormat

MOST_ROWS = 20
MOST_CHANGES = 5
ROUNDING = 1e-6
"""Relative distance from the range of a column that rounding to float32 may make."""


@dataclass(frozen=True, repr=False, eq=False)
class Counterfactual(Result, Generic[Rows, RowLabels]):
    """The result of :func:`neonxc.counterfactual`; its ``str`` has one line for each of the first 20 points.

    Attributes
    ----------
    points : array, data frame or Tensor [N, d]
        The nearest points in the target clusters; the given points where none was found.
    changes : array, data frame or Tensor [N, d]
        ``points - x``; 0 for categories.
    labels : array or Tensor [N]
        The result of ``net.predict(points)``.
    distance : ndarray [N] of float64
        Euclidean length of the changes, each in units of its column's spread; infinite where no point was found.
    found : ndarray [N] of bool
        Whether a point of the target cluster was found within the limits and confirmed by ``net.predict``.
    exact : bool
        Whether all points are the nearest ones, up to rounding and a small margin inside the target. False if
        boundaries are curved or a search ended early.
    converged : ndarray [N] of bool
        Whether the search for a point converged. False means that a nearer point is likely to be close, or that
        none exists.
    target : ndarray [N]
        Labels of the target clusters.
    outside : list of N lists of str
        Names of the columns that each point changes to a value outside their range in the data.
    """

    points: Rows
    changes: Rows
    labels: RowLabels
    distance: np.ndarray
    found: np.ndarray
    exact: bool
    converged: np.ndarray
    target: np.ndarray
    _before: np.ndarray = field(repr=False)
    _values: tuple[np.ndarray, np.ndarray] = field(repr=False)
    _size: np.ndarray = field(repr=False)
    _names: Sequence[str] = field(repr=False)
    _ranges: np.ndarray | None = field(repr=False)
    _formats: tuple[ColumnFormat, ...] = field(default=(), repr=False)

    @property
    def outside(self) -> list[list[str]]:
        """Names of the columns that each point changes to a value outside their range in the data.

        The range is that of the X given to :func:`neonxc.neuralize`; without X, the lists are empty.
        """
        return [[self._names[i] for i in row.nonzero()[0]] for row in self._beyond]

    @cached_property
    def _beyond(self) -> np.ndarray:
        """Whether points [N, D] are outside the range of a column that they change, by more than rounding."""
        if self._ranges is None:
            return np.zeros_like(self._size, dtype=bool)
        low, high = self._ranges
        after = self._values[1]
        slack = ROUNDING * np.abs(after)
        return (self._size != 0) & ((after < low - slack) | (after > high + slack))

    def __str__(self) -> str:
        n = len(self.found)
        lines = [self._line(row) for row in range(min(n, MOST_ROWS))]
        return "\n".join([*lines, f"... and {plural(n - MOST_ROWS, 'more row')}"] if n > MOST_ROWS else lines)

    def _repr_html_(self) -> str:
        return preformatted(str(self))

    def to_frame(self) -> pd.DataFrame:
        """Return one row per point.

        Returns
        -------
        DataFrame
            Index: the row. Columns: "cluster", that of the point before; "target", "found", "distance" and
            "converged", as in the attributes; "changes", the five largest changes in words; and "outside", a list
            of names as above.
        """
        values = {
            "cluster": self._before,
            "target": self.target,
            "found": self.found,
            "distance": self.distance,
            "converged": self.converged,
            "changes": [self._changes_of(row) if self.found[row] else "" for row in range(len(self.found))],
            "outside": self.outside,
        }
        return pd.DataFrame(values).rename_axis("row")

    def _line(self, row: int) -> str:
        path = f"row {row}: {cluster_text(self._before[row])} -> {label_text(self.target[row])}"
        if not self.found[row]:
            return f"{path}: no point of this cluster was found within the limits"
        order = self._order(row)
        if not len(order):
            return f"{path}: already in this cluster"
        beyond = [self._names[i] for i in order[:MOST_CHANGES] if self._beyond[row, i]]
        outside = f"; outside the data: {', '.join(beyond)}" if beyond else ""
        marks = self._format(order[0]).marks  # those of the file, which all columns have
        with printed_like(marks):
            distance = text(self.distance[row], 3)
        changes = f"({distance} standard deviations): {self._changes_of(row)}"
        return f"{path} {changes}{outside}"

    def _order(self, row: int) -> np.ndarray:
        """Return the columns that a point changes, the largest change first."""
        changed = np.flatnonzero(self._size[row])
        order: np.ndarray = changed[np.argsort(-np.abs(self._size[row])[changed], kind="stable")]
        return order

    def _changes_of(self, row: int) -> str:
        """Describe the largest changes of a point; "" if there are none."""
        before, after = (values[row] for values in self._values)
        order = self._order(row)
        parts = [self._change(i, before[i], after[i]) for i in order[:MOST_CHANGES]]
        more = f" and {len(order) - MOST_CHANGES} more" if len(order) > MOST_CHANGES else ""
        return f"{', '.join(parts)}{more}"

    def _change(self, column: int, before: float, after: float) -> str:
        """Write two numbers of a column with as many digits as are needed to distinguish them, and its unit."""
        digits = next((k for k in range(3, 17) if text(before, k) != text(after, k)), 17)
        numbers = self._format(column).text(before, after, digits=digits, between=" -> ")
        return f"{self._names[column]} {numbers}"

    def _format(self, column: int) -> ColumnFormat:
        """Return how the numbers of a column are printed."""
        if not self._formats:
            return PLAIN
        return self._formats[column]
