"""Segmentation match: whether heatmaps show the segments that people see in an image."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from neonxc.inputs import check_finite


@dataclass(frozen=True)
class SegmentationMatch:
    """How well heatmaps match segments, by :func:`segmentation_match`.

    Attributes
    ----------
    score : float
        Mean of `score_per_image`, -1 ... 1.
    score_stderr : float
        Its standard error over the images; nan for a single one.
    score_per_image : ndarray [N]
        Mean cosine of the matched pairs.
    pairs : list of ndarray [min(K, M), 2]
        Per image: numbers of a heatmap and of the mask that is matched with it, by heatmap.
    cosines : list of ndarray [K, M]
        Per image: cosine of every heatmap with every mask; nan for an empty mask.
    """

    score: float
    score_stderr: float
    score_per_image: np.ndarray
    pairs: list[np.ndarray]
    cosines: list[np.ndarray]


def segmentation_match(heatmaps: Any, masks: Any) -> SegmentationMatch:
    """Mean cosine similarity of heatmaps and segmentation masks, matched one to one (NEON paper, VI-C).

    Heatmaps have no order, so they are paired with the masks such that the sum of the cosines is greatest
    (Hungarian algorithm). Negative relevance always lowers the cosine of a pair: inside the mask it lowers the
    product, outside it raises the norm.

    Parameters
    ----------
    heatmaps : array or Tensor [K, H, W], or [N, K, H, W]
        Relevance of the pixels of one image, or of N images. A list holds one [K, H, W] per image, which may
        differ in size and in K. The scale of a heatmap has no effect, its sign has.
    masks : array or Tensor [M, H, W], or [N, M, H, W], or list
        One per segment: booleans, 0 and 1 or 255, or how much of a pixel belongs to the segment; not negative.
        They may overlap, and need not cover the image.

    Returns
    -------
    SegmentationMatch

    Raises
    ------
    ValueError
        Shapes or numbers of images that do not fit, values that are not finite, negative masks, an image whose
        masks are all empty.

    Notes
    -----
    With K heatmaps and M segments there are min(K, M) pairs; the other heatmaps or segments do not count, so
    compare methods at the same K. An empty mask is left out, so that images with few segments can fill a tensor. A
    heatmap of zeros has cosine 0 with every mask.

    Cosines favour heatmaps that fill their segment evenly. The cosine of a constant heatmap with a mask is the
    root of the share of the image that the mask covers, 0.5 for a quarter; a heatmap of single pixels that all lie
    inside the mask may have less. Compare methods of one resolution, or blur all heatmaps alike.

    Computed in float64, on the device of each image's heatmaps.

    Examples
    --------
    >>> import numpy as np
    >>> from neonxc.evaluation import segmentation_match
    >>> regions = np.repeat([[0, 0, 1, 2]], 4, axis=0)
    >>> masks = [regions == k for k in range(3)]
    >>> found = segmentation_match(5.0 * np.stack(masks)[[2, 0, 1]], masks)
    >>> round(found.score, 6)
    1.0
    >>> found.pairs[0].tolist()
    [[0, 2], [1, 0], [2, 1]]
    """
    stacks, segments = _per_image(heatmaps, "heatmaps"), _per_image(masks, "masks")
    if len(stacks) != len(segments):
        raise ValueError(f"heatmaps are of {len(stacks)} images, masks of {len(segments)}")
    cosines = [_cosines(stack, mask, n) for n, (stack, mask) in enumerate(zip(stacks, segments, strict=True))]
    pairs = [_matching(table) for table in cosines]
    scores = np.array([table[tuple(found.T)].mean() for table, found in zip(cosines, pairs, strict=True)])
    error = float(scores.std(ddof=1)) / math.sqrt(len(scores)) if len(scores) > 1 else math.nan
    return SegmentationMatch(float(scores.mean()), error, scores, pairs, cosines)


def _per_image(value: Any, name: str) -> list[Tensor]:
    """One [n, H, W] per image, from a tensor or array, or from a list of them; a list of [H, W] is one image."""
    listed = isinstance(value, (list, tuple))
    parts = [torch.as_tensor(part) for part in (value if listed else [value])]
    if listed and len({part.shape for part in parts}) == 1 and parts[0].ndim == 2:
        parts = [torch.stack(parts)]
    elif not listed and parts[0].ndim == 4:
        parts = list(parts[0])
    shapes = [list(part.shape) for part in parts]
    if not parts or any(len(shape) != 3 or 0 in shape for shape in shapes):
        got = shapes if listed else list(np.shape(value))
        raise ValueError(f"{name} needs shape [n, H, W] of one image, [N, n, H, W], or a list of those; got {got}")
    return parts


def _cosines(heatmaps: Tensor, masks: Tensor, image: int) -> np.ndarray:
    """Table [K, M] of cosines in one image."""
    if heatmaps.shape[1:] != masks.shape[1:]:
        sizes = [" x ".join(map(str, stack.shape[1:])) for stack in (heatmaps, masks)]
        raise ValueError(f"heatmaps of image {image} have {sizes[0]} pixels, its masks {sizes[1]}")
    check_finite(heatmaps, name="heatmaps")
    check_finite(masks, name="masks")
    if masks.amin() < 0:
        raise ValueError(
            f"masks of image {image} have negative values; needed is 0 outside a segment, more inside"
        )
    filled = masks.flatten(1).amax(1) > 0
    if not filled.any():
        raise ValueError(f"masks of image {image} are all empty; needed is at least one segment")
    table = _unit(heatmaps) @ _unit(masks.to(heatmaps.device)).T
    table = table.clamp(-1, 1).masked_fill(~filled.to(table.device), math.nan)  # rounding may go beyond 1
    return table.cpu().numpy()


def _unit(stack: Tensor) -> Tensor:
    """Rows of unit norm, or of zeros."""
    values = stack.detach().flatten(1).double()
    values = values / values.abs().amax(1, keepdim=True).clamp(min=1e-300)  # squares of small ones vanish
    return values / values.norm(dim=1, keepdim=True).clamp(min=1e-300)


def _matching(table: np.ndarray) -> np.ndarray:
    """Pairs [min(K, M), 2] with the greatest sum of cosines; columns of nan take no part."""
    there = np.flatnonzero(~np.isnan(table[0]))
    rows, columns = linear_sum_assignment(table[:, there], maximize=True)
    return np.stack([rows, there[columns]], axis=1)
