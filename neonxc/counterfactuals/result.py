"""Counterfactuals as they are handed back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

MOST_ROWS = 20
MOST_CHANGES = 5


@dataclass(frozen=True, repr=False, eq=False)
class Counterfactual:
    """What :func:`neonxc.counterfactual` finds; ``str`` of it has a line for each of the first 20 points.

    Attributes
    ----------
    points : array, frame or Tensor [N, d]
        The nearest points in the target clusters; the given ones where there is none.
    changes : array, frame or Tensor [N, d]
        ``points - x``; 0 for categories.
    labels : array or Tensor [N]
        What ``net.predict`` gives for `points`.
    distance : ndarray [N] of float64
        Length of the changes, each in units of its column's spread; infinite where there is no point.
    found : ndarray [N] of bool
        Whether a point of the target cluster was found within the limits, as ``net.predict`` confirmed.
    exact : bool
        Whether all these points are the nearest ones, up to rounding and a hair by which they are inside. False
        where boundaries are curved, or a search was cut short.
    converged : ndarray [N] of bool
        Whether the last step was short. False says that a nearer point is likely to be close by, or that there is
        none at all.
    target : ndarray [N]
        Labels of the clusters that were asked for.
    """

    points: Any
    changes: Any
    labels: Any
    distance: np.ndarray
    found: np.ndarray
    exact: bool
    converged: np.ndarray
    target: np.ndarray
    _before: np.ndarray = field(repr=False)
    _values: tuple[np.ndarray, np.ndarray] = field(repr=False)
    _size: np.ndarray = field(repr=False)
    _names: Sequence[str] = field(repr=False)

    def __str__(self) -> str:
        n = len(self.found)
        lines = [self._line(row) for row in range(min(n, MOST_ROWS))]
        return "\n".join([*lines, f"... and {n - MOST_ROWS} more rows"] if n > MOST_ROWS else lines)

    __repr__ = __str__

    def _line(self, row: int) -> str:
        way = f"row {row}: cluster {self._before[row]} -> {self.target[row]}"
        if not self.found[row]:
            return f"{way}: no point of this cluster was found within the limits"
        before, after = (values[row] for values in self._values)
        moved = np.flatnonzero(self._size[row])
        if not len(moved):
            return f"{way}: it is there already"
        order = moved[np.argsort(-np.abs(self._size[row])[moved], kind="stable")]
        parts = [_change(self._names[i], before[i], after[i]) for i in order[:MOST_CHANGES]]
        more = f" and {len(order) - MOST_CHANGES} more" if len(order) > MOST_CHANGES else ""
        return f"{way} ({self.distance[row]:.3g} spreads): {', '.join(parts)}{more}"


def _change(name: str, before: float, after: float) -> str:
    """Both numbers with as many digits as tell them apart."""
    digits = next((k for k in range(3, 17) if f"{before:.{k}g}" != f"{after:.{k}g}"), 17)
    return f"{name} {before:.{digits}g} -> {after:.{digits}g}"
