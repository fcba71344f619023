"""The table of PyTorch operations that LRP propagates through, for the engine and for the documentation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from typing import Any, Literal, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx.operator_schemas import get_signature_for_torch_op

Function = TypeVar("Function", bound=Callable[..., Any])
Accepts = Literal["one", "several", "gates", "factors", "decomposed"]


class UnsupportedOptions(Exception):
    """A decomposed operation was called with options that LRP has no rule for; the message names them."""


@dataclass(frozen=True)
class Operation:
    """How LRP treats an operation.

    Attributes
    ----------
    run : callable
        Computes the operation's value with its LRP backward pass: ``run(tracer, func, *args, **kwargs)``.
    what : str
        Description of the backward pass, for the documentation.
    accepts : {"one", "several", "gates", "factors", "decomposed"}
        Which arguments may depend on the network's input. "one": the first argument alone; "several": any number
        of them; "gates": any number, and those after the first may be gates; "factors": any number, and each may
        be a gate. "decomposed": `run` expresses the operation by others, which check their own arguments; it is
        called with the operation's arguments alone.
    """

    run: Callable[..., Any]
    what: str
    accepts: Accepts


OPERATIONS: dict[str, Operation] = {}
"""Operations by the name that PyTorch gives their functions."""

DETACHING = "detach", "data"
LEAVING = (
    *("numpy", "__array__", "__cuda_array_interface__", "__dlpack__", "storage", "untyped_storage", "data_ptr"),
    *("tolist", "item", "__float__", "__int__", "__index__", "__complex__", "__deepcopy__"),
)
"""Functions that pass the values of a tensor on to where autograd does not follow."""


def operation(names: str, what: str, accepts: Accepts = "one") -> Callable[[Function], Function]:
    """Add operations to the table, given their names separated by spaces; a decorator."""

    def enter(run: Function) -> Function:
        OPERATIONS.update(dict.fromkeys(names.split(), Operation(run, what, accepts)))
        return run

    return enter


def function_name(func: Any) -> str:
    """The name of a function of PyTorch or of a property; operators of other libraries have their namespace."""
    func = getattr(func, "_opoverload", func)  # of a torch.library.custom_op
    qualified: str = getattr(getattr(func, "overloadpacket", func), "_qualified_op_name", "aten::")
    if not qualified.startswith("aten::"):
        return qualified
    name: str = getattr(func, "__name__", str(func))
    return getattr(func.__self__, "__name__", name) if name == "__get__" else name


def functional(func: Any, args: Any, kwargs: Any) -> tuple[Any, Any, Any]:
    """Translate ``torch.batch_norm`` and ``torch.instance_norm`` to the functions of ``torch.nn.functional``."""
    if func not in (torch.batch_norm, torch.instance_norm):
        return func, args, kwargs
    kwargs = arguments(func, args, kwargs)
    kwargs.pop("cudnn_enabled")
    return getattr(F, func.__name__), (), kwargs


def arguments(func: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    """The arguments of a function of PyTorch by name, with its defaults."""
    overloads = get_signature_for_torch_op(func) or [signature(func)]  # none if the function is written in Python
    call = overloads[0].bind(*args, **kwargs)
    call.apply_defaults()
    return call.arguments


def check_eval(varies: bool, what: str) -> None:
    """Raise a ValueError if a function of a network in eval mode does what it should do in training alone."""
    if varies:
        raise ValueError(f"the network {what} in eval mode as well; make that depend on self.training")


def out_of_place(func: Any, kwargs: dict[str, Any]) -> Any | None:
    """Return the out-of-place counterpart of a function that modifies its first argument, else None."""
    name = function_name(func)
    if name in _COUNTERPARTS:
        return _COUNTERPARTS[name]
    if name.startswith("__i") and name.endswith("__"):  # `x += y` and its like
        return getattr(Tensor, f"__{name[3:]}", None)
    if name.endswith("_") and not name.endswith("__"):
        return next((f for place in (F, torch, Tensor) if callable(f := getattr(place, name[:-1], None))), None)
    return func if kwargs.get("inplace") else None


def _with_item(tensor: Tensor, key: Any, value: Any) -> Tensor:
    """The out-of-place counterpart of ``tensor[key] = value``."""
    tensor = tensor.clone()
    tensor[key] = value
    return tensor


def _copied(tensor: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
    """The out-of-place counterpart of ``tensor.copy_(source)``."""
    return source.to(tensor).expand_as(tensor).clone()


def _requiring_grad(tensor: Tensor, requires_grad: bool = True) -> Tensor:
    """The out-of-place counterpart of ``tensor.requires_grad_(requires_grad)``."""
    return tensor if requires_grad else tensor.detach()


_COUNTERPARTS = {
    "__setitem__": _with_item,
    "copy_": _copied,
    "zero_": torch.zeros_like,
    "requires_grad_": _requiring_grad,
}
