"""Products and quotients, and what PyTorch computes in one call of sums and products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._pytree import tree_map

from neonxc.lrp.backward import halved
from neonxc.lrp.known import dependent, tensors
from neonxc.lrp.layer import LinearLayer
from neonxc.lrp.operations.linear import by_gradient, constants, give
from neonxc.lrp.operations.plain import normalised
from neonxc.lrp.table import function_name, operation
from neonxc.lrp.watch import Watch

_SCALINGS = "mul multiply __mul__ __rmul__"
_MATRICES = "matmul __matmul__ __rmatmul__ mm bmm mv dot einsum inner tensordot"
_NAMES = (  # by which operands may be given
    *("input", "a", "b", "mat2", "batch2", "other", "vec", "vec2", "tensor", "input1", "input2", "weight"),
)


def _operands(args: Any, kwargs: Any) -> tuple[Any, ...]:
    """Operands by position, whatever PyTorch calls them; the other arguments stay."""
    return (*args, *(kwargs.pop(name) for name in _NAMES if name in kwargs))


@operation(
    f"{_SCALINGS} {_MATRICES} outer bilinear",
    "a matrix product by a weight follows the composite's rule, whatever function computes it; another product by "
    "a constant or a gate is a scaling; of two values that depend on the input each gets half of the relevance",
    "factors",
)
def _product(watch: Watch, func: Callable[..., Tensor], *args: Any, **kwargs: Any) -> Any:
    args, name = _operands(args, kwargs), function_name(func)
    sources = dependent(args)
    if len(sources) > 2:
        return watch.hold(func, args, kwargs)
    if len(sources) == 2:
        return halved(func(*args, **kwargs))
    if name in _MATRICES.split() and (weight := _weight(watch, args)) is not None:
        return _matrix_product(watch, func, sources[0], weight, args, kwargs)
    y = func(*args, **kwargs)
    return normalised(watch, sources, y) if name in _SCALINGS.split() else y


def _weight(watch: Watch, args: Any) -> Tensor | None:
    """Return the factor that is made of the network's weights."""
    known = watch.known
    return next((t for t in tensors(args) if known[t].owner and not known.varies(t)), None)


def _matrix_product(
    watch: Watch, func: Callable[..., Tensor], x: Tensor, weight: Tensor, args: Any, kwargs: Any
) -> Any:
    """Give a product of x and a weight of the network's, however it is called: a linear layer."""
    plain = func.__name__ in ("matmul", "__matmul__", "mm") and not kwargs
    if plain and args[1] is weight and weight.ndim == 2:
        return watch.run(F.linear, x, watch.known.derive(weight.mT, [weight]))

    def apply(x_: Tensor, w: Tensor) -> Tensor:
        return func(*tree_map(lambda t: x_ if t is x else w if t is weight else t, args), **kwargs)

    (w,) = constants(x, weight)
    return give(watch, weight, LinearLayer(w, 0.0, apply, by_gradient(apply)), x, lambda: apply(x.detach(), w))


@operation("div divide true_divide __div__ __truediv__", "the divisor is held constant", "gates")
def _quotient(watch: Watch, func: Callable[..., Tensor], *args: Any, **kwargs: Any) -> Any:
    x, divisor, *rest = _operands(args, kwargs)
    if kwargs.get("rounding_mode") or not dependent(x):
        return watch.hold(func, (x, divisor, *rest), kwargs)
    divisor = divisor.detach() if isinstance(divisor, Tensor) else divisor
    return normalised(watch, [x], func(x, divisor, *rest, **kwargs))


_PARTS = "as the sums and products that they are"


@operation("lerp", _PARTS, "parts")
def _lerp(input: Tensor, end: Tensor, weight: Any) -> Tensor:
    return input + (end - input) * weight


@operation("addcmul", _PARTS, "parts")
def _addcmul(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: float = 1) -> Tensor:
    return torch.add(input, tensor1 * tensor2, alpha=value)


@operation("addcdiv", _PARTS, "parts")
def _addcdiv(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: float = 1) -> Tensor:
    return torch.add(input, tensor1 / tensor2, alpha=value)


@operation("addmm", _PARTS, "parts")
def _addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    return torch.add(beta * input, mat1 @ mat2, alpha=alpha)


@operation("baddbmm", _PARTS, "parts")
def _baddbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    return torch.add(beta * input, batch1 @ batch2, alpha=alpha)


@operation(
    "pow __pow__ square", "a square is a product of two equal values; other powers are held constant as gates"
)
def _power(watch: Watch, func: Callable[..., Tensor], input: Any, exponent: Any = 2) -> Any:
    if isinstance(exponent, (int, float)) and exponent == 2:
        return watch.run(torch.mul, input, input)
    return watch.hold(torch.pow, (input, exponent), {})
