"""The table of operations: what happens at each, for the engine and for the documentation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from inspect import signature
from types import SimpleNamespace
from typing import Any, Literal, TypeVar

import torch

Function = TypeVar("Function", bound=Callable[..., Any])
Accepts = Literal["one", "several", "gates", "factors"]


@dataclass(frozen=True)
class Operation:
    """What happens at an operation.

    Attributes
    ----------
    run : callable or None
        Computes its value, with the backward pass that LRP wants: called with the watch, PyTorch's function and
        its arguments. None: the value is a constant.
    what : str
        The same in words, for the documentation.
    accepts : {"one", "several", "gates", "factors"}
        Which arguments may depend on the network's input: the first one alone; several; several, where those
        after the first may be gates; several, where each may be a gate.
    """

    run: Callable[..., Any] | None
    what: str
    accepts: Accepts


OPERATIONS: dict[str, Operation] = {}
"""Operations by the name that PyTorch gives their functions."""


def operation(names: str, what: str, accepts: Accepts = "one") -> Callable[[Function | None], Function | None]:
    """Enter operations, named in one string, into the table."""

    def enter(run: Function | None) -> Function | None:
        OPERATIONS.update(dict.fromkeys(names.split(), Operation(run, what, accepts)))
        return run

    return enter


def function_name(func: Any) -> str:
    """Name of a function as PyTorch calls it; of a property, its own."""
    name: str = getattr(func, "__name__", str(func))
    return getattr(func.__self__, "__name__", name) if name == "__get__" else name


_signature = cache(signature)
_NORM = ("input", "weight", "bias", "running_mean", "running_var")
_WITHOUT_SIGNATURE: dict[Any, tuple[str, ...]] = {
    torch.batch_norm: (*_NORM, "training", "momentum", "eps", "cudnn_enabled"),
    torch.instance_norm: (*_NORM, "use_input_stats", "momentum", "eps", "cudnn_enabled"),
}


def bound(func: Callable[..., Any], args: Any, kwargs: Any) -> SimpleNamespace:
    """Arguments of a call by their names."""
    if func in _WITHOUT_SIGNATURE:
        return SimpleNamespace(**dict(zip(_WITHOUT_SIGNATURE[func], args, strict=False)), **kwargs)
    call = _signature(func).bind(*args, **kwargs)
    call.apply_defaults()
    return SimpleNamespace(**call.arguments)


def check_eval(training: bool, what: str) -> None:
    """Raise ValueError where a network in training mode would draw at random or change itself."""
    if training:
        raise ValueError(f"LRP needs {what} in eval mode; call .eval() on the network first")
