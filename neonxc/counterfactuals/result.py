"""The result of :func:`neonxc.counterfactual`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Generic

import numpy as np
import pandas as pd

from neonxc.common.cluster_names import cluster_text, label_text
from neonxc.common.locales import printed_like
from neonxc.common.numbers import percent, plural, text
from neonxc.common.result import Result, preformatted
from neonxc.common.types import RowLabels, Rows
from neonxc.counterfactuals.reasons import Unreached
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
    points : array, data frame or Tensor [N k, d]
        The answers, k for each given point: the nearest points in the target clusters, and the given points where
        none was found.
    changes : array, data frame or Tensor [N k, d]
        ``points - x[rows]``; 0 for categories.
    labels : array or Tensor [N k]
        The result of ``net.predict(points)``.
    distance : ndarray [N k] of float64
        Euclidean length of the changes, each in units of its column's spread; infinite where no point was found.
    found : ndarray [N k] of bool
        Whether a point of the target cluster was found within the limits and confirmed by ``net.predict``.
    exact : bool
        Whether the first answers are all the nearest points, up to rounding. False if boundaries are curved,
        categories change or a search ended early.
    rows : ndarray [N k] of int
        The positions of the given points that the answers belong to.
    target : ndarray [N k]
        Labels of the target clusters.
    margin : float
        How deep inside their clusters answers are: in standard deviations, or where boundaries are curved as a
        share of the median logit of the cluster's rows. 0 for noise.
    outside : list of N k lists of str
        Names of the columns that each point changes to a value outside their range in the data.
    plausibility : ndarray [N k] of float64
        The local outlier factor of each answer among the rows of its cluster.
    reasons : list of N k str
        Why no point was found; "" where one was.
    """

    points: Rows
    changes: Rows
    labels: RowLabels
    distance: np.ndarray
    found: np.ndarray
    exact: bool
    rows: np.ndarray
    target: np.ndarray
    margin: float
    _before: np.ndarray = field(repr=False)
    _values: tuple[np.ndarray, np.ndarray] = field(repr=False)
    _size: np.ndarray = field(repr=False)
    _cells: dict[tuple[int, int], str] = field(repr=False)
    _names: Sequence[str] = field(repr=False)
    _ranges: np.ndarray | None = field(repr=False)
    _formats: tuple[ColumnFormat, ...] = field(repr=False)
    _unreached: Unreached = field(repr=False)
    _outlier_factors: Callable[[], np.ndarray] | None = field(repr=False)

    @property
    def outside(self) -> list[list[str]]:
        """Names of the columns that each point changes to a value outside their range in the data.

        The range is that of the X given to :func:`neonxc.neuralize`; without X, the lists are empty.
        """
        return [[self._names[i] for i in row.nonzero()[0]] for row in self._beyond]

    @cached_property
    def plausibility(self) -> np.ndarray:
        """The local outlier factor of each answer among the rows of its cluster.

        It is about 1 where rows are as dense as around their neighbors, and greater where there are few; beyond
        1.5 points count as outliers. NaN where no point was found, and if fewer than 11 distinct rows of the
        cluster are known.
        """
        if self._outlier_factors is None:
            return np.full(len(self.found), np.nan)
        return np.where(self.found, self._outlier_factors(), np.nan)

    @cached_property
    def reasons(self) -> list[str]:
        """Why no point was found, such as which bound or fixed column is in the way; "" where one was found."""
        return self._reasons(len(self.found))

    def _reasons(self, n: int) -> list[str]:
        """Say why no point was found for the first n answers."""
        missing = np.flatnonzero(~self.found[:n])
        rows = np.setdiff1d(self.rows[missing], self.rows[self.found])
        of_row = dict(zip(rows.tolist(), self._unreached.reasons(rows), strict=True))
        reasons = [""] * n
        for answer in missing.tolist():
            reasons[answer] = of_row.get(self.rows[answer], "there is no other answer that differs enough")
        return reasons

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
        reasons = self._reasons(min(n, MOST_ROWS))
        lines = [self._line(answer, reason) for answer, reason in enumerate(reasons)]
        if n > MOST_ROWS:
            lines.append(f"... and {plural(n - MOST_ROWS, 'more row')}")
        if self.margin:
            lines.append(self._margin_text())
        return "\n".join(lines)

    def _margin_text(self) -> str:
        """Say what the margin means."""
        if self._unreached.finder.region is None:
            return f"logits are at least {percent(self.margin)} of the median of the cluster's rows"
        distance = plural(self.margin, "standard deviation")
        return f"a changed row stays in its cluster if the border moves by {distance}"

    def _repr_html_(self) -> str:
        return preformatted(str(self))

    def to_frame(self) -> pd.DataFrame:
        """Return one row per point.

        Returns
        -------
        DataFrame
            Index: the row, k times. Columns: "cluster", that of the point before; "target", "found", "distance",
            "plausibility" and "outside", as in the attributes; "changes", the five largest changes in words; and
            "reason", why no point was found.
        """
        values = {
            "cluster": self._before,
            "target": self.target,
            "found": self.found,
            "distance": self.distance,
            "plausibility": self.plausibility,
            "changes": [self._changes_of(i) if self.found[i] else "" for i in range(len(self.found))],
            "outside": self.outside,
            "reason": self.reasons,
        }
        return pd.DataFrame(values, index=pd.Index(self.rows, name="row"))

    def _line(self, row: int, reason: str) -> str:
        path = f"row {self.rows[row]}: {cluster_text(self._before[row])} -> {label_text(self.target[row])}"
        if not self.found[row]:
            return f"{path}: no point of this cluster was found within the limits: {reason}"
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
        parts = []
        for i in order[:MOST_CHANGES].tolist():
            categories = self._cells.get((row, i))
            parts.append(f"{self._names[i]} {categories}" if categories else self._change(i, before[i], after[i]))
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
