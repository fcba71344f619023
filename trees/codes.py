"""Columns as codes: ranks among the distinct values that the points and the centers have in a column.

On codes a cut is an integer: ``code <= b`` goes left. Cuts between two neighbouring codes are all the cuts that
differ for some point or center.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neonxc.trees.entries import SparseColumns, coded
from neonxc.trees.table import Table

BINS = 512  # that a column may have for its values all to be told apart
HISTOGRAM = 1 << 17  # entries of a whole histogram: so many bins are not too many, either
COARSE = 256  # bins where they can't tell all values apart
PARALLEL = 1 << 20  # entries that torch sorts sooner than NumPy, which uses one core
EXACT = 2.0**53  # floats are not so exact beyond
INDICES = 280_000  # that stay in a core's cache
INTEGERS = 1 << 10  # whole numbers in a range as small as this are coded without sorting


@dataclass
class Block:
    """Columns that are searched together, in bins: codes, or a few codes of a column that has many.

    Attributes
    ----------
    features : Tensor [f] of int64
        The columns, in order.
    bins : Tensor [f, n] of uint8 or int16
        The bin of every point.
    centers : Tensor [f, k] of int64
        The bins of the centers.
    width : Tensor [f] of int64
        Codes that share a bin.
    n_bins : int
        Bins of the column that has most.
    """

    features: Tensor
    bins: Tensor
    centers: Tensor
    width: Tensor
    n_bins: int

    @cached_property
    def exact(self) -> bool:
        """Whether bins are codes."""
        return bool((self.width == 1).all())

    @cached_property
    def _by_point(self) -> Tensor:
        return transposed(self.bins)

    def by_point(self, rows: Tensor) -> Tensor:
        """The bins of some points, [points, f]: gathered faster from a copy of the bins that is laid out so."""
        return self._by_point.index_select(0, rows)

    def by_column(self, rows: Tensor) -> Tensor:
        """The bins of some points, in order, [f, points]."""
        return self.bins if len(rows) == self.bins.shape[1] else transposed(self.by_point(rows))


@dataclass
class Columns:
    """The codes of a table, and the bins in which its columns are searched.

    Attributes
    ----------
    codes : list of Tensor [f, n] of uint8, int16 or int32
        Of the columns of every block.
    centers : Tensor [d, k] of int64
    size : Tensor [d] of int64
        Distinct codes of every column.
    blocks : list of Block
    place : Tensor [d, 2] of int64
        The block of a column, and where it is in the block.
    """

    codes: list[Tensor]
    centers: Tensor
    size: Tensor
    blocks: list[Block]
    place: Tensor

    @cached_property
    def _places(self) -> list[list[int]]:
        return self.place.tolist()

    def column(self, feature: int) -> Tensor:
        """The codes of all points in a column, [n]."""
        block, row = self._places[feature]
        return self.codes[block][row]

    def at(self, feature: Tensor, rows: Tensor) -> Tensor:
        """The codes of points in a column of their own each, [points] of int64."""
        result = torch.empty_like(rows)
        block, row = self.place[feature].unbind(1)
        for number, codes in enumerate(self.codes):
            here = block == number
            result[here] = codes[row[here], rows[here]].to(torch.int64)
        return result


def code(table: Table, centers: Tensor, max_bins: int | None = None) -> Columns | SparseColumns:
    """Code a table; one of few entries by its entries.

    Parameters
    ----------
    table : Table
    centers : Tensor [k, d] of float64
    max_bins : int, optional
        Values of a column that has more distinct ones are put into so many bins of about equally many points:
        faster, and the cuts within a bin are lost. Default: every value counts.
    """
    if table.few_entries:
        return coded(table, centers, max_bins)
    return dense_codes(table, centers, max_bins)


def dense_codes(table: Table, centers: Tensor, max_bins: int | None = None) -> Columns:
    """Code a table in full; parameters as for :func:`code`."""
    parts, middles, sizes = [], [], []
    for first, last in table.chunks():
        values = table.columns(first, last)
        own = centers[:, first:last].T.contiguous()
        part, middle, size = _integers(values, own) or _ranks(values, own, max_bins)
        parts.append(part)
        middles.append(middle)
        sizes.append(size)
    size, middle = torch.cat(sizes), torch.cat(middles)
    groups = _groups(size, max(BINS, HISTOGRAM // (table.d * len(centers))))
    if len(groups) == 1:  # all columns as they come
        codes = [_joined(parts, _type(int(size.max())))]
    else:
        codes = [_chosen(parts, group, _type(int(size[group].max()))) for group in groups]
    place = torch.empty(table.d, 2, dtype=torch.int64, device=table.device)
    blocks = []
    for number, (group, own) in enumerate(zip(groups, codes, strict=True)):
        place[group, 0] = number
        place[group, 1] = torch.arange(len(group), device=table.device)
        blocks.append(_block(group, own, middle[group], size[group], len(centers), table.d))
    return Columns(codes, middle, size, blocks, place)


def _groups(size: Tensor, separable: int) -> list[Tensor]:
    """Columns of few codes, of some more, and of so many that bins can't separate them, if there are such."""
    most = int(size.max())
    if most <= min(256, separable) or int(size.numel()) * most <= HISTOGRAM:
        return [torch.arange(len(size), device=size.device)]
    limits = [0, min(256, separable), separable, most]
    groups = [((size > low) & (size <= high)).nonzero()[:, 0] for low, high in pairwise(limits)]
    return [group for group in groups if len(group)]


def _block(features: Tensor, codes: Tensor, centers: Tensor, size: Tensor, k: int, d: int) -> Block:
    most = int(size.max())
    n_bins = most if most <= max(BINS, HISTOGRAM // (d * k)) else COARSE
    if most <= n_bins:
        return Block(features, codes, centers, torch.ones_like(size), n_bins)
    # Powers of 2, as shifts take a tenth of the time of divisions
    shift = ((size - 1).div(n_bins, rounding_mode="floor") + 1).log2().ceil().to(codes.dtype)
    bins = torch.bitwise_right_shift(codes, shift[:, None])
    own = torch.bitwise_right_shift(centers, shift[:, None].to(torch.int64))
    n_bins = 1 + max(int(bins.max()), int(own.max()))
    return Block(features, bins.to(_type(n_bins)), own, torch.ones_like(size) << shift.to(torch.int64), n_bins)


def _joined(parts: list[Tensor], dtype: torch.dtype) -> Tensor:
    if len(parts) == 1:
        return parts[0].to(dtype)
    result = parts[0].new_empty(sum(map(len, parts)), parts[0].shape[1], dtype=dtype)
    return torch.cat([part.to(dtype) for part in parts], out=result)


def _chosen(parts: list[Tensor], features: Tensor, dtype: torch.dtype) -> Tensor:
    """Some columns of all parts."""
    chosen, first = [], 0
    for part in parts:
        here = features[(features >= first) & (features < first + len(part))] - first
        chosen.append(part.index_select(0, here).to(dtype))
        first += len(part)
    return torch.cat(chosen)


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
