"""In-place operations of a network, computed out of place: the rules need the values that would be overwritten."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from neonxc.lrp.table import function_name
from neonxc.lrp.tensor_info import TensorTable

Call = Callable[..., Any]


class UnsupportedWrite(Exception):
    """An in-place operation on a view that cannot be computed out of place."""


def replace_tensor(tensors: TensorTable, call: Call, old: Tensor, new: Tensor) -> Any:
    """Register `new` as the value of `old` after an in-place operation, and return it.

    A view and its base share memory, so a write to one of them also changes the other. `call` runs a traced
    operation.
    """
    if old is new:
        return new
    tensors.has_replacements, base = True, _base(old)
    if base is None:
        tensors.update(old, replacement=new)
    else:
        tensors.update(base, replacement=_base_with_view(call, base, old, new))
    return current_value(tensors, call, old)


def current_value(tensors: TensorTable, call: Call, value: Tensor) -> Tensor:
    """Return the tensor that holds the current value of a possibly modified tensor."""
    if not tensors.has_replacements:
        return value
    replacement, base = tensors[value].replacement, _base(value)
    if replacement is not None:
        return current_value(tensors, call, replacement)
    if base is None or tensors[base].replacement is None:
        return value
    whole = current_value(tensors, call, base)
    if whole.stride() != base.stride():
        raise UnsupportedWrite
    offset = value.storage_offset() - base.storage_offset() + whole.storage_offset()
    return current_value(tensors, call, call(torch.as_strided, whole, value.shape, value.stride(), offset))


def _base(tensor: Tensor) -> Tensor | None:
    return tensor._base if tensor._is_view() else None


def _base_with_view(call: Call, base: Tensor, view: Tensor, new: Tensor) -> Any:
    """Return a copy of `base` in which the values of one of its views are replaced by `new`."""
    if base.numel() != 1 + sum((n - 1) * step for n, step in zip(base.shape, base.stride(), strict=True)):
        raise UnsupportedWrite  # the memory of the base has gaps
    places = torch.arange(base.numel(), device=base.device)
    places = places.as_strided(view.shape, view.stride(), view.storage_offset() - base.storage_offset())
    flat = call(torch.as_strided, base, (base.numel(),), (1,), base.storage_offset())
    flat = call(torch.scatter, flat, 0, places.flatten(), call(torch.flatten, new))
    return call(torch.as_strided, flat, base.shape, base.stride())


def out_of_place(func: Any, kwargs: dict[str, Any]) -> Any | None:
    """Return the out-of-place counterpart of a function that modifies its first argument, else None."""
    name = function_name(func)
    if name in _COUNTERPARTS:
        return _COUNTERPARTS[name]
    if name.startswith("__i") and name.endswith("__"):  # `x += y` and its like
        return getattr(Tensor, f"__{name[3:]}", None)
    if name.endswith("_") and not name.endswith("__"):
        return next((f for place in (F, torch, Tensor) if callable(f := getattr(place, name[:-1], None))), None)
    return func if kwargs.get("inplace") else None


def _with_item(tensor: Tensor, key: Any, value: Any) -> Tensor:
    """The out-of-place counterpart of ``tensor[key] = value``."""
    tensor = tensor.clone()
    tensor[key] = value
    return tensor


def _copied(tensor: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
    """The out-of-place counterpart of ``tensor.copy_(source)``."""
    return source.to(tensor).expand_as(tensor).clone()


_COUNTERPARTS = {"__setitem__": _with_item, "copy_": _copied, "zero_": torch.zeros_like}
