"""Nonlinear functions of single values, and dropout."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from neonxc.lrp.operations.registry import elementwise, handles

if TYPE_CHECKING:
    from neonxc.lrp.watch import Watch

_PASS = "relevance passes unchanged: the multiplier is scaled by `a(z) / z`"


@handles(F.relu, torch.relu, torch.relu_, Tensor.relu, Tensor.relu_, what=_PASS)
def _relu(watch: Watch, func: Callable[..., Tensor], input: Tensor) -> Tensor:
    if watch.tiny:  # relevance must reach units that are off: give them a value, too small to matter
        return elementwise(input, torch.relu, watch.tiny)
    result = torch.relu(input)
    recorded = getattr(input, "_neonxc_layer", None)
    if recorded is not None:
        recorded.rectify(result)
    return result


@handles(
    *(F.relu6, F.hardtanh, F.hardswish, F.leaky_relu, F.elu, F.celu, F.selu, F.gelu, F.silu, F.mish, F.softplus),
    *(F.prelu, F.rrelu, F.threshold, F.softsign, F.tanhshrink, F.hardshrink, F.softshrink, F.tanh),
    *(torch.tanh, Tensor.tanh, torch.selu, torch.celu, torch.rrelu, torch.prelu, torch.threshold),
    *(torch.clamp, Tensor.clamp, torch.clip, Tensor.clip, Tensor.clamp_min, Tensor.clamp_max),
    *(torch.clamp_min, torch.clamp_max, torch.hardshrink, Tensor.hardshrink),
    what=_PASS,
)
def _activation(watch: Watch, func: Callable[..., Tensor], input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    return elementwise(input, lambda z: func(z, *args, **kwargs), watch.tiny)


@handles(F.local_response_norm, what="the divisor is held constant")
def _local_response_norm(
    watch: Watch, func: Callable[..., Tensor], input: Tensor, *args: Any, **kwargs: Any
) -> Tensor:
    return _activation(watch, func, input, *args, **kwargs)


@handles(F.glu, what="the gate is held constant")
def _glu(watch: Watch, func: Callable[..., Tensor], input: Tensor, dim: int = -1) -> Tensor:
    value, gate = input.chunk(2, dim)
    return value * torch.sigmoid(gate.detach())


@handles(
    *(F.dropout, F.dropout1d, F.dropout2d, F.dropout3d, F.alpha_dropout, F.feature_alpha_dropout),
    *(torch.dropout, torch.feature_dropout),
    what="identity in eval mode",
)
def _dropout(
    watch: Watch, func: Callable[..., Tensor], input: Tensor, p: float = 0.5, training: bool = True
) -> Tensor:
    if training and p > 0:
        raise ValueError("LRP needs dropout in eval mode; call .eval() on the network first")
    return input
