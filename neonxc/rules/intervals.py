"""Unions of half-open intervals ``low < x <= high``: union, intersection, complement and membership."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from itertools import chain
from math import inf, nan
from operator import or_
from typing import Any, overload

import numpy as np
from torch import Tensor

from neonxc.common.types import ArrayLike

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
            last_low, last_high = joined[-1]
            joined[-1] = (last_low, max(last_high, high))
        else:
            joined.append((low, high))
    return tuple(joined)


def intersection(first: Intervals, second: Intervals) -> Intervals:
    """Return the numbers that lie in both unions."""
    return union((max(a[0], b[0]), min(a[1], b[1])) for a in first for b in second)


def complement(intervals: Intervals) -> Intervals:
    """Return the numbers that lie in none of the intervals."""
    bounds = [-inf, *chain(*intervals), inf]  # from the end of one interval to the start of the next
    return union(zip(bounds[::2], bounds[1::2], strict=True))


@overload
def contains(intervals: Intervals, values: Tensor) -> Tensor: ...
@overload
def contains(intervals: Intervals, values: ArrayLike) -> np.ndarray: ...
def contains(intervals: Intervals, values: ArrayLike) -> np.ndarray | Tensor:
    """Test which values, a tensor or array, lie in one of the intervals; NaN lies in none."""
    # in float32 the bounds would be rounded
    numbers: Any
    if isinstance(values, Tensor):
        numbers = values.double()
    else:
        numbers = np.asarray(values, np.float64)
    inside = []
    for low, high in intervals:
        is_inside = numbers <= high
        if low != -inf:
            is_inside = (numbers > low) & is_inside
        inside.append(is_inside)
    if not inside:
        return numbers == nan  # false for every number
    return reduce(or_, inside)
