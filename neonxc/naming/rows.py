"""The rows that names are chosen on, and those that they are tested on, which are held out.

Of the rows of every cluster a share is held out, but at least MIN_ROWS, which the test needs, and at most half.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from neonxc.naming.blind_test import MIN_ROWS

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
