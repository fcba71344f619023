"""Counterfactuals of clusters that are unions of convex pieces: boxes of threshold trees, and polyhedra.

A piece is bounded by contrasts ``h_l(u) = h_l + u grad h_l``, linear in the changes u of a point. A contrast
exceeds a margin in the half-space ``normal_l u <= limit_l`` with

    normal_l = - grad h_l / |grad h_l|    and    limit_l = h_l / |grad h_l| - margin,

so that ``- limit_l`` is the distance to the half-space where it is positive. A polyhedron is reached by projection
(:mod:`~neonxc.counterfactuals.projection`); in a box, every column is moved to its interval on its own.
"""

from __future__ import annotations

from math import inf
from typing import TypeAlias

import torch
from torch import Tensor

from neonxc.common.memory import at_once
from neonxc.common.sizes import MAX_CONSTRAINT_NUMBERS, MAX_NODES
from neonxc.counterfactuals.branch_and_bound import Nodes, search
from neonxc.counterfactuals.geometry import pieces_of, slopes_of
from neonxc.counterfactuals.projection import shortest
from neonxc.counterfactuals.task import Candidates, Task
from neonxc.head import Head
from neonxc.head.competition import Path
from neonxc.head.grouping import UnionOfIntervals
from neonxc.rules.intervals import EVERYTHING, Intervals, complement, intersection, union

