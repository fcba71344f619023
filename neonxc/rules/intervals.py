"""Unions of half-open intervals ``low < x <= high``: union, intersection, complement and membership."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from itertools import chain
from math import inf, nan
from operator import or_
from typing import Any

import numpy as np
from torch import Tensor

Intervals = tuple[tuple[float, float], ...]  # (low, high): in ascending order, disjoint and not empty

EVERYTHING: Intervals = ((-inf, inf),)


def union(intervals: Iterable[tuple[float, float]]) -> Intervals:
    """Sort intervals and join those that overlap or touch; empty intervals and those with NaN are dropped.

    Examples
    --------
    >>> from neonxc.rules.intervals import union
    >>> union([(5, 7), (1, 2), (2, 3), (4, 4)])
    ((1, 3), (5, 7))
    """
    joined: list[tuple[float, float]] = []
    for low, high in sorted(pair for pair in intervals if pair[0] < pair[1]):
        if joined and low <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], high))
        else:
            joined.append((low, high))
    return tuple(joined)


def intersection(one: Intervals, other: Intervals) -> Intervals:
    """Return the numbers that lie in both unions."""
    return union((max(low, left), min(high, right)) for low, high in one for left, right in other)


def complement(intervals: Intervals) -> Intervals:
    """Return the numbers that lie in none of the intervals."""
    bounds = [-inf, *chain(*intervals), inf]
    return union(zip(bounds[::2], bounds[1::2], strict=True))


def contains(intervals: Intervals, values: Any) -> Any:
    """Test which values, a tensor or array, lie in one of the intervals; NaN lies in none."""
    # in float32 the bounds would be rounded
    numbers = values.double() if isinstance(values, Tensor) else np.asarray(values, np.float64)
    parts = [numbers <= high if low == -inf else (numbers > low) & (numbers <= high) for low, high in intervals]
    return reduce(or_, parts) if parts else numbers == nan  # false for every number
