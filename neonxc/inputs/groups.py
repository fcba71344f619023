"""Groups of features that are missing or known together: columns, pixels, channels, patches, words.

Groups of an input [...] of D features are numbers [D], or [N, D] if every input has groups of its own:

=============  ========================  =========================================================
argument       inputs                    groups
=============  ========================  =========================================================
None           [N, D]                    those of the network, or every column is one
None           [N, C, ...]               as "pixels", but tokens [N, T, d] need numbers
"pixels"       [N, C, ...]               every location, with all its channels
"channels"     [N, C, ...]               every channel
an int         images [N, C, H, W]       patches of this size
numbers        any                       as they are
=============  ========================  =========================================================
"""

from __future__ import annotations

from functools import partial
from numbers import Integral

import torch
from torch import Tensor, nn

from neonxc.common.modules import evaluated
from neonxc.common.types import ArrayLike
from neonxc.inputs.base import inputs_of
from neonxc.inputs.layout import reading


def groups_of(net: nn.Module, groups: ArrayLike | str | int | None, x: Tensor) -> Tensor:
    """Return the group numbers of the flattened features, [D] or [N, D]; by default those of the network."""
    if groups is None:
        groups = inputs_of(net).groups
    is_named = groups is None or isinstance(groups, str)
    kind = "channels"
    if x.ndim > 2 and is_named:
        kind = reading(partial(evaluated, net), x)
    if groups is None:
        groups = _default(x, kind)
    if isinstance(groups, str):
        return _named(groups, x, kind)
    if isinstance(groups, Integral):
        return _patches(int(groups), x)

    shape = x.shape[1:]
    numbers = torch.as_tensor(groups, device=x.device)
    if numbers.is_floating_point() or numbers.shape not in (shape, x.shape) or int(numbers.min()) < 0:
        raise ValueError(
            f"groups needs whole numbers >= 0 shaped like an input, {list(shape)}, or like X; "
            f"got {numbers.dtype} {list(numbers.shape)}"
        )
    return numbers.long().flatten(-len(shape))


def _default(x: Tensor, kind: str) -> Tensor | str:
    """Return the groups of a network that has none: pixels, or one per column."""
    shape = x.shape[1:]
    if kind == "tokens":
        raise ValueError(
            f"X of shape {list(x.shape)} holds tokens: pass groups, such as torch.arange({shape[0]})[:, None]."
            f"expand({shape[0]}, {shape[1]}) for one per token or step"
        )
    return "pixels" if x.ndim > 2 else torch.arange(shape[0])


def _named(groups: str, x: Tensor, kind: str) -> Tensor:
    """Return the groups [D] of maps [N, C, ...] by name; without channels [N, ...], every feature is a pixel."""
    shape = x.shape[1:]
    if groups == "pixels" and kind == "places":
        return torch.arange(shape.numel(), device=x.device)
    if groups not in ("pixels", "channels") or x.ndim < 3 or kind == "places":
        raise ValueError(f'groups needs "pixels" or "channels" (of maps [N, C, ...]) or numbers, got {groups!r}')
    n_channels = shape[0]
    n_locations = shape[1:].numel()
    if groups == "pixels":
        numbers = torch.arange(n_locations)[None]
    else:
        numbers = torch.arange(n_channels)[:, None]
    return numbers.expand(n_channels, n_locations).flatten().to(x.device)


def _patches(size: int, x: Tensor) -> Tensor:
    """Return the groups [D] of square patches of images [N, C, H, W], row by row."""
    if x.ndim != 4 or size < 1:
        raise ValueError(f"groups={size} needs images [N, C, H, W] and a size of at least 1, got {list(x.shape)}")
    _, height, width = x.shape[1:]
    rows = torch.arange(height, device=x.device) // size
    columns = torch.arange(width, device=x.device) // size
    n_columns = int(columns[-1]) + 1
    return (rows[:, None] * n_columns + columns).expand(x.shape[1:]).flatten()
