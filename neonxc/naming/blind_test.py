"""The blind test of names: whether rows that are sorted by names alone come to their own clusters.

A judge gives every row a score for every name. Of the rows of cluster k, whose weights sum to 1,

    p_kj        the share that chooses name j: its score is the largest, and no other score equals it
    silent_k    the share without a choice: two scores are equally large, or no name says anything about the row
    accuracy    a_k = p_kk
    taken       a_k / sum_j p_jk, the share of its own among those who choose name k, if clusters weigh the same

With the number n_k of rows (for rows with weights w_i it is (sum w_i)^2 / sum w_i^2), name k passes if

    chosen      a_k - p_kj > sqrt((a_k + p_kj - (a_k - p_kj)^2) / n_k)              for all j != k
    its own     a_k - p_jk > sqrt(a_k (1 - a_k) / n_k + p_jk (1 - p_jk) / n_j)      for all j != k

that is, if its rows choose it more often than any other name, and choose it more often than the rows of any other
cluster do, both by more than one standard error. These are those of the difference of two shares of the same
sample, and of two samples.

Clusters with fewer than MIN_ROWS rows are not judged, and no evidence against others. The rival of k is the
cluster j with the largest p_kj + p_jk.

Names are tested on rows that they were not chosen on (:func:`divide`): of the rows of every cluster a share is
held out, but at least MIN_ROWS, and at most half.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

MIN_ROWS = 10
"""Smallest number of rows that a name is judged by. If rows of three clusters choose at random, 15% of names
pass with one row each, 5% with five, and 3% with ten or more; of ten clusters 4%, 0.3% and 0.1%."""
TIE = 1e-9
"""Relative difference below which two scores are equal: rounding must not decide."""


HELD_OUT = 1 / 3
"""Share of the rows that names are tested on. On five tables, 83.7% of them are sorted rightly by names that were
chosen on two thirds of the rows, and 82.1% if on a half."""
MAX_CHOOSING = 300
"""Rows of each cluster that names are chosen on. A share of 300 rows has a standard error of at most 0.03."""
MAX_ALL = 3000
"""Rows of all clusters that names are chosen on: the search takes time with the product of rows and clusters.
With 20 clusters of letters it takes 2.5 s, and 4.5 s with twice as many rows, without a gain."""
MAX_TESTED = 1000
"""Rows of each cluster that names are tested on, whose shares have a standard error of at most 0.016."""


@dataclass(frozen=True)
class BlindTest:
    """What rows of K clusters choose.

    Attributes
    ----------
    shares : ndarray [K, K + 1]
        The shares p_kj of the rows of each cluster that choose each name and, in the last column, no name.
    n_rows : ndarray [K]
        Number n_k of rows of each cluster.
    """

    shares: np.ndarray
    n_rows: np.ndarray

    @property
    def accuracy(self) -> np.ndarray:
        """The shares [K] of the rows of each cluster that choose its name; NaN without rows."""
        return np.where(self.n_rows > 0, np.diagonal(self.shares), np.nan)

    @property
    def taken(self) -> np.ndarray:
        """The shares [K] of its own rows among those that choose a name; NaN if none does."""
        own = np.diagonal(self.shares)
        sums = self.shares[:, :-1].sum(axis=0)
        return np.divide(own, sums, out=np.full_like(own, np.nan), where=sums > 0)

    @property
    def is_judged(self) -> np.ndarray:
        """Whether there are enough rows of each cluster, [K]."""
        return self.n_rows >= MIN_ROWS

    @property
    def passed(self) -> np.ndarray:
        """Whether each name passes, [K]; names that are not judged do not."""
        return passing(self.shares[:, :-1], self.n_rows) & self.is_judged

    def rival(self, k: int) -> int | None:
        """Return the cluster with which cluster k is confused most; None if it is with no one."""
        shares = self.shares[:, :-1]
        confused = shares[k] + shares[:, k]
        confused[k] = 0.0
        if not confused.any():
            return None
        return int(confused.argmax())


def passing(shares: np.ndarray, n_rows: np.ndarray) -> np.ndarray:
    """Tell which names pass, [..., K], by the two conditions above.

    Parameters
    ----------
    shares : ndarray [..., K, K]
        The shares p_kj.
    n_rows : ndarray [K]
        The numbers n_k.
    """
    k = shares.shape[-1]
    is_other = ~np.eye(k, dtype=bool)
    n = np.maximum(n_rows, 1)
    own = np.diagonal(shares, axis1=-2, axis2=-1)

    # chosen: a_k against p_kj, along the rows of the table
    difference = own[..., :, None] - shares
    variance = (own[..., :, None] + shares - difference**2) / n[:, None]
    is_beaten = difference <= np.sqrt(variance.clip(min=0))
    is_chosen = ~(is_beaten & is_other).any(axis=-1)

    # its own: a_k against p_jk, along the columns
    difference = own[..., None, :] - shares
    of_own = own * (1 - own) / n
    of_others = shares * (1 - shares) / n[:, None]
    error = np.sqrt((of_own[..., None, :] + of_others).clip(min=0))
    is_evidence = is_other & (n_rows >= MIN_ROWS)[:, None]
    is_taken_by_others = ((difference <= error) & is_evidence).any(axis=-2)
    return is_chosen & ~is_taken_by_others


def choices(scores: np.ndarray) -> np.ndarray:
    """Return the position of the name that each row chooses, [n]; -1 for none.

    Parameters
    ----------
    scores : ndarray [n, K]
        The judge's scores; NaN where a name says nothing.
    """
    known = np.where(np.isnan(scores), -np.inf, scores)
    best = known.max(axis=1)
    is_known = np.isfinite(best)
    margin = TIE * np.maximum(1.0, np.abs(np.where(is_known, best, 0.0)))
    n_best = (known >= (best - margin)[:, None]).sum(axis=1)
    return np.where(is_known & (n_best == 1), known.argmax(axis=1), -1)


def blind_test(scores: np.ndarray, groups: np.ndarray, weight: np.ndarray | None = None) -> BlindTest:
    """Sort rows by the scores of names, and compare their choices with their clusters.

    Parameters
    ----------
    scores : ndarray [n, K]
        The judge's scores.
    groups : ndarray [n] of int
        Positions of the rows' clusters.
    weight : ndarray [n], optional
        Weights of the rows.
    """
    k = scores.shape[1]
    mass = np.ones(len(scores)) if weight is None else weight
    chosen = choices(scores)
    column = np.where(chosen < 0, k, chosen)
    table = np.zeros((k, k + 1))
    np.add.at(table, (groups, column), mass)
    sums = table.sum(axis=1, keepdims=True)
    shares = np.divide(table, sums, out=np.zeros_like(table), where=sums > 0)
    return BlindTest(shares, effective_rows(groups, k, mass))


def effective_rows(groups: np.ndarray, k: int, mass: np.ndarray) -> np.ndarray:
    """Compute (sum w_i)^2 / sum w_i^2 of every cluster, [k]: the number of rows if weights are equal."""
    sums = np.bincount(groups, mass, minlength=k)
    squares = np.bincount(groups, mass**2, minlength=k)
    return np.divide(sums**2, squares, out=np.zeros(k), where=squares > 0)


def ceilings(
    known: np.ndarray, known_groups: np.ndarray, space: np.ndarray, groups: np.ndarray, k: int
) -> np.ndarray:
    """Compute the accuracies [k] of the nearest mean of labelled rows, in the space of the judge.

    Whoever reads names sees no more of a row than the judge does; the means of labelled rows are about as much as
    can be known in its space.

    Parameters
    ----------
    known, space : ndarray [n, d], [m, d]
        Rows whose clusters are known, and those that are sorted.
    known_groups, groups : ndarray [n], [m] of int
        Positions of their clusters.
    k : int
        Number of clusters.
    """
    means = np.full((k, space.shape[1]), np.inf)
    for cluster in np.unique(known_groups):
        means[cluster] = known[known_groups == cluster].mean(axis=0)
    is_known = np.isfinite(means).all(axis=1)
    # |x - m|^2 without |x|^2, which is the same for all means
    lengths = np.where(is_known, (np.where(is_known[:, None], means, 0.0) ** 2).sum(axis=1), np.inf)
    distances = lengths - 2 * space @ np.where(is_known[:, None], means, 0.0).T
    is_right = distances.argmin(axis=1) == groups
    counts = np.bincount(groups, minlength=k)
    right = np.bincount(groups, is_right, minlength=k)
    return np.divide(right, counts, out=np.full(k, np.nan), where=counts > 0)


class Division(NamedTuple):
    """Positions of rows, sorted."""

    choosing: np.ndarray
    testing: np.ndarray


def divide(groups: np.ndarray, k: int, generator: np.random.RandomState, held_out: float = HELD_OUT) -> Division:
    """Divide the rows of every cluster at random.

    Parameters
    ----------
    groups : ndarray [N] of int
        Positions of the rows' clusters; -1 for rows that are in none, which are in no part.
    k : int
        Number of clusters.
    generator : RandomState
    held_out : float
        Share of the rows of each cluster in the second part, at most 1/2.
    """
    n_most = min(MAX_CHOOSING, max(MAX_ALL // k, MIN_ROWS))
    choosing = []
    testing = []
    for cluster in range(k):
        rows = generator.permutation(np.flatnonzero(groups == cluster))
        n_tested = min(max(int(held_out * len(rows)), MIN_ROWS), len(rows) // 2)  # a single row has no test
        n_chosen = len(rows) - n_tested
        choosing.append(rows[:n_chosen][:n_most])
        testing.append(rows[n_chosen:][:MAX_TESTED])
    return Division(np.sort(np.concatenate(choosing)), np.sort(np.concatenate(testing)))
