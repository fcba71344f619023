"""Normalisations by statistics of the input itself: what they divide by is held constant."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from neonxc.lrp.table import bound, operation
from neonxc.lrp.watch import Watch

_WHAT = "the variance is held constant; the mean is linear, the shift absorbs its share"


@operation("layer_norm", _WHAT, "gates")
def _layer_norm(
    watch: Watch,
    func: Callable[..., Tensor],
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    *_: Any,
) -> Tensor:
    return _affine(watch, _standardized(input, range(-len(normalized_shape), 0), eps), weight, bias)


@operation("group_norm", _WHAT, "gates")
def _group_norm(
    watch: Watch,
    func: Callable[..., Tensor],
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    *_: Any,
) -> Tensor:
    groups = input.unflatten(1, (num_groups, -1))
    y = _standardized(groups, range(2, groups.ndim), eps).flatten(1, 2)
    return _affine(watch, y, weight, bias, behind=input.ndim - 2)


@operation("instance_norm", _WHAT, "gates")
def _instance_norm(watch: Watch, func: Callable[..., Tensor], *args: Any, **kwargs: Any) -> Tensor:
    call = bound(func, args, kwargs)
    x, weight, bias = call.input, call.weight, call.bias
    if not call.use_input_stats:
        statistics = call.running_mean, call.running_var
        return watch.run(F.batch_norm, x, *statistics, weight, bias, False, call.momentum, call.eps)
    return _affine(watch, _standardized(x, range(2, x.ndim), call.eps), weight, bias, behind=x.ndim - 2)


@operation("rms_norm", "the root mean square is held constant", "gates")
def _rms_norm(
    watch: Watch,
    func: Callable[..., Tensor],
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    square = input.detach().square().mean(tuple(range(-len(normalized_shape), 0)), keepdim=True)
    root = torch.rsqrt(square + (torch.finfo(input.dtype).eps if eps is None else eps))
    return _affine(watch, input * root, weight, None)


@operation("normalize", "the norm is held constant")
def _normalize(watch: Watch, func: Callable[..., Tensor], *args: Any, **kwargs: Any) -> Tensor:
    call = bound(func, args, kwargs)
    norm = torch.linalg.vector_norm(call.input.detach(), call.p, dim=call.dim, keepdim=True)
    return call.input / norm.clamp(min=call.eps)


def _standardized(x: Tensor, dims: Sequence[int], eps: float) -> Tensor:
    dims = tuple(dims)
    variance = x.detach().var(dims, correction=0, keepdim=True)
    return (x - x.mean(dims, keepdim=True)) * torch.rsqrt(variance + eps)


def _affine(
    watch: Watch, x: Tensor, weight: Tensor | None, bias: Tensor | None, behind: int | None = None
) -> Tensor:
    """Scale and shift: channels that have so many dimensions behind them, or else the last dimensions."""
    for value, apply in ((weight, torch.mul), (bias, torch.add)):
        if value is not None:
            if behind is not None:
                value = watch.run(torch.reshape, value, (-1, *[1] * behind))
            x = watch.run(apply, x, value)
    return x
