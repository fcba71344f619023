"""Seeing the operations of a forward pass, and giving each its LRP backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from neonxc.lrp.backward import pulled, tiny
from neonxc.lrp.composites import Constant, FunctionRule
from neonxc.lrp.known import Held, Known, dependent, tensors
from neonxc.lrp.places import Layers, UnsupportedOperation
from neonxc.lrp.table import DETACHING, OPERATIONS, NoRule, Operation, function_name, functional
from neonxc.lrp.written import CannotFollow, current, out_of_place, put

HALF = (torch.float16, torch.bfloat16)


class Watch(TorchFunctionMode):
    """Gives every operation of a forward pass its LRP backward.

    Nothing but what depends on the input requires gradients here: parameters are replaced by constants on their
    way into an operation, so that the network itself stays as it is, also for other threads.
    """

    def __init__(self, layers: Layers, leaf: Tensor, several: bool) -> None:
        super().__init__()
        self.layers = layers
        self.several = several  # walks back
        self.tiny = tiny(leaf.dtype) if layers.composite.reaches_zeros else 0.0
        self.shifted = False  # the pixels themselves, so that zeros have relevance as well
        self.known = Known(leaf)
        for tensor, owner in layers.owners:
            self.known.note(tensor, owner=self.known[tensor].owner or owner)
        self._device = leaf.device.type
        self._no_grad = ""  # where the input was first used without gradients

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch._C._set_grad_enabled or function_name(func) == "__set__":  # by no_grad; `w.data = v`
            return func(*args)
        if torch.is_autocast_enabled(self._device):  # the network's own; it restores what was there before
            torch.set_autocast_enabled(self._device, False)
        args, kwargs = tree_map(self._admitted, (args, kwargs or {}))
        return self.call(func, *args, **kwargs)

    def call(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function as if the network had called it, and know its result."""
        result = self.run(func, *args, **kwargs)
        for value in dependent(result):
            if not value.is_leaf:
                self.known.note(value, version=value._version)
        return result

    def _admitted(self, value: Any) -> Any:
        """Return what an argument of the network's stands for."""
        if not isinstance(value, Tensor):
            return value
        value = self._follow(current, value)
        if not value.requires_grad or self.known.came_by(value):
            return value
        if self.known.comes_from_input(value):
            function = getattr(value.grad_fn, "_forward_cls", None)
            maker = f"the autograd.Function {function.__name__!r}" if function else "TorchScript or C++"
            raise UnsupportedOperation(
                f"LRP can't see into {maker}, whose value is used {self.layers.where()}; use PyTorch's operations"
            )
        return self.known.derive(value.data, [value])  # unlike detach(), of its own version: it may be trained

    def run(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function on what it is given, without overwriting any of it that depends on the input."""
        outside = out_of_place(func, kwargs)
        if outside is None or not any(map(self.known.varies, tensors((args, kwargs)))):
            if not kwargs.get("inplace"):
                kwargs.pop("inplace", None)
            return self._run(func, args, kwargs)
        kwargs.pop("inplace", None)
        old = args[0] if args else kwargs["input"]
        if not torch.is_grad_enabled() and self.known.varies(old):
            raise UnsupportedOperation(
                f"LRP can't follow what torch.no_grad() writes into a value, {self.layers.where()}"
            )
        return self._follow(put, old, self._run(outside, args, kwargs))

    def _follow(self, step: Callable[..., Any], *args: Any) -> Any:
        try:
            return step(self.known, self.call, *args)
        except CannotFollow:
            raise UnsupportedOperation(
                f"LRP can't follow what was modified in place, used {self.layers.where()}"
            ) from None

    def _run(self, func: Any, args: Any, kwargs: Any) -> Any:
        func, args, kwargs = functional(func, args, kwargs)
        given, depends, name = tensors((args, kwargs)), dependent((args, kwargs)), function_name(func)
        gate = next((held for value in given if (held := self.known[value].held)), None)
        if not torch.is_grad_enabled() or not (depends or gate) or name in DETACHING:
            return self._constant(func, args, kwargs, given, dependent=bool(depends or gate))
        if depends and depends[0].dtype not in HALF and any(value.dtype in HALF for value in given):
            args, kwargs = tree_map(self._in_float32, (args, kwargs))
        operation, rule = OPERATIONS.get(name), self.layers.composite.function_rule(name)
        if operation is not None and operation.accepts == "parts" and rule is None:
            try:
                with self:
                    return operation.run(*args, **kwargs)
            except NoRule as missing:
                raise self.unsupported(str(missing)) from None
        first = args[0] if args else kwargs.get("input")
        if gate is not None and not (depends and self._takes_gates(operation, first)):
            return self.hold(func, args, kwargs, gate)
        if rule is None and operation is None:
            return self.hold(func, args, kwargs)
        for value in depends:
            if (layer := self.known[value].layer) is not None:
                layer.used(value)
        if rule is not None:
            return self._ruled(rule, func, depends, args, kwargs)
        assert operation is not None
        if operation.accepts == "one" and any(t is not first for t in given if self.known.varies(t)):
            raise UnsupportedOperation(
                f"LRP has no rule for {name!r} where more than its first argument depends on the network's "
                f"input, called {self.layers.where()}"
            )
        return operation.run(self, func, *args, **kwargs)

    def _takes_gates(self, operation: Operation | None, first: Any) -> bool:
        """Whether held values are only factors or divisors of one that is not."""
        if operation is None or operation.accepts not in ("gates", "factors"):
            return False
        held = isinstance(first, Tensor) and self.known[first].held is not None
        return operation.accepts == "factors" or not held

    def _in_float32(self, value: Any) -> Any:
        half = isinstance(value, Tensor) and value.dtype in HALF and not self.known.varies(value)
        return self.known.derive(value.float(), [value]) if half else value

    def _constant(self, func: Any, args: Any, kwargs: Any, given: list[Tensor], dependent: bool) -> Any:
        """Compute what is a constant: made of parameters alone, detached, or under no_grad."""
        if dependent and torch.is_inference_mode_enabled():
            raise UnsupportedOperation(
                f"LRP can't see into torch.inference_mode(), {self.layers.where()}; use torch.no_grad()"
            )
        wanted = torch.is_grad_enabled()
        with torch.no_grad():
            result = tree_map(self._detached, func(*args, **kwargs))
        if not dependent:
            return tree_map(lambda value: self.known.derive(value, given), result)
        if not wanted and tensors(result):
            self._no_grad = self._no_grad or self.layers.where()
        return result

    def _detached(self, value: Any) -> Any:
        """A constant in place of a value that depends on the input."""
        return value.detach() if self.known.varies(value) else value

    def hold(self, func: Any, args: Any, kwargs: Any, gate: Held | None = None) -> Any:
        """Compute a constant that is marked, if it depends on the input: it can only be a factor."""
        result = func(*args, **kwargs)
        if not (tensors(result) if gate else dependent(result)):
            return result
        gate = gate or Held(function_name(func), self.layers.where())
        result = tree_map(self._detached, result)
        for value in tensors(result):
            self.known.note(value, held=gate)
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

        def compute() -> tuple[Tensor, ...]:
            y = func(*args, **kwargs)
            return y, depends[0], y

        return pulled(depends[0], compute, lambda m, x, y: rule(x, y, m))

    def finish(self, output: Any) -> Any:
        """Check what the network gives, and return what stands for it."""
        output = self._admitted(output)
        if not isinstance(output, Tensor):
            return output
        if gate := self.known[output].held:
            raise self.unsupported(gate.name, gate.place)
        if (layer := self.known[output].layer) is not None:
            layer.used(output)
        if self._no_grad and not output.requires_grad:
            raise UnsupportedOperation(f"the output is a constant: under torch.no_grad() {self._no_grad}")
        return output

    def unsupported(self, name: str, place: str | None = None) -> UnsupportedOperation:
        """Return the error for an operation that has no rule."""
        return UnsupportedOperation(
            f"LRP has no rule for {name!r}, called {place or self.layers.where()}; "
            "Composite(functions={...}) gives one: Pass() if it is elementwise, Constant() if it is a gate"
        )
