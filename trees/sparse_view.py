"""View of sparse columns: histograms computed from the stored entries; all other points have the code of zero."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import torch
from torch import Tensor

import neonxc.trees.sums as sums
from neonxc.trees.entries import SparseEntries


class SparseView:
    """Sparse columns of a node; the methods are those of :class:`~neonxc.trees.views.View`.

    Parameters
    ----------
    entries : SparseEntries
        Entries of the node.
    columns : Tensor [f] of int64
        Positions of the columns in ``entries.features``.
    k : int
        Number of all reference centers.
    """

    coarse = False

    def __init__(self, entries: SparseEntries, columns: Tensor, k: int) -> None:
        first, start = entries.first[columns], entries.start[columns]
        lengths = entries.start[columns + 1] - start
        every = ranges(start, lengths)
        self.bins = int((entries.first[columns + 1] - first).max())
        self.zero = entries.zero[columns] - first
        self.centers = torch.zeros(len(columns), k, dtype=torch.int64)
        self.centers[:, entries.which] = entries.centers[columns] - first[:, None]
        self._column = torch.arange(len(columns)).repeat_interleave(lengths)
        self._code = entries.bin[every] - first[self._column]
        self._every, self._entries = every, entries

    def _entries_of(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Column, position in `rows`, and code of all entries of the points `rows`."""
        place = self._entries.places(rows)[self._every]
        if len(rows) == self._entries.n:  # all points of the node
            return self._column, place, self._code
        kept = place >= 0
        return self._column[kept], place[kept], self._code[kept]

    def _add_zeros(self, counts: Tensor, total: Tensor) -> Tensor:
        """Add the points without an entry to sums [f, groups, bins]; `total` [groups] sums all points."""
        rest = total.to(counts.dtype) - counts.sum(2, dtype=counts.dtype)
        zero = self.zero[:, None, None].expand(-1, counts.shape[1], 1)
        return counts.scatter_add_(2, zero, rest[..., None])

    def histogram(self, rows: Tensor, labels: Tensor | None, k: int, weight: Tensor | None = None) -> Tensor:
        """Number (or weight) of points by column, label and code."""
        column, point, code = self._entries_of(rows)
        labels = torch.zeros_like(rows) if labels is None else labels
        index = (column * k + labels[point]) * self.bins + code
        counts = _added(index, None if weight is None else weight[point], len(self.zero) * k * self.bins)
        return self._add_zeros(counts.view(-1, k, self.bins), _added(labels, weight, k))

    def channels(self, rows: Tensor, values: Tensor) -> Tensor:
        """Sums of values by column and code."""
        column, point, code = self._entries_of(rows)
        m = len(values)
        index = (column * m * self.bins + code) + torch.arange(m)[:, None] * self.bins
        result = torch.zeros(len(self.zero) * m * self.bins, dtype=torch.float64)
        result.scatter_add_(0, index.flatten(), values[:, point].flatten())
        return self._add_zeros(result.view(-1, m, self.bins), values.sum(1))

    def selected_channels(self, rows: Tensor, values: Tensor, column: Tensor, which: Tensor) -> Tensor:
        """Prefix sums of one channel for each of the given columns."""
        own, point, code = self._entries_of(rows)
        lengths = torch.bincount(own, minlength=len(self.zero))
        start = lengths.cumsum(0) - lengths
        result = torch.zeros(len(column), self.bins, dtype=torch.float64)
        total = values.sum(1)
        for part in split_by_cost(lengths[column], sums.BUDGET // 4):
            every = ranges(start[column[part]], lengths[column[part]])
            group = torch.arange(part.start, part.stop).repeat_interleave(lengths[column[part]])
            own_values = values[which[group], point[every]]
            result.view(-1).scatter_add_(0, group * self.bins + code[every], own_values)
        rest = total[which] - result.sum(1)
        return result.scatter_add_(1, self.zero[column][:, None], rest[:, None]).cumsum_(1)

    def parted(self, rows: Tensor, labels: Tensor, centers: Tensor, weight: Tensor | None = None) -> Tensor:
        """The same as :func:`neonxc.trees.sums.parted`, without a histogram by label.

        A point is separated from its center by the cuts from the lower of their two codes up to the higher one.
        """
        column, point, code = self._entries_of(rows)
        k, dtype = centers.shape[1], torch.int32 if weight is None else torch.float64
        own = column * k + labels[point]
        mass = None if weight is None else weight[point]
        side = (centers.flatten()[own] - code).sign_().to(dtype)
        side = side if mass is None else side.mul_(mass)
        change = torch.zeros(len(centers), self.bins, dtype=dtype)
        change.view(-1).scatter_add_(0, column * self.bins + code, side)
        jump = torch.zeros(centers.shape, dtype=dtype)
        jump.view(-1).scatter_add_(0, own, side)
        zeros = _added(labels, weight, k) - _added(own, mass, centers.numel()).view_as(centers)
        zeros = zeros.mul_((centers - self.zero[:, None]).sign_())
        change.scatter_add_(1, self.zero[:, None], zeros.sum(1, keepdim=True, dtype=dtype))
        return change.scatter_add_(1, centers, -jump.add_(zeros)).cumsum_(1)

    def parted_by_center(
        self, rows: Tensor, labels: Tensor, centers: Tensor, weight: Tensor | None = None
    ) -> Tensor:
        """The same by center."""
        k = centers.shape[1]
        counts, own = self.histogram(rows, labels, k, weight), centers[..., None]
        mass = counts.sum(2, keepdim=True, dtype=counts.dtype)
        return counts.scatter_add_(2, own, -mass).cumsum_(2).abs_()

    def ends(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Smallest and largest code."""
        column, _, code = self._entries_of(rows)
        zeros = torch.bincount(column, minlength=len(self.zero)) < len(rows)
        low, high = self.zero.where(zeros, self.bins), self.zero.where(zeros, -1)
        return low.scatter_reduce(0, column, code, "amin"), high.scatter_reduce(0, column, code, "amax")

    def extremes(self, rows: Tensor, values: Callable[[], Tensor]) -> tuple[Tensor, Tensor]:
        """Maximum of the values, and of minus the values, by code."""
        column, _, code = self._entries_of(rows)
        own = self._entries.value[self._every][self._entries.places(rows)[self._every] >= 0]
        none = torch.full((len(self.zero), self.bins), -torch.inf, dtype=torch.float64)
        zeros = (torch.bincount(column, minlength=len(self.zero)) < len(rows)).nonzero()[:, 0]
        none[zeros, self.zero[zeros]] = 0.0
        index = column * self.bins + code
        one, other = (none.flatten().scatter_reduce(0, index, sign * own, "amax") for sign in (1, -1))
        return one.view_as(none), other.view_as(none)

    def at(self, rows: Tensor) -> Tensor:
        """Codes of the points `rows` as a dense array, [f, points]."""
        column, point, code = self._entries_of(rows)
        codes = self.zero[:, None].repeat(1, len(rows))
        codes.view(-1)[column * len(rows) + point] = code
        return codes

    def by_point(self, rows: Tensor) -> Tensor:
        """Codes of the points `rows` as a dense array, [points, f]."""
        points, place = rows.unique(return_inverse=True)
        return self.at(points).T.index_select(0, place)


def ranges(start: Tensor, lengths: Tensor) -> Tensor:
    """Concatenate the ranges of integers with the given starts and lengths."""
    first = lengths.cumsum(0) - lengths
    return (start - first).repeat_interleave(lengths) + torch.arange(int(lengths.sum()))


def _added(index: Tensor, weight: Tensor | None, size: int) -> Tensor:
    """Number of equal indices in int32, or sum of their weights, [size]."""
    dtype = torch.int32 if weight is None else torch.float64
    values = torch.ones((), dtype=dtype).expand_as(index) if weight is None else weight
    return torch.zeros(size, dtype=dtype).scatter_add_(0, index, values)


def split_by_cost(costs: Tensor, budget: int) -> Iterator[slice]:
    """Divide items into consecutive, nonempty ranges whose total costs are about `budget`."""
    number = costs.cumsum(0).div_(budget, rounding_mode="floor")
    ends = torch.nn.functional.pad(number.diff().nonzero()[:, 0] + 1, (1, 1))
    ends[-1] = len(costs)
    for first, last in pairwise(ends.tolist()):
        yield slice(first, last)
