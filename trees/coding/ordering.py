"""Sorting and selection, implemented by whichever of NumPy and torch is faster."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

PARALLEL = 1 << 20  # number of entries from which torch, which uses all cores, sorts faster than NumPy


def sorted_rows(values: Tensor) -> tuple[Tensor, Tensor]:
    """Sort every row; return the sorted values and the permutation, [f, n] of int64; ties are in any order."""
    if values.device.type != "cpu" or values.numel() >= PARALLEL:
        ordered, order = values.sort(dim=1)
        return ordered, order
    kind: Any = "stable" if values.element_size() <= 2 else None  # a radix sort for short integers
    order = torch.from_numpy(np.argsort(values.numpy(), axis=1, kind=kind))
    return values.gather(1, order), order


def is_first(ordered: Tensor) -> Tensor:
    """Mask of the values that differ from the previous one in their row, and of the first value of every row."""
    new = torch.ones_like(ordered, dtype=torch.bool)
    torch.ne(ordered[:, 1:], ordered[:, :-1], out=new[:, 1:])
    return new


def distinct(values: Tensor) -> Tensor:
    """Sorted distinct numbers of every row, padded by infinity, [f, n]."""
    ordered = sorted_rows(values + 0.0)[0]  # -0.0 is 0.0
    return ordered.masked_fill(~is_first(ordered), torch.inf).sort(dim=1).values


def select(numbers: Tensor, which: Tensor) -> Tensor:
    """Select the numbers [n] where a mask is True."""
    if numbers.device.type != "cpu":
        return numbers.masked_select(which)
    return torch.from_numpy(numbers.numpy()[which.numpy()])  # torch would need two temporary arrays of n integers
