"""Clusters of threshold trees: unions of boxes, in which every column goes its own shortest way."""

from __future__ import annotations

from math import inf
from typing import NamedTuple

import torch
from torch import Tensor

from neonxc.blocks import at_once
from neonxc.competition import Path
from neonxc.counterfactuals.search import Found
from neonxc.counterfactuals.task import Task
from neonxc.grouping import UnionOfIntervals
from neonxc.head import Head
from neonxc.rules.intervals import EVERYTHING, Intervals, complement, intersection, union

Edges = tuple[Tensor, Tensor, Tensor]


class Leaf(NamedTuple):
    """A leaf: the cluster it belongs to, and which numbers its path allows the columns to have."""

    cluster: int
    columns: list[int]
    intervals: list[Intervals]


class Boxes:
    """The leaves of a tree whose tests are of one column each.

    Parameters
    ----------
    head : Head
    edges : tuple of Tensor [M]
        From :meth:`~neonxc.detection.Detection.edges`.
    """

    first_margin = 0.0

    def __init__(self, head: Head, edges: Edges) -> None:
        self.leaves = _leaves(head, edges)
        self.device = head.detection.device

    @property
    def room(self) -> int:
        """How many points are worked on at once."""
        widest = max(sum(map(len, leaf.intervals)) + len(leaf.intervals) for leaf in self.leaves)
        return at_once(8 * 8 * (widest + 1), self.device)

    def nearest(self, task: Task, margin: Tensor) -> Found:
        """The nearest points that are by a margin [n], in spreads, inside of a leaf."""
        best = task.x.new_full((len(task.x),), torch.inf)
        points = task.x.clone()
        for leaf in self.leaves:
            some = (task.target == leaf.cluster).nonzero()[:, 0]
            part = task.take(some)
            found, there = _inside(part, leaf, margin[some])
            distance = torch.where(there, part.distance(found), torch.inf)
            better = distance < best[some]
            best[some[better]], points[some[better]] = distance[better], found[better]
        there = best.isfinite()
        return Found(points, there, torch.ones_like(there), there)


def _inside(task: Task, leaf: Leaf, margin: Tensor) -> tuple[Tensor, Tensor]:
    """The nearest points of a leaf, [n, d], and whether there are any."""
    y = torch.where(task.integer, task.x.round(), task.x)
    there = torch.ones_like(margin, dtype=torch.bool)
    for column, intervals in zip(leaf.columns, leaf.intervals, strict=True):
        y[:, column], possible = _into(task, column, intervals, margin)
        there &= possible
    if task.most is not None:
        there &= (y != task.x).sum(dim=1) <= task.most
    return y, there


def _into(task: Task, column: int, intervals: Intervals, margin: Tensor) -> tuple[Tensor, Tensor]:
    """The nearest numbers [n] that a column may have, and whether there are any."""
    x, spread = task.x[:, column], task.spread[column]
    ends = torch.tensor(intervals, dtype=torch.float64, device=x.device).reshape(-1, 2)
    shift = (margin * spread)[:, None]
    low, high = _above(ends[:, 0] + shift, task.dtype), _up_to(ends[:, 1] - shift, task.dtype)
    if bool(task.integer[column]):
        low, high = (ends[:, 0] + shift).floor() + 1, (ends[:, 1] - shift).floor()
        low, high = low.clamp(min=task.low[column].ceil()), high.clamp(max=task.high[column].floor())
        nearest = x.round()[:, None].clamp(low, high)
    else:
        low, high = low.clamp(min=task.low[column]), high.clamp(max=task.high[column])
        nearest = x[:, None].clamp(low, high)
    possible = low <= high
    if bool(task.fixed[column]):
        possible &= nearest == x[:, None]
    way = torch.where(possible, (nearest - x[:, None]).abs(), torch.inf)
    if not len(intervals):
        return x, torch.zeros_like(x, dtype=torch.bool)
    least, which = way.min(dim=1)
    return torch.where(least.isfinite(), nearest.gather(1, which[:, None])[:, 0], x), least.isfinite()


def _above(low: Tensor, dtype: torch.dtype) -> Tensor:
    """The least numbers of a type that are greater."""
    rounded = low.to(dtype)
    return torch.where(
        rounded > low, rounded, torch.nextafter(rounded, torch.full_like(rounded, torch.inf))
    ).double()


def _up_to(high: Tensor, dtype: torch.dtype) -> Tensor:
    """The greatest numbers of a type that are not greater."""
    rounded = high.to(dtype)
    return torch.where(
        rounded <= high, rounded, torch.nextafter(rounded, torch.full_like(rounded, -torch.inf))
    ).double()


def _leaves(head: Head, edges: Edges) -> list[Leaf]:
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
    """Column and numbers that every test sends left."""
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
