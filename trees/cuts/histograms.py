"""Columns of a node that are searched together, and sums over the node's points for all of their cuts.

A table stores its values as *codes*: ranks among the values of the column, or numbers of quantile bins. The cuts
of a node are scored on histograms of these codes. What a bin of a histogram is depends on the class:

=============  ===================================  =======================================================
class          a bin is                             for
=============  ===================================  =======================================================
ByCode         one code                             columns of few codes
ByRow          one code                             tables that are stored row by row
Coarse         `width` consecutive codes            columns of many codes, before some are searched by code
Renumbered     one of the codes that occur          columns of many codes at nodes of few points
NodeEntries    one of the codes that occur          sparse tables (:mod:`neonxc.trees.cuts.sparse_columns`)
=============  ===================================  =======================================================

With the bin B(x) of every point x in a column, a cut b sends the points with B(x) <= b to the left, so that sums
over the left of all cuts are prefix sums of a histogram:

===================  ==============================================================================================
histogram            h[label, b]  =  number (or weight) of the points x of the label with B(x) = b
channels             h[i, b]      =  sum of the i-th value of the points x with B(x) = b
separated_by_center  s[c, b]      =  number (or weight) of the points x of the label c that cut b separates from
                                     the center of c, whose bin is B_c
separated            s[b]         =  sum over c of s[c, b]
===================  ==============================================================================================

With the prefix sums H of h, and the number N of points of label c, a cut left of the center (b < B_c) separates
the points on its left, H[c, b], and another one those on its right, N_c - H[c, b]. Both are

    s[c, b]  =  |H[c, b] - N_c 1(b >= B_c)|,

which are prefix sums again: of the histogram less N_c at the bin of the center.

Bins have shape [f, n], one row per column. Sums are exact (:func:`neonxc.trees.cuts.exact_sums.rounded`), so that
they depend neither on the order of the points nor on the blocks in which they are computed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from neonxc.trees.cuts.growth import Node
    from neonxc.trees.fit.problem import Problem

BUFFER = 280_000  # number of indices that fit into a core's cache
CACHED = 1 << 19  # entries of a histogram over which several passes are made
BUDGET = 1 << 24  # maximum number of entries of any temporary array


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

    @cached_property
    def center_bins(self) -> Tensor:
        """Bins of the node's centers, [f, centers]."""
        return self.centers_of(self.node.centers)

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
            self._last = rows, gathered(self.codes, self._positions(rows))
        return self._last[1]

    def counts(
        self, rows: Tensor, labels: Tensor | None = None, k: int = 1, weight: Tensor | None = None
    ) -> Tensor:
        """Count points (or add their weights) by column, label and bin, [f, k, bins]."""

        def counts_of(bins: Tensor, part: slice) -> Tensor:
            part_labels = None if labels is None else labels[part]
            part_weight = None if weight is None else weight[part]
            return histogram(bins, self.n_bins, part_labels, k, part_weight)

        return self._sum(rows, counts_of)

    def channels(self, rows: Tensor, values: Tensor) -> Tensor:
        """Add values [m, points] by column and bin, [f, m, bins]."""

        def channels_of(bins: Tensor, part: slice) -> Tensor:
            return channels(bins, self.n_bins, values[:, part])

        return self._sum(rows, channels_of)

    def chosen_channels(self, rows: Tensor, values: Tensor, column: Tensor, which: Tensor) -> Tensor:
        """Add row `which[g]` of values [m, points] up to every bin of column `column[g]`, [groups, bins]."""

        def channels_of(bins: Tensor, part: slice) -> Tensor:
            chosen = bins.index_select(0, column)
            return selected_channels(chosen, self.n_bins, values[:, part], which)

        return self._sum(rows, channels_of)

    def separated(self, rows: Tensor, labels: Tensor, centers: Tensor, weight: Tensor | None = None) -> Tensor:
        """Count the points that each cut separates from the center of their label, [f, bins]."""

        def separated_of(bins: Tensor, part: slice) -> Tensor:
            part_weight = None if weight is None else weight[part]
            return separated(bins, self.n_bins, labels[part], centers, part_weight)

        return self._sum(rows, separated_of)

    def separated_by_center(
        self, rows: Tensor, labels: Tensor, centers: Tensor, weight: Tensor | None = None
    ) -> Tensor:
        """Count the same points for every center, [f, k, bins]."""

        def separated_of(bins: Tensor, part: slice) -> Tensor:
            part_weight = None if weight is None else weight[part]
            return separated_by_center(bins, self.n_bins, labels[part], centers, part_weight)

        return self._sum(rows, separated_of)

    def _positions(self, rows: Tensor) -> Tensor:
        """Positions of points in `codes`."""
        return rows

    def _sum(self, rows: Tensor, sums_of: Callable[[Tensor, slice], Tensor]) -> Tensor:
        """Sum over points: `sums_of` computes sums from the bins of some points, and their slice of `rows`."""
        return self._over_processes(sums_of(self.bins_of(rows), slice(None)))

    def _over_processes(self, sums: Tensor) -> Tensor:
        """Add sums over all processes."""
        if not self.problem.sharded:
            return sums
        return self.problem.reduce(sums)


