"""Sparse columns of a node: sums computed from the stored entries; all other points have the code of zero.

The codes of all columns are numbered consecutively. Points without an entry in a column are never listed. Their
number is the number of the node's points minus that of its entries.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import pad

from neonxc.trees.cuts import histograms
from neonxc.trees.cuts.columns import Columns

if TYPE_CHECKING:
    from neonxc.trees.cuts.nodes import Node
    from neonxc.trees.fit.problem import Problem


@dataclass
class SparseEntries:
    """The nonzero entries of a node's points in the columns that can be cut at the node.

    Attributes
    ----------
    n, n_all : int
        Number of points of the node, and of the table.
    features : Tensor [f] of int64
        The columns, in ascending order.
    start : Tensor [f + 1] of int64
        Position of the first entry of every column.
    row, number : Tensor [entries] of int64
        Point of every entry and number of its code, column by column.
    first : Tensor [f + 1] of int64
        First number of every column.
    code : Tensor [numbers] of int64
        Code of the table for every number.
    zero : Tensor [f] of int64
        Number of the value 0 in every column.
    which : Tensor [c] of int64
        Indices of the node's centers, in ascending order.
    centers : Tensor [f, c] of int64
        Numbers of the codes of the node's centers.
    """

    n: int
    n_all: int
    features: Tensor
    start: Tensor
    row: Tensor
    number: Tensor
    first: Tensor
    code: Tensor
    zero: Tensor
    which: Tensor
    centers: Tensor
    _places: tuple[Tensor, Tensor] | None = field(default=None, init=False, repr=False)

    def places(self, rows: Tensor) -> Tensor:
        """Position in `rows` of every entry's point, or -1; the last result is cached."""
        if self._places is None or self._places[0] is not rows:
            place = torch.full((self.n_all,), -1)
            place[rows] = torch.arange(len(rows))
            self._places = rows, place.index_select(0, self.row)
        return self._places[1]

    def subset(self, selected: Tensor, n: int, which: Tensor) -> SparseEntries:
        """The entries of a subset of the points, in the columns that can still be cut.

        Parameters
        ----------
        selected : Tensor [all points] of bool
            Mask of the points.
        n : int
            Number of selected points.
        which : Tensor of int64
            Indices of the selected centers, in ascending order.
        """
        centers = self.centers.index_select(1, torch.searchsorted(self.which, which))
        kept = selected.index_select(0, self.row)
        held = torch.zeros(len(self.code), dtype=torch.bool)
        held[self.number.masked_select(kept)] = True
        if len(which):
            may_be_cut = centers.amin(1) < centers.amax(1)
        else:
            held[self.zero] |= counted(kept, self.start) < n
            may_be_cut = counted(held, self.first) > 1
        held[self.zero] = True
        held[centers] = True
        held &= may_be_cut.repeat_interleave(self.first.diff())
        kept &= may_be_cut.repeat_interleave(self.start.diff())
        number = held.cumsum(0).sub_(1)
        stay = kept.nonzero()[:, 0]
        return SparseEntries(
            n,
            self.n_all,
            self.features[may_be_cut],
            starts(counted(kept, self.start)[may_be_cut]),
            self.row.index_select(0, stay),
            number.index_select(0, self.number.index_select(0, stay)),
            starts(counted(held, self.first)[may_be_cut]),
            self.code.masked_select(held),
            number[self.zero[may_be_cut]],
            which,
            number[centers[may_be_cut]],
        )

    def among(self, features: Tensor) -> Tensor:
        """Positions in ``self.features`` of the given columns, without those that can't be cut."""
        place = torch.searchsorted(self.features, features).clamp_(max=max(len(self.features) - 1, 0))
        return place[self.features[place] == features] if len(self.features) else place[:0]


