"""Codes of the values of columns, which are ranks among the distinct values, and thresholds between values."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from neonxc.common.processes import Ranks

EXACT = 2.0**53  # larger integers are not exact in float64
INDICES = 280_000  # number of indices that fit into a core's cache
INTEGERS = 1 << 10  # integers within a range of this length are coded without sorting
Codes = tuple[Tensor, Tensor, Tensor]
"""Codes of the points [f, n] and of the centers [f, k], and number of codes of every column, [f]."""


def value_ranks(values: Tensor, centers: Tensor, ranks: Ranks) -> Codes:
    """Codes of the values [f, n] and the centers [f, k]; the same in all processes."""
    if not ranks.alone:
        return _ranks_of_all(values, centers, ranks)
    found = _integer_ranks(values, centers)
    if found is not None:
        return found
    codes, size = _ranks(torch.cat([values.to(torch.float64), centers], 1))
    n = values.shape[1]
    return codes[:, :n], codes[:, n:].to(torch.int64), size


def _ranks(values: Tensor) -> tuple[Tensor, Tensor]:
    """Rank of every number among the distinct ones of its row, [f, n] of int32, and how many these are, [f]."""
    ordered, order = sorted_rows(values)
    rank = is_first(ordered).cumsum(1, dtype=torch.int32).sub_(1)
    return torch.empty_like(rank).scatter_(1, order, rank), rank[:, -1].to(torch.int64) + 1


def _integer_ranks(values: Tensor, centers: Tensor) -> Codes | None:
    """Codes of integers in a small range, computed by table lookup; None for other values."""

    def integers(part: Tensor) -> bool:
        return not part.is_floating_point() or torch.equal(part, part.round())

    if not integers(values[:, :100]):
        return None
    low, high = (end.to(torch.float64) for end in (values.amin(1), values.amax(1)))
    if bool(((high - low >= INTEGERS) | (high >= EXACT) | (low <= -EXACT)).any()) or not integers(values):
        return None
    numbers = low[:, None] + torch.arange(int((high - low).max()) + 1, device=values.device)
    ranks, size = _ranks(torch.cat([numbers, centers], 1))
    table = ranks[:, : numbers.shape[1]].to(code_type(ranks.shape[1]))
    codes, low = torch.empty(values.shape, dtype=table.dtype, device=values.device), low.to(torch.int64)
    step = max(1, INDICES // values.shape[1])
    for first in range(0, len(values), step):
        part = slice(first, first + step)
        index = torch.sub(values[part], low[part, None]).to(torch.int64)
        torch.gather(table[part], 1, index, out=codes[part])
    return codes, ranks[:, numbers.shape[1] :].to(torch.int64), size


def _ranks_of_all(values: Tensor, centers: Tensor, ranks: Ranks) -> Codes:
    """Codes among the values of all processes."""
    values = values.to(torch.float64)
    own = distinct(torch.cat([values, centers], 1))
    own = own[:, : int(own.isfinite().sum(1).max())]
    every = distinct(torch.cat(ranks.gather(own.T.contiguous())).T)
    codes = torch.searchsorted(every, torch.cat([values, centers], 1))
    n = values.shape[1]
    return codes[:, :n].to(torch.int32), codes[:, n:], every.isfinite().sum(1)


def code_type(size: int) -> torch.dtype:
    """The smallest integer type that holds `size` codes."""
    return torch.uint8 if size <= 256 else torch.int16 if size <= 1 << 15 else torch.int32


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


def around(below: Tensor, above: Tensor, left: Tensor) -> Tensor:
    """Maximum of `below` over the left side, and of minus `above` over the right side; -inf for an empty side."""
    if not len(left):
        return below.new_full((2,), -torch.inf)
    return torch.stack([below.where(left, -torch.inf), (-above).where(~left, -torch.inf)]).amax(1)


def open_ends(low: float, high: float) -> tuple[float, float]:
    """Replace infinite ends, which stand for sides without points, by finite ones with a gap between the two."""
    if low == float("-inf"):
        low = high - 1 if high < float("inf") else 0.0
    return low, low + 1 if high == float("inf") else high


def between(low: float, high: float, dtype: Any = None, share: float = 0.5) -> float:
    """A number between two others such that ``low <= number < high``, also when it is rounded to `dtype`."""
    middle = low * (1 - share) + high * share
    if not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        return middle if low <= middle < high else low
    if dtype != torch.float64:
        middle = torch.tensor(middle, dtype=dtype).item()
    if low <= middle < high:
        return middle
    below = torch.tensor(high, dtype=dtype)  # becomes the largest number of the type below `high`
    if below.item() >= high:
        below = below.nextafter(torch.tensor(-torch.inf, dtype=dtype))
    return below.item()
