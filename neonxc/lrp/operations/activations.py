"""Elementwise activations, and dropout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from neonxc.lrp.backward import elementwise
from neonxc.lrp.table import check_eval, operation
from neonxc.lrp.tracer import Tracer

_PASS = "relevance passes unchanged: the multiplier is scaled by `a(z) / z`"


@operation("relu", _PASS)
def _relu(tracer: Tracer, func: Callable[..., Tensor], input: Tensor) -> Tensor:
    if tracer.tiny:  # relevance must reach inactive units: give them a tiny value
        return elementwise(input, torch.relu, tracer.tiny)
    result = torch.relu(input)
    if (layer := tracer.tensors[input].layer) is not None:
        layer.followed_by_relu(result)
    return result


@operation(
    "relu6 hardtanh hardswish leaky_relu elu celu selu gelu silu mish softplus prelu rrelu threshold softsign "
    "tanh tanhshrink hardshrink softshrink clamp clip clamp_min clamp_max",
    _PASS,
)
@operation("local_response_norm", "the divisor is held constant")
def _activation(tracer: Tracer, func: Callable[..., Tensor], input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    return elementwise(input, lambda z: func(z, *args, **kwargs), tracer.tiny)


@operation("glu", "the gate is held constant", "decomposed")
def _glu(input: Tensor, dim: int = -1) -> Tensor:
    value, gate = input.chunk(2, dim)
    return value * torch.sigmoid(gate)


@operation(
    "dropout dropout1d dropout2d dropout3d alpha_dropout feature_alpha_dropout feature_dropout",
    "identity in eval mode",
    "decomposed",
)
def _dropout(input: Tensor, p: float = 0.5, training: bool = True, **train: bool) -> Tensor:
    check_eval(train.get("train", training) and p > 0, "dropout")
    return input
