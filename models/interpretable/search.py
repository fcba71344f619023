"""The search for interpretable clusters with a small objective."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from .capacity import beta_max, excess, room, scores
from .centers import Centers
from .moves import boost_interpretability, boost_majority, placed, reduce_minority
from .problem import Problem, counted
from .relocation import opened, relocated, settled
from .strong import strong_cover
from .traversal import Cover, draw_far, farthest_first, starts


@dataclass(frozen=True)
class Found:
    """An interpretable clustering."""

    labels: Tensor
    centers: Centers
    value: float  # of the objective


def solve(
    problem: Problem, init: str, n_init: int, max_iter: int, random: np.random.RandomState
) -> tuple[Found, bool, int]:
    """The best of several interpretable clusterings.

    Algorithm 1 starts from every number of clusters up to the one given, as the paper does. Two clusterings are
    always at hand: clusters of single values where there are no more values than clusters, otherwise one cluster
    for each of the most frequent values.

    Returns
    -------
    found : Found
    converged : bool
        Whether Algorithm 1 reached beta from one start at least.
    steps : int
        Clusterings that it looked at, from all starts together.
    """
    best = min(
        (_finished(problem, labels) for labels in constructed(problem, init, n_init, random)),
        key=lambda found: found.value,
    )
    converged, steps = False, 0
    for labels, least in _starts(problem, init, n_init, random):
        if steps and not least < best.value:
            continue
        reached, taken = improved(problem, labels, max_iter)
        steps += taken
        if reached is not None:
            converged = True
            best = min(best, _finished(problem, reached), key=lambda found: found.value)
    return best, converged, steps


def improved(problem: Problem, labels: Tensor, max_iter: int) -> tuple[Tensor | None, int]:
    """Algorithm 1: improve the cluster with the least score until all reach beta.

    Returns the labels, or None where they do not reach beta, and the number of clusterings that it looked at.
    """
    seen: set[bytes] = set()
    for step in range(1, max_iter + 1):
        k = int(labels.amax()) + 1
        counts = counted(labels, problem.codes, k, problem.n_values)
        score = scores(counts)
        if score.min() >= problem.beta:
            return labels, step
        state = labels.cpu().numpy().tobytes()
        if state in seen:
            return None, step
        seen.add(state)
        new = _step(problem, labels, int(score.argmin()), excess(counts, problem.beta))
        if new is None:
            return None, step
        labels = new
    return None, max_iter


def _step(problem: Problem, labels: Tensor, cluster: int, too_many: int) -> Tensor | None:
    """The first move that leaves fewer points too many; else the one that makes another value a majority."""
    for move in (boost_majority, reduce_minority):
        new = move(problem, labels, cluster)
        if new is not None:
            counts = counted(new, problem.codes, int(labels.amax()) + 1, problem.n_values)
            if excess(counts, problem.beta) < too_many:
                return new
    return boost_interpretability(problem, labels, cluster)


def constructed(problem: Problem, init: str, n_init: int, random: np.random.RandomState) -> Iterator[Tensor]:
    """Labels of clusterings that reach beta, one at least wherever any does.

    They have a cluster for each of the most frequent values, as few or as many as may be, whose other points go
    where they may. With no more values than clusters, there are clusters of single values, too.
    """
    frequencies = torch.bincount(problem.codes, minlength=problem.n_values).cpu().numpy()
    most = min(problem.n_clusters, problem.n_values)
    least = next(k for k in range(1, most + 1) if beta_max(frequencies.tolist(), k) >= problem.beta)
    for k in range(least, most + 1):
        yield _of_values(problem, frequencies, k)
    if problem.n_values <= problem.n_clusters:
        yield strong_cover(problem.points, problem.codes, problem.n_clusters, init, n_init, random).labels


def _of_values(problem: Problem, frequencies: np.ndarray, k: int) -> Tensor:
    """A cluster for each of the k most frequent values, and points of other values where they may be."""
    codes = problem.codes
    top = np.argsort(-frequencies, kind="stable")[:k]
    position = torch.full((problem.n_values,), -1, dtype=torch.int64)
    position[torch.from_numpy(top)] = torch.arange(k)
    labels = position.to(codes.device)[codes]
    rest, pure = (labels < 0).nonzero()[:, 0], (labels >= 0).nonzero()[:, 0]
    centers = problem.objective.centers(problem.points.at(pure), labels[pure], k)
    far = problem.objective.far(problem.points.at(rest), centers.rows)
    left = np.array([room(m, problem.beta) - m for m in frequencies[top].tolist()])
    labels[rest], _ = placed(far, torch.zeros_like(far, dtype=torch.bool), left)
    return labels


def _starts(
    problem: Problem, init: str, n_init: int, random: np.random.RandomState
) -> Iterator[tuple[Tensor, float]]:
    """Labels to start from, with a lower bound of what any clustering into as many clusters costs.

    k + 1 points whose distances are at least r are not covered by k centers of a radius below r / 2.
    """
    objective = problem.objective
    for first in starts(problem.points, init, n_init, random):
        choose = None if init == "farthest" or objective.name == "kcenter" else draw_far(objective.power, random)
        covers: list[Cover] = [*farthest_first(problem.points, problem.n_clusters, first, choose)]
        for cover in reversed(covers):
            if objective.name == "kcenter":
                yield cover.labels, cover.radius / 2
            else:
                yield settled(problem, cover.labels, len(cover.centers)), 0.0


def _finished(problem: Problem, labels: Tensor) -> Found:
    _, labels = labels.unique(return_inverse=True)
    labels = opened(problem, labels, int(labels.amax()) + 1)
    return Found(*relocated(problem, labels, int(labels.amax()) + 1))