@dataclass(eq=False, kw_only=True)
class NodeEntries(Columns):
    """Sparse columns of a node, whose bins are the codes that occur.

    Attributes
    ----------
    entries : SparseEntries
        Entries of the node.
    every, column : Tensor [stored] of int64
        Positions of the stored entries of these columns, and their columns.
    codes : Tensor [stored] of int64
        Their bins.
    zero : Tensor [f] of int64
        The bin of zero.
    original : Tensor [f, bins]
        The code of every bin.
    """

    entries: SparseEntries
    codes: Tensor
    original: Tensor
    every: Tensor
    column: Tensor
    zero: Tensor

    def code(self, column: int, bin: int) -> int:
        """Return the code of a bin."""
        return int(self.original[column, bin])

    def bins_of(self, rows: Tensor) -> Tensor:
        """Return the bins of points, whose order is ascending, [f, points]."""
        column, point, code = self._entries_of(rows)
        codes = self.zero[:, None].repeat(1, len(rows))
        codes.view(-1)[column * len(rows) + point] = code
        return codes

    def counts(
        self, rows: Tensor, labels: Tensor | None = None, k: int = 1, weight: Tensor | None = None
    ) -> Tensor:
        """Number (or weight) of points by column, label and bin, [f, k, bins]."""
        column, point, code = self._entries_of(rows)
        labels = torch.zeros_like(rows) if labels is None else labels
        index = (column * k + labels[point]) * self.n_bins + code
        counts = _summed(index, None if weight is None else weight[point], len(self.zero) * k * self.n_bins)
        return self._with_zeros(counts.view(-1, k, self.n_bins), _summed(labels, weight, k))

    def channels(self, rows: Tensor, values: Tensor) -> Tensor:
        """Sums of values [m, points] by column and bin, [f, m, bins]."""
        column, point, code = self._entries_of(rows)
        m = len(values)
        index = column * m * self.n_bins + code + torch.arange(m)[:, None] * self.n_bins
        size = len(self.zero) * m * self.n_bins
        result = _summed(index.flatten(), values[:, point].flatten(), size).view(-1, m, self.n_bins)
        return self._with_zeros(result, values.sum(1))

    def chosen_channels(self, rows: Tensor, values: Tensor, column: Tensor, which: Tensor) -> Tensor:
        """Add row `which[g]` of values [m, points] up to every bin of column `column[g]`, [groups, bins]."""
        own, point, code = self._entries_of(rows)
        lengths = torch.bincount(own, minlength=len(self.zero))
        start = lengths.cumsum(0) - lengths
        result = torch.zeros(len(column), self.n_bins, dtype=torch.float64)
        for part in split_by_cost(lengths[column], histograms.BUDGET // 4):
            every = ranges(start[column[part]], lengths[column[part]])
            group = torch.arange(part.start, part.stop).repeat_interleave(lengths[column[part]])
            index = group * self.n_bins + code[every]
            result.view(-1).scatter_add_(0, index, values[which[group], point[every]])
        rest = values.sum(1)[which] - result.sum(1)
        return result.scatter_add_(1, self.zero[column][:, None], rest[:, None]).cumsum_(1)

    def separated_by_center(
        self, rows: Tensor, labels: Tensor, centers: Tensor, weight: Tensor | None = None
    ) -> Tensor:
        """Count the points that each cut separates from every center, [f, k, bins]."""
        counts = self.counts(rows, labels, centers.shape[1], weight)
        every = counts.sum(2, keepdim=True, dtype=counts.dtype)
        return counts.scatter_add_(2, centers[..., None], -every).cumsum_(2).abs_()

    def separated(self, rows: Tensor, labels: Tensor, centers: Tensor, weight: Tensor | None = None) -> Tensor:
        """Count the points that each cut separates from the center of their label, [f, bins]."""
        column, point, code = self._entries_of(rows)
        k = centers.shape[1]
        dtype = torch.int32 if weight is None else torch.float64
        own = column * k + labels[point]
        mass = None if weight is None else weight[point]
        side = (centers.flatten()[own] - code).sign_().to(dtype)
        side = side if mass is None else side.mul_(mass)
        change = _summed(column * self.n_bins + code, side, len(centers) * self.n_bins).view(-1, self.n_bins)
        zeros = _summed(labels, weight, k) - _summed(own, mass, centers.numel()).view_as(centers)
        zeros = zeros.mul_((centers - self.zero[:, None]).sign_())
        change.scatter_add_(1, self.zero[:, None], zeros.sum(1, keepdim=True, dtype=dtype))
        jump = _summed(own, side, centers.numel()).view_as(centers)
        return change.scatter_add_(1, centers, -jump.add_(zeros)).cumsum_(1)

    def _entries_of(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Column, position in `rows`, and code of all entries of the points `rows`."""
        place = self.entries.places(rows)[self.every]
        if len(rows) == self.entries.n:  # all points of the node
            return self.column, place, self.codes
        kept = place >= 0
        return self.column[kept], place[kept], self.codes[kept]

    def _with_zeros(self, counts: Tensor, total: Tensor) -> Tensor:
        """Add the points without an entry to sums [f, groups, bins]; `total` [groups] sums all points."""
        rest = total.to(counts.dtype) - counts.sum(2, dtype=counts.dtype)
        zero = self.zero[:, None, None].expand(-1, counts.shape[1], 1)
        return counts.scatter_add_(2, zero, rest[..., None])


def columns_of(problem: Problem, node: Node, entries: SparseEntries, own: Tensor) -> NodeEntries:
    """The columns at some positions among those of the entries."""
    first = entries.first[own]
    start = entries.start[own]
    lengths = entries.start[own + 1] - start
    places = int((entries.first[own + 1] - first).max())
    every = ranges(start, lengths)
    column = torch.arange(len(own)).repeat_interleave(lengths)
    centers = torch.zeros(len(own), problem.k, dtype=torch.int64)
    centers[:, entries.which] = entries.centers[own] - first[:, None]
    original = entries.code[(first[:, None] + torch.arange(places)).clamp_(max=len(entries.code) - 1)]
    return NodeEntries(
        problem,
        node,
        entries.features[own],
        centers,
        places,
        codes=entries.number[every] - first[column],
        original=original,
        entries=entries,
        every=every,
        column=column,
        zero=entries.zero[own] - first,
    )


def ranges(start: Tensor, lengths: Tensor) -> Tensor:
    """Concatenate the ranges of integers with the given starts and lengths."""
    first = lengths.cumsum(0) - lengths
    return (start - first).repeat_interleave(lengths) + torch.arange(int(lengths.sum()))


def _summed(index: Tensor, weight: Tensor | None, size: int) -> Tensor:
    """Number of equal indices in int32, or sum of their weights, [size]."""
    values = torch.ones((), dtype=torch.int32).expand_as(index) if weight is None else weight
    return torch.zeros(size, dtype=values.dtype).scatter_add_(0, index, values)


def split_by_cost(costs: Tensor, budget: int) -> Iterator[slice]:
    """Divide items into consecutive, nonempty ranges whose total costs are about `budget`."""
    number = costs.cumsum(0).div_(budget, rounding_mode="floor")
    ends = pad(number.diff().nonzero()[:, 0] + 1, (1, 1))
    ends[-1] = len(costs)
    for first, last in pairwise(ends.tolist()):
        yield slice(first, last)


def starts(lengths: Tensor) -> Tensor:
    """Start of every part if parts of the given lengths are concatenated, and the end of the last one."""
    starts = lengths.new_zeros(len(lengths) + 1, dtype=torch.int64)
    torch.cumsum(lengths, 0, dtype=torch.int64, out=starts[1:])
    return starts


def counted(flags: Tensor, start: Tensor) -> Tensor:
    """Number of flags that are set in every part."""
    return starts(flags).index_select(0, start).diff()
