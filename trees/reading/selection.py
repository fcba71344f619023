"""Weights of the points, and the selection of points that are neither noise nor of weight 0."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from neonxc.data.inputs import are_labels, as_weights
from neonxc.data.table import Table


def check_sample_weight(sample_weight: Any, data: Any) -> Tensor | None:
    """Check the weights of the points; return them as [n] of float64 on the device of the points.

    Raises
    ------
    ValueError
        If the number of weights is wrong, or a weight is negative or not finite.
    """
    if sample_weight is None:
        return None
    return as_weights(sample_weight, data.shape[0], Table(data).device)


def selected_points(labels: Any, weight: Tensor | None, data: Any) -> Tensor | None:
    """Indices of the points that are neither noise nor of weight 0; None if these are all points.

    Raises
    ------
    ValueError
        If the number of labels is wrong.
    """
    selected = torch.ones(data.shape[0], dtype=torch.bool, device=Table(data).device)
    if labels is not None:
        if labels.shape != (data.shape[0],):
            raise ValueError(f"labels needs one label per point, shape ({data.shape[0]},), got {labels.shape}")
        selected &= torch.from_numpy(are_labels(labels)).to(selected.device)
    if weight is not None:
        selected &= weight > 0
    if bool(selected.all()):
        return None
    return selected.nonzero()[:, 0]
