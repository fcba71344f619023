"""Moves of points to nearer centers while all clusters stay interpretable, with the symbols of ``problem.py``.

The slack of a cluster k of n_k points, of which m_k have its majority value, is

    slack_k = m_k - beta n_k >= 0                                                (k is interpretable)

    value of a point that moves from a to b      slack_a changes by    slack_b changes by
    the majority value of the cluster            -(1 - beta)           1 - beta
    another value                                beta                  -beta

Moves of a round only use up the slack that the clusters have at its start: what moves add is used in the next
round, so that the order within a round does not matter.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .problem import InterpretableProblem, Solution, at_labels, purities

ROUNDS = 20  # maximum number of rounds of moves with fixed centers, and of updates of the centers
TOLERANCE = 1e-9  # of the slack, for rounding; `to_nearer` checks the clusters that result


class Majorities(NamedTuple):
    """The majority value of every cluster."""

    sizes: Tensor  # [K], n_k
    counts: Tensor  # [K], m_k
    values: Tensor  # [K], f_k


def alternate(
    problem: InterpretableProblem,
    labels: Tensor,
    move: Callable[[InterpretableProblem, Tensor, Tensor], Tensor],
) -> Solution:
    """Alternately move points and update the centers as long as the objective decreases."""
    best, costs = problem.solution(labels)
    for _ in range(ROUNDS):
        labels = move(problem, best.labels, costs)
        if torch.equal(labels, best.labels):
            break
        updated, costs = problem.solution(labels)
        if not updated.value < best.value:
            break
        best = updated
    return best


def to_nearest(problem: InterpretableProblem, labels: Tensor, costs: Tensor) -> Tensor:
    """Find the nearest center of every point, or keep the old labels if a cluster would become empty.

    Values of interest are ignored.
    """
    nearest = costs.argmin(1)
    has_empty = (torch.bincount(nearest, minlength=costs.shape[1]) == 0).any()
    return labels if has_empty else nearest


def to_nearer(problem: InterpretableProblem, labels: Tensor, costs: Tensor) -> Tensor:
    """Move points in rounds with fixed centers, which never increase the cost of a point."""
    for _ in range(ROUNDS):
        moved = _move_round(problem, labels, costs)
        if torch.equal(moved, labels) or purities(problem.counts(moved)).min() < problem.min_purity:
            break
        labels = moved
    return labels


def open_clusters(problem: InterpretableProblem, labels: Tensor) -> Tensor:
    """Add clusters up to `n_clusters`, each at the point of highest cost that is allowed to leave its cluster.

    Points that are nearer to the new cluster move there as far as all clusters stay interpretable.
    """
    n_used = int(labels.amax()) + 1
    if n_used == problem.n_clusters:
        return labels

    centers, _ = problem.centers(labels)
    costs = problem.costs(centers)
    for k in range(n_used, problem.n_clusters):
        majority = _majorities(problem, labels)
        # whether a cluster stays interpretable without one of the points of its majority value
        can_lose = majority.counts - 1 >= problem.min_purity * (majority.sizes - 1)
        is_minority = majority.values[labels] != problem.codes
        may_leave = (majority.sizes > 1)[labels] & (can_lose[labels] | is_minority)

        cost = at_labels(costs, labels).masked_fill(~may_leave, 0)
        costliest = int(cost.argmax())
        if not cost[costliest] > 0:
            break
        labels = labels.clone()
        labels[costliest] = k
        new_center = problem.points.rows[[costliest]]
        costs = torch.cat([costs, problem.costs(new_center)], dim=1)
        labels = to_nearer(problem, labels, costs)
    return labels


def _majorities(problem: InterpretableProblem, labels: Tensor) -> Majorities:
    """Count the points of each cluster and of its majority value."""
    counts = problem.counts(labels).double()
    return Majorities(counts.sum(1), counts.amax(1), counts.argmax(1))


def _move_round(problem: InterpretableProblem, labels: Tensor, costs: Tensor) -> Tensor:
    """Move points once, in the order of decreasing cost, as long as there is slack.

    Each point asks for the nearest center that reduces its cost and whose cluster has slack for it.
    """
    majority = _majorities(problem, labels)
    slack = majority.counts - problem.min_purity * majority.sizes + TOLERANCE
    cost = at_labels(costs, labels)

    # What the cluster of a point loses without it, [n], and every cluster loses with it, [n, K]
    is_minority = majority.values != problem.codes[:, None]
    is_majority = ~at_labels(is_minority, labels)
    leaving = (1 - problem.min_purity) * is_majority.double()
    entering = problem.min_purity * is_minority.double()

    may_leave = (leaving <= slack[labels]) & (majority.sizes[labels] > 1)
    is_target = (costs < cost[:, None]) & (entering <= slack) & may_leave[:, None]
    asking = is_target.any(1).nonzero()[:, 0]
    asking = asking[cost[asking].argsort(descending=True, stable=True)]
    source = labels[asking]
    target = costs[asking].masked_fill(~is_target[asking], torch.inf).argmin(1)

    # A move is made if, after it and all before it, both clusters have slack and the source keeps a point
    is_source = F.one_hot(source, costs.shape[1])
    is_destination = F.one_hot(target, costs.shape[1])
    used = (is_source * leaving[asking, None] + is_destination * entering[asking]).cumsum(0)
    fits = used <= slack
    keeps_point = at_labels(is_source.cumsum(0), source) < majority.sizes[source]
    accepted = at_labels(fits, target) & at_labels(fits, source) & keeps_point
    return labels.index_copy(0, asking[accepted], target[accepted])
