"""Noise of clusterings whose clusters have a radius: one more output, beside those of the clusters.

With the coordinates y of a head of distances, ``A y = z - c - z_0`` (:mod:`neonxc.head.preprocessing`), the
centroids M_m of clusters, and a squared radius r_k of every cluster k, the neurons are::

    neuron of a centroid         a_m(x) = |A y - M_m|^2 - |A y|^2     which is linear in y
    noise neuron of cluster k    b_k(x) = r_k - |A y|^2

The values that compete, of which the least wins, are::

    value of cluster k           E_k(x) = the minimum, or soft minimum, of the a_m of its centroids
    value of noise               b_a(x) of the nearest cluster a, whose E_a is the least

As ``b_a < E_a`` means ``r_a < |A y - M|^2``, noise wins exactly beyond the radius of the nearest cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from neonxc.common.registry import storable
from neonxc.data.sparse import SparseRows
from neonxc.head.detection import Detection, LinearDetection, Located, Stage, full_precision
from neonxc.head.grouping import Grouping, Minimum
from neonxc.head.head import Head
from neonxc.head.nearest import OUTSIDE
from neonxc.head.preprocessing import Preprocessing, mapped, pulled_back


def with_noise(head: Head, radius: Tensor, space: Tensor, shares: Tensor) -> Head:
    """Append noise to a head of distances: points beyond the radius of their nearest cluster belong to it.

    Parameters
    ----------
    head : Head
        A head whose K values are squared distances, up to a term that all have in common.
    radius : Tensor [K]
        Squared radius of each cluster, in the units of the values.
    space : Tensor [d] or [p, d]
        Linear map A of the coordinates y of the head; the common term is ``|A y|^2``.
    shares : Tensor [d]
        Shares of the columns in a squared radius, which sum to 1.

    Returns
    -------
    Head
        With K + 1 outputs. The value of noise is the squared radius of the nearest cluster minus ``|A y|^2``, so
        that it is the least of all exactly beyond the radius.
    """
    assert isinstance(head.detection, LinearDetection)
    assert isinstance(head.grouping, Minimum | None)
    detection = RadiusDetection(head.detection, radius=radius, space=space, shares=shares)
    grouping = NearestRadius(head.grouping, groups=head.groups, k=len(radius))
    return Head(detection, grouping, head.competition)


@storable
class RadiusDetection(Detection):
    """The neurons of clusters, and one neuron of noise per cluster: its squared radius minus ``|A y|^2``.

    Parameters
    ----------
    clusters : LinearDetection
        Squared distances from M centroids or supports, up to ``|A y|^2``.
    radius, space, shares : Tensor
        See :func:`with_noise`.

    Notes
    -----
    The contrast of a cluster and noise is a squared distance minus a squared radius. Column i gets ``delta_i (A'A
    delta)_i`` of the distance, with ``delta = y - u`` for the centroid u, and its share of the radius.
    The contrasts of two clusters are those of the clusters' neurons.
    """

    clusters: LinearDetection
    radius: Tensor
    space: Tensor
    shares: Tensor
    by_contrast = True

    def __init__(self, clusters: LinearDetection, **parts: Tensor) -> None:
        super().__init__(**parts)
        self.clusters = clusters

    @property
    def of_clusters(self) -> LinearDetection:
        """The layer without the neurons of noise."""
        return self.clusters

    @property
    def n_features(self) -> int:
        """Number of raw columns d."""
        return self.clusters.n_features

    @property
    def n_neurons(self) -> int:
        """Number of neurons, M + K."""
        return self.clusters.n_neurons + len(self.radius)

    @property
    def references(self) -> Tensor:
        """The centroids, and points beyond the greatest radius away from their mean, in raw columns."""
        centroids = self.clusters.references
        outward = normalize(mapped(self.space, centroids - centroids.mean(0)))
        if self.space.ndim == 1:
            raw = outward / self.space
        else:
            raw = outward @ torch.linalg.pinv(self.space).T
        distance = OUTSIDE * self.radius.amax().clamp(min=0).sqrt()
        return torch.cat([centroids, centroids + distance * raw])

    def spreads(self) -> Tensor:
        """Estimate the spread [d] of the columns by that of the centroids."""
        return self.clusters.spreads()

    def check(self, x: Tensor, names: Sequence[str] | None = None) -> None:
        """Raise a ValueError if the neurons of points [N, d] overflow the dtype of the points."""
        self.clusters.check(x, names)

    def located(self, x: Tensor | SparseRows) -> Any:
        """Compute the coordinates of points; see :meth:`Detection.located`."""
        return self.clusters.located(x)

    def neurons(self, at: Located) -> Tensor:
        """Compute neurons [N, M + K]; see :meth:`Detection.neurons`."""
        distances = self.clusters.neurons(at)
        with full_precision(distances):
            y, _ = self.clusters.coordinates_at(at)
            common = mapped(self.space.to(y), y).square().sum(dim=1, keepdim=True)  # |A y|^2
            return torch.cat([distances, self.radius.to(y) - common], dim=1)

    def relevance(self, at: Located, weights: Tensor, target: Tensor | None = None) -> Tensor:
        """Compute the relevance [N, d] of a weighted sum; see :meth:`Detection.relevance`."""
        assert target is not None
        of_clusters, of_noise = self._split(weights)
        target_clusters, target_noise = self._split(target)

        # The weights [N, M] of squared distances, which are in contrasts with noise: those of all clusters where
        # noise is explained, and otherwise minus that of noise for the target, which is 0 where noise is explained
        explains_noise = target_noise.sum(dim=1, keepdim=True)
        squared = explains_noise * of_clusters
        squared = squared - of_noise.sum(dim=1, keepdim=True) * target_clusters
        with full_precision(weights):
            y, _ = self.clusters.coordinates_at(at)
            distances = self._distance_shares(y, squared)
            radius = (of_noise @ self.radius.to(y))[:, None] * self.shares.to(y)
            between_clusters = self.clusters.relevance(at, of_clusters - squared, target_clusters)
            return between_clusters + distances + radius

    def _distance_shares(self, y: Tensor, squared: Tensor) -> Tensor:
        """Divide squared distances, weighted by `squared` [N, M], among the columns [N, d].

        With ``u = 2 A_m`` for the anchor of a centroid and ``A'A u = D_m / 2``, its squared distance from y is
        divided as ``(y - u) (A'A y - D_m / 2)``, here written as ``(y - u) A'A y - y D_m / 2 + A_m D_m``.
        """
        directions = self.clusters.directions.to(y)
        anchors = self.clusters.anchors.to(y)
        centroids = 2 * (squared @ anchors)
        slopes = squared @ directions / 2
        shares = (squared.sum(dim=1, keepdim=True) * y - centroids) * self._gram(y) - y * slopes
        return shares + squared @ (anchors * directions)

    def multiplier(self, at: Located, weights: Tensor) -> Tensor:
        """Compute the gradient [N, d] of a weighted sum, with the row norm held constant."""
        of_clusters, of_noise = self._split(weights)
        with full_precision(weights):
            y, norm = self.clusters.coordinates_at(at)
            # the gradient 2 A'A y of |A y|^2, which is in every noise neuron
            slope = self._gram(y) * (2 * of_noise.sum(dim=1, keepdim=True))
            return self.clusters.multiplier(at, of_clusters) - slope / norm

    def among_parts(self, at: Located, parts: Tensor, weights: Tensor) -> Tensor:
        """Compute the contributions [N, P] of parts: the common term is a mean of products with the parts."""
        of_clusters, of_noise = self._split(weights)
        y, _ = self.clusters.coordinates_at(at)
        part_coordinates, _ = self.clusters.coordinates(parts)
        radius = of_noise @ self.radius.to(y)
        common = self._gram(y) @ part_coordinates.to(y).T
        noise = radius[:, None] - of_noise.sum(dim=1, keepdim=True) * common
        return self.clusters.among_parts(at, parts, of_clusters) + noise

    def _split(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Split weights [N, M + K] into those of clusters [N, M] and of noise [N, K]."""
        of_clusters, of_noise = weights.split([self.clusters.n_neurons, len(self.radius)], dim=1)
        return of_clusters, of_noise

    def _gram(self, y: Tensor) -> Tensor:
        """Compute ``A'A y`` [N, d]."""
        space = self.space.to(y)
        if space.ndim == 1:
            return y * space.square()
        return pulled_back(space, mapped(space, y))


@storable
class NearestRadius(Grouping):
    """The values of K clusters, and that of noise: the neuron of noise of the nearest cluster.

    Parameters
    ----------
    clusters : Minimum or None
        The grouping of the clusters' neurons; None: every neuron is a cluster.
    groups : Tensor [M] of int64
        The cluster of each of these neurons.
    k : int
        Number of clusters.
    """

    PLAIN = ("k",)
    k: int
    groups: Tensor
    clusters: Minimum | None

    def __init__(self, clusters: Minimum | None, groups: Tensor, k: int) -> None:
        super().__init__(k=k, groups=torch.cat([groups, groups.new_full((k,), k)]))
        self.register_module("clusters", clusters)

    @property
    def n_groups(self) -> int:  # type: ignore[override]
        """Number of values, K + 1."""
        return self.k + 1

    @property
    def mixes(self) -> bool:
        """True: the value of noise depends on which cluster is the nearest."""
        return True

    def forward(self, neurons: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the values [N, K + 1], and the neurons' shares [N, M + K] in them."""
        distances = neurons[:, : -self.k]
        noise = neurons[:, -self.k :]
        if self.clusters is None:
            values = distances
            cluster_shares = torch.ones_like(distances)
        else:
            values, cluster_shares = self.clusters(distances)
        nearest = values.argmin(dim=1, keepdim=True)
        values = torch.cat([values, noise.gather(1, nearest)], dim=1)
        noise_shares = torch.zeros_like(noise).scatter(1, nearest, 1.0)
        return values, torch.cat([cluster_shares, noise_shares], dim=1)


@storable
class Noise(Stage):
    """How files of version 4 hold noise, beside the head.

    Parameters
    ----------
    radius, space : Tensor
        See :func:`with_noise`.
    """

    radius: Tensor
    space: Tensor

    def beside(self, head: Head) -> Head:
        """Return a head with this noise."""
        space = self.space.double()
        no_shift = torch.zeros(len(space)).double()
        preprocessing = Preprocessing.identity(space.shape[-1]).then(space, no_shift)
        return with_noise(head, self.radius, self.space, preprocessing.equal_shares())
