"""A table of information about the tensors of one forward pass, kept beside them so that none is modified.

A value is, as seen from the network's input,

    live        autograd leads from it to the input: relevance can reach it
    a gate      computed from the input by a function without a rule, and detached: it may be a factor only
    cut         detached by the network itself, or by code that can't be traced: a constant that varies
    constant    a parameter, a buffer, or computed from these alone

An in-place operation on a live value is computed out of place. The table then keeps its result as the
*replacement* of the tensor that the network goes on to use, and :meth:`TensorTable.current` looks it up.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from neonxc.lrp.channel_map import ChannelMap
from neonxc.lrp.layer import RecordedLayer
from neonxc.lrp.layer_names import LayerNames, Owner, UnsupportedOperation
from neonxc.lrp.tensor_table import Function

Value = TypeVar("Value")
CONTAINERS = (tuple, list, dict)
MAPPED = (Tensor, *CONTAINERS)
_FUNCTORCH: Any = getattr(torch._C, "_functorch", None)  # private: a later PyTorch may be without it


@dataclass(frozen=True)
class FunctionCall:
    """The call of a function: its name, its line, and what to do if relevance can't pass it."""

    name: str
    location: str
    advice: str


@dataclass
class TensorInfo:
    """Information about one tensor."""

    tensor: weakref.ref[Tensor] | None = None
    version: int = -1  # set by a traced call; a later version was written by code that is not traced
    layer: RecordedLayer | None = None  # the linear layer whose output it is
    channel_map: ChannelMap | None = None  # constants by which it was computed since the last layer
    is_rescaled: bool = False  # whether it was scaled by values that depend on the input
    gate: FunctionCall | None = None  # the nonlinear function without a rule; the value may be a factor only
    cut: FunctionCall | None = None  # what cut it off from the input that it was computed from
    is_input: bool = False  # whether it is the network's input, possibly normalized
    owner: Owner | None = None  # the module whose parameter or buffer it is, or was computed from
    replacement: Tensor | None = None  # its new value, if the network has modified it in place
    without_zeros: Tensor | None = None  # its value for rules, with tiny numbers where relevance may reach zeros


