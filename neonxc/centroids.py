"""Neurons of centroids: squared distances behind a preprocessing, linear in the raw columns."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from neonxc.detection import LinearDetection
from neonxc.preprocessing import Preprocessing


def centroids(
    centers: Tensor, preprocessing: Preprocessing | None = None, factor: float = 1.0, offsets: Tensor | float = 0.0
) -> LinearDetection:
    """Neurons of centroids: their squared distances to a point, up to a term that all of them share.

    Behind a preprocessing the distances are those in the space of the centroids, and yet linear in the raw
    columns: ``|M|^2 - 2 M'(A y) = D (anchor - y)`` with ``D = 2 A'M`` and the anchor half the preimage of M.

    Parameters
    ----------
    centers : Tensor [M, p]
        In the space that the clusterer saw.
    preprocessing : Preprocessing, optional
        From the raw columns to that space.
    factor, offsets : float, and float or Tensor [M]
        What the distances are multiplied by, and what is added to them then; no column has a share of the latter.
    """
    preprocessing = preprocessing or Preprocessing.identity(centers.shape[1], centers.device)
    centers = centers.double() - preprocessing.offset
    mean = centers.mean(dim=0)
    directions = factor * 2 * preprocessing.pullback(centers - mean)
    anchors = preprocessing.preimage(centers - mean) / 2
    return LinearDetection(
        directions, anchors, (directions * anchors).sum(1) + offsets, frame(preprocessing, mean)
    )


def frame(preprocessing: Preprocessing, z: Tensor) -> dict[str, Any]:
    """Coordinates of a :class:`LinearDetection` behind a preprocessing, zero where that maps to `z` [p]."""
    norm = preprocessing.norm
    # without a norm only root + origin counts, and a map that repeats columns need not reach zero
    zero = z if norm is None else torch.zeros_like(z)
    return {
        "root": preprocessing.point(zero),
        "origin": preprocessing.preimage((z - zero)[None])[0],
        "diagonal": preprocessing.diagonal,
        "norm": None if norm is None else norm.kind,
        "norm_weight": None if norm is None else norm.weight,
        "norm_bias": None if norm is None else norm.bias,
    }
