"""What a cluster is: its size, the features that speak for it, and its most typical points."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from neonxc.cluster_values import ClusterValues
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
        Number of points in each cluster.
    relevance : ndarray [K, d]
        Mean relevance of each feature over a cluster's own points, in units of the logit; 0 for an empty cluster.
    prototypes : list of K ndarrays
        Indices of the points with the largest logits, most typical first; in a process group, indices among all
        rows, where those of rank 0 come first.
    feature_names : list of str
    values : ClusterValues
        What values the features have: ``values.means`` [K, d] and ``values.overall`` [d] are the means over each
        cluster and over all points, noise included, in float64. Missing values do not count. Where a feature holds
        categories its means are NaN, and ``values.shares[feature]`` is a frame of the share of each category. For
        words and terms the means are the shares of the texts that contain them.
    n_noise : int
        Number of points that are in no cluster.
    """

    classes: np.ndarray
    sizes: np.ndarray
    relevance: np.ndarray
    prototypes: list[np.ndarray]
    feature_names: list[str]
    values: ClusterValues
    n_noise: int = 0

    def top(self, column: int, n: int = 5) -> list[tuple[str, float]]:
        """Return the `n` features that speak most for a cluster, with their mean relevance.

        Parameters
        ----------
        column : int
            Position of the cluster in `classes`.
        n : int
            Number of features.
        """
        return [(self.feature_names[i], float(self.relevance[column, i])) for i in self._strongest(column, n)]

    def reasons(self, column: int, n: int = 5) -> list[str]:
        """Say what speaks most for a cluster, and in which direction.

        Parameters
        ----------
        column : int
            Position of the cluster in `classes`.
        n : int
            Number of features.

        Returns
        -------
        list of str
            Such as ``"proline +2.06 (↑ 1116 vs 746.9)"`` or ``"color +0.31 (is dark 91% vs 70%)"``: the mean
            relevance and, in brackets, the mean (or the share of a category) in the cluster and in all points.
        """
        said = []
        for i in self._strongest(column, n):
            beside = self.values.comparison(column, int(i))
            value = f"{self.feature_names[i]} {self.relevance[column, i]:+.3g}"
            said.append(f"{value} ({beside})" if beside else value)
        return said

    def to_frame(self) -> pd.DataFrame:
        """All features of all clusters as a table.

        Returns
        -------
        DataFrame [K * d, 4]
            With the index levels ``cluster`` and ``feature``; within a cluster the feature that speaks most for it
            comes first. The columns are ``relevance``, ``direction`` (``"↑"``, ``"↓"`` or ``"="`` for the mean in
            the cluster beside the overall mean, ``"is Private"`` for the category whose share exceeds its overall
            share most, "" where the values are not known), ``mean`` and ``overall``: the two means, or the shares
            of that category.

        Examples
        --------
        >>> import neonxc
        >>> from sklearn.cluster import KMeans
        >>> from sklearn.datasets import load_iris
        >>> X = load_iris(as_frame=True).data
        >>> net = neonxc.neuralize(KMeans(3, n_init=10, random_state=0).fit(X), X)
        >>> frame = neonxc.NEON(net).summary(X).to_frame()
        >>> frame.loc[1, "direction"].to_dict()["petal length (cm)"]
        '↓'
        """
        rows = []
        for k, label in enumerate(self.classes):
            for i in self._strongest(k, len(self.feature_names)):
                direction, own, overall = self.values.direction(k, int(i))
                relevance = float(self.relevance[k, i])
                rows.append((label, self.feature_names[i], relevance, direction, own, overall))
        columns = ["cluster", "feature", "relevance", "direction", "mean", "overall"]
        return pd.DataFrame(rows, columns=columns).set_index(["cluster", "feature"])

    def _strongest(self, column: int, n: int) -> np.ndarray:
        return np.argsort(-self.relevance[column], kind="stable")[:n]

    def __str__(self) -> str:
        reasons = [self.reasons(k) for k in range(len(self.classes))]
        lines = []
        for label, size, said in zip(self.classes, self.sizes, reasons, strict=True):
            lines += [f"cluster {label} ({size} points)", *(f"    {reason}" for reason in said)]
        lines += [f"noise ({self.n_noise} points)"] * (self.n_noise > 0)
        if not np.isnan(self.values.overall).all() or self.values.shares:
            lines.append(
                "Numbers are the mean relevance and, in brackets, the mean (or share) in the cluster vs overall."
            )
        return "\n".join(lines)

    __repr__ = __str__


def summarized(
    classes: np.ndarray,
    logit: Tensor,
    column: Tensor,
    total: Tensor,
    values: ClusterValues,
    names: list[str],
    n: int,
    ranks: Ranks,
) -> ClusterSummary:
    """Summary from the logit and the column of every point (K: noise), and the sum [K, d] of their relevance.

    Ranks add up their sums, and each gives the others the `n` points of every cluster with its largest logits.
    """
    K, offset = len(total), numbered(len(logit), ranks)[0]
    sizes = torch.bincount(column, minlength=K + 1)
    sums = ranks.sum(torch.cat([total.flatten(), sizes.double()]))
    total, counts = sums[: total.numel()].view_as(total), sums[total.numel() :].long()
    best = torch.cat(_typical(logit, column, K, n))
    logit, column, number = (torch.cat(ranks.gather(part)) for part in (logit[best], column[best], best + offset))
    prototypes = [number[some].numpy() for some in _typical(logit, column, K, n)]
    mean = total / counts[:K, None].clamp(min=1)
    return ClusterSummary(classes, counts[:K].numpy(), mean.numpy(), prototypes, names, values, int(counts[K]))


def _typical(logit: Tensor, column: Tensor, K: int, n: int) -> list[Tensor]:
    """Indices of the `n` points of each column that have the largest logits, largest first."""
    order = logit.argsort(descending=True, stable=True)
    return [order[column[order] == k][:n] for k in range(K)]
