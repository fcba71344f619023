"""Counterfactuals of threshold trees, whose clusters are unions of boxes: every column is projected on its own."""

from __future__ import annotations

from math import inf
from typing import NamedTuple

import torch
from torch import Tensor

from neonxc.common.memory import at_once
from neonxc.counterfactuals.search import Found
from neonxc.counterfactuals.task import Task
from neonxc.head import Head
from neonxc.head.competition import Path
from neonxc.head.grouping import UnionOfIntervals
from neonxc.rules.intervals import EVERYTHING, Intervals, complement, intersection, union

Edges = tuple[Tensor, Tensor, Tensor]


class Leaf(NamedTuple):
    """A leaf of the tree: its cluster, and the intervals that its path allows for the columns it tests."""

    cluster: int
    columns: list[int]
    intervals: list[Intervals]


class Boxes:
    """The leaves of a tree whose tests use one column each.

    Parameters
    ----------
    head : Head
    edges : tuple of Tensor [M]
        From :meth:`~neonxc.head.detection.Detection.edges`.
    """

    first_margin = 0.0

    def __init__(self, head: Head, edges: Edges) -> None:
        self.leaves = _leaves(head, edges)
        self.device = head.detection.device

    @property
    def room(self) -> int:
        """Number of points that fit into memory at once."""
        widest = max(sum(map(len, leaf.intervals)) + len(leaf.intervals) for leaf in self.leaves)
        return at_once(8 * 8 * (widest + 1), self.device)

    def nearest(self, task: Task, margin: Tensor) -> Found:
        """Find the nearest points that are inside a leaf by a margin [n], in units of `spread`."""
        best = task.x.new_full((len(task.x),), torch.inf)
        points = task.x.clone()
        for leaf in self.leaves:
            rows = task.wanted[:, leaf.cluster].nonzero()[:, 0]
            part = task.take(rows)
            found, possible = _inside(part, leaf, margin[rows])
            distance = torch.where(possible, part.distance(found), torch.inf)
            better = distance < best[rows]
            best[rows[better]], points[rows[better]] = distance[better], found[better]
        reached = best.isfinite()
        return Found(points, reached, torch.ones_like(reached), reached)


def _inside(task: Task, leaf: Leaf, margin: Tensor) -> tuple[Tensor, Tensor]:
    """The nearest points [n, d] inside a leaf, and whether there are any."""
    y = torch.where(task.integer, task.x.round().clamp(task.low, task.high), task.x)
    possible = (task.low <= task.high).all().expand(len(y)).clone()
    for column, intervals in zip(leaf.columns, leaf.intervals, strict=True):
        y[:, column], column_possible = _nearest_value(task, column, intervals, margin)
        possible &= column_possible
    if task.most is not None:
        possible &= (y != task.x).sum(dim=1) <= task.most
    return y, possible


def _nearest_value(task: Task, column: int, intervals: Intervals, margin: Tensor) -> tuple[Tensor, Tensor]:
    """The nearest values [n] of a column inside a union of intervals, and whether there are any."""
    x, spread = task.x[:, column], task.spread[column]
    ends = torch.tensor(intervals, dtype=torch.float64, device=x.device).reshape(-1, 2)
    shift = (margin * spread)[:, None]
    low, high = _above(ends[:, 0] + shift, task.dtype), _up_to(ends[:, 1] - shift, task.dtype)
    if bool(task.integer[column]):
        low, high = (ends[:, 0] + shift).floor() + 1, (ends[:, 1] - shift).floor()
    low, high = low.clamp(min=task.low[column]), high.clamp(max=task.high[column])
    nearest = torch.where(task.integer[column], x.round(), x)[:, None].clamp(low, high)
    possible = low <= high
    if bool(task.fixed[column]):
        possible &= nearest == x[:, None]
    distance = torch.where(possible, (nearest - x[:, None]).abs(), torch.inf)
    if not len(intervals):
        return x, torch.zeros_like(x, dtype=torch.bool)
    least, which = distance.min(dim=1)
    return torch.where(least.isfinite(), nearest.gather(1, which[:, None])[:, 0], x), least.isfinite()


def _above(low: Tensor, dtype: torch.dtype) -> Tensor:
    """The smallest numbers of a dtype that are greater than `low`."""
    rounded = low.to(dtype)
    return torch.where(
        rounded > low, rounded, torch.nextafter(rounded, torch.full_like(rounded, torch.inf))
    ).double()


def _up_to(high: Tensor, dtype: torch.dtype) -> Tensor:
    """The greatest numbers of a dtype that are at most `high`."""
    rounded = high.to(dtype)
    return torch.where(
        rounded <= high, rounded, torch.nextafter(rounded, torch.full_like(rounded, -torch.inf))
    ).double()


def _leaves(head: Head, edges: Edges) -> list[Leaf]:
    """The leaves of a tree, with the intervals of the columns on their paths."""
    assert isinstance(head.competition, Path)
    tests = _tests(head, edges)
    found = []
    for cluster, signs in zip(head.competition.leaves.tolist(), head.competition.signs.tolist(), strict=True):
        allowed: dict[int, Intervals] = {}
        for (column, inside), sign in zip(tests, signs, strict=True):
            if sign:
                side = inside if sign > 0 else complement(inside)
                allowed[column] = intersection(allowed.get(column, EVERYTHING), side)
        found.append(Leaf(cluster, list(allowed), list(allowed.values())))
    return found


def _tests(head: Head, edges: Edges) -> list[tuple[int, Intervals]]:
    """The column of every test, and the intervals of values that it sends left."""
    halves: list[tuple[int, Intervals]] = [
        (column, ((-inf, edge),) if sign > 0 else ((edge, inf),))
        for column, edge, sign in zip(*(part.tolist() for part in edges), strict=True)
    ]
    if not isinstance(head.grouping, UnionOfIntervals):
        return halves
    intervals: list[Intervals] = [EVERYTHING] * len(head.grouping.tests)
    column_of: dict[int, int] = {}
    for (column, half), interval in zip(halves, head.grouping.intervals.tolist(), strict=True):
        intervals[interval] = intersection(intervals[interval], half)
        column_of[interval] = column
    result: list[tuple[int, Intervals]] = [(0, ())] * head.grouping.n_groups
    for interval, test in enumerate(head.grouping.tests.tolist()):
        column, inside = result[test]
        result[test] = column_of.get(interval, column), union((*inside, *intervals[interval]))
    return result
