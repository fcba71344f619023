"""The table of operations: what happens at each, for the engine and for the documentation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import torch
import torch.nn.functional as F

Function = TypeVar("Function", bound=Callable[..., Any])
Accepts = Literal["one", "several", "gates", "factors", "parts"]


class NoRule(Exception):
    """Raised by an operation that is written out in others, with what of it has no rule."""


@dataclass(frozen=True)
class Operation:
    """What happens at an operation.

    Attributes
    ----------
    run : callable
        Computes its value, with the backward pass that LRP wants: called with the watch, PyTorch's function and
        its arguments.
    what : str
        The same in words, for the documentation.
    accepts : {"one", "several", "gates", "factors", "parts"}
        Which arguments may depend on the network's input: the first one alone; several; several, where those
        after the first may be gates; several, where each may be a gate. "parts": the operation is written out in
        others, which decide; `run` is called with the arguments alone.
    """

    run: Callable[..., Any]
    what: str
    accepts: Accepts


OPERATIONS: dict[str, Operation] = {}
"""Operations by the name that PyTorch gives their functions."""

DETACHING = "detach", "data"


def operation(names: str, what: str, accepts: Accepts = "one") -> Callable[[Function], Function]:
    """Enter operations, named in one string, into the table."""

    def enter(run: Function) -> Function:
        OPERATIONS.update(dict.fromkeys(names.split(), Operation(run, what, accepts)))
        return run

    return enter


def function_name(func: Any) -> str:
    """Name of a function as PyTorch calls it; of a property, its own."""
    name: str = getattr(func, "__name__", str(func))
    return getattr(func.__self__, "__name__", name) if name == "__get__" else name


_NORM = ("input", "weight", "bias", "running_mean", "running_var")
_ORDERS: dict[Any, tuple[str, ...]] = {
    torch.batch_norm: (*_NORM, "training", "momentum", "eps", "cudnn_enabled"),
    torch.instance_norm: (*_NORM, "use_input_stats", "momentum", "eps", "cudnn_enabled"),
}


def functional(func: Any, args: Any, kwargs: Any) -> tuple[Any, Any, Any]:
    """Call the namesake in ``torch.nn.functional`` where PyTorch has two that take arguments in other orders."""
    if func not in _ORDERS:
        return func, args, kwargs
    kwargs = {**dict(zip(_ORDERS[func], args, strict=False)), **kwargs}
    kwargs.pop("cudnn_enabled")
    return getattr(F, func.__name__), (), kwargs


def check_eval(training: bool, what: str) -> None:
    """Raise ValueError where a network in training mode would draw at random or change itself."""
    if training:
        raise ValueError(f"LRP needs {what} in eval mode; call .eval() on the network first")
