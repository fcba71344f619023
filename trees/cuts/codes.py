"""Codes of the columns of a dense table, in blocks that are searched together.

A code is the rank of a value among the values of its column, or, with `max_bins`, the number of a quantile bin.
The columns of a table are divided into blocks by their number of codes:

=====================================================  =========================================================
number of codes                                        the cuts of a column are searched
=====================================================  =========================================================
at most 256                                            by its codes, of one byte
at most max(FEW, HISTOGRAM / (columns * clusters))     by its codes
more                                                   by bins of a power of two of consecutive codes each, at
                                                       most COARSE of them, and then by its codes where that may
                                                       find a better cut
=====================================================  =========================================================
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from neonxc.common.memory import blocks
from neonxc.common.processes import ALONE, Ranks
from neonxc.trees.cuts import histograms
from neonxc.trees.cuts.bins import Bins, Sketch
from neonxc.trees.cuts.entries import SparseColumns, code_sparse
from neonxc.trees.cuts.exact_sums import exact_total, rounded
from neonxc.trees.cuts.histograms import ByCode, ByRow, Coarse, Renumbered
from neonxc.trees.cuts.ranks import Rounding, code_type, row_ranks, sorted_rows, value_ranks

if TYPE_CHECKING:
    from neonxc.trees.cuts.growth import Node
    from neonxc.trees.fit.problem import Problem
    from neonxc.trees.fit.sparse_points import Points, Sparse

FEW = 512  # up to this number of codes, a column is searched by its codes
HISTOGRAM = 1 << 17  # so are more codes if a whole histogram has at most so many entries
COARSE = 256  # maximum number of bins of several codes of other columns
ROWS = 1 << 16  # number of points whose codes are gathered at a time from a table that is stored by row


@dataclass
class ColumnBlock:
    """Columns that are searched together.

    Attributes
    ----------
    features : Tensor [f] of int64
        The columns, in ascending order.
    bins : Tensor [f, n] of uint8 or int16
        The bin of every point: its code, or a bin of several codes.
    centers : Tensor [f, k] of int64
        The bins of the centers.
    width : Tensor [f] of int64 or None
        Number of codes per bin; None if bins are codes.
    n_bins : int
        Largest number of bins of a column.
    by_row : bool
        Whether the bins are stored row by row; no column-wise copy of all of them is made. They are codes then.
    """

    features: Tensor
    bins: Tensor
    centers: Tensor
    width: Tensor | None
    n_bins: int
    by_row: bool = False

    def columns(self, problem: Problem, node: Node, number: int, chunk: slice) -> ByCode:
        """Return some of the columns at a node; `number` is that of the block."""
        features = self.features[chunk]
        centers = self.centers[chunk]
        bins = self.bins[chunk]
        block = number, chunk
        if self.by_row:
            return ByRow(problem, node, features, centers, self.n_bins, bins, block, step=ROWS)
        if self.width is None:
            return ByCode(problem, node, features, centers, self.n_bins, bins, block)
        return Coarse(problem, node, features, centers, self.n_bins, bins, block, width=self.width[chunk])


@dataclass
class CodedColumns:
    """The codes of a dense table, and the blocks in which its columns are searched.

    Attributes
    ----------
    codes : list of Tensor [f, n] of uint8, int16 or int32
        Codes of the columns of every block.
    centers : Tensor [d, k] of int64
        Codes of the centers.
    size : Tensor [d] of int64
        Number of codes of every column.
    blocks : list of ColumnBlock
    block_of, row_of : Tensor [d] of int64
        Block of every column, and its row in the codes of that block.
    ends : Bins or None
        The bins whose numbers are the codes, if a code stands for several values.
    """

    codes: list[Tensor]
    centers: Tensor
    size: Tensor
    blocks: list[ColumnBlock]
    block_of: Tensor
    row_of: Tensor
    ends: Bins | None = None

    def chunks(
        self, problem: Problem, node: Node, n_sums: int, features: Tensor | None = None, coarse: bool = False
    ) -> list[Callable[[], ByCode]]:
        """Divide the columns of a node into chunks, of which the sums of all cuts fit into a core's cache.

        Each function returns the columns of a chunk, when it is their turn, because it may copy codes.

        Parameters
        ----------
        problem : Problem
        node : Node
        n_sums : int
            Number of sums per column and bin.
        features : Tensor of int64, optional
            The columns. Default: all.
        coarse : bool
            Whether columns of many codes come by bins of several codes. They have sums for every center then.
        """
        chunks: list[Callable[[], ByCode]] = []
        for number, block in enumerate(self.blocks):
            if features is None and (coarse or block.width is None):
                chunks += self._by_bin(problem, node, n_sums, number)
                continue
            if features is None:
                chosen = block.features
            else:
                chosen = features[self.block_of[features] == number]
            if len(chosen):
                chunks += self._by_code(problem, node, n_sums, number, chosen)
        return chunks

    def _by_bin(self, problem: Problem, node: Node, n_sums: int, number: int) -> list[Callable[[], ByCode]]:
        """All columns of a block by their bins."""
        block = self.blocks[number]
        if block.width is not None:  # bounds inside bins need sums by center
            n_sums *= max(1, node.n_centers)
        n_points = min(node.n, ROWS) if block.by_row else node.n
        chunks = _chunks(len(block.features), block.n_bins * n_sums, n_points)
        return [partial(block.columns, problem, node, number, chunk) for chunk in chunks]

    def _by_code(
        self, problem: Problem, node: Node, n_sums: int, number: int, features: Tensor
    ) -> list[Callable[[], ByCode]]:
        """Some columns of a block by their codes, or, if few of these occur at the node, by those that do."""
        n_codes = int(self.size[features].max())
        # codes of few points are renumbered; processes would renumber them differently
        is_sparse = n_codes > max(256, 2 * node.n) and not problem.sharded
        n_bins = 2 * node.n if is_sparse else n_codes
        n_points = min(node.n, ROWS) if self.blocks[number].by_row else node.n

        def columns(chosen: Tensor) -> ByCode:
            codes = self.codes[number].index_select(0, self.row_of[chosen])
            centers = self.centers[chosen]
            if is_sparse:
                return _renumbered(problem, node, chosen, codes, centers)
            return ByCode(problem, node, chosen, centers, n_codes, codes)

        chunks = _chunks(len(features), n_bins * n_sums, n_points)
        return [partial(columns, features[chunk]) for chunk in chunks]

    @cached_property
    def _rows(self) -> list[list[int]]:
        """Block and row in it of every column; read at once, as the CPU waits for a GPU at every read."""
        return torch.stack([self.block_of, self.row_of], dim=1).tolist()

    def column(self, feature: int) -> Tensor:
        """Codes of all points in a column, [n]."""
        block, row = self._rows[feature]
        return self.codes[block][row]


def _renumbered(problem: Problem, node: Node, features: Tensor, codes: Tensor, centers: Tensor) -> Renumbered:
    """Columns by the codes that occur among the node's points and centers."""
    codes = histograms.gathered(codes, node.rows)
    bins, center_bins, original = renumber_codes(codes, centers.index_select(1, node.centers))
    centers = centers.index_copy(1, node.centers, center_bins)
    return Renumbered(problem, node, features, centers, original.shape[1], bins, original=original)


