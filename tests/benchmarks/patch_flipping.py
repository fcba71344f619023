"""Scores of heatmaps of images: patch flipping and localisation."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torchvision.transforms.functional import gaussian_blur

PATCH = 16
FRACTIONS = (0.0, 0.05, 0.12, 0.25, 0.5, 0.8, 1.0)  # shares of the patches, dense where the curves bend

Score = Callable[[Tensor], Tensor]
"""Images [B, 3, H, W] -> the explained logit [B]."""


def blurred(image: Tensor) -> Tensor:
    """Return the fill for patches, a strongly blurred image."""
    return gaussian_blur(image, 95, 24.0)


def areas(
    score: Score, image: Tensor, heatmaps: dict[str, Tensor], seed: int, side: int = PATCH
) -> Iterator[tuple[str, dict]]:
    """Return the areas under the flipping curves of one decision, for each heatmap [H, W]; `side` is a patch's."""
    fill = blurred(image)
    start, end = score(torch.stack([image, fill])).tolist()
    heatmaps = {**heatmaps, "random": torch.rand(image.shape[1:], generator=torch.Generator().manual_seed(seed))}
    for name, heatmap in heatmaps.items():
        values = patches(heatmap, side)
        area = {}
        for kind, order in (("deletion", (-values.flatten()).argsort()), ("reversed", values.flatten().argsort())):
            rank = order.argsort().reshape(values.shape)
            flipped = torch.stack([rank < round(f * rank.numel()) for f in FRACTIONS[1:-1]])
            flipped = flipped.repeat_interleave(side, 1).repeat_interleave(side, 2)
            flipped = flipped[:, None, : image.shape[1], : image.shape[2]]
            logits = score(torch.where(flipped, fill, image)).tolist()
            area[kind] = float(np.trapezoid([start, *logits, end], FRACTIONS)) / start
        yield name, {**area, "score": area["reversed"] - area["deletion"]}


def patches(heatmap: Tensor, side: int = PATCH) -> Tensor:
    """Sum a heatmap [H, W] over each patch."""
    height, width = heatmap.shape
    padded = F.pad(heatmap, (0, -width % side, 0, -height % side))
    return padded.unfold(0, side, side).unfold(1, side, side).sum(dim=(2, 3))


def localisation(heatmap: Tensor, region: Tensor) -> dict[str, float]:
    positive = heatmap.clamp(min=0)
    negative = heatmap.clamp(max=0)
    inside = (positive * region).sum() / positive.sum()
    return {"inside": float(inside), "negative": float(-negative.sum() / positive.sum())}
