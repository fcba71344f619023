"""Sparse columns of a node: sums computed from the stored entries; all other points have the code of zero."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor

import neonxc.trees.cuts.columns as sums
from neonxc.trees.cuts.columns import Columns
from neonxc.trees.cuts.entries import SparseColumns, SparseEntries
from neonxc.trees.cuts.nodes import Node

if TYPE_CHECKING:
    from neonxc.trees.fit.problem import Problem


@dataclass(frozen=True, kw_only=True)
class NodeEntries(Columns):
    """Sparse columns of a node; the codes of a column begin with 0 at the node.

    Attributes
    ----------
    entries : SparseEntries
        Entries of the node.
    every, column, codes : Tensor [stored] of int64
        Positions of the stored entries of these columns, and their columns and codes.
    zero : Tensor [f] of int64
        The code of zero.
    """

    entries: SparseEntries
    every: Tensor
    column: Tensor
    codes: Tensor
    zero: Tensor

    def at(self, rows: Tensor) -> Tensor:
        """Codes of the points `rows`, which are in ascending order, [f, points]."""
        column, point, code = self._entries_of(rows)
        codes = self.zero[:, None].repeat(1, len(rows))
        codes.view(-1)[column * len(rows) + point] = code
        return codes

    def counts(
        self, rows: Tensor, labels: Tensor | None = None, k: int = 1, weight: Tensor | None = None
    ) -> Tensor:
        """Number (or weight) of points by column, label and code, [f, k, places]."""
        column, point, code = self._entries_of(rows)
        labels = torch.zeros_like(rows) if labels is None else labels
        index = (column * k + labels[point]) * self.places + code
        counts = _summed(index, None if weight is None else weight[point], len(self.zero) * k * self.places)
        return self._with_zeros(counts.view(-1, k, self.places), _summed(labels, weight, k))

    def channels(self, rows: Tensor, values: Tensor) -> Tensor:
        """Sums of values [m, points] by column and code, [f, m, places]."""
        column, point, code = self._entries_of(rows)
        m = len(values)
        index = column * m * self.places + code + torch.arange(m)[:, None] * self.places
        size = len(self.zero) * m * self.places
        result = _summed(index.flatten(), values[:, point].flatten(), size).view(-1, m, self.places)
        return self._with_zeros(result, values.sum(1))

    def chosen_channels(self, rows: Tensor, values: Tensor, row: Tensor, which: Tensor) -> Tensor:
        """Sums up to every place, [groups, places], of the rows `which` of values [m, points] in columns `row`."""
        own, point, code = self._entries_of(rows)
        lengths = torch.bincount(own, minlength=len(self.zero))
        start = lengths.cumsum(0) - lengths
        result = torch.zeros(len(row), self.places, dtype=torch.float64)
        for part in split_by_cost(lengths[row], sums.BUDGET // 4):
            every = ranges(start[row[part]], lengths[row[part]])
            group = torch.arange(part.start, part.stop).repeat_interleave(lengths[row[part]])
            index = group * self.places + code[every]
            result.view(-1).scatter_add_(0, index, values[which[group], point[every]])
        rest = values.sum(1)[which] - result.sum(1)
        return result.scatter_add_(1, self.zero[row][:, None], rest[:, None]).cumsum_(1)

    def parted(
        self, rows: Tensor, labels: Tensor, centers: Tensor, weight: Tensor | None = None, by_center: bool = False
    ) -> Tensor:
        """Number (or weight) of points that each cut separates from their centers, as for other columns."""
        if by_center:
            counts = self.counts(rows, labels, centers.shape[1], weight)
            every = counts.sum(2, keepdim=True, dtype=counts.dtype)
            return counts.scatter_add_(2, centers[..., None], -every).cumsum_(2).abs_()
        column, point, code = self._entries_of(rows)
        k, dtype = centers.shape[1], torch.int32 if weight is None else torch.float64
        own = column * k + labels[point]
        mass = None if weight is None else weight[point]
        side = (centers.flatten()[own] - code).sign_().to(dtype)
        side = side if mass is None else side.mul_(mass)
        change = _summed(column * self.places + code, side, len(centers) * self.places).view(-1, self.places)
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
        """Add the points without an entry to sums [f, groups, places]; `total` [groups] sums all points."""
        rest = total.to(counts.dtype) - counts.sum(2, dtype=counts.dtype)
        zero = self.zero[:, None, None].expand(-1, counts.shape[1], 1)
        return counts.scatter_add_(2, zero, rest[..., None])


def of_entries(problem: Problem, node: Node, features: Tensor | None, numbers: int) -> Iterator[NodeEntries]:
    """Groups of the sparse columns that can be cut, optionally only those in `features`.

    Columns of similar numbers of codes are together, so that sums of `numbers` numbers per place fit a cache.
    """
    if node.entries is None:
        assert isinstance(problem.columns, SparseColumns)
        node.entries = problem.columns.entries_of(node.rows, node.centers)
    entries: SparseEntries = node.entries
    columns = torch.arange(len(entries.features)) if features is None else entries.among(features)
    if not len(columns):
        return
    size, parts = entries.first.diff()[columns], [columns]
    if len(columns) * int(size.max()) * numbers > sums.CACHED:
        size, order = size.sort(stable=True)
        alike = torch.unique_consecutive(size.log2().ceil(), return_counts=True)[1]
        parts = list(columns[order].split(alike.tolist()))
    for part in parts:
        costs = (entries.first.diff() + entries.start.diff())[part] * numbers
        yield from (columns_of(problem, node, entries, part[some]) for some in split_by_cost(costs, sums.CACHED))


def columns_of(problem: Problem, node: Node, entries: SparseEntries, own: Tensor) -> NodeEntries:
    """The columns at some positions among those of the entries."""
    first, start = entries.first[own], entries.start[own]
    lengths, places = entries.start[own + 1] - start, int((entries.first[own + 1] - first).max())
    every, column = ranges(start, lengths), torch.arange(len(own)).repeat_interleave(lengths)
    centers = torch.zeros(len(own), problem.k, dtype=torch.int64)
    centers[:, entries.which] = entries.centers[own] - first[:, None]
    original = entries.code[(first[:, None] + torch.arange(places)).clamp_(max=len(entries.code) - 1)]
    return NodeEntries(
        problem,
        node,
        entries.features[own],
        centers,
        places,
        original=original,
        entries=entries,
        every=every,
        column=column,
        codes=entries.bin[every] - first[column],
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
    ends = torch.nn.functional.pad(number.diff().nonzero()[:, 0] + 1, (1, 1))
    ends[-1] = len(costs)
    for first, last in pairwise(ends.tolist()):
        yield slice(first, last)
