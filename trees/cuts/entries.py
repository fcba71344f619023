"""Codes of a sparse table: codes of the stored entries, and one code per column for all zeros."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from neonxc.trees.cuts import histograms
from neonxc.trees.cuts.exact_sums import integer_weights
from neonxc.trees.cuts.snapping import Rounding, snap
from neonxc.trees.cuts.sparse_columns import (
    NodeEntries,
    SparseEntries,
    columns_of,
    counted,
    split_by_cost,
    starts,
)

if TYPE_CHECKING:
    from neonxc.trees.cuts.nodes import Node
    from neonxc.trees.fit.problem import Problem


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
    ) -> Iterator[NodeEntries]:
        """Divide the columns of a node that can be cut into chunks; as for dense columns, without coarse codes.

        Columns of similar numbers of codes are together.
        """
        if node.entries is None:
            node.entries = self.entries_of(node.rows, node.centers)
        entries: SparseEntries = node.entries
        columns = torch.arange(len(entries.features)) if features is None else entries.among(features)
        if not len(columns):
            return
        size = entries.first.diff()[columns]
        parts = [columns]
        if len(columns) * int(size.max()) * n_sums > histograms.CACHED:
            size, order = size.sort(stable=True)
            alike = torch.unique_consecutive(size.log2().ceil(), return_counts=True)[1]
            parts = [part.sort().values for part in columns[order].split(alike.tolist())]  # ties: lowest column
        for part in parts:
            costs = (entries.first.diff() + entries.start.diff())[part] * n_sums
            for some in split_by_cost(costs, histograms.CACHED):
                yield columns_of(problem, node, entries, part[some])

    def column(self, feature: int) -> Tensor:
        """Codes of all points in a column, [n]."""
        entries = self.entries
        own = slice(*self.entries.start[feature : feature + 2].tolist())
        codes = entries.zero[feature].repeat(entries.n).index_copy_(0, entries.row[own], entries.number[own])
        return codes - entries.first[feature]

    def entries_of(self, rows: Tensor, which: Tensor) -> SparseEntries:
        """Entries of the points `rows`, in the columns that separate these points or the centers `which`."""
        selected = torch.zeros(self.entries.n, dtype=torch.bool)
        selected[rows] = True
        return self.entries.subset(selected, len(rows), which)


def code_sparse(
    table: Any,
    centers: Tensor,
    max_bins: int | None = None,
    weight: Tensor | None = None,
    n: Tensor | None = None,
) -> tuple[SparseColumns, Tensor]:
    """Compute the codes of a sparse table; as :func:`neonxc.trees.cuts.codes.code_columns`."""
    (k, d), data = centers.shape, table.data
    start = torch.from_numpy(data.indptr).to(torch.int64)
    n_entries = start.diff()
    every = torch.arange(d)
    own = torch.from_numpy(data.data).to(torch.float64)
    row = torch.from_numpy(data.indices).to(torch.int64)
    values = torch.cat([own, torch.zeros(d, dtype=torch.float64), centers.T.flatten()])
    column = torch.cat([every.repeat_interleave(n_entries), every, every.repeat_interleave(k)])
    order = values.argsort(stable=True)
    order = order[column[order].argsort(stable=True)]
    values = values[order]
    column = column[order]
    begin = starts(n_entries + 1 + k)  # where every column begins in that order
    place = (order >= len(own) + d).nonzero()[:, 0]
    which = order[place] - len(own) - d
    rounding = Rounding.of(centers, table.dtype, torch.tensor(table.n) if n is None else n)
    found = torch.empty(d * k, dtype=torch.float64)
    found[which] = snap(values, place, begin, rounding)
    new = torch.ones_like(order, dtype=torch.bool)
    new[1:] = (values[1:] != values[:-1]) | (column[1:] != column[:-1])
    if max_bins is not None:
        mass = integer_weights(torch.ones(table.n, dtype=torch.float64) if weight is None else weight)
        present = mass.index_select(0, row)
        absent = mass.sum() - starts(present)[start].diff()
        mass = torch.cat([present, absent, absent.new_zeros(d * k)])[order]
        new = _quantiles(new, column, begin, mass, order >= len(own) + d, max_bins)
    rank = new.cumsum(0).sub_(1)
    numbers = torch.empty_like(rank).index_copy_(0, order, rank)
    first = torch.cat([rank[begin[:-1]], rank[-1:] + 1])
    entries = SparseEntries(
        table.n,
        table.n,
        every,
        start,
        row,
        numbers[: len(own)],
        first,
        torch.arange(int(first[-1])) - first[:-1].repeat_interleave(first.diff()),
        numbers[len(own) : len(own) + d],
        torch.arange(k),
        numbers[len(own) + d :].view(d, k),
    )
    return SparseColumns(entries), found.view(d, k).T


def _quantiles(new: Tensor, column: Tensor, begin: Tensor, mass: Tensor, center: Tensor, max_bins: int) -> Tensor:
    """Mask of the values at which a code begins, with about `max_bins` codes of about equal mass per column.

    A code also begins after every center, so that all centers can be separated, as in :meth:`Sketch.bins`.
    """
    center = center & torch.cat([new[1:], new[:1]])  # the last of equal values
    before = starts(mass)[:-1]
    place = (before - before[begin[:-1]][column])[new][new.cumsum(0) - 1]
    total = starts(mass)[begin].diff()
    quantile = place * (max_bins - counted(center, begin)).clamp(min=1)[column] // total[column]
    wide = torch.ones_like(new)
    wide[1:] = (quantile[1:] != quantile[:-1]) | (column[1:] != column[:-1]) | center[:-1]
    return torch.where((counted(new, begin) > max_bins)[column], wide, new)
