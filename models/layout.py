"""Where a layer's output has its channels and positions: feature maps, tokens, and how they are pooled."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from torch import Tensor

__all__ = ["Pool", "arrange", "check_pool", "prefix_tokens"]

Pool = Literal["avg", "class"] | None


def check_pool(pool: Pool, tokens: int | None) -> None:
    """Refuse an unknown `pool`, `tokens` that are no number, and a class token where there is none."""
    if pool not in ("avg", "class", None):
        raise ValueError(f'pool must be "avg", "class" or None; got {pool!r}')
    if tokens is not None and (not isinstance(tokens, int) or tokens < 0):
        raise ValueError(f"tokens must be None or the number of prefix tokens, 0 or more; got {tokens!r}")
    if pool == "class" and not tokens:
        raise ValueError(f'pool="class" needs a layer with a class token, tokens=1 or more; got tokens={tokens}')


def arrange(features: Tensor, pool: Pool, tokens: int | None, size: Sequence[int]) -> Tensor:
    """Bring a layer's output to [N, d, ...] and pool it; `pool` and `tokens` as in `FeatureExtractor`.

    The output is [N, d], [N, d, ...] or, with `tokens`, [N, T, d] or [N, h, w, d]. The patches form a grid of the
    same shape as the image, whose height and width are `size`. A ValueError says that they do not, or that the
    layer gives no tokens.
    """
    if tokens == 0 and features.ndim == 4:
        features = features.movedim(3, 1)
    elif tokens is not None and features.ndim > 2:
        if features.ndim != 3 or features.shape[1] <= tokens:
            raise ValueError(
                f"tokens={tokens} needs a layer that gives more tokens than that, [N, T, d]; "
                f"got shape {list(features.shape)} (tokens=None takes [N, d, h, w])"
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
            f"the layer gives {patches} patch tokens, which form no grid for an image of {height} x {width} "
            'pixels; needed is the right number of prefix tokens, or pool="avg"'
        )
    return rows, columns


def prefix_tokens(shape: Sequence[int]) -> int | None:
    """Read off `tokens` from the shape that a layer's output has for one square image."""
    if len(shape) == 3:
        return shape[1] - math.isqrt(shape[1]) ** 2
    if len(shape) == 4 and shape[1] == shape[2] != shape[3]:
        return 0
    return None
