"""Columns of a node that are searched together, as histograms of the node's points.

A table stores its values as *codes*: ranks among the values of the column, or numbers of quantile bins. The cuts
of a node are scored on histograms of these codes; cut b of a column sends the points in the bins up to b to the
left. What a bin is depends on the class:

=============  ===================================  =======================================================
class          a bin is                             for
=============  ===================================  =======================================================
ByCode         one code                             columns of few codes
ByRow          one code                             tables that are stored row by row
Coarse         `width` consecutive codes            columns of many codes, before some are searched by code
Renumbered     one of the codes that occur          columns of many codes at nodes of few points
NodeEntries    one of the codes that occur          sparse tables (:mod:`neonxc.trees.cuts.sparse_columns`)
=============  ===================================  =======================================================
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from neonxc.trees.cuts import histograms

if TYPE_CHECKING:
    from neonxc.trees.cuts.nodes import Node
    from neonxc.trees.fit.problem import Problem


@dataclass(eq=False)
class Columns(ABC):
    """Columns of a node whose cuts are searched together. All sums are those over all processes.

    Attributes
    ----------
    problem : Problem
    node : Node
    features : Tensor [f] of int64
        The columns.
    centers : Tensor [f, k] of int64
        Bins of all reference centers.
    n_bins : int
        Number of bins of every histogram.
    """

    problem: Problem
    node: Node
    features: Tensor
    centers: Tensor
    n_bins: int

    def code(self, column: int, bin: int) -> int:
        """Return the last code of a bin of the column at position `column`."""
        return bin

    def centers_of(self, which: Tensor) -> Tensor:
        """Return the bins of some of the centers, [f, centers]."""
        return self.centers.index_select(1, which)

    @abstractmethod
    def bins_of(self, rows: Tensor) -> Tensor:
        """Return the bins of points, [f, points]."""

    @abstractmethod
    def counts(
        self, rows: Tensor, labels: Tensor | None = None, k: int = 1, weight: Tensor | None = None
    ) -> Tensor:
        """Count points (or add their weights) by column, label and bin, [f, k, bins]."""

    @abstractmethod
    def channels(self, rows: Tensor, values: Tensor) -> Tensor:
        """Add values [m, points] by column and bin, [f, m, bins]."""

    @abstractmethod
    def chosen_channels(self, rows: Tensor, values: Tensor, column: Tensor, which: Tensor) -> Tensor:
        """Add row `which[g]` of values [m, points] up to every bin of column `column[g]`, [groups, bins]."""

    @abstractmethod
    def separated(self, rows: Tensor, labels: Tensor, centers: Tensor, weight: Tensor | None = None) -> Tensor:
        """Count the points that each cut separates from the center of their label, [f, bins].

        Parameters
        ----------
        rows : Tensor [points] of int64
        labels : Tensor [points] of int64
            The column of `centers` that belongs to each point.
        centers : Tensor [f, k] of int64
            Bins of the centers.
        weight : Tensor [points], optional
            Weights that are added instead.
        """

    @abstractmethod
    def separated_by_center(
        self, rows: Tensor, labels: Tensor, centers: Tensor, weight: Tensor | None = None
    ) -> Tensor:
        """Count the same points for every center, [f, k, bins]."""

    def bin_range(self) -> tuple[Tensor, Tensor]:
        """Return the first and the last bin of the node's points over all processes, [f] each."""
        if self.problem.sharded:
            return self._counted_range()
        low, high = self.bins_of(self.node.rows).aminmax(dim=1)
        return low.to(torch.int64), high.to(torch.int64)

    def _counted_range(self) -> tuple[Tensor, Tensor]:
        is_occupied = self.counts(self.node.rows)[:, 0] > 0
        bins = torch.arange(self.n_bins, device=is_occupied.device)
        low = bins.where(is_occupied, self.n_bins).amin(1)
        high = bins.where(is_occupied, -1).amax(1)
        return low, high

    def adjacent_values(self) -> tuple[Tensor, Tensor]:
        """Return the node's values below and above every cut, [f, bins] each; of a table in one process."""
        bins = self.bins_of(self.node.rows).to(torch.int64)
        values = self.problem.table.at(self.features, self.node.rows).to(torch.float64)
        shape = len(self.features), self.n_bins
        largest = values.new_full(shape, -torch.inf).scatter_reduce_(1, bins, values, "amax")
        smallest = values.new_full(shape, torch.inf).scatter_reduce_(1, bins, values, "amin")
        below = largest.cummax(1).values
        # the smallest value of all later bins: a cumulative minimum from the right, moved by one bin
        above = smallest.flip(1).cummin(1).values.flip(1).roll(-1, 1)
        above[:, -1] = torch.inf
        return below, above


