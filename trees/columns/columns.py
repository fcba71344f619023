"""Columns of a node that are searched together: the codes of its points, and sums over the points by code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

import neonxc.trees.columns.sums as sums
from neonxc.trees.coding.codes import ColumnBlock, transposed
from neonxc.trees.problem import Node, Problem

ROWS = 1 << 16  # number of points whose codes are gathered at a time from a table that is stored by row


@dataclass(frozen=True)
class Columns:
    """Columns of a node whose cuts are searched together; a cut sends the codes up to a *place* left.

    Attributes
    ----------
    problem : Problem
    node : Node
    features : Tensor [f] of int64
        The columns.
    centers : Tensor [f, k] of int64
        Codes of all reference centers.
    places : int
        Number of places, one more than the greatest code.
    gather : callable (rows, slice of the columns) -> Tensor [f, points]
        Returns codes of points, whose rows are in ascending order.
    part : slice
        The columns among those that `gather` knows.
    width : Tensor [f] of int64, optional
        Number of the table's codes per place. Default: one.
    original : Tensor [f, places], optional
        The table's code for every place, if the codes have been renumbered.
    step : int, optional
        Number of points whose codes are gathered at a time. Default: all.
    """

    problem: Problem
    node: Node
    features: Tensor
    centers: Tensor
    places: int
    gather: Callable[[Tensor, slice], Tensor] | None = None
    part: slice = field(default_factory=lambda: slice(None))
    width: Tensor | None = None
    original: Tensor | None = None
    step: int | None = None

    def __getitem__(self, part: slice) -> Columns:
        """Select a range of the columns."""
        width = None if self.width is None else self.width[part]
        return replace(self, features=self.features[part], centers=self.centers[part], part=part, width=width)

    def code(self, row: int, place: int) -> int:
        """The table's code for a place in the column with position `row`."""
        if self.original is not None:
            return int(self.original[row, place])
        return place if self.width is None else int(self.width[row]) * (place + 1) - 1

    def centers_of(self, which: Tensor) -> Tensor:
        """Codes of some of the centers, [f, centers]."""
        return self.centers.index_select(1, which)

    def at(self, rows: Tensor) -> Tensor:
        """Codes of the points `rows`, which are in ascending order, [f, points]."""
        assert self.gather is not None
        return self.gather(rows, self.part)

    def by_point(self, rows: Tensor) -> Tensor:
        """Codes of any points of the node, in any order, [points, f]."""
        every = self.node.rows
        place = every.new_zeros(self.problem.n).index_copy_(
            0, every, torch.arange(len(every), device=every.device)
        )
        return transposed(self.at(every)).index_select(0, place.index_select(0, rows))

    def counts(
        self, rows: Tensor, labels: Tensor | None = None, k: int = 1, weight: Tensor | None = None
    ) -> Tensor:
        """Number (or weight) of points by column, label and code, [f, k, places]."""
        return self._added(
            rows,
            lambda codes, part: sums.histogram(codes, self.places, _some(labels, part), k, _some(weight, part)),
        )

    def channels(self, rows: Tensor, values: Tensor) -> Tensor:
        """Sums of values [m, points] by column and code, [f, m, places]."""
        return self._added(rows, lambda codes, part: sums.channels(codes, self.places, values[:, part]))

    def chosen_channels(self, rows: Tensor, values: Tensor, row: Tensor, which: Tensor) -> Tensor:
        """Sums up to every place, [groups, places], of the rows `which` of values [m, points] in columns `row`."""
        return self._added(
            rows,
            lambda codes, part: sums.selected_channels(
                codes.index_select(0, row), self.places, values[:, part], which
            ),
        )

    def parted(self, rows: Tensor, labels: Tensor, centers: Tensor, weight: Tensor | None = None) -> Tensor:
        """Number (or weight) of points that each cut separates from their centers [f, k], [f, places]."""
        return self._added(
            rows, lambda codes, part: sums.parted(codes, self.places, labels[part], centers, _some(weight, part))
        )

    def parted_by_center(
        self, rows: Tensor, labels: Tensor, centers: Tensor, weight: Tensor | None = None
    ) -> Tensor:
        """The same by center, [f, k, places]."""
        return self._added(
            rows,
            lambda codes, part: sums.parted_by_center(
                codes, self.places, labels[part], centers, _some(weight, part)
            ),
        )

    def ends(self) -> tuple[Tensor, Tensor]:
        """Smallest and largest code of the node's points over all processes, [f] each."""
        if self.step is None and not self.problem.sharded:
            low, high = self.at(self.node.rows).aminmax(dim=1)
            return low.to(torch.int64), high.to(torch.int64)
        present = self.problem.reduce(self.counts(self.node.rows))[:, 0] > 0
        place = torch.arange(self.places, device=present.device)
        return place.where(present, self.places).amin(1), place.where(present, -1).amax(1)

    def gaps(self) -> tuple[Tensor, Tensor]:
        """The node's values on the two sides of every cut, [f, places] each; of a table in one process."""
        codes, none = self.at(self.node.rows).to(torch.int64), (len(self.features), self.places)
        values = self.problem.table.at(self.features, self.node.rows).to(torch.float64)
        low = values.new_full(none, -torch.inf).scatter_reduce_(1, codes, values, "amax")
        high = values.new_full(none, torch.inf).scatter_reduce_(1, codes, values, "amin")
        above = high.flip(1).cummin(1).values.flip(1).roll(-1, 1)
        above[:, -1] = torch.inf
        return low.cummax(1).values, above

    def _added(self, rows: Tensor, function: Callable[[Tensor, slice], Tensor]) -> Tensor:
        """Add a function of codes over all points. Sums are exact, so they do not depend on `step`."""
        if self.step is None:
            return function(self.at(rows), slice(None))
        parts = (slice(first, first + self.step) for first in range(0, max(1, len(rows)), self.step))
        result: Tensor | None = None
        for part in parts:
            own = function(self.at(rows[part]), part)
            result = own if result is None else result.add_(own)
        assert result is not None
        return result


