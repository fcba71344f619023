"""Moves points to nearer centers while all clusters stay interpretable."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .problem import InterpretableProblem, Solution, own_costs, scores

ROUNDS = 20  # maximum number of rounds of moves with fixed centers, and of updates of the centers


def alternate(
    problem: InterpretableProblem,
    labels: Tensor,
    move: Callable[[InterpretableProblem, Tensor, Tensor], Tensor],
) -> Solution:
    """Alternately move points and update the centers as long as the objective decreases."""
    best, far = problem.solution(labels)
    for _ in range(ROUNDS):
        labels = move(problem, best.labels, far)
        if torch.equal(labels, best.labels):
            break
        new, far = problem.solution(labels)
        if not new.value < best.value:
            break
        best = new
    return best


def to_nearest(problem: InterpretableProblem, labels: Tensor, far: Tensor) -> Tensor:
    """The nearest center of every point, or the old labels if a cluster would become empty.

    Values of interest are ignored.
    """
    new = far.argmin(1)
    return new if torch.bincount(new, minlength=far.shape[1]).all() else labels


def to_nearer(problem: InterpretableProblem, labels: Tensor, far: Tensor) -> Tensor:
    """Labels after rounds of moves with fixed centers, which never increase the cost of a point."""
    for _ in range(ROUNDS):
        new = _move_round(problem, labels, far)
        if torch.equal(new, labels) or scores(problem.counts(new)).min() < problem.beta:
            break
        labels = new
    return labels


def _counted(problem: InterpretableProblem, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Number of points of each cluster and of its majority value, and this value, [K] each."""
    counts = problem.counts(labels).double()
    return counts.sum(1), counts.amax(1), counts.argmax(1)


def open_clusters(problem: InterpretableProblem, labels: Tensor) -> Tensor:
    """Add clusters up to `n_clusters`, each at the point of highest cost that is allowed to leave its cluster.

    Points that are nearer to the new cluster move there as far as all clusters stay interpretable.
    """
    used = int(labels.amax()) + 1
    if used == problem.n_clusters:
        return labels
    far = problem.costs(problem.centers(labels)[0])
    for k in range(used, problem.n_clusters):
        size, most, majority = _counted(problem, labels)
        # Whether a cluster stays interpretable without one of the points of its majority value
        stays = most - 1 >= problem.beta * (size - 1)
        may_go = (size > 1)[labels] & (stays[labels] | (majority[labels] != problem.codes))
        cost = own_costs(far, labels).masked_fill(~may_go, 0)
        worst = int(cost.argmax())
        if not cost[worst] > 0:
            break
        labels = labels.clone()
        labels[worst] = k
        far = torch.cat([far, problem.costs(problem.points.rows[[worst]])], dim=1)
        labels = to_nearer(problem, labels, far)
    return labels


def _move_round(problem: InterpretableProblem, labels: Tensor, far: Tensor) -> Tensor:
    """One round of moves: each point requests the nearest center that reduces its cost.

    A cluster with m of its s points of the majority value has the slack ``m - beta s >= 0``. An arriving point of
    another value reduces the slack by beta, a leaving point of the majority value by 1 - beta. Moves are made in
    the order of decreasing cost as long as there is slack. Slack that moves add is only used in the next round, so
    the order within a round does not matter.
    """
    size, most, majority = _counted(problem, labels)
    slack = most - problem.beta * size + 1e-9
    cost = own_costs(far, labels)
    foreign = majority != problem.codes[:, None]
    leaving = (1 - problem.beta) * (~own_costs(foreign, labels)).double()
    entering = problem.beta * foreign.double()
    free = (leaving <= slack[labels]) & (size[labels] > 1)
    wanted = (far < cost[:, None]) & (entering <= slack) & free[:, None]
    asking = wanted.any(1).nonzero()[:, 0]
    asking = asking[cost[asking].argsort(descending=True, stable=True)]
    source = labels[asking]
    target = far[asking].masked_fill(~wanted[asking], torch.inf).argmin(1)
    out, into = (torch.nn.functional.one_hot(clusters, far.shape[1]) for clusters in (source, target))
    used = (out * leaving[asking, None] + into * entering[asking]).cumsum(0)
    fits = used <= slack
    taken = own_costs(fits, target) & own_costs(fits, source) & (own_costs(out.cumsum(0), source) < size[source])
    return labels.index_copy(0, asking[taken], target[taken])