# bytes on a CPU: for 200 points with 2,000 columns, the usual budget, four times as large, takes 1.4 times as long
# and 125 MB more; less than half of it is slower
ON_CPU = 1 << 25
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
        self.slopes = slopes.double()
        self.pieces = pieces_of(head)
        n_numbers = slopes.numel() + len(self.pieces.cluster)  # of a node
        self.batch_size = at_once(8 * COPIES * n_numbers, slopes.device, ON_CPU)

    def nearest(self, task: Task) -> Candidates:
        """Find the nearest points that are inside a piece of the target by the margin."""
        neurons = self.head.detection(task.x)
        slopes = self.slopes * task.spread
        point, piece = task.targets[:, self.pieces.cluster].nonzero(as_tuple=True)

        def solve(nodes: Nodes) -> tuple[Tensor, Tensor]:
            contrasts = self.pieces.contrasts(neurons[nodes.point], nodes.piece)
            gradients = self.pieces.slopes(slopes, nodes.piece)
            normals, limits = half_spaces(contrasts, gradients, task.margin[nodes.point])
            return shortest(normals, limits, nodes.low, nodes.high)

        bound = torch.zeros_like(task.x[point, 0])
        if len(point) != len(task.x):  # several pieces per point
            bound = self._bounds(task, neurons, point, piece)
        max_nodes = min(MAX_NODES, MAX_CONSTRAINT_NUMBERS // max(1, slopes.numel()))
        return search(task, point, piece, bound, solve, self.batch_size, max_nodes)

    def depth(self, y: Tensor, targets: Tensor, spread: Tensor) -> Tensor:
        """Compute the distances [m] of points y from the border of their targets [m, K], negative outside."""
        lengths = self._lengths(self.slopes * spread, torch.zeros_like(spread, dtype=torch.bool), None)
        neurons = self.head.detection(y)
        depth = torch.full_like(y[:, 0], -torch.inf)
        for piece, cluster in enumerate(self.pieces.cluster.tolist()):
            rows = targets[:, cluster].nonzero()[:, 0]
            contrasts = self.pieces.contrasts(neurons[rows], torch.full_like(rows, piece))
            from_each = (contrasts / lengths[piece]).nan_to_num(torch.inf, torch.inf)
            depth[rows] = torch.maximum(depth[rows], from_each.amin(dim=1))
        return depth

    def _bounds(self, task: Task, neurons: Tensor, point: Tensor, piece: Tensor) -> Tensor:
        """Compute the distances [m] from the farthest half-space of a piece, lower bounds of that from the piece.

        The distance from a half-space is ``- h_l / |grad h_l|``, where the norm has only the columns that can
        change: the largest ones, if their number is limited.
        """
        lengths = self._lengths(self.slopes * task.spread, task.fixed, task.max_columns)
        distances = []
        rows = self.batch_size * self.slopes.shape[1]
        for i, p in zip(point.split(rows), piece.split(rows), strict=True):
            from_each = -self.pieces.contrasts(neurons[i], p) / lengths[p]
            distances.append(from_each.nan_to_num(0.0, torch.inf).amax(dim=1))
        return torch.cat(distances).clamp(min=0)

    def _lengths(self, slopes: Tensor, fixed: Tensor, max_columns: int | None) -> Tensor:
        """Compute the norms [P, M] of the contrasts' gradients in the largest columns that are not fixed."""
        lengths = []
        for block in torch.arange(len(self.pieces.cluster), device=slopes.device).split(self.batch_size):
            squared = self.pieces.slopes(slopes, block).square().masked_fill(fixed, 0.0)
            if max_columns is not None:
                squared = squared.topk(min(max_columns, squared.shape[2]), dim=2).values
            lengths.append(squared.sum(dim=2).sqrt())
        return torch.cat(lengths)


def half_spaces(contrasts: Tensor, slopes: Tensor, margin: Tensor) -> tuple[Tensor, Tensor]:
    """Half-spaces ``normals u <= limits`` where contrasts [n, M] with gradients [n, M, d] exceed a margin [n]."""
    length = torch.linalg.vector_norm(slopes, dim=2)
    is_constant = length == 0
    length = length.masked_fill(is_constant, 1.0)
    limits = contrasts / length - margin[:, None]
    everywhere_or_nowhere = torch.where(contrasts >= 0, torch.inf, -1.0)  # 0 <= limit holds for all u or for none
    limits = torch.where(is_constant, everywhere_or_nowhere, limits)
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
        self.batch_size = at_once(8 * 8 * (len(edges[0]) + 1), head.detection.device)

    def nearest(self, task: Task) -> Candidates:
        """Find the nearest points that are inside a leaf by the margin."""
        best = torch.full_like(task.margin, torch.inf)
        rounded = task.x.round().clamp(task.low, task.high)
        start = torch.where(task.integer, rounded, task.x)
        points = task.x.clone()
        feasible = (task.low <= task.high).all()
        for cluster, allowed in self.leaves:
            rows = task.targets[:, cluster].nonzero()[:, 0]
            subset = task.take(rows)
            y = start[rows]
            for column, intervals in allowed.items():
                y[:, column] = _nearest_value(subset, column, intervals)
            changed = y != subset.x
            possible = feasible & ~(changed & task.fixed).any(dim=1)
            if task.max_columns is not None:
                possible &= changed.sum(dim=1) <= task.max_columns
            distance = torch.where(possible, subset.distance(y), torch.inf)
            better = distance < best[rows]
            best[rows[better]] = distance[better]
            points[rows[better]] = y[better]
        reached = best.isfinite()
        return Candidates(points[:, None], reached[:, None], torch.ones_like(reached))

    def depth(self, y: Tensor, targets: Tensor, spread: Tensor) -> Tensor:
        """Compute how far points y [m, d] are inside their targets [m, K] in every column, negative outside."""
        depth = torch.full_like(y[:, 0], -torch.inf)
        for cluster, allowed in self.leaves:
            rows = targets[:, cluster].nonzero()[:, 0]
            in_leaf = torch.full_like(depth[rows], torch.inf)
            for column, intervals in allowed.items():
                low, high = torch.tensor(intervals, dtype=torch.float64, device=y.device).T
                x = y[rows, column, None]
                inside = torch.minimum(x - low, high - x).amax(dim=1) / spread[column]
                in_leaf = torch.minimum(in_leaf, inside)
            depth[rows] = torch.maximum(depth[rows], in_leaf)
        return depth


Region: TypeAlias = LeafBoxes | Polyhedra


def region_of(head: Head) -> Region | None:
    """Return the clusters as boxes or polyhedra, or None if their borders are curved."""
    slopes = slopes_of(head)
    if slopes is None:
        return None
    edges = None
    if isinstance(head.competition, Path):
        edges = head.detection.edges()
    return Polyhedra(head, slopes) if edges is None else LeafBoxes(head, edges)


def _nearest_value(task: Task, column: int, intervals: Intervals) -> Tensor:
    """The nearest values [n] of a column inside a union of intervals ``low < x <= high``; infinite if none is."""
    x = task.x[:, [column]]
    low, high = torch.tensor(intervals, dtype=torch.float64, device=x.device).T
    margin = task.margin[:, None] * task.spread[column]
    low = low + margin
    high = high - margin
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
    nearest = nearest.clamp(low, high)  # [n, intervals]
    distances = torch.where(low <= high, (nearest - x).abs(), torch.inf)
    lowest, index = distances.min(dim=1, keepdim=True)
    return torch.where(lowest.isfinite(), nearest.gather(1, index), torch.inf)[:, 0]


def _above(low: Tensor, dtype: torch.dtype) -> Tensor:
    """The smallest numbers of a dtype that are greater than `low`."""
    rounded = low.to(dtype)
    following = torch.nextafter(rounded, torch.full_like(rounded, torch.inf))
    return torch.where(rounded > low, rounded, following)


def _leaves(head: Head, edges: tuple[Tensor, Tensor, Tensor]) -> list[tuple[int, dict[int, Intervals]]]:
    """The cluster of each leaf that is not empty, and the intervals that its path allows for tested columns."""
    assert isinstance(head.competition, Path)
    columns, thresholds, edge_signs = (values.tolist() for values in edges)
    each = head.groups  # without a grouping every edge is an interval, and every interval a test
    grouping = head.grouping or UnionOfIntervals(each, each, len(each))
    assert isinstance(grouping, UnionOfIntervals)

    # the values between the edges of every interval, and those inside the intervals of every test
    intervals = [EVERYTHING] * len(grouping.tests)
    for threshold, sign, interval in zip(thresholds, edge_signs, grouping.intervals.tolist(), strict=True):
        half = (-inf, threshold) if sign > 0 else (threshold, inf)
        intervals[interval] = intersection(intervals[interval], (half,))
    column_of = dict(zip(grouping.groups.tolist(), columns, strict=True))
    inside: list[Intervals] = [()] * grouping.n_groups
    for test, pairs in zip(grouping.tests.tolist(), intervals, strict=True):
        inside[test] = union(inside[test] + pairs)

    # the values that are on the right side of all tests of a leaf, by column
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
