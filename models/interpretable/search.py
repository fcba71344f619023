"""Search for interpretable clusters with a low objective (Algorithm 1 of Saisubramanian et al.)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import torch
from torch import Tensor

from .capacity import beta_max, excess, max_size, scores
from .centers import Problem
from .moves import assign_points, boost_interpretability, boost_majority, reduce_minority
from .relocation import Solution, open_clusters, reassign, relocate
from .traversal import Starts, best_cover, draw_by_distance, farthest_first


def solve(problem: Problem, starts: Starts, max_iter: int) -> tuple[Solution, bool, int]:
    """Find the best of several interpretable clusterings.

    As in the paper, Algorithm 1 starts from clusterings with every number of clusters up to `n_clusters`. In
    addition, there are clusterings that always reach beta: see :func:`constructions`.

    Returns
    -------
    found : Solution
    converged : bool
        Whether Algorithm 1 reached beta from at least one start.
    steps : int
        Total number of iterations of Algorithm 1.
    """
    best = min(
        (_finish(problem, labels) for labels in constructions(problem, starts)),
        key=lambda found: found.value,
    )
    converged, steps = False, 0
    for labels, least in _first_labels(problem, starts):
        if steps and not least < best.value:
            continue
        reached, taken = improve(problem, labels, max_iter)
        steps += taken
        if reached is not None:
            converged = True
            best = min(best, _finish(problem, reached), key=lambda found: found.value)
    return best, converged, steps


def improve(problem: Problem, labels: Tensor, max_iter: int) -> tuple[Tensor | None, int]:
    """Algorithm 1: improve the cluster with the lowest score until all clusters reach beta.

    Returns the labels, or None if beta is not reached, and the number of iterations.
    """
    seen: set[bytes] = set()
    for step in range(1, max_iter + 1):
        counts = problem.counts(labels)
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
    """Apply the first move that reduces the excess of points; otherwise boost another value."""
    for move in (boost_majority, reduce_minority):
        new = move(problem, labels, cluster)
        if new is not None and excess(problem.counts(new), problem.beta) < too_many:
            return new
    return boost_interpretability(problem, labels, cluster)


def constructions(problem: Problem, starts: Starts) -> Iterator[Tensor]:
    """Yield labels of clusterings that reach beta by construction; there is at least one if any clustering does.

    They have one cluster for each of the k most frequent values, for all possible k, and the points of other
    values go to clusters that can take them. If there are no more values than clusters, the strongly interpretable
    clustering is another one.
    """
    frequencies = problem.frequencies()
    most = min(problem.n_clusters, problem.n_values)
    least = next(k for k in range(1, most + 1) if beta_max(frequencies.tolist(), k) >= problem.beta)
    for k in range(least, most + 1):
        yield _clusters_of_values(problem, frequencies, k)
    if problem.n_values <= problem.n_clusters:
        yield best_cover(problem.points, problem.codes, problem.n_clusters, starts).labels


def _clusters_of_values(problem: Problem, frequencies: np.ndarray, k: int) -> Tensor:
    """Labels with a cluster for each of the k most frequent values; other points go to clusters with capacity."""
    codes = problem.codes
    top = np.argsort(-frequencies, kind="stable")[:k]
    position = torch.full((problem.n_values,), -1, dtype=torch.int64)
    position[torch.from_numpy(top)] = torch.arange(k)
    labels = position.to(codes.device)[codes]
    rest, pure = (labels < 0).nonzero()[:, 0], (labels >= 0).nonzero()[:, 0]
    centers = problem.objective.centers(problem.points.take(pure), labels[pure], k)
    far = problem.costs(centers.rows, rest)
    left = np.array([max_size(m, problem.beta) - m for m in frequencies[top].tolist()])
    labels[rest], _ = assign_points(far, torch.zeros_like(far, dtype=torch.bool), left)
    return labels


def _first_labels(problem: Problem, starts: Starts) -> Iterator[tuple[Tensor, float]]:
    """Yield labels to start from, with a lower bound of the objective for the same number of clusters.

    For k-center, k + 1 points with pairwise distances of at least r can't be covered by k centers with a radius
    below r / 2.
    """
    objective = problem.objective
    for first in starts.first_centers(problem.points):
        choose = (
            None
            if starts.init == "farthest" or objective.name == "kcenter"
            else partial(draw_by_distance, power=objective.power, random=starts.random)
        )
        for cover in reversed([*farthest_first(problem.points, problem.n_clusters, first, choose)]):
            if objective.name == "kcenter":
                yield cover.labels, cover.radius / 2
            else:
                yield reassign(problem, cover.labels), 0.0


def _finish(problem: Problem, labels: Tensor) -> Solution:
    _, labels = labels.unique(return_inverse=True)
    return relocate(problem, open_clusters(problem, labels))
