"""Segmentation match: the agreement of heatmaps with segmentation masks (NEON paper, VI-C).

For an image with heatmaps R_k [H, W], k = 1 ... K, and masks M_m [H, W], m = 1 ... M,

    c_km    = <R_k, M_m> / (|R_k| |M_m|)    the cosine; 0 for a heatmap of zeros, and not defined for an empty mask
    pairs   = the matching of min(K, M) heatmaps with masks, one to one, that maximizes the sum of c_km
    score   = the mean of c_km over the pairs

The score of several images is the mean of their scores.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor
from torch.nn.functional import normalize

from neonxc.common.numbers import mean_error, plural, text
from neonxc.common.precision import in_full_precision
from neonxc.common.result import DIGITS, Result
from neonxc.common.types import ArrayLike
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
        rows = []
        for image, (pairs, cosines) in enumerate(zip(self.pairs, self.cosines, strict=True)):
            for heatmap, mask in pairs.tolist():
                rows.append((image, heatmap, mask, cosines[heatmap, mask]))
        frame = pd.DataFrame(rows, columns=["image", "heatmap", "mask", "cosine"])
        return frame.set_index(["image", "heatmap"])

    def _remarks(self) -> list[str]:
        score = text(self.score, DIGITS)
        if not math.isnan(self.score_stderr):
            score += f" ± {text(self.score_stderr, 2)}"
        n_images = plural(len(self.score_per_image), "image")
        return [f"score {score} ({n_images})"]


def segmentation_match(
    heatmaps: ArrayLike | Sequence[ArrayLike], masks: ArrayLike | Sequence[ArrayLike]
) -> SegmentationMatch:
    """Match heatmaps with segmentation masks one to one, and average their cosine similarity (NEON paper, VI-C).

    Heatmaps have no order, so that they are paired with the masks to maximize the sum of the cosines (Hungarian
    algorithm). Negative relevance always lowers the cosine of a pair: inside the mask it lowers the product, and
    outside it raises the norm.

    Parameters
    ----------
    heatmaps : array or Tensor [K, H, W], or [N, K, H, W]
        Relevance of the pixels of one image, or of N images. A list contains one [K, H, W] per image; images may
        differ in size and in K. The scale of a heatmap has no effect, but its sign has.
    masks : array or Tensor [M, H, W], or [N, M, H, W], or list
        One mask per segment: booleans, 0 and 1 or 255, or the fraction of each pixel that is in the segment.
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
    square root of the fraction of the image that the mask covers, which is 0.5 for a quarter; a heatmap of a few
    pixels inside the mask may have a smaller cosine. Compare methods of the same resolution, or blur all heatmaps
    equally.

    The computation is in float64, on the device of each image's heatmaps.

    Examples
    --------
    >>> import numpy as np
    >>> from neonxc.evaluation import segmentation_match
    >>> regions = np.repeat([[0, 0, 1, 2]], 4, axis=0)
    >>> masks = [regions == k for k in range(3)]
    >>> match = segmentation_match(5.0 * np.stack(masks)[[2, 0, 1]], masks)
    >>> round(match.score, 6)
    1.0
    >>> match.pairs[0].tolist()
    [[0, 2], [1, 0], [2, 1]]
    """
    stacks = _per_image(heatmaps, "heatmaps")
    segments = _per_image(masks, "masks")
    if len(stacks) != len(segments):
        raise ValueError(f"heatmaps are of {plural(len(stacks), 'image')}, masks of {len(segments)}")
    cosines = []
    pairs = []
    scores = []
    for image, (image_heatmaps, image_masks) in enumerate(zip(stacks, segments, strict=True)):
        table = _cosines(image_heatmaps, image_masks, image)  # [K, M]
        matched = _matching(table)
        rows, columns = matched.T
        cosines.append(table)
        pairs.append(matched)
        scores.append(table[rows, columns].mean())
    score_per_image = np.array(scores)
    score, score_stderr = mean_error(score_per_image)
    return SegmentationMatch(score, score_stderr, score_per_image, pairs, cosines)


def _per_image(value: ArrayLike | Sequence[ArrayLike], name: str) -> list[Tensor]:
    """Return one [n, H, W] per image from a tensor, an array or a list; a list of [H, W] is one image."""
    if isinstance(value, (list, tuple)):
        stacks = [torch.as_tensor(stack) for stack in value]
        shapes = [list(stack.shape) for stack in stacks]
        is_one_image = len({stack.shape for stack in stacks}) == 1 and stacks[0].ndim == 2
        if is_one_image:
            stacks = [torch.stack(stacks)]
    else:
        stack = torch.as_tensor(value)
        shapes = [*stack.shape]
        stacks = [*stack] if stack.ndim == 4 else [stack]
    if not stacks or any(stack.ndim != 3 or not stack.numel() for stack in stacks):
        raise ValueError(
            f"{name} needs shape [n, H, W] of one image, [N, n, H, W], or a list of those; got {shapes}"
        )
    return stacks


@in_full_precision
def _cosines(heatmaps: Tensor, masks: Tensor, image: int) -> np.ndarray:
    """Return the cosines [K, M] of the heatmaps and masks of one image; NaN for empty masks."""
    if heatmaps.shape[1:] != masks.shape[1:]:
        size = " x ".join(map(str, heatmaps.shape[1:]))
        mask_size = " x ".join(map(str, masks.shape[1:]))
        raise ValueError(f"heatmaps of image {image} have {size} pixels, its masks {mask_size}")
    check_finite(heatmaps, name="heatmaps")
    check_finite(masks, name="masks")
    if masks.amin() < 0:
        raise ValueError(f"masks of image {image} have negative values; masks must be 0 outside a segment")
    is_filled = masks.flatten(1).amax(1) > 0
    if not is_filled.any():
        raise ValueError(f"masks of image {image} are all empty; needed is at least one segment")
    table = _normalized(heatmaps) @ _normalized(masks.to(heatmaps.device)).T
    table = table.clamp(-1, 1)  # rounding may exceed 1
    table = table.masked_fill(~is_filled.to(table.device), math.nan)
    return table.cpu().numpy()


def _normalized(stack: Tensor) -> Tensor:
    """Return heatmaps or masks as rows [n, H W] of norm 1; rows of zeros stay zero."""
    values = stack.detach().flatten(1).double()
    values = normalize(
        values, torch.inf, eps=1e-300
    )  # by the largest value first: squares of small ones underflow
    return normalize(values, eps=1e-300)


def _matching(table: np.ndarray) -> np.ndarray:
    """Return the pairs [min(K, M), 2] with the largest sum of cosines; columns of NaN are left out."""
    filled = np.flatnonzero(~np.isnan(table[0]))
    rows, columns = linear_sum_assignment(table[:, filled], maximize=True)
    return np.column_stack([rows, filled[columns]])
