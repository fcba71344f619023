"""Which operation is handled by what: for the engine, and for the documentation's table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

Function = Callable[..., Any]


@dataclass(frozen=True)
class Handler:
    """An operation's own way through the engine: called with the watch, the function and its arguments."""

    run: Function
    what: str
    also: tuple[str, ...] = ()  # arguments that may depend on the network's input, besides the first one
    gated: bool = False  # those may be gates, too

    def varying(self, args: Any, kwargs: Any) -> list[str]:
        """Names of the arguments, but for the first, that depend on the network's input."""
        given = signature(self.run).bind(None, None, *args, **kwargs).arguments
        return [name for name, value in list(given.items())[3:] if any(map(varies, tree_leaves(value)))]


HANDLERS: dict[Function, Handler] = {}


def handles(
    *functions: Function, what: str, also: tuple[str, ...] = (), gated: bool = False
) -> Callable[[Function], Function]:
    """Register a handler for PyTorch's functions; `what` happens is for the documentation."""

    def register(run: Function) -> Function:
        for function in functions:
            HANDLERS[function] = Handler(run, what, also, gated)
        return run

    return register


class Scaled(torch.autograd.Function):
    """A value `y` computed from x, through which multipliers come back times `slope`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, compute: Callable[[], tuple[Tensor, Tensor]]) -> Tensor:
        """Give y."""
        y, slope = compute()
        ctx.save_for_backward(slope)
        return y

    @staticmethod
    def backward(ctx: Any, m: Tensor) -> tuple[Tensor, None]:
        """Scale the multiplier."""
        (slope,) = ctx.saved_tensors
        return m * slope, None


class Ruled(torch.autograd.Function):
    """A value `y` computed from x, through which multipliers come back by a rule."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, compute: Callable[[], Tensor], rule: Callable[[Tensor, Tensor, Tensor], Tensor]
    ) -> Tensor:
        """Give y."""
        y = compute()
        ctx.save_for_backward(x, y)
        ctx.rule = rule
        return y

    @staticmethod
    def backward(ctx: Any, m: Tensor) -> tuple[Tensor, None, None]:
        """Apply the rule."""
        return ctx.rule(*ctx.saved_tensors, m), None, None


@dataclass
class Held:
    """Where a nonlinear function without a rule was called: its value may serve as a gate, and as nothing else."""

    name: str
    place: str


def held(value: Any) -> Held | None:
    """Where a value was computed that may only be a gate."""
    return getattr(value, "_neonxc_held", None) if isinstance(value, Tensor) else None


def depends_on_input(value: Any) -> bool:
    """Whether relevance can reach a value; no parameter requires gradients while a network is watched."""
    return isinstance(value, Tensor) and value.requires_grad


def varies(value: Any) -> bool:
    """Whether a value is another for another input of the network, be it as a gate."""
    return depends_on_input(value) or held(value) is not None


def tiny(dtype: torch.dtype) -> float:
    """What stands for zero where zeros have relevance: multipliers relevance / value stay finite."""
    return float(torch.finfo(dtype).tiny ** 0.5)


def nonzero(values: Tensor, stand_in: float) -> Tensor:
    """Put what is too small to matter in the place of zeros, so that relevance there has a multiplier."""
    return values.masked_fill(values == 0, stand_in) if stand_in else values


def elementwise(x: Tensor, function: Callable[[Tensor], Tensor], stand_in: float = 0.0) -> Tensor:
    """Apply a function of single values; relevance passes it unchanged."""

    def compute() -> tuple[Tensor, Tensor]:
        z = x.detach()
        y = nonzero(function(z), stand_in)
        return y, torch.where(z == 0, 0.0, y / z)

    result: Tensor = Scaled.apply(x, compute)
    return result
