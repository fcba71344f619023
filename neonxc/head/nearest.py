"""A detection layer of density clusterings: the nearest member of every cluster, and noise as a competitor."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

from neonxc.common.registry import storable
from neonxc.data.sparse import SparseRows
from neonxc.head.detection import Preprocessing, full_precision
from neonxc.head.head import Head
from neonxc.head.members import Members, Place

BEYOND = 1.001
"""Distance of points outside, as a multiple of the radius."""
SAME = 16
"""Number of roundings by which a copy of a row may differ from it."""


class Reached(NamedTuple):
    """How N points are reached from the members of K clusters."""

    place: Place
    rows: Tensor  # [N, K, q], the nearest members
    known: Tensor | None  # [N, K, q], False where a cluster has less members; None if q = 1
    nearest: Tensor  # [N, K, p], differences to the nearest member
    distance: Tensor  # [N, K], their squared lengths
    farthest: Tensor  # [N, K, p], differences of which the reachability is the length; zero where it is constant
    reachability: Tensor  # [N, K], the least squared mutual reachability distance from a member


@storable
class NearestDetection(Members):
    """Values of K clusters within radii of their members, and of noise; the least of these K + 1 values wins.

    A cluster accepts a point within its radius: if the least mutual reachability distance from a member,
    ``m_k(x) = min_{u in k} max(core(x), core(u), |x - u|)``, is at most ``eps_k``. A point belongs to the cluster
    of the nearest member among those that accept it, and is noise if none does. This is the rule of HDBSCAN
    (Campello, Moulavi and Sander, 2013), for which ``core(x)`` is the distance from the q-th nearest row, itself
    counted. It is that of DBSCAN too, for which q = 1, members are core points, and all radii are equal.

    Parameters
    ----------
    points, groups, weight, back
        See :class:`~neonxc.head.members.Members`. With q > 1, rows that are noise form the last group.
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
        The coordinates; see :class:`~neonxc.head.detection.Framed`.

    Notes
    -----
    With ``t_k = m_k^2 - eps_k^2``, the distance d_k from the nearest member and the nearest cluster a that accepts
    the point, the value of cluster k is ``d_k^2 - d_a^2``, and at least t_k, and that of noise is ``-t_a``. If no
    cluster accepts the point, the value of k is t_k, and that of noise is 0. A squared distance is shared as
    :class:`~neonxc.head.members.Members` says, m_k^2 as the mean squared differences to the q nearest members, and
    eps_k^2 equally.
    """

    FORMER = ("noise",)
    shares: Tensor
    reach: Tensor
    core: Tensor

    @property
    def n_neurons(self) -> int:
        """Number of clusters, plus one for noise."""
        return len(self.radii) + 1

    @property
    def radii(self) -> Tensor:
        """The squared radii [K]."""
        reach = self.reach if "reach" in self._buffers else self.shares.sum()
        return reach if reach.ndim else reach.expand(len(self.sizes))

    @property
    def references(self) -> Tensor:
        """The rows, and points beyond the radius away from the means of their clusters, in raw columns."""
        sizes = torch.tensor(self.sizes, device=self.device)
        means = torch.zeros_like(self.points[: len(sizes)]).index_add(0, self.groups, self.points) / sizes[:, None]
        inside = self.groups < len(self.radii)
        points, groups = self.points[inside], self.groups[inside]
        beyond = BEYOND * self.radii[groups, None].sqrt() * normalize(points - means[groups])
        return self.unmapped(torch.cat([self.points, points + beyond]))

    def located(self, x: Tensor | SparseRows) -> Reached:
        """Search the members from which points are reached."""
        with full_precision(x):
            place, k = self.placed(x), len(self.radii)
            z = place.z.detach()
            far, rows = self.nearest(z, self.rank)
            members = rows[:, :k]
            nearest = self.differences(place.z, members[:, :, 0])
            distance = _lengths(nearest)
            if self.rank == 1:
                return Reached(place, members, None, nearest, distance, nearest, distance)
            core, row = self._core(place, far, rows)
            via = self._via(z, far[:, :k], members, core)
            ways = [self.differences(place.z, row).expand_as(nearest), self.differences(place.z, via)]
            squared = [_lengths(ways[0]), _lengths(ways[1]), self.core[via].to(distance).square()]
            reachability, which = torch.stack(squared, dim=2).max(dim=2)
            ways.append(torch.zeros_like(nearest))
            farthest = torch.stack(ways).gather(0, which[None, :, :, None].expand(1, *nearest.shape))[0]
            return Reached(place, members, far[:, :k].isfinite(), nearest, distance, farthest, reachability)

    def neurons(self, at: Reached) -> Tensor:
        """Compute neurons [N, K + 1]; see :meth:`Detection.neurons`.

        A point at the radius is in the cluster, so that the neuron of noise is then the least positive number.
        """
        excess, among, own = self._decided(at)
        accepted, tiny = own.any(dim=1, keepdim=True), torch.finfo(at.place.dtype).tiny
        clusters = torch.where(among, at.distance - _sum(at.distance, own), excess).to(at.place.dtype)
        noise = -_sum(excess, own).to(at.place.dtype)
        clusters = clusters.clamp(min=tiny).where(excess > 0, clusters)
        return torch.cat([clusters, noise.clamp(min=tiny).where(accepted, 0.0)], dim=1)

    def relevance(self, at: Reached, weights: Tensor, own: Tensor | None = None) -> Tensor:
        """Compute the relevance [N, d] of a weighted sum; see :meth:`Detection.relevance`."""
        with full_precision(weights):
            of_distance, of_excess = self._weights(at, weights)
            squares = self.squares(at.place, at.rows[:, :, 0])
            found = torch.einsum("nk,nkd->nd", of_distance, squares)
            found = found + torch.einsum("nk,nkd->nd", of_excess, self._reached(at, squares))
            shares = (self.shares / self.shares.sum()).to(found)
            return (found - (of_excess @ self.radii.to(found))[:, None] * shares).to(at.place.dtype)

    def multiplier(self, at: Reached, weights: Tensor) -> Tensor:
        """Compute the gradient [N, d] of a weighted sum, with the row norm held constant."""
        with full_precision(weights):
            of_distance, of_excess = self._weights(at, weights)
            slope = torch.einsum("nk,nkd->nd", of_distance, self.pulled(at.nearest))
            slope = slope + torch.einsum("nk,nkd->nd", of_excess, self.pulled(at.farthest))
            return (2 * slope / at.place.norm).to(at.place.dtype)

    def reachability(self, z: Tensor, core: Tensor) -> Tensor:
        """Compute the least mutual reachability distances [N, K] of points with core distances [N, 1]."""
        far, rows = self.nearest(z, self.rank)
        via = self._via(z, far, rows, core)
        return torch.maximum(core, torch.maximum(self.core[via], _lengths(self.differences(z, via)).sqrt()))

    def _decided(self, at: Reached) -> tuple[Tensor, Tensor, Tensor]:
        """What a point's clusters compete by.

        Returns
        -------
        excess : Tensor [N, K]
            The squared reachability minus the squared radius; the cluster accepts the point if it is not positive.
        among : Tensor [N, K] of bool
            Whether the value of a cluster is a difference of distances, and not its excess.
        own : Tensor [N, K]
            1 for the nearest cluster that accepts the point.
        """
        excess = at.reachability - self.radii.to(at.distance)
        accepts = excess <= 0
        near, nearest = at.distance.detach().masked_fill(~accepts, torch.inf).min(dim=1, keepdim=True)
        own = torch.zeros_like(excess).scatter(1, nearest, 1.0) * accepts
        return excess, near.isfinite() & (accepts | (at.distance - near >= excess)), own

    def _weights(self, at: Reached, weights: Tensor) -> tuple[Tensor, Tensor]:
        """The weights [N, K] of squared distances and of excesses in a weighted sum of the neurons."""
        _, among, own = self._decided(at)
        clusters, noise = weights[:, :-1].to(own), weights[:, -1:].to(own)
        of_distance = clusters * among
        return of_distance - own * of_distance.sum(dim=1, keepdim=True), clusters * ~among - own * noise

    def _reached(self, at: Reached, squares: Tensor) -> Tensor:
        """The columns' shares [N, K, d] of the squared reachability; `squares` are of the nearest member."""
        if at.known is None:
            return squares
        total = torch.zeros_like(squares)
        for known, rows in zip(at.known.unbind(dim=2), at.rows.unbind(dim=2), strict=True):
            total += self.squares(at.place, rows) * known[:, :, None]
        whole = total.sum(dim=2, keepdim=True)
        equal = torch.full_like(total, 1 / total.shape[2])  # the members are copies of the point
        return at.reachability[:, :, None] * torch.where(whole > 0, total / whole, equal)

    def _core(self, at: Place, far: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The core distances [N, 1] of points, and the rows at that distance; a copy of a row is that row."""
        every, order = far.flatten(1).topk(min(self.rank, len(self.points)), dim=1, largest=False)
        rows = rows.flatten(1).gather(1, order)
        least = (SAME * torch.finfo(at.dtype).eps * self.precision) ** 2
        copies = _lengths(self.differences(at.z.detach(), rows[:, :1])) <= least
        place = (self.rank - 2 + copies.long()).clamp(max=every.shape[1] - 1)
        return every.gather(1, place), rows.gather(1, place)

    def _via(self, z: Tensor, far: Tensor, rows: Tensor, core: Tensor) -> Tensor:
        """The members [N, K] with the least mutual reachability distance, given the nearest ones [N, K, k]."""
        least, at = torch.maximum(far, self.core[rows].to(far)).min(dim=2)
        found = rows.gather(2, at[:, :, None])[:, :, 0]
        # members beyond those that are known may be nearer than the least core distance among these
        unsure = ((least > far[:, :, -1]) & (least > core)).any(dim=1)
        if unsure.any():
            k = len(self.radii)
            further, more = self.nearest(z[unsure], 2 * far.shape[2])
            found[unsure] = self._via(z[unsure], further[:, :k], more[:, :k], core[unsure])
        return found


def _lengths(differences: Tensor) -> Tensor:
    """Squared lengths [N, K], whose terms are added in the order in which a k-d tree adds them."""
    return differences.square().cumsum(dim=2)[:, :, -1]


def _sum(values: Tensor, own: Tensor) -> Tensor:
    return (values * own).sum(dim=1, keepdim=True)


def density_head(
    points: Tensor,
    groups: Tensor,
    radius: float | Tensor,
    preprocessing: Preprocessing | None = None,
    core: Tensor | None = None,
    rank: int = 1,
) -> Head:
    """Make a head that assigns points to the nearest cluster within whose radius they are, or to noise, its last.

    The squared radius belongs to no column by itself. It is shared equally among the dimensions of the clusterer's
    space, and each of these among the raw columns as differences in all directions alike would be.

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
    preprocessing = preprocessing or Preprocessing.identity(points.shape[1], points.device)
    groups, order = groups.sort(stable=True)
    radii = torch.as_tensor(radius, dtype=torch.float64, device=points.device)
    parts: dict[str, Any] = {"shares": preprocessing.equal_shares(), "reach": radii}
    if not radii.ndim:
        parts["reach"] = radii.expand(int(groups[-1]) + 1)
    if rank > 1:
        assert core is not None
        parts |= {"core": core[order], "rank": rank}
    detection = NearestDetection.of(points[order], groups, preprocessing, **parts)
    slack = 0.0 if detection.plain else 4 * torch.finfo(torch.float64).eps * detection.precision
    return Head(detection.changed(reach=(detection.reach + slack) ** 2))
