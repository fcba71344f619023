"""Branch and bound over the pieces of a cluster, whole numbers, and the choice of columns that change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from neonxc.counterfactuals.task import Task

MOST_NODES = 1000
MOST_NUMBERS = 1 << 22
"""Number of problems solved per point, and of their half-spaces times columns, after which the search returns the
best solution so far."""
UNCHANGED = 1e-9
"""Changes up to this size, in units of `spread` (of whole numbers in their own units), count as none."""


@dataclass(frozen=True)
class Found:
    """Nearest points [n, d], and whether they were found, are exact, and have converged, [n] each."""

    points: Tensor
    found: Tensor
    exact: Tensor
    converged: Tensor


@dataclass(frozen=True)
class Nodes:
    """Nodes of the search tree: the problem of reaching a piece within a box of changes, in units of `spread`."""

    point: Tensor  # [m]
    piece: Tensor  # [m]
    bound: Tensor  # [m], lower bound of the distance
    low: Tensor  # [m, d]
    high: Tensor  # [m, d]
    chosen: Tensor  # [m, d], columns that count as changed

    def take(self, subset: Tensor) -> Nodes:
        """Select nodes."""
        return Nodes(*(getattr(self, field.name)[subset] for field in fields(self)))

    def __add__(self, other: Nodes) -> Nodes:
        pairs = ((getattr(self, field.name), getattr(other, field.name)) for field in fields(self))
        return Nodes(*(torch.cat(pair) for pair in pairs))


Solve = Callable[[Nodes], tuple[Tensor, Tensor, Tensor]]
"""Solves nodes: returns the smallest changes [m, d], whether there are any, and whether they converged."""


def roots(task: Task, point: Tensor, piece: Tensor, bound: Tensor) -> Nodes:
    """The root nodes of pairs of points and pieces, where nothing is decided yet."""
    low, high = task.box()
    whole = task.integer & ((task.x - task.x.round()).abs() > UNCHANGED)  # fractional, so they have to change
    chosen = whole[point]
    low, high = _no_more(task, low[point], high[point], chosen)
    return Nodes(point, piece, bound, low, high, chosen)


def search(task: Task, nodes: Nodes, solve: Solve, room: int, most: int, convex: bool) -> Found:
    """Find the least change of every point.

    Parameters
    ----------
    task : Task
    nodes : Nodes
        The root nodes.
    solve : callable
        Solves nodes.
    room : int
        Number of nodes that fit into memory at once.
    most : int
        Number of nodes that may be solved per point.
    convex : bool
        Whether the pieces are convex, so that each solution bounds those with fewer columns from below.

    Returns
    -------
    Found
    """
    n = len(task.x)
    best = task.x.new_full((n,), torch.inf)
    answer, sure = torch.zeros_like(task.x), torch.zeros(n, dtype=torch.bool, device=task.x.device)
    solved, exact = torch.zeros(n, dtype=torch.int64, device=task.x.device), torch.ones_like(sure)
    while len(nodes.point):
        now = _next(nodes, room)
        subset, nodes = nodes.take(now), nodes.take(~now)
        solved.index_add_(0, subset.point, torch.ones_like(subset.point))
        u, feasible, converged = solve(subset)
        length = torch.linalg.vector_norm(u, dim=1)
        remaining = feasible & (length < best[subset.point])
        subset, u, length, converged = (
            subset.take(remaining),
            u[remaining],
            length[remaining],
            converged[remaining],
        )
        candidates = (subset, u, converged)
        if task.discrete:
            candidates = _rounded(task, subset, u, solve)
        _keep_best(best, answer, sure, *candidates)
        if task.discrete:
            subset = replace(subset, bound=_bound(task, subset, u) if convex else length)
            nodes = nodes + _children(task, subset, u)
        better, spent = nodes.bound < best[nodes.point] * (1 - UNCHANGED), solved[nodes.point] >= most
        exact[nodes.point[better & spent]] = False
        nodes = nodes.take(better & ~spent)
    return Found(task.moved(answer), best.isfinite(), exact, sure)


def _next(nodes: Nodes, room: int) -> Tensor:
    """Mask of the nodes to solve next: the best ones of every point, as many as fit into memory."""
    order = nodes.bound.argsort(stable=True)
    order = order[nodes.point[order].argsort(stable=True)]
    point = nodes.point[order]
    _, counts = point.unique_consecutive(return_counts=True)
    first = (counts.cumsum(0) - counts).repeat_interleave(counts)
    rank = torch.arange(len(order), device=order.device) - first
    return torch.zeros_like(rank, dtype=torch.bool).index_copy(0, order, rank < max(1, room // len(counts)))


def _keep_best(best: Tensor, answer: Tensor, sure: Tensor, nodes: Nodes, u: Tensor, converged: Tensor) -> None:
    length = torch.linalg.vector_norm(u, dim=1)
    better = length < best[nodes.point]
    best.scatter_reduce_(0, nodes.point, length, "amin")
    won = better & (length == best[nodes.point])
    answer[nodes.point[won]], sure[nodes.point[won]] = u[won], converged[won]


def _rounded(task: Task, nodes: Nodes, u: Tensor, solve: Solve) -> tuple[Nodes, Tensor, Tensor]:
    """Candidate solutions: only the largest changes are kept, and whole numbers are rounded, in two ways."""
    low, high = nodes.low, nodes.high
    if task.most is not None:
        size = u.abs().masked_fill(nodes.chosen, torch.inf)
        keep = torch.zeros_like(nodes.chosen).scatter(
            1, size.topk(min(task.most, u.shape[1]), dim=1).indices, True
        )
        low, high = torch.where(keep, low, 0.0), torch.where(keep, high, 0.0)
    x, movable = task.x[nodes.point], task.integer & (low < high)
    value = x + u * task.spread

    def at(whole: Tensor) -> Nodes:
        end = (whole - x) / task.spread
        return replace(nodes, low=torch.where(movable, end, low), high=torch.where(movable, end, high))

    tried = at(value.round())
    if bool(movable.any()):  # rounded away from x, points are more likely to reach the target
        tried = tried + at(torch.where(u > 0, (value - UNCHANGED).ceil(), (value + UNCHANGED).floor()))
    found, feasible, converged = solve(tried)
    return tried.take(feasible), found[feasible], converged[feasible]


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
    uneven = torch.where(task.integer, (value - value.round()).abs(), 0.0)
    uneven = torch.where(nodes.low < nodes.high, uneven, 0.0)
    changed = (u.abs() > UNCHANGED) & ~nodes.chosen
    many = torch.zeros_like(nodes.point, dtype=torch.bool)
    if task.most is not None:
        many = (changed | nodes.chosen).sum(dim=1) > task.most
    split = ~many & (uneven.amax(dim=1) > UNCHANGED) if u.shape[1] else many
    by_column = _by_column(task, nodes.take(many), (u.abs() * changed)[many].argmax(dim=1))
    at = uneven[split].argmax(dim=1, keepdim=True)
    below = (value[split].gather(1, at).floor() - x[split].gather(1, at)) / task.spread[at]
    above = below + 1 / task.spread[at]
    halves = nodes.take(split)
    lower = replace(halves, high=halves.high.scatter(1, at, below))
    upper = replace(halves, low=halves.low.scatter(1, at, above))
    return by_column + lower + upper


def _by_column(task: Task, nodes: Nodes, column: Tensor) -> Nodes:
    """Two nodes for each: in one the column may not change, in the other it counts as changed."""
    at = column[:, None]
    without = replace(nodes, low=nodes.low.scatter(1, at, 0.0), high=nodes.high.scatter(1, at, 0.0))
    chosen = nodes.chosen.scatter(1, at, True)
    low, high = _no_more(task, nodes.low, nodes.high, chosen)
    return without + replace(nodes, low=low, high=high, chosen=chosen)


def _no_more(task: Task, low: Tensor, high: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
    """Fix the other columns of nodes in which as many columns as allowed are chosen."""
    if task.most is None:
        return low, high
    count = chosen.sum(dim=1, keepdim=True)
    still = (count >= task.most) & ~chosen
    low, high = torch.where(still, 0.0, low), torch.where(still, 0.0, high)
    return torch.where(count > task.most, torch.inf, low), high  # too many are chosen: an empty box
