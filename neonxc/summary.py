"""What a cluster is: its size, what speaks for it, its most typical points."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, repr=False)
class ClusterSummary:
    """What :meth:`NEON.summary` finds.

    Attributes
    ----------
    classes : ndarray [K]
        The clusterer's labels.
    sizes : ndarray [K]
        Points per cluster.
    relevance : ndarray [K, d]
        Mean relevance of each feature for a cluster's own points, in units of the logit; 0 for an empty one.
    prototypes : list of K ndarrays
        Indices of the points with the greatest logit, most typical first.
    feature_names : list of str
    n_noise : int
        Points that are in no cluster; nothing else counts them.
    """

    classes: np.ndarray
    sizes: np.ndarray
    relevance: np.ndarray
    prototypes: list[np.ndarray]
    feature_names: list[str]
    n_noise: int = 0

    def top(self, column: int, n: int = 5) -> list[tuple[str, float]]:
        """Return the `n` features that speak most for a cluster, with their mean relevance."""
        order = np.argsort(-self.relevance[column], kind="stable")[:n]
        return [(self.feature_names[i], float(self.relevance[column, i])) for i in order]

    def __str__(self) -> str:
        lines = []
        for k, label in enumerate(self.classes):
            reasons = ", ".join(f"{name} {value:+.3g}" for name, value in self.top(k))
            lines.append(f"cluster {label} ({self.sizes[k]} points): {reasons}")
        return "\n".join([*lines, f"noise ({self.n_noise} points)"] if self.n_noise else lines)

    __repr__ = __str__


def summarized(
    classes: np.ndarray, logit: np.ndarray, column: np.ndarray, total: np.ndarray, names: list[str], n: int
) -> ClusterSummary:
    """Summary from the logit and the column of every point (K: noise), and the sum [K, d] of their relevance."""
    K = len(total)
    sizes = np.bincount(column, minlength=K + 1)
    order = np.argsort(-logit, kind="stable")
    prototypes = [order[column[order] == k][:n] for k in range(K)]
    mean = total / sizes[:K, None].clip(min=1)
    return ClusterSummary(classes, sizes[:K], mean, prototypes, names, int(sizes[K]))
