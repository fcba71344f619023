"""Clusters as unions of pieces, in each of which some contrasts are not negative."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Pieces:
    """Unions of pieces of the space of some values ``a_1 ... a_M``, which are a head's neurons or its clusters'.

    A point is in piece p where ``signs_pm a_m`` (with `own`: ``a_m - a_own``) is not negative for all m that have
    a sign. Where the values are linear, pieces are polyhedra.

    Attributes
    ----------
    cluster : Tensor [P] of int64
        Column of the cluster that each piece is a part of.
    signs : Tensor [P, M]
        1, -1, or 0 where a value does not matter.
    own : Tensor [P] of int64, or None
        The value that the others are compared with; their signs are 1 then.
    """

    cluster: Tensor
    signs: Tensor
    own: Tensor | None = None

    def contrasts(self, values: Tensor, piece: Tensor) -> Tensor:
        """Contrasts [n, M] of values [n, M] in one piece [n] each, infinite where a value does not matter."""
        signs = self.signs.to(values)[piece]
        found = signs * values if self.own is None else values - values.gather(1, self.own[piece][:, None])
        return torch.where(signs == 0, torch.inf, found)

    def slopes(self, slopes: Tensor, piece: Tensor) -> Tensor:
        """Slopes [n, M, d] of the contrasts, from those of the values, [M, d] or [n, M, d]."""
        signs = self.signs.to(slopes)[piece][:, :, None]
        if self.own is None:
            return signs * slopes
        own = self.own[piece]
        mine = slopes[own] if slopes.ndim == 2 else slopes[torch.arange(len(own), device=own.device), own]
        return signs * (slopes - mine[:, None])