def _some(values: Tensor | None, part: slice) -> Tensor | None:
    return None if values is None else values[part]


def of_block(problem: Problem, node: Node, block: ColumnBlock) -> Columns:
    """The columns of a block, by bin; the codes that were gathered last are kept."""
    kept: list[Tensor] = []

    def gathered(rows: Tensor, part: slice) -> Tensor:
        if not kept or kept[0] is not rows:
            kept[:] = rows, block.by_column(rows)
        return kept[1][part]

    def stored_by_row(rows: Tensor, part: slice) -> Tensor:
        assert block.row_major is not None
        return transposed(block.row_major[:, part].index_select(0, rows))

    width = None if block.exact else block.width
    return Columns(
        problem,
        node,
        block.features,
        block.centers,
        block.n_bins,
        gathered if block.row_major is None else stored_by_row,
        width=width,
        step=None if block.row_major is None else ROWS,
    )


def by_code(problem: Problem, node: Node, codes: Tensor, features: Tensor, places: int) -> Columns:
    """Columns whose codes [columns, n] are searched one by one."""
    columns = problem.dense
    own = codes.index_select(0, columns.place[features, 1])

    def gather(rows: Tensor, part: slice) -> Tensor:
        return own[part] if len(rows) == own.shape[1] else own[part].index_select(1, rows)

    return Columns(problem, node, features, columns.centers[features], places, gather)


def renumbered(problem: Problem, node: Node, codes: Tensor, features: Tensor) -> Columns:
    """Columns with codes renumbered to those that occur among the node's points and centers."""
    columns = problem.dense
    own = codes.index_select(0, columns.place[features, 1]).index_select(1, node.rows)
    centers = columns.centers[features]
    new, new_centers, original = sums.renumber_codes(own, centers.index_select(1, node.centers))

    def gather(rows: Tensor, part: slice) -> Tensor:
        return new[part] if rows is node.rows else new[part].index_select(1, torch.searchsorted(node.rows, rows))

    centers = centers.index_copy(1, node.centers, new_centers)
    return Columns(problem, node, features, centers, original.shape[1], gather, original=original)


