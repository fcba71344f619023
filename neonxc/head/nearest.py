"""The detection layer of DBSCAN and HDBSCAN: clusters with a radius, and noise as a competitor of its own.

Every cluster k has members u, rows of the fit (for DBSCAN its core points), and a radius eps_k. A point x is
compared with the clusters by three quantities::

    core distance        core(x) = distance from x to the q-th nearest row, itself counted; 0 for q = 1
    mutual reachability  m_k(x)  = min over the members u of cluster k of max(core(x), core(u), |x - u|)
    excess               t_k(x)  = m_k(x)^2 - eps_k^2          (cluster k accepts x if t_k(x) <= 0)

With the distance d_k(x) from the nearest member, let a be the nearest cluster that accepts x. Then the values that
compete, of which the least wins, are::

                         some cluster a accepts x         no cluster accepts x
    value of cluster k   max(d_k^2 - d_a^2, t_k)          t_k
    value of noise       -t_a                             0
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

from neonxc.common.registry import storable
from neonxc.data.sparse import SparseRows
from neonxc.head.detection import full_precision
from neonxc.head.head import Head
from neonxc.head.members import MemberDetection, QueryPoints
from neonxc.head.preprocessing import Preprocessing

SHARING = 4
"""Least number of members by whose differences ``m_k^2`` is divided among the columns. Of rows that one column
took out of a cluster of DBSCAN, this column gets the most relevance in 93%, and in 89% with the nearest member
alone; more than four are hardly better (`python -m tests.benchmarks.density`)."""
OUTSIDE = 1.001
"""Distance of points outside a cluster, as a multiple of its radius."""
COPY_TOLERANCE = 16
"""Largest distance between a row and its copy, in units of the rounding error of a coordinate."""


class Reachability(NamedTuple):
    """How N query points are reached from K clusters; differences are those in the space of the clusterer.

    The squared mutual reachability is |x - u|^2, core(x)^2 or core(u)^2, whichever is largest. `reach_difference`
    is what its gradient needs: x - u, or x minus the row at its core distance, or 0, as core(u) does not depend on
    x.
    """

    query: QueryPoints
    neighbors: Tensor  # [N, K, q], the q nearest members of every cluster
    is_neighbor: Tensor | None  # [N, K, q], False where a cluster has fewer than q members; None for q = 1
    nearest_difference: Tensor  # [N, K, p], to the nearest member
    squared_distance: Tensor  # [N, K], d_k^2
    reach_difference: Tensor  # [N, K, p]
    squared_reachability: Tensor  # [N, K], m_k^2


class Decision(NamedTuple):
    """By what the clusters compete for N points."""

    excess: Tensor  # [N, K], t_k; the cluster accepts the point if it is not positive
    by_distance: Tensor  # [N, K] of bool: the value is d_k^2 - d_a^2; otherwise it is t_k
    winner: Tensor  # [N, K], 1 for the nearest cluster a that accepts the point; all 0 for noise


@storable
class NearestDetection(MemberDetection):
    """Values of K clusters within radii of their members, and of noise; the least of these K + 1 values wins.

    A point belongs to the cluster of the nearest member among the clusters that accept it, and is noise if none
    does. A cluster accepts a point if its mutual reachability distance ``m_k(x)`` is at most the radius ``eps_k``.
    This is the rule of HDBSCAN (Campello, Moulavi and Sander, 2013). For q = 1 all core distances are 0, and with
    core points as members and equal radii it is the rule of DBSCAN.

    Parameters
    ----------
    points, groups, weight, back
        See :class:`~neonxc.head.members.MemberDetection`. With q > 1, rows that are noise form the last group.
    shares : Tensor [d]
        The columns' shares of a squared radius, up to a factor.
    reach : Tensor [K]
        The greatest squared mutual reachability distance at which a cluster accepts a point: the squared radius,
        or a little more where a preprocessing rounds. In files of earlier versions one number, or missing.
    core : Tensor [M]
        The core distance of every row, if q > 1.
    rank : int
        The number q of rows, itself included, within the core distance of a row.
    **frame
        The coordinates; see :class:`~neonxc.head.detection.CoordinateDetection`.

    Notes
    -----
    The module's docstring defines the values. Relevance divides each of their terms among the columns: a squared
    distance as :class:`~neonxc.head.members.MemberDetection` does, ``m_k^2`` in proportion to the sum of the
    squared differences to the nearest members, q or at least 4 of them, and ``eps_k^2`` equally.
    """

    FORMER = ("noise",)
    shares: Tensor
    reach: Tensor
    core: Tensor

    @property
    def n_clusters(self) -> int:
        """Number of clusters, without noise."""
        return len(self.radii)

    @property
    def n_neurons(self) -> int:
        """Number of clusters, plus one for noise."""
        return self.n_clusters + 1

    @property
    def radii(self) -> Tensor:
        """The squared radii [K]."""
        # files of earlier versions have one number for all clusters, or none
        reach = self.reach if "reach" in self._buffers else self.shares.sum()
        if reach.ndim:
            return reach
        return reach.expand(len(self.sizes))

    @property
    def references(self) -> Tensor:
        """Rows, and for every member a point just outside of its cluster's radius, in raw columns."""
        sizes = torch.tensor(self.sizes, device=self.device)
        sums = torch.zeros_like(self.points[: len(sizes)]).index_add(0, self.groups, self.points)
        means = sums / sizes[:, None]

        is_member = self.groups < self.n_clusters
        members = self.points[is_member]
        clusters = self.groups[is_member]
        outward = normalize(members - means[clusters])
        outside = members + OUTSIDE * self.radii[clusters, None].sqrt() * outward
        return self.unmapped(torch.cat([self.points, outside]))

    def located(self, x: Tensor | SparseRows) -> Reachability:
        """Find the members from which points are reached; see :meth:`Detection.located`."""
        with full_precision(x):
            query = self.query(x)
            z = query.z.detach()
            distances, rows = self.nearest(z, self.rank)
            member_distances = distances[:, : self.n_clusters]
            members = rows[:, : self.n_clusters]
            nearest = self.differences(query.z, members[:, :, 0])
            squared_distance = _squared_norm(nearest)
            if self.rank == 1:  # core distances are 0: the reachability is the distance
                return Reachability(query, members, None, nearest, squared_distance, nearest, squared_distance)

            core_distance, core_row = self._core_distance(query, distances, rows)
            member = self._reaching_member(z, member_distances, members, core_distance)
            # m_k^2 is the largest of core(x)^2, |x - u|^2 and core(u)^2, the last of which is constant in x
            to_core_row = self.differences(query.z, core_row).expand_as(nearest)
            to_member = self.differences(query.z, member)
            member_core = self.core[member].to(squared_distance)
            squared = [_squared_norm(to_core_row), _squared_norm(to_member), member_core.square()]
            squared_reachability, term = torch.stack(squared, dim=2).max(dim=2)
            differences = torch.stack([to_core_row, to_member, torch.zeros_like(nearest)])
            term = term[None, :, :, None].expand(1, *nearest.shape)
            return Reachability(
                query,
                members,
                member_distances.isfinite(),
                nearest,
                squared_distance,
                differences.gather(0, term)[0],
                squared_reachability,
            )

    def neurons(self, at: Reachability) -> Tensor:
        """Compute neurons [N, K + 1]; see :meth:`Detection.neurons`."""
        dtype = at.query.dtype
        excess, by_distance, winner = self._decision(at)
        to_winner = _selected(at.squared_distance, winner)
        clusters = torch.where(by_distance, at.squared_distance - to_winner, excess).to(dtype)
        noise = -_selected(excess, winner).to(dtype)

        # A point at the radius belongs to the cluster: noise, and clusters that do not accept the point, must not
        # tie with the winner, whose value is 0, also after rounding to float32.
        tiny = torch.finfo(dtype).tiny
        accepted = winner.any(dim=1, keepdim=True)
        clusters = clusters.clamp(min=tiny).where(excess > 0, clusters)
        noise = noise.clamp(min=tiny).where(accepted, 0.0)
        return torch.cat([clusters, noise], dim=1)

    def relevance(self, at: Reachability, weights: Tensor, target: Tensor | None = None) -> Tensor:
        """Compute the relevance [N, d] of a weighted sum; see :meth:`Detection.relevance`."""
        with full_precision(weights):
            distance_weight, excess_weight = self._term_weights(at, weights)
            squares = self.squares(at.query, at.neighbors[:, :, 0])
            relevance = torch.einsum("nk,nkd->nd", distance_weight, squares)
            reachability = self._reachability_shares(at)
            relevance = relevance + torch.einsum("nk,nkd->nd", excess_weight, reachability)
            radius = (excess_weight @ self.radii.to(relevance))[:, None]
            shares = (self.shares / self.shares.sum()).to(relevance)
            return (relevance - radius * shares).to(at.query.dtype)

    def multiplier(self, at: Reachability, weights: Tensor) -> Tensor:
        """Compute the gradient [N, d] of a weighted sum, with the row norm held constant."""
        with full_precision(weights):
            distance_weight, excess_weight = self._term_weights(at, weights)
            # half the gradients of d_k^2 and m_k^2
            of_distance = self.pulled(at.nearest_difference)
            of_excess = self.pulled(at.reach_difference)
            gradient = torch.einsum("nk,nkd->nd", distance_weight, of_distance)
            gradient = gradient + torch.einsum("nk,nkd->nd", excess_weight, of_excess)
            return (2 * gradient / at.query.norm).to(at.query.dtype)

    def reachability(self, z: Tensor, core_distance: Tensor) -> Tensor:
        """Compute the mutual reachability distances m_k [N, K] of points with core distances [N, 1]."""
        distances, rows = self.nearest(z, self.rank)
        member = self._reaching_member(z, distances, rows, core_distance)
        distance = _squared_norm(self.differences(z, member)).sqrt()
        return torch.maximum(core_distance, torch.maximum(self.core[member], distance))

    def _decision(self, at: Reachability) -> Decision:
        """Find the cluster that accepts a point, and by what the others compete with it."""
        excess = at.squared_reachability - self.radii.to(at.squared_distance)
        accepts = excess <= 0
        accepted_distance = at.squared_distance.detach().masked_fill(~accepts, torch.inf)
        least, nearest = accepted_distance.min(dim=1, keepdim=True)  # d_a^2 and a; infinite for noise
        winner = torch.zeros_like(excess).scatter(1, nearest, 1.0) * accepts
        # The value is max(d_k^2 - d_a^2, t_k); if the cluster accepts the point, t_k <= 0 is the smaller one.
        by_distance = least.isfinite() & (accepts | (at.squared_distance - least >= excess))
        return Decision(excess, by_distance, winner)

    def _term_weights(self, at: Reachability, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Write a weighted sum of the neurons as one of d_k^2 and of t_k; the weights [N, K] of both."""
        _, by_distance, winner = self._decision(at)
        clusters = weights[:, :-1].to(winner)
        noise = weights[:, -1:].to(winner)
        # w_k (d_k^2 - d_a^2), so that d_a^2 gets minus the sum of the weights
        distance_weight = clusters * by_distance
        distance_weight = distance_weight - winner * distance_weight.sum(dim=1, keepdim=True)
        # w_k t_k, and -w t_a for noise
        excess_weight = clusters * ~by_distance - winner * noise
        return distance_weight, excess_weight

    def _reachability_shares(self, at: Reachability) -> Tensor:
        """Divide m_k^2 among the columns [N, K, d], in proportion to the differences to the nearest members."""
        neighbors, is_neighbor = self._sharing_members(at)
        total = at.query.y.new_zeros(*neighbors.shape[:2], self.n_features)
        for exists, rows in zip(is_neighbor.unbind(dim=2), neighbors.unbind(dim=2), strict=True):
            total += self.squares(at.query, rows) * exists[:, :, None]
        sums = total.sum(dim=2, keepdim=True)
        equal = torch.full_like(total, 1 / total.shape[2])  # all neighbors are copies of the point
        return at.squared_reachability[:, :, None] * torch.where(sums > 0, total / sums, equal)

    def _sharing_members(self, at: Reachability) -> tuple[Tensor, Tensor]:
        """Find the members [N, K, m] that divide m_k^2, and whether they exist: the q nearest, or at least 4."""
        if at.is_neighbor is not None and self.rank >= SHARING:
            return at.neighbors, at.is_neighbor
        distances, rows = self.nearest(at.query.z.detach(), SHARING)
        return rows[:, : self.n_clusters], distances[:, : self.n_clusters].isfinite()

    def _core_distance(self, query: QueryPoints, distances: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Find the core distances [N, 1] of points, and the rows [N, 1] at that distance.

        A point counts itself as the first of its q neighbors. A new point has q - 1 rows besides itself; a copy of
        a row is that row, and has q rows.
        """
        n_neighbors = min(self.rank, len(self.points))
        distances, order = distances.flatten(1).topk(n_neighbors, dim=1, largest=False)
        rows = rows.flatten(1).gather(1, order)

        tolerance = COPY_TOLERANCE * torch.finfo(query.dtype).eps * self.precision
        to_nearest = self.differences(query.z.detach(), rows[:, :1])
        is_copy = _squared_norm(to_nearest) <= tolerance**2
        last = self.rank - 2 + is_copy.long()
        last = last.clamp(max=n_neighbors - 1)
        return distances.gather(1, last), rows.gather(1, last)

    def _reaching_member(self, z: Tensor, distances: Tensor, members: Tensor, core_distance: Tensor) -> Tensor:
        """Find the member u [N, K] of every cluster that minimizes max(core(u), |x - u|).

        It is searched among the nearest `members` [N, K, m] at `distances` [N, K, m]; among twice as many if one
        that is farther away may be better.
        """
        candidates = torch.maximum(distances, self.core[members].to(distances))
        least, position = candidates.min(dim=2)
        best = members.gather(2, position[:, :, None])[:, :, 0]

        # A farther member has |x - u| >= distances[..., -1]. It matters only if the minimum exceeds core(x), too.
        may_improve = (least > distances[:, :, -1]) & (least > core_distance)
        unsure = may_improve.any(dim=1)
        if unsure.any():
            distances, members = self.nearest(z[unsure], 2 * distances.shape[2])
            distances = distances[:, : self.n_clusters]
            members = members[:, : self.n_clusters]
            best[unsure] = self._reaching_member(z[unsure], distances, members, core_distance[unsure])
        return best


def _squared_norm(differences: Tensor) -> Tensor:
    """Squared norms [N, K], added up in the order of a k-d tree: points at exactly the radius are within it."""
    return differences.square().cumsum(dim=2)[:, :, -1]


def _selected(values: Tensor, winner: Tensor) -> Tensor:
    """The value [N, 1] of the winner; 0 for noise."""
    return (values * winner).sum(dim=1, keepdim=True)


def density_head(
    points: Tensor,
    groups: Tensor,
    radius: float | Tensor,
    preprocessing: Preprocessing | None = None,
    core: Tensor | None = None,
    rank: int = 1,
) -> Head:
    """Make a head that assigns points to the nearest cluster within whose radius they are, or to noise, its last.

    The squared radius belongs to no column by itself. It is divided equally among the dimensions of the
    clusterer's space, and each of these among the raw columns as differences in all directions alike would be.

    Parameters
    ----------
    points : Tensor [M, p]
        Members of clusters (for DBSCAN, the core points), and for HDBSCAN the rows that are noise.
    groups : Tensor [M] of int64
        Column of the cluster that each belongs to; that of noise is the last one.
    radius : float or Tensor [K]
        Distances beyond which points are noise.
    preprocessing : Preprocessing, optional
        Map from the raw columns to the space of the points. Default: the identity.
    core : Tensor [M], optional
        Core distances of the points, if `rank` is greater than 1.
    rank : int
        See :class:`NearestDetection`.

    Returns
    -------
    Head
    """
    if preprocessing is None:
        preprocessing = Preprocessing.identity(points.shape[1], points.device)
    groups, order = groups.sort(stable=True)
    radii = torch.as_tensor(radius, dtype=torch.float64, device=points.device)
    if not radii.ndim:
        n_clusters = int(groups[-1]) + 1
        radii = radii.expand(n_clusters)

    buffers = {"shares": preprocessing.equal_shares(), "reach": radii}
    if rank == 1:
        detection = NearestDetection.of(points[order], groups, preprocessing, **buffers)
    else:
        assert core is not None
        buffers["core"] = core[order]
        detection = NearestDetection.of(points[order], groups, preprocessing, **buffers, rank=rank)
    # Behind a scaler or a PCA, distances are rounded: a point at exactly the radius is within it.
    rounding = 0.0 if detection.plain else 4 * torch.finfo(torch.float64).eps * detection.precision
    return Head(detection.changed(reach=(detection.reach + rounding) ** 2))
