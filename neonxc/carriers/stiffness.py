"""Calibration of the take-most rule's stiffness beta: the inverse of the mean contrast over a sample of points."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from neonxc.common.processes import Ranks
from neonxc.data.distributed import common_type, without_rows

_MEANS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "harmonic": lambda contrasts, number: number / contrasts.reciprocal().sum(dim=1),
    "least": lambda contrasts, number: contrasts.amin(dim=1),
    "median": lambda contrasts, number: contrasts.masked_fill(contrasts.isinf(), torch.nan).nanquantile(
        0.5, dim=1
    ),
}
"""Means over each point's contrasts [n, L], which are infinite without a competitor, given their number [n]."""


def typical_stiffness(net: Any, X: Any, contrast: str, ranks: Ranks) -> float:
    """The inverse of the mean contrast of the points of all ranks, without noise points if there are others."""
    carrier, n, kind = net.carrier, 0, torch.float32
    sums = torch.zeros(2, 2, dtype=torch.float64)  # total and number of points, in clusters and of noise
    with ranks.agreed():
        if not isinstance(contrast, str) or contrast not in _MEANS:
            raise ValueError(f'contrast needs "harmonic", "least" or "median", got {contrast!r}')
        for x, points in () if without_rows(X, ranks) else carrier.points(X):
            n, kind = n + len(x), x.dtype
            for part in carrier.of_points(points):
                values = net.head.values(points[part]).double()
                own = net.head.competition.assign(values)
                contrasts = net.head.competition.evidence(values, own)[0].clamp(min=0)
                found = _MEANS[contrast](contrasts, contrasts.isfinite().sum(dim=1))
                noise = net.is_noise(points[part]).long()
                sums.index_add_(0, noise.cpu(), torch.stack([found, torch.ones_like(found)], 1).cpu())
    ranks.same(contrast=contrast)
    common_type(n, kind, ranks)
    inside, noise = ranks.sum(sums)
    total, number = (inside if inside[1] else noise).tolist()
    return number / total if total > 0 else math.inf
