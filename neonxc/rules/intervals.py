"""Sets of numbers: unions of half-open intervals ``low < x <= high``."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from math import inf

import torch
from torch import Tensor

Intervals = tuple[tuple[float, float], ...]  # (low, high) from low to high, apart from one another, none empty

EVERYTHING: Intervals = ((-inf, inf),)


def union(intervals: Iterable[tuple[float, float]]) -> Intervals:
    """Join intervals that overlap or touch, and sort them; those that hold no number, or have a NaN, are left out.

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
    """Keep the numbers that lie in both."""
    return union((max(low, left), min(high, right)) for low, high in one for left, right in other)


def complement(intervals: Intervals) -> Intervals:
    """Keep all other numbers."""
    bounds = [-inf, *chain(*intervals), inf]
    return union(zip(bounds[::2], bounds[1::2], strict=True))


def contains(intervals: Intervals, values: Tensor) -> Tensor:
    """Whether numbers lie in one of the intervals; of the shape of `values`, which are finite."""
    values = values.double()  # as float32, the bounds would be rounded
    inside = torch.zeros_like(values, dtype=torch.bool)
    for low, high in intervals:
        inside |= (values > low) & (values <= high)
    return inside
