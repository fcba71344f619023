"""Search for interpretable clusters with a low objective (Saisubramanian et al.; symbols of ``problem.py``).

From each start, Algorithm 1 repeats:

    1. Stop if the interpretability is at least beta.
    2. Take the cluster C of lowest purity.
    3. Make the first of these moves that lowers the excess, otherwise the last one:
       boost_majority            Algorithm 2   merge C with the nearest cluster that has its majority value, and
                                               split the union by its two most frequent values
       reduce_minority           Algorithm 3   move points of other values out of C
       boost_interpretability    Algorithm 5   give C a majority value that no cluster has

The result is then improved: further clusters are opened, and points move to nearer centers (``relocation.py``).
The clustering with the lowest objective is kept. A move takes labels [n] and the cluster C, and returns new
labels, or the same ones if it is not possible.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from operator import attrgetter

import torch
from torch import Tensor

from .problem import InterpretableProblem, Solution, allot, capacities, excess, max_interpretability, purities
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
    n_iterations : int
        Total number of iterations of Algorithm 1.
    """
    solutions = [_improve_objective(problem, labels) for labels in constructions(problem, starts)]
    n_constructed = len(solutions)
    n_iterations = 0
    is_kcenter = problem.objective == "kcenter"
    choose: Callable[[Tensor], Tensor | int] = torch.argmax
    if starts.init == "random" and not is_kcenter:
        # k-means++ draws by squared distances, and its variant for k-medians by distances
        power = 2 if problem.objective == "kmeans" else 1
        choose = partial(starts.draw, power=power)

    for first in starts.first_centers(problem.points):
        covers = [*farthest_first(problem.points, problem.n_clusters, first, choose)]
        for cover in reversed(covers):
            # k + 1 points with pairwise distances of at least r are not covered by k centers with a radius < r / 2
            if n_iterations and is_kcenter:
                lower_bound = cover.radius / 2
                if lower_bound >= min(solution.value for solution in solutions):
                    continue

            labels = cover.labels if is_kcenter else alternate(problem, cover.labels, to_nearest).labels
            interpretable, n_taken = make_interpretable(problem, labels, max_iter)
            n_iterations += n_taken
            if interpretable is not None:
                solutions.append(_improve_objective(problem, interpretable))
    best = min(solutions, key=attrgetter("value"))
    return best, len(solutions) > n_constructed, n_iterations


def _improve_objective(problem: InterpretableProblem, labels: Tensor) -> Solution:
    """Lower the objective of an interpretable clustering, which stays interpretable."""
    _, labels = labels.unique(return_inverse=True)  # without numbers of clusters that have become empty
    return alternate(problem, open_clusters(problem, labels), to_nearer)


def make_interpretable(problem: InterpretableProblem, labels: Tensor, max_iter: int) -> tuple[Tensor | None, int]:
    """Improve the cluster of lowest purity until all clusters reach beta (Algorithm 1).

    Returns the labels, or None if beta is not reached, and the number of iterations.
    """
    seen: set[bytes] = set()
    for iteration in range(1, max_iter + 1):
        counts = problem.counts(labels)
        purity = purities(counts)
        if purity.min() >= problem.min_purity:
            return labels, iteration

        state = labels.cpu().numpy().tobytes()
        if state in seen:  # the last move was not possible, or undid earlier ones
            return None, iteration
        seen.add(state)

        cluster = int(purity.argmin())
        excess_before = excess(counts, problem.min_purity)
        for move in (boost_majority, reduce_minority, boost_interpretability):
            moved = move(problem, labels, cluster)
            if excess(problem.counts(moved), problem.min_purity) < excess_before:
                break
        labels = moved
    return None, max_iter


