"""The problem of beta-interpretable clustering: objectives, their best centers, and scores of interpretability.

Saisubramanian, Galhotra and Zilberstein, "Balancing the tradeoff between clustering value and interpretability",
AIES 2020. Every point has a value of interest, and n_kf points of cluster k have the value f.

    size of a cluster         n_k = sum_f n_kf
    majority value            f_k = argmax_f n_kf,   m_k = max_f n_kf points have it
    purity                    m_k / n_k              (the interpretability score of a cluster)
    interpretability          min_k m_k / n_k        (of a clustering, Definition 1; required is at least beta)
    capacity                  c_k = max {s : m_k / s >= beta} - n_k
                              (points of other values that k can take; negative if it must give up some)
    excess                    sum_k max(-c_k, 0)     (points that have to leave their clusters)

    objective   cost of a point x in a cluster with the center u   best center of a cluster           value
    kcenter     d(x, u)                                            member of least max_x d(x, u)      maximum
    kmeans      d(x, u)^2                                          mean                               sum
    kmedian     d(x, u)                                            member of least sum_x d(x, u)      sum

`min_purity` is the paper's beta.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import torch
from torch import Tensor

from .metric import EncodedPoints

EXACT = 2000  # largest cluster of which all points are tried as medoid
# in larger clusters: size of the sample that selects candidates, and their number
SAMPLE = 200
CANDIDATES = 20


@dataclass(frozen=True)
class Solution:
    """A clustering with its best centers and the value of its objective."""

    labels: Tensor  # [n], cluster of every point
    rows: Tensor  # [K, m], the centers as encoded rows
    points: list[int]  # [K], the centers as indices of points; for means, any member of the cluster
    value: float


@dataclass(frozen=True)
class InterpretableProblem:
    """Points, their values of interest, the objective, and the requirements on the clusters."""

    points: EncodedPoints
    codes: Tensor  # [n], values of interest
    objective: str = "kcenter"
    n_clusters: int = 1
    min_purity: float = 0.0

    def counts(self, labels: Tensor) -> Tensor:
        """Count the points n_kf of each value in each cluster, [K, F]."""
        k = int(labels.amax()) + 1
        n_values = int(self.codes.amax()) + 1
        pairs = labels * n_values + self.codes
        return torch.bincount(pairs, minlength=k * n_values).view(k, n_values)

    def center(self, mask: Tensor) -> tuple[Tensor, int]:
        """Find the best center [1, m] of the masked points, and its index; a mean gets that of any point."""
        members = mask.nonzero()[:, 0]
        points = self.points.take(members)
        if self.objective == "kmeans":
            return points.rows.mean(0, keepdim=True), int(members[0])

        center = one_center(points) if self.objective == "kcenter" else medoid(points)
        return points.rows[[center]], int(members[center])

    def centers(self, labels: Tensor) -> tuple[Tensor, list[int]]:
        """Find the best centers of the clusters 0, 1, ..., as encoded rows [K, m] and as indices of points."""
        clusters = range(int(labels.amax()) + 1)
        rows, points = zip(*(self.center(labels == k) for k in clusters), strict=True)
        return torch.cat(rows), [*points]

    def costs(self, rows: Tensor, chosen: Tensor | slice = slice(None)) -> Tensor:
        """Compute the costs [n, K] of the chosen points, by default of all, at every center."""
        distances = self.points.between(self.points.rows[chosen], rows)
        return distances.square() if self.objective == "kmeans" else distances

    def solution(self, labels: Tensor) -> tuple[Solution, Tensor]:
        """Find the best centers of a clustering and its objective, and the costs of all points, [n, K]."""
        rows, points = self.centers(labels)
        costs = self.costs(rows)
        value = total(self.objective, at_labels(costs, labels))
        return Solution(labels, rows, points, value), costs


def at_labels(table: Tensor, labels: Tensor) -> Tensor:
    """Select the entry of each row of a table [n, K] in the column of its label, [n]."""
    return table.gather(1, labels[:, None])[:, 0]


def total(objective: str, costs: Tensor) -> float:
    """Compute the value of an objective from the cost [n] of every point at the center of its cluster."""
    value = costs.amax() if objective == "kcenter" else costs.sum(dtype=torch.float64)
    return float(value)


def one_center(points: EncodedPoints) -> int:
    """Find the index of the point with the smallest maximum distance to the others.

    The largest distance to a set of witnesses is a lower bound for every point. The point with the smallest bound
    is tried, and the point farthest from it becomes a witness, until no bound is below the best radius so far.
    This needs about ten columns of the distance matrix.
    """
    best = 0
    best_radius = math.inf
    witness = 0
    bound = points.distances_to(0)
    witnesses: set[int] = set()
    while witness not in witnesses:  # a witness may recur if rounding makes distances asymmetric
        witnesses.add(witness)
        bound = torch.maximum(bound, points.distances_to(witness))
        candidate = int(bound.argmin())
        if bound[candidate] >= best_radius:
            break

        farthest = points.distances_to(candidate).max(0)
        witness = int(farthest.indices)
        radius = float(farthest.values)
        if radius < best_radius:
            best = candidate
            best_radius = radius
    return best


def medoid(points: EncodedPoints) -> int:
    """Find the index of the point with the smallest sum of distances to the others.

    The result is exact up to 2000 points. In larger sets, the 20 points with the smallest sums of distances to a
    sample of 200 points are tried. The sample is spread evenly over the distances from a central point.
    """

    def sums_to(sample: Tensor) -> Tensor:
        # one by one, as a column of distances may be long
        columns = map(points.distances_to, sample.tolist())
        return reduce(torch.add, columns)

    candidates = torch.arange(len(points), device=points.rows.device)
    if len(points) > EXACT:
        step = -(-len(points) // SAMPLE)
        central = int(sums_to(candidates[::step]).argmin())
        by_distance = points.distances_to(central).argsort()
        candidates = sums_to(by_distance[::step]).argsort()[:CANDIDATES]
    sums = points.distances_to(candidates).sum(0)
    return int(candidates[sums.argmin()])


def purities(counts: Tensor) -> Tensor:
    """Compute the purity m_k / n_k of each cluster, [K], from counts [K, F]."""
    return counts.amax(1).double() / counts.sum(1)


def max_size(m: int, purity: float) -> float:
    """Find the maximum size of a cluster of which m points have the majority value; it may be infinite.

    This is the largest s with ``m / s >= purity`` in floating point, which is how :func:`purities` are compared.
    """
    # s is at least 2^52, more than there are points, or the purity is 0
    if m >= purity * 2**52:
        return math.inf
    size = math.floor(m / purity) + 2
    while size and m / size < purity:
        size -= 1
    return size


def capacities(counts: Tensor, purity: float) -> Tensor:
    """Count the points of other values that each cluster can take, c_k [K]; negative if it must give up some."""
    sizes = [max_size(m, purity) for m in counts.amax(1).tolist()]
    return counts.new_tensor(sizes, dtype=torch.float64) - counts.sum(1)


def excess(counts: Tensor, purity: float) -> int:
    """Count the points that have to leave the clusters of counts [K, F] in total, so that all reach the purity."""
    return int(-capacities(counts, purity).clip(max=0).sum())


def allot(majority: Sequence[int] | np.ndarray, n: int) -> np.ndarray:
    """Divide n points of other values among clusters so that the lowest purity is as high as possible.

    `majority` [K] are the numbers m_k of points with the majority value. Each point goes to the cluster whose
    purity is best after adding it. This is D'Hondt's method for seats in a parliament. It gives every cluster at
    least its proportional part rounded down, so only the remaining points are assigned one by one.
    """
    majority = np.asarray(majority, dtype=np.int64)
    allotted = n * majority // majority.sum()
    for _ in range(n - allotted.sum()):
        purity_after = majority / (majority + allotted + 1)
        allotted[np.argmax(purity_after)] += 1
    return allotted


def max_interpretability(frequencies: Sequence[int] | np.ndarray, k: int) -> float:
    """Compute the highest interpretability of any clustering into at most k clusters, the paper's beta_max.

    Saisubramanian et al., section 2.1, except that the next point goes to the cluster whose purity is best after
    adding the point. (The paper compares the purities before, which is not optimal.)

    Parameters
    ----------
    frequencies : sequence of int
        Number of points with each value of interest.
    k : int
        Maximum number of clusters.
    """
    descending = np.sort(np.asarray(frequencies, dtype=np.int64))[::-1]
    if len(descending) <= k:
        return 1.0
    # the k most frequent values have a cluster each, among which the points of all other values are divided
    majority = descending[:k]
    n_rest = int(descending[k:].sum())
    sizes = majority + allot(majority, n_rest)
    return float((majority / sizes).min())
