"""Codes of the columns of a table, ranks of values or numbers of bins, in blocks that are searched together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import torch
from torch import Tensor

from neonxc.common.memory import blocks
from neonxc.common.processes import ALONE, Ranks
from neonxc.trees.cuts.bins import Bins, Sketch
from neonxc.trees.cuts.entries import SparseColumns, code_sparse
from neonxc.trees.cuts.exact_sums import exact_total, rounded
from neonxc.trees.cuts.ranks import code_type, value_ranks
from neonxc.trees.cuts.snapping import Rounding
from neonxc.trees.fit.points import DataMatrix

BINS = 512  # up to this number of codes, a column is searched code by code
HISTOGRAM = 1 << 17  # more codes are searched one by one as well if a whole histogram has at most so many entries
COARSE = 256  # number of bins of columns that have more codes than that


@dataclass
class ColumnBlock:
    """Columns that are searched together. A bin is a single code or, in columns of many codes, several of them.

    Attributes
    ----------
    features : Tensor [f] of int64
        The columns, in ascending order.
    bins : Tensor [f, n] of uint8 or int16
        The bin of every point.
    centers : Tensor [f, k] of int64
        The bins of the centers.
    width : Tensor [f] of int64
        Number of codes per bin.
    n_bins : int
        Largest number of bins of a column.
    row_major : Tensor [n, f] or None
        The bins stored row by row. If given, no column-wise copy of all bins is made.
    """

    features: Tensor
    bins: Tensor
    centers: Tensor
    width: Tensor
    n_bins: int
    row_major: Tensor | None = None

    @cached_property
    def exact(self) -> bool:
        """Whether every bin is a single code."""
        return bool((self.width == 1).all())

    @cached_property
    def _by_point(self) -> Tensor:
        return transposed(self.bins)

    def by_point(self, rows: Tensor) -> Tensor:
        """Bins of a subset of the points, [points, f], gathered from a row-wise copy because that is faster."""
        return self._by_point.index_select(0, rows)

    def by_column(self, rows: Tensor) -> Tensor:
        """Bins of a subset of the points in ascending order, [f, points]."""
        return self.bins if len(rows) == self.bins.shape[1] else transposed(self.by_point(rows))


@dataclass
class CodedColumns:
    """The codes of a dense table, and the bins in which its columns are searched.

    Attributes
    ----------
    codes : list of Tensor [f, n] of uint8, int16 or int32
        Codes of the columns of every block.
    centers : Tensor [d, k] of int64
        Codes of the centers.
    size : Tensor [d] of int64
        Number of codes of every column.
    blocks : list of ColumnBlock
    place : Tensor [d, 2] of int64
        Block of every column, and position of the column in its block.
    ends : Bins or None
        The bins whose numbers are the codes, if a code stands for several values.
    """

    codes: list[Tensor]
    centers: Tensor
    size: Tensor
    blocks: list[ColumnBlock]
    place: Tensor
    ends: Bins | None = None

    @cached_property
    def _places(self) -> list[list[int]]:
        return self.place.tolist()

    def column(self, feature: int) -> Tensor:
        """Codes of all points in a column, [n]."""
        block, row = self._places[feature]
        return self.codes[block][row]

    def at(self, feature: Tensor, rows: Tensor) -> Tensor:
        """Code of every point in a column that is given for that point, [points] of int64."""
        result = torch.empty_like(rows)
        block, row = self.place[feature].unbind(1)
        for number, codes in enumerate(self.codes):
            here = block == number
            result[here] = codes[row[here], rows[here]].to(torch.int64)
        return result


def code_columns(
    table: DataMatrix,
    centers: Tensor,
    max_bins: int | None = None,
    weight: Tensor | None = None,
    ranks: Ranks = ALONE,
    n: Tensor | None = None,
) -> tuple[CodedColumns | SparseColumns, Tensor]:
    """Compute the codes of a table; a sparse table with few entries stays sparse.

    Parameters
    ----------
    table : DataMatrix
    centers : Tensor [k, d] of float64
    max_bins : int, optional
        Columns with more distinct values than this are divided into at most this number of bins of about equally
        many points. This is faster, but cuts inside a bin are not tried. Default: every distinct value has a code.
    weight : Tensor [n] of float64, optional
        Weights of the points, by which bins are filled.
    ranks : Ranks
        The processes that share the rows; all use the same codes.
    n : Tensor [] or [k], optional
        Number of points of which the centers are means; see :func:`relative_mass`. Default: all points.

    Returns
    -------
    columns : CodedColumns or SparseColumns
    centers : Tensor [k, d]
        The centers, in which values from which only rounding separates them are those values.
    """
    if table.few_entries:
        return code_sparse(table, centers, max_bins, weight, n)
    n = ranks.sum(torch.tensor(table.n, device=table.device)) if n is None else n
    if max_bins is not None:
        columns, bins = _binned(table, centers, max_bins, weight, ranks, n)
        return columns, bins.snapped
    rounding = Rounding.of(centers, table.dtype, n)
    parts = [
        value_ranks(table.columns(first, last), centers[:, first:last].T.contiguous(), rounding, ranks)
        for first, last in table.chunks(ranks)
    ]
    codes, middles, sizes, found = zip(*parts, strict=True)
    return _columns(list(codes), torch.cat(middles), torch.cat(sizes)), torch.cat(found).T


def _binned(
    table: DataMatrix, centers: Tensor, max_bins: int, weight: Tensor | None, ranks: Ranks, n: Tensor
) -> tuple[CodedColumns, Bins]:
    """Codes with at most `max_bins` bins per column."""
    sketch = Sketch(table.d, max_bins, table.device)
    weight = None if weight is None else rounded(weight, exact_total(weight, ranks))
    for part in blocks(table.n, 32 * table.d, table.device):
        sketch.add(table.rows(part), None if weight is None else weight[part])
    bins = sketch.merged(ranks).bins(centers, table.dtype, n)
    kind = code_type(int(bins.size.max()))
    parts = []
    for first, last in table.chunks():
        values = table.columns(first, last)
        parts.append(bins.code(values, torch.empty_like(values, dtype=kind), slice(first, last)))
    return replace(_columns(parts, bins.centers, bins.size), ends=bins), bins


def stored_columns(codes: Tensor, bins: Bins) -> CodedColumns:
    """Columns with codes that are stored row by row, [n, d]."""
    every = torch.arange(codes.shape[1])
    block = ColumnBlock(every, codes.T, bins.centers, torch.ones_like(every), bins.high.shape[1], codes)
    return CodedColumns([codes.T], bins.centers, bins.size, [block], torch.stack([every * 0, every], 1), bins)


def _columns(parts: list[Tensor], centers: Tensor, size: Tensor) -> CodedColumns:
    """Arrange codes of consecutive columns in blocks."""
    d, k = centers.shape
    groups = _groups(size, max(BINS, HISTOGRAM // (d * k)))
    codes = [_chosen(parts, group, code_type(int(size[group].max()))) for group in groups]
    place = torch.empty(d, 2, dtype=torch.int64, device=size.device)
    found = []
    for number, (group, own) in enumerate(zip(groups, codes, strict=True)):
        place[group, 0] = number
        place[group, 1] = torch.arange(len(group), device=size.device)
        found.append(_block(group, own, centers[group], size[group], k, d))
    return CodedColumns(codes, centers, size, found, place)


def _groups(size: Tensor, separable: int) -> list[Tensor]:
    """Group columns by their number of codes: at most 256, more, and so many that a bin holds several codes."""
    most = int(size.max())
    if most <= min(256, separable) or int(size.numel()) * most <= HISTOGRAM:
        return [torch.arange(len(size), device=size.device)]
    limits = [0, min(256, separable), separable, most]
    groups = [((size > low) & (size <= high)).nonzero()[:, 0] for low, high in pairwise(limits)]
    return [group for group in groups if len(group)]


def _block(features: Tensor, codes: Tensor, centers: Tensor, size: Tensor, k: int, d: int) -> ColumnBlock:
    most = int(size.max())
    n_bins = most if most <= max(BINS, HISTOGRAM // (d * k)) else COARSE
    if most <= n_bins:
        return ColumnBlock(features, codes, centers, torch.ones_like(size), n_bins)
    # The width of a bin is a power of 2, because shifting is ten times faster than dividing
    shift = ((size - 1).div(n_bins, rounding_mode="floor") + 1).log2().ceil().to(codes.dtype)
    bins = torch.bitwise_right_shift(codes, shift[:, None])
    own = torch.bitwise_right_shift(centers, shift[:, None].to(torch.int64))
    n_bins = 1 + int(torch.bitwise_right_shift(size - 1, shift.to(torch.int64)).max())
    return ColumnBlock(
        features, bins.to(code_type(n_bins)), own, torch.ones_like(size) << shift.to(torch.int64), n_bins
    )


def _chosen(parts: list[Tensor], features: Tensor, dtype: torch.dtype) -> Tensor:
    """Select columns, which may be in several parts."""
    chosen, first = [], 0
    for part in parts:
        here = features[(features >= first) & (features < first + len(part))] - first
        chosen.append((part if len(here) == len(part) else part.index_select(0, here)).to(dtype))
        first += len(part)
    return chosen[0] if len(chosen) == 1 else torch.cat(chosen)


def transposed(codes: Tensor) -> Tensor:
    """A transposed copy, made in blocks that fit into a core's cache."""
    rows, columns = codes.shape
    result = codes.new_empty(columns, rows)
    for first in range(0, rows, 256):
        result[:, first : first + 256] = codes[first : first + 256].T
    return result
