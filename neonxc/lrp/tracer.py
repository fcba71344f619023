"""The tracer: intercepts the operations of a forward pass and gives each its LRP backward pass.

A function that the network calls is treated by the first of these cases that applies:

    none of its arguments depends on the input     its result is a constant
    torch.no_grad(), or detaching as `detach`      its result is a constant that is registered as cut off
    it is composed of other operations             unless the composite has a rule, these are run one by one
    it has a gate where only a value may be        its result is a gate as well
    neither composite nor table has a rule         its result is a gate
    the composite has a rule for the function      the rule computes the multiplier
    the table has the operation                    its backward pass of `neonxc.lrp.operations`

In-place functions on values that depend on the input are run out of place before that.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils.hooks import RemovableHandle

from neonxc.common.local_calls import local_calls
from neonxc.lrp.advice import RECURRENT, WRITE_OUT, advice
from neonxc.lrp.composites import Constant, FunctionRule
from neonxc.lrp.detached_calls import DetachedCalls
from neonxc.lrp.layer import CustomBackward, quotient, replace_zeros, tiny_value
from neonxc.lrp.layer_names import LayerNames, UnsupportedOperation
from neonxc.lrp.plain_calls import plain_calls
from neonxc.lrp.tensor_info import FunctionCall, TensorTable, mapped, requiring_grad, tensors
from neonxc.lrp.tensor_table import (
    DETACHING,
    LEAVING,
    OPERATIONS,
    Arguments,
    Function,
    Keywords,
    Operation,
    UnsupportedOptions,
    function_name,
    functional,
    out_of_place,
    property_name,
)

HALF = (torch.float16, torch.bfloat16)

# A network meets its values as at prediction, so that it registers no hooks and checkpoints nothing
HIDDEN = {"requires_grad": False, "grad_fn": None}


class Tracer(TorchFunctionMode):
    """Intercepts every operation of a forward pass and gives it its LRP backward pass.

    Only values that depend on the input require gradients while the network is traced: constants replace the
    parameters among the arguments of operations, so that the network is not changed, not even for other threads.

    Parameters
    ----------
    layers : LayerNames
    leaf : Tensor
        The network's input.
    several : bool
        Whether there will be several backward passes.
    without_zeros : Tensor, optional
        The input with tiny values in place of zeros. The network gets the input itself, and rules the values that
        it would have with these, wherever a value is zero: a zero that has relevance needs a multiplier.
    """

    def __init__(
        self, layers: LayerNames, leaf: Tensor, several: bool, without_zeros: Tensor | None = None
    ) -> None:
        super().__init__()
        self.layers = layers
        self.several = several
        # in place of zeros; 0 if no rule assigns relevance to them
        self.tiny = tiny_value(leaf.dtype) if layers.composite.reaches_zeros else 0.0
        self.normalizes_input = False  # so that zeros have relevance as well
        self.table = TensorTable(layers, leaf)
        self.keep_without_zeros(leaf, without_zeros)
        self.cuts = DetachedCalls(layers, self.table)
        self._device = leaf.device.type
        self._leaf = leaf

    def __torch_function__(
        self, func: Function, types: Sequence[type], args: Arguments = (), kwargs: Keywords | None = None
    ) -> Any:
        if func in (torch.autograd.grad, Tensor.backward):
            raise UnsupportedOperation(f"LRP can't trace gradients, computed {self.layers.call_site()}")
        name = function_name(func)
        if name == "_set_grad_enabled":  # torch.no_grad()
            return func(*args)
        if name in HIDDEN and self.table.is_live(args[0]):
            return HIDDEN[name]
        if name in ("register_hook", "retain_grad"):
            return RemovableHandle(OrderedDict())
        if name == "__set__":
            return self._assign(func, *args)
        if torch.is_autocast_enabled(self._device):  # enabled by the network, which restores it itself
            torch.set_autocast_enabled(self._device, False)
        args, kwargs = mapped(self._current_argument, (args, kwargs or {}))
        return self.call(func, *args, **kwargs)

    def call(self, func: Function, *args: Any, **kwargs: Any) -> Any:
        """Run a function as if the network had called it, and register its result as traced."""
        result = self.run(func, *args, **kwargs)
        constants = []
        for value in tensors(result):
            if self.table.is_live(value):
                self.table.update(value, version=value._version)
            elif not self.table[value].gate:
                constants.append(value)
        self.cuts.mark(func, tensors((args, kwargs)), constants)
        return result

    def _assign(self, func: Function, target: Tensor, value: Any) -> None:
        """Assign to a property of a tensor, such as ``h.data = v``."""
        name = property_name(func)
        current, new = mapped(self._current_argument, (target, value))
        is_dependent = self.table.depends_on_input(current) or self.table.depends_on_input(new)
        if name not in ("data", "requires_grad") or not is_dependent:
            func(target, value)
        elif name == "requires_grad":
            self.call(Tensor.requires_grad_, current, new)
        else:
            detached = self.call(Tensor.detach, new)
            self.table.replace(self.call, current, detached)

    def _current_argument(self, value: Tensor) -> Tensor:
        """Return the current value of an argument, parameters as constants; raise if it was not traced."""
        value = self.table.current(self.call, value)
        if self.table.is_transformed(value):
            raise UnsupportedOperation(
                f"LRP can't trace transforms such as torch.vmap, used {self.layers.call_site()}; call the "
                "function without it"
            )
        if value.is_inference():  # a parameter that was loaded under torch.inference_mode()
            return self.table.in_place_of(value, value.detach().clone())
        if not value.requires_grad or self.table.was_traced(value):
            return value
        if self.table.leads_to_input(value):
            function = getattr(value.grad_fn, "_forward_cls", None)
            source = f"the autograd.Function {function.__name__!r}" if function else "TorchScript or C++"
            raise UnsupportedOperation(
                f"LRP can't trace {source}, whose result is used {self.layers.call_site()}; use operations of "
                "PyTorch instead, or the network in floating point if a quantised layer calls it"
            )
        # unlike detach(), `data` has a version counter of its own: another thread may train the parameter
        return self.table.in_place_of(value, value.data)

    def run(self, func: Function, *args: Any, **kwargs: Any) -> Any:
        """Run a function; in-place operations on values that depend on the input are computed out of place."""
        counterpart = out_of_place(func, kwargs)
        if counterpart is not None and any(map(self.table.depends_on_input, tensors((args, kwargs)))):
            return self._run_out_of_place(counterpart, args, kwargs)
        if not kwargs.get("inplace"):
            kwargs.pop("inplace", None)
        return self._run(func, args, kwargs)

    def _run_out_of_place(self, counterpart: Function, args: Arguments, kwargs: Keywords) -> Tensor:
        """Run the counterpart of an in-place function, and register its result as the value of the argument."""
        kwargs.pop("inplace", None)
        old = args[0] if args else kwargs["input"]
        if not torch.is_grad_enabled() and self.table.depends_on_input(old):
            raise UnsupportedOperation(
                f"LRP can't trace an in-place operation under torch.no_grad(), called {self.layers.call_site()}"
            )
        new = self._run(counterpart, args, kwargs)
        return self.table.replace(self.call, old, new)

    def _run(self, func: Function, args: Arguments, kwargs: Keywords) -> Any:
        """Run a function that modifies nothing, by the case of the module's table that applies."""
        func, args, kwargs = functional(func, args, kwargs)
        name = function_name(func)
        arguments = tensors((args, kwargs))
        sources = requiring_grad(arguments)
        gate = next(filter(None, (self.table[value].gate for value in arguments)), None)
        is_dependent = bool(sources) or gate is not None
        if not torch.is_grad_enabled() or not is_dependent or name in DETACHING + LEAVING:
            return self._constant(func, args, kwargs, is_dependent)

        if sources and sources[0].dtype not in HALF and any(value.dtype in HALF for value in arguments):
            args, kwargs = mapped(self._in_float32, (args, kwargs))
        operation = OPERATIONS.get(name)
        rule = self.layers.composite.function_rule(name)
        if operation is not None and operation.accepts == "decomposed" and rule is None:
            return self.run_composed(operation.run, args, kwargs)

        first = args[0] if args else kwargs.get("input")
        if gate is not None and not (sources and self._takes_gates(operation, first)):
            return self.as_gate(func, args, kwargs, gate)
        if rule is None and operation is None:
            return self.as_gate(func, args, kwargs)
        for value in sources:
            layer = self.table[value].layer
            if layer is not None:
                layer.count_use(value)

        if rule is not None:
            return self._apply_function_rule(rule, func, sources, args, kwargs)
        assert operation is not None
        if operation.accepts == "one":
            self._check_single(name, first, arguments)
        return operation.run(self, func, *args, **kwargs)

    def run_composed(self, operations: Function, args: Arguments, kwargs: Keywords) -> Any:
        """Run a function that consists of several operations; this tracer intercepts them."""
        try:
            with self:
                return operations(*args, **kwargs)
        except UnsupportedOptions as error:
            call = FunctionCall(str(error), self.layers.call_site(), WRITE_OUT)
            raise unsupported(call) from None

    def _check_single(self, name: str, first: object, arguments: list[Tensor]) -> None:
        """Raise an error if another argument than the first one depends on the input."""
        if any(value is not first for value in arguments if self.table.depends_on_input(value)):
            raise UnsupportedOperation(
                f"LRP has no rule for {name!r} where more than its first argument depends on the network's "
                f"input, called {self.layers.call_site()}"
            )

    def _takes_gates(self, operation: Operation | None, first: Any) -> bool:
        """Whether an operation uses gates only as factors or divisors of a value that is not a gate."""
        if operation is None:
            return False
        if operation.accepts == "gates":
            return self.table[first].gate is None
        return operation.accepts == "factors"

    def _in_float32(self, value: Tensor) -> Tensor:
        """Return a constant in float32 if it is in half precision; values that depend on the input as they are."""
        if value.dtype not in HALF or self.table.depends_on_input(value):
            return value
        return self.table.in_place_of(value, value.float())

    def _constant(self, func: Function, args: Arguments, kwargs: Keywords, is_dependent: bool) -> Any:
        """Compute a constant: an operation on parameters alone, a detached one, or one under no_grad."""
        if is_dependent and torch.is_inference_mode_enabled():
            raise UnsupportedOperation(
                f"LRP can't trace torch.inference_mode(), used {self.layers.call_site()}; use torch.no_grad() for "
                "constants"
            )
        args, kwargs = mapped(self._detached, (args, kwargs))
        with torch.no_grad():
            result = func(*args, **kwargs)
        if is_dependent:
            return result
        sources = tensors((args, kwargs))
        return mapped(lambda value: self.table.inherit_owner(value, sources), result)

    def _detached(self, value: Tensor) -> Tensor:
        """Detach a value that depends on the input."""
        return value.detach() if self.table.depends_on_input(value) else value

    def plain(self, func: Function, args: Arguments, kwargs: Keywords) -> Any:
        """Run a function that keeps its gradient, also on what rules get in place of zeros among its arguments."""
        result = func(*args, **kwargs)
        if any(self.table[value].without_zeros is not None for value in tensors((args, kwargs))):
            with torch.no_grad():
                args, kwargs = mapped(self.table.without_zeros, (args, kwargs))
                at_rules = func(*args, **kwargs)
            for value, without_zeros in zip(tensors(result), tensors(at_rules), strict=True):
                self.keep_without_zeros(value, without_zeros)
        return result

    def elementwise(self, x: Tensor, y: Tensor, without_zeros: Tensor) -> Tensor:
        """Return an elementwise function ``y`` of x, through which relevance passes: ``m_x = m_y y / x``.

        `without_zeros` is the function at what rules get in place of x.
        """
        without_zeros = replace_zeros(without_zeros, self.tiny)
        ratio = quotient(without_zeros, self.table.without_zeros(x))  # y / x
        result: Tensor = CustomBackward.apply(x, lambda: (y, ratio), torch.mul)
        self.keep_without_zeros(result, without_zeros)
        return result

    def keep_without_zeros(self, value: Tensor, without_zeros: Tensor | None) -> None:
        """Register what rules get in place of a value, if it has zeros."""
        if without_zeros is None or not value.is_floating_point() or not (value == 0).any():
            return
        without_zeros = without_zeros.detach()
        if without_zeros.stride() != value.stride():  # views of one are to be views of the other
            without_zeros = torch.empty_like(value).detach().copy_(without_zeros)
        self.table.update(value, without_zeros=without_zeros)

    def as_gate(self, func: Function, args: Arguments, kwargs: Keywords, gate: FunctionCall | None = None) -> Any:
        """Compute a value without a rule: detached, and registered as a gate if it depends on the input."""
        versions = {id(value): value._version for value in tensors((args, kwargs))}
        result = func(*args, **kwargs)
        if gate is None and not requiring_grad(result):
            return result
        if isinstance(result, Tensor) and versions.get(id(result)) == result._version:
            return result  # its argument, unchanged: as_tensor and its like

        if gate is None:
            hint = advice(func, (args, kwargs), result)
            gate = FunctionCall(function_name(func), self.layers.call_site(), hint)
        result = mapped(self._detached, result)
        for value in tensors(result):
            if value.is_floating_point() or value.is_complex():  # others, such as masks, are constants
                self.table.update(value, gate=gate)
        return result

    def _apply_function_rule(
        self,
        rule: FunctionRule | Constant,
        func: Function,
        sources: list[Tensor],
        args: Arguments,
        kwargs: Keywords,
    ) -> Any:
        """Run a function that the composite has a rule for."""
        if isinstance(rule, Constant):
            return self._constant(func, args, kwargs, is_dependent=True)
        if len(sources) != 1:
            raise TypeError(
                f"the rule for {function_name(func)!r} needs one argument that depends on the network's input, "
                f"got {len(sources)}, called {self.layers.call_site()}"
            )
        (source,) = sources

        def compute() -> tuple[Tensor, ...]:
            """Compute the value, and the input and output that the rule gets."""
            value = func(*args, **kwargs)
            x = self.table[source].without_zeros
            if x is None:
                return value, source, value
            rule_args, rule_kwargs = mapped(self.table.without_zeros, (args, kwargs))
            y = func(*rule_args, **rule_kwargs)
            return value, x, y

        return CustomBackward.apply(source, compute, lambda m, x, y: rule(x, y, m))

    def trace(self, module: Callable[[Tensor], Any]) -> Tensor:
        """Run a network, check its output, and return it."""
        with plain_calls, local_calls, self:
            output = module(self._leaf)
        if not isinstance(output, Tensor):
            raise TypeError(f"LRP needs a network with one tensor as its output, got {type(output).__name__}")
        output = self._current_argument(output)
        info = self.table[output]
        if info.gate is not None:
            raise unsupported(info.gate)
        if info.layer is not None:
            info.layer.count_use(output)
        return output


def unsupported(call: FunctionCall) -> UnsupportedOperation:
    """Return the error for the call of a function that has no rule."""
    function = repr(call.name)
    if call.name in RECURRENT:
        function = f"the recurrent layer {call.name.upper()}"
    return UnsupportedOperation(f"LRP has no rule for {function}, called {call.location}; {call.advice}")
