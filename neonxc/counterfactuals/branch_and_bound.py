"""Branch and bound over the pieces of a cluster, integers, and the choice of columns that change.

For every point x the shortest change u, in units of `spread`, is searched with which x + u spread is in a piece of
the target and has integers in the columns of `integer`, while at most `max_columns` columns change. A node of the
search tree is a piece with a box low <= u <= high and a set of columns that count as changed (Land and Doig,
Econometrica 28, 1960):

1. Start with one node per piece, whose box has the bounds of the columns.
2. Take the nodes with the lowest bounds of the distance, and find the shortest u in the piece and the box alone.
3. Round u to a candidate that fulfills the other conditions, too; the shortest candidate of a point is kept.
4. Bound the distance of what is left in the node from below (`_bound`).
5. Split the node in two (`_children`). If more than `max_columns` columns change, the one that changes most is
   fixed in one child and counts as changed in the other. Else the value v in the columns of `integer` that is
   farthest from an integer is at most floor(v) in one child and at least floor(v) + 1 in the other.
6. Drop the nodes whose bound is not below the best candidate. End if none is left, or if `max_nodes` are solved.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from neonxc.counterfactuals.task import Candidates, Task

UNCHANGED = 1e-9
"""Changes up to this size, in units of `spread` (of integers in their own units), count as none."""


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
        if bool(subset.all()):
            return self
        return Nodes(*(values[subset] for values in self))

    def and_also(self, nodes: Nodes) -> Nodes:
        """Join two sets of nodes."""
        return Nodes(*map(torch.cat, zip(self, nodes, strict=True)))


Solve = Callable[[Nodes], tuple[Tensor, Tensor]]
"""Solves nodes: returns the smallest changes [m, d], and whether there are any."""


def search(
    task: Task,
    point: Tensor,
    piece: Tensor,
    bound: Tensor,
    solve: Solve,
    batch_size: int,
    max_nodes: int,
) -> Candidates:
    """Find the shortest change of every point.

    Parameters
    ----------
    task : Task
    point, piece, bound : Tensor [m]
        The pairs of points and pieces, and lower bounds of their distances.
    solve : callable
        Solves nodes.
    batch_size : int
        Number of nodes that fit into memory at once.
    max_nodes : int
        Number of nodes that may be solved per point, in addition to its pieces.

    Returns
    -------
    Candidates
        One per point.
    """
    low, high = task.box()
    rounding = (task.x - task.x.round()).abs()
    fractional = task.integer & (rounding > UNCHANGED)  # these columns have to change
    nodes = Nodes(point, piece, bound, low[point], high[point], fractional[point])
    nodes = _fixed_if_full(task, nodes)
    max_nodes += int(point.bincount(minlength=1).max())

    changes = torch.zeros_like(task.x)  # [n, d], the best candidates
    best = torch.full_like(task.x[:, 0], torch.inf)  # [n], their lengths
    exact = torch.ones_like(best, dtype=torch.bool)
    n_solved = torch.zeros_like(best)
    while len(nodes.point):
        # step 2: solve the nodes with the lowest bounds
        is_next = _next(nodes, batch_size)
        subset = nodes.take(is_next)
        nodes = nodes.take(~is_next)
        n_solved.index_add_(0, subset.point, torch.ones_like(subset.bound))
        u, feasible = solve(subset)
        length = torch.linalg.vector_norm(u, dim=1)
        better = feasible & (length < best[subset.point])
        subset = subset.take(better)
        u = u[better]

        # steps 3 to 5: candidates, and nodes below these ones; without discrete choices a solution is a candidate
        candidates = subset
        end = u
        if task.discrete:
            candidates, end = _rounded(task, subset, u, solve)
            subset = subset._replace(bound=_bound(task, subset, u))
            nodes = nodes.and_also(_children(task, subset, u))

        # the shortest candidate of every point
        length = torch.linalg.vector_norm(end, dim=1)
        better = length < best[candidates.point]
        best.scatter_reduce_(0, candidates.point, length, "amin")
        is_best = better & (length == best[candidates.point])
        changes[candidates.point[is_best]] = end[is_best]

        # step 6: drop nodes
        promising = nodes.bound < best[nodes.point] * (1 - UNCHANGED)
        spent = n_solved[nodes.point] >= max_nodes
        exact[nodes.point[promising & spent]] = False
        nodes = nodes.take(promising & ~spent)
    return Candidates(task.moved(changes)[:, None], best.isfinite()[:, None], exact)


def _next(nodes: Nodes, batch_size: int) -> Tensor:
    """Mask of the nodes to solve next: those with the lowest bounds of every point, as many as fit into memory."""
    n_points = int(nodes.point.bincount().count_nonzero())
    return ranks(nodes.point, nodes.bound) < max(1, batch_size // n_points)


def ranks(point: Tensor, value: Tensor) -> Tensor:
    """Compute the rank [m] of every value among those of the same point, from 0."""
    order = value.argsort(stable=True)
    order = order[point[order].argsort(stable=True)]  # by point, and by value within a point
    counts = point.bincount()
    first = counts.cumsum(0) - counts  # where the values of a point begin
    position = torch.arange(len(order), device=order.device)
    return torch.empty_like(position).index_copy(0, order, position - first[point[order]])


def _rounded(task: Task, nodes: Nodes, u: Tensor, solve: Solve) -> tuple[Nodes, Tensor]:
    """Find candidates: only the largest changes are kept, and integers are rounded, in two ways.

    Returns the nodes that have one, and the changes.
    """
    low = nodes.low
    high = nodes.high
    if task.max_columns is not None:
        size = u.abs().masked_fill(nodes.chosen, torch.inf)
        largest = size.topk(min(task.max_columns, u.shape[1]), dim=1).indices
        is_small = torch.ones_like(nodes.chosen).scatter(1, largest, False)
        low = low.masked_fill(is_small, 0.0)
        high = high.masked_fill(is_small, 0.0)
    x = task.x[nodes.point]
    value = x + u * task.spread
    movable = task.integer & (low < high)

    def at(integers: Tensor) -> Nodes:
        end = (integers - x) / task.spread
        return nodes._replace(low=torch.where(movable, end, low), high=torch.where(movable, end, high))

    candidates = at(value.round())
    if bool(movable.any()):  # rounded away from x, points are more likely to reach the target
        up = (value - UNCHANGED).ceil()
        down = (value + UNCHANGED).floor()
        candidates = candidates.and_also(at(torch.where(u > 0, up, down)))
    changes, feasible = solve(candidates)
    return candidates.take(feasible), changes[feasible]


def _bound(task: Task, nodes: Nodes, u: Tensor) -> Tensor:
    """Lower bounds [m] of nodes solved by changes u [m, d], infinite if the limit on columns leaves no solution.

    All changes v in a node's convex set satisfy ``u v >= |u|^2``. If only columns in S may change, this means that
    ``|v| >= |u|^2 / |u_S|``, which is least if S has the chosen columns and the largest of the others. It is not
    possible if ``u v < |u|^2`` for all v in the box that change only columns in S.
    """
    squared = u.square()
    total = squared.sum(dim=1)
    if task.max_columns is None:
        return total.sqrt()
    rank = torch.arange(min(task.max_columns, u.shape[1]), device=u.device)
    n_free = task.max_columns - nodes.chosen.sum(dim=1, keepdim=True)
    is_free = rank < n_free

    def largest_sum(values: Tensor) -> Tensor:
        """The sums [m] of values [m, d] over S."""
        unchosen = values.masked_fill(nodes.chosen, 0.0).topk(len(rank), dim=1).values
        chosen_sum = (values * nodes.chosen).sum(dim=1)
        return chosen_sum + (unchosen * is_free).sum(dim=1)

    reach = torch.maximum(u * nodes.low, u * nodes.high).nan_to_num(0.0)  # the largest u_i v_i in the box
    possible = largest_sum(reach) >= total * (1 - UNCHANGED)
    bound = (total / largest_sum(squared).sqrt()).nan_to_num(0.0)
    return torch.where(possible, bound, torch.inf)


def _children(task: Task, nodes: Nodes, u: Tensor) -> Nodes:
    """Split nodes: on whether a column changes, or on whether an integer is below or above its value."""
    x = task.x[nodes.point]
    value = x + u * task.spread
    movable = task.integer & (nodes.low < nodes.high)
    rounding = torch.where(movable, (value - value.round()).abs(), 0.0)
    changed = (u.abs() > UNCHANGED) & ~nodes.chosen
    n_changed = (changed | nodes.chosen).sum(dim=1, keepdim=True)
    if task.max_columns is None:
        too_many = torch.zeros_like(n_changed, dtype=torch.bool)
    else:
        too_many = n_changed > task.max_columns

    # the column on which a node is split: the one that changes most, or the one farthest from an integer
    priority = torch.where(too_many, u.abs() * changed, rounding)
    largest, column = priority.max(dim=1, keepdim=True)
    is_split = (too_many | (largest > UNCHANGED))[:, 0]
    at_column = torch.zeros_like(changed).scatter(1, column, True)
    is_choice = at_column & too_many
    floor = (value.floor() - x) / task.spread

    # the column does not change, or is at most the integer below its value
    low = nodes.low.masked_fill(is_choice, 0.0)
    high = torch.where(at_column, floor.masked_fill(too_many, 0.0), nodes.high)
    lower = nodes._replace(low=low, high=high)

    # the column counts as changed, or is at least the integer above its value
    ceiling = floor + 1 / task.spread
    low = torch.where(at_column & ~too_many, ceiling, nodes.low)
    upper = _fixed_if_full(task, nodes._replace(low=low, chosen=nodes.chosen | is_choice))
    return lower.take(is_split).and_also(upper.take(is_split))


def _fixed_if_full(task: Task, nodes: Nodes) -> Nodes:
    """Fix the unchosen columns of nodes in which as many columns as allowed are chosen."""
    if task.max_columns is None:
        return nodes
    n_chosen = nodes.chosen.sum(dim=1, keepdim=True)
    is_fixed = (n_chosen >= task.max_columns) & ~nodes.chosen
    low = nodes.low.masked_fill(is_fixed, 0.0)
    high = nodes.high.masked_fill(is_fixed, 0.0)
    low = low.masked_fill(n_chosen > task.max_columns, torch.inf)  # too many are chosen: the box is empty
    return nodes._replace(low=low, high=high)
