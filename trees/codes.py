"""Columns as codes: ranks among the distinct values that the points and the centers have in a column.

On codes a cut is an integer: ``code <= b`` goes left. Cuts between two neighbouring codes are all the cuts that
differ for some point or center.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import torch
from torch import Tensor

from neonxc.blocks import blocks
from neonxc.ranks import ALONE, Ranks
from neonxc.trees.bins import Bins, Ends
from neonxc.trees.entries import SparseColumns, coded
from neonxc.trees.ordering import firsts, sorted_rows
from neonxc.trees.sketch import Sketch
from neonxc.trees.table import Table

BINS = 512  # that a column may have for its values all to be told apart
HISTOGRAM = 1 << 17  # entries of a whole histogram: so many bins are not too many, either
COARSE = 256  # bins where they can't tell all values apart
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
    long : Tensor [n, f] or None
        The bins by point, where they are laid out so in memory, or in a file, and no copies shall be made of them.
    """

    features: Tensor
    bins: Tensor
    centers: Tensor
    width: Tensor
    n_bins: int
    long: Tensor | None = None

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
    ends : Ends or None
        The values that codes stand for, where these are bins.
    """

    codes: list[Tensor]
    centers: Tensor
    size: Tensor
    blocks: list[Block]
    place: Tensor
    ends: Ends | None = None

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


def code(
    table: Table, centers: Tensor, max_bins: int | None = None, ranks: Ranks = ALONE
) -> Columns | SparseColumns:
    """Code a table; one of few entries by its entries.

    Parameters
    ----------
    table : Table
    centers : Tensor [k, d] of float64
    max_bins : int, optional
        Values of a column that has more distinct ones are put into so many bins of about equally many points:
        faster, and the cuts within a bin are lost. Default: every value counts.
    ranks : Ranks
        The processes that hold further rows, in the same codes.
    """
    if table.few_entries:
        return coded(table, centers, max_bins)
    return dense_codes(table, centers, max_bins, ranks)


def dense_codes(table: Table, centers: Tensor, max_bins: int | None = None, ranks: Ranks = ALONE) -> Columns:
    """Code a table in full; parameters as for :func:`code`."""
    if max_bins is not None:
        return _binned(table, centers, max_bins, ranks)
    parts, middles, sizes = [], [], []
    for first, last in table.chunks(ranks):
        values = table.columns(first, last)
        own = centers[:, first:last].T.contiguous()
        part, middle, size = _ranks_of_all(values, own, ranks) or _integers(values, own) or _ranks(values, own)
        parts.append(part)
        middles.append(middle)
        sizes.append(size)
    return _columns(parts, torch.cat(middles), torch.cat(sizes))


def _binned(table: Table, centers: Tensor, max_bins: int, ranks: Ranks) -> Columns:
    """Codes that are bins of values."""
    sketch = Sketch(table.d, max_bins, table.device)
    for part in blocks(table.n, 32 * table.d, table.device):
        sketch.add(table.rows(part))
    sketch = sketch.merged(ranks)
    bins = sketch.bins(centers)
    ends, parts = Ends.none(bins, sketch.whole), []
    for first, last in table.chunks():
        values, own = table.columns(first, last), bins.some(slice(first, last))
        parts.append(own.codes(values, code_type(int(own.size.max()))))
        ends.add(parts[-1], values, first)
    columns = _columns(parts, bins.places(centers.T.contiguous()), bins.size)
    columns.ends = ends.merged(ranks)
    return columns


def _columns(parts: list[Tensor], centers: Tensor, size: Tensor) -> Columns:
    """The codes of some columns after the others, in blocks."""
    d, k = centers.shape
    groups = _groups(size, max(BINS, HISTOGRAM // (d * k)))
    if len(groups) == 1:  # all columns as they come
        codes = [_joined(parts, code_type(int(size.max())))]
    else:
        codes = [_chosen(parts, group, code_type(int(size[group].max()))) for group in groups]
    place = torch.empty(d, 2, dtype=torch.int64, device=size.device)
    found = []
    for number, (group, own) in enumerate(zip(groups, codes, strict=True)):
        place[group, 0] = number
        place[group, 1] = torch.arange(len(group), device=size.device)
        found.append(_block(group, own, centers[group], size[group], k, d))
    return Columns(codes, centers, size, found, place)


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
    n_bins = 1 + int(torch.bitwise_right_shift(size - 1, shift.to(torch.int64)).max())
    return Block(features, bins.to(code_type(n_bins)), own, torch.ones_like(size) << shift.to(torch.int64), n_bins)


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
    table = ranks[:, : numbers.shape[1]].to(code_type(grid.shape[1]))
    codes = torch.empty(values.shape, dtype=table.dtype, device=values.device)
    step = max(1, INDICES // values.shape[1])
    for first in range(0, len(values), step):
        some = slice(first, first + step)
        index = torch.sub(values[some], low[some, None]).to(torch.int64)
        torch.gather(table[some], 1, index, out=codes[some])
    return codes, ranks[:, numbers.shape[1] :].to(torch.int64), rank[:, -1].to(torch.int64) + 1


def _ranks(values: Tensor, centers: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Codes of any numbers, by sorting them together with the centers."""
    n = values.shape[1]
    exact = torch.float64 if values.dtype != torch.float32 or not _representable(centers) else torch.float32
    ordered, order = sorted_rows(torch.cat([values.to(exact), centers.to(exact)], 1))
    new = firsts(ordered)
    rank = new.cumsum(1, dtype=torch.int32).sub_(1)
    codes = torch.empty_like(rank).scatter_(1, order, rank)
    return codes[:, :n], codes[:, n:].to(torch.int64), rank[:, -1].to(torch.int64) + 1


def _ranks_of_all(values: Tensor, centers: Tensor, ranks: Ranks) -> tuple[Tensor, Tensor, Tensor] | None:
    """Codes of numbers among those of all processes; None for a process alone."""
    if ranks.alone:
        return None
    own = _distinct(torch.cat([values.to(torch.float64), centers], 1))
    every = _distinct(torch.cat(ranks.gather(own.T.contiguous())).T.contiguous())
    size = every.isfinite().sum(1)
    bins = Bins(every, size)
    return bins.codes(values, torch.int32), bins.places(centers), size


def _distinct(values: Tensor) -> Tensor:
    """The different values of every row in order, with infinities behind."""
    ordered = sorted_rows(values + 0.0)[0]  # -0.0 is 0.0
    ordered = ordered.masked_fill(~firsts(ordered), torch.inf).sort(dim=1).values
    return ordered[:, : int(ordered.isfinite().sum(1).max())]


def _representable(centers: Tensor) -> bool:
    return bool((centers.to(torch.float32).to(torch.float64) == centers).all())


def code_type(size: int) -> torch.dtype:
    """The smallest type of so many codes."""
    return torch.uint8 if size <= 256 else torch.int16 if size <= 1 << 15 else torch.int32


def transposed(codes: Tensor) -> Tensor:
    """A transposed copy, in blocks that fit into a cache."""
    rows, columns = codes.shape
    result = codes.new_empty(columns, rows)
    for first in range(0, rows, 256):
        result[:, first : first + 256] = codes[first : first + 256].T
    return result
