"""Rows of numbers in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

PARALLEL = 1 << 20  # entries that torch sorts sooner than NumPy, which uses one core


def sorted_rows(values: Tensor) -> tuple[Tensor, Tensor]:
    """Every row in order, and where its entries were, [f, n] of int64; equal ones in any order."""
    if values.device.type != "cpu" or values.numel() >= PARALLEL:
        ordered, order = values.sort(dim=1)
        return ordered, order
    kind: Any = "stable" if values.element_size() <= 2 else None  # NumPy sorts short integers digit by digit
    order = torch.from_numpy(np.argsort(values.numpy(), axis=1, kind=kind))
    return values.gather(1, order), order


def firsts(ordered: Tensor) -> Tensor:
    """Whether a value differs from the one before it in its row; the first one always does."""
    new = torch.ones_like(ordered, dtype=torch.bool)
    torch.ne(ordered[:, 1:], ordered[:, :-1], out=new[:, 1:])
    return new


def chosen(numbers: Tensor, which: Tensor) -> Tensor:
    """The numbers [n] for which a truth value holds, in order."""
    if numbers.device.type != "cpu":
        return numbers.masked_select(which)
    return torch.from_numpy(numbers.numpy()[which.numpy()])  # torch makes two arrays of n integers besides