@dataclass(eq=False)
class ByRow(ByCode):
    """Columns of a table that is stored row by row; the codes of `step` points at a time are gathered."""

    step: int = field(kw_only=True)

    def bins_of(self, rows: Tensor) -> Tensor:
        """Return the bins of points, [f, points]."""
        return transposed(self.codes.T.index_select(0, rows))

    def bin_range(self) -> tuple[Tensor, Tensor]:
        """Return the first and the last bin of the node's points, [f] each."""
        return self._counted_range()  # the bins of all points would be too many at once

    def _sum(self, rows: Tensor, sums_of: Callable[[Tensor, slice], Tensor]) -> Tensor:
        # sums are exact, so that they do not depend on `step`
        total = sums_of(self.bins_of(rows[: self.step]), slice(self.step))
        for first in range(self.step, len(rows), self.step):
            part = slice(first, first + self.step)
            total.add_(sums_of(self.bins_of(rows[part]), part))
        return self._over_processes(total)


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

    def bins_of(self, rows: Tensor) -> Tensor:
        """Return the bins of points of the node, [f, points]."""
        if rows is self.node.rows:  # the usual case, in which the search for all rows took 8% of a fit of CART
            return self.codes
        return super().bins_of(rows)

    def _positions(self, rows: Tensor) -> Tensor:
        return torch.searchsorted(self.node.rows, rows)


# --- sums by bin ---


def histogram(bins: Tensor, n_bins: int, labels: Tensor | None, k: int, weight: Tensor | None = None) -> Tensor:
    """Count the points (or add their weights) by column, label and bin.

    Parameters
    ----------
    bins : Tensor [f, n] of integers below `n_bins`
    n_bins : int
    labels : Tensor [n] of int64 below `k`, or None if `k` is 1
    k : int
    weight : Tensor [n] of float64, optional

    Returns
    -------
    Tensor [f, k, n_bins] of int32, or of float64 with weights
    """
    f, n = bins.shape
    dtype = _sum_type(weight)
    result = torch.zeros(f, k * n_bins, dtype=dtype, device=bins.device)
    if weight is None:
        values = torch.ones((), dtype=dtype, device=bins.device)
    else:
        values = weight
    offset = None
    if labels is not None:
        # small integers are added twice as fast
        offset_type = torch.int16 if k * n_bins <= 1 << 15 else torch.int64
        offset = (labels * n_bins).to(offset_type)

    step = _step(BUFFER, n, bins.device)
    buffer = torch.empty(min(step, f), n, dtype=torch.int64, device=bins.device)
    for first in range(0, f, step):
        part = bins[first : first + step]
        index = buffer[: len(part)].copy_(part if offset is None else part + offset)
        result[first : first + step].scatter_add_(1, index, values.expand_as(index))
    return result.view(f, k, n_bins)


def channels(bins: Tensor, n_bins: int, values: Tensor) -> Tensor:
    """Sums of m values per point by column and bin, [f, m, n_bins]; `values` has shape [m, n]."""
    f, n = bins.shape
    m = len(values)
    result = torch.zeros(f, m, n_bins, dtype=torch.float64, device=bins.device)
    step = _step(BUFFER, n * m, bins.device)
    for first in range(0, f, step):
        index = bins[first : first + step].to(torch.int64)[:, None].expand(-1, m, -1)
        result[first : first + step].scatter_add_(2, index, values.expand_as(index))
    return result


