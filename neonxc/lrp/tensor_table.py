"""The table of PyTorch operations that LRP propagates through, for the engine and for the documentation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from inspect import Signature, signature
from typing import Any, Literal, TypeAlias, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx.operator_schemas import get_signature_for_torch_op

Function: TypeAlias = Callable[..., Any]
"""A function of PyTorch, a method of tensors, or the getter of one of their properties."""

Arguments: TypeAlias = tuple[Any, ...]
Keywords: TypeAlias = dict[str, Any]
Accepts: TypeAlias = Literal["one", "several", "gates", "factors", "decomposed"]
Run = TypeVar("Run", bound=Callable[..., Any])


class UnsupportedOptions(Exception):
    """A decomposed operation was called with options that LRP has no rule for; the message names them."""


@dataclass(frozen=True)
class Operation:
    """How LRP treats an operation.

    Attributes
    ----------
    run : callable
        Computes the operation's value with its LRP backward pass: ``run(tracer, func, *args, **kwargs)``.
    description : str
        The backward pass in words, for the documentation.
    accepts : {"one", "several", "gates", "factors", "decomposed"}
        Which arguments may depend on the network's input. "one": the first argument alone; "several": any number
        of them; "gates": any number, and those after the first may be gates; "factors": any number, and each may
        be a gate. "decomposed": `run` expresses the operation by others, which check their own arguments; it is
        called with the operation's arguments alone.
    """

    run: Callable[..., Any]
    description: str
    accepts: Accepts


OPERATIONS: dict[str, Operation] = {}
"""Operations by the name that PyTorch gives their functions."""

DETACHING = "detach", "data"
LEAVING = (
    *("numpy", "__array__", "__cuda_array_interface__", "__dlpack__", "storage", "untyped_storage", "data_ptr"),
    *("tolist", "item", "__float__", "__int__", "__index__", "__complex__", "__deepcopy__"),
)
"""Functions that pass the values of a tensor on to where autograd does not follow."""


def operation(names: str, description: str, accepts: Accepts = "one") -> Callable[[Run], Run]:
    """Add operations to the table, given their names separated by spaces; a decorator."""

    def enter(run: Run) -> Run:
        entry = Operation(run, description, accepts)
        OPERATIONS.update(dict.fromkeys(names.split(), entry))
        return run

    return enter


@lru_cache(maxsize=1000)  # it is asked for several times at each call that a network makes
def function_name(func: Function) -> str:
    """Return the name of a function of PyTorch or of a property; other libraries' have their namespace."""
    func = getattr(func, "_opoverload", func)  # of a torch.library.custom_op
    packet = getattr(func, "overloadpacket", func)
    qualified: str = getattr(packet, "_qualified_op_name", "aten::")
    if not qualified.startswith("aten::"):
        return qualified
    name: str = getattr(func, "__name__", str(func))
    return property_name(func) if name == "__get__" else name


def property_name(method: Function) -> str:
    """Return the name of the property of a tensor that a method ``__get__`` or ``__set__`` belongs to."""
    descriptor = getattr(method, "__self__", None)
    name: str = getattr(descriptor, "__name__", method.__name__)
    return name


def functional(func: Function, args: Arguments, kwargs: Keywords) -> tuple[Function, Arguments, Keywords]:
    """Translate ``torch.batch_norm`` and ``torch.instance_norm`` to the functions of ``torch.nn.functional``."""
    if func not in (torch.batch_norm, torch.instance_norm):
        return func, args, kwargs
    kwargs = arguments(func, args, kwargs)
    kwargs.pop("cudnn_enabled")
    return getattr(F, func.__name__), (), kwargs


def arguments(func: Function, args: Arguments, kwargs: Keywords) -> Keywords:
    """Return the arguments of a function of PyTorch by name, with its defaults."""
    call = _signature(func).bind(*args, **kwargs)
    call.apply_defaults()
    return call.arguments


@lru_cache(maxsize=100)
def _signature(func: Function) -> Signature:
    """Return the signature of a function of PyTorch, which takes longer to look up than a small convolution."""
    overloads = get_signature_for_torch_op(func)
    if overloads:
        return overloads[0]
    return signature(func)  # the function is written in Python


def check_eval(is_training: bool, effect: str) -> None:
    """Raise a ValueError if a function of a network in eval mode does what it should do in training alone."""
    if is_training:
        raise ValueError(f"the network {effect} in eval mode as well; make that depend on self.training")


def out_of_place(func: Function, kwargs: Keywords) -> Function | None:
    """Return the out-of-place counterpart of a function that modifies its first argument, else None.

    By the name of the function, the counterpart is

        in the table below            what the table says
        __iadd__ and its like         __add__ of a tensor
        relu_ and its like            relu of torch.nn.functional, torch or Tensor, whichever has it first
        any, with inplace=True        the function itself
    """
    name = function_name(func)
    if name in _COUNTERPARTS:
        return _COUNTERPARTS[name]
    if name.startswith("__i") and name.endswith("__"):
        return getattr(Tensor, f"__{name[3:]}", None)
    if name.endswith("_") and not name.endswith("__"):
        for namespace in (F, torch, Tensor):
            counterpart = getattr(namespace, name[:-1], None)
            if callable(counterpart):
                return counterpart
        return None
    return func if kwargs.get("inplace") else None


def _with_item(tensor: Tensor, key: Any, value: Any) -> Tensor:
    """Compute the out-of-place counterpart of ``tensor[key] = value``."""
    tensor = tensor.clone()
    tensor[key] = value
    return tensor


def _copied(tensor: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
    """Compute the out-of-place counterpart of ``tensor.copy_(source)``."""
    return source.to(tensor).expand_as(tensor).clone()


def _requiring_grad(tensor: Tensor, requires_grad: bool = True) -> Tensor:
    """Compute the out-of-place counterpart of ``tensor.requires_grad_(requires_grad)``."""
    return tensor if requires_grad else tensor.detach()


_COUNTERPARTS: dict[str, Function] = {
    "__setitem__": _with_item,
    "copy_": _copied,
    "zero_": torch.zeros_like,
    "requires_grad_": _requiring_grad,
}
