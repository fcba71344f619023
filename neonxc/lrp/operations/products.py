"""Products and quotients, and operations that PyTorch composes of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._pytree import tree_map

from neonxc.lrp.layer import LinearLayer, halve_relevance
from neonxc.lrp.operations.linear import by_gradient, constants, linear_output
from neonxc.lrp.operations.passing import input_normalization
from neonxc.lrp.table import function_name, operation
from neonxc.lrp.tensor_info import requiring_grad, tensors
from neonxc.lrp.tracer import Tracer

_SCALINGS = "mul multiply __mul__ __rmul__"
_MATRICES = "matmul __matmul__ __rmatmul__ mm bmm mv dot einsum inner tensordot"
_NAMES = (  # keywords of operands
    *("input", "a", "b", "mat2", "batch2", "other", "vec", "vec2", "tensor", "input1", "input2", "weight"),
)


def _operands(args: Any, kwargs: Any) -> tuple[Any, ...]:
    """Operands by position; keyword operands are removed from `kwargs`."""
    return (*args, *(kwargs.pop(name) for name in _NAMES if name in kwargs))


@operation(
    f"{_SCALINGS} {_MATRICES} outer bilinear",
    "a matrix product with a weight follows the composite's rule, whichever function computes it; other products "
    "with a constant or a gate scale the multiplier; of two factors that depend on the input, each gets half of "
    "the relevance",
    "factors",
)
def _product(tracer: Tracer, func: Callable[..., Tensor], *args: Any, **kwargs: Any) -> Any:
    args, name = _operands(args, kwargs), function_name(func)
    sources = requiring_grad(args)
    if len(sources) > 2:
        return tracer.as_gate(func, args, kwargs)
    if len(sources) == 2:
        return halve_relevance(func(*args, **kwargs))
    table = tracer.tensors  # a weight of the network, or a value that was computed from one
    weight = next((t for t in tensors(args) if table[t].owner and not table.depends_on_input(t)), None)
    if name in _MATRICES.split() and weight is not None:
        return _matrix_product(tracer, func, sources[0], weight, args, kwargs)
    y = func(*args, **kwargs)
    return input_normalization(tracer, sources, y) if name in _SCALINGS.split() else y


def _matrix_product(
    tracer: Tracer, func: Callable[..., Tensor], x: Tensor, weight: Tensor, args: Any, kwargs: Any
) -> Any:
    """Compute a product of x with a weight of the network as a linear layer."""
    plain = func.__name__ in ("matmul", "__matmul__", "mm") and not kwargs
    if plain and args[1] is weight and weight.ndim == 2:
        return tracer.run(F.linear, x, tracer.tensors.inherit_owner(weight.mT, [weight]))

    def apply(x_: Tensor, w: Tensor) -> Tensor:
        return func(*tree_map(lambda t: x_ if t is x else w if t is weight else t, args), **kwargs)

    (w,) = constants(x, weight)
    return linear_output(
        tracer, weight, LinearLayer(w, 0.0, apply, by_gradient(apply)), x, lambda: apply(x.detach(), w)
    )


@operation("div divide true_divide __div__ __truediv__", "the divisor is held constant", "gates")
def _quotient(tracer: Tracer, func: Callable[..., Tensor], *args: Any, **kwargs: Any) -> Any:
    x, divisor, *rest = _operands(args, kwargs)
    if kwargs.get("rounding_mode") or not requiring_grad(x):
        return tracer.as_gate(func, (x, divisor, *rest), kwargs)
    divisor = divisor.detach() if isinstance(divisor, Tensor) else divisor
    return input_normalization(tracer, [x], func(x, divisor, *rest, **kwargs))


_PARTS = "as the sums and products that they consist of"


operation("lerp", _PARTS, "decomposed")(lambda input, end, weight: input + (end - input) * weight)
operation("addcmul", _PARTS, "decomposed")(
    lambda input, tensor1, tensor2, *, value=1: torch.add(input, tensor1 * tensor2, alpha=value)
)
operation("addcdiv", _PARTS, "decomposed")(
    lambda input, tensor1, tensor2, *, value=1: torch.add(input, tensor1 / tensor2, alpha=value)
)


@operation("addmm baddbmm", _PARTS, "decomposed")
def _add_product(input: Tensor, *factors: Tensor, beta: float = 1, alpha: float = 1, **named: Tensor) -> Tensor:
    first, second = (*factors, *(named[name] for name in sorted(named)))
    return torch.add(beta * input, first @ second, alpha=alpha)


@operation(
    "pow __pow__ square", "a square is a product of two equal factors; other powers are gates, held constant"
)
def _power(tracer: Tracer, func: Callable[..., Tensor], input: Any, exponent: Any = 2) -> Any:
    if isinstance(exponent, (int, float)) and exponent == 2:
        return tracer.run(torch.mul, input, input)
    return tracer.as_gate(torch.pow, (input, exponent), {})
