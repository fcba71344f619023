"""Products by the network's weights, and what PyTorch computes in one call of sums and products."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._pytree import tree_map

from neonxc.lrp.layer import LinearLayer
from neonxc.lrp.operations.linear import constants, give
from neonxc.lrp.operations.registry import handles

if TYPE_CHECKING:
    from neonxc.lrp.watch import Watch


def matrix_product(
    watch: Watch, func: Callable[..., Tensor], x: Tensor, weight: Tensor, args: Any, kwargs: Any
) -> Tensor:
    """Give a product of x and a weight of the network's, however it is called: a linear layer."""
    plain = func.__name__ in ("matmul", "__matmul__", "mm") and not kwargs
    if plain and args[1] is weight and weight.ndim == 2:
        return watch.run(F.linear, x, watch.layers.derive(weight.mT, [weight]))

    def apply(x_: Tensor, w: Tensor) -> Tensor:
        return func(*tree_map(lambda t: x_ if t is x else w if t is weight else t, args), **kwargs)

    def transpose(m: Tensor, w: Tensor, x: Tensor) -> Tensor:
        pulled: Tensor = torch.func.vjp(lambda x: apply(x, w), x)[1](m)[0]
        return pulled

    (w,) = constants(x, weight)
    return give(watch, weight, LinearLayer(w, 0.0, apply, transpose), x, lambda: apply(x.detach(), w))


@handles(
    *(torch.lerp, Tensor.lerp, torch.addcmul, Tensor.addcmul, torch.addcdiv, Tensor.addcdiv),
    what="as the sums and products that they are",
    also=("first", "second"),
    gated=True,
)
def _sum_with_product(
    watch: Watch, func: Callable[..., Tensor], input: Tensor, first: Any, second: Any, *, value: float = 1.0
) -> Tensor:
    if func.__name__ == "lerp":
        first = watch.run(torch.sub, first, input)
    factor = torch.div if func.__name__ == "addcdiv" else torch.mul
    scaled = watch.run(torch.mul, watch.run(factor, first, second), value)
    return watch.run(torch.add, input, scaled)


@handles(
    *(torch.pow, Tensor.pow, Tensor.__pow__, torch.square, Tensor.square),
    what="a square is a product of two equal values; other powers are held constant as gates",
)
def _power(watch: Watch, func: Callable[..., Tensor], input: Any, exponent: Any = 2) -> Any:
    if isinstance(exponent, (int, float)) and exponent == 2:
        return watch.run(torch.mul, input, input)
    return watch.hold(torch.pow, (input, exponent), {})


@handles(F.grid_sample, what="in proportion to the values")
def _sample(watch: Watch, func: Callable[..., Tensor], input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    return func(input, *args, **kwargs)