def constructions(problem: InterpretableProblem, starts: Starts) -> Iterator[Tensor]:
    """Yield labels of clusterings that reach beta by construction; there is at least one if any clustering does.

    They have one cluster for each of the k most frequent values, for all possible k, and the points of other
    values go to clusters that can take them. If there are no more values than clusters, the strongly interpretable
    clustering is another one.
    """
    frequencies, order = torch.bincount(problem.codes).sort(descending=True, stable=True)
    ranks = order.argsort()[problem.codes]  # [n], 0 for points of the most frequent value
    for k in range(1, min(problem.n_clusters, len(order)) + 1):
        if max_interpretability(frequencies.tolist(), k) < problem.min_purity:
            continue
        rest = (ranks >= k).nonzero()[:, 0]
        labels = ranks.index_fill(0, rest, -1)
        centers, _ = problem.centers(labels)
        costs = problem.costs(centers, rest)
        capacity = capacities(frequencies[:k].diag(), problem.min_purity)
        labels[rest], _ = assign_points(costs, torch.zeros_like(costs, dtype=torch.bool), capacity)
        yield labels

    if len(order) <= problem.n_clusters:
        yield best_cover(problem.points, problem.codes, problem.n_clusters, starts).labels


def boost_majority(problem: InterpretableProblem, labels: Tensor, cluster: int) -> Tensor:
    """Merge a cluster with the nearest one of the same majority value, and split the union by its main values.

    Algorithm 2. The points of other values are divided so that both clusters have about the same purity.
    """
    value = int(problem.counts(labels)[cluster].argmax())
    partner = _nearest_cluster(problem, labels, cluster, value)
    return _split_union(problem, labels, cluster, partner)


def reduce_minority(problem: InterpretableProblem, labels: Tensor, cluster: int) -> Tensor:
    """Move points of other values, the farthest first, from a cluster to the nearest ones that can take them.

    Algorithm 3. A cluster can take points of its majority value, which raise its purity, and other points as long
    as it stays interpretable.
    """
    counts = problem.counts(labels)
    majority = counts.argmax(1)
    capacity = capacities(counts, problem.min_purity)

    # The points of other values, by decreasing cost at the center of those with the majority value
    inside = labels == cluster
    has_majority = problem.codes == majority[cluster]
    waiting = (inside & ~has_majority).nonzero()[:, 0]
    cost = _costs(problem, inside & has_majority, waiting)
    waiting = waiting[cost.argsort(descending=True, stable=True)]

    centers, _ = problem.centers(labels)
    costs = problem.costs(centers, waiting)
    labels = labels.clone()
    n_excess = int(-capacity[cluster])
    while n_excess:
        welcome = majority == problem.codes[waiting][:, None]
        is_assignable = (welcome | (capacity > 0)).any(1)
        chosen = is_assignable.nonzero()[:n_excess, 0]
        if not len(chosen):
            break
        targets, capacity = assign_points(costs[chosen], welcome[chosen], capacity)
        chosen = chosen[targets >= 0]
        targets = targets[targets >= 0]
        labels[waiting[chosen]] = targets
        n_excess -= len(chosen)
        remains = torch.ones_like(waiting, dtype=torch.bool).index_fill(0, chosen, False)
        waiting = waiting[remains]
        costs = costs[remains]
    return labels


def boost_interpretability(problem: InterpretableProblem, labels: Tensor, cluster: int) -> Tensor:
    """Make a frequent value, which is the majority value of no cluster, the majority value of this cluster.

    Algorithm 5. The cluster first takes the points of that value from the nearest cluster that has some. Then its
    majority is boosted for the value.
    """
    counts = problem.counts(labels)
    most_frequent = counts.sum(0).argsort(descending=True, stable=True)[: problem.n_clusters]
    is_majority = torch.isin(most_frequent, counts.argmax(1))
    for value in most_frequent[~is_majority].tolist():
        donor = _nearest_cluster(problem, labels, cluster, value)
        if donor == cluster:
            continue
        from_donor = (labels == donor) & (problem.codes == value)
        moved = torch.where(from_donor, cluster, labels)
        partner = _nearest_cluster(problem, moved, cluster, value)
        if partner == cluster:  # no other cluster has points of the value
            partner = donor
        return _split_union(problem, moved, cluster, partner, value)
    return labels


