"""Arithmetic of interpretability: how large clusters may be, and the best that any clustering can reach."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np


def scores(counts: np.ndarray) -> np.ndarray:
    """Share [K] of the most frequent value in each cluster, of counts [K, F]."""
    return counts.max(1) / counts.sum(1)


def room(m: int, beta: float) -> float:
    """Points that a cluster may have at most, ``m`` of which have its value; infinite where any number will do.

    The largest s with ``m / s >= beta`` in floating point, as :func:`scores` compares them.
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


def excess(counts: np.ndarray, beta: float) -> int:
    """How many points too many the clusters of counts [K, F] have in sum."""
    return int(sum(max(0, size - room(m, beta)) for m, size in zip(*_most(counts), strict=True)))


def spare(counts: np.ndarray, beta: float) -> np.ndarray:
    """How many points of other values the clusters may still take, [K]; none where there are too many."""
    return np.array([max(0.0, room(m, beta) - size) for m, size in zip(*_most(counts), strict=True)])


def allot(most: Sequence[int] | np.ndarray, n: int) -> np.ndarray:
    """Divide n points among clusters that have so many of their own value each, for the best least score.

    Each point goes where the score is the best after it came. This is D'Hondt's method for seats in a parliament,
    which gives everyone at least the proportional share rounded down; only the rest is given one by one.
    """
    own = np.asarray(most, dtype=np.int64)
    given = n * own // own.sum()
    for _ in range(n - int(given.sum())):
        given[int(np.argmax(own / (own + given + 1)))] += 1
    return given


def beta_max(frequencies: Sequence[int], k: int) -> float:
    """The greatest interpretability of any clustering into at most k clusters.

    Saisubramanian et al., section 2.1, where the next point goes to the cluster whose score is the best after
    adding it. (The paper compares scores before.)

    Parameters
    ----------
    frequencies : sequence of int
        How many points have each value of interest.
    k : int
    """
    top = np.sort(np.asarray(frequencies, dtype=np.int64))[::-1]
    if len(top) <= k:
        return 1.0
    own = top[:k]
    return float((own / (own + allot(own, int(top[k:].sum())))).min())


def _most(counts: np.ndarray) -> tuple[list[int], list[int]]:
    return counts.max(1).tolist(), counts.sum(1).tolist()
