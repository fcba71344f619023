"""Arranges the output of a layer (feature maps or tokens) as [N, d, ...], and pools it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from torch import Tensor

Pool = Literal["avg", "class"] | None


def check_pool(pool: Pool, tokens: int | None) -> None:
    """Raise a ValueError if `pool` or `tokens` is invalid, or if a class token is needed and there is none."""
    if pool not in ("avg", "class", None):
        raise ValueError(f'pool must be "avg", "class" or None; got {pool!r}')
    if tokens is not None and (not isinstance(tokens, int) or tokens < 0):
        raise ValueError(f"tokens must be None or the number of prefix tokens, 0 or more; got {tokens!r}")
    if pool == "class" and not tokens:
        raise ValueError(f'pool="class" needs a layer with a class token, tokens=1 or more; got tokens={tokens}')


def arrange(features: Tensor, pool: Pool, tokens: int | None, size: Sequence[int]) -> Tensor:
    """Arrange a layer's output as [N, d, ...] and pool it; `pool` and `tokens` are as in `FeatureExtractor`.

    The output has shape [N, d], [N, d, ...] or, with `tokens`, [N, T, d] or [N, h, w, d]. The patches must form a
    grid with the aspect ratio of the image, whose height and width are `size`; otherwise a ValueError is raised.
    """
    if tokens == 0 and features.ndim == 4:
        features = features.movedim(3, 1)
    elif tokens is not None and features.ndim > 2:
        if features.ndim != 3 or features.shape[1] <= tokens:
            raise ValueError(
                f"tokens={tokens} needs a layer with more tokens than that, [N, T, d]; "
                f"got shape {list(features.shape)} (tokens=None is for [N, d, h, w])"
            )
        if pool == "class":
            return features[:, 0]
        features = features[:, tokens:].mT
        if pool is None:
            features = features.unflatten(2, _grid(features.shape[2], size))
    return features.flatten(2).mean(2) if pool == "avg" and features.ndim > 2 else features


def _grid(patches: int, size: Sequence[int]) -> tuple[int, int]:
    height, width = size
    rows, columns = (round(math.sqrt(patches * ratio)) for ratio in (height / width, width / height))
    if rows * columns != patches:
        raise ValueError(
            f"the {patches} patch tokens of the layer form no grid for an image of {height} x {width} pixels; "
            'set tokens to the right number of prefix tokens, or use pool="avg"'
        )
    return rows, columns


def prefix_tokens(shape: Sequence[int]) -> int | None:
    """Infer `tokens` from the shape of a layer's output for one square image."""
    if len(shape) == 3:
        return shape[1] - math.isqrt(shape[1]) ** 2
    if len(shape) == 4 and shape[1] == shape[2] != shape[3]:
        return 0
    return None
