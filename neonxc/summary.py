"""What a cluster is: its size, what speaks for it, its most typical points."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from neonxc.ranks import Ranks
from neonxc.shards import numbered


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
        Indices of the points with the greatest logit, most typical first; over a group, among all rows, those of
        rank 0 first.
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
        """Return the `n` features that speak most for a cluster, with their mean relevance.

        Parameters
        ----------
        column : int
            Column of the cluster.
        n : int
            Number of features.
        """
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
    classes: np.ndarray, logit: Tensor, column: Tensor, total: Tensor, names: list[str], n: int, ranks: Ranks
) -> ClusterSummary:
    """Summary from the logit and the column of every point (K: noise), and the sum [K, d] of their relevance.

    Ranks add up their sums, and each gives the others the `n` points of every cluster with its greatest logits.
    """
    K, offset = len(total), numbered(len(logit), ranks)[0]
    sizes = torch.bincount(column, minlength=K + 1)
    sums = ranks.sum(torch.cat([total.flatten(), sizes.double()]))
    total, counts = sums[: total.numel()].view_as(total), sums[total.numel() :].long()
    best = torch.cat(_typical(logit, column, K, n))
    logit, column, number = (torch.cat(ranks.gather(part)) for part in (logit[best], column[best], best + offset))
    prototypes = [number[some].numpy() for some in _typical(logit, column, K, n)]
    mean = total / counts[:K, None].clamp(min=1)
    return ClusterSummary(classes, counts[:K].numpy(), mean.numpy(), prototypes, names, int(counts[K]))


def _typical(logit: Tensor, column: Tensor, K: int, n: int) -> list[Tensor]:
    """Indices of the `n` points of each column that have the greatest logits, greatest first."""
    order = logit.argsort(descending=True, stable=True)
    return [order[column[order] == k][:n] for k in range(K)]
