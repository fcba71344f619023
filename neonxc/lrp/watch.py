"""Seeing the operations of a forward pass, and giving each its LRP backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from neonxc.lrp.composites import Constant, FunctionRule
from neonxc.lrp.graph import Seen
from neonxc.lrp.operations import HANDLERS
from neonxc.lrp.operations.attention import product
from neonxc.lrp.operations.plain import (
    BY_POSITION,
    DETACHING,
    IN_PLACE,
    LAYOUT,
    MATRIX_PRODUCTS,
    OPERANDS,
    PLAIN,
    PRODUCTS,
    QUOTIENTS,
    SCALINGS,
    SHIFTS,
    SUMS_OF_PRODUCTS,
)
from neonxc.lrp.operations.products import matrix_product
from neonxc.lrp.operations.registry import Handler, Held, Ruled, depends_on_input, elementwise, held, tiny, varies
from neonxc.lrp.places import Layers, UnsupportedOperation
from neonxc.lrp.replaced import Replaced

HALF = (torch.float16, torch.bfloat16)


class Watch(TorchFunctionMode):
    """Gives every operation of a forward pass its LRP backward.

    No parameter may require gradients meanwhile: what does, depends on the input.
    """

    def __init__(self, layers: Layers, leaf: Tensor, several: bool) -> None:
        super().__init__()
        self.layers = layers
        self.several = several  # walks back
        self.tiny = tiny(leaf.dtype) if layers.composite.reaches_zeros else 0.0
        self.shifted = False  # the pixels themselves, so that zeros have relevance as well
        self.seen = Seen(leaf)
        self.replaced = Replaced()
        self._device = leaf.device.type
        self._no_grad = ""  # where the input was first used without gradients
        leaf._neonxc_pixels = True  # type: ignore[attr-defined]

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch._C._set_grad_enabled:  # by no_grad, for what follows
            return func(*args)
        if torch.is_autocast_enabled(self._device):  # the network's own; it restores what was there before
            torch.set_autocast_enabled(self._device, False)
        args, kwargs = tree_map(self._admitted, (args, kwargs or {}))
        return self.call(func, *args, **kwargs)

    def call(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function and know its result."""
        result = self.run(func, *args, **kwargs)
        self.seen.note(result, [t for t in tree_leaves((args, kwargs)) if depends_on_input(t)])
        return result

    def _admitted(self, value: Any) -> Any:
        """Return what an argument of the network's stands for."""
        if not isinstance(value, Tensor):
            return value
        value = self.replaced.get(self, value)
        if not value.requires_grad or self.seen.knows(value):
            return value
        if not self.seen.reaches_input(value):  # no parameter, but a constant that could be trained
            return value.detach()
        raise UnsupportedOperation(
            f"LRP can't see into {self.seen.maker(value)}, whose value is used {self.layers.where()}; "
            "use PyTorch's operations"
        )

    def run(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function as if the network had called it."""
        outside = _out_of_place(func, kwargs)
        if outside is None or not any(map(varies, tree_leaves((args, kwargs)))):
            if not kwargs.get("inplace"):
                kwargs.pop("inplace", None)
            return self._run(func, args, kwargs)
        kwargs.pop("inplace", None)
        old = args[0] if args else kwargs["input"]
        if not torch.is_grad_enabled() and varies(old):
            raise UnsupportedOperation(
                f"LRP can't follow what torch.no_grad() writes into a value, {self.layers.where()}"
            )
        return self.replaced.put(self, old, self._run(outside, args, kwargs))

    def _run(self, func: Any, args: Any, kwargs: Any) -> Any:
        tensors = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        depends = [t for t in tensors if depends_on_input(t)]
        gate = next((h for t in tensors if (h := held(t))), None)
        name = function_name(func)
        if not torch.is_grad_enabled() or name in DETACHING or not (depends or gate):
            return self._constant(func, args, kwargs, tensors, dependent=bool(depends or gate))
        if depends and depends[0].dtype not in HALF and any(t.dtype in HALF for t in tensors):
            args, kwargs = tree_map(self._in_float32, (args, kwargs))
        if name in BY_POSITION:
            args = (*args, *(kwargs.pop(operand) for operand in OPERANDS if operand in kwargs))
        handler = HANDLERS.get(func)
        if gate is not None and not (depends and _is_gated(name, handler, args)):
            return self.hold(func, args, kwargs, gate)
        rule = self.layers.composite.function_rule(name)
        if rule is None and handler is None:
            return self._unhandled(func, name, depends, args, kwargs)
        _note_use(depends)
        if rule is not None:
            return self._ruled(rule, func, depends, args, kwargs)
        assert handler is not None
        first = args[0] if args else None
        if any(t is not first for t in tensors if varies(t)):
            self._check_arguments(name, handler, args, kwargs)
        return handler.run(self, func, *args, **kwargs)

    def _in_float32(self, value: Any) -> Any:
        half = isinstance(value, Tensor) and value.dtype in HALF and not varies(value)
        return self.layers.derive(value.float(), [value]) if half else value

    def _check_arguments(self, name: str, handler: Handler, args: Any, kwargs: Any) -> None:
        for argument in handler.varying(args, kwargs):
            if argument not in handler.also:
                raise UnsupportedOperation(
                    f"LRP has no rule for {name!r} where more than its first argument depends on the network's "
                    f"input, called {self.layers.where()}"
                )

    def _constant(self, func: Any, args: Any, kwargs: Any, tensors: list[Tensor], dependent: bool) -> Any:
        """Compute what is a constant: made of parameters alone, detached, or under no_grad."""
        if dependent and torch.is_inference_mode_enabled():
            raise UnsupportedOperation(
                f"LRP can't see into torch.inference_mode(), {self.layers.where()}; use torch.no_grad()"
            )
        wanted = torch.is_grad_enabled()
        with torch.no_grad():
            result = tree_map(_constant, func(*args, **kwargs))
        if dependent and not wanted and any(isinstance(value, Tensor) for value in tree_leaves(result)):
            self._no_grad = self._no_grad or self.layers.where()
        return result if dependent else tree_map(lambda v: self.layers.derive(v, tensors), result)

    def _unhandled(self, func: Any, name: str, depends: list[Tensor], args: Any, kwargs: Any) -> Any:
        if name in PLAIN | PRODUCTS | QUOTIENTS | SUMS_OF_PRODUCTS or func in (_with_item, _copied):
            _note_use(depends)
        if kwargs.get("rounding_mode"):
            return self.hold(func, args, kwargs)
        if name in QUOTIENTS and len(args) > 1 and depends_on_input(args[1]):  # a norm, however it was computed
            if not depends_on_input(args[0]):
                return self.hold(func, args, kwargs)
            args, depends = (args[0], args[1].detach(), *args[2:]), depends[:1]
        if name in PRODUCTS and len(depends) == 2:
            return product(func, *args, **kwargs)
        if name in MATRIX_PRODUCTS and len(depends) == 1 and (weight := self._weight(args)) is not None:
            return matrix_product(self, func, depends[0], weight, args, kwargs)
        if name in PLAIN or func in (_with_item, _copied) or (name in PRODUCTS | QUOTIENTS and len(depends) == 1):
            if len(depends) == 1 and getattr(depends[0], "_neonxc_pixels", False):
                return self._pixels(func, name, depends[0], args, kwargs)
            return func(*args, **kwargs)
        if name in SUMS_OF_PRODUCTS:
            scale = kwargs.get("alpha", 1)
            return args[0] * kwargs.get("beta", 1) + scale * self.run(torch.matmul, *args[1:])
        return self.hold(func, args, kwargs)

    def _weight(self, args: Any) -> Tensor | None:
        """Return the factor that is made of the network's weights."""
        constants = (t for t in tree_leaves(args) if isinstance(t, Tensor) and not varies(t))
        return next((t for t in constants if self.layers.owner(t)), None)

    def hold(self, func: Any, args: Any, kwargs: Any, gate: Held | None = None) -> Any:
        """Compute a constant that is marked, if it depends on the input: it can only be a factor."""
        result = func(*args, **kwargs)
        values = [v for v in tree_leaves(result) if isinstance(v, Tensor) and (gate or depends_on_input(v))]
        if not values:
            return result
        gate = gate or Held(function_name(func), self.layers.where())
        result = tree_map(_constant, result)
        for value in tree_leaves(result):
            if isinstance(value, Tensor):
                value._neonxc_held = gate  # type: ignore[attr-defined]
        return result

    def _ruled(
        self, rule: FunctionRule | Constant, func: Any, depends: list[Tensor], args: Any, kwargs: Any
    ) -> Any:
        if isinstance(rule, Constant):
            with torch.no_grad():
                return func(*args, **kwargs)
        if len(depends) != 1:
            raise TypeError(
                f"a rule for {function_name(func)!r} needs a single tensor, called {self.layers.where()}"
            )
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
        output = self._admitted(output)
        if gate := held(output):
            raise self.unsupported(gate.name, gate.place)
        if isinstance(output, Tensor):
            _note_use([output])
            if self._no_grad and not output.requires_grad:
                raise UnsupportedOperation(f"the output is a constant: under torch.no_grad() {self._no_grad}")
        return output

    def unsupported(self, name: str, place: str | None = None) -> UnsupportedOperation:
        """Return the error for an operation that has no rule."""
        return UnsupportedOperation(
            f"LRP has no rule for {name!r}, called {place or self.layers.where()}; "
            "Composite(functions={...}) gives one: Pass() if it is elementwise, Constant() if it is a gate"
        )


def function_name(func: Any) -> str:
    """Name of a function as PyTorch calls it; of a property, its own."""
    name: str = getattr(func, "__name__", str(func))
    return getattr(func.__self__, "__name__", name) if name == "__get__" else name


def _out_of_place(func: Any, kwargs: dict[str, Any]) -> Any | None:
    """For a call that modifies its first argument, the function that does not."""
    name = function_name(func)
    if name == "__setitem__":
        return _with_item
    if name == "copy_":
        return _copied
    if name in IN_PLACE:
        return getattr(torch, IN_PLACE[name])
    if name.endswith("_") and not name.endswith("__"):
        return next((f for place in (F, torch, Tensor) if callable(f := getattr(place, name[:-1], None))), None)
    return func if kwargs.get("inplace") else None


def _with_item(tensor: Tensor, key: Any, value: Any) -> Tensor:
    tensor = tensor.clone()
    tensor[key] = value
    return tensor


def _copied(tensor: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
    return source.to(tensor).expand_as(tensor).clone()


def _note_use(tensors: list[Tensor]) -> None:
    for tensor in tensors:
        if (recorded := getattr(tensor, "_neonxc_layer", None)) is not None:
            recorded.used(tensor)


def _is_gated(name: str, handler: Handler | None, args: Any) -> bool:
    """Whether held values are only factors or divisors of one that is not."""
    if handler is not None:
        return handler.gated and bool(args) and held(args[0]) is None
    return (name in PRODUCTS or (name in QUOTIENTS and held(args[0]) is None)) and len(args) > 1


def _constant(value: Any) -> Any:
    """Without what may be attached to a value that depends on the input."""
    return value.detach() if varies(value) else value
