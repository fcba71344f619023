"""Codes of the columns of a dense table, in blocks that are searched together.

A code is the rank of a value among the values of its column, or, with `max_bins`, the number of a quantile bin. A
column of few codes is searched by its codes. A column of many codes is searched by coarse codes first, which stand
for a power of two of consecutive codes each, and then by its codes where that may find a better cut.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from neonxc.common.memory import blocks
from neonxc.common.processes import ALONE, Ranks
from neonxc.trees.cuts import histograms
from neonxc.trees.cuts.bins import Bins, Sketch
from neonxc.trees.cuts.columns import ByCode, ByRow, Coarse, Renumbered
from neonxc.trees.cuts.entries import SparseColumns, code_sparse
from neonxc.trees.cuts.exact_sums import exact_total, rounded
from neonxc.trees.cuts.ranks import code_type, value_ranks
from neonxc.trees.cuts.snapping import Rounding

if TYPE_CHECKING:
    from neonxc.trees.cuts.nodes import Node
    from neonxc.trees.fit.problem import Problem
    from neonxc.trees.fit.sparse_points import Points

FEW = 512  # up to this number of codes, a column is searched by its codes
HISTOGRAM = 1 << 17  # so are more codes if a whole histogram has at most so many entries
COARSE = 256  # number of coarse codes of other columns
ROWS = 1 << 16  # number of points whose codes are gathered at a time from a table that is stored by row


@dataclass
class ColumnBlock:
    """Columns that are searched together.

    Attributes
    ----------
    features : Tensor [f] of int64
        The columns, in ascending order.
    bins : Tensor [f, n] of uint8 or int16
        The bin of every point: its code, or its coarse code.
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
    ) -> Iterator[ByCode]:
        """Divide the columns of a node into chunks, of which the sums of all cuts fit into a core's cache.

        Parameters
        ----------
        problem : Problem
        node : Node
        n_sums : int
            Number of sums per column and bin.
        features : Tensor of int64, optional
            The columns. Default: all.
        coarse : bool
            Whether columns of many codes come by their coarse codes. They have sums for every center then.
        """
        for number, block in enumerate(self.blocks):
            if features is not None:
                chosen = features[self.block_of[features] == number]
            elif coarse or block.width is None:
                yield from self._by_bin(problem, node, n_sums, number)
                continue
            else:
                chosen = block.features
            if len(chosen):
                yield from self._by_code(problem, node, n_sums, number, chosen)

    def _by_bin(self, problem: Problem, node: Node, n_sums: int, number: int) -> Iterator[ByCode]:
        """All columns of a block by their bins."""
        block = self.blocks[number]
        if block.width is not None:
            n_sums *= max(1, len(node.centers))
        n_points = min(node.n, ROWS) if block.by_row else node.n
        for chunk in _chunks(len(block.features), block.n_bins * n_sums, n_points):
            yield block.columns(problem, node, number, chunk)

    def _by_code(
        self, problem: Problem, node: Node, n_sums: int, number: int, features: Tensor
    ) -> Iterator[ByCode]:
        """Some columns of a block by their codes, or, if few of these occur at the node, by those that do."""
        n_codes = int(self.size[features].max())
        is_sparse = n_codes > max(256, 2 * node.n) and not problem.sharded
        n_bins = 2 * node.n if is_sparse else n_codes
        n_points = min(node.n, ROWS) if self.blocks[number].by_row else node.n
        for chunk in _chunks(len(features), n_bins * n_sums, n_points):
            chosen = features[chunk]
            codes = self.codes[number].index_select(0, self.row_of[chosen])
            if is_sparse:
                yield _renumbered(problem, node, chosen, codes, self.centers[chosen])
            else:
                yield ByCode(problem, node, chosen, self.centers[chosen], n_codes, codes)

    @cached_property
    def _rows(self) -> list[tuple[int, int]]:
        return list(zip(self.block_of.tolist(), self.row_of.tolist(), strict=True))

    def column(self, feature: int) -> Tensor:
        """Codes of all points in a column, [n]."""
        block, row = self._rows[feature]
        return self.codes[block][row]


