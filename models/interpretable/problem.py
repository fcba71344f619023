"""The problem of beta-interpretable clustering: objectives, their best centers, scores of interpretability."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

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
    """A clustering, its best centers as encoded rows and as indices of points, and its objective."""

    labels: Tensor
    rows: Tensor
    points: list[int]
    value: float


@dataclass(frozen=True)
class InterpretableProblem:
    """Points, their values of interest, and the requirements on the clusters.

    The objective is the largest distance to a center ("kcenter"), the sum of squared distances to means ("kmeans")
    or the sum of distances to medoids ("kmedian").
    """

    points: EncodedPoints
    codes: Tensor  # [n], values of interest
    objective: str = "kcenter"
    n_clusters: int = 1
    beta: float = 0.0

    def counts(self, labels: Tensor) -> Tensor:
        """Number of points of each value in each cluster, [K, F]."""
        k = int(labels.amax()) + 1
        n_values = int(self.codes.amax()) + 1
        return torch.bincount(labels * n_values + self.codes, minlength=k * n_values).view(k, n_values)

    def center(self, mask: Tensor) -> tuple[Tensor, int]:
        """Best center [1, m] of some points, and the index of the point that it is; for means, of any."""
        members = mask.nonzero()[:, 0]
        points = self.points.take(members)
        if self.objective == "kmeans":
            return points.rows.mean(0, keepdim=True), int(members[0])
        center = one_center(points) if self.objective == "kcenter" else medoid(points)
        return points.rows[[center]], int(members[center])

    def centers(self, labels: Tensor) -> tuple[Tensor, list[int]]:
        """Best centers of the clusters 0, 1, ..., as encoded rows [K, m] and as indices of points."""
        clusters = range(int(labels.amax()) + 1)
        rows, points = zip(*(self.center(labels == k) for k in clusters), strict=True)
        return torch.cat(rows), [*points]

    def costs(self, rows: Tensor, among: Tensor | slice = slice(None)) -> Tensor:
        """Cost at every center, [n, K], of some points or all."""
        far = self.points.between(self.points.rows[among], rows)
        return far.square() if self.objective == "kmeans" else far

    def solution(self, labels: Tensor) -> tuple[Solution, Tensor]:
        """The best centers of a clustering with its objective, and the costs of all points, [n, K]."""
        rows, points = self.centers(labels)
        far = self.costs(rows)
        return Solution(labels, rows, points, total(self.objective, own_costs(far, labels))), far


def own_costs(far: Tensor, labels: Tensor) -> Tensor:
    """Entry of each row, [n], that a label selects from a table [n, K]."""
    return far.gather(1, labels[:, None])[:, 0]


def total(objective: str, costs: Tensor) -> float:
    """Value of an objective, from the cost of every point at its own center."""
    return float(costs.amax() if objective == "kcenter" else costs.sum(dtype=torch.float64))


def one_center(points: EncodedPoints) -> int:
    """Index of the point with the smallest maximum distance to the others.

    The largest distance to a set of witnesses is a lower bound for every point. The point with the smallest bound
    is tried, and the point farthest from it becomes a witness, until no bound is below the best radius found. This
    needs about ten columns of the distance matrix.
    """
    best = 0
    least = torch.inf
    witness = 0
    bound = points.distances_to(0)
    witnesses: set[int] = set()
    while witness not in witnesses:  # a witness may recur if rounding makes distances asymmetric
        witnesses.add(witness)
        bound = torch.maximum(bound, points.distances_to(witness))
        candidate = int(bound.argmin())
        if bound[candidate] >= least:
            break
        radius, witness = (v.item() for v in points.distances_to(candidate).max(0))  # type: ignore[assignment]
        if radius < least:
            best = candidate
            least = radius
    return best


def medoid(points: EncodedPoints) -> int:
    """Index of the point with the smallest sum of distances to the others.

    The result is exact up to 2000 points. In larger sets, the 20 points with the smallest sums of distances to a
    sample of 200 points are tried. The sample is spread evenly over the distances from a central point.
    """

    def summed(sample: Tensor) -> Tensor:  # one by one, as a column of distances may be long
        distances: Any = sum(map(points.distances_to, sample.tolist()))
        return distances

    candidates = torch.arange(len(points), device=points.rows.device)
    if len(points) > EXACT:
        spread = slice(None, None, -(-len(points) // SAMPLE))
        central = int(summed(candidates[spread]).argmin())
        candidates = summed(points.distances_to(central).argsort()[spread]).argsort()[:CANDIDATES]
    return int(candidates[points.distances_to(candidates).sum(0).argmin()])


def scores(counts: Tensor) -> Tensor:
    """Interpretability of each cluster, [K]: the share of its most frequent value, from counts [K, F]."""
    return counts.amax(1).double() / counts.sum(1)


def max_size(m: int, beta: float) -> float:
    """Maximum size of a cluster with score >= beta, if m points have its majority value; it may be infinite.

    This is the largest s with ``m / s >= beta`` in floating point, which is how :func:`scores` are compared.
    """
    if m >= beta * 2**52:
        return math.inf
    size = math.floor(m / beta) + 2
    while size and m / size < beta:
        size -= 1
    return size


def free_places(counts: Tensor, beta: float) -> Tensor:
    """Number of points of other values that each cluster can still take, [K]; negative if some have to leave."""
    sizes = [max_size(m, beta) for m in counts.amax(1).tolist()]
    return counts.new_tensor(sizes, dtype=torch.float64) - counts.sum(1)


def excess(counts: Tensor, beta: float) -> int:
    """Total number of points that have to leave the clusters of counts [K, F] to reach beta."""
    return int(-free_places(counts, beta).clip(max=0).sum())


def allot(most: Sequence[int] | np.ndarray, n: int) -> np.ndarray:
    """Divide n points among clusters so that the lowest score is as high as possible.

    `most` [K] are the numbers of points with the majority value. Each point goes to the cluster whose score is
    best after adding it. This is D'Hondt's method for seats in a parliament. It gives every cluster at least its
    proportional share rounded down, so only the remaining points are assigned one by one.
    """
    majority = np.asarray(most, dtype=np.int64)
    others = n * majority // majority.sum()
    for _ in range(n - others.sum()):
        others[np.argmax(majority / (majority + others + 1))] += 1
    return others


def beta_max(frequencies: Sequence[int] | np.ndarray, k: int) -> float:
    """Highest interpretability of any clustering into at most k clusters.

    Saisubramanian et al., section 2.1, except that the next point goes to the cluster whose score is best after
    adding the point. (The paper compares the scores before, which is not optimal.)

    Parameters
    ----------
    frequencies : sequence of int
        Number of points with each value of interest.
    k : int
        Maximum number of clusters.
    """
    top = np.sort(np.asarray(frequencies, dtype=np.int64))[::-1]
    if len(top) <= k:
        return 1.0
    majority = top[:k]
    return float((majority / (majority + allot(majority, int(top[k:].sum())))).min())
