"""Sparse columns of a node: sums computed from the stored entries; all other points have the code of zero.

The codes of all columns are numbered consecutively. Points without an entry in a column are never listed. Their
number is the number of the node's points minus that of its entries.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from neonxc.trees.cuts import histograms
from neonxc.trees.cuts.histograms import Columns

if TYPE_CHECKING:
    from neonxc.trees.cuts.growth import Node
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
    _positions: tuple[Tensor, Tensor] | None = field(default=None, init=False, repr=False)

    def positions(self, rows: Tensor) -> Tensor:
        """Position in `rows` of every entry's point, or -1; the last result is cached."""
        if self._positions is None or self._positions[0] is not rows:
            position = torch.full((self.n_all,), -1)
            position[rows] = torch.arange(len(rows))
            self._positions = rows, position.index_select(0, self.row)
        return self._positions[1]

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
        is_kept = selected.index_select(0, self.row)  # [entries]

        # Codes that occur among the points
        occurs = torch.zeros(len(self.code), dtype=torch.bool)
        occurs[self.number.masked_select(is_kept)] = True
        if len(which):
            may_be_cut = centers.amin(1) < centers.amax(1)
        else:
            occurs[self.zero] |= counted(is_kept, self.start) < n
            may_be_cut = counted(occurs, self.first) > 1

        # Codes that stay: also those of zero and of the centers, in the columns that may be cut
        occurs[self.zero] = True
        occurs[centers] = True
        occurs &= may_be_cut.repeat_interleave(self.first.diff())
        is_kept &= may_be_cut.repeat_interleave(self.start.diff())
        new_number = occurs.cumsum(0).sub_(1)
        kept = is_kept.nonzero()[:, 0]
        return SparseEntries(
            n=n,
            n_all=self.n_all,
            features=self.features[may_be_cut],
            start=starts(counted(is_kept, self.start)[may_be_cut]),
            row=self.row.index_select(0, kept),
            number=new_number.index_select(0, self.number.index_select(0, kept)),
            first=starts(counted(occurs, self.first)[may_be_cut]),
            code=self.code.masked_select(occurs),
            zero=new_number[self.zero[may_be_cut]],
            which=which,
            centers=new_number[centers[may_be_cut]],
        )

    def positions_of(self, features: Tensor) -> Tensor:
        """Positions in ``self.features`` of the given columns, without those that can't be cut."""
        if not len(self.features):
            return features[:0]
        position = torch.searchsorted(self.features, features).clamp_(max=len(self.features) - 1)
        return position[self.features[position] == features]


class Stored(NamedTuple):
    """Stored entries of some points."""

    column: Tensor  # [stored] of int64
    point: Tensor  # [stored] of int64, position among the points
    bin: Tensor  # [stored] of int64


