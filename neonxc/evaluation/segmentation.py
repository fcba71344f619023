"""Segmentation match: the agreement of heatmaps with segmentation masks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor
from torch.nn.functional import normalize

from neonxc.common.numbers import mean_error, plural, text
from neonxc.common.result import DIGITS, Result
from neonxc.data.inputs import check_finite


@dataclass(frozen=True, repr=False)
class SegmentationMatch(Result):
    """Result of :func:`segmentation_match`.

    Attributes
    ----------
    score : float
        Mean of `score_per_image`, -1 ... 1.
    score_stderr : float
        Its standard error over the images; NaN for a single image.
    score_per_image : ndarray [N]
        Mean cosine of the matched pairs.
    pairs : list of ndarray [min(K, M), 2]
        For each image, the matched pairs (heatmap, mask), sorted by heatmap.
    cosines : list of ndarray [K, M]
        For each image, the cosine of every heatmap with every mask; NaN for an empty mask.
    """

    score: float
    score_stderr: float
    score_per_image: np.ndarray
    pairs: list[np.ndarray]
    cosines: list[np.ndarray]

    def to_frame(self) -> pd.DataFrame:
        """Return one row per matched pair.

        Returns
        -------
        DataFrame
            Index levels: the numbers of the "image" and of the "heatmap" in it. Columns: "mask", the number of the
            mask that the heatmap is matched with, and "cosine".
        """
        rows = [
            (image, heatmap, mask, cosines[heatmap, mask])
            for image, (pairs, cosines) in enumerate(zip(self.pairs, self.cosines, strict=True))
            for heatmap, mask in pairs.tolist()
        ]
        return pd.DataFrame(rows, columns=["image", "heatmap", "mask", "cosine"]).set_index(["image", "heatmap"])

    def _remarks(self) -> list[str]:
        error = "" if math.isnan(self.score_stderr) else f" ± {text(self.score_stderr, 2)}"
        return [f"score {text(self.score, DIGITS)}{error} ({plural(len(self.score_per_image), 'image')})"]


def segmentation_match(heatmaps: Any, masks: Any) -> SegmentationMatch:
    """Mean cosine similarity of heatmaps and segmentation masks, matched one to one (NEON paper, VI-C).

    Heatmaps have no order, so that they are paired with the masks to maximize the sum of the cosines (Hungarian
    algorithm). Negative relevance always lowers the cosine of a pair: inside the mask it lowers the product, and
    outside it raises the norm.

    Parameters
    ----------
    heatmaps : array or Tensor [K, H, W], or [N, K, H, W]
        Relevance of the pixels of one image, or of N images. A list contains one [K, H, W] per image; images may
        differ in size and in K. The scale of a heatmap has no effect, but its sign has.
    masks : array or Tensor [M, H, W], or [N, M, H, W], or list
        One mask per segment: booleans, 0 and 1 or 255, or the share of each pixel that belongs to the segment.
        Masks may overlap and need not cover the image.

    Returns
    -------
    SegmentationMatch

    Raises
    ------
    ValueError
        If shapes or numbers of images do not match, values are not finite, masks are negative, or all masks of an
        image are empty.

    Notes
    -----
    K heatmaps and M segments have min(K, M) pairs, and the other heatmaps or segments are ignored; compare methods
    at the same K. Empty masks are left out, so that images with few segments can be part of a tensor. A heatmap of
    zeros has cosine 0 with every mask.

    Cosines favour heatmaps that fill their segment evenly. The cosine of a constant heatmap with a mask is the
    square root of the share of the image that the mask covers, which is 0.5 for a quarter; a heatmap of a few
    pixels inside the mask may have a smaller cosine. Compare methods of the same resolution, or blur all heatmaps
    equally.

    The computation is in float64, on the device of each image's heatmaps.

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
    stacks = _per_image(heatmaps, "heatmaps")
    segments = _per_image(masks, "masks")
    if len(stacks) != len(segments):
        raise ValueError(f"heatmaps are of {len(stacks)} images, masks of {len(segments)}")
    cosines = [*map(_cosines, stacks, segments, range(len(stacks)))]
    pairs = [*map(_matching, cosines)]
    scores = np.array([table[tuple(matched.T)].mean() for table, matched in zip(cosines, pairs, strict=True)])
    return SegmentationMatch(*mean_error(scores), scores, pairs, cosines)


def _per_image(value: Any, name: str) -> list[Tensor]:
    """Return one [n, H, W] per image from a tensor, an array or a list; a list of [H, W] is one image."""
    if isinstance(value, (list, tuple)):
        stacks = [*map(torch.as_tensor, value)]
        got = [list(stack.shape) for stack in stacks]
        if len({stack.shape for stack in stacks}) == 1 and stacks[0].ndim == 2:
            stacks = [torch.stack(stacks)]
    else:
        stack = torch.as_tensor(value)
        got = [*stack.shape]
        stacks = [*stack] if stack.ndim == 4 else [stack]
    if not stacks or any(stack.ndim != 3 or not stack.numel() for stack in stacks):
        raise ValueError(f"{name} needs shape [n, H, W] of one image, [N, n, H, W], or a list of those; got {got}")
    return stacks


def _cosines(heatmaps: Tensor, masks: Tensor, image: int) -> np.ndarray:
    """Return the cosines [K, M] of one image."""
    if heatmaps.shape[1:] != masks.shape[1:]:
        size, other = (" x ".join(map(str, stack.shape[1:])) for stack in (heatmaps, masks))
        raise ValueError(f"heatmaps of image {image} have {size} pixels, its masks {other}")
    check_finite(heatmaps, name="heatmaps")
    check_finite(masks, name="masks")
    if masks.amin() < 0:
        raise ValueError(f"masks of image {image} have negative values; masks must be 0 outside a segment")
    filled = masks.flatten(1).amax(1) > 0
    if not filled.any():
        raise ValueError(f"masks of image {image} are all empty; needed is at least one segment")
    table = _unit(heatmaps) @ _unit(masks.to(heatmaps.device)).T
    table = table.clamp(-1, 1).masked_fill(~filled.to(table.device), math.nan)  # rounding may exceed 1
    return table.cpu().numpy()


def _unit(stack: Tensor) -> Tensor:
    """Normalize rows to unit norm; rows of zeros are kept."""
    values = stack.detach().flatten(1).double()
    return normalize(normalize(values, torch.inf, eps=1e-300), eps=1e-300)  # squares of small values underflow


def _matching(table: np.ndarray) -> np.ndarray:
    """Return the pairs [min(K, M), 2] with the largest sum of cosines; columns of NaN are left out."""
    filled = np.flatnonzero(~np.isnan(table[0]))
    rows, columns = linear_sum_assignment(table[:, filled], maximize=True)
    return np.column_stack([rows, filled[columns]])
