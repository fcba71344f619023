"""Tensors that a network modifies in place: nothing is overwritten, as the rules need what was there before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from neonxc.lrp.known import Known
from neonxc.lrp.table import function_name

Call = Callable[..., Any]


class CannotFollow(Exception):
    """What was written can't be expressed without overwriting memory."""


def put(known: Known, call: Call, old: Tensor, new: Tensor) -> Any:
    """Let `new` stand for `old` from now on, and return it.

    A view and its base share memory, so what is written to one is read from the other. `call` computes as if the
    network did.
    """
    if old is new:
        return new
    known.written, base = True, _base(old)
    if base is None:
        known.note(old, now=new)
    else:
        known.note(base, now=_written(call, base, old, new))
    return current(known, call, old)


def current(known: Known, call: Call, value: Tensor) -> Tensor:
    """Return what stands for a tensor now."""
    if not known.written:
        return value
    now, base = known[value].now, _base(value)
    if now is not None:
        return current(known, call, now)
    if base is None or known[base].now is None:
        return value
    whole = current(known, call, base)
    if whole.stride() != base.stride():
        raise CannotFollow
    offset = value.storage_offset() - base.storage_offset() + whole.storage_offset()
    return current(known, call, call(torch.as_strided, whole, value.shape, value.stride(), offset))


def _base(tensor: Tensor) -> Tensor | None:
    return tensor._base if tensor._is_view() else None


def _written(call: Call, base: Tensor, view: Tensor, new: Tensor) -> Any:
    """Give a tensor with `new` in the place of one of its views."""
    if base.numel() != 1 + sum((n - 1) * step for n, step in zip(base.shape, base.stride(), strict=True)):
        raise CannotFollow  # there are gaps in its memory
    places = torch.arange(base.numel(), device=base.device)
    places = places.as_strided(view.shape, view.stride(), view.storage_offset() - base.storage_offset())
    flat = call(torch.as_strided, base, (base.numel(),), (1,), base.storage_offset())
    flat = call(torch.scatter, flat, 0, places.flatten(), call(torch.flatten, new))
    return call(torch.as_strided, flat, base.shape, base.stride())


def out_of_place(func: Any, kwargs: dict[str, Any]) -> Any | None:
    """For a call that modifies its first argument, the function that does not."""
    name = function_name(func)
    if name in _SAME:
        return _SAME[name]
    if name.startswith("__i") and name.endswith("__"):  # `x += y` and its like
        return getattr(Tensor, f"__{name[3:]}", None)
    if name.endswith("_") and not name.endswith("__"):
        return next((f for place in (F, torch, Tensor) if callable(f := getattr(place, name[:-1], None))), None)
    return func if kwargs.get("inplace") else None


def _with_item(tensor: Tensor, key: Any, value: Any) -> Tensor:
    """``tensor[key] = value``."""
    tensor = tensor.clone()
    tensor[key] = value
    return tensor


def _copied(tensor: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
    """``tensor.copy_(source)``."""
    return source.to(tensor).expand_as(tensor).clone()


_SAME = {"__setitem__": _with_item, "copy_": _copied, "zero_": torch.zeros_like}