@dataclass(eq=False, kw_only=True)
class NodeEntries(Columns):
    """Sparse columns of a node, whose bins are the codes that occur.

    Attributes
    ----------
    entries : SparseEntries
        Entries of the node.
    stored, column : Tensor [stored] of int64
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
    stored: Tensor
    column: Tensor
    zero: Tensor

    def code(self, column: int, bin: int) -> int:
        """Return the code of a bin."""
        return int(self.original[column, bin])

    def bins_of(self, rows: Tensor) -> Tensor:
        """Return the bins of points, whose order is ascending, [f, points]."""
        stored = self._entries_of(rows)
        bins = self.zero[:, None].repeat(1, len(rows))
        bins.view(-1)[stored.column * len(rows) + stored.point] = stored.bin
        return bins

    def counts(
        self, rows: Tensor, labels: Tensor | None = None, k: int = 1, weight: Tensor | None = None
    ) -> Tensor:
        """Number (or weight) of points by column, label and bin, [f, k, bins]."""
        stored = self._entries_of(rows)
        if labels is None:
            labels = torch.zeros_like(rows)
        index = (stored.column * k + labels[stored.point]) * self.n_bins + stored.bin
        entry_weight = None if weight is None else weight[stored.point]
        counts = _summed(index, entry_weight, len(self.zero) * k * self.n_bins)
        return self._with_zeros(counts.view(-1, k, self.n_bins), _summed(labels, weight, k))

    def channels(self, rows: Tensor, values: Tensor) -> Tensor:
        """Sums of values [m, points] by column and bin, [f, m, bins]."""
        stored = self._entries_of(rows)
        m = len(values)
        channel = torch.arange(m)[:, None]
        index = (stored.column * m + channel) * self.n_bins + stored.bin  # [m, stored]
        size = len(self.zero) * m * self.n_bins
        sums = _summed(index.flatten(), values[:, stored.point].flatten(), size)
        return self._with_zeros(sums.view(-1, m, self.n_bins), values.sum(1))

    def chosen_channels(self, rows: Tensor, values: Tensor, column: Tensor, which: Tensor) -> Tensor:
        """Add row `which[g]` of values [m, points] up to every bin of column `column[g]`, [groups, bins]."""
        stored = self._entries_of(rows)
        n_entries = torch.bincount(stored.column, minlength=len(self.zero))
        start = n_entries.cumsum(0) - n_entries
        sums = torch.zeros(len(column), self.n_bins, dtype=torch.float64)
        for groups in split_by_cost(n_entries[column], histograms.BUDGET // 4):
            lengths = n_entries[column[groups]]
            position = ranges(start[column[groups]], lengths)
            group = torch.arange(groups.start, groups.stop).repeat_interleave(lengths)
            index = group * self.n_bins + stored.bin[position]
            sums.view(-1).scatter_add_(0, index, values[which[group], stored.point[position]])
        sum_of_zeros = values.sum(1)[which] - sums.sum(1)
        return sums.scatter_add_(1, self.zero[column][:, None], sum_of_zeros[:, None]).cumsum_(1)

    def separated_by_center(
        self, rows: Tensor, labels: Tensor, centers: Tensor, weight: Tensor | None = None
    ) -> Tensor:
        """Count the points that each cut separates from every center, [f, k, bins].

        As in :mod:`neonxc.trees.cuts.histograms`: prefix sums of counts less all points at the center's bin.
        """
        counts = self.counts(rows, labels, centers.shape[1], weight)
        mass = counts.sum(2, keepdim=True, dtype=counts.dtype)
        return counts.scatter_add_(2, centers[..., None], -mass).cumsum_(2).abs_()

    def separated(self, rows: Tensor, labels: Tensor, centers: Tensor, weight: Tensor | None = None) -> Tensor:
        """Count the points that each cut separates from the center of their label, [f, bins].

        As in :mod:`neonxc.trees.cuts.histograms`, without a histogram by label: every point is added at its own
        bin and subtracted at its center's, with the sign of its center's bin minus its own.
        """
        stored = self._entries_of(rows)
        k = centers.shape[1]
        dtype = torch.int32 if weight is None else torch.float64
        entry_weight = None if weight is None else weight[stored.point]
        entry_center = stored.column * k + labels[stored.point]

        # points with an entry
        change = (centers.flatten()[entry_center] - stored.bin).sign_().to(dtype)
        if entry_weight is not None:
            change = change.mul_(entry_weight)
        sums = _summed(stored.column * self.n_bins + stored.bin, change, len(centers) * self.n_bins)
        sums = sums.view(-1, self.n_bins)
        at_centers = _summed(entry_center, change, centers.numel()).view_as(centers)

        # points without one, by column and label
        with_entry = _summed(entry_center, entry_weight, centers.numel()).view_as(centers)
        zeros = _summed(labels, weight, k) - with_entry
        zeros = zeros.mul_((centers - self.zero[:, None]).sign_())
        sums.scatter_add_(1, self.zero[:, None], zeros.sum(1, keepdim=True, dtype=dtype))
        return sums.scatter_add_(1, centers, -at_centers.add_(zeros)).cumsum_(1)

    def _entries_of(self, rows: Tensor) -> Stored:
        """The stored entries of the points `rows`."""
        point = self.entries.positions(rows)[self.stored]
        if len(rows) == self.entries.n:  # all points of the node
            return Stored(self.column, point, self.codes)
        is_kept = point >= 0
        return Stored(self.column[is_kept], point[is_kept], self.codes[is_kept])

    def _with_zeros(self, sums: Tensor, total: Tensor) -> Tensor:
        """Add the points without an entry to sums [f, groups, bins]; `total` [groups] sums all points."""
        sum_of_zeros = total.to(sums.dtype) - sums.sum(2, dtype=sums.dtype)
        zero = self.zero[:, None, None].expand(-1, sums.shape[1], 1)
        return sums.scatter_add_(2, zero, sum_of_zeros[..., None])


def columns_of(problem: Problem, node: Node, entries: SparseEntries, columns: Tensor) -> NodeEntries:
    """The columns at some positions among those of the entries."""
    first = entries.first[columns]
    n_bins = int((entries.first[columns + 1] - first).max())
    start = entries.start[columns]
    n_entries = entries.start[columns + 1] - start
    stored = ranges(start, n_entries)
    column = torch.arange(len(columns)).repeat_interleave(n_entries)

    centers = torch.zeros(len(columns), problem.k, dtype=torch.int64)
    centers[:, entries.which] = entries.centers[columns] - first[:, None]
    number = (first[:, None] + torch.arange(n_bins)).clamp_(max=len(entries.code) - 1)
    return NodeEntries(
        problem,
        node,
        entries.features[columns],
        centers,
        n_bins,
        codes=entries.number[stored] - first[column],
        original=entries.code[number],
        entries=entries,
        stored=stored,
        column=column,
        zero=entries.zero[columns] - first,
    )


def ranges(start: Tensor, lengths: Tensor) -> Tensor:
    """Concatenate the ranges of integers with the given starts and lengths."""
    first = lengths.cumsum(0) - lengths
    return (start - first).repeat_interleave(lengths) + torch.arange(int(lengths.sum()))


def _summed(index: Tensor, weight: Tensor | None, size: int) -> Tensor:
    """Number of equal indices in int32, or sum of their weights, [size]."""
    if weight is None:
        weight = torch.ones((), dtype=torch.int32).expand_as(index)
    return torch.zeros(size, dtype=weight.dtype).scatter_add_(0, index, weight)


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
