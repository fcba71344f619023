"""Clusters as unions of pieces: regions where certain linear or curved functions are not negative."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Pieces:
    """P pieces of the input space, bounded by values ``a_1 ... a_M``: a head's neurons, or the values of clusters.

    A point is in piece p if ``signs_pm a_m >= 0`` for all m with a sign; with `own`, if ``a_m - a_own >= 0``. If
    the values are linear in the raw columns, the pieces are polyhedra.

    Attributes
    ----------
    cluster : Tensor [P] of int64
        Column of the cluster that each piece belongs to.
    signs : Tensor [P, M]
        1 or -1, or 0 for values that do not bound the piece.
    own : Tensor [P] of int64, or None
        The value that the others are compared with; their signs are then 1.
    """

    cluster: Tensor
    signs: Tensor
    own: Tensor | None = None

    @classmethod
    def of_least(cls, groups: Tensor) -> Pieces:
        """Return one piece per value, where it is the least of all, for values that belong to `groups` [M]."""
        own = torch.arange(len(groups), device=groups.device)
        return cls(groups, (groups != groups[:, None]).to(torch.int8), own)

    def contrasts(self, values: Tensor, piece: Tensor) -> Tensor:
        """Compute the functions [n, M] that bound one piece [n] per point; infinite for values that do not."""
        signs = self.signs[piece].to(values)
        found = signs * values if self.own is None else values - values.gather(1, self.own[piece][:, None])
        return torch.where(signs == 0, torch.inf, found)

    def slopes(self, slopes: Tensor, piece: Tensor) -> Tensor:
        """Compute the gradients [n, M, d] of the contrasts from those of the values, [M, d]."""
        signs = self.signs[piece].to(slopes)[:, :, None]
        return signs * (slopes if self.own is None else slopes - slopes[self.own[piece]][:, None])
