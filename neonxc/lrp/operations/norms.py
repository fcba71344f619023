"""Normalizations by statistics of the input itself: the divisor is a gate, which is held constant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from neonxc.lrp.table import operation

_WHAT = "the variance is held constant; subtracting the mean is linear; the bias absorbs its share"


@operation("layer_norm", _WHAT, "decomposed")
def _layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    *_: Any,
) -> Tensor:
    return _affine(_standardized(input, range(-len(normalized_shape), 0), eps), weight, bias)


@operation("group_norm", _WHAT, "decomposed")
def _group_norm(
    input: Tensor, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, *_: Any
) -> Tensor:
    groups = input.unflatten(1, (num_groups, -1))
    y = _standardized(groups, range(2, groups.ndim), eps).flatten(1, 2).movedim(1, -1)
    return _affine(y, weight, bias).movedim(-1, 1)


@operation("instance_norm", _WHAT, "decomposed")
def _instance_norm(
    input: Tensor,
    running_mean: Any = None,
    running_var: Any = None,
    weight: Any = None,
    bias: Any = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    if not use_input_stats:
        return F.batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    return _group_norm(input, input.shape[1], weight, bias, eps)


@operation("rms_norm", "the root mean square is held constant", "decomposed")
def _rms_norm(input: Tensor, normalized_shape: Sequence[int], weight: Any = None, eps: Any = None) -> Tensor:
    square = input.detach().square().mean(tuple(range(-len(normalized_shape), 0)), keepdim=True)
    return _affine(input * torch.rsqrt(square + (torch.finfo(input.dtype).eps if eps is None else eps)), weight)


@operation("normalize", "the norm is held constant", "decomposed")
def _normalize(input: Tensor, p: float = 2.0, dim: Any = 1, eps: float = 1e-12, out: None = None) -> Tensor:
    return input / torch.linalg.vector_norm(input.detach(), p, dim=dim, keepdim=True).clamp(min=eps)


def _standardized(x: Tensor, dims: Sequence[int], eps: float) -> Tensor:
    variance = x.detach().var(tuple(dims), correction=0, keepdim=True)
    return (x - x.mean(tuple(dims), keepdim=True)) * torch.rsqrt(variance + eps)


def _affine(x: Tensor, weight: Any, bias: Any = None) -> Tensor:
    x = x if weight is None else x * weight
    return x if bias is None else x + bias
