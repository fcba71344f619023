"""Names chosen by a judge among candidates: for each cluster the best one given the others, in turns.

The quality of the names of K clusters, on rows whose clusters are known, is

    sum_k (a_k + BONUS [name k passes])

with the accuracies and the conditions of :mod:`neonxc.naming.blind_test`, but of expected shares: a row that
scores a name s, and the best of the others b, chooses that name with the probability

    1 / (1 + exp((b - s) / T)),    T = SOFTNESS times the standard deviation of the first candidates' scores,

and none if s and b are equal. The rows that names are tested on differ from those that they are chosen on, so that
rows near the border between two names count for both.

Of every cluster, the KEPT candidates are compared whose quality is largest while the others have their first ones.
Beginning with some name per cluster,

1. for each cluster in turn, the first candidate is taken with which the quality is largest but for TOLERANCE,
   while the other names stay;
2. this is repeated until no name changes.

As other beginnings may end elsewhere, it is done STARTS times, and the names with the largest quality are taken:
from the first candidates, which consist of one strong statement, from the last ones, and from random ones. More
than MANY clusters take too long for that, and begin with the first ones alone.

If the name of cluster k changes, a row changes its choice only between name k and the best of the others. So the
tables of shares of all candidates need, for each pair of a cluster and a best other name, the mass of its rows
that choose a candidate before that name, or after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

import numpy as np
from scipy import sparse
from scipy.special import expit

from neonxc.naming.blind_test import MIN_ROWS, TIE, effective_rows, passing

BONUS = 0.1
"""What a name that passes is worth in shares of rows. On five tables, 95.3% of names pass and 83.6% of held-out
rows are sorted rightly with 0.1; 94.7% and 83.1% with 0; 95.0% and 83.1% with 0.3."""
STARTS = 3
MANY = 12
"""Names of 20 clusters of letters take 1.8 s from one beginning and 2.5 s from three, and are as good."""
ROUNDS = 8
"""Largest number of turns; most searches end after four."""
TOLERANCE = 0.005
"""Candidates whose quality is smaller by at most this much count as equal, and the first of them is taken: the
one of fewer and stronger statements. With 0.01, 82.0% of held-out rows are sorted rightly, with 0 82.7%."""


SOFTNESS = 0.08
"""On five tables, 84.6% of held-out rows are sorted rightly with about this much, and 83.6% with half of it or one
and a half times as much. With none, 92% of names pass instead of 95%."""
KEPT = 60
"""All candidates (about 300) take three times as long for ten clusters. On five tables with one seed, 85.3% of
held-out rows are sorted rightly with all, and 83.7% with these."""


class Search:
    """The search for names on rows with known clusters.

    Parameters
    ----------
    scores : sequence of K ndarrays [n, C_k]
        The judge's scores of the candidates of each cluster; NaN where one says nothing.
    groups : ndarray [n] of int
        Positions of the rows' clusters.
    weight : ndarray [n], optional
        Weights of the rows.
    """

    def __init__(self, scores: Sequence[np.ndarray], groups: np.ndarray, weight: np.ndarray | None = None) -> None:
        self.k = len(scores)
        self.scores = [np.where(np.isnan(of_cluster), -np.inf, of_cluster) for of_cluster in scores]
        self.temperature = SOFTNESS * _deviation(scores)
        self.groups = groups
        mass = np.ones(len(groups)) if weight is None else weight
        sums = np.bincount(groups, mass, minlength=self.k)
        self.mass = mass / sums[groups]
        self.n_rows = effective_rows(groups, self.k, mass)

    def best(self, generator: np.random.RandomState) -> list[int]:
        """Return the positions [K] of the chosen candidates."""
        first = [0] * self.k
        kept = [self._most_promising(k, first) for k in range(self.k)]
        search = copy(self)
        search.scores = [of_cluster[:, chosen] for of_cluster, chosen in zip(self.scores, kept, strict=True)]

        last = [len(of_cluster) - 1 for of_cluster in kept]
        starts = [first]
        if self.k <= MANY:
            starts.append(last)
            for _ in range(2, STARTS):
                starts.append([int(generator.randint(len(of_cluster))) for of_cluster in kept])
        searches = [search._improved(start) for start in starts]
        qualities = [quality for _, quality in searches]
        positions = searches[int(np.argmax(qualities))][0]
        return [int(of_cluster[i]) for of_cluster, i in zip(kept, positions, strict=True)]

    def _most_promising(self, k: int, chosen: Sequence[int]) -> np.ndarray:
        """Return the sorted positions of the KEPT best candidates of cluster k, given those of the others."""
        n = self.scores[k].shape[1]
        if n <= KEPT:
            return np.arange(n)
        order = np.argsort(-self.qualities(k, chosen), kind="stable")
        return np.sort(order[:KEPT])

    def _improved(self, start: Sequence[int]) -> tuple[list[int], float]:
        """Improve names in turns, and return them with their quality."""
        chosen = [*start]
        quality = -np.inf
        for _ in range(ROUNDS):
            before = [*chosen]
            for k in range(self.k):
                qualities = self.qualities(k, chosen)
                chosen[k] = int(np.argmax(qualities >= qualities.max() - TOLERANCE))
                quality = float(qualities[chosen[k]])
            if chosen == before:
                break
        return chosen, quality

    def qualities(self, k: int, chosen: Sequence[int]) -> np.ndarray:
        """Compute the quality [C_k] of every candidate of cluster k, given the candidates of the others."""
        shares = self._shares(k, chosen)
        accuracy = np.diagonal(shares, axis1=1, axis2=2)
        # clusters that are too small to be judged get no bonus, or noise would decide
        passed = passing(shares, self.n_rows) & (self.n_rows >= MIN_ROWS)
        qualities: np.ndarray = (accuracy + BONUS * passed).sum(axis=1)
        return qualities

    def _shares(self, k: int, chosen: Sequence[int]) -> np.ndarray:
        """Compute the shares [C_k, K, K] that choose each name, with each candidate as the name of cluster k."""
        n = len(self.groups)
        best, rival = self._best_of_others(k, chosen)
        candidates = self.scores[k]
        margin = TIE * np.maximum(1.0, np.abs(np.where(np.isfinite(best), best, 0.0)))
        with np.errstate(invalid="ignore"):  # -inf - -inf: no name says anything
            difference = candidates - best[:, None]
        wins = expit(difference / self.temperature)
        has_choice = np.abs(difference) > margin[:, None]  # not if it is NaN
        wins[~has_choice] = 0.0

        # mass of the rows of cluster j whose best other name is r, for all pairs (j, r); r = K without one
        pair = self.groups * (self.k + 1) + rival
        n_pairs = self.k * (self.k + 1)
        of_pairs = sparse.csr_matrix((self.mass, (pair, np.arange(n))), shape=(n_pairs, n))
        won = of_pairs @ wins
        lost = of_pairs.sum(axis=1).A - won if has_choice.all() else of_pairs @ has_choice - won
        shape = (self.k, self.k + 1, candidates.shape[1])
        shares = np.moveaxis(lost.reshape(shape)[:, : self.k], 2, 0).copy()
        shares[:, :, k] = won.reshape(shape).sum(axis=1).T
        return shares

    def _best_of_others(self, k: int, chosen: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """Return the largest score of the names but that of cluster k, and the position of its name.

        It is K for rows to which two of them are equally near, or none says anything.
        """
        now = np.stack([of_cluster[:, i] for of_cluster, i in zip(self.scores, chosen, strict=True)], axis=1)
        now[:, k] = -np.inf
        best = now.max(axis=1)
        is_known = np.isfinite(best)
        margin = TIE * np.maximum(1.0, np.abs(np.where(is_known, best, 0.0)))
        n_best = (now >= (best - margin)[:, None]).sum(axis=1)
        rival = np.where(is_known & (n_best == 1), now.argmax(axis=1), self.k)
        return best, rival


def _deviation(scores: Sequence[np.ndarray]) -> float:
    """Compute the standard deviation of the known scores of the first candidates; 1 if they are all the same."""
    first = np.stack([of_cluster[:, 0] for of_cluster in scores])
    known = first[np.isfinite(first)]
    if not len(known) or known.min() == known.max():
        return 1.0
    return float(known.std())
