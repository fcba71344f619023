"""Codes of a sparse table: codes of the stored entries, and one code per column for all zeros.

The codes are computed by sorting three kinds of numbers together, first by column and then by value:

1. the stored entries, column by column;
2. one zero per column, which stands for all entries that are not stored;
3. the centers, column by column.

Where a number differs from the one before it, or is the first of its column, a code begins. With `max_bins`,
only some of these begin a code. The codes of all columns are numbered consecutively.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from neonxc.trees.cuts import histograms
from neonxc.trees.cuts.exact_sums import integer_weights
from neonxc.trees.cuts.ranks import Rounding, snap
from neonxc.trees.cuts.sparse_columns import (
    NodeEntries,
    SparseEntries,
    columns_of,
    counted,
    split_by_cost,
    starts,
)

if TYPE_CHECKING:
    from neonxc.trees.cuts.growth import Node
    from neonxc.trees.fit.problem import Problem
    from neonxc.trees.fit.sparse_points import Sparse


@dataclass
class SparseColumns:
    """The codes of a sparse table.

    Attributes
    ----------
    entries : SparseEntries
        Entries of all points in all columns.
    """

    entries: SparseEntries
    ends = None

    @property
    def size(self) -> Tensor:
        """Number of codes of every column, [d]."""
        return self.entries.first.diff()

    @cached_property
    def centers(self) -> Tensor:
        """Codes of the centers, [d, k]."""
        return self.entries.centers - self.entries.first[:-1, None]

    def chunks(
        self, problem: Problem, node: Node, n_sums: int, features: Tensor | None = None, coarse: bool = False
    ) -> list[Callable[[], NodeEntries]]:
        """Divide the columns of a node that can be cut into chunks; as for dense columns, but bins are codes.

        Columns of similar numbers of codes are together.
        """
        if node.entries is None:
            node.entries = self.entries_of(node.rows, node.centers)
        entries: SparseEntries = node.entries
        if features is None:
            columns = torch.arange(len(entries.features))
        else:
            columns = entries.positions_of(features)
        chunks: list[Callable[[], NodeEntries]] = []
        if not len(columns):
            return chunks
        for group in self._alike(entries, columns, n_sums):
            costs = (entries.first.diff() + entries.start.diff())[group] * n_sums
            for chunk in split_by_cost(costs, histograms.CACHED):
                chunks.append(partial(columns_of, problem, node, entries, group[chunk]))
        return chunks

    def _alike(self, entries: SparseEntries, columns: Tensor, n_sums: int) -> Sequence[Tensor]:
        """Columns in groups of up to twice as many codes, as each has as many bins as the largest of its chunk."""
        size = entries.first.diff()[columns]
        if len(columns) * int(size.max()) * n_sums <= histograms.CACHED:
            return [columns]
        size, order = size.sort(stable=True)
        _, lengths = torch.unique_consecutive(size.log2().ceil(), return_counts=True)
        groups = columns[order].split(lengths.tolist())
        return [group.sort().values for group in groups]  # ties go to the lowest column

    def column(self, feature: int) -> Tensor:
        """Codes of all points in a column, [n]."""
        entries = self.entries
        first, last = entries.start[feature : feature + 2].tolist()
        numbers = entries.zero[feature].repeat(entries.n)
        numbers.index_copy_(0, entries.row[first:last], entries.number[first:last])
        return numbers - entries.first[feature]

    def entries_of(self, rows: Tensor, centers: Tensor) -> SparseEntries:
        """Entries of the points `rows`, in the columns that separate these points or the centers."""
        selected = torch.zeros(self.entries.n, dtype=torch.bool)
        selected[rows] = True
        return self.entries.subset(selected, len(rows), centers)


def code_sparse(
    table: Sparse,
    centers: Tensor,
    max_bins: int | None = None,
    weight: Tensor | None = None,
    n: Tensor | None = None,
) -> tuple[SparseColumns, Tensor]:
    """Compute the codes of a sparse table; as :func:`neonxc.trees.cuts.codes.code_columns`."""
    k, d = centers.shape
    start = torch.from_numpy(table.data.indptr).to(torch.int64)
    row = torch.from_numpy(table.data.indices).to(torch.int64)
    n_stored = len(row)
    numbers = _sorted_numbers(torch.from_numpy(table.data.data).to(torch.float64), start, centers)
    values, column, order, begin = numbers

    is_center = order >= n_stored + d
    position = is_center.nonzero()[:, 0]
    if n is None:
        n = torch.tensor(table.n)
    rounding = Rounding.of(centers, table.dtype, n)
    snapped = torch.empty(d * k, dtype=torch.float64)
    snapped[order[position] - n_stored - d] = snap(values, position, begin, rounding)

    begins_code = torch.ones_like(order, dtype=torch.bool)
    begins_code[1:] = (values[1:] != values[:-1]) | (column[1:] != column[:-1])
    if max_bins is not None:
        if weight is None:
            weight = torch.ones(table.n, dtype=torch.float64)
        mass = _masses(integer_weights(weight), row, start, d * k)[order]
        begins_code = _quantiles(begins_code, column, begin, mass, is_center, max_bins)

    rank = begins_code.cumsum(0).sub_(1)
    number = torch.empty_like(rank).index_copy_(0, order, rank)
    entry_number, zero_number, center_number = number.split([n_stored, d, d * k])
    first = torch.cat([rank[begin[:-1]], rank[-1:] + 1])
    entries = SparseEntries(
        n=table.n,
        n_all=table.n,
        features=torch.arange(d),
        start=start,
        row=row,
        number=entry_number,
        first=first,
        code=torch.arange(int(first[-1])) - first[:-1].repeat_interleave(first.diff()),
        zero=zero_number,
        which=torch.arange(k),
        centers=center_number.view(d, k),
    )
    return SparseColumns(entries), snapped.view(d, k).T


class SortedNumbers(NamedTuple):
    """Entries, zeros and centers of all columns, sorted by column and then by value."""

    values: Tensor  # [m] of float64
    column: Tensor  # [m] of int64
    order: Tensor  # [m] of int64, the number of each among the entries, the zeros and the centers, in this order
    begin: Tensor  # [d + 1] of int64, where every column begins


def _sorted_numbers(entries: Tensor, start: Tensor, centers: Tensor) -> SortedNumbers:
    """Sort the entries, of which those of a column begin at `start` [d + 1], with zeros and the centers [k, d]."""
    k, d = centers.shape
    n_entries = start.diff()
    features = torch.arange(d)
    values = torch.cat([entries, torch.zeros(d, dtype=torch.float64), centers.T.flatten()])
    column = torch.cat([features.repeat_interleave(n_entries), features, features.repeat_interleave(k)])
    order = values.argsort(stable=True)
    order = order[column[order].argsort(stable=True)]  # keeps the order of the values of a column
    return SortedNumbers(values[order], column[order], order, starts(n_entries + 1 + k))


def _masses(weight: Tensor, row: Tensor, start: Tensor, n_centers: int) -> Tensor:
    """Weights of the entries, of the points without an entry in each column, and of the centers, which is 0."""
    present = weight.index_select(0, row)
    absent = weight.sum() - starts(present)[start].diff()
    return torch.cat([present, absent, absent.new_zeros(n_centers)])


def _quantiles(
    is_new: Tensor, column: Tensor, begin: Tensor, mass: Tensor, is_center: Tensor, max_bins: int
) -> Tensor:
    """Mask of the values at which a code begins, with about `max_bins` codes of about equal mass per column.

    A code also begins after every center, so that all centers can be separated, as in :meth:`Sketch.bins`.
    """
    # the last of the numbers that equal a center, if it is one
    ends_at_center = is_center & torch.cat([is_new[1:], is_new[:1]])
    before = starts(mass)[:-1]  # mass of all numbers before
    before_in_column = before - before[begin[:-1]][column]
    of_equal_values = before_in_column[is_new][is_new.cumsum(0) - 1]  # that of the first of them
    total = starts(mass)[begin].diff()
    n_bins = (max_bins - counted(ends_at_center, begin)).clamp(min=1)
    quantile = of_equal_values * n_bins[column] // total[column]

    begins = torch.ones_like(is_new)
    begins[1:] = (quantile[1:] != quantile[:-1]) | (column[1:] != column[:-1]) | ends_at_center[:-1]
    has_many = counted(is_new, begin) > max_bins
    return torch.where(has_many[column], begins, is_new)
