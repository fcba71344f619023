"""Columns as codes: ranks among the distinct values that the points and the centers have in a column.

On codes a cut is an integer: ``code <= b`` goes left. Cuts between two neighbouring codes are all the cuts that
differ for some point or center.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neonxc.trees.table import Table

BINS = 512  # that a column may have for its values all to be told apart
HISTOGRAM = 1 << 16  # entries of a whole histogram: so many bins are not too many, either
COARSE = 256  # bins where they can't tell all values apart
PARALLEL = 1 << 20  # entries that torch sorts sooner than NumPy, which uses one core
EXACT = 2.0**53  # floats are not so exact beyond
INDICES = 280_000  # that stay in a core's cache
INTEGERS = 1 << 10  # whole numbers in a range as small as this are coded without sorting


@dataclass
class Columns:
    """The codes of a table.

    Attributes
    ----------
    codes : Tensor [d, n] of uint8, int16 or int32
    centers : Tensor [d, k] of int64
    size : Tensor [d] of int64
        Distinct codes of every column.
    rows : Tensor [n, d] of uint8 or int16
        ``codes // width`` once more, point by point: points are gathered faster so.
    width : Tensor [d] of int64
        Codes that share one bin of `rows`; 1 where bins separate all values.
    row_bins : int
        Bins of the column that has most.
    """

    codes: Tensor
    centers: Tensor
    size: Tensor
    rows: Tensor
    width: Tensor
    row_bins: int

    @cached_property
    def bins(self) -> int:
        """Codes of the column that has most."""
        return int(self.size.max())

    @cached_property
    def separated(self) -> bool:
        """Whether the bins separate all values of all columns."""
        return bool((self.width == 1).all())

    @cached_property
    def cells(self) -> int:
        """Codes of all columns."""
        return int(self.size.sum())

    @cached_property
    def start(self) -> Tensor:
        """Codes of the columns before each, [d]."""
        return self.size.cumsum(0) - self.size

    @cached_property
    def column(self) -> Tensor:
        """The column of every code of all columns, [cells]."""
        return torch.arange(len(self.size), device=self.size.device).repeat_interleave(self.size)

    def at(self, rows: Tensor) -> Tensor:
        """The codes of some points, [d, points]."""
        if self.separated:
            return self.binned(rows)
        return self.codes if len(rows) == self.codes.shape[1] else self.codes.index_select(1, rows)

    def binned(self, rows: Tensor) -> Tensor:
        """The bins of some points, [d, points]; `rows` are in order."""
        if self.separated and len(rows) == self.codes.shape[1]:
            return self.codes
        return transposed(self.rows.index_select(0, rows))


def code(table: Table, centers: Tensor, max_bins: int | None = None) -> Columns:
    """Code a table.

    Parameters
    ----------
    table : Table
    centers : Tensor [k, d] of float64
    max_bins : int, optional
        Values of a column that has more distinct ones are put into so many bins of about equally many points:
        faster, and the cuts within a bin are lost. Default: every value counts.
    """
    parts, middles, sizes = [], [], []
    for first, last in table.chunks():
        values = table.columns(first, last)
        own = centers[:, first:last].T.contiguous()
        part, middle, size = _integers(values, own) or _ranks(values, own, max_bins)
        parts.append(part)
        middles.append(middle)
        sizes.append(size)
    size = torch.cat(sizes)
    most = int(size.max())
    codes = torch.cat([part.to(_type(most)) for part in parts])
    row_bins = most if most <= max(BINS, HISTOGRAM // (table.d * len(centers))) else COARSE
    width = (size + row_bins - 1).div(row_bins, rounding_mode="floor")
    binned = codes if most <= row_bins else codes.div(width[:, None], rounding_mode="floor").to(_type(row_bins))
    return Columns(codes, torch.cat(middles), size, transposed(binned), width, row_bins)


def _integers(values: Tensor, centers: Tensor) -> tuple[Tensor, Tensor, Tensor] | None:
    """Whole numbers in a small range are ranked by counting."""
    if values.is_floating_point() and not bool((values[:, :100] == values[:, :100].round()).all()):
        return None
    low, high = values.amin(1), values.amax(1)
    if bool((high.to(torch.float64) - low.to(torch.float64) >= INTEGERS).any()):
        return None
    if bool((torch.stack([low, high]).to(torch.float64).abs() >= EXACT).any()):
        return None
    if values.is_floating_point() and not bool((values == values.round()).all()):
        return None
    low = low.to(torch.int64)
    numbers = low[:, None] + torch.arange(int((high.to(torch.int64) - low).max()) + 1, device=values.device)
    grid, order = sorted_rows(torch.cat([numbers.to(torch.float64), centers], 1))
    rank = firsts(grid).cumsum(1, dtype=torch.int32).sub_(1)
    ranks = torch.empty_like(rank).scatter_(1, order, rank)
    table = ranks[:, : numbers.shape[1]].to(_type(grid.shape[1]))
    codes = torch.empty(values.shape, dtype=table.dtype, device=values.device)
    step = max(1, INDICES // values.shape[1])
    for first in range(0, len(values), step):
        some = slice(first, first + step)
        index = torch.sub(values[some], low[some, None]).to(torch.int64)
        torch.gather(table[some], 1, index, out=codes[some])
    return codes, ranks[:, numbers.shape[1] :].to(torch.int64), rank[:, -1].to(torch.int64) + 1


def _ranks(values: Tensor, centers: Tensor, max_bins: int | None) -> tuple[Tensor, Tensor, Tensor]:
    """Codes of any numbers, by sorting them together with the centers."""
    n = values.shape[1]
    exact = torch.float64 if values.dtype != torch.float32 or not _representable(centers) else torch.float32
    ordered, order = sorted_rows(torch.cat([values.to(exact), centers.to(exact)], 1))
    new = firsts(ordered)
    if max_bins is not None and int(new.sum(1).max()) > max_bins:
        place = torch.arange(new.shape[1], device=values.device).where(new, 0).cummax(1).values  # of equals' first
        quantile = place * max_bins // new.shape[1]
        new[:, 1:] = quantile[:, 1:] != quantile[:, :-1]
    rank = new.cumsum(1, dtype=torch.int32).sub_(1)
    codes = torch.empty_like(rank).scatter_(1, order, rank)
    return codes[:, :n], codes[:, n:].to(torch.int64), rank[:, -1].to(torch.int64) + 1


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


def _representable(centers: Tensor) -> bool:
    return bool((centers.to(torch.float32).to(torch.float64) == centers).all())


def _type(size: int) -> torch.dtype:
    return torch.uint8 if size <= 256 else torch.int16 if size <= 1 << 15 else torch.int32


def transposed(codes: Tensor) -> Tensor:
    """A transposed copy, in blocks that fit into a cache."""
    rows, columns = codes.shape
    result = codes.new_empty(columns, rows)
    for first in range(0, rows, 256):
        result[:, first : first + 256] = codes[first : first + 256].T
    return result
