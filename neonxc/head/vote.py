"""A detection layer of clusters behind a map: the vote of the nearest rows of every cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from neonxc.common.registry import storable
from neonxc.data.sparse import SparseRows
from neonxc.head.detection import Preprocessing, full_precision
from neonxc.head.head import Head
from neonxc.head.members import MemberDetection, QueryPoints

VOTERS = 15
"""Number of nearest rows of every cluster that vote, as many as neighbours that UMAP looks at by default."""
TINY = 1e-200


class Votes(NamedTuple):
    """The nearest rows of every cluster and their shares in its vote."""

    place: QueryPoints
    rows: Tensor  # [N, G, k]
    far: Tensor  # [N, G, k], infinite where a cluster has fewer rows
    scale: Tensor  # [N, 1, 1]


@storable
class VoteDetection(MemberDetection):
    """Votes of the nearest rows of every cluster: ``E_k = -log sum_i exp(-(d_i - rho) / sigma)``.

    The sum is over the 15 nearest rows of the cluster, in the columns before a map such as that of UMAP, whose
    neighbourhoods have the same form: rho is the distance of the nearest row of all, and sigma the mean excess
    ``d_i - rho`` of the 15 nearest rows of all.

    Notes
    -----
    With ``p = softmax(-d / sigma)`` among the rows u_i of a cluster, column j gets
    ``sum_i p_i (x_j - u_ij)^2 / (d_i sigma)``: the gradient with rho and sigma constant, times the difference to
    each row.
    """

    stand_in = "vote"

    @property
    def n_neurons(self) -> int:
        """Number of clusters."""
        return len(self.sizes)

    def located(self, x: Tensor | SparseRows) -> Votes:
        """Search the rows that vote."""
        with full_precision(x):
            place = self.placed(x)
            known, rows = self.nearest(place.z.detach(), self.rank)
            every = [self.differences(place.z, some).square().sum(dim=2) for some in rows.unbind(dim=2)]
            squared = torch.stack(every, dim=2)  # one row of every cluster at a time, for lack of memory
            tiny = torch.finfo(squared.dtype).tiny
            far = squared.clamp(min=tiny).sqrt().masked_fill(known.isinf(), torch.inf)
            near = far.detach().flatten(1).topk(min(self.rank, len(self.points)), dim=1, largest=False).values
            # all of them may be equally far, or copies of the point
            least = 1e-6 * near[:, -1] + 1e-6 * known[:, :, 0].amax(dim=1)
            scale = torch.maximum((near - near[:, :1]).mean(dim=1), least).clamp(min=tiny**0.5)
            return Votes(place, rows, far, scale[:, None, None])

    def neurons(self, at: Votes) -> Tensor:
        """Compute neurons [N, G]; see :meth:`Detection.neurons`."""
        logits = (at.far.amin(dim=(1, 2), keepdim=True) - at.far) / at.scale
        return -logits.logsumexp(dim=2).to(at.place.dtype)

    def relevance(self, at: Votes, weights: Tensor, own: Tensor | None = None) -> Tensor:
        """Compute the relevance [N, d] of a weighted sum; see :meth:`Detection.relevance`."""
        return self._weighted(at, weights, self.squares)

    def multiplier(self, at: Votes, weights: Tensor) -> Tensor:
        """Compute the gradient [N, d] of a weighted sum, with rho, sigma and the row norm held constant."""
        slope = self._weighted(at, weights, lambda place, rows: self.pulled(self.differences(place.z, rows)))
        return slope / at.place.norm

    def _weighted(self, at: Votes, weights: Tensor, terms: Callable[[QueryPoints, Tensor], Tensor]) -> Tensor:
        """Sum terms [N, G, d] of each of the rows that vote, by their shares and the clusters' weights [N, G]."""
        with full_precision(weights):
            some = weights.any(dim=0).nonzero()[:, 0]  # two clusters are compared without the others
            far = at.far[:, some]
            near = at.rows[:, some]
            shares = weights[:, some, None].to(far) * (-far / at.scale).softmax(dim=2)
            shares = shares / (far * at.scale).clamp(min=TINY)
            # a copy of the point has no difference to share, and rounding has no direction
            copies = far <= torch.finfo(at.place.dtype).eps * self.precision
            shares = shares.masked_fill(copies, 0)
            total = torch.zeros_like(at.place.y)
            for share, rows in zip(shares.unbind(dim=2), near.unbind(dim=2), strict=True):
                total += torch.einsum("ng,ngd->nd", share, terms(at.place, rows))
            return total.to(at.place.dtype)


def vote_head(points: Tensor, groups: Tensor, preprocessing: Preprocessing | None = None) -> Head:
    """Make a head that assigns points to the cluster with the greatest vote of its nearest rows.

    Parameters
    ----------
    points : Tensor [M, p]
        Rows in the columns before the map.
    groups : Tensor [M] of int64
        Column of the cluster that each belongs to.
    preprocessing : Preprocessing, optional
        Map from the raw columns to these columns. Default: the identity.

    Returns
    -------
    Head
    """
    preprocessing = preprocessing or Preprocessing.identity(points.shape[1], points.device)
    groups, order = groups.sort(stable=True)
    return Head(VoteDetection.of(points[order], groups, preprocessing, rank=VOTERS))
