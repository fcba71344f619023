"""A detection layer of clusters behind a map: the vote of the nearest rows of every cluster.

With the distances d_i of a point from the q nearest rows u_i of cluster k, in the columns before the map::

    nearest row       rho     = the distance of the nearest row of all
    scale             sigma   = the mean of d_i - rho over the q nearest rows of all
    value             E_k     = -log sum_i exp(-(d_i - rho) / sigma)       the least wins
    weights of rows   p_i     = softmax of -d_i / sigma over the rows of cluster k
    relevance         R_j     = sum_i p_i (x_j - u_ij)^2 / (d_i sigma)     of E_k, for column j
    multiplier        dE_k/dx = sum_i p_i A'(z - u_i) / (d_i sigma n(x))   with rho, sigma and n(x) constant

The memberships of UMAP have the same form in their neighbourhoods.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from neonxc.common.registry import storable
from neonxc.data.sparse import SparseRows
from neonxc.head.detection import full_precision
from neonxc.head.head import Head
from neonxc.head.members import MemberDetection, QueryPoints
from neonxc.head.preprocessing import Preprocessing

VOTERS = 15
"""Number of nearest rows of every cluster that vote, as many as neighbours that UMAP looks at by default."""
TINY = 1e-200
"""Lower bound of a divisor in float64, against division by zero."""


class Votes(NamedTuple):
    """The nearest rows of every cluster, which vote."""

    query: QueryPoints
    rows: Tensor  # [N, G, q]
    distances: Tensor  # [N, G, q], d_i; infinite where a cluster has fewer rows
    scale: Tensor  # [N, 1, 1], sigma


@storable
class VoteDetection(MemberDetection):
    """Votes of the nearest rows of every cluster: ``E_k = -log sum_i exp(-(d_i - rho) / sigma)``.

    The sum is over the 15 nearest rows of the cluster, in the columns before a map such as that of UMAP, whose
    neighbourhoods have the same form: rho is the distance of the nearest row of all, and sigma the mean excess
    ``d_i - rho`` of the 15 nearest rows of all.

    Notes
    -----
    The module's docstring defines relevance: the gradient of E_k with rho and sigma constant, times the difference
    to each row.
    """

    stand_in = "vote"

    @property
    def n_neurons(self) -> int:
        """Number of clusters."""
        return len(self.sizes)

    def located(self, x: Tensor | SparseRows) -> Votes:
        """Search the rows that vote."""
        with full_precision(x):
            query = self.query(x)
            known, rows = self.nearest(query.z.detach(), self.rank)
            # computed again from the rows, so that they have a gradient; one row of every cluster at a time, for
            # lack of memory
            squared_norms = [self.differences(query.z, row).square().sum(dim=2) for row in rows.unbind(dim=2)]
            squared = torch.stack(squared_norms, dim=2)
            tiny = torch.finfo(squared.dtype).tiny
            distances = squared.clamp(min=tiny).sqrt().masked_fill(known.isinf(), torch.inf)

            n_nearest = min(self.rank, len(self.points))
            nearest = distances.detach().flatten(1).topk(n_nearest, dim=1, largest=False).values
            excess = (nearest - nearest[:, :1]).mean(dim=1)
            # all of them may be equally far, or copies of the point
            minimum = 1e-6 * nearest[:, -1] + 1e-6 * known[:, :, 0].amax(dim=1)
            scale = torch.maximum(excess, minimum).clamp(min=tiny**0.5)
            return Votes(query, rows, distances, scale[:, None, None])

    def neurons(self, at: Votes) -> Tensor:
        """Compute neurons [N, G]; see :meth:`Detection.neurons`."""
        nearest = at.distances.amin(dim=(1, 2), keepdim=True)  # rho
        logits = (nearest - at.distances) / at.scale
        return -logits.logsumexp(dim=2).to(at.query.dtype)

    def relevance(self, at: Votes, weights: Tensor, target: Tensor | None = None) -> Tensor:
        """Compute the relevance [N, d] of a weighted sum; see :meth:`Detection.relevance`."""
        return self._weighted(at, weights, self.squares)

    def multiplier(self, at: Votes, weights: Tensor) -> Tensor:
        """Compute the gradient [N, d] of a weighted sum, with rho, sigma and the row norm held constant."""

        def half_gradients(query: QueryPoints, rows: Tensor) -> Tensor:
            return self.pulled(self.differences(query.z, rows))

        return self._weighted(at, weights, half_gradients) / at.query.norm

    def _weighted(self, at: Votes, weights: Tensor, terms: Callable[[QueryPoints, Tensor], Tensor]) -> Tensor:
        """Compute ``sum_k weights_k sum_i p_i terms_i / (d_i sigma)`` [N, d].

        `terms` computes [N, G, d] of one row of every cluster, [N, G].
        """
        with full_precision(weights):
            clusters = weights.any(dim=0).nonzero()[:, 0]  # two clusters are compared without the others
            distances = at.distances[:, clusters]
            rows = at.rows[:, clusters]
            row_weights = (-distances / at.scale).softmax(dim=2)  # p_i
            factors = weights[:, clusters, None].to(distances) * row_weights
            factors = factors / (distances * at.scale).clamp(min=TINY)
            # a copy of the point has no difference to share, and rounding has no direction
            is_copy = distances <= torch.finfo(at.query.dtype).eps * self.precision
            factors = factors.masked_fill(is_copy, 0)

            total = torch.zeros_like(at.query.y)
            for factor, row in zip(factors.unbind(dim=2), rows.unbind(dim=2), strict=True):
                total += torch.einsum("ng,ngd->nd", factor, terms(at.query, row))
            return total.to(at.query.dtype)


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
    if preprocessing is None:
        preprocessing = Preprocessing.identity(points.shape[1], points.device)
    groups, order = groups.sort(stable=True)
    return Head(VoteDetection.of(points[order], groups, preprocessing, rank=VOTERS))