def renumber_codes(codes: Tensor, centers: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Renumber codes consecutively, so that only codes of the given points and centers remain.

    Returns
    -------
    codes : Tensor [f, n] of int64
    centers : Tensor [f, k] of int64
    original : Tensor [f, n_bins] of int64
        The old code for every new one.
    """
    n = codes.shape[1]
    values = torch.cat([codes, centers.to(codes.dtype)], 1)  # short integers are sorted faster
    new, size = row_ranks(*sorted_rows(values))
    new = new.to(torch.int64)
    original = new.new_zeros(len(codes), int(size.max())).scatter_(1, new, values.to(torch.int64))
    return new[:, :n], new[:, n:], original


def code_columns(
    table: Points,
    centers: Tensor,
    max_bins: int | None = None,
    weight: Tensor | None = None,
    ranks: Ranks = ALONE,
    n: Tensor | None = None,
) -> tuple[CodedColumns | SparseColumns, Tensor]:
    """Compute the codes of a table; a sparse table with few entries stays sparse.

    Parameters
    ----------
    table : Points
    centers : Tensor [k, d] of float64
    max_bins : int, optional
        Columns with more distinct values than this are divided into at most this number of bins of about equally
        many points. This is faster, but cuts inside a bin are not tried. Default: every distinct value has a code.
    weight : Tensor [n] of float64, optional
        Weights of the points, by which bins are filled.
    ranks : Ranks
        The processes that share the rows; all use the same codes.
    n : Tensor [] or [k], optional
        Number of points of which the centers are means; see
        :func:`~neonxc.trees.cuts.exact_sums.relative_mass`. Default: all points.

    Returns
    -------
    columns : CodedColumns or SparseColumns
    centers : Tensor [k, d]
        The centers, in which values from which only rounding separates them are those values.
    """
    if table.few_entries:
        return code_sparse(cast("Sparse", table), centers, max_bins, weight, n)
    if n is None:
        n = ranks.sum(torch.tensor(table.n, device=table.device))
    if max_bins is not None:
        columns, bins = _binned(table, centers, max_bins, weight, ranks, n)
        return columns, bins.snapped

    rounding = Rounding.of(centers, table.dtype, n)
    chunks = []
    for first, last in table.chunks(ranks):
        values = table.columns(first, last)
        chunk_centers = centers[:, first:last].T.contiguous()
        chunks.append(value_ranks(values, chunk_centers, rounding, ranks))
    codes, center_codes, sizes, snapped = zip(*chunks, strict=True)
    columns = _columns(list(codes), torch.cat(center_codes), torch.cat(sizes))
    return columns, torch.cat(snapped).T


class SharedCodes:
    """The last codes of a dense table, which trees of several kinds that are fitted to the same points share."""

    def __init__(self) -> None:
        self._max_bins: int | None = None
        self._arguments: tuple[Tensor | None, ...] = ()
        self._codes: tuple[CodedColumns | SparseColumns, Tensor] | None = None

    def code_columns(
        self, table: Points, centers: Tensor, max_bins: int | None, weight: Tensor | None, n: Tensor
    ) -> tuple[CodedColumns | SparseColumns, Tensor]:
        """Return what :func:`code_columns` does, which is computed again for other values of an argument."""
        if not isinstance(table.data, Tensor):
            return code_columns(table, centers, max_bins, weight, n=n)
        arguments = (table.data, centers, weight, n)
        pairs = zip(arguments, self._arguments, strict=False)
        if self._codes is None or max_bins != self._max_bins or not all(_are_same(*pair) for pair in pairs):
            self._max_bins = max_bins
            self._arguments = arguments
            self._codes = code_columns(table, centers, max_bins, weight, n=n)
        return self._codes


def _are_same(a: Tensor | None, b: Tensor | None) -> bool:
    """Whether two tensors have the same values and type, or both are missing."""
    if a is None or b is None:
        return a is b
    return a.dtype == b.dtype and a.device == b.device and torch.equal(a, b)


def _binned(
    table: Points, centers: Tensor, max_bins: int, weight: Tensor | None, ranks: Ranks, n: Tensor
) -> tuple[CodedColumns, Bins]:
    """Codes with at most `max_bins` bins per column."""
    sketch = Sketch(table.d, max_bins, table.device)
    if weight is not None:
        weight = rounded(weight, exact_total(weight, ranks))
    for rows in blocks(table.n, 32 * table.d, table.device):
        block_weight = None if weight is None else weight[rows]
        sketch.add(table.rows(rows), block_weight)
    bins = sketch.merged(ranks).bins(centers, table.dtype, n)

    dtype = code_type(int(bins.size.max()))
    codes = []
    for first, last in table.chunks():
        values = table.columns(first, last)
        codes.append(bins.code(values, torch.empty_like(values, dtype=dtype), slice(first, last)))
    columns = _columns(codes, bins.centers, bins.size)
    return replace(columns, ends=bins), bins


def _chunks(n_columns: int, n_sums: int, n_points: int) -> list[slice]:
    """Ranges of columns with so many sums, and codes of points, per column."""
    cached = histograms.CACHED // max(1, n_sums)
    affordable = histograms.BUDGET // max(1, n_points)
    step = max(1, min(cached, affordable))
    return [slice(first, min(first + step, n_columns)) for first in range(0, n_columns, step)]


def stored_columns(codes: Tensor, bins: Bins) -> CodedColumns:
    """Columns with codes that are stored row by row, [n, d]."""
    features = torch.arange(codes.shape[1])
    n_bins = bins.high.shape[1]
    block = ColumnBlock(features, codes.T, bins.centers, None, n_bins, by_row=True)
    block_of = torch.zeros_like(features)
    return CodedColumns([codes.T], bins.centers, bins.size, [block], block_of, features, bins)


def _columns(chunks: list[Tensor], centers: Tensor, size: Tensor) -> CodedColumns:
    """Arrange codes of consecutive columns in blocks."""
    d, k = centers.shape
    n_searched = max(FEW, HISTOGRAM // (d * k))  # number of codes up to which a column is searched by its codes
    groups = _groups(size, n_searched)
    all_codes = chunks[0] if len(chunks) == 1 else torch.cat(chunks)
    codes = []
    blocks = []
    block_of = torch.empty(d, dtype=torch.int64, device=size.device)
    row_of = torch.empty_like(block_of)
    for number, features in enumerate(groups):
        block_codes = all_codes
        if len(groups) > 1:
            block_codes = all_codes.index_select(0, features)
        block_codes = block_codes.to(code_type(int(size[features].max())))
        codes.append(block_codes)
        blocks.append(_block(features, block_codes, centers[features], size[features], n_searched))
        block_of[features] = number
        row_of[features] = torch.arange(len(features), device=size.device)
    return CodedColumns(codes, centers, size, blocks, block_of, row_of)


def _groups(size: Tensor, n_searched: int) -> list[Tensor]:
    """Group columns by their number of codes, as the table above."""
    largest = int(size.max())
    n_bytes = min(256, n_searched)
    if largest <= n_bytes or len(size) * largest <= HISTOGRAM:
        return [torch.arange(len(size), device=size.device)]
    limits = [0, n_bytes, n_searched, largest]
    groups = [((size > low) & (size <= high)).nonzero()[:, 0] for low, high in pairwise(limits)]
    return [group for group in groups if len(group)]


def _block(features: Tensor, codes: Tensor, centers: Tensor, size: Tensor, n_searched: int) -> ColumnBlock:
    """Make a block of columns, with bins of several codes if one has many codes."""
    largest = int(size.max())
    if largest <= max(n_searched, COARSE):
        return ColumnBlock(features, codes, centers, None, largest)
    # The width of a bin is a power of 2, because shifting is ten times faster than dividing.
    min_width = (size - 1).div(COARSE, rounding_mode="floor") + 1
    shift = min_width.log2().ceil().to(torch.int64)
    n_bins = 1 + int((size - 1 >> shift).max())
    bins = codes >> shift[:, None].to(codes.dtype)
    center_bins = centers >> shift[:, None]
    return ColumnBlock(features, bins.to(code_type(n_bins)), center_bins, 1 << shift, n_bins)
