"""Branch and bound over the pieces of a cluster, whole numbers, and the choice of columns that change."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from neonxc.counterfactuals.task import Task

MOST_NODES = 1000
MOST_NUMBERS = 1 << 22
"""Number of problems solved per point, and of their half-spaces times columns, after which the search returns the
best solution so far."""
UNCHANGED = 1e-9
"""Changes up to this size, in units of `spread` (of whole numbers in their own units), count as none."""


class Found(NamedTuple):
    """Nearest points [n, d], and whether they were found, are exact, and have converged, [n] each."""

    points: Tensor
    found: Tensor
    exact: Tensor
    converged: Tensor


class Nodes(NamedTuple):
    """Nodes of the search tree: the problem of reaching a piece within a box of changes, in units of `spread`."""

    point: Tensor  # [m]
    piece: Tensor  # [m]
    bound: Tensor  # [m], lower bound of the distance
    low: Tensor  # [m, d]
    high: Tensor  # [m, d]
    chosen: Tensor  # [m, d], columns that count as changed

    def take(self, subset: Tensor) -> Nodes:
        """Select nodes."""
        return Nodes(*(part[subset] for part in self))

    def and_also(self, other: Nodes) -> Nodes:
        """Join two sets of nodes."""
        return Nodes(*map(torch.cat, zip(self, other, strict=True)))


Solve = Callable[[Nodes], tuple[Tensor, Tensor, Tensor]]
"""Solves nodes: returns the smallest changes [m, d], whether there are any, and whether they converged."""


def search(
    task: Task, point: Tensor, piece: Tensor, bound: Tensor, solve: Solve, room: int, most: int, convex: bool
) -> Found:
    """Find the least change of every point.

    Parameters
    ----------
    task : Task
    point, piece, bound : Tensor [m]
        The pairs of points and pieces, and lower bounds of their distances.
    solve : callable
        Solves nodes.
    room : int
        Number of nodes that fit into memory at once.
    most : int
        Number of nodes that may be solved per point, in addition to its pieces.
    convex : bool
        Whether the pieces are convex, so that each solution bounds those with fewer columns from below.

    Returns
    -------
    Found
    """
    low, high = task.box()
    whole = task.integer & ((task.x - task.x.round()).abs() > UNCHANGED)  # fractional, so they have to change
    nodes = _no_more(task, Nodes(point, piece, bound, low[point], high[point], whole[point]))
    most += int(point.bincount(minlength=1).max())
    best = torch.full_like(task.x[:, 0], torch.inf)
    answer = torch.zeros_like(task.x)
    sure = torch.zeros_like(best, dtype=torch.bool)
    solved = torch.zeros_like(best)
    exact = ~sure
    while len(nodes.point):
        now = _next(nodes, room)
        subset = nodes.take(now)
        nodes = nodes.take(~now)
        solved.index_add_(0, subset.point, torch.ones_like(subset.bound))
        u, feasible, converged = solve(subset)
        length = torch.linalg.vector_norm(u, dim=1)
        better = feasible & (length < best[subset.point])
        subset = subset.take(better)
        u = u[better]
        length = length[better]
        converged = converged[better]
        tried = subset
        end = u
        if task.discrete:
            tried, end, converged = _rounded(task, subset, u, solve)
            subset = subset._replace(bound=_bound(task, subset, u) if convex else length)
            nodes = nodes.and_also(_children(task, subset, u))
        length = torch.linalg.vector_norm(end, dim=1)
        better = length < best[tried.point]
        best.scatter_reduce_(0, tried.point, length, "amin")
        won = better & (length == best[tried.point])
        answer[tried.point[won]] = end[won]
        sure[tried.point[won]] = converged[won]
        better = nodes.bound < best[nodes.point] * (1 - UNCHANGED)
        spent = solved[nodes.point] >= most
        exact[nodes.point[better & spent]] = False
        nodes = nodes.take(better & ~spent)
    return Found(task.moved(answer), best.isfinite(), exact, sure)


def _next(nodes: Nodes, room: int) -> Tensor:
    """Mask of the nodes to solve next: the best ones of every point, as many as fit into memory."""
    order = nodes.bound.argsort(stable=True)
    order = order[nodes.point[order].argsort(stable=True)]
    counts = nodes.point.bincount()
    rank = torch.arange(len(order), device=order.device) - (counts.cumsum(0) - counts)[nodes.point[order]]
    each = max(1, room // int(counts.count_nonzero()))
    return torch.zeros_like(rank, dtype=torch.bool).index_copy(0, order, rank < each)


def _rounded(task: Task, nodes: Nodes, u: Tensor, solve: Solve) -> tuple[Nodes, Tensor, Tensor]:
    """Candidate solutions: only the largest changes are kept, and whole numbers are rounded, in two ways."""
    low = nodes.low
    high = nodes.high
    if task.most is not None:
        size = u.abs().masked_fill(nodes.chosen, torch.inf)
        largest = size.topk(min(task.most, u.shape[1]), dim=1).indices
        others = torch.ones_like(nodes.chosen).scatter(1, largest, False)
        low = low.masked_fill(others, 0.0)
        high = high.masked_fill(others, 0.0)
    x = task.x[nodes.point]
    movable = task.integer & (low < high)
    value = x + u * task.spread

    def at(whole: Tensor) -> Nodes:
        end = (whole - x) / task.spread
        return nodes._replace(low=torch.where(movable, end, low), high=torch.where(movable, end, high))

    tried = at(value.round())
    if bool(movable.any()):  # rounded away from x, points are more likely to reach the target
        tried = tried.and_also(at(torch.where(u > 0, (value - UNCHANGED).ceil(), (value + UNCHANGED).floor())))
    changes, feasible, converged = solve(tried)
    return tried.take(feasible), changes[feasible], converged[feasible]


def _bound(task: Task, nodes: Nodes, u: Tensor) -> Tensor:
    """Lower bounds [m] of nodes solved by changes u [m, d], infinite if the limit on columns leaves no solution.

    All changes v in a node's convex set satisfy ``u v >= |u|^2``. If only columns in S may change, this means that
    ``|v| >= |u|^2 / |u_S|``, which is least if S has the chosen columns and the largest of the others.
    """
    square = u.square()
    total = square.sum(dim=1)
    if task.most is None:
        return total.sqrt()
    place = torch.arange(min(task.most, u.shape[1]), device=u.device)
    room = place < task.most - nodes.chosen.sum(dim=1, keepdim=True)

    def largest(values: Tensor) -> Tensor:
        others = values.masked_fill(nodes.chosen, 0.0).topk(len(place), dim=1).values
        return (values * nodes.chosen).sum(dim=1) + (others * room).sum(dim=1)

    reach = torch.maximum(u * nodes.low, u * nodes.high).nan_to_num(0.0)
    possible = largest(reach) >= total * (1 - UNCHANGED)
    return torch.where(possible, (total / largest(square).sqrt()).nan_to_num(0.0), torch.inf)


def _children(task: Task, nodes: Nodes, u: Tensor) -> Nodes:
    """Branch: on whether a column changes, or on whether a whole number is below or above its value."""
    x = task.x[nodes.point]
    value = x + u * task.spread
    uneven = torch.where(task.integer & (nodes.low < nodes.high), (value - value.round()).abs(), 0.0)
    changed = (u.abs() > UNCHANGED) & ~nodes.chosen
    count = (changed | nodes.chosen).sum(dim=1, keepdim=True)
    many = torch.zeros_like(count, dtype=torch.bool) if task.most is None else count > task.most
    largest, column = torch.where(many, u.abs() * changed, uneven).max(dim=1, keepdim=True)
    here = torch.zeros_like(changed).scatter(1, column, True)
    below = (value.floor() - x) / task.spread
    above = torch.where(here & ~many, below + 1 / task.spread, nodes.low)
    upper = _no_more(task, nodes._replace(low=above, chosen=nodes.chosen | (here & many)))
    high = torch.where(here, below.masked_fill(many, 0.0), nodes.high)
    lower = nodes._replace(low=nodes.low.masked_fill(here & many, 0.0), high=high)
    split = (many | (largest > UNCHANGED))[:, 0]
    return lower.take(split).and_also(upper.take(split))


def _no_more(task: Task, nodes: Nodes) -> Nodes:
    """Fix the other columns of nodes in which as many columns as allowed are chosen."""
    if task.most is None:
        return nodes
    count = nodes.chosen.sum(dim=1, keepdim=True)
    still = (count >= task.most) & ~nodes.chosen
    low = nodes.low.masked_fill(still, 0.0)
    high = nodes.high.masked_fill(still, 0.0)
    return nodes._replace(low=low.masked_fill(count > task.most, torch.inf), high=high)  # too many: an empty box
