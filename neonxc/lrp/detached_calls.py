"""Where a network cuts values off from its input: detached, without gradients, or through NumPy and numbers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from neonxc.lrp.advice import FLOATING_POINT, is_quantised
from neonxc.lrp.layer_names import LayerNames, UnsupportedOperation
from neonxc.lrp.lookups import is_lookup
from neonxc.lrp.tensor_info import FunctionCall, TensorTable
from neonxc.lrp.tensor_table import LEAVING, function_name


class DetachedCalls:
    """The calls that cut values off from the input. An output that only such values lead to has no relevance."""

    def __init__(self, layers: LayerNames, table: TensorTable) -> None:
        self._layers = layers
        self._table = table
        self._last: FunctionCall | None = None
        self.lookup: FunctionCall | None = None  # in a table of constants, by numbers that the input was cut to

    def mark(self, func: Any, given: list[Tensor], constants: list[Tensor]) -> None:
        """Register that a function was called with tensors `given`, some of its results being `constants`."""
        name = function_name(func)
        table = self._table
        if name == "__setitem__":
            constants = given[:1]
        if not constants and name not in LEAVING:
            return
        if name.startswith("new_") or name.endswith("_like"):
            given = given[1:]  # the first one lends its form alone
        elif name == "to" or name.endswith("_as"):
            given = given[:1]
        if any(map(table.depends_on_input, given)):
            what = repr(name.strip("_")) if torch.is_grad_enabled() else "torch.no_grad()"
            todo = FLOATING_POINT if is_quantised(func) else "LRP needs differentiable operations all the way"
            cut: FunctionCall | None = FunctionCall(what, self._layers.call_site(), todo)
        else:
            cut = next(filter(None, (table[value].cut for value in given)), None)
        if cut is None:
            return
        if is_lookup(name) and not any(map(table.depends_on_input, given)):
            self.lookup = self.lookup or FunctionCall(name.strip("_"), self._layers.call_site(), "")
        self._last = cut
        for value in (*constants, *(value._base for value in constants)):  # a write into a view changes its base
            if value is not None and not table.depends_on_input(value):
                table.update(value, cut=cut)

    def check(self, output: Tensor, other: Tensor) -> None:
        """Raise an error if an output that is constant for autograd is not; `other` is that of another input."""
        cut = self._table[output].cut
        if cut is None and torch.equal(output, other):
            return
        cut = cut or self._last  # after NumPy, say, it is not known which one
        why = f"it was cut off by {cut.name}, {cut.place}; {cut.advice}" if cut else "autograd has no path to it"
        raise UnsupportedOperation(f"the output does not depend on the input: {why}")
