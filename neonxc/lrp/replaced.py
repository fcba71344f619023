"""Tensors that a network modifies in place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from neonxc.lrp.places import UnsupportedOperation

if TYPE_CHECKING:
    from neonxc.lrp.watch import Watch


class Replaced:
    """What stands for tensors modified in place: nothing is overwritten, as the rules need what was there before.

    A view and its base share memory, so what is written to one is read from the other.
    """

    def __init__(self) -> None:
        self._new: dict[int, tuple[Tensor, Tensor]] = {}  # by id: what was modified, and its new value

    def put(self, watch: Watch, old: Tensor, new: Tensor) -> Any:
        """Let `new` stand for `old` from now on, and return it."""
        if old is new:
            return new
        base = old._base if old._is_view() else None
        if base is None:
            self._new[id(old)] = old, new
        elif old.numel() == base.numel() and old.is_contiguous() and base.is_contiguous():
            self._new[id(old)] = old, new
            self._new[id(base)] = base, watch.call(torch.reshape, new, base.shape)
        else:
            self._new[id(base)] = base, _written(watch, base, old, new)
        return self.get(watch, old)

    def get(self, watch: Watch, value: Any) -> Any:
        """What stands for a value now."""
        while self._new and isinstance(value, Tensor):
            base = value._base if value._is_view() else None
            if id(value) in self._new:
                value = self._new[id(value)][1]
            elif base is not None and id(base) in self._new:
                whole = self.get(watch, base)
                if whole.stride() != base.stride():
                    raise _lost(watch)
                offset = value.storage_offset() - base.storage_offset() + whole.storage_offset()
                value = watch.call(torch.as_strided, whole, value.shape, value.stride(), offset)
            else:
                break
        return value


def _written(watch: Watch, base: Tensor, view: Tensor, new: Tensor) -> Any:
    """Give a tensor with `new` in the place of one of its views."""
    if base.numel() != 1 + sum((n - 1) * step for n, step in zip(base.shape, base.stride(), strict=True)):
        raise _lost(watch)  # there are gaps in its memory
    places = torch.arange(base.numel(), device=base.device)
    places = places.as_strided(view.shape, view.stride(), view.storage_offset() - base.storage_offset())
    flat = watch.call(torch.as_strided, base, (base.numel(),), (1,), base.storage_offset())
    flat = watch.call(torch.scatter, flat, 0, places.flatten(), watch.call(torch.flatten, new))
    return watch.call(torch.as_strided, flat, base.shape, base.stride())


def _lost(watch: Watch) -> UnsupportedOperation:
    return UnsupportedOperation(f"LRP can't follow what was modified in place, used {watch.layers.where()}")
