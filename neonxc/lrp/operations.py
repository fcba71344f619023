"""What the engine does at the operations that need more than their gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from neonxc.lrp.rules import LinearLayer

if TYPE_CHECKING:
    from neonxc.lrp.watch import Watch


class _Override(torch.autograd.Function):
    """Compute ``y = forward(x)`` and pull multipliers back by ``backward(x, y, m)``."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, forward: Callable[..., Tensor], backward: Callable[..., Tensor]) -> Tensor:
        y = forward(x)
        ctx.save_for_backward(x, y)
        ctx.pull = backward
        return y

    @staticmethod
    def backward(ctx: Any, m: Tensor) -> tuple[Tensor, None, None]:
        x, y = ctx.saved_tensors
        return ctx.pull(x, y, m), None, None


def _convolution(
    watch: Watch,
    func: Callable[..., Tensor],
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    n = weight.ndim - 2
    stride, dilation = _each(stride, n), _each(dilation, n)
    if padding == "same":
        total = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:], strict=True)]
        input = F.pad(input, [side for t in reversed(total) for side in (t // 2, t - t // 2)])
    padding = _each(0 if isinstance(padding, str) else padding, n)

    def apply(x: Tensor, w: Tensor) -> Tensor:
        return func(x, w, None, stride, padding, dilation, groups)

    def transpose(m: Tensor, w: Tensor, x: Tensor) -> Tensor:
        wanted = [True, False, False]
        return torch.ops.aten.convolution_backward(
            m, x, w, None, stride, padding, dilation, False, [0] * n, groups, wanted
        )[0]

    column = 0.0 if bias is None else bias.detach().reshape(-1, *[1] * n)
    layer = LinearLayer(weight.detach(), column, apply, transpose)
    value = lambda x: func(x, weight, bias, stride, padding, dilation, groups)  # noqa: E731
    return _linear_layer(watch, layer, weight, input, value)


def _linear(
    watch: Watch, func: Callable[..., Tensor], input: Tensor, weight: Tensor, bias: Tensor | None = None
) -> Tensor:
    offset = 0.0 if bias is None else bias.detach()
    layer = LinearLayer(weight.detach(), offset, lambda x, w: x @ w.T, lambda m, w, x: m @ w)
    return _linear_layer(watch, layer, weight, input, lambda x: func(x, weight, bias))


def _linear_layer(
    watch: Watch, layer: LinearLayer, weight: Tensor, x: Tensor, value: Callable[[Tensor], Tensor]
) -> Tensor:
    rule = watch.rules.get(id(weight), watch.default)
    y: Tensor = _Override.apply(x, value, lambda x, y, m: rule(layer, x, y, m))
    y._neonxc_layer = (x, layer, rule)  # type: ignore[attr-defined]  # for a BatchNorm that may follow
    return y


def _batch_norm(
    watch: Watch,
    func: Callable[..., Tensor],
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Fold into the linear layer before it; elsewhere keep the gradient, the shift absorbing its share."""
    if training or running_mean is None or running_var is None:
        raise ValueError("LRP needs BatchNorm in eval mode; call .eval() on the network first")
    norm = (running_mean, running_var, weight, bias, False, momentum, eps)
    source = getattr(input, "_neonxc_layer", None)
    # channels of a matrix product are its last dimension, those of a BatchNorm the second
    if source is None or (source[1].weight.ndim == 2 and input.ndim != 2):
        return func(input, *norm)
    x, layer, rule = source
    value = input.detach()
    scale = torch.rsqrt(running_var + eps) * (1.0 if weight is None else weight.detach())
    shift = (0.0 if bias is None else bias.detach()) - running_mean * scale
    column = [-1] + [1] * (value.ndim - 2)
    folded = LinearLayer(
        layer.weight * scale.reshape(-1, *[1] * (layer.weight.ndim - 1)),
        layer.bias * scale.reshape(column) + shift.reshape(column),
        layer.apply,
        layer.transpose,
    )
    return _Override.apply(x, lambda _: func(value, *norm), lambda x, y, m: rule(folded, x, y, m))


def _relu(watch: Watch, func: Callable[..., Tensor], input: Tensor, inplace: bool = False) -> Tensor:
    result = torch.relu(input)
    return watch.in_place(input, result) if inplace or func.__name__.endswith("_") else result


def _activation(watch: Watch, func: Callable[..., Tensor], input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Pass relevance on unchanged: the multiplier is scaled by ``a(z) / z``."""
    inplace = kwargs.pop("inplace", False)

    def backward(z: Tensor, a: Tensor, m: Tensor) -> Tensor:
        return m * torch.where(z == 0, torch.zeros_like(z), a / z)

    result = _Override.apply(input, lambda z: func(z, *args, **kwargs), backward)
    return watch.in_place(input, result) if inplace else result


def _normalize(
    watch: Watch,
    func: Callable[..., Tensor],
    input: Tensor,
    p: float = 2.0,
    dim: Any = 1,
    eps: float = 1e-12,
    out: None = None,
) -> Tensor:
    """Hold the norm constant."""
    norm = torch.linalg.vector_norm(input.detach(), p, dim=dim, keepdim=True).clamp(min=eps)
    return input / norm


def _dropout(
    watch: Watch,
    func: Callable[..., Tensor],
    input: Tensor,
    p: float = 0.5,
    training: bool = True,
    inplace: bool = False,
) -> Tensor:
    if training and p > 0:
        raise ValueError("LRP needs dropout in eval mode; call .eval() on the network first")
    return input


HANDLERS: dict[Any, Callable[..., Tensor]] = {
    **dict.fromkeys((torch.conv1d, torch.conv2d, torch.conv3d), _convolution),
    F.linear: _linear,
    **dict.fromkeys((F.batch_norm, torch.batch_norm), _batch_norm),
    **dict.fromkeys((F.relu, torch.relu, torch.relu_, Tensor.relu, Tensor.relu_), _relu),
    **dict.fromkeys((F.relu6, F.hardtanh), _activation),
    F.normalize: _normalize,
    **dict.fromkeys((F.dropout, F.dropout1d, F.dropout2d, F.dropout3d), _dropout),
}


def _each(value: Any, n: int) -> list[int]:
    return [value] * n if isinstance(value, int) else list(value) * (n if len(value) == 1 else 1)
