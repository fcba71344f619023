"""In-place operations of a network, computed out of place: the rules need the values that would be overwritten."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from neonxc.lrp.table import function_name


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
