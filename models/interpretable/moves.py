"""The moves of Saisubramanian et al. that make clusters interpretable (their Algorithms 2, 3 and 5).

A move takes labels [n] and the cluster with the least score. It returns new labels, or None if it is not possible.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from .capacity import allot, room, spare
from .problem import Problem, counted


def boost_majority(problem: Problem, labels: Tensor, cluster: int) -> Tensor | None:
    """Merge a cluster with the nearest that has its majority value, and part the two by their main values.

    Algorithm 2. The points of other values are shared out so that both clusters score alike.
    """
    inside = labels == cluster
    value = int(_frequencies(problem, inside).argmax())
    other = _nearest(problem, labels, inside, value)
    return None if other is None else _parted(problem, labels, cluster, other)


def reduce_minority(problem: Problem, labels: Tensor, cluster: int) -> Tensor | None:
    """Move points of other values, the farthest first, from a cluster to the nearest that may take them.

    Algorithm 3. A cluster may take a point of its majority value, which raises its score, and others as long as it
    stays interpretable.
    """
    k = int(labels.amax()) + 1
    counts = counted(labels, problem.codes, k, problem.n_values)
    majority = counts.argmax(1)
    too_many = int(counts[cluster].sum() - room(counts[cluster].max(), problem.beta))
    inside = labels == cluster
    main = inside & (problem.codes == int(majority[cluster]))
    movable = (inside & ~main).nonzero()[:, 0]
    movable = movable[_distances(problem, main, movable).argsort(descending=True, stable=True)]
    centers = problem.objective.centers(problem.points, labels, k)
    far = problem.objective.far(problem.points.at(movable), centers.rows)
    far[:, cluster] = torch.inf
    welcome = torch.from_numpy(majority).to(labels.device) == problem.codes[movable][:, None]
    left = spare(counts, problem.beta)
    welcome[:, cluster] = False
    labels = labels.clone()
    moved = 0
    while moved < too_many:
        free = (welcome | (torch.from_numpy(left).to(far.device) > 0)).any(1) & (labels[movable] == cluster)
        chosen = free.nonzero()[: too_many - moved, 0]
        if not len(chosen):
            break
        targets, left = placed(far[chosen], welcome[chosen], left)
        there = targets >= 0
        labels[movable[chosen[there]]] = targets[there]
        moved += int(there.sum())
    return labels if moved else None


def boost_interpretability(problem: Problem, labels: Tensor, cluster: int) -> Tensor | None:
    """Make a frequent value that no cluster has as its majority that of a cluster.

    Algorithm 5. The points of that value in the nearest cluster which has some come first, then the cluster is
    boosted for the value.
    """
    k = int(labels.amax()) + 1
    counts = counted(labels, problem.codes, k, problem.n_values)
    top = np.argsort(-counts.sum(0), kind="stable")[: problem.n_clusters]
    inside = labels == cluster
    for value in [int(value) for value in top if value not in counts.argmax(1)]:
        other = _nearest(problem, labels, inside, value)
        if other is not None:
            new = torch.where((labels == other) & (problem.codes == value), cluster, labels)
            further = _nearest(problem, new, new == cluster, value)
            return _parted(problem, new, cluster, other if further is None else further, value)
    return None


def placed(far: Tensor, welcome: Tensor, left: np.ndarray) -> tuple[Tensor, np.ndarray]:
    """Assign points to near clusters that may take them.

    In rounds, each point asks for the nearest cluster that is open to it; where too many ask, those are taken to
    which the next nearest open cluster would cost the most.

    Parameters
    ----------
    far : Tensor [p, K]
        What the points cost; infinite where they must not go.
    welcome : Tensor [p, K] of bool
        Clusters that take a point in any case.
    left : ndarray [K]
        How many others the clusters take.

    Returns
    -------
    targets : Tensor [p]
        -1 where no cluster is left.
    left : ndarray [K]
    """
    targets = torch.full((len(far),), -1, dtype=torch.int64, device=far.device)
    left = left.copy()
    waiting = torch.arange(len(far), device=far.device)
    while len(waiting):
        is_open = welcome[waiting] | (torch.from_numpy(left).to(far.device) > 0)
        cost = far[waiting].masked_fill(~is_open, torch.inf)
        waiting, cost = waiting[cost.isfinite().any(1)], cost[cost.isfinite().any(1)]
        if not len(waiting):
            break
        two = cost.topk(min(2, cost.shape[1]), dim=1, largest=False)
        asked = two.indices[:, 0]
        free = welcome[waiting].gather(1, asked[:, None])[:, 0]
        taken = free.clone()
        order = (two.values[:, -1] - two.values[:, 0]).argsort(descending=True, stable=True)
        for cluster in asked.unique().tolist():
            others = order[(asked[order] == cluster) & ~free[order]]
            most = len(others) if left[cluster] == np.inf else int(left[cluster])
            taken[others[:most]] = True
            left[cluster] -= min(len(others), most)
        targets[waiting[taken]] = asked[taken]
        waiting = waiting[~taken]
    return targets, left


def _frequencies(problem: Problem, mask: Tensor) -> np.ndarray:
    return torch.bincount(problem.codes[mask], minlength=problem.n_values).cpu().numpy()


def _distances(problem: Problem, mask: Tensor, to: Tensor) -> Tensor:
    """What some points would cost in a cluster."""
    row, _ = problem.objective.center(problem.points.at(mask.nonzero()[:, 0]))
    return problem.objective.far(problem.points.at(to), row)[:, 0]


def _nearest(problem: Problem, labels: Tensor, inside: Tensor, value: int) -> int | None:
    """The other cluster whose point of a value is the nearest to a cluster's center."""
    among = ((problem.codes == value) & ~inside).nonzero()[:, 0]
    return int(labels[among[_distances(problem, inside, among).argmin()]]) if len(among) else None


def _parted(problem: Problem, labels: Tensor, cluster: int, other: int, value: int | None = None) -> Tensor | None:
    """Part the union of two clusters by its two most frequent values, of which `value` is one in any case."""
    union = (labels == cluster) | (labels == other)
    frequencies = _frequencies(problem, union)
    if value is not None:
        frequencies[value] = len(labels) + 1
    first, second = np.argsort(-frequencies, kind="stable")[:2].tolist()
    if not frequencies[second]:
        return None
    pure = [union & (problem.codes == first), union & (problem.codes == second)]
    rest = (union & ~pure[0] & ~pure[1]).nonzero()[:, 0]
    quota = int(allot([int(mask.sum()) for mask in pure], len(rest))[0])
    one, two = (_distances(problem, mask, rest) for mask in pure)
    rest = rest[(one - two).argsort(stable=True)]
    labels = torch.where(pure[0], cluster, torch.where(pure[1], other, labels))
    labels[rest[:quota]], labels[rest[quota:]] = cluster, other
    return labels
