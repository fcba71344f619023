"""A detection layer of density clusterings: the nearest core point of every cluster, and noise as a competitor."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.neighbors import NearestNeighbors
from torch import Tensor
from torch.nn.functional import normalize

from neonxc.common.registry import storable
from neonxc.data.inputs import check_range, compute_dtype
from neonxc.data.sparse import SparseRows, dense
from neonxc.head.detection import Framed, Preprocessing, full_precision, mapped
from neonxc.head.head import Head

BEYOND = 1.001
"""Distance of points outside, as a multiple of the radius."""
DENSE = 1 << 21
"""Number of distances that are computed at once, without a search."""
FEW = 15
"""Number of columns up to which scikit-learn searches in a k-d tree."""


class NearestCore(NamedTuple):
    """The nearest core points of K clusters to N points."""

    difference: Tensor  # [N, K, p], in the space of the clusterer
    y: Tensor  # [N, d], the coordinates
    norm: Tensor | float  # [N, 1]
    core: Tensor  # [N, K, p]
    dtype: torch.dtype  # of the results; the above are in float64, as the clusterer's distances are


@storable
class NearestDetection(Framed):
    """Squared distances to the nearest core point of each of K clusters, and the squared radius of noise.

    DBSCAN assigns a point to the cluster of the nearest core point within its radius, and calls it noise if there
    is none: the least of these K + 1 values wins.

    Parameters
    ----------
    points : Tensor [M, p]
        Core points in the space of the clusterer, relative to where the coordinates are zero. That is its origin,
        so that differences are rounded as the clusterer rounds them.
    groups : Tensor [M] of int64
        Cluster of each, in ascending order.
    weight : Tensor [d] or [p, d]
        Map from the coordinates to that space.
    back : Tensor [d] or [d, p]
        Map from that space to the coordinates.
    shares : Tensor [d]
        The columns' shares of the squared radius; they sum to it.
    reach : Tensor []
        The greatest squared distance from a core point at which a point is in its cluster: the squared radius, or
        a little more where a preprocessing rounds. Files of earlier versions lack it.
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
            y, norm = self.coordinates(dense(x).double())
            z = mapped(self.weight.to(y), y)
            core = self.points[self._rows(z.detach())].to(z)
            return NearestCore(z[:, None] - core, y, norm, core, compute_dtype(x.dtype))

    def neurons(self, at: NearestCore) -> Tensor:
        """Compute neurons [N, K + 1]; see :meth:`Detection.neurons`.

        A point at the radius is in the cluster, so that the neuron of noise is the next number above the squared
        radius, and neurons of clusters out of reach are above that.
        """
        exact = at.difference.square().cumsum(dim=2)[:, :, -1]  # in the order in which a k-d tree adds squares
        reach: Tensor = getattr(self, "reach", self.shares.sum()).to(exact)
        squared = exact.to(at.dtype)
        noise = torch.nextafter(reach.to(at.dtype), squared.new_tensor(torch.inf))
        beyond = torch.nextafter(noise, squared.new_tensor(torch.inf))
        squared = torch.where(exact > reach, squared.clamp(min=beyond), squared)
        return torch.cat([squared, noise.expand(len(squared), 1)], dim=1)

    def relevance(self, at: NearestCore, weights: Tensor, own: Tensor | None = None) -> Tensor:
        """Compute the relevance [N, d] of a weighted sum; see :meth:`Detection.relevance`."""
        with full_precision(weights):
            difference, y = at.difference, at.y
            if self.diagonal:
                terms = difference.square()
            else:
                terms = (y[:, None] - mapped(self.back.to(y), at.core)) * self._pulled(difference)
            of_clusters = torch.einsum("nk,nkd->nd", weights[:, :-1].to(y), terms)
            return (of_clusters + weights[:, -1:] * self.shares.to(y)).to(at.dtype)

    def multiplier(self, at: NearestCore, weights: Tensor) -> Tensor:
        """Compute the gradient [N, d] of a weighted sum, with the row norm held constant."""
        with full_precision(weights):
            slope = torch.einsum("nk,nkd->nd", weights[:, :-1].to(at.y), self._pulled(at.difference))
            return (2 * slope / at.norm).to(at.dtype)

    def _pulled(self, delta: Tensor) -> Tensor:
        """Map differences [N, K, p] to directions of the coordinates [N, K, d]."""
        weight = self.weight.to(delta)
        return delta * weight if weight.ndim == 1 else delta @ weight

    def _rows(self, z: Tensor) -> Tensor:
        """Numbers [N, K] of the core points of every cluster that are nearest to points [N, p] of float64."""
        if len(z) * len(self.points) <= DENSE:
            far = _distances(z, self.points.double())
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


def _distances(z: Tensor, points: Tensor) -> Tensor:
    """Distances [N, M]; of few columns squared ones, added up as by a k-d tree, for ties at the radius."""
    if z.shape[1] > FEW:
        return torch.cdist(z, points, compute_mode="donot_use_mm_for_euclid_dist")
    far = z.new_zeros(len(z), len(points))
    for ours, theirs in zip(z.T, points.T, strict=True):
        far += (ours[:, None] - theirs).square_()
    return far


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
    points, weight = points.double()[order] - preprocessing.offset, preprocessing.weight
    back = (
        1 / weight if preprocessing.diagonal else preprocessing.preimage(torch.eye(points.shape[1]).to(points)).T
    )
    frame = preprocessing.frame(torch.zeros_like(points[0]))
    values = {
        "points": points,
        "groups": groups,
        "weight": weight,
        "back": back,
        "shares": preprocessing.equal_shares() * radius**2,
        "reach": (radius + _rounding(points, weight, back, frame)) ** 2,
    }
    return Head(NearestDetection(**values, **frame))


def _rounding(points: Tensor, weight: Tensor, back: Tensor, frame: dict[str, Any]) -> Tensor:
    """Bound the rounding of distances in the space of the clusterer, in which two points are rounded, twice each.

    There is none if nothing was done to the columns.
    """
    shift = frame["root"].abs()
    if weight.ndim == 1 and not shift.any() and bool((weight == 1).all()):
        return points.new_zeros(())
    terms = mapped(weight.abs(), mapped(back, points).abs().amax(dim=0) + shift)  # what a coordinate is the sum of
    summands = 1 if weight.ndim == 1 else weight.shape[1]
    return 4 * torch.finfo(points.dtype).eps * summands * terms.norm()
