"""Values with a backward pass of their own: multipliers come back as LRP wants them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from neonxc.lrp.layer import quotient


class Pulled(torch.autograd.Function):
    """A value computed from x, and the function that takes its multiplier back to x.

    ``compute()`` gives the value and the tensors that ``pull(m, *tensors)`` needs besides the multiplier.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, compute: Callable[[], tuple[Tensor, ...]], pull: Callable[..., Tensor]
    ) -> Tensor:
        """Compute the value."""
        y, *saved = compute()
        ctx.save_for_backward(*saved)
        ctx.pull = pull
        return y

    @staticmethod
    def backward(ctx: Any, m: Tensor) -> tuple[Tensor, None, None]:
        """Take the multiplier back."""
        return ctx.pull(m, *ctx.saved_tensors), None, None


def pulled(x: Tensor, compute: Callable[[], tuple[Tensor, ...]], pull: Callable[..., Tensor]) -> Tensor:
    """Return a value computed from x, with a backward pass of its own; see :class:`Pulled`."""
    result: Tensor = Pulled.apply(x, compute, pull)
    return result


def elementwise(x: Tensor, function: Callable[[Tensor], Tensor], stand_in: float = 0.0) -> Tensor:
    """Apply a function of single values; relevance passes it unchanged."""

    def compute() -> tuple[Tensor, Tensor]:
        z = x.detach()
        y = nonzero(function(z), stand_in)
        return y, quotient(y, z)

    return pulled(x, compute, torch.mul)


def halved(y: Tensor) -> Tensor:
    """Give each factor of a product half of its relevance."""
    if y.requires_grad:
        y.register_hook(lambda m: m / 2)
    return y


def tiny(dtype: torch.dtype) -> float:
    """What stands for zero where zeros have relevance: multipliers relevance / value stay finite."""
    return float(torch.finfo(dtype).tiny ** 0.5)


def nonzero(values: Tensor, stand_in: float) -> Tensor:
    """Put what is too small to matter in the place of zeros, so that relevance there has a multiplier."""
    return values.masked_fill(values == 0, stand_in) if stand_in else values
