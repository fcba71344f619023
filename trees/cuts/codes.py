"""Codes of the columns of a table, ranks of values or numbers of bins, in blocks that are searched together."""

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
from neonxc.trees.cuts.columns import Columns
from neonxc.trees.cuts.entries import SparseColumns, code_sparse
from neonxc.trees.cuts.exact_sums import exact_total, rounded
from neonxc.trees.cuts.ranks import code_type, value_ranks
from neonxc.trees.cuts.snapping import Rounding

if TYPE_CHECKING:
    from neonxc.trees.fit.sparse_points import Points

if TYPE_CHECKING:
    from neonxc.trees.cuts.nodes import Node
    from neonxc.trees.fit.problem import Problem

FEW = 512  # up to this number of codes, a column is searched by its codes
HISTOGRAM = 1 << 17  # so are more codes if a whole histogram has at most so many entries
COARSE = 256  # number of coarse codes of other columns
ROWS = 1 << 16  # number of points whose codes are gathered at a time from a table that is stored by row


@dataclass
class ColumnBlock:
    """Columns that are searched together, by their codes or, if these are many, by coarse codes.

    A coarse code stands for several neighbouring codes.

    Attributes
    ----------
    features : Tensor [f] of int64
        The columns, in ascending order.
    coarse : Tensor [f, n] of uint8 or int16
        The coarse code of every point.
    centers : Tensor [f, k] of int64
        The coarse codes of the centers.
    width : Tensor [f] of int64 or None
        Number of codes per coarse code; None if every coarse code is a single one.
    places : int
        Largest number of coarse codes of a column.
    by_row : bool
        Whether the coarse codes are stored row by row; no column-wise copy of all of them is made.
    """

    features: Tensor
    coarse: Tensor
    centers: Tensor
    width: Tensor | None
    places: int
    by_row: bool = False


@dataclass
class CodedColumns:
    """The codes of a dense table, and the coarse codes by which its columns are searched.

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

    def parts(
        self, problem: Problem, node: Node, numbers: int, features: Tensor | None = None, coarse: bool = False
    ) -> Iterator[Columns]:
        """Groups of columns of a node, each so few that the sums of all cuts fit into a core's cache.

        Parameters
        ----------
        problem : Problem
        node : Node
        numbers : int
            Number of sums per column and place.
        features : Tensor of int64, optional
            The columns. Default: all.
        coarse : bool
            Whether columns of many codes come by their coarse codes, for one sum per center and number.
        """
        for number, block in enumerate(self.blocks):
            step, rows = (ROWS, min(node.n, ROWS)) if block.by_row else (None, node.n)
            if features is None and (coarse or block.width is None):
                each = numbers if block.width is None else numbers * max(1, len(node.centers))
                for part in _chunks(len(block.features), block.places * each, rows):
                    own, centers, codes = block.features[part], block.centers[part], block.coarse[part]
                    width = None if block.width is None else block.width[part]
                    here = number, part
                    yield Columns(problem, node, own, centers, block.places, codes, width, step=step, block=here)
                continue
            own = block.features if features is None else features[self.place[features, 0] == number]
            if len(own):
                places = int(self.size[own].max())
                few = places > max(256, 2 * node.n) and not problem.sharded
                for part in _chunks(len(own), (min(places, 2 * node.n) if few else places) * numbers, rows):
                    yield self._by_code(problem, node, number, own[part], None if few else places)

    def _by_code(self, problem: Problem, node: Node, block: int, features: Tensor, places: int | None) -> Columns:
        """Columns by their codes.

        If `places` is None, codes are renumbered to those that occur among the node's points and centers.
        """
        codes, original = self.codes[block].index_select(0, self.place[features, 1]), None
        centers = self.centers[features]
        if places is None:
            codes = histograms.gathered(codes, node.rows)
            codes, new, original = histograms.renumber_codes(codes, centers.index_select(1, node.centers))
            centers, places = centers.index_copy(1, node.centers, new), original.shape[1]
        return Columns(problem, node, features, centers, places, codes, original=original)

    @cached_property
    def _places(self) -> list[list[int]]:
        return self.place.tolist()

    def column(self, feature: int) -> Tensor:
        """Codes of all points in a column, [n]."""
        block, row = self._places[feature]
        return self.codes[block][row]


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
    parts = [
        value_ranks(table.columns(first, last), centers[:, first:last].T.contiguous(), rounding, ranks)
        for first, last in table.chunks(ranks)
    ]
    codes, middles, sizes, found = zip(*parts, strict=True)
    return _columns(list(codes), torch.cat(middles), torch.cat(sizes)), torch.cat(found).T


def _binned(
    table: Points, centers: Tensor, max_bins: int, weight: Tensor | None, ranks: Ranks, n: Tensor
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


def _chunks(columns: int, sums: int, rows: int) -> Iterator[slice]:
    """Ranges of columns with so many sums, and codes of points, per column."""
    step = max(1, min(histograms.CACHED // max(1, sums), histograms.BUDGET // max(1, rows)))
    return (slice(first, min(first + step, columns)) for first in range(0, columns, step))


def stored_columns(codes: Tensor, bins: Bins) -> CodedColumns:
    """Columns with codes that are stored row by row, [n, d]."""
    every = torch.arange(codes.shape[1])
    block = ColumnBlock(every, codes.T, bins.centers, None, bins.high.shape[1], True)
    return CodedColumns([codes.T], bins.centers, bins.size, [block], torch.stack([every * 0, every], 1), bins)


def _columns(parts: list[Tensor], centers: Tensor, size: Tensor) -> CodedColumns:
    """Arrange codes of consecutive columns in blocks."""
    d, k = centers.shape
    groups = _groups(size, max(FEW, HISTOGRAM // (d * k)))
    every = parts[0] if len(parts) == 1 else torch.cat(parts)
    own_codes = [every] if len(groups) == 1 else [every.index_select(0, group) for group in groups]
    codes = [own.to(code_type(int(size[group].max()))) for own, group in zip(own_codes, groups, strict=True)]
    place = torch.empty(d, 2, dtype=torch.int64, device=size.device)
    found = []
    for number, (group, own) in enumerate(zip(groups, codes, strict=True)):
        place[group, 0] = number
        place[group, 1] = torch.arange(len(group), device=size.device)
        found.append(_block(group, own, centers[group], size[group], k, d))
    return CodedColumns(codes, centers, size, found, place)


def _groups(size: Tensor, separable: int) -> list[Tensor]:
    """Group columns by their number of codes: at most 256, more, and so many that they get coarse codes."""
    most = int(size.max())
    if most <= min(256, separable) or int(size.numel()) * most <= HISTOGRAM:
        return [torch.arange(len(size), device=size.device)]
    limits = [0, min(256, separable), separable, most]
    groups = [((size > low) & (size <= high)).nonzero()[:, 0] for low, high in pairwise(limits)]
    return [group for group in groups if len(group)]


def _block(features: Tensor, codes: Tensor, centers: Tensor, size: Tensor, k: int, d: int) -> ColumnBlock:
    most = int(size.max())
    if most <= max(FEW, HISTOGRAM // (d * k), COARSE):
        return ColumnBlock(features, codes, centers, None, most)
    # The width of a coarse code is a power of 2, because shifting is ten times faster than dividing
    shift = ((size - 1).div(COARSE, rounding_mode="floor") + 1).log2().ceil().to(torch.int64)[:, None]
    coarse, own = codes >> shift.to(codes.dtype), centers >> shift
    places = 1 + int((size - 1 >> shift[:, 0]).max())
    return ColumnBlock(features, coarse.to(code_type(places)), own, 1 << shift[:, 0], places)