class TensorTable:
    """The :class:`TensorInfo` of the tensors of one forward pass; an entry is dropped together with its tensor.

    Every operation looks tensors up several times, for which PyTorch's ``WeakTensorKeyDictionary`` is too slow.
    """

    def __init__(self, layers: LayerNames, leaf: Tensor) -> None:
        self.has_replacements = False  # whether any tensor was modified in place
        self._layers = layers
        self._leaf = leaf
        self._infos: dict[int, TensorInfo] = {}
        self._unknown = TensorInfo()
        self.update(leaf, version=leaf._version, is_input=True)
        for tensor, owner in layers.owners:
            self.update(tensor, owner=self[tensor].owner or owner)

    def __getitem__(self, tensor: Tensor) -> TensorInfo:
        return self._infos.get(id(tensor), self._unknown)

    def update(self, tensor: Tensor, **values: Any) -> None:
        """Set attributes of a tensor's :class:`TensorInfo`."""
        key = id(tensor)
        if key not in self._infos:
            table_ref = weakref.ref(self)  # a strong reference in the callback would keep the table alive

            def drop(_: weakref.ref[Tensor]) -> None:
                table = table_ref()
                if table is not None:
                    table._infos.pop(key, None)

            self._infos[key] = TensorInfo(weakref.ref(tensor, drop))
        info = self._infos[key]
        for name, new in values.items():
            setattr(info, name, new)

    def inherit_owner(self, value: Value, sources: Iterable[Tensor]) -> Value:
        """Register the owner of `sources` as that of a constant that was computed from them; return it."""
        owners = (self[source].owner for source in sources)
        owner = next(filter(None, owners), None)
        if owner is not None and isinstance(value, Tensor) and self[value].owner is None:
            self.update(value, owner=owner)
        return value

    def in_place_of(self, source: Tensor, value: Tensor) -> Tensor:
        """Register a constant as what a network uses in place of `source`; return it."""
        cut = self[source].cut
        if cut is not None:
            self.update(value, cut=cut)
        return self.inherit_owner(value, [source])

    def without_zeros(self, value: Tensor) -> Tensor:
        """Return the value of a tensor that rules get: with tiny numbers where relevance may reach its zeros."""
        replaced = self[value].without_zeros
        return value.detach() if replaced is None else replaced

    def varies(self, value: object) -> bool:
        """Whether a constant differs from input to input: it is a gate, or was cut off from the input."""
        return isinstance(value, Tensor) and bool(self[value].gate or self[value].cut)

    def depends_on_input(self, value: object) -> bool:
        """Whether a value is a tensor that depends on the network's input, gates included."""
        return isinstance(value, Tensor) and (self.is_live(value) or self[value].gate is not None)

    def is_live(self, value: Tensor) -> bool:
        """Whether autograd leads from a value to the network's input, not just to a parameter."""
        return value.requires_grad and (not value.is_leaf or value is self._leaf)

    def is_transformed(self, value: Tensor) -> bool:
        """Whether a value that depends on the input is wrapped by a transform such as ``torch.vmap``."""
        is_wrapped = getattr(_FUNCTORCH, "is_functorch_wrapped_tensor", lambda _: False)
        if not is_wrapped(value):
            return False
        while is_wrapped(value):
            value = _FUNCTORCH.get_unwrapped(value)
        return self.depends_on_input(value)

    def without_graph(self, value: Tensor) -> Tensor:
        """Return the values of a tensor that depends on the input for a network to keep; others as they are."""
        is_of_pass = value is self._leaf or self.was_traced(value)
        if not (self.is_live(value) and is_of_pass):
            return value
        while True:
            replacement = self[value].replacement
            if replacement is None:
                return value.detach()
            value = replacement

    def was_traced(self, value: Tensor) -> bool:
        """Whether a traced call computed this value: TorchScript, ``autograd.Function`` and C++ are not traced."""
        version = self[value].version
        return version >= 0 and version == value._version

    def leads_to_input(self, value: Tensor) -> bool:
        """Whether the autograd graph connects a value to the network's input."""
        visited: set[Any] = {None}
        stack: list[Any] = [value.grad_fn]
        while stack:
            node = stack.pop()
            if getattr(node, "variable", None) is self._leaf:
                return True
            if node not in visited:
                visited.add(node)
                stack.extend(parent for parent, _ in node.next_functions)
        return False

    def replace(self, call: Function, old: Tensor, new: Tensor) -> Tensor:
        """Register `new` as the value of `old` after an in-place operation, and return it.

        A view and its base share memory, so a write to one of them also changes the other. `call` runs a traced
        operation.
        """
        if old is new:
            return new
        self.has_replacements = True
        base = old._base
        if base is None:
            self.update(old, replacement=new)
        else:
            new_base = self._base_with_view(call, base, old, new)
            self.update(base, replacement=new_base)
        return self.current(call, old)

    def current(self, call: Function, value: Tensor) -> Tensor:
        """Return the tensor that holds the current value of a possibly modified tensor."""
        if not self.has_replacements:
            return value
        replacement = self[value].replacement
        if replacement is not None:
            return self.current(call, replacement)
        base = value._base
        if base is None or self[base].replacement is None:
            return value

        # take the view of the base's replacement that `value` is of the base
        new_base = self.current(call, base)
        self._check_write(new_base.stride() == base.stride())
        offset = value.storage_offset() - base.storage_offset() + new_base.storage_offset()
        view = call(torch.as_strided, new_base, value.shape, value.stride(), offset)
        return self.current(call, view)

    def _base_with_view(self, call: Function, base: Tensor, view: Tensor, new: Tensor) -> Tensor:
        """Return a copy of `base` in which the values of one of its views are replaced by `new`."""
        last = sum((n - 1) * stride for n, stride in zip(base.shape, base.stride(), strict=True))
        self._check_write(base.numel() == last + 1)  # else the memory of the base has gaps

        # positions of the view's values in the memory of the base
        positions = torch.arange(base.numel(), device=base.device)
        offset = view.storage_offset() - base.storage_offset()
        positions = positions.as_strided(view.shape, view.stride(), offset)

        flat = call(torch.as_strided, base, (base.numel(),), (1,), base.storage_offset())
        flat = call(torch.scatter, flat, 0, positions.flatten(), call(torch.flatten, new))
        copy: Tensor = call(torch.as_strided, flat, base.shape, base.stride())
        return copy

    def _check_write(self, is_possible: bool) -> None:
        """Raise an error unless a write into a view can be computed out of place."""
        if not is_possible:
            raise UnsupportedOperation(
                f"LRP can't trace an in-place operation on this view, used {self._layers.call_site()}"
            )


def tensors(values: object) -> list[Tensor]:
    """Return all tensors in nested arguments or results."""
    if isinstance(values, Tensor):
        return [values]
    if isinstance(values, dict):
        values = values.values()
    elif not isinstance(values, (tuple, list)):
        return []
    result: list[Tensor] = []
    for value in values:  # a call for each number among them would take most of the time
        if isinstance(value, Tensor):
            result.append(value)
        elif isinstance(value, CONTAINERS):
            result += tensors(value)
    return result


def mapped(function: Callable[[Tensor], Tensor], values: Any) -> Any:
    """Apply a function to all tensors in nested arguments or results; several times as fast as ``tree_map``."""
    if isinstance(values, Tensor):
        return function(values)
    if isinstance(values, (tuple, list)):
        items = [mapped(function, value) if isinstance(value, MAPPED) else value for value in values]
        is_named = hasattr(values, "_fields")
        return type(values)(*items) if is_named else type(values)(items)
    if isinstance(values, dict):
        return {key: mapped(function, value) for key, value in values.items()}
    return values


def requiring_grad(values: object) -> list[Tensor]:
    """Return the tensors that relevance can reach: constants require no gradients while a network is traced."""
    return [value for value in tensors(values) if value.requires_grad]
