"""The problem of beta-interpretable clustering: objectives, their best centers, scores of interpretability."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from neonxc.common.memory import blocks

from .metric import EncodedPoints

EXACT = 2000  # largest cluster of which all points are tried as medoid
SAMPLE, CANDIDATES = 200, 20  # in larger clusters: size of the sample that selects candidates, and their number


@dataclass(frozen=True)
class Objective:
    """The objective that a clustering minimizes.

    It is the largest distance to a center ("kcenter"), the sum of squared distances to means ("kmeans") or the sum
    of distances to medoids ("kmedian").
    """

    name: str

    @property
    def power(self) -> int:
        """Exponent of the distances."""
        return 2 if self.name == "kmeans" else 1

    def center(self, points: EncodedPoints) -> tuple[Tensor, int]:
        """Best center [1, m] of the points, and its index among them; means have no index, and get 0."""
        if self.name == "kmeans":
            return points.rows.mean(0, keepdim=True), 0
        found = one_center(points) if self.name == "kcenter" else medoid(points)
        return points.rows[found : found + 1], found

    def centers(self, points: EncodedPoints, labels: Tensor, k: int) -> tuple[Tensor, list[int]]:
        """Best centers of k clusters as encoded rows [K, m], and the indices of the points that they are."""
        rows, positions = [], []
        for cluster in range(k):
            own = (labels == cluster).nonzero()[:, 0]
            row, position = self.center(points.take(own))
            rows.append(row)
            positions.append(int(own[position]))
        return torch.cat(rows), positions

    def costs(self, points: EncodedPoints, rows: Tensor) -> Tensor:
        """Cost of every point at every center, [n, K]."""
        far = points.between(points.rows, rows)
        return far.square() if self.power == 2 else far

    def value(self, own: Tensor) -> float:
        """Value of the objective, from the cost of every point at its own center."""
        return float(own.amax() if self.name == "kcenter" else own.sum(dtype=torch.float64))


@dataclass(frozen=True)
class InterpretableProblem:
    """Points, their values of interest, and the requirements on the clusters."""

    points: EncodedPoints
    codes: Tensor  # [n], values of interest
    n_values: int
    n_clusters: int
    beta: float
    objective: Objective

    def frequencies(self, among: Tensor | slice = slice(None)) -> np.ndarray:
        """Number of points of each value, [F], among some points or all."""
        return torch.bincount(self.codes[among], minlength=self.n_values).cpu().numpy()

    def counts(self, labels: Tensor) -> np.ndarray:
        """Number of points of each value in each cluster, [K, F]."""
        k = int(labels.amax()) + 1
        counts = torch.bincount(labels * self.n_values + self.codes, minlength=k * self.n_values)
        return counts.view(k, self.n_values).cpu().numpy()

    def centers(self, labels: Tensor) -> tuple[Tensor, list[int]]:
        """Best center of each cluster, and the indices of the points that they are."""
        return self.objective.centers(self.points, labels, int(labels.amax()) + 1)

    def costs(self, rows: Tensor, among: Tensor | None = None) -> Tensor:
        """Cost at every center, [n, K], of some points or all."""
        return self.objective.costs(self.points if among is None else self.points.take(among), rows)


def one_center(points: EncodedPoints) -> int:
    """Index of the point with the smallest maximum distance to the others.

    The largest distance to a set of witnesses is a lower bound for every point. The point with the smallest bound
    is tried, and the point farthest from it becomes a witness, until no bound is below the best radius found. This
    needs about ten columns of the distance matrix.
    """
    best, least, witness = 0, torch.inf, 0
    bound = torch.zeros_like(points.distances_to(0))
    witnesses: set[int] = set()
    while witness not in witnesses:  # a witness may recur if rounding makes distances asymmetric
        witnesses.add(witness)
        bound = torch.maximum(bound, points.distances_to(witness))
        candidate = int(bound.argmin())
        if float(bound[candidate]) >= least:
            break
        radius, witness = (v.item() for v in points.distances_to(candidate).max(0))  # type: ignore[assignment]
        if radius < least:
            best, least = candidate, radius
    return best


def medoid(points: EncodedPoints) -> int:
    """Index of the point with the smallest sum of distances to the others.

    The result is exact up to 2000 points. In larger sets, the 20 points with the smallest sums of distances to a
    sample of 200 points are tried. The sample is spread evenly over the distances from a central point.
    """
    n = len(points)
    every = torch.arange(n, device=points.rows.device)
    if n > EXACT:
        sample = every[:: -(-n // SAMPLE)]
        around = points.distances_to(int(_sums(points, sample, dim=1).argmin()))
        sample = around.argsort()[:: -(-n // SAMPLE)]
        every = _sums(points, sample, dim=1).argsort()[:CANDIDATES]
    return int(every[_sums(points, every, dim=0).argmin()])


def _sums(points: EncodedPoints, index: Tensor, dim: int) -> Tensor:
    """Sums of the distances to the points `index`: over these [n] (dim=1), or over all [len(index)] (dim=0)."""
    parts = blocks(len(index), 32 * len(points), points.rows.device)
    found = [points.distances_to(index[part]).sum(dim) for part in parts]
    return torch.cat(found) if dim == 0 else torch.stack(found).sum(0)


def scores(counts: np.ndarray) -> np.ndarray:
    """Interpretability of each cluster, [K]: the share of its most frequent value, from counts [K, F]."""
    return counts.max(1) / counts.sum(1)


def max_size(m: int, beta: float) -> float:
    """Maximum size of a cluster with score >= beta, if m points have its majority value; it may be infinite.

    This is the largest s with ``m / s >= beta`` in floating point, which is how :func:`scores` are compared.
    """
    if m >= beta * 2**52:
        return math.inf
    if m == 0:
        return 0
    size = max(1, math.floor(m / beta))
    while m / (size + 1) >= beta:
        size += 1
    while m / size < beta:
        size -= 1
    return size


def free_places(counts: np.ndarray, beta: float) -> np.ndarray:
    """Number of points of other values that each cluster can still take, [K]; negative if some have to leave."""
    return np.array([max_size(m, beta) for m in counts.max(1).tolist()]) - counts.sum(1)


def excess(counts: np.ndarray, beta: float) -> int:
    """Total number of points that have to leave the clusters of counts [K, F] to reach beta."""
    return int(-free_places(counts, beta).clip(max=0).sum())


def allot(most: Sequence[int] | np.ndarray, n: int) -> np.ndarray:
    """Divide n points among clusters so that the lowest score is as high as possible.

    `most` [K] are the numbers of points with the majority value. Each point goes to the cluster whose score is
    best after adding it. This is D'Hondt's method for seats in a parliament. It gives every cluster at least its
    proportional share rounded down, so only the remaining points are assigned one by one.
    """
    own = np.asarray(most, dtype=np.int64)
    given = n * own // own.sum()
    for _ in range(n - int(given.sum())):
        given[int(np.argmax(own / (own + given + 1)))] += 1
    return given


def beta_max(frequencies: Sequence[int], k: int) -> float:
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
    own = top[:k]
    return float((own / (own + allot(own, int(top[k:].sum())))).min())
