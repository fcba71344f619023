"""The rows that names are chosen on, and those that they are tested on: two halves of every cluster."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

MAX_CHOOSING = 300
"""Rows of each cluster that names are chosen on. A share of 300 rows has a standard error of at most 0.03."""
MAX_TESTED = 1000
"""Rows of each cluster that names are tested on, whose shares have a standard error of at most 0.016."""


class Halves(NamedTuple):
    """Positions of rows, sorted."""

    choosing: np.ndarray
    testing: np.ndarray


def halves(groups: np.ndarray, k: int, generator: np.random.RandomState) -> Halves:
    """Divide the rows of every cluster at random.

    Parameters
    ----------
    groups : ndarray [N] of int
        Positions of the rows' clusters; -1 for rows that are in none, which are in no half.
    k : int
        Number of clusters.
    generator : RandomState
    """
    choosing = []
    testing = []
    for cluster in range(k):
        rows = generator.permutation(np.flatnonzero(groups == cluster))
        middle = (len(rows) + 1) // 2  # a single row has a name, and no test
        choosing.append(rows[:middle][:MAX_CHOOSING])
        testing.append(rows[middle:][:MAX_TESTED])
    return Halves(np.sort(np.concatenate(choosing)), np.sort(np.concatenate(testing)))
