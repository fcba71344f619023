"""Search for interpretable clusters with a low objective (Saisubramanian et al.).

Algorithm 1 makes the clusters interpretable by the moves of Algorithms 2, 3 and 5. A move takes labels [n] and the
cluster with the lowest score. It returns new labels, or the same ones if it is not possible.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor

from .problem import InterpretableProblem, Solution, allot, beta_max, excess, free_places, scores
from .relocation import alternate, open_clusters, to_nearer, to_nearest
from .traversal import Starts, best_cover, farthest_first


def solve(problem: InterpretableProblem, starts: Starts, max_iter: int) -> tuple[Solution, bool, int]:
    """Find the best of several interpretable clusterings.

    As in the paper, Algorithm 1 starts from clusterings with every number of clusters up to `n_clusters`. In
    addition, there are clusterings that always reach beta: see :func:`constructions`.

    Returns
    -------
    best : Solution
    converged : bool
        Whether Algorithm 1 reached beta from at least one start.
    steps : int
        Total number of iterations of Algorithm 1.
    """

    def finish(labels: Tensor) -> Solution:
        _, labels = labels.unique(return_inverse=True)
        return alternate(problem, open_clusters(problem, labels), to_nearer)

    solutions = [finish(labels) for labels in constructions(problem, starts)]
    certain = len(solutions)
    steps = 0
    kcenter = problem.objective == "kcenter"
    choose: Callable[[Tensor], Any] = torch.argmax
    if starts.init == "random" and not kcenter:
        choose = partial(starts.draw, power=2 if problem.objective == "kmeans" else 1)
    for first in starts.first_centers(problem.points):
        for cover in reversed([*farthest_first(problem.points, problem.n_clusters, first, choose)]):
            # k + 1 points with pairwise distances of at least r are not covered by k centers with a radius < r / 2
            if steps and kcenter and cover.radius / 2 >= min(solution.value for solution in solutions):
                continue
            labels = cover.labels if kcenter else alternate(problem, cover.labels, to_nearest).labels
            reached, taken = improve(problem, labels, max_iter)
            steps += taken
            if reached is not None:
                solutions.append(finish(reached))
    return min(solutions, key=attrgetter("value")), len(solutions) > certain, steps


def improve(problem: InterpretableProblem, labels: Tensor, max_iter: int) -> tuple[Tensor | None, int]:
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
        if state in seen:  # the last move was not possible, or undid earlier ones
            return None, step
        seen.add(state)
        cluster = int(score.argmin())
        too_many = excess(counts, problem.beta)
        for move in (boost_majority, reduce_minority, boost_interpretability):
            new = move(problem, labels, cluster)
            if excess(problem.counts(new), problem.beta) < too_many:
                break
        labels = new
    return None, max_iter


def constructions(problem: InterpretableProblem, starts: Starts) -> Iterator[Tensor]:
    """Yield labels of clusterings that reach beta by construction; there is at least one if any clustering does.

    They have one cluster for each of the k most frequent values, for all possible k, and the points of other
    values go to clusters that can take them. If there are no more values than clusters, the strongly interpretable
    clustering is another one.
    """
    frequencies, order = torch.bincount(problem.codes).sort(descending=True, stable=True)
    ranks = order.argsort()[problem.codes]
    for k in range(1, min(problem.n_clusters, len(order)) + 1):
        if beta_max(frequencies.tolist(), k) >= problem.beta:
            rest = (ranks >= k).nonzero()[:, 0]
            labels = ranks.index_fill(0, rest, -1)
            far = problem.costs(problem.centers(labels)[0], rest)
            left = free_places(frequencies[:k].diag(), problem.beta)
            labels[rest], _ = assign_points(far, torch.zeros_like(far, dtype=torch.bool), left)
            yield labels
    if len(order) <= problem.n_clusters:
        yield best_cover(problem.points, problem.codes, problem.n_clusters, starts).labels


def boost_majority(problem: InterpretableProblem, labels: Tensor, cluster: int) -> Tensor:
    """Merge a cluster with the nearest one of the same majority value, and split the union by its main values.

    Algorithm 2. The points of other values are divided so that both clusters have about the same score.
    """
    value = int(problem.counts(labels)[cluster].argmax())
    return _split_union(problem, labels, cluster, _nearest_cluster(problem, labels, cluster, value))


def reduce_minority(problem: InterpretableProblem, labels: Tensor, cluster: int) -> Tensor:
    """Move points of other values, the farthest first, from a cluster to the nearest ones that can take them.

    Algorithm 3. A cluster can take points of its majority value, which raise its score, and other points as long
    as it stays interpretable.
    """
    counts = problem.counts(labels)
    majority = counts.argmax(1)
    left = free_places(counts, problem.beta)
    inside = labels == cluster
    main = problem.codes == majority[cluster]
    waiting = (inside & ~main).nonzero()[:, 0]
    waiting = waiting[_costs(problem, inside & main, waiting).argsort(descending=True, stable=True)]
    far = problem.costs(problem.centers(labels)[0], waiting)
    labels = labels.clone()
    too_many = int(-left[cluster])
    while too_many:
        welcome = majority == problem.codes[waiting][:, None]
        chosen = (welcome | (left > 0)).any(1).nonzero()[:too_many, 0]
        if not len(chosen):
            break
        targets, left = assign_points(far[chosen], welcome[chosen], left)
        chosen = chosen[targets >= 0]
        targets = targets[targets >= 0]
        labels[waiting[chosen]] = targets
        too_many -= len(chosen)
        keep = torch.ones_like(waiting, dtype=torch.bool).index_fill(0, chosen, False)
        waiting = waiting[keep]
        far = far[keep]
    return labels


def boost_interpretability(problem: InterpretableProblem, labels: Tensor, cluster: int) -> Tensor:
    """Make a frequent value, which is the majority value of no cluster, the majority value of this cluster.

    Algorithm 5. The cluster first takes the points of that value from the nearest cluster that has some. Then its
    majority is boosted for the value.
    """
    counts = problem.counts(labels)
    top = counts.sum(0).argsort(descending=True, stable=True)[: problem.n_clusters]
    for value in top[~torch.isin(top, counts.argmax(1))].tolist():
        other = _nearest_cluster(problem, labels, cluster, value)
        if other != cluster:
            new = torch.where((labels == other) & (problem.codes == value), cluster, labels)
            further = _nearest_cluster(problem, new, cluster, value)
            return _split_union(problem, new, cluster, other if further == cluster else further, value)
    return labels


def assign_points(far: Tensor, welcome: Tensor, left: Tensor) -> tuple[Tensor, Tensor]:
    """Assign points to near clusters with limited capacities.

    In every round, each point requests the nearest cluster that is open to it. If a cluster gets too many
    requests, it takes the points for which the second nearest open cluster would increase the cost most.

    Parameters
    ----------
    far : Tensor [p, K]
        Cost of every point in every cluster; infinite if the assignment is forbidden.
    welcome : Tensor [p, K] of bool
        Whether a cluster takes the point in any case.
    left : Tensor [K]
        Number of other points that each cluster can take.

    Returns
    -------
    targets : Tensor [p]
        Cluster of every point; -1 if no cluster can take it.
    left : Tensor [K]
        Remaining capacities.
    """
    targets = far.new_full((len(far),), -1, dtype=torch.int64)
    left = left.clone()
    waiting = torch.arange(len(far), device=far.device)
    while len(waiting):
        cost = far[waiting].masked_fill(~(welcome[waiting] | (left > 0)), torch.inf)
        assignable = cost.isfinite().any(1)
        waiting = waiting[assignable]
        cost = cost[assignable]
        two = cost.topk(min(2, cost.shape[1]), dim=1, largest=False)
        asked = two.indices[:, 0]
        free = welcome[waiting].gather(1, asked[:, None])[:, 0]
        taken = free.clone()
        order = (two.values[:, -1] - two.values[:, 0]).argsort(descending=True, stable=True)
        for cluster in asked.unique().tolist():
            others = order[(asked[order] == cluster) & ~free[order]][: int(left[cluster].clamp(max=len(far)))]
            taken[others] = True
            left[cluster] -= len(others)
        targets[waiting[taken]] = asked[taken]
        waiting = waiting[~taken]
    return targets, left


def _costs(problem: InterpretableProblem, mask: Tensor, to: Tensor) -> Tensor:
    """Costs of the points `to` in the cluster given by a mask."""
    return problem.costs(problem.center(mask)[0], to)[:, 0]


def _nearest_cluster(problem: InterpretableProblem, labels: Tensor, cluster: int, value: int) -> int:
    """The other cluster that has the point with the given value nearest to a cluster's center.

    If no other cluster has such points, it is the cluster itself.
    """
    inside = labels == cluster
    among = ((problem.codes == value) & ~inside).nonzero()[:, 0]
    return int(labels[among[_costs(problem, inside, among).argmin()]]) if len(among) else cluster


def _split_union(
    problem: InterpretableProblem, labels: Tensor, cluster: int, other: int, value: int | None = None
) -> Tensor:
    """Split the union of two clusters by its two most frequent values; `value`, if given, is one of them."""
    frequencies = problem.counts(labels)[[cluster, other]].sum(0)
    if value is not None:
        frequencies[value] = len(labels) + 1
    first, second = frequencies.argsort(descending=True, stable=True)[:2].tolist()
    if cluster == other or not frequencies[second]:
        return labels
    union = (labels == cluster) | (labels == other)
    pure = [union & (problem.codes == majority) for majority in (first, second)]
    rest = (union & ~pure[0] & ~pure[1]).nonzero()[:, 0]
    quota = allot([int(mask.sum()) for mask in pure], len(rest))[0]
    costs = [_costs(problem, mask, rest) for mask in pure]
    rest = rest[(costs[0] - costs[1]).argsort(stable=True)]
    labels = torch.where(pure[0], cluster, torch.where(pure[1], other, labels))
    labels[rest[:quota]] = cluster
    labels[rest[quota:]] = other
    return labels
