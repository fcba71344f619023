"""Seeing the operations of a forward pass, and giving each its LRP backward."""

from __future__ import annotations

import linecache
import math
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import captum
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from neonxc.lrp.composites import Composite, Constant, FunctionRule, Place
from neonxc.lrp.layer import Rule
from neonxc.lrp.operations import HANDLERS
from neonxc.lrp.operations.attention import product
from neonxc.lrp.operations.linear import matrix_product
from neonxc.lrp.operations.plain import (
    IN_PLACE,
    LAYOUT,
    MATRIX_PRODUCTS,
    PLAIN,
    PRODUCTS,
    QUOTIENTS,
    SCALINGS,
    SHIFTS,
    SUMS_OF_PRODUCTS,
)
from neonxc.lrp.operations.registry import Ruled, elementwise, tiny


class UnsupportedOperation(RuntimeError):
    """A network calls a nonlinear operation for which there is no rule."""


class Layers:
    """The linear layers of a network: whose weights they are, in which order they run, which rules they follow."""

    def __init__(self, composite: Composite, owners: dict[int, tuple[str, nn.Module]], side: int | None) -> None:
        self.composite = composite
        self.count = 0
        self._owners = owners  # by the id of a parameter or buffer
        self._side = side  # width of the network's input, if it is a map

    def rule(self, weight: Tensor, x: Tensor) -> Callable[[], Rule]:
        """Give the next layer its place; the rule can be asked for once all layers are known."""
        name, module = self.owner(weight) or ("", None)
        place = Place(name, module, self.count, self._block(weight, x))
        self.count += 1
        return lambda: self.composite.rule(place, self.count)

    def _block(self, weight: Tensor, x: Tensor) -> int | None:
        matrix = weight.ndim == 2  # its inputs are the last dimension
        if self._side is None or x.ndim < (4 if matrix else 3):
            return None
        return 1 + max(0, round(math.log2(self._side / x.shape[-2 if matrix else -1])))

    def owner(self, weight: Tensor) -> tuple[str, nn.Module] | None:
        """Name and module of a parameter or buffer, or of what was computed from one."""
        return self._owners.get(id(weight)) or getattr(weight, "_neonxc_owner", None)

    def derive(self, value: Any, sources: list[Tensor]) -> Any:
        """Let a constant computed from a module's parameters count as that module's."""
        owner = next((owner for source in sources if (owner := self.owner(source))), None)
        if owner is not None and isinstance(value, Tensor) and id(value) not in self._owners:
            value._neonxc_owner = owner  # type: ignore[attr-defined]
        return value


@dataclass
class _Held:
    """Where a nonlinear function without a rule was called: its value may serve as a gate, and as nothing else."""

    name: str
    place: str


