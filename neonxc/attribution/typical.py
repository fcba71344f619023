"""Typical rows of clusters: near the middle, and clearly inside.

Of the rows of a cluster, with the median f of their logits:

    1. the rows with a logit >= f, which are clearly inside, by increasing distance from the middle of the cluster
    2. then the others, by increasing distance

    head                       middle of a cluster             squared distance of a point
    one centroid per cluster   the centroid                    sum_i w_i (y_i - c_i)^2, with the weights w_i of the
                                                               columns in the network's own squared distances
    others                     the median of every column      sum_i (x_i - c_i)^2 / s_i^2, with the standard
                                                               deviations s_i of the columns
    others on large maps       (locations are not kept)        the logit

The rows with the largest logits are no typical ones: they are those farthest from all other clusters, at the outer
edge of their own. For noise, which has no middle, the clearest rows are those with the largest logits.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from neonxc.data.inputs import moments
from neonxc.data.sparse import SparseRows
from neonxc.data.weights import weighted_median
from neonxc.head import Head
from neonxc.head.answer import Answer
from neonxc.head.detection import LinearDetection

MAX_BYTES = 2**28  # of the features that are kept: above all, locations of maps may be many


class Centers(NamedTuple):
    """The centroids of clusters, and the weights of the columns in squared distances from them."""

    layer: LinearDetection
    points: Tensor  # [K, d], in the coordinates y of the layer
    weights: Tensor  # [d]

    @classmethod
    def of(cls, head: Head) -> Centers | None:
        """Read the centroids of a head; None if it has no single centroid per cluster, or mixes columns."""
        layer = head.detection.of_clusters
        has_noise = layer is not head.detection
        if head.grouping is not None and not has_noise:
            return None
        is_linear = isinstance(layer, LinearDetection) and not layer.nearest_zero and layer.diagonal
        if not is_linear or layer.n_neurons != head.n_clusters - int(has_noise):
            return None
        assert isinstance(layer, LinearDetection)
        # D = 2 w c, and the anchors are A = c / 2
        anchors = layer.anchors.double()
        size = anchors.abs().sum(dim=0)
        weights = layer.directions.double().abs().sum(dim=0) / (4 * torch.where(size > 0, size, 1.0))
        return cls(layer, 2 * anchors, weights)

    def squared_distances(self, x: Tensor | SparseRows, cluster: Tensor) -> Tensor:
        """Compute the squared distances [n] of points from the centroids of clusters [n]."""
        cluster = cluster.clamp(max=len(self.points) - 1)  # noise has no centroid, nor any use of a distance
        if isinstance(x, SparseRows):
            return self._of_sparse(x, cluster)
        y, _ = self.layer.coordinates(x)
        return (y.double() - self.points[cluster]).square() @ self.weights

    def _of_sparse(self, x: SparseRows, cluster: Tensor) -> Tensor:
        """Expand the squares, whose first sums are over the stored entries alone.

        With y - c = x / n(x) - s and s = root / n(x) + origin + c, where n(x) = 1 without a row norm, the distance
        is sum w (x / n)^2 - 2 sum w s x / n + sum w s^2.
        """
        norm = self.layer.row_norm(x)
        if isinstance(norm, Tensor):
            norm = norm.double()[:, 0]  # [n]
        root = self.layer.root.double()
        shifts = self.points + self.layer.origin.double()  # [K, d], origin + c

        squares = (SparseRows(x.matrix.power(2), x.device) @ self.weights[:, None])[:, 0]
        with_root = (x @ (self.weights * root)[:, None])[:, 0]
        with_shift = (x @ (self.weights * shifts).T).gather(1, cluster[:, None])[:, 0]
        products = with_root / norm + with_shift

        squared_root = (root.square() @ self.weights) / norm**2
        root_by_shift = (shifts @ (self.weights * root))[cluster] / norm
        squared_shift = (shifts.square() @ self.weights)[cluster]
        return squares / norm**2 - 2 * products / norm + squared_root + 2 * root_by_shift + squared_shift


class Typicality:
    """Collects, block by block, what the distances of points from the middle of their clusters need.

    Parameters
    ----------
    head : Head
        Of the network.
    """

    def __init__(self, head: Head) -> None:
        self.centers = Centers.of(head)
        self.distances: list[Tensor] = []
        self.points: list[Tensor | SparseRows] = []
        self.n_bytes = 0

    def add(self, answer: Answer) -> None:
        """Add the points of an answer, each with the cluster that it explains."""
        if self.centers is not None:
            distances = self.centers.squared_distances(answer.x, answer.cluster)
            self.distances.append(distances.double().cpu())
            return
        if isinstance(answer.x, Tensor):
            self.n_bytes += answer.x.numel() * answer.x.element_size()
        if self.n_bytes <= MAX_BYTES:
            self.points.append(answer.x)

    def order(
        self, cluster: np.ndarray, logit: np.ndarray, k: int, n: int, weight: np.ndarray | None = None
    ) -> np.ndarray:
        """Find the `n` most typical rows of cluster `k`, the most typical first.

        Parameters
        ----------
        cluster, logit : ndarray [N]
            Positions of the clusters of all points that were added, and their logits.
        k, n : int
            Position of the cluster, and number of rows.
        weight : ndarray [N], optional
            Weights > 0 of the points.
        """
        members = np.flatnonzero(cluster == k)
        if not len(members) or n < 1:
            return members[:0]
        mass = np.ones(len(members)) if weight is None else weight[members]
        is_inside = logit[members] >= weighted_median(logit[members], mass)
        distance = self._distances(members, mass, logit)
        return members[np.lexsort((members, distance, ~is_inside))[:n]]

    def _distances(self, members: np.ndarray, mass: np.ndarray, logit: np.ndarray) -> np.ndarray:
        """Compute the distances of the members of a cluster from its middle; their logits if nothing is kept."""
        if self.centers is not None:
            return torch.cat(self.distances).numpy()[members]
        if self.n_bytes > MAX_BYTES or not self.points:
            return logit[members]
        if isinstance(self.points[0], SparseRows):
            return _of_sparse([part for part in self.points if isinstance(part, SparseRows)], members, mass)
        points = torch.cat([part.double().cpu() for part in self.points if isinstance(part, Tensor)])
        _, spread = moments(points)
        own = points[torch.from_numpy(members)]
        middle = _medians(own.numpy(), mass)
        return ((own - torch.from_numpy(middle)) / spread).square().sum(dim=1).numpy()


def clearest(members: np.ndarray, logit: np.ndarray, n: int) -> np.ndarray:
    """Return the `n` rows of `members` with the largest logits, the largest first."""
    return members[np.argsort(-logit[members], kind="stable")[:n]]


def _medians(values: np.ndarray, mass: np.ndarray) -> np.ndarray:
    """Compute the median [d] of every column of rows [m, d] with weights [m]."""
    if (mass == mass[0]).all():
        return np.median(values, axis=0)
    order = np.argsort(values, axis=0, kind="stable")
    up_to = mass[order].cumsum(axis=0)
    middle = (up_to < up_to[-1] / 2).sum(axis=0)
    return np.take_along_axis(values, np.take_along_axis(order, middle[None], axis=0), axis=0)[0]


def _of_sparse(parts: list[SparseRows], members: np.ndarray, mass: np.ndarray) -> np.ndarray:
    """Compute the squared distances of sparse rows from their median, in standard deviations of the columns."""
    from scipy import sparse

    matrix = sparse.vstack([part.matrix for part in parts], format="csr").astype(np.float64)
    _, spread = SparseRows(matrix, torch.device("cpu")).moments()
    weights = 1 / spread.numpy() ** 2
    own = matrix[members]
    # the median of a column with fewer entries than zeros is 0
    of_entries = (own != 0).T @ mass
    columns = np.flatnonzero(of_entries >= mass.sum() / 2)
    middle = np.zeros(matrix.shape[1])
    if len(columns):
        middle[columns] = _medians(own[:, columns].toarray(), mass)
    return own.power(2) @ weights - 2 * (own @ (weights * middle)) + float(weights @ middle**2)