def _renumbered(problem: Problem, node: Node, features: Tensor, codes: Tensor, centers: Tensor) -> Renumbered:
    """Columns by the codes that occur among the node's points and centers."""
    codes = histograms.gathered(codes, node.rows)
    bins, center_bins, original = histograms.renumber_codes(codes, centers.index_select(1, node.centers))
    centers = centers.index_copy(1, node.centers, center_bins)
    return Renumbered(problem, node, features, centers, original.shape[1], bins, original=original)


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
    ranked = [
        value_ranks(table.columns(first, last), centers[:, first:last].T.contiguous(), rounding, ranks)
        for first, last in table.chunks(ranks)
    ]
    codes, center_codes, sizes, snapped = zip(*ranked, strict=True)
    columns = _columns(list(codes), torch.cat(center_codes), torch.cat(sizes))
    return columns, torch.cat(snapped).T


def _binned(
    table: Points, centers: Tensor, max_bins: int, weight: Tensor | None, ranks: Ranks, n: Tensor
) -> tuple[CodedColumns, Bins]:
    """Codes with at most `max_bins` bins per column."""
    sketch = Sketch(table.d, max_bins, table.device)
    if weight is not None:
        weight = rounded(weight, exact_total(weight, ranks))
    for rows in blocks(table.n, 32 * table.d, table.device):
        sketch.add(table.rows(rows), None if weight is None else weight[rows])
    bins = sketch.merged(ranks).bins(centers, table.dtype, n)
    kind = code_type(int(bins.size.max()))
    codes = []
    for first, last in table.chunks():
        values = table.columns(first, last)
        codes.append(bins.code(values, torch.empty_like(values, dtype=kind), slice(first, last)))
    columns = _columns(codes, bins.centers, bins.size)
    return replace(columns, ends=bins), bins


def _chunks(columns: int, sums: int, rows: int) -> Iterator[slice]:
    """Ranges of columns with so many sums, and codes of points, per column."""
    step = max(1, min(histograms.CACHED // max(1, sums), histograms.BUDGET // max(1, rows)))
    return (slice(first, min(first + step, columns)) for first in range(0, columns, step))


def stored_columns(codes: Tensor, bins: Bins) -> CodedColumns:
    """Columns with codes that are stored row by row, [n, d]."""
    every = torch.arange(codes.shape[1])
    block = ColumnBlock(every, codes.T, bins.centers, None, bins.high.shape[1], by_row=True)
    return CodedColumns([codes.T], bins.centers, bins.size, [block], torch.zeros_like(every), every, bins)


def _columns(chunks: list[Tensor], centers: Tensor, size: Tensor) -> CodedColumns:
    """Arrange codes of consecutive columns in blocks."""
    d, k = centers.shape
    groups = _groups(size, max(FEW, HISTOGRAM // (d * k)))
    all_codes = chunks[0] if len(chunks) == 1 else torch.cat(chunks)
    codes = []
    blocks = []
    block_of = torch.empty(d, dtype=torch.int64, device=size.device)
    row_of = torch.empty_like(block_of)
    for number, features in enumerate(groups):
        block_codes = all_codes if len(groups) == 1 else all_codes.index_select(0, features)
        block_codes = block_codes.to(code_type(int(size[features].max())))
        codes.append(block_codes)
        blocks.append(_block(features, block_codes, centers[features], size[features], k, d))
        block_of[features] = number
        row_of[features] = torch.arange(len(features), device=size.device)
    return CodedColumns(codes, centers, size, blocks, block_of, row_of)


def _groups(size: Tensor, separable: int) -> list[Tensor]:
    """Group columns by their number of codes: at most 256, more, and so many that they get coarse codes."""
    largest = int(size.max())
    if largest <= min(256, separable) or int(size.numel()) * largest <= HISTOGRAM:
        return [torch.arange(len(size), device=size.device)]
    limits = [0, min(256, separable), separable, largest]
    groups = [((size > low) & (size <= high)).nonzero()[:, 0] for low, high in pairwise(limits)]
    return [group for group in groups if len(group)]


def _block(features: Tensor, codes: Tensor, centers: Tensor, size: Tensor, k: int, d: int) -> ColumnBlock:
    """Make a block of columns, with coarse codes if one has many codes."""
    largest = int(size.max())
    if largest <= max(FEW, HISTOGRAM // (d * k), COARSE):
        return ColumnBlock(features, codes, centers, None, largest)
    # The width of a coarse code is a power of 2, because shifting is ten times faster than dividing.
    least_width = (size - 1).div(COARSE, rounding_mode="floor") + 1
    shift = least_width.log2().ceil().to(torch.int64)
    n_bins = 1 + int((size - 1 >> shift).max())
    bins = codes >> shift[:, None].to(codes.dtype)
    return ColumnBlock(features, bins.to(code_type(n_bins)), centers >> shift[:, None], 1 << shift, n_bins)
