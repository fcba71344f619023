"""Linear layers: convolutions, matrix products and BatchNorm."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.modules.utils import _ntuple

from neonxc.lrp.layer import LinearLayer, RecordedLayer, Scaling, halve_relevance, replace_zeros, with_backward
from neonxc.lrp.table import arguments, check_eval, operation
from neonxc.lrp.tracer import Tracer

_RULE = "the composite's rule; if the weight depends on the input too, the rule of products"
_FOLDED = "folded into the linear layer before it; the composite's rule if there is none"

Apply = Callable[..., Tensor]
Transpose = Callable[[Tensor, Tensor, Tensor], Tensor]


def linear_output(
    tracer: Tracer,
    owner: Tensor,
    layer: LinearLayer,
    x: Tensor,
    compute: Callable[[], Tensor],
    scale_outputs: Scaling | None = None,
    outputs: int = 1,
) -> Tensor:
    """Compute the output of a linear layer, and register the layer."""
    rule = tracer.layers.rule(tracer.tensors[owner].owner, owner, x)
    return _record(tracer, compute, RecordedLayer(x, layer, rule, scale_outputs, outputs))


def _record(tracer: Tracer, compute: Callable[[], Tensor], recorded: RecordedLayer) -> Tensor:
    recorded.layer.memory = {} if tracer.several else None
    x = recorded.x
    result = with_backward(x, lambda: (replace_zeros(compute(), tracer.tiny), x), recorded.backward)
    recorded.y = result.detach()
    tracer.tensors.update(result, layer=recorded)  # a following BatchNorm or ReLU looks it up
    return result


def _layer_with_bias(
    tracer: Tracer,
    apply: Apply,
    operands: tuple[Tensor, Tensor, Tensor | None],
    transpose: Transpose,
    scale_outputs: Scaling,
    outputs: int = 1,
    channels: int | None = None,
) -> Any:
    """Compute ``apply(input, weight, bias)``, for parameters that are constant or depend on the input."""
    input, weight, bias = operands
    separate_bias = None  # added by an operation of its own if a parameter depends on the input
    if tracer.tensors.depends_on_input(weight) or tracer.tensors.depends_on_input(bias):
        bias, separate_bias = None, bias
    if tracer.tensors.depends_on_input(weight):
        y = _product(tracer, apply, input, weight)
    else:
        w, b = constants(input, weight, bias)
        layer = LinearLayer(w, _column(b, weight.ndim - 2), apply, transpose, channels)

        def compute() -> Tensor:
            return apply(input.detach(), w, b)

        y = linear_output(tracer, weight, layer, input, compute, scale_outputs, outputs)
    if separate_bias is None:
        return y
    return tracer.run(torch.add, y, tracer.run(torch.reshape, separate_bias, (-1, *[1] * (weight.ndim - 2))))


def _product(tracer: Tracer, apply: Apply, input: Tensor, weight: Tensor) -> Any:
    """Compute a layer whose weight depends on the input too, as a product of two values."""
    if not (weight.requires_grad or input.requires_grad):
        return tracer.as_gate(apply, (input, weight), {}, tracer.tensors[weight].gate)
    y = apply(input, weight)
    return halve_relevance(y) if weight.requires_grad and input.requires_grad else y


@operation("linear", _RULE, "gates")
def _linear(tracer: Tracer, func: Apply, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    operands = input, weight, bias
    return _layer_with_bias(tracer, func, operands, lambda m, w, x: m @ w, _scale_rows, outputs=-1, channels=-1)


@operation("conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d", _RULE, "gates")
def _convolution(tracer: Tracer, func: Apply, *args: Any, **kwargs: Any) -> Any:
    options = arguments(func, args, kwargs)
    operands = _, weight, _ = tuple(options.pop(name) for name in ("input", "weight", "bias"))
    n, groups, transposed = weight.ndim - 2, options["groups"], func.__name__.startswith("conv_transpose")

    def apply(x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
        return func(x, w, b, **options)

    def scale_columns(w: Tensor, scale: Tensor) -> Tensor:  # outputs are dimension 1 of each group's weight
        return (w.unflatten(0, (groups, -1)) * scale.reshape(groups, 1, -1, *[1] * n)).flatten(0, 1)

    def convolved(m: Tensor, w: Tensor, x: Tensor) -> Any:
        sizes = (_ntuple(n)(options[name]) for name in ("stride", "padding", "dilation"))
        wanted = [True, False, False]  # the gradient of x alone
        return torch.ops.aten.convolution_backward(m, x, w, None, *sizes, False, (0,) * n, groups, wanted)[0]

    transpose: Transpose = by_gradient(apply) if transposed or isinstance(options["padding"], str) else convolved
    channels = -n - 1 if groups == 1 and not transposed else None
    return _layer_with_bias(
        tracer, apply, operands, transpose, scale_columns if transposed else _scale_rows, channels=channels
    )


@operation("batch_norm", _FOLDED)
def _batch_norm(
    tracer: Tracer,
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
    before = tracer.tensors[input].layer
    if before is not None and before.scale_outputs is not None and before.outputs % input.ndim == 1:
        folded = replace(
            before.layer,
            weight=before.scale_outputs(before.layer.weight, scale),
            bias=before.layer.bias * _column(scale, n) + _column(shift, n),
        )
        return _record(tracer, compute, replace(before, layer=folded, y=None, uses=0))

    def apply(x: Tensor, w: Tensor, _: Any = None) -> Tensor:
        return x * _column(w, n)

    layer = LinearLayer(scale, _column(shift, n), apply, apply)
    return linear_output(tracer, owner, layer, input, compute, torch.mul)


def by_gradient(apply: Apply) -> Transpose:
    """Return the transpose of a linear function of x, computed by autograd."""

    def transpose(m: Tensor, w: Tensor, x: Tensor) -> Tensor:
        result: Tensor = torch.func.vjp(lambda x: apply(x, w), x)[1](m)[0]
        return result

    return transpose


def constants(like: Tensor, *tensors: Tensor | None) -> list[Any]:
    """Parameters as constants in the dtype of the computation, which is float32 for half-precision networks."""
    return [None if t is None else t.detach().to(like.dtype) for t in tensors]


def _scale_rows(weight: Tensor, scale: Tensor) -> Tensor:
    return weight * _column(scale, weight.ndim - 1)


def _column(values: Tensor | None, n: int) -> Any:
    """Reshape one value per channel to broadcast over the n dimensions after the channels."""
    return 0.0 if values is None else values.reshape(-1, *[1] * n)
