"""Rows of the clusters: towards which points change, and by which the places that they reach are judged.

The *outlier factor* of a point is the local outlier factor (Breunig et al., SIGMOD 2000) among the rows of a
cluster, with columns in units of `spread`. It is about 1 where rows are as dense as around their neighbors, and
greater where there are fewer.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch
from sklearn.neighbors import LocalOutlierFactor
from torch import Tensor
from torch.nn.functional import one_hot

from neonxc.head import Head
from neonxc.head.grouping import Minimum
from neonxc.head.members import MemberDetection
from neonxc.head.noise import RadiusDetection
from neonxc.network import NeuralizedClustering

NEIGHBORS = 20
"""Largest number of neighbors of the outlier factor, scikit-learn's default; at most half of the rows."""
FEWEST = 10
"""Rows up to which a cluster has no outliers."""
OUTLIER = 1.5
"""Outlier factor beyond which a row is an outlier, as for scikit-learn's defaults."""


def known_rows(net: NeuralizedClustering) -> Tensor | None:
    """Return rows [R, d] of the clusters: those that the network keeps, its members or supports, or None."""
    if net.rows_ is not None:
        return net.rows_.to(net.inputs.device)
    detection = net.head.detection
    grouping = net.head.grouping
    has_supports = isinstance(grouping, Minimum) and grouping.mixes
    knows_rows = has_supports or isinstance(detection, MemberDetection | RadiusDetection)
    if not knows_rows or getattr(detection, "norm", None) is not None:
        return None
    points = detection.references.double()
    return points[net._some_of_each(net.head.assign(points))]


class ClusterRows:
    """Rows and their clusters.

    Parameters
    ----------
    points : Tensor [R, d] of float64
    head : Head
        Assigns them to clusters.
    spread : Tensor [d]
    """

    def __init__(self, points: Tensor, head: Head, spread: Tensor) -> None:
        self.points = points
        self.head = head
        self.spread = spread

    @cached_property
    def cluster(self) -> Tensor:
        """The positions [R] of the clusters."""
        return self.head.assign(self.points)

    @cached_property
    def targets(self) -> Tensor:
        """The cluster of each row as a task has targets, [R, K] of bool."""
        return one_hot(self.cluster, self.head.n_clusters).bool()

    def outlier_factors(self, points: Tensor, cluster: int) -> np.ndarray:
        """Compute the outlier factors [n] of points [n, d] among the rows of a cluster; NaN if it has few rows."""
        rows = np.unique(self._scaled(self._of(cluster)), axis=0)  # copies would be infinitely dense
        if len(rows) <= FEWEST:
            return np.full(len(points), np.nan)
        factors: np.ndarray = -_fitted(rows).score_samples(self._scaled(points))
        return factors

    @cached_property
    def is_outlier(self) -> Tensor:
        """Whether each row [R] is an outlier of its cluster."""
        is_outlier = torch.zeros_like(self.cluster, dtype=torch.bool)
        for cluster in self.cluster.unique().tolist():
            rows, copies = np.unique(self._scaled(self._of(cluster)), axis=0, return_inverse=True)
            if len(rows) > FEWEST:
                factors = -_fitted(rows).negative_outlier_factor_[copies.ravel()]
                is_outlier[self.cluster == cluster] = torch.as_tensor(factors > OUTLIER, device=is_outlier.device)
        return is_outlier

    def _of(self, cluster: int) -> Tensor:
        return self.points[self.cluster == cluster]

    def _scaled(self, points: Tensor) -> np.ndarray:
        scaled: np.ndarray = (points / self.spread).cpu().numpy()
        return scaled


def outlier_factors(
    rows: ClusterRows | None, points: Tensor, labels: np.ndarray, classes: np.ndarray
) -> np.ndarray:
    """Compute the outlier factors [n] of points in the clusters with some labels [n]; NaN without rows."""
    factors = np.full(len(points), np.nan)
    if rows is not None:
        for cluster, label in enumerate(classes.tolist()):
            has_label = labels == label
            if has_label.any():
                factors[has_label] = rows.outlier_factors(points[torch.from_numpy(has_label)], cluster)
    return factors


def _fitted(rows: np.ndarray) -> LocalOutlierFactor:
    return LocalOutlierFactor(n_neighbors=min(NEIGHBORS, len(rows) // 2), novelty=True).fit(rows)
