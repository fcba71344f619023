"""Groups of features that are missing or known together: columns, pixels, channels, patches, words."""

from __future__ import annotations

from functools import partial
from numbers import Integral
from typing import Any

import torch
from torch import Tensor, nn

from neonxc.common.modules import evaluated
from neonxc.inputs.base import inputs_of
from neonxc.inputs.layout import reading


def groups_of(net: nn.Module, groups: Any, x: Tensor) -> Tensor:
    """Return the group numbers of the flattened features, [D] or [N, D]; by default those of the network."""
    shape = x.shape[1:]
    kind = "channels"
    groups = inputs_of(net).groups if groups is None else groups
    if x.ndim > 2 and (groups is None or isinstance(groups, str)):
        kind = reading(partial(evaluated, net), x)
    if groups is None:
        if kind == "tokens":
            raise ValueError(
                f"X of shape {list(x.shape)} holds tokens: pass groups, such as torch.arange({shape[0]})[:, None]."
                f"expand({shape[0]}, {shape[1]}) for one per token or step"
            )
        groups = "pixels" if x.ndim > 2 else torch.arange(shape[0])
    if isinstance(groups, str):
        if groups == "pixels" and kind == "places":
            return torch.arange(shape.numel(), device=x.device)
        if groups not in ("pixels", "channels") or x.ndim < 3 or kind == "places":
            raise ValueError(
                f'groups needs "pixels" or "channels" (of maps [N, C, ...]) or numbers, got {groups!r}'
            )
        places = shape[1:].numel()
        numbers = torch.arange(places)[None] if groups == "pixels" else torch.arange(shape[0])[:, None]
        return numbers.expand(shape[0], places).flatten().to(x.device)
    if isinstance(groups, Integral):
        if x.ndim != 4 or groups < 1:
            raise ValueError(
                f"groups={groups} needs images [N, C, H, W] and a size of at least 1, got {list(x.shape)}"
            )
        rows, columns = (torch.arange(length, device=x.device) // int(groups) for length in shape[1:])
        return (rows[:, None] * (int(columns[-1]) + 1) + columns).expand(shape).flatten()
    numbers = torch.as_tensor(groups, device=x.device)
    if numbers.is_floating_point() or numbers.shape not in (shape, x.shape) or int(numbers.min()) < 0:
        raise ValueError(
            f"groups needs whole numbers >= 0 shaped like an input, {list(shape)}, or like X; "
            f"got {numbers.dtype} {list(numbers.shape)}"
        )
    return numbers.long().flatten(-len(shape))