@dataclass(frozen=True)
class Cuts:
    """Cuts of one node: all places of some columns, [f, places], or those that may still be the best, [cuts].

    Attributes
    ----------
    columns : Columns
    row, place : Tensor
        Positions of the columns and places, which are broadcast to [...].
    left : Tensor [m, ...]
        Sums of the statistics over the points on the left.
    total : Tensor [m]
        The same sums over all points of the node.
    centers_left : Tensor [...] of int64
        Number of the node's centers on the left.
    mass_left : Tensor [...] or None
        Number (or weight) of points on the left, if a statistic counts points.
    bound : Tensor [...]
        Bounds of the scores from the previous stage of the criterion, or the scores; undefined before the first.
    """

    columns: Columns
    row: Tensor
    place: Tensor
    left: Tensor
    total: Tensor
    centers_left: Tensor
    mass_left: Tensor | None
    bound: Tensor

    @property
    def right(self) -> Tensor:
        """Sums over the points on the right, [m, ...]."""
        return self.total.view(-1, *(1,) * (self.left.ndim - 1)) - self.left

    @property
    def feature(self) -> Tensor:
        """Column of every cut, which is broadcast to [...]."""
        return self.columns.features[self.row]

    def sides(self) -> Tensor:
        """Whether each of the node's centers is on the left, [..., centers]."""
        return self.columns.centers_of(self.columns.node.centers)[self.row] <= self.place[..., None]

    def gap(self) -> tuple[Tensor, Tensor]:
        """The node's values on the two sides of every cut, [...] each; infinite where a side is empty."""
        below, above = self.columns.gaps()
        return below[self.row, self.place], above[self.row, self.place]

    def sum_left(self, values: Tensor, which: Tensor, exact: bool) -> Tensor:
        """Sums over the points on the left, [...].

        Parameters
        ----------
        values : Tensor [m, points] of float64
            Values of the node's points.
        which : Tensor [...] of int64
            The row of `values` that a cut sums.
        exact : bool
            Whether sums of the values are exact without rounding them first.
        """
        columns, m = self.columns, len(values)
        group, member = torch.unique(self.row * m + which, return_inverse=True)
        values = values if exact else columns.problem.exact(values)
        row = group.div(m, rounding_mode="floor")
        totals = columns.chosen_channels(columns.node.rows, values, row, group % m)
        return columns.problem.reduce(totals)[member, self.place]

    def best(self, slack: float) -> tuple[float, int, int] | None:
        """The lowest of the scores in `bound`, and the first cut that has it; None if all are infinite."""
        least = float(self.bound.min())
        if not least < torch.inf:
            return None
        at = int((self.bound <= least + slack).view(torch.uint8).argmax())
        if self.bound.ndim == 1:
            row, place = int(self.row[at]), int(self.place[at])
        else:
            row, place = divmod(at, self.bound.shape[1])
        return least, int(self.columns.features[row]), self.columns.code(row, place)

    def where(self, mask: Tensor) -> Cuts:
        """Select some of all cuts, [f, places] of bool."""
        row, place = mask.nonzero(as_tuple=True)
        left, centers_left = self.left[:, row, place], self.centers_left.expand_as(mask)[row, place]
        mass_left = None if self.mass_left is None else self.mass_left[row, place]
        return Cuts(self.columns, row, place, left, self.total, centers_left, mass_left, self.bound[row, place])

    def __getitem__(self, which: Tensor) -> Cuts:
        """Select some of the cuts that may still be the best, by position."""
        found = (self.row, self.place, self.centers_left, self.bound)
        row, place, centers_left, bound = (own.index_select(0, which) for own in found)
        mass_left = None if self.mass_left is None else self.mass_left.index_select(0, which)
        left = self.left.index_select(1, which)
        return Cuts(self.columns, row, place, left, self.total, centers_left, mass_left, bound)


def all_cuts(columns: Columns, left: Tensor, mass_left: Tensor | None, only_new: bool) -> tuple[Cuts, Tensor]:
    """Describe all cuts of some columns; the second result is a mask of the cuts that leave a side empty.

    With `only_new`, cuts that divide points and centers like the cut at the place before are masked, too.
    """
    node, places = columns.node, columns.places
    place = torch.arange(places, device=left.device)
    if len(node.centers):
        centers = columns.centers_of(node.centers)
        centers_left = sums.centers_left(centers, places)
        impossible = (centers_left == 0) | (centers_left == len(node.centers))
        if mass_left is not None and only_new:
            new = mass_left.diff(dim=1, prepend=torch.zeros_like(mass_left[:, :1])) > 0
            impossible |= ~new.scatter_(1, centers, True)
    else:
        centers_left = node.centers.new_zeros(1, 1)
        if mass_left is not None:
            impossible = (mass_left <= 0) | (mass_left >= mass_left[:, -1:])
        else:
            low, high = columns.ends()
            impossible = (place < low[:, None]) | (place >= high[:, None])
    row = torch.arange(len(columns.features), device=left.device)[:, None]
    return Cuts(columns, row, place, left, left[:, 0, -1], centers_left, mass_left, left[0]), impossible


def concatenated(numbers: Sequence[Tensor]) -> Tensor:
    """Concatenate the sums of several statistics, [m, f, places]."""
    return numbers[0] if len(numbers) == 1 else torch.cat([own.to(torch.float64) for own in numbers])
