"""Linear layers: convolutions, matrix products and BatchNorm."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from neonxc.lrp.backward import halved, nonzero, pulled
from neonxc.lrp.layer import LinearLayer, Recorded, Scaling
from neonxc.lrp.table import check_eval, operation
from neonxc.lrp.watch import Watch

_RULE = "the composite's rule; where the weight depends on the input as well, a product of two values"
_FOLDED = "folded into the linear layer before it; elsewhere the composite's rule"

Apply = Callable[..., Tensor]
Transpose = Callable[[Tensor, Tensor, Tensor], Tensor]


def give(
    watch: Watch,
    owner: Tensor,
    layer: LinearLayer,
    x: Tensor,
    compute: Callable[[], Tensor],
    scale_outputs: Scaling | None = None,
    outputs: int = 1,
) -> Tensor:
    """Give the value of a linear layer, which takes its place among the others."""
    rule = watch.layers.rule(watch.known[owner].owner, owner, x)
    return _record(watch, compute, Recorded(x, layer, rule, scale_outputs, outputs))


def _record(watch: Watch, compute: Callable[[], Tensor], recorded: Recorded) -> Tensor:
    recorded.layer.memory = {} if watch.several else None
    x = recorded.x
    result = pulled(x, lambda: (nonzero(compute(), watch.tiny), x), recorded.pull)
    recorded.y = result.detach()
    watch.known.note(result, layer=recorded)  # for a BatchNorm or ReLU that may follow
    return result


def _weighted(
    watch: Watch,
    apply: Apply,
    operands: tuple[Tensor, Tensor, Tensor | None],
    transpose: Transpose,
    scale_outputs: Scaling,
    outputs: int = 1,
    channels: int | None = None,
) -> Any:
    """Give ``apply(input, weight, bias)``."""
    input, weight, bias = operands
    behind = [1] * (weight.ndim - 2)
    apart = None  # a bias that is added as a value of its own
    if watch.known.varies(weight) or watch.known.varies(bias):
        bias, apart = None, bias
    if watch.known.varies(weight):
        y = _product(watch, apply, input, weight)
    else:
        w, b = constants(input, weight, bias)
        column = 0.0 if b is None else b.reshape(-1, *behind)
        layer = LinearLayer(w, column, apply, transpose, channels)
        y = give(watch, weight, layer, input, lambda: apply(input.detach(), w, b), scale_outputs, outputs)
    return y if apart is None else watch.run(torch.add, y, watch.run(torch.reshape, apart, (-1, *behind)))


def _product(watch: Watch, apply: Apply, input: Tensor, weight: Tensor) -> Any:
    """Give a layer whose weight depends on the input as well: a product of two values."""
    if not (weight.requires_grad or input.requires_grad):
        return watch.hold(apply, (input, weight), {}, watch.known[weight].held)
    y = apply(input, weight)
    return halved(y) if weight.requires_grad and input.requires_grad else y


@operation("linear", _RULE, "gates")
def _linear(watch: Watch, func: Apply, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    operands = input, weight, bias
    return _weighted(watch, func, operands, lambda m, w, x: m @ w, _scale_rows, outputs=-1, channels=-1)


_OPTIONS = {
    False: {"stride": 1, "padding": 0, "dilation": 1, "groups": 1},
    True: {"stride": 1, "padding": 0, "output_padding": 0, "groups": 1, "dilation": 1},
}
"""Of convolutions and transposed ones, in the order in which PyTorch takes them."""


@operation("conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d", _RULE, "gates")
def _convolution(
    watch: Watch, func: Apply, input: Tensor, weight: Tensor, bias: Tensor | None = None, *args: Any, **kwargs: Any
) -> Any:
    n, transposed = weight.ndim - 2, func.__name__.startswith("conv_transpose")
    default = _OPTIONS[transposed]
    options = {**default, **dict(zip(default, args, strict=False)), **kwargs}
    groups = options["groups"]

    def apply(x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
        return func(x, w, b, **options)

    def scale_columns(w: Tensor, scale: Tensor) -> Tensor:  # outputs are the second dimension, group by group
        return (w.unflatten(0, (groups, -1)) * scale.reshape(groups, 1, -1, *[1] * n)).flatten(0, 1)

    transpose = _transpose(weight, transposed, **options) or by_gradient(apply)
    operands, channels = (input, weight, bias), -n - 1 if groups == 1 and not transposed else None
    return _weighted(
        watch, apply, operands, transpose, scale_columns if transposed else _scale_rows, channels=channels
    )


def _transpose(
    weight: Tensor,
    transposed: bool,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    output_padding: Any = 0,
) -> Transpose | None:
    """Return the transpose of a convolution, None where the sides that "same" pads differ."""
    n = weight.ndim - 2
    if padding == "same":
        total = [d * (k - 1) for d, k in zip(_each(dilation, n), weight.shape[2:], strict=True)]
        if any(t % 2 for t in total):
            return None
        padding = [t // 2 for t in total]
    padding = 0 if padding == "valid" else padding
    stride, padding, dilation, output_padding = (_each(v, n) for v in (stride, padding, dilation, output_padding))

    def transpose(m: Tensor, w: Tensor, x: Tensor) -> Tensor:
        result: Tensor = torch.ops.aten.convolution_backward(
            m, x, w, None, stride, padding, dilation, transposed, output_padding, groups, [True, False, False]
        )[0]
        return result

    return transpose


@operation("batch_norm", _FOLDED)
def _batch_norm(
    watch: Watch,
    func: Apply,
    input: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    check_eval(training or running_mean is None or running_var is None, "BatchNorm")
    owner = running_mean if weight is None else weight
    mean, var, w, b = constants(input, running_mean, running_var, weight, bias)
    value = input.detach()

    def compute() -> Tensor:
        return F.batch_norm(value, mean, var, w, b, False, momentum, eps)

    scale = torch.rsqrt(var + eps) * (1.0 if w is None else w)
    shift = (0.0 if b is None else b) - mean * scale
    n = input.ndim - 2
    before = watch.known[input].layer
    if before is not None and before.scale_outputs is not None and before.outputs % input.ndim == 1:
        folded = replace(
            before.layer,
            weight=before.scale_outputs(before.layer.weight, scale),
            bias=before.layer.bias * _column(scale, n) + _column(shift, n),
        )
        return _record(watch, compute, replace(before, layer=folded, y=None, uses=0))

    def apply(x: Tensor, w: Tensor, _: Any = None) -> Tensor:
        return x * _column(w, n)

    layer = LinearLayer(scale, _column(shift, n), apply, apply)
    return give(watch, owner, layer, input, compute, torch.mul)


def by_gradient(apply: Apply) -> Transpose:
    """Return the transpose of any linear function of x."""

    def transpose(m: Tensor, w: Tensor, x: Tensor) -> Tensor:
        result: Tensor = torch.func.vjp(lambda x: apply(x, w), x)[1](m)[0]
        return result

    return transpose


def constants(like: Tensor, *tensors: Tensor | None) -> list[Any]:
    """Parameters as constants in the type of the computation: a half-precision network is explained in float32."""
    return [None if t is None else t.detach().to(like.dtype) for t in tensors]


def _scale_rows(weight: Tensor, scale: Tensor) -> Tensor:
    return weight * scale.reshape(-1, *[1] * (weight.ndim - 1))


def _column(values: Tensor | None, n: int) -> Any:
    """One value per channel, shaped to broadcast over n dimensions behind the channels."""
    return 0.0 if values is None else values.reshape(-1, *[1] * n)


def _each(value: Any, n: int) -> list[int]:
    return [value] * n if isinstance(value, int) else list(value) * (n if len(value) == 1 else 1)
