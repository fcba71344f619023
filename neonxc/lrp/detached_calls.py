"""Where a network cuts values off from its input: detached, without gradients, or through NumPy and numbers.

A call *cuts* its results off if they are constants for autograd although an argument depends on the input. What is
computed from such a result alone is cut off as well, and by the same call, which the error names if nothing else
leads to the output.
"""

from __future__ import annotations

import torch
from torch import Tensor

from neonxc.lrp.advice import FLOATING_POINT, is_quantised
from neonxc.lrp.layer_names import LayerNames, UnsupportedOperation
from neonxc.lrp.lookups import is_lookup
from neonxc.lrp.tensor_info import FunctionCall, TensorTable
from neonxc.lrp.tensor_table import LEAVING, Function, function_name


class DetachedCalls:
    """The calls that cut values off from the input. An output that only such values lead to has no relevance."""

    def __init__(self, layers: LayerNames, table: TensorTable) -> None:
        self._layers = layers
        self._table = table
        self._last: FunctionCall | None = None
        self.lookup: FunctionCall | None = None  # in a table of constants, by numbers that the input was cut to

    def mark(self, func: Function, arguments: list[Tensor], constants: list[Tensor]) -> None:
        """Register that a function was called with these tensors, some of its results being `constants`."""
        name = function_name(func)
        table = self._table
        if name == "__setitem__":
            constants = arguments[:1]
        if not constants and name not in LEAVING:
            return
        if name.startswith("new_") or name.endswith("_like"):
            arguments = arguments[1:]  # the first one lends its form alone
        elif name == "to" or name.endswith("_as"):
            arguments = arguments[:1]

        is_dependent = any(map(table.depends_on_input, arguments))
        if is_dependent:
            cut: FunctionCall | None = self._new_cut(func)
        else:
            cut = next(filter(None, (table[value].cut for value in arguments)), None)
        if cut is None:
            return
        if is_lookup(name) and not is_dependent and self.lookup is None:
            self.lookup = FunctionCall(name.strip("_"), self._layers.call_site(), "")

        self._last = cut
        bases = [value._base for value in constants]  # a write into a view changes its base
        for value in (*constants, *bases):
            if value is not None and not table.depends_on_input(value):
                table.update(value, cut=cut)

    def _new_cut(self, func: Function) -> FunctionCall:
        """Describe the call of a function that cuts its results off from an argument."""
        cause = "torch.no_grad()"
        if torch.is_grad_enabled():
            name = function_name(func)
            cause = repr(name.strip("_"))
        hint = "LRP needs differentiable operations all the way"
        if is_quantised(func):
            hint = FLOATING_POINT
        return FunctionCall(cause, self._layers.call_site(), hint)

    def check(self, output: Tensor, second_output: Tensor) -> None:
        """Raise an error if an output that is constant for autograd differs from that of a second input."""
        cut = self._table[output].cut
        if cut is None and torch.equal(output, second_output):
            return
        if cut is None:
            cut = self._last  # after NumPy, say, it is not known which one
        reason = "autograd has no path to it"
        if cut is not None:
            reason = f"it was cut off by {cut.name}, {cut.location}; {cut.advice}"
        raise UnsupportedOperation(f"the output does not depend on the input: {reason}")
