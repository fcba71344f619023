"""Which points of a table count, and how much."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from neonxc.inputs import NOISE, as_weights


def weights_of(sample_weight: Any, data: Any) -> Tensor | None:
    """Checked weights of the points, [n] of float64 where the points are; None for none.

    Raises
    ------
    ValueError
        Another number of weights, or some that are negative or not finite.
    """
    if sample_weight is None:
        return None
    device = data.device if isinstance(data, Tensor) else torch.device("cpu")
    return as_weights(sample_weight, data.shape[0], device)


def kept_points(labels: Any, weight: Tensor | None, data: Any) -> Tensor | None:
    """The points that count, those that are neither noise nor of weight 0; None for all of them.

    Raises
    ------
    ValueError
        Another number of labels.
    """
    counts = torch.ones(data.shape[0], dtype=torch.bool, device=data.device if isinstance(data, Tensor) else "cpu")
    if labels is not None:
        if labels.shape != (data.shape[0],):
            raise ValueError(f"labels needs one label per point, shape ({data.shape[0]},), got {labels.shape}")
        if labels.dtype.kind in "if":
            counts &= torch.from_numpy(labels != NOISE).to(counts.device)
    if weight is not None:
        counts &= weight > 0
    if bool(counts.all()):
        return None
    return counts.nonzero()[:, 0]
