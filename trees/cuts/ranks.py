"""Ranks of values among the distinct values of points and centers, which are the codes of columns.

A cut on codes is an integer: points with ``code <= b`` go left. One cut between each two adjacent codes is enough,
because all thresholds between the same two values give the same cut.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from neonxc.common.processes import Ranks
from neonxc.trees.cuts.exact_sums import distinct, is_first
from neonxc.trees.cuts.snapping import Rounding, sorted_with

EXACT = 2.0**53  # larger integers are not exact in float64
INDICES = 280_000  # number of indices that fit into a core's cache
INTEGERS = 1 << 10  # integers within a range of this length are coded without sorting


class Ranked(NamedTuple):
    """The codes of some columns."""

    codes: Tensor  # [f, n], of the values
    centers: Tensor  # [f, k] of int64, codes of the centers
    size: Tensor  # [f] of int64, number of codes
    snapped: Tensor  # [f, k] of float64, the centers, snapped


def value_ranks(values: Tensor, centers: Tensor, rounding: Rounding, ranks: Ranks) -> Ranked:
    """Codes of the values [f, n] and the centers [f, k], which are snapped; the same in all processes."""
    if not ranks.alone:
        return _ranks_of_all(values, centers, rounding, ranks)
    by_table = _integer_ranks(values, centers, rounding)
    if by_table is not None:
        return by_table
    return _ranks(values, centers, rounding)


def _ranks(values: Tensor, centers: Tensor, rounding: Rounding) -> Ranked:
    """Ranks of numbers among the distinct ones of their row; those of values are of int32."""
    ordered, order, snapped = sorted_with(values, centers, rounding)
    codes, size = row_ranks(ordered, order)
    n = values.shape[1]
    return Ranked(codes[:, :n], codes[:, n:].to(torch.int64), size, snapped)


def row_ranks(ordered: Tensor, order: Tensor) -> tuple[Tensor, Tensor]:
    """Rank of every number among the distinct ones of its row, [f, n] of int32, and how many these are, [f].

    `ordered` and `order` are as :func:`~neonxc.trees.cuts.exact_sums.sorted_rows` gives them.
    """
    rank = is_first(ordered).cumsum(1, dtype=torch.int32).sub_(1)
    size = rank[:, -1].to(torch.int64) + 1
    return torch.empty_like(rank).scatter_(1, order, rank), size


def _integer_ranks(values: Tensor, centers: Tensor, rounding: Rounding) -> Ranked | None:
    """Codes of integers in a small range, computed by table lookup; None for other values."""
    if not _are_integers(values[:, :100]):  # the first ones tell most tables of other numbers
        return None
    low = values.amin(1).to(torch.float64)
    high = values.amax(1).to(torch.float64)
    is_large = (high - low >= INTEGERS) | (high >= EXACT) | (low <= -EXACT)
    if bool(is_large.any()) or not _are_integers(values):
        return None

    # ranks of all integers of the range, of which some may not occur
    longest = int((high - low).max()) + 1
    integers = low[:, None] + torch.arange(longest, device=values.device)
    ranked = _ranks(integers, centers, rounding)
    table = ranked.codes.to(code_type(longest + centers.shape[1]))

    codes = torch.empty(values.shape, dtype=table.dtype, device=values.device)
    low = low.to(torch.int64)
    step = max(1, INDICES // values.shape[1])
    for first in range(0, len(values), step):
        columns = slice(first, first + step)
        index = torch.sub(values[columns], low[columns, None]).to(torch.int64)
        torch.gather(table[columns], 1, index, out=codes[columns])
    return ranked._replace(codes=codes)


def _are_integers(values: Tensor) -> bool:
    """Whether all numbers are integers."""
    return not values.is_floating_point() or torch.equal(values, values.round())


def _ranks_of_all(values: Tensor, centers: Tensor, rounding: Rounding, ranks: Ranks) -> Ranked:
    """Codes among the values of all processes."""
    values = values.to(torch.float64)
    local_values = distinct(values)
    n_distinct = int(local_values.isfinite().sum(1).max())
    gathered = ranks.gather(local_values[:, :n_distinct].T.contiguous())
    all_values = distinct(torch.cat(gathered).T)

    largest = all_values.where(all_values.isfinite(), -torch.inf).amax(1, keepdim=True)
    all_values = all_values.minimum(largest)  # instead of infinity behind the last value
    ranked = _ranks(all_values, centers, rounding)
    codes = ranked.codes.gather(1, torch.searchsorted(all_values, values))
    return ranked._replace(codes=codes)


def code_type(size: int) -> torch.dtype:
    """The smallest integer type that holds `size` codes."""
    if size <= 256:
        return torch.uint8
    if size <= 1 << 15:
        return torch.int16
    return torch.int32
