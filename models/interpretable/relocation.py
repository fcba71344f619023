"""Moves points to nearer centers while all clusters stay interpretable."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from .problem import InterpretableProblem, scores

ROUNDS = 20  # maximum number of rounds of moves with fixed centers, and of updates of the centers


@dataclass(frozen=True)
class Solution:
    """A clustering, its best centers as encoded rows and as indices of points, and its objective."""

    labels: Tensor
    rows: Tensor
    points: list[int]
    value: float


def relocate(problem: InterpretableProblem, labels: Tensor) -> Solution:
    """Alternately move points and update the centers as long as the objective decreases."""
    return _alternate(problem, labels, partial(_move_points, problem))


def open_clusters(problem: InterpretableProblem, labels: Tensor) -> Tensor:
    """Add clusters up to `n_clusters`, each at the point of highest cost that is allowed to leave its cluster.

    Points that are nearer to the new cluster move there as far as all clusters stay interpretable.
    """
    used = int(labels.amax()) + 1
    if used == problem.n_clusters:
        return labels
    far = problem.costs(problem.centers(labels)[0])
    for k in range(used, problem.n_clusters):
        counts = problem.counts(labels)
        most, size = counts.max(1), counts.sum(1)
        foreign = _tensor(counts.argmax(1), far)[labels] != problem.codes
        # Whether a cluster stays interpretable without one of the points of its majority value
        stays = (size > 1) & (most - 1 >= problem.beta * (size - 1))
        may_go = _tensor(stays, far)[labels] | (foreign & _tensor(size > 1, far)[labels])
        cost = _own(far, labels).masked_fill(~may_go, 0)
        worst = int(cost.argmax())
        if not float(cost[worst]) > 0:
            break
        labels = labels.clone()
        labels[worst] = k
        far = torch.cat([far, problem.costs(problem.points.rows[worst : worst + 1])], dim=1)
        labels = _move_points(problem, labels, far)
    return labels


def reassign(problem: InterpretableProblem, labels: Tensor) -> Tensor:
    """Alternately assign points to the nearest center and update the centers, ignoring values of interest."""
    return _alternate(problem, labels, _nearest).labels


def _alternate(
    problem: InterpretableProblem, labels: Tensor, move: Callable[[Tensor, Tensor], Tensor]
) -> Solution:
    best, far = _solution(problem, labels)
    for _ in range(ROUNDS):
        labels = move(best.labels, far)
        if bool((labels == best.labels).all()):
            break
        new, far = _solution(problem, labels)
        if not new.value < best.value:
            break
        best = new
    return best


def _solution(problem: InterpretableProblem, labels: Tensor) -> tuple[Solution, Tensor]:
    """The best centers of a clustering with its objective, and the costs of all points, [n, K]."""
    rows, points = problem.centers(labels)
    far = problem.costs(rows)
    return Solution(labels, rows, points, problem.objective.value(_own(far, labels))), far


def _nearest(labels: Tensor, far: Tensor) -> Tensor:
    """The nearest center of every point, or the old labels if a cluster would become empty."""
    new = far.argmin(1)
    return new if int(torch.bincount(new, minlength=far.shape[1]).amin()) > 0 else labels


def _move_points(problem: InterpretableProblem, labels: Tensor, far: Tensor) -> Tensor:
    """Labels after rounds of moves with fixed centers, which never increase the cost of a point."""
    for _ in range(ROUNDS):
        new = _move_round(problem, labels, far)
        if new is None or scores(problem.counts(new)).min() < problem.beta:
            break
        labels = new
    return labels


def _move_round(problem: InterpretableProblem, labels: Tensor, far: Tensor) -> Tensor | None:
    """One round of moves: each point requests the nearest center that reduces its cost; None if none moves.

    A cluster with m of its s points of the majority value has the slack ``m - beta s >= 0``. An arriving point of
    another value reduces the slack by beta, a leaving point of the majority value by 1 - beta. Moves are made in
    the order of decreasing cost as long as there is slack. Slack that moves add is only used in the next round, so
    the order within a round does not matter.
    """
    beta, counts = problem.beta, problem.counts(labels)
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
