"""Linear layers (convolutions and matrix products), other products, and quotients."""

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
from neonxc.lrp.tensor_table import arguments, function_name, operation
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
    outputs: int = 1,
    channels: int | None = None,
) -> Any:
    """Compute ``apply(input, weight, bias)``, for parameters that are constant or depend on the input."""
    input, weight, bias = operands
    separate_bias = None  # added by an operation of its own if a parameter depends on the input
    if tracer.tensors.depends_on_input(weight) or tracer.tensors.depends_on_input(bias):
        bias, separate_bias = None, bias
    if requiring_grad(weight):
        y = _product(tracer, apply, input, weight)
    elif gate := tracer.tensors[weight].gate:
        run = tracer.plain if requiring_grad(input) else partial(tracer.as_gate, gate=gate)
        y = run(apply, (input, weight), {})
    else:
        w, b = constants(input, weight, bias)
        layer = LinearLayer(w, column(b, weight.ndim - 2), apply, transpose, channels)
        compute = partial(apply, input.detach(), w, b)
        y = linear_output(tracer, weight, layer, input, compute, scale_outputs, outputs)
    if separate_bias is None:
        return y
    return tracer.run(torch.add, y, tracer.run(torch.reshape, separate_bias, (-1, *[1] * (weight.ndim - 2))))


@operation("linear", _RULE, "gates")
def _linear(tracer: Tracer, func: Apply, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    return _layer_with_bias(
        tracer, func, (input, weight, bias), lambda m, w, x: m @ w, _scale_rows, outputs=-1, channels=-1
    )


@operation("conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d", _RULE, "gates")
def _convolution(tracer: Tracer, func: Apply, *args: Any, **kwargs: Any) -> Any:
    options = arguments(func, args, kwargs)
    operands = _, weight, _ = tuple(options.pop(name) for name in ("input", "weight", "bias"))
    n = weight.ndim - 2
    groups = options["groups"]
    transposed = func.__name__.startswith("conv_transpose")
    apply = partial(func, **options)

    def scale_columns(w: Tensor, scale: Tensor) -> Tensor:  # outputs are dimension 1 of each group's weight
        return (w.unflatten(0, (groups, -1)) * scale.reshape(groups, 1, -1, *[1] * n)).flatten(0, 1)

    def convolved(m: Tensor, w: Tensor, x: Tensor) -> Any:
        given = (options[name] for name in ("stride", "padding", "dilation"))
        sizes = ((size,) * n if isinstance(size, int) else size for size in given)
        wanted = [True, False, False]  # the gradient of x alone
        return torch.ops.aten.convolution_backward(m, x, w, None, *sizes, False, (0,) * n, groups, wanted)[0]

    transpose: Transpose = by_gradient(apply) if transposed or isinstance(options["padding"], str) else convolved
    channels = -n - 1 if groups == 1 and not transposed else None
    return _layer_with_bias(
        tracer, apply, operands, transpose, scale_columns if transposed else _scale_rows, channels=channels
    )


def by_gradient(apply: Apply) -> Transpose:
    """Return the transpose of a linear function of x, computed by autograd."""
    # sums return a gradient that is expanded, to which nothing can be added in place
    return lambda m, w, x: torch.func.vjp(lambda x: apply(x, w), x)[1](m)[0].contiguous()


def _scale_rows(weight: Tensor, scale: Tensor) -> Tensor:
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
        if args[2] != "sum":  # the mean or the maximum of products
            return tracer.as_gate(func, args, kwargs)
        args = args[:2]
    if len(sources) > 2:
        return tracer.as_gate(func, args, kwargs)
    if len(sources) == 2:
        y = tracer.plain(func, args, kwargs)
        y.register_hook(lambda m: m / 2)  # each of the two factors gets half of the relevance
        return y
    table = tracer.tensors
    given = [t for t in tensors(args) if not table.depends_on_input(t)]
    if name in _MATRICES.split() and len(given) == 1 and not table.varies(given[0]):
        return _matrix_product(tracer, func, sources[0], given[0], args, kwargs)
    y = tracer.plain(func, args, kwargs)
    if name not in _SCALINGS.split():
        return y
    factor = args[0] if args[1] is sources[0] else args[1]
    return scaled_and_shifted(tracer, sources[0], y, factor, None)


def _matrix_product(tracer: Tracer, func: Apply, x: Tensor, weight: Tensor, args: Any, kwargs: Any) -> Any:
    """Compute a product of x with a matrix that is the same for every input as a linear layer."""
    plain = func.__name__ in ("matmul", "__matmul__", "linalg_matmul", "mm") and not kwargs
    if plain and args[1] is weight and weight.ndim == 2:
        return tracer.run(F.linear, x, tracer.tensors.inherit_owner(weight.mT, [weight]))

    def apply(x_: Tensor, w: Tensor) -> Tensor:
        return func(*mapped(lambda t: x_ if t is x else w if t is weight else t, args), **kwargs)

    (w,) = constants(x, weight)
    layer = LinearLayer(w, 0.0, apply, by_gradient(apply))
    return linear_output(tracer, weight, layer, x, partial(apply, x.detach(), w))


@operation("div divide true_divide __div__ __truediv__", "the divisor is held constant", "gates")
def _quotient(tracer: Tracer, func: Apply, *args: Any, **kwargs: Any) -> Any:
    x, divisor, *rest = operands(args, kwargs)
    if kwargs.get("rounding_mode") or not requiring_grad(x):
        return tracer.as_gate(func, (x, divisor, *rest), kwargs)
    factor = divisor  # which a gate remains
    if not tracer.tensors.varies(divisor):
        factor = tracer.tensors.inherit_owner(x.new_ones(()) / divisor, tensors(divisor))
    divisor = divisor.detach() if isinstance(divisor, Tensor) else divisor
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
    first, second = (*factors, *(named[name] for name in sorted(named)))
    return torch.add(beta * input, first @ second, alpha=alpha)


@operation("linalg_multi_dot chain_matmul", _PARTS, "decomposed")
def _multi_dot(*factors: Any, **named: Any) -> Tensor:
    if len(factors) == 1 and not isinstance(factors[0], Tensor):  # a list of them
        factors = tuple(factors[0])
    matrices: tuple[Tensor, ...] = tuple(named.get("tensors", named.get("matrices", factors)))
    return reduce(torch.matmul, matrices)


@operation(
    "pow __pow__ square", "a square is a product of two equal factors; other powers are gates, held constant"
)
def _power(tracer: Tracer, func: Apply, input: Any, exponent: Any = 2) -> Any:
    if isinstance(exponent, (int, float)) and exponent == 2:
        return tracer.run(torch.mul, input, input)
    return tracer.as_gate(torch.pow, (input, exponent), {})
