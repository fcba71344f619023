"""Detection layers of centroids: squared distances after a preprocessing, as linear neurons on the raw columns."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from neonxc.head.detection import LinearDetection
from neonxc.head.preprocessing import Preprocessing


def centroids(
    centers: Tensor, preprocessing: Preprocessing | None = None, factor: float = 1.0, offsets: Tensor | float = 0.0
) -> LinearDetection:
    """Make neurons that compute the squared distances from centroids, up to a term that all centroids share.

    Without this term the distances are linear in the raw columns, even after an affine preprocessing A:
    ``|M|^2 - 2 M'(A y) = D (anchor - y)`` with ``D = 2 A'M`` and the anchor half the preimage of M.

    Parameters
    ----------
    centers : Tensor [M, p]
        Centroids in the space that the clusterer was fitted in.
    preprocessing : Preprocessing, optional
        Map from the raw columns to that space. Default: the identity.
    factor : float
        Factor of the distances.
    offsets : float or Tensor [M]
        Constants that are added to the scaled distances; they belong to no column.

    Returns
    -------
    LinearDetection
    """
    preprocessing = preprocessing or Preprocessing.identity(centers.shape[1], centers.device)
    centers = centers.double() - preprocessing.offset
    mean = centers.mean(dim=0)
    directions = factor * 2 * preprocessing.pullback(centers - mean)
    anchors = preprocessing.preimage(centers - mean) / 2
    bias = (directions * anchors).sum(1) + offsets
    return LinearDetection(directions, anchors, bias, **frame(preprocessing, mean))


def frame(preprocessing: Preprocessing, z: Tensor) -> dict[str, Any]:
    """The coordinates of a :class:`LinearDetection` that are zero where the preprocessing maps to `z` [p]."""
    # without a norm only root + origin matters; a map that repeats columns need not have a preimage of zero
    zero = z if preprocessing.norm is None else torch.zeros_like(z)
    return {
        "root": preprocessing.point(zero),
        "origin": preprocessing.preimage((z - zero)[None])[0],
        "diagonal": preprocessing.diagonal,
        "norm": preprocessing.norm,
    }
