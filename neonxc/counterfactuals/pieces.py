"""Counterfactuals of clusters that are unions of convex pieces: boxes of threshold trees, and polyhedra."""

from __future__ import annotations

from math import inf

import torch
from torch import Tensor

from neonxc.common.memory import at_once
from neonxc.counterfactuals.branch_and_bound import MOST_NODES, MOST_NUMBERS, Found, Nodes, search
from neonxc.counterfactuals.geometry import compared, pieces_of
from neonxc.counterfactuals.projection import shortest
from neonxc.counterfactuals.task import Task
from neonxc.head import Head
from neonxc.head.competition import Path
from neonxc.head.grouping import UnionOfIntervals
from neonxc.rules.intervals import EVERYTHING, Intervals, complement, intersection, union

COPIES = 6  # copies of a node's half-spaces in memory while it is solved


class Polyhedra:
    """The clusters of a head whose contrasts are linear in the raw columns.

    Parameters
    ----------
    head : Head
    slopes : Tensor [M, d]
        From :func:`~neonxc.counterfactuals.geometry.slopes_of`.
    """

    def __init__(self, head: Head, slopes: Tensor) -> None:
        self.head = head
        self.values = slopes.double()
        self.pieces = pieces_of(head)
        self.room = at_once(8 * COPIES * (slopes.numel() + len(self.pieces.cluster)), slopes.device)

    def nearest(self, task: Task, margin: Tensor) -> Found:
        """Find the nearest points that are inside a piece of the target by a margin [n], in units of `spread`."""
        values = compared(self.head, task.x)
        slopes = self.values * task.spread
        point, piece = task.wanted[:, self.pieces.cluster].nonzero(as_tuple=True)

        def solve(nodes: Nodes) -> tuple[Tensor, Tensor, Tensor]:
            contrasts = self.pieces.contrasts(values[nodes.point], nodes.piece)
            edges = half_spaces(contrasts, self.pieces.slopes(slopes, nodes.piece), margin[nodes.point])
            u, solvable, _ = shortest(*edges, nodes.low, nodes.high)
            return u, solvable, solvable

        bound = torch.zeros_like(margin)
        if len(point) != len(bound):  # several pieces per point
            bound = self._bounds(task, values, slopes, point, piece)
        most = min(MOST_NODES, MOST_NUMBERS // max(1, slopes.numel()))
        return search(task, point, piece, bound, solve, self.room, most, True)

    def _bounds(self, task: Task, values: Tensor, slopes: Tensor, point: Tensor, piece: Tensor) -> Tensor:
        """The distance [m] from the farthest half-space, if no more columns may change than allowed."""
        lengths = []
        for block in torch.arange(len(self.pieces.cluster), device=piece.device).split(self.room):
            square = self.pieces.slopes(slopes, block).square().masked_fill(task.fixed, 0.0)
            if task.most is not None:
                square = square.topk(min(task.most, square.shape[2]), dim=2).values
            lengths.append(square.sum(dim=2).sqrt())
        length = torch.cat(lengths)
        rows = self.room * slopes.shape[1]
        far = [
            (-self.pieces.contrasts(values[i], p) / length[p]).nan_to_num(0.0, torch.inf).amax(dim=1)
            for i, p in zip(point.split(rows), piece.split(rows), strict=True)
        ]
        return torch.cat(far).clamp(min=0)


def half_spaces(contrasts: Tensor, slopes: Tensor, margin: Tensor) -> tuple[Tensor, Tensor]:
    """Half-spaces ``normals u <= limits`` where contrasts [n, M] with gradients [n, M, d] exceed a margin [n]."""
    length = torch.linalg.vector_norm(slopes, dim=2)
    flat = length == 0
    length = length.masked_fill(flat, 1.0)
    limits = contrasts / length - margin[:, None]
    limits = torch.where(flat, torch.where(contrasts >= 0, torch.inf, -1.0), limits)
    return -slopes / length[:, :, None], limits


class LeafBoxes:
    """The leaves of a tree whose tests use one column each, so that every column is projected on its own.

    Parameters
    ----------
    head : Head
    edges : tuple of Tensor [M]
        From :meth:`~neonxc.head.detection.Detection.edges`.
    """

    def __init__(self, head: Head, edges: tuple[Tensor, Tensor, Tensor]) -> None:
        self.leaves = _leaves(head, edges)
        self.room = at_once(8 * 8 * (len(edges[0]) + 1), head.detection.device)

    def nearest(self, task: Task, margin: Tensor) -> Found:
        """Find the nearest points that are inside a leaf by a margin [n], in units of `spread`."""
        best = torch.full_like(margin, torch.inf)
        start = torch.where(task.integer, task.x.round().clamp(task.low, task.high), task.x)
        points = task.x.clone()
        feasible = (task.low <= task.high).all()
        for cluster, allowed in self.leaves:
            rows = task.wanted[:, cluster].nonzero()[:, 0]
            subset = task.take(rows)
            y = start[rows]
            for column, intervals in allowed.items():
                y[:, column] = _nearest_value(subset, column, intervals, margin[rows, None])
            changed = y != subset.x
            possible = feasible & ~(changed & task.fixed).any(dim=1)
            if task.most is not None:
                possible &= changed.sum(dim=1) <= task.most
            distance = torch.where(possible, subset.distance(y), torch.inf)
            better = distance < best[rows]
            best[rows[better]] = distance[better]
            points[rows[better]] = y[better]
        reached = best.isfinite()
        return Found(points, reached, torch.ones_like(reached), reached)


def _nearest_value(task: Task, column: int, intervals: Intervals, margin: Tensor) -> Tensor:
    """The nearest values [n] of a column inside a union of intervals ``low < x <= high``; infinite if none is."""
    x = task.x[:, [column]]
    low, high = torch.tensor(intervals, dtype=torch.float64, device=x.device).T
    low = low + margin * task.spread[column]
    high = high - margin * task.spread[column]
    if bool(task.integer[column]):
        low = low.floor() + 1
        high = high.floor()
        nearest = x.round()
    else:
        low = _above(low, task.dtype).double()
        nearest = x
        above = _above(high, task.dtype)  # so the number before it is the greatest one inside
        high = torch.nextafter(above, torch.full_like(above, -torch.inf)).double()
    low = low.clamp(min=task.low[column])
    high = high.clamp(max=task.high[column])
    nearest = nearest.clamp(low, high)
    least, which = torch.where(low <= high, (nearest - x).abs(), torch.inf).min(dim=1, keepdim=True)
    return torch.where(least.isfinite(), nearest.gather(1, which), torch.inf)[:, 0]


def _above(low: Tensor, dtype: torch.dtype) -> Tensor:
    """The smallest numbers of a dtype that are greater than `low`."""
    rounded = low.to(dtype)
    return torch.where(rounded > low, rounded, torch.nextafter(rounded, torch.full_like(rounded, torch.inf)))


def _leaves(head: Head, edges: tuple[Tensor, Tensor, Tensor]) -> list[tuple[int, dict[int, Intervals]]]:
    """The cluster of each leaf that is not empty, and the intervals that its path allows for tested columns."""
    assert isinstance(head.competition, Path)
    columns, *halves = (part.tolist() for part in edges)
    alone = head.groups  # without a grouping every edge is an interval, and every interval a test
    grouping = head.grouping or UnionOfIntervals(alone, alone, len(alone))
    assert isinstance(grouping, UnionOfIntervals)
    intervals = [EVERYTHING] * len(grouping.tests)
    for edge, sign, interval in zip(*halves, grouping.intervals.tolist(), strict=True):
        half = (-inf, edge) if sign > 0 else (edge, inf)
        intervals[interval] = intersection(intervals[interval], (half,))
    column_of = dict(zip(grouping.groups.tolist(), columns, strict=True))
    inside: list[Intervals] = [()] * grouping.n_groups
    for test, pairs in zip(grouping.tests.tolist(), intervals, strict=True):
        inside[test] = union(inside[test] + pairs)
    leaves = []
    for cluster, signs in zip(head.competition.leaves.tolist(), head.competition.signs.tolist(), strict=True):
        allowed: dict[int, Intervals] = {}
        for test, sign in enumerate(signs):
            if sign:
                column = column_of.get(test, 0)  # a test without edges has the same result for all values
                side = inside[test] if sign > 0 else complement(inside[test])
                allowed[column] = intersection(allowed.get(column, EVERYTHING), side)
        if all(allowed.values()):
            leaves.append((cluster, allowed))
    return leaves
