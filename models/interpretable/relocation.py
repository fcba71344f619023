"""Moving points to nearer centers while all clusters stay interpretable."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from .capacity import scores
from .centers import Centers
from .problem import Problem, counted

ROUNDS = 20  # of moves at fixed centers, and of new centers


def relocated(problem: Problem, labels: Tensor, k: int) -> tuple[Tensor, Centers, float]:
    """Move points, compute the centers again, and so on while the objective falls.

    Returns the labels, the best centers for them, and the objective.
    """
    return _alternated(problem, labels, k, lambda labels, far: _moved(problem, labels, far))


def opened(problem: Problem, labels: Tensor, used: int) -> Tensor:
    """Labels with clusters that are not in use yet, each opened at the point that costs the most and may go.

    Points that it is nearer to follow as far as they may.
    """
    if used == problem.n_clusters:
        return labels
    points = problem.points
    far = problem.objective.far(points, problem.objective.centers(points, labels, used).rows)
    for k in range(used, problem.n_clusters):
        counts = counted(labels, problem.codes, k, problem.n_values)
        most, size = counts.max(1), counts.sum(1)
        foreign = _tensor(counts.argmax(1), far)[labels] != problem.codes
        stays = (size > 1) & (most - 1 >= problem.beta * (size - 1))  # interpretable, without a point of its value
        may_go = _tensor(stays, far)[labels] | (foreign & _tensor(size > 1, far)[labels])
        cost = _own(far, labels).masked_fill(~may_go, 0)
        worst = int(cost.argmax())
        if not float(cost[worst]) > 0:
            break
        labels = labels.clone()
        labels[worst] = k
        far = torch.cat([far, problem.objective.far(points, points.rows[worst : worst + 1])], dim=1)
        labels = _moved(problem, labels, far)
    return labels


def settled(problem: Problem, labels: Tensor, k: int) -> Tensor:
    """Labels after points went to the nearest center, and so on, whatever their values of interest are."""
    return _alternated(problem, labels, k, lambda labels, far: _nonempty(far.argmin(1), labels, k))[0]


def _alternated(
    problem: Problem, labels: Tensor, k: int, move: Callable[[Tensor, Tensor], Tensor]
) -> tuple[Tensor, Centers, float]:
    objective, points = problem.objective, problem.points
    centers = objective.centers(points, labels, k)
    far = objective.far(points, centers.rows)
    value = objective.value(_own(far, labels))
    for _ in range(ROUNDS):
        new = move(labels, far)
        if bool((new == labels).all()):
            break
        new_centers = objective.centers(points, new, k)
        far = objective.far(points, new_centers.rows)
        new_value = objective.value(_own(far, new))
        if not new_value < value:
            break
        labels, centers, value = new, new_centers, new_value
    return labels, centers, value


def _nonempty(new: Tensor, labels: Tensor, k: int) -> Tensor:
    """The new labels, unless a cluster would be empty."""
    return new if int(torch.bincount(new, minlength=k).amin()) > 0 else labels


def _moved(problem: Problem, labels: Tensor, far: Tensor) -> Tensor:
    """Labels after rounds of moves at fixed centers, none of which makes a point cost more."""
    for _ in range(ROUNDS):
        new = _round(problem, labels, far)
        if new is None or scores(counted(new, problem.codes, far.shape[1], problem.n_values)).min() < problem.beta:
            break
        labels = new
    return labels


def _round(problem: Problem, labels: Tensor, far: Tensor) -> Tensor | None:
    """One round: each point asks for the nearest center that is nearer and would take it; None if none does.

    With m of its s points of the majority value, a cluster has the slack ``m - beta s >= 0``. A point of another
    value that comes takes beta of it, one of the majority value that goes takes 1 - beta. Moves are taken in the
    order of what the points cost, as long as those before leave slack; what moves add to the slack counts in the
    next round only, so that the order within a round does not matter.
    """
    beta, counts = problem.beta, counted(labels, problem.codes, far.shape[1], problem.n_values)
    size, slack = counts.sum(1), counts.max(1) - beta * counts.sum(1)
    majority = _tensor(counts.argmax(1), far)
    room, many = _tensor(slack + 1e-9, far), _tensor(size, far)
    own, foreign = _own(far, labels), majority != problem.codes[:, None]
    leaving = (1 - beta) * (~_own(foreign, labels)).double()
    entering = beta * foreign.double()
    free = (leaving <= room[labels]) & (many[labels] > 1)
    wanted = (far < own[:, None]) & (entering <= room) & free[:, None]
    asking = wanted.any(1).nonzero()[:, 0]
    if not len(asking):
        return None
    asking = asking[own[asking].argsort(descending=True, stable=True)]
    source = labels[asking]
    target = far[asking].masked_fill(~wanted[asking], torch.inf).argmin(1)
    out = torch.nn.functional.one_hot(source, far.shape[1])
    into = torch.nn.functional.one_hot(target, far.shape[1])
    used = (out * leaving[asking, None] + into * entering[asking]).cumsum(0)
    gone = out.cumsum(0)
    fits = used <= room
    taken = _own(fits, target) & _own(fits, source) & (_own(gone, source) < many[source])
    if not bool(taken.any()):
        return None
    return labels.index_copy(0, asking[taken], target[taken])


def _own(table: Tensor, labels: Tensor) -> Tensor:
    return table.gather(1, labels[:, None])[:, 0]


def _tensor(values: np.ndarray, like: Tensor) -> Tensor:
    return torch.from_numpy(values).to(like.device)