def selected_channels(bins: Tensor, n_bins: int, values: Tensor, which: Tensor) -> Tensor:
    """Prefix sums, [f, n_bins], of one row of `values` [m, n] for every column, as given by `which` [f]."""
    f, n = bins.shape
    result = torch.zeros(f, n_bins, dtype=torch.float64, device=bins.device)
    step = max(1, BUDGET // 4 // max(n, n_bins))
    for first in range(0, f, step):
        part = slice(first, first + step)
        index = bins[part].to(torch.int64)
        result[part].scatter_add_(1, index, values.index_select(0, which[part]))
    return result.cumsum_(1)


def separated_by_center(
    bins: Tensor, n_bins: int, labels: Tensor, centers: Tensor, weight: Tensor | None = None
) -> Tensor:
    """Number (or weight) of points that each cut separates from the center of their label, by label.

    Parameters
    ----------
    bins : Tensor [f, n]
    n_bins : int
    labels : Tensor [n] of int64
    centers : Tensor [f, k] of int64
        Bins of the centers.
    weight : Tensor [n] of float64, optional

    Returns
    -------
    Tensor [f, k, n_bins]
    """
    f, k = centers.shape
    result = torch.empty(f, k, n_bins, dtype=_sum_type(weight), device=bins.device)
    mass = _mass(labels, k, weight)
    for columns in _column_blocks(f, k * n_bins):
        result[columns] = _separated_block(bins[columns], n_bins, labels, centers[columns], mass, weight)
    return result


def separated(bins: Tensor, n_bins: int, labels: Tensor, centers: Tensor, weight: Tensor | None = None) -> Tensor:
    """The sum over all labels of :func:`separated_by_center`, [f, n_bins]."""
    f, k = centers.shape
    if k * n_bins > len(labels):  # a histogram by label would be larger than the node
        return _separated_directly(bins, n_bins, labels, centers, weight)
    result = torch.empty(f, n_bins, dtype=_sum_type(weight), device=bins.device)
    mass = _mass(labels, k, weight)
    for columns in _column_blocks(f, k * n_bins):
        by_center = _separated_block(bins[columns], n_bins, labels, centers[columns], mass, weight)
        torch.sum(by_center, 1, dtype=result.dtype, out=result[columns])
    return result


def _mass(labels: Tensor, k: int, weight: Tensor | None) -> Tensor:
    """Number (or weight) of the points of every label, [k, 1]."""
    return torch.bincount(labels, weight, minlength=k)[:, None].to(_sum_type(weight))


def _separated_block(
    bins: Tensor, n_bins: int, labels: Tensor, centers: Tensor, mass: Tensor, weight: Tensor | None
) -> Tensor:
    """|H[c, b] - N_c 1(b >= B_c)| for a few columns, [f, k, n_bins]; `mass` [k, 1] is N_c."""
    counts = histogram(bins, n_bins, labels, len(mass), weight)
    center_bins = centers[..., None]
    counts.scatter_add_(2, center_bins, -mass.expand_as(center_bins))
    return counts.cumsum_(2).abs_()


def _separated_directly(
    bins: Tensor, n_bins: int, labels: Tensor, centers: Tensor, weight: Tensor | None = None
) -> Tensor:
    """The same as :func:`separated`, without a histogram by label.

    A point x with B(x) < B_c is separated by the cuts from B(x) on up to those before B_c: its weight is added
    at B(x) and subtracted at B_c. If B_c < B(x), it is subtracted at B(x) and added at B_c. The result are the
    prefix sums.
    """
    f, n = bins.shape
    dtype = _sum_type(weight)
    change = torch.zeros(f, n_bins, dtype=dtype, device=bins.device)  # at the points
    change_by_center = torch.zeros(centers.shape, dtype=dtype, device=bins.device)
    signed_type = torch.promote_types(bins.dtype, torch.int16)
    center_bins = centers.to(signed_type)

    step = _step(BUFFER, n, bins.device)
    index_buffer = torch.empty(min(step, f), n, dtype=torch.int64, device=bins.device)
    value_buffer = torch.empty(min(step, f), n, dtype=dtype, device=bins.device)
    for first in range(0, f, step):
        columns = slice(first, first + step)
        part = bins[columns]
        # 1 for points left of their center, -1 for those right of it
        sign = center_bins[columns].index_select(1, labels).sub_(part).sign_()
        values = value_buffer[: len(part)]
        if weight is None:
            values.copy_(sign)
        else:
            torch.mul(sign, weight, out=values)
        index = index_buffer[: len(part)].copy_(part)
        change[columns].scatter_add_(1, index, values)
        change_by_center[columns].scatter_add_(1, labels.expand_as(part), values)
    return change.scatter_add_(1, centers, -change_by_center).cumsum_(1)


def _sum_type(weight: Tensor | None) -> torch.dtype:
    """Type of sums of weights, or of counts."""
    return torch.int32 if weight is None else torch.float64


def _step(buffer: int, entries: int, device: torch.device) -> int:
    """Number of columns whose indices are computed at a time."""
    if device.type != "cpu":
        buffer = BUDGET
    return max(1, buffer // max(entries, 1))


def _column_blocks(f: int, entries: int) -> list[slice]:
    """Blocks of columns with so many entries of a histogram each, over which several passes are made."""
    step = max(1, CACHED // entries)
    return [slice(first, first + step) for first in range(0, f, step)]


def transposed(codes: Tensor) -> Tensor:
    """A transposed copy, made in blocks that fit into a core's cache."""
    rows, columns = codes.shape
    result = codes.new_empty(columns, rows)
    for first in range(0, rows, 256):
        result[:, first : first + 256] = codes[first : first + 256].T
    return result


def gathered(values: Tensor, rows: Tensor) -> Tensor:
    """Values [m, points] of some points, or of all in their order; several times faster than `index_select`."""
    if len(rows) == values.shape[1]:
        return values
    return values.gather(1, rows.expand(len(values), -1))
