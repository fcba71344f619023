"""Stability of a clustering: how well it is found again on random halves of the points."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score

STABLE = 0.8
"""Stability from which on clusters count as found again."""
REFITS = 5
SAMPLE = 2000  # number of points for the silhouette

Refit = tuple[np.ndarray, np.ndarray]
"""Row numbers of the points of a refit, and their new labels."""


def refits(model: Any, select: Callable[[np.ndarray], Any], index: np.ndarray, n_clusters: int) -> Iterator[Refit]:
    """Refit a clusterer with five seeds, each on a random half of the points.

    Parameters
    ----------
    model : estimator
        Clusterer with the method `fit_predict`. It is cloned.
    select : callable
        Returns the inputs of `model` for given row numbers.
    index : ndarray [n] of int
        Row numbers of the points to draw from.
    n_clusters : int
        Minimum number of points of a half.

    Yields
    ------
    Refit
    """
    for seed in range(REFITS):
        rows = np.sort(np.random.default_rng(seed).permutation(index)[: max(n_clusters, len(index) // 2)])
        copy = clone(model)
        copy.set_params(**{name: seed for name in copy.get_params() if name.split("__")[-1] == "random_state"})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as convergence warnings
            labels = np.asarray(copy.fit_predict(select(rows)))
        yield rows, labels


def rand_indices(labels: np.ndarray, refits: Iterable[Refit]) -> list[float]:
    """Adjusted Rand index between labels [N] and each refit, on its points; their mean is the stability."""
    return [float(adjusted_rand_score(labels[rows], new)) for rows, new in refits]
