"""A detection layer of density clusterings: the nearest core point of every cluster, and noise as a competitor."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from sklearn.neighbors import NearestNeighbors
from torch import Tensor
from torch.nn.functional import normalize

from neonxc.common.registry import storable
from neonxc.data.inputs import check_range
from neonxc.data.sparse import SparseRows
from neonxc.head.detection import Framed, Preprocessing, full_precision, mapped
from neonxc.head.head import Head

BEYOND = 1.001
"""Distance of points outside, as a multiple of the radius."""
DENSE = 1 << 21
"""Number of distances that are computed at once, without a search."""


class NearestCore(NamedTuple):
    """The nearest core points of K clusters to N points."""

    difference: Tensor  # [N, K, p], in the space of the clusterer
    y: Tensor  # [N, d], the coordinates
    norm: Tensor | float  # [N, 1]
    core: Tensor  # [N, K, p]


@storable
class NearestDetection(Framed):
    """Squared distances to the nearest core point of each of K clusters, and the squared radius of noise.

    DBSCAN assigns a point to the cluster of the nearest core point within its radius, and calls it noise if there
    is none: the least of these K + 1 values wins.

    Parameters
    ----------
    points : Tensor [M, p]
        Core points in the space of the clusterer, relative to where the coordinates are zero.
    groups : Tensor [M] of int64
        Cluster of each, in ascending order.
    weight : Tensor [d] or [p, d]
        Map from the coordinates to that space.
    back : Tensor [d] or [d, p]
        Map from that space to the coordinates.
    shares : Tensor [d]
        The columns' shares of the squared radius; they sum to it.
    **frame
        The coordinates; see :class:`~neonxc.head.detection.Framed`.

    Notes
    -----
    With ``delta = y - u`` for the nearest core point u, column i gets ``delta_i (A'A delta)_i`` of a distance,
    where A is the map to the space of the clusterer: ``(x_i - u_i)^2`` without preprocessing. The contrast of two
    clusters is then measured from the point half-way between their core points (NEON paper, Eq. 4).
    """

    PLAIN, FORMER = ("diagonal", "norm"), ("noise",)
    points: Tensor
    groups: Tensor
    weight: Tensor
    back: Tensor
    shares: Tensor

    @property
    def n_features(self) -> int:
        """Number of raw columns d."""
        return self.weight.shape[-1]

    @property
    def n_neurons(self) -> int:
        """Number of clusters, plus one for noise."""
        return int(self.groups[-1]) + 2

    @property
    def width(self) -> int:
        """The number of values computed per point: one difference per cluster and column."""
        return self.n_neurons * max(self.n_features, self.points.shape[1])

    @property
    def references(self) -> Tensor:
        """The core points, and points beyond the radius away from the means of their clusters, in raw columns."""
        sizes = torch.bincount(self.groups)
        sums = torch.zeros_like(self.points[: len(sizes)]).index_add(0, self.groups, self.points)
        way = self.points - (sums / sizes[:, None])[self.groups]
        beyond = self.points + BEYOND * self.shares.sum().sqrt() * normalize(way)
        return self.root + self.origin + mapped(self.back, torch.cat([self.points, beyond]))

    def check(self, x: Tensor, names: Sequence[str] | None = None) -> None:
        """Raise a ValueError if squared distances overflow."""
        root = (torch.finfo(x.dtype).max / (16 * self.n_features)) ** 0.5
        check_range(x, root / max(float(self.weight.abs().amax()), 1.0), names=names)

    def located(self, x: Tensor | SparseRows) -> NearestCore:
        """Compute the differences [N, K, p] to the nearest core points, and what they are computed from."""
        with full_precision(x):
            y, norm = self.coordinates(x)
            z = mapped(self.weight.to(y), y)
            core = self.points[self._rows(z.detach().double())].to(z)
            return NearestCore(z[:, None] - core, y, norm, core)

    def neurons(self, at: NearestCore) -> Tensor:
        """Compute neurons [N, K + 1]; see :meth:`Detection.neurons`."""
        squared = at.difference.square().sum(dim=2)
        return torch.cat([squared, self.shares.sum().to(squared).expand(len(squared), 1)], dim=1)

    def relevance(self, at: NearestCore, weights: Tensor, own: Tensor | None = None) -> Tensor:
        """Compute the relevance [N, d] of a weighted sum; see :meth:`Detection.relevance`."""
        with full_precision(weights):
            difference, y = at.difference, at.y
            if self.diagonal:
                terms = difference.square()
            else:
                terms = (y[:, None] - mapped(self.back.to(y), at.core)) * self._pulled(difference)
            return torch.einsum("nk,nkd->nd", weights[:, :-1], terms) + weights[:, -1:] * self.shares.to(y)

    def multiplier(self, at: NearestCore, weights: Tensor) -> Tensor:
        """Compute the gradient [N, d] of a weighted sum, with the row norm held constant."""
        with full_precision(weights):
            return 2 * torch.einsum("nk,nkd->nd", weights[:, :-1], self._pulled(at.difference)) / at.norm

    def _pulled(self, delta: Tensor) -> Tensor:
        """Map differences [N, K, p] to directions of the coordinates [N, K, d]."""
        weight = self.weight.to(delta)
        return delta * weight if weight.ndim == 1 else delta @ weight

    def _rows(self, z: Tensor) -> Tensor:
        """Numbers [N, K] of the core points of every cluster that are nearest to points [N, p] of float64."""
        if len(z) * len(self.points) <= DENSE:
            far = torch.cdist(z, self.points.double(), compute_mode="donot_use_mm_for_euclid_dist")
            sizes = torch.bincount(self.groups)
            nearest = torch.stack([part.argmin(dim=1) for part in far.split(sizes.tolist(), dim=1)], dim=1)
            return nearest + sizes.cumsum(0) - sizes
        query = z.cpu().numpy()
        rows = [first + tree.kneighbors(query, return_distance=False)[:, 0] for first, tree in self._trees]
        return torch.from_numpy(np.stack(rows, axis=1)).to(z.device)

    @cached_property
    def _trees(self) -> list[tuple[int, NearestNeighbors]]:
        """The first core point of every cluster, and the search among them: a k-d tree for few columns."""
        points, first, found = self.points.double().cpu(), 0, []
        for own in points.split(torch.bincount(self.groups).tolist()):
            found.append((first, NearestNeighbors(n_neighbors=1).fit(own.numpy())))
            first += len(own)
        return found


def density_head(
    points: Tensor, groups: Tensor, radius: float, preprocessing: Preprocessing | None = None
) -> Head:
    """Make a head that assigns points to the cluster of the nearest core point, or to noise, its last column.

    The squared radius belongs to no column by itself. It is shared equally among the dimensions of the clusterer's
    space, and each of these among the raw columns as differences in all directions alike would be.

    Parameters
    ----------
    points : Tensor [M, p]
        Core points.
    groups : Tensor [M] of int64
        Column of the cluster that each core point belongs to.
    radius : float
        Distance from the nearest core point beyond which points are noise.
    preprocessing : Preprocessing, optional
        Map from the raw columns to the space of the core points. Default: the identity.

    Returns
    -------
    Head
    """
    preprocessing = preprocessing or Preprocessing.identity(points.shape[1], points.device)
    groups, order = groups.sort(stable=True)
    points = points.double()[order] - preprocessing.offset
    mean, weight = points.mean(dim=0), preprocessing.weight
    back = 1 / weight if preprocessing.diagonal else preprocessing.preimage(torch.eye(len(mean)).to(points)).T
    shares = preprocessing.equal_shares() * radius**2
    values = {"points": points - mean, "groups": groups, "weight": weight, "back": back, "shares": shares}
    return Head(NearestDetection(**values, **preprocessing.frame(mean)))