@dataclass(eq=False)
class ByCode(Columns):
    """Columns of a dense table whose bins are its codes.

    Attributes
    ----------
    codes : Tensor [f, n]
        Bins of all points.
    block : (int, slice), optional
        Number of the table's block whose columns these are, and their positions in it. Default: they are chosen
        from a block one by one.
    """

    codes: Tensor
    block: tuple[int, slice] | None = None
    _last: tuple[Tensor, Tensor] | None = field(default=None, init=False, repr=False)

    def bins_of(self, rows: Tensor) -> Tensor:
        """Return the bins of points, [f, points]; the last result is kept, as several sums need it."""
        if self._last is None or self._last[0] is not rows:
            self._last = rows, histograms.gathered(self.codes, self._positions(rows))
        return self._last[1]

    def counts(
        self, rows: Tensor, labels: Tensor | None = None, k: int = 1, weight: Tensor | None = None
    ) -> Tensor:
        """Count points (or add their weights) by column, label and bin, [f, k, bins]."""

        def counts_of(bins: Tensor, part: slice) -> Tensor:
            part_labels = None if labels is None else labels[part]
            part_weight = None if weight is None else weight[part]
            return histograms.histogram(bins, self.n_bins, part_labels, k, part_weight)

        return self._sum(rows, counts_of)

    def channels(self, rows: Tensor, values: Tensor) -> Tensor:
        """Add values [m, points] by column and bin, [f, m, bins]."""

        def channels_of(bins: Tensor, part: slice) -> Tensor:
            return histograms.channels(bins, self.n_bins, values[:, part])

        return self._sum(rows, channels_of)

    def chosen_channels(self, rows: Tensor, values: Tensor, column: Tensor, which: Tensor) -> Tensor:
        """Add row `which[g]` of values [m, points] up to every bin of column `column[g]`, [groups, bins]."""

        def channels_of(bins: Tensor, part: slice) -> Tensor:
            chosen = bins.index_select(0, column)
            return histograms.selected_channels(chosen, self.n_bins, values[:, part], which)

        return self._sum(rows, channels_of)

    def separated(self, rows: Tensor, labels: Tensor, centers: Tensor, weight: Tensor | None = None) -> Tensor:
        """Count the points that each cut separates from the center of their label, [f, bins]."""

        def separated_of(bins: Tensor, part: slice) -> Tensor:
            part_weight = None if weight is None else weight[part]
            return histograms.separated(bins, self.n_bins, labels[part], centers, part_weight)

        return self._sum(rows, separated_of)

    def separated_by_center(
        self, rows: Tensor, labels: Tensor, centers: Tensor, weight: Tensor | None = None
    ) -> Tensor:
        """Count the same points for every center, [f, k, bins]."""

        def separated_of(bins: Tensor, part: slice) -> Tensor:
            part_weight = None if weight is None else weight[part]
            return histograms.separated_by_center(bins, self.n_bins, labels[part], centers, part_weight)

        return self._sum(rows, separated_of)

    def _positions(self, rows: Tensor) -> Tensor:
        """Positions of points in `codes`."""
        return rows

    def _sum(self, rows: Tensor, sums_of: Callable[[Tensor, slice], Tensor]) -> Tensor:
        """Sum over points: `sums_of` computes sums from the bins of some points, and their slice of `rows`."""
        return self.problem.reduce(sums_of(self.bins_of(rows), slice(None)))


@dataclass(eq=False)
class ByRow(ByCode):
    """Columns of a table that is stored row by row; the codes of `step` points at a time are gathered."""

    step: int = field(kw_only=True)

    def bins_of(self, rows: Tensor) -> Tensor:
        """Return the bins of points, [f, points]."""
        return histograms.transposed(self.codes.T.index_select(0, rows))

    def bin_range(self) -> tuple[Tensor, Tensor]:
        """Return the first and the last bin of the node's points, [f] each."""
        return self._counted_range()  # the bins of all points would be too many at once

    def _sum(self, rows: Tensor, sums_of: Callable[[Tensor, slice], Tensor]) -> Tensor:
        # sums are exact, so that they do not depend on `step`
        total = sums_of(self.bins_of(rows[: self.step]), slice(self.step))
        for first in range(self.step, len(rows), self.step):
            part = slice(first, first + self.step)
            total.add_(sums_of(self.bins_of(rows[part]), part))
        return self.problem.reduce(total)


@dataclass(eq=False)
class Coarse(ByCode):
    """Columns of many codes, of which every bin has `width` [f]; `codes` are the numbers of the bins."""

    width: Tensor = field(kw_only=True)

    def code(self, column: int, bin: int) -> int:
        """Return the last code of a bin."""
        return int(self.width[column]) * (bin + 1) - 1


@dataclass(eq=False)
class Renumbered(ByCode):
    """Columns at a node of few points, whose bins are the codes that occur.

    Attributes
    ----------
    codes : Tensor [f, points]
        Bins of the node's points only, whose order is that of ``node.rows``.
    original : Tensor [f, bins]
        The code of every bin.
    """

    original: Tensor = field(kw_only=True)

    def code(self, column: int, bin: int) -> int:
        """Return the code of a bin."""
        return int(self.original[column, bin])

    def _positions(self, rows: Tensor) -> Tensor:
        return torch.searchsorted(self.node.rows, rows)