def assign_points(costs: Tensor, welcome: Tensor, capacity: Tensor) -> tuple[Tensor, Tensor]:
    """Assign points to near clusters with limited capacities.

    In every round, each point requests the nearest cluster that is open to it. If a cluster gets too many
    requests, it takes the points for which the second nearest open cluster would increase the cost most.

    Parameters
    ----------
    costs : Tensor [p, K]
        Cost of every point in every cluster; infinite if the assignment is forbidden.
    welcome : Tensor [p, K] of bool
        Whether a cluster takes the point in any case.
    capacity : Tensor [K]
        Number of further points that each cluster can take.

    Returns
    -------
    targets : Tensor [p]
        Cluster of every point; -1 if no cluster can take it.
    capacity : Tensor [K]
        Remaining capacities.
    """
    targets = costs.new_full((len(costs),), -1, dtype=torch.int64)
    capacity = capacity.clone()
    waiting = torch.arange(len(costs), device=costs.device)
    while len(waiting):
        is_open = welcome[waiting] | (capacity > 0)
        cost = costs[waiting].masked_fill(~is_open, torch.inf)
        is_assignable = cost.isfinite().any(1)
        waiting = waiting[is_assignable]
        cost = cost[is_assignable]

        lowest = cost.topk(min(2, cost.shape[1]), dim=1, largest=False)
        requested = lowest.indices[:, 0]
        regret = lowest.values[:, -1] - lowest.values[:, 0]
        order = regret.argsort(descending=True, stable=True)

        is_welcome = welcome[waiting].gather(1, requested[:, None])[:, 0]
        accepted = is_welcome.clone()
        for cluster in requested.unique().tolist():
            n_free = int(capacity[cluster].clamp(max=len(costs)))
            competing = order[(requested[order] == cluster) & ~is_welcome[order]]
            admitted = competing[:n_free]
            accepted[admitted] = True
            capacity[cluster] -= len(admitted)
        targets[waiting[accepted]] = requested[accepted]
        waiting = waiting[~accepted]
    return targets, capacity


def _costs(problem: InterpretableProblem, mask: Tensor, points: Tensor) -> Tensor:
    """Compute the costs of some points, given by their indices, at the best center of the points of a mask."""
    center, _ = problem.center(mask)
    return problem.costs(center, points)[:, 0]


def _nearest_cluster(problem: InterpretableProblem, labels: Tensor, cluster: int, value: int) -> int:
    """Find the other cluster that has the point with a value of interest nearest to a cluster's center.

    If no other cluster has such points, it is the cluster itself.
    """
    inside = labels == cluster
    candidates = ((problem.codes == value) & ~inside).nonzero()[:, 0]
    if not len(candidates):
        return cluster
    nearest = _costs(problem, inside, candidates).argmin()
    return int(labels[candidates[nearest]])


def _split_union(
    problem: InterpretableProblem, labels: Tensor, cluster: int, partner: int, value: int | None = None
) -> Tensor:
    """Split the union of two clusters by its two most frequent values, of which `value` is the first if passed.

    The points of the remaining values are divided so that the purities are about equal: those whose cost grows
    least in the first cluster, compared with the second, go there.
    """
    frequencies = problem.counts(labels)[[cluster, partner]].sum(0)
    if value is not None:
        frequencies[value] = len(labels) + 1  # so that it comes first
    first, second = frequencies.argsort(descending=True, stable=True)[:2].tolist()
    if cluster == partner or not frequencies[second]:
        return labels

    union = (labels == cluster) | (labels == partner)
    has_first = union & (problem.codes == first)
    has_second = union & (problem.codes == second)
    rest = (union & ~has_first & ~has_second).nonzero()[:, 0]
    sizes = [int(has_first.sum()), int(has_second.sum())]
    n_first = allot(sizes, len(rest))[0]
    cost_difference = _costs(problem, has_first, rest) - _costs(problem, has_second, rest)
    rest = rest[cost_difference.argsort(stable=True)]

    labels = torch.where(has_second, partner, labels)
    labels = torch.where(has_first, cluster, labels)
    labels[rest[:n_first]] = cluster
    labels[rest[n_first:]] = partner
    return labels
