"""Linear layers (convolutions and matrix products), other products, and quotients.

The backward pass of a product depends on which of its factors depend on the network's input:

    matrix product with a constant                   a linear layer W x, which follows the composite's rule
    product with a constant, number by number        a scale, which may be folded; else the gradient
    product with a gate, quotient                    the gradient, the gate or divisor being held constant
    two factors that depend on the input             half of the gradient for each, so that each gets half of
                                                     the relevance: y m = x_1 (x_2 m / 2) + x_2 (x_1 m / 2)
    three or more of them                            a gate
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from neonxc.lrp.layer import LinearLayer, Scaling
from neonxc.lrp.operations.affine import column, constants, linear_output, operands, scaled_and_shifted
from neonxc.lrp.tensor_info import mapped, requiring_grad, tensors
from neonxc.lrp.tensor_table import Arguments, Function, Keywords, arguments, function_name, operation
from neonxc.lrp.tracer import Tracer

_RULE = "the composite's rule; if the weight depends on the input too, the rule of products"

_SCALINGS = "mul multiply __mul__ __rmul__"
_MATRICES = "matmul __matmul__ __rmatmul__ linalg_matmul mm bmm mv dot einsum inner tensordot _sparse_mm"

Apply = Callable[..., Tensor]
Transpose = Callable[[Tensor, Tensor, Tensor], Tensor]


def _layer_with_bias(
    tracer: Tracer,
    apply: Apply,
    operands: tuple[Tensor, Tensor, Tensor | None],
    transpose: Transpose,
    scale_outputs: Scaling,
    output_dimension: int = 1,
    channels: int | None = None,
) -> Any:
    """Compute ``apply(input, weight, bias)``, for parameters that are constant or depend on the input."""
    input, weight, bias = operands
    table = tracer.table
    separate_bias = None  # added by an operation of its own if a parameter depends on the input
    if table.depends_on_input(weight) or table.depends_on_input(bias):
        separate_bias = bias
        bias = None

    gate = table[weight].gate
    if requiring_grad(weight):
        y = _product(tracer, apply, input, weight)
    elif gate is None:
        w, b = constants(input, weight, bias)
        layer = LinearLayer(w, column(b, weight.ndim - 2), apply, transpose, channels)
        compute = partial(apply, input.detach(), w, b)
        y = linear_output(tracer, weight, layer, input, compute, scale_outputs, output_dimension)
    elif requiring_grad(input):
        y = tracer.plain(apply, (input, weight), {})
    else:
        y = tracer.as_gate(apply, (input, weight), {}, gate)

    if separate_bias is None:
        return y
    shape = (-1, *[1] * (weight.ndim - 2))
    return tracer.run(torch.add, y, tracer.run(torch.reshape, separate_bias, shape))


@operation("linear", _RULE, "gates")
def _linear(tracer: Tracer, func: Apply, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    def transpose(m: Tensor, w: Tensor, x: Tensor) -> Tensor:
        return m @ w

    operands = (input, weight, bias)
    return _layer_with_bias(tracer, func, operands, transpose, _scale_rows, output_dimension=-1, channels=-1)


@operation("conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d", _RULE, "gates")
def _convolution(tracer: Tracer, func: Apply, *args: Any, **kwargs: Any) -> Any:
    options = arguments(func, args, kwargs)
    input = options.pop("input")
    weight = options.pop("weight")
    bias = options.pop("bias")
    apply = partial(func, **options)
    n = weight.ndim - 2
    groups = options["groups"]

    def scale_columns(w: Tensor, scale: Tensor) -> Tensor:  # outputs are dimension 1 of each group's weight
        by_group = w.unflatten(0, (groups, -1))  # [groups, inputs, outputs, ...]
        scaled = by_group * scale.reshape(groups, 1, -1, *[1] * n)
        return scaled.flatten(0, 1)

    def per_dimension(name: str) -> tuple[int, ...]:
        size = options[name]
        return (size,) * n if isinstance(size, int) else size

    def convolved(m: Tensor, w: Tensor, x: Tensor) -> Tensor:
        sizes = [per_dimension(name) for name in ("stride", "padding", "dilation")]
        mask = [True, False, False]  # the gradient of x alone
        gradients = torch.ops.aten.convolution_backward(m, x, w, None, *sizes, False, (0,) * n, groups, mask)
        gradient: Tensor = gradients[0]
        return gradient

    is_transposed = func.__name__.startswith("conv_transpose")
    scale_outputs = scale_columns if is_transposed else _scale_rows
    transpose: Transpose = convolved
    if is_transposed or isinstance(options["padding"], str):
        transpose = by_gradient(apply)
    channels = -n - 1 if groups == 1 and not is_transposed else None
    return _layer_with_bias(tracer, apply, (input, weight, bias), transpose, scale_outputs, channels=channels)


def by_gradient(apply: Apply) -> Transpose:
    """Return the transpose of a linear function of x, computed by autograd."""

    def transpose(m: Tensor, w: Tensor, x: Tensor) -> Tensor:
        vjp = torch.func.vjp(lambda x: apply(x, w), x)[1]  # after the value itself
        (gradient,) = vjp(m)
        # sums return a gradient that is expanded, to which nothing can be added in place
        contiguous: Tensor = gradient.contiguous()
        return contiguous

    return transpose


def _scale_rows(weight: Tensor, scale: Tensor) -> Tensor:
    """Scale the outputs of a weight, which are its dimension 0."""
    return weight * column(scale, weight.ndim - 1)


@operation(
    f"{_SCALINGS} {_MATRICES} outer bilinear",
    "a matrix product with a constant, be it a parameter or not, follows the composite's rule, whichever function "
    "computes it; a scale and a shift per channel are folded as those of `batch_norm`; other products with a "
    "constant, and those with a gate, scale the multiplier; of two factors that depend on the input, each "
    "gets half of the relevance",
    "factors",
)
def _product(tracer: Tracer, func: Apply, *args: Any, **kwargs: Any) -> Any:
    args = operands(args, kwargs)
    name = function_name(func)
    sources = requiring_grad(args)
    if name == "_sparse_mm" and len(args) > 2:
        reduction = args[2]
        if reduction != "sum":  # the mean or the maximum of products
            return tracer.as_gate(func, args, kwargs)
        args = args[:2]
    if len(sources) > 2:
        return tracer.as_gate(func, args, kwargs)
    if len(sources) == 2:
        y = tracer.plain(func, args, kwargs)
        y.register_hook(lambda m: m / 2)  # each of the two factors gets half of the relevance
        return y
    (x,) = sources
    table = tracer.table
    factors = [value for value in tensors(args) if not table.depends_on_input(value)]
    if name in _MATRICES.split() and len(factors) == 1 and not table.varies(factors[0]):
        return _matrix_product(tracer, func, x, factors[0], args, kwargs)
    y = tracer.plain(func, args, kwargs)
    if name not in _SCALINGS.split():
        return y
    factor = args[0] if args[1] is x else args[1]
    return scaled_and_shifted(tracer, x, y, factor, None)


def _matrix_product(
    tracer: Tracer, func: Function, x: Tensor, weight: Tensor, args: Arguments, kwargs: Keywords
) -> Any:
    """Compute a product of x with a matrix that is the same for every input as a linear layer."""
    is_matmul = func.__name__ in ("matmul", "__matmul__", "linalg_matmul", "mm") and not kwargs
    if is_matmul and args[1] is weight and weight.ndim == 2:  # x W is what nn.Linear computes of W'
        transposed = tracer.table.inherit_owner(weight.mT, [weight])
        return tracer.run(F.linear, x, transposed)

    def apply(new_x: Tensor, new_weight: Tensor) -> Tensor:
        def replaced(operand: Tensor) -> Tensor:
            if operand is x:
                return new_x
            return new_weight if operand is weight else operand

        y: Tensor = func(*mapped(replaced, args), **kwargs)
        return y

    (w,) = constants(x, weight)
    layer = LinearLayer(w, 0.0, apply, by_gradient(apply))
    return linear_output(tracer, weight, layer, x, partial(apply, x.detach(), w))


@operation("div divide true_divide __div__ __truediv__", "the divisor is held constant", "gates")
def _quotient(tracer: Tracer, func: Apply, *args: Any, **kwargs: Any) -> Any:
    x, divisor, *rest = operands(args, kwargs)
    if kwargs.get("rounding_mode") or not requiring_grad(x):
        return tracer.as_gate(func, (x, divisor, *rest), kwargs)
    factor = divisor  # which a gate remains
    if not tracer.table.varies(divisor):
        reciprocal = x.new_ones(()) / divisor
        factor = tracer.table.inherit_owner(reciprocal, tensors(divisor))
    if isinstance(divisor, Tensor):
        divisor = divisor.detach()
    y = tracer.plain(func, (x, divisor, *rest), kwargs)
    return scaled_and_shifted(tracer, x, y, factor, None)


_PARTS = "as the sums and products that they consist of"


operation("lerp", _PARTS, "decomposed")(lambda input, end, weight: input + (end - input) * weight)
operation("addcmul", _PARTS, "decomposed")(
    lambda input, tensor1, tensor2, *, value=1: torch.add(input, tensor1 * tensor2, alpha=value)
)
operation("addcdiv", _PARTS, "decomposed")(
    lambda input, tensor1, tensor2, *, value=1: torch.add(input, tensor1 / tensor2, alpha=value)
)


@operation("addmm baddbmm _sparse_addmm", _PARTS, "decomposed")
def _add_product(input: Tensor, *factors: Tensor, beta: float = 1, alpha: float = 1, **named: Tensor) -> Tensor:
    keywords = [named[name] for name in sorted(named)]  # mat1 and mat2, or batch1 and batch2
    first, second = (*factors, *keywords)
    return torch.add(beta * input, first @ second, alpha=alpha)


@operation("linalg_multi_dot chain_matmul", _PARTS, "decomposed")
def _multi_dot(*factors: Any, **named: Any) -> Tensor:
    if len(factors) == 1 and not isinstance(factors[0], Tensor):  # a list of them
        factors = tuple(factors[0])
    matrices = named.get("tensors", named.get("matrices", factors))
    return reduce(torch.matmul, tuple(matrices))


@operation(
    "pow __pow__ square", "a square is a product of two equal factors; other powers are gates, held constant"
)
def _power(tracer: Tracer, func: Apply, input: Any, exponent: Any = 2) -> Any:
    if isinstance(exponent, (int, float)) and exponent == 2:
        return tracer.run(torch.mul, input, input)
    return tracer.as_gate(torch.pow, (input, exponent), {})
