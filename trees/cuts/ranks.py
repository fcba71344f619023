"""Ranks of values among the distinct values of points and centers, which are the codes of columns.

A cut on codes is an integer: points with ``code <= b`` go left. One cut between each two adjacent codes is enough,
because all thresholds between the same two values give the same cut.
"""

from __future__ import annotations

import torch
from torch import Tensor

from neonxc.common.processes import Ranks
from neonxc.trees.cuts.exact_sums import distinct, is_first
from neonxc.trees.cuts.snapping import Rounding, sorted_with

EXACT = 2.0**53  # larger integers are not exact in float64
INDICES = 280_000  # number of indices that fit into a core's cache
INTEGERS = 1 << 10  # integers within a range of this length are coded without sorting
Codes = tuple[Tensor, Tensor, Tensor, Tensor]
"""Codes of the points [f, n] and of the centers [f, k], number of codes of every column, [f], and the centers."""


def value_ranks(values: Tensor, centers: Tensor, rounding: Rounding, ranks: Ranks) -> Codes:
    """Codes of the values [f, n] and the centers [f, k], which are snapped; the same in all processes."""
    if not ranks.alone:
        return _ranks_of_all(values, centers, rounding, ranks)
    return _integer_ranks(values, centers, rounding) or _ranks(values, centers, rounding)


def _ranks(values: Tensor, centers: Tensor, rounding: Rounding) -> Codes:
    """Ranks of numbers among the distinct ones of their row; those of values are of int32."""
    ordered, order, centers = sorted_with(values, centers, rounding)
    (codes, size), n = row_ranks(ordered, order), values.shape[1]
    return codes[:, :n], codes[:, n:].to(torch.int64), size, centers


def row_ranks(ordered: Tensor, order: Tensor) -> tuple[Tensor, Tensor]:
    """Rank of every number among the distinct ones of its row, [f, n] of int32, and how many these are, [f].

    `ordered` and `order` are as :func:`~neonxc.trees.cuts.exact_sums.sorted_rows` gives them.
    """
    rank = is_first(ordered).cumsum(1, dtype=torch.int32).sub_(1)
    return torch.empty_like(rank).scatter_(1, order, rank), rank[:, -1].to(torch.int64) + 1


def _integer_ranks(values: Tensor, centers: Tensor, rounding: Rounding) -> Codes | None:
    """Codes of integers in a small range, computed by table lookup; None for other values."""

    def integers(part: Tensor) -> bool:
        return not part.is_floating_point() or torch.equal(part, part.round())

    if not integers(values[:, :100]):
        return None
    low, high = (end.to(torch.float64) for end in (values.amin(1), values.amax(1)))
    if bool(((high - low >= INTEGERS) | (high >= EXACT) | (low <= -EXACT)).any()) or not integers(values):
        return None
    numbers = low[:, None] + torch.arange(int((high - low).max()) + 1, device=values.device)
    ranks, middles, size, centers = _ranks(numbers, centers, rounding)
    table = ranks.to(code_type(numbers.shape[1] + centers.shape[1]))
    codes = torch.empty(values.shape, dtype=table.dtype, device=values.device)
    low = low.to(torch.int64)
    step = max(1, INDICES // values.shape[1])
    for first in range(0, len(values), step):
        part = slice(first, first + step)
        index = torch.sub(values[part], low[part, None]).to(torch.int64)
        torch.gather(table[part], 1, index, out=codes[part])
    return codes, middles, size, centers


def _ranks_of_all(values: Tensor, centers: Tensor, rounding: Rounding, ranks: Ranks) -> Codes:
    """Codes among the values of all processes."""
    values = values.to(torch.float64)
    own = distinct(values)
    own = own[:, : int(own.isfinite().sum(1).max())]
    every = distinct(torch.cat(ranks.gather(own.T.contiguous())).T)
    most = every.where(every.isfinite(), -torch.inf).amax(1, keepdim=True)
    every = every.minimum(most)  # instead of infinity behind the last value
    codes, middles, size, centers = _ranks(every, centers, rounding)
    return codes.gather(1, torch.searchsorted(every, values)), middles, size, centers


def code_type(size: int) -> torch.dtype:
    """The smallest integer type that holds `size` codes."""
    return torch.uint8 if size <= 256 else torch.int16 if size <= 1 << 15 else torch.int32