class Watch(TorchFunctionMode):
    """Gives every operation of a forward pass its LRP backward."""

    def __init__(self, layers: Layers, leaf: Tensor, several: bool) -> None:
        super().__init__()
        self.layers = layers
        self.several = several  # walks back
        self.tiny = tiny(leaf.dtype) if layers.composite.reaches_zeros else 0.0
        self.shifted = False  # the pixels themselves, so that zeros have relevance as well
        leaf._neonxc_pixels = True  # type: ignore[attr-defined]
        # by id: what was modified in place, and its new value
        self.replaced: dict[int, tuple[Tensor, Tensor]] = {}

    def run(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function as if the network had called it."""
        return self.__torch_function__(func, (), args, kwargs)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args, kwargs = (
            tree_map(self.current, (args, kwargs or {})) if self.replaced else (args, dict(kwargs or {}))
        )
        outside = _out_of_place(func, kwargs)
        if outside is None or not any(_depends_on_input(t) or _held(t) for t in tree_leaves((args, kwargs))):
            if not kwargs.get("inplace"):
                kwargs.pop("inplace", None)
            return self._run(func, args, kwargs)
        kwargs.pop("inplace", None)
        return self.in_place(args[0], self._run(outside, args, kwargs))

    def _run(self, func: Any, args: Any, kwargs: Any) -> Any:
        tensors = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        depends = [t for t in tensors if _depends_on_input(t)]
        held = next((h for t in tensors if (h := _held(t))), None)
        name = function_name(func)
        if held is not None and not (depends and _is_gated(name, args)):
            return self._hold(func, args, kwargs, held)
        if not depends:
            with torch.no_grad():  # what is computed from parameters alone is a constant here
                return tree_map(lambda v: self.layers.derive(_constant(v), tensors), func(*args, **kwargs))
        rule = self.layers.composite.function_rule(name)
        if rule is not None:
            _note_use(depends)
            return self._ruled(rule, func, depends, args, kwargs)
        handler = HANDLERS.get(func)
        if handler is not None:
            _note_use(depends)
            return handler.run(self, func, *args, **kwargs)
        return self._unhandled(func, name, depends, args, kwargs)

    def _unhandled(self, func: Any, name: str, depends: list[Tensor], args: Any, kwargs: Any) -> Any:
        if name in PLAIN | PRODUCTS | QUOTIENTS | SUMS_OF_PRODUCTS or func is _with_item:
            _note_use(depends)
        if name in QUOTIENTS and len(args) > 1 and _depends_on_input(args[1]):  # a norm, however it was computed
            if not _depends_on_input(args[0]):
                return self._hold(func, args, kwargs)
            args, depends = (args[0], args[1].detach(), *args[2:]), depends[:1]
        if name in PRODUCTS and len(depends) == 2:
            return product(func, *args, **kwargs)
        if name in MATRIX_PRODUCTS and any(self.layers.owner(t) for t in args if not _depends_on_input(t)):
            return matrix_product(self, func, *args)
        if name in PLAIN or func is _with_item or (name in PRODUCTS | QUOTIENTS and len(depends) == 1):
            if len(depends) == 1 and getattr(depends[0], "_neonxc_pixels", False):
                return self._pixels(func, name, depends[0], args, kwargs)
            return func(*args, **kwargs)
        if name in SUMS_OF_PRODUCTS:
            scale = kwargs.get("alpha", 1)
            return args[0] * kwargs.get("beta", 1) + scale * self.run(torch.matmul, *args[1:])
        return self._hold(func, args, kwargs)

    def _hold(self, func: Any, args: Any, kwargs: Any, held: _Held | None = None) -> Any:
        """Compute a constant that is marked, if it depends on the input: it can only be a factor."""
        result = func(*args, **kwargs)
        values = [v for v in tree_leaves(result) if isinstance(v, Tensor) and (held or _depends_on_input(v))]
        if not values:
            return result
        held = held or _Held(function_name(func), _place())
        result = tree_map(_constant, result)
        for value in tree_leaves(result):
            if isinstance(value, Tensor):
                value._neonxc_held = held  # type: ignore[attr-defined]
        return result

    def _ruled(
        self, rule: FunctionRule | Constant, func: Any, depends: list[Tensor], args: Any, kwargs: Any
    ) -> Any:
        if isinstance(rule, Constant):
            with torch.no_grad():
                return func(*args, **kwargs)
        if len(depends) != 1:
            raise TypeError(f"a rule for {function_name(func)!r} needs a single tensor, called {_place()}")
        return Ruled.apply(depends[0], lambda: func(*args, **kwargs), rule)

    def _pixels(self, func: Any, name: str, x: Tensor, args: Any, kwargs: Any) -> Any:
        """Let relevance pass a normalisation inside the network unchanged, as it would pass one outside."""
        y = func(*args, **kwargs)
        if not isinstance(y, Tensor) or name not in SHIFTS | SCALINGS | LAYOUT:
            return y
        if name in SHIFTS | SCALINGS and y.shape == x.shape:
            self.shifted, value = True, y.detach()
            y = elementwise(x, lambda _: value)
        y._neonxc_pixels = True  # type: ignore[attr-defined]
        return y

    def finish(self, output: Any) -> Any:
        """Check what the network gives, and return what stands for it."""
        output = self.current(output)
        if held := _held(output):
            raise self.unsupported(held.name, held.place)
        if isinstance(output, Tensor):
            _note_use([output])
        return output

    def unsupported(self, name: str, place: str | None = None) -> UnsupportedOperation:
        """Return the error for an operation that has no rule."""
        return UnsupportedOperation(
            f"LRP has no rule for {name!r}, called {place or _place()}; Composite(functions={{...}}) gives one: "
            "Pass() if it is elementwise, Constant() if it is a gate"
        )

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


def function_name(func: Any) -> str:
    """Name of a function as PyTorch calls it; of a property, its own."""
    name: str = getattr(func, "__name__", str(func))
    return getattr(func.__self__, "__name__", name) if name == "__get__" else name


def _out_of_place(func: Any, kwargs: dict[str, Any]) -> Any | None:
    """For a call that modifies its first argument, the function that does not."""
    name = function_name(func)
    if name == "__setitem__":
        return _with_item
    if name in IN_PLACE:
        return getattr(torch, IN_PLACE[name])
    if name.endswith("_") and not name.endswith("__"):
        return next((f for place in (F, torch, Tensor) if callable(f := getattr(place, name[:-1], None))), None)
    return func if kwargs.get("inplace") else None


def _with_item(tensor: Tensor, key: Any, value: Any) -> Tensor:
    tensor = tensor.clone()
    tensor[key] = value
    return tensor


def _note_use(tensors: list[Tensor]) -> None:
    for tensor in tensors:
        if (recorded := getattr(tensor, "_neonxc_layer", None)) is not None:
            recorded.used(tensor)


def _is_gated(name: str, args: Any) -> bool:
    """Whether a held value is a factor or divisor of one that is not."""
    return (name in PRODUCTS or (name in QUOTIENTS and _held(args[0]) is None)) and len(args) > 1


def _constant(value: Any) -> Any:
    """A view of a trainable parameter wants gradients even under no_grad."""
    if not _depends_on_input(value):
        return value
    return value.detach()


def _held(value: Any) -> _Held | None:
    return getattr(value, "_neonxc_held", None) if isinstance(value, Tensor) else None


def _depends_on_input(value: Any) -> bool:
    return isinstance(value, Tensor) and value.requires_grad and not isinstance(value, nn.Parameter)


def _place() -> str:
    """Where the user's code called the operation now being handled."""
    skip = (torch.__path__[0] + os.sep, captum.__path__[0] + os.sep, os.path.dirname(__file__) + os.sep)
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(skip):
        frame = frame.f_back
    if frame is None:
        return "inside torch"
    file, line = frame.f_code.co_filename, frame.f_lineno
    return f"at {file}:{line} in {frame.f_code.co_name}: {linecache.getline(file, line).strip()}"
