"""Seeing the operations of a forward pass, and giving each its LRP backward."""

from __future__ import annotations

import os
import traceback
from typing import Any

import captum
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from neonxc.lrp.operations import HANDLERS
from neonxc.lrp.rules import Rule


class UnsupportedOperation(RuntimeError):
    """A network calls a nonlinear operation for which there is no rule."""


# Operations through which multipliers flow as gradients do: values are added, moved, averaged or picked.
_ARITHMETIC = {"add", "__add__", "__radd__", "sub", "__sub__", "__rsub__", "rsub", "neg", "__neg__", "sum", "mean"}
_LAYOUT = {
    *("view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "permute", "transpose", "movedim"),
    *(
        "t",
        "T",
        "mT",
        "swapaxes",
        "__getitem__",
        "select",
        "narrow",
        "index_select",
        "split",
        "chunk",
        "unbind",
        "expand",
    ),
    *("expand_as", "repeat", "roll", "contiguous", "clone", "detach", "cat", "concat", "stack", "pad"),
    *("to", "float", "double", "half", "bfloat16", "type"),
}
_POOLING = {f"{kind}_pool{n}d" for kind in ("avg", "max", "adaptive_avg", "adaptive_max") for n in (1, 2, 3)}
_PLAIN = _ARITHMETIC | _LAYOUT | _POOLING
# `x += y` and its like, as PyTorch calls them
_IN_PLACE = {
    **{f"{name}_": name for name in ("add", "sub", "mul", "div")},
    **{f"__i{name}__": name for name in ("add", "sub", "mul")},
    **dict.fromkeys(("__idiv__", "__itruediv__"), "div"),
}
# Linear as long as one factor does not depend on the input.
_PRODUCTS = {"mul", "__mul__", "__rmul__", "matmul", "__matmul__", "__rmatmul__", "mm", "bmm"}
_QUOTIENTS = {"div", "__truediv__"}


class Watch(TorchFunctionMode):
    """Gives every operation of a forward pass its LRP backward."""

    def __init__(self, rules: dict[int, Rule], default: Rule) -> None:
        super().__init__()
        self.rules, self.default = rules, default
        # by id: what was modified in place, and its new value
        self.replaced: dict[int, tuple[Tensor, Tensor]] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args, kwargs = tree_map(self.current, (args, kwargs or {})) if self.replaced else (args, kwargs or {})
        depends = [t for t in tree_leaves((args, kwargs)) if _depends_on_input(t)]
        if not depends:
            with torch.no_grad():  # what is computed from parameters alone is a constant here
                return tree_map(_constant, func(*args, **kwargs))
        handler = HANDLERS.get(func)
        if handler is not None:
            return handler(self, func, *args, **kwargs)
        name = _name(func)
        if name in _IN_PLACE:
            func = getattr(torch, _IN_PLACE[name])
            return self.in_place(args[0], self.__torch_function__(func, types, args, kwargs))
        linear = len(depends) == 1 and (name in _PRODUCTS or (name in _QUOTIENTS and depends[0] is args[0]))
        if name in _PLAIN or linear:
            return func(*args, **kwargs)
        result = func(*args, **kwargs)
        if any(map(_depends_on_input, tree_leaves(result))):
            raise UnsupportedOperation(f"LRP has no rule for {name!r}, called {_place()}")
        return result

    def in_place(self, old: Tensor, new: Tensor) -> Tensor:
        """Let `new` stand for `old` from now on; the rules still need what `old` held."""
        if old is not new:
            self.replaced[id(old)] = (old, new)
        return new

    def current(self, value: Any) -> Any:
        """What stands for a value that may have been modified in place."""
        while id(value) in self.replaced:
            value = self.replaced[id(value)][1]
        if self.replaced and isinstance(value, Tensor) and self._shares_memory_with_replaced(value):
            raise UnsupportedOperation(
                f"LRP can't follow a tensor that shares its memory with one modified in place, used {_place()}; "
                "use the operation that is not in place"
            )
        return value

    def _shares_memory_with_replaced(self, value: Tensor) -> bool:
        base = value._base if value._is_view() else value
        return any((old._is_view() and old._base is base) or old is base for old, _ in self.replaced.values())


def _constant(value: Any) -> Any:
    """A view of a trainable parameter wants gradients even under no_grad."""
    return value.detach() if _depends_on_input(value) else value


def _name(func: Any) -> str:
    name = getattr(func, "__name__", str(func))
    return getattr(func.__self__, "__name__", name) if name == "__get__" else name  # a property: its own name


def _depends_on_input(value: Any) -> bool:
    return isinstance(value, Tensor) and value.requires_grad and not isinstance(value, nn.Parameter)


def _place() -> str:
    """Where the user's code called the operation now being handled."""
    skip = (torch.__path__[0] + os.sep, captum.__path__[0] + os.sep, os.path.dirname(__file__) + os.sep)
    for frame in reversed(traceback.extract_stack()):
        if not frame.filename.startswith(skip):
            return f"at {frame.filename}:{frame.lineno} in {frame.name}: {frame.line}"
    return "inside torch"
