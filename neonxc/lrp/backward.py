"""Autograd functions whose backward pass propagates LRP multipliers instead of gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from neonxc.lrp.layer import quotient


class CustomBackward(torch.autograd.Function):
    """A value computed from x, with a function that computes the multiplier at x from that at the value.

    ``compute()`` returns the value and the tensors to save; ``backward_rule(m, *saved)`` returns the multiplier.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, compute: Callable[[], tuple[Tensor, ...]], backward_rule: Callable[..., Tensor]
    ) -> Tensor:
        """Compute the value."""
        y, *saved = compute()
        ctx.save_for_backward(*saved)
        ctx.backward_rule = backward_rule
        return y

    @staticmethod
    def backward(ctx: Any, m: Tensor) -> tuple[Tensor, None, None]:
        """Compute the multiplier at x."""
        return ctx.backward_rule(m, *ctx.saved_tensors), None, None


def with_backward(
    x: Tensor, compute: Callable[[], tuple[Tensor, ...]], backward_rule: Callable[..., Tensor]
) -> Tensor:
    """Compute a value from x that has its own backward rule; see :class:`CustomBackward`."""
    result: Tensor = CustomBackward.apply(x, compute, backward_rule)
    return result


def elementwise(x: Tensor, function: Callable[[Tensor], Tensor], zero_value: float = 0.0) -> Tensor:
    """Apply an elementwise function, through which relevance passes unchanged."""

    def compute() -> tuple[Tensor, Tensor]:
        z = x.detach()
        y = replace_zeros(function(z), zero_value)
        return y, quotient(y, z)

    return with_backward(x, compute, torch.mul)


def halve_relevance(y: Tensor) -> Tensor:
    """Halve the relevance that flows back from a product, so that each of its two factors gets half."""
    if y.requires_grad:
        y.register_hook(lambda m: m / 2)
    return y


def tiny_value(dtype: torch.dtype) -> float:
    """A value that replaces zeros which receive relevance, so that multipliers (relevance / value) are finite."""
    return float(torch.finfo(dtype).tiny ** 0.5)


def replace_zeros(values: Tensor, zero_value: float) -> Tensor:
    """Replace zeros by `zero_value`, unless that is 0 itself."""
    return values.masked_fill(values == 0, zero_value) if zero_value else values
