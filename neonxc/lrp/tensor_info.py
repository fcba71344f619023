"""A table of information about the tensors of one forward pass, kept beside them so that none is modified."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from neonxc.lrp.channel_map import ChannelMap
from neonxc.lrp.layer import RecordedLayer
from neonxc.lrp.layer_names import LayerNames, Owner, UnsupportedOperation

Call = Callable[..., Any]
_FUNCTORCH: Any = getattr(torch._C, "_functorch", None)  # private: a later PyTorch may be without it


@dataclass(frozen=True)
class FunctionCall:
    """The call of a function: its name, its line, and what to do if relevance can't pass it."""

    name: str
    place: str
    advice: str


@dataclass
class TensorInfo:
    """Information about one tensor."""

    tensor: weakref.ref[Tensor] | None = None
    version: int = -1  # set by a traced call; a later version was written by code that is not traced
    layer: RecordedLayer | None = None  # the linear layer whose output it is
    channel_map: ChannelMap | None = None  # constants by which it was computed since the last layer
    rescaled: bool = False  # whether it was scaled by values that depend on the input
    gate: FunctionCall | None = None  # the nonlinear function without a rule; the value may be a factor only
    cut: FunctionCall | None = None  # what cut it off from the input that it was computed from
    pixels: bool = False  # whether it is the network's input, possibly normalized
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
        self.update(leaf, version=leaf._version, pixels=True)
        for tensor, owner in layers.owners:
            self.update(tensor, owner=self[tensor].owner or owner)

    def __getitem__(self, tensor: Tensor) -> TensorInfo:
        return self._infos.get(id(tensor), self._unknown)

    def update(self, tensor: Tensor, **values: Any) -> None:
        """Set attributes of a tensor's :class:`TensorInfo`."""
        key = id(tensor)
        if key not in self._infos:
            table_ref = weakref.ref(self)  # a strong reference in the callback would keep the table alive
            self._infos[key] = TensorInfo(
                weakref.ref(tensor, lambda _: (table := table_ref()) and table._infos.pop(key, None))
            )
        for name, value in values.items():
            setattr(self._infos[key], name, value)

    def inherit_owner(self, value: Any, sources: Iterable[Tensor]) -> Any:
        """Register the owner of `sources` as the owner of a constant that was computed from them; return it."""
        owner = next((owner for source in sources if (owner := self[source].owner)), None)
        if owner is not None and isinstance(value, Tensor) and self[value].owner is None:
            self.update(value, owner=owner)
        return value

    def in_place_of(self, source: Tensor, value: Tensor) -> Tensor:
        """Register a constant as what a network uses in place of `source`; return it."""
        if cut := self[source].cut:
            self.update(value, cut=cut)
        copied: Tensor = self.inherit_owner(value, [source])
        return copied

    def without_zeros(self, value: Any) -> Any:
        """Return the value of a tensor that rules get: with tiny numbers where relevance may reach its zeros."""
        if not isinstance(value, Tensor):
            return value
        replaced = self[value].without_zeros
        return value.detach() if replaced is None else replaced

    def varies(self, value: Any) -> bool:
        """Whether a constant differs from input to input: it is a gate, or was cut off from the input."""
        return isinstance(value, Tensor) and bool(self[value].gate or self[value].cut)

    def depends_on_input(self, value: Any) -> bool:
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
        if not self.is_live(value) or not (value is self._leaf or self.was_traced(value)):
            return value
        while (replacement := self[value].replacement) is not None:
            value = replacement
        return value.detach()

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
                stack += [parent for parent, _ in node.next_functions]
        return False

    def replace(self, call: Call, old: Tensor, new: Tensor) -> Any:
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
            self.update(base, replacement=self._base_with_view(call, base, old, new))
        return self.current(call, old)

    def current(self, call: Call, value: Tensor) -> Tensor:
        """Return the tensor that holds the current value of a possibly modified tensor."""
        if not self.has_replacements:
            return value
        replacement = self[value].replacement
        base = value._base
        if replacement is not None:
            return self.current(call, replacement)
        if base is None or self[base].replacement is None:
            return value
        whole = self.current(call, base)
        self._check_write(whole.stride() == base.stride())
        offset = value.storage_offset() - base.storage_offset() + whole.storage_offset()
        return self.current(call, call(torch.as_strided, whole, value.shape, value.stride(), offset))

    def _base_with_view(self, call: Call, base: Tensor, view: Tensor, new: Tensor) -> Any:
        """Return a copy of `base` in which the values of one of its views are replaced by `new`."""
        size = 1 + sum((n - 1) * step for n, step in zip(base.shape, base.stride(), strict=True))
        self._check_write(base.numel() == size)  # else the memory of the base has gaps
        places = torch.arange(base.numel(), device=base.device)
        places = places.as_strided(view.shape, view.stride(), view.storage_offset() - base.storage_offset())
        flat = call(torch.as_strided, base, (base.numel(),), (1,), base.storage_offset())
        flat = call(torch.scatter, flat, 0, places.flatten(), call(torch.flatten, new))
        return call(torch.as_strided, flat, base.shape, base.stride())

    def _check_write(self, possible: bool) -> None:
        if not possible:
            raise UnsupportedOperation(
                f"LRP can't trace an in-place operation on this view, used {self._layers.call_site()}"
            )


def tensors(values: Any) -> list[Tensor]:
    """All tensors in nested arguments or results."""
    if isinstance(values, Tensor):
        return [values]
    if isinstance(values, dict):
        values = values.values()
    elif not isinstance(values, (tuple, list)):
        return []
    return [tensor for value in values for tensor in tensors(value)]


def mapped(function: Call, values: Any) -> Any:
    """Nested arguments, to each of which a function is applied; several times as fast as ``tree_map``."""
    if isinstance(values, (tuple, list)):
        items = [mapped(function, value) for value in values]
        return type(values)(*items) if hasattr(values, "_fields") else type(values)(items)
    if isinstance(values, dict):
        return {key: mapped(function, value) for key, value in values.items()}
    return function(values)


def requiring_grad(values: Any) -> list[Tensor]:
    """The tensors that relevance can reach: constants do not require gradients while a network is traced."""
    return [value for value in tensors(values) if value.requires_grad]
