"""Interpretability scores, the sizes of clusters that reach a score, and the best score of any clustering."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np


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
