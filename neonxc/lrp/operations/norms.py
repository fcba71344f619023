"""Normalisations by statistics of the input itself: what they divide by is held constant."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from neonxc.lrp.operations.registry import handles

if TYPE_CHECKING:
    from neonxc.lrp.watch import Watch

_AFFINE = ("weight", "bias")
_WHAT = "the variance is held constant; the mean is linear, the shift absorbs its share"


@handles(F.layer_norm, torch.layer_norm, what=_WHAT, also=_AFFINE, gated=True)
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
    return _affine(watch, _standardized(input, tuple(range(-len(normalized_shape), 0)), eps), weight, bias)


@handles(F.group_norm, torch.group_norm, what=_WHAT, also=_AFFINE, gated=True)
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
    standardized = _standardized(groups, tuple(range(2, groups.ndim)), eps).flatten(1, 2)
    return _affine(watch, standardized, weight, bias, input.ndim)


@handles(F.instance_norm, what=_WHAT, also=_AFFINE, gated=True)
def _instance_norm(
    watch: Watch,
    func: Callable[..., Tensor],
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
    *_: Any,
    **__: Any,
) -> Tensor:
    if not use_input_stats:
        return watch.run(F.batch_norm, input, running_mean, running_var, weight, bias, False, momentum, eps)
    return _affine(watch, _standardized(input, tuple(range(2, input.ndim)), eps), weight, bias, input.ndim)


@handles(torch.instance_norm, what=_WHAT, also=_AFFINE, gated=True)
def _instance_norm_of_torch(
    watch: Watch,
    func: Callable[..., Tensor],
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    *options: Any,
    **named: Any,
) -> Tensor:
    return _instance_norm(watch, func, input, running_mean, running_var, weight, bias, *options, **named)


@handles(
    *(F.rms_norm, torch.rms_norm),
    what="the root mean square is held constant",
    also=("weight",),
    gated=True,
)
def _rms_norm(
    watch: Watch,
    func: Callable[..., Tensor],
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    dims = tuple(range(-len(normalized_shape), 0))
    square = input.detach().square().mean(dims, keepdim=True)
    root = torch.rsqrt(square + (torch.finfo(input.dtype).eps if eps is None else eps))
    return _affine(watch, input * root, weight, None)


@handles(F.normalize, what="the norm is held constant")
def _normalize(
    watch: Watch,
    func: Callable[..., Tensor],
    input: Tensor,
    p: float = 2.0,
    dim: Any = 1,
    eps: float = 1e-12,
    out: None = None,
) -> Tensor:
    norm = torch.linalg.vector_norm(input.detach(), p, dim=dim, keepdim=True).clamp(min=eps)
    return input / norm


def _standardized(x: Tensor, dims: tuple[int, ...], eps: float) -> Tensor:
    variance = x.detach().var(dims, correction=0, keepdim=True)
    return (x - x.mean(dims, keepdim=True)) * torch.rsqrt(variance + eps)


def _affine(
    watch: Watch, x: Tensor, weight: Tensor | None, bias: Tensor | None, channels_of: int | None = None
) -> Tensor:
    """Scale and shift, along the last dimensions or, of so many, along dimension 1."""
    for value, apply in ((weight, torch.mul), (bias, torch.add)):
        if value is not None:
            if channels_of is not None:
                value = watch.run(torch.reshape, value, (-1, *[1] * (channels_of - 2)))
            x = watch.run(apply, x, value)
    return x
