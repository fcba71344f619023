"""Cuts of a node, described by the sums on their left.

Cut (i, b) of some columns sends the points whose bin in column i is at most b to the left. There are two forms:

=====  ====================  ===================================  ==============================================
form   shape [...]           for                                  indexed by
=====  ====================  ===================================  ==============================================
grid   [f, bins]             all cuts of f columns                :meth:`Cuts.at` (columns and bins)
list   [cuts]                candidates that were selected        :meth:`Cuts.take` (positions in the list)
=====  ====================  ===================================  ==============================================
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from neonxc.trees.cuts.histograms import Columns


class Best(NamedTuple):
    """The best cut of a node."""

    score: float
    feature: int
    code: int


@dataclass(frozen=True)
class Cuts:
    """Cuts of one node: a grid [f, bins] of all cuts of some columns, or a list [cuts] of candidates among them.

    Attributes
    ----------
    columns : Columns
    column, bin : Tensor
        Position of every cut's column in `columns`, and the last bin on its left, which are broadcast to [...].
    left : Tensor [m, ...]
        Sums over the points on the left.
    total : Tensor [m]
        The same sums over all points of the node.
    centers_left : Tensor of int64
        Number of the node's centers on the left, which is broadcast to [...].
    mass_left : Tensor [...] or None
        Number (or weight) of points on the left, if one of the sums counts points.
    bound : Tensor [...]
        Lower bounds of the scores from the previous stage of the criterion, or the scores; undefined before the
        first stage.
    """

    columns: Columns
    column: Tensor
    bin: Tensor
    left: Tensor
    total: Tensor
    centers_left: Tensor
    mass_left: Tensor | None
    bound: Tensor

    @property
    def right(self) -> Tensor:
        """Sums over the points on the right, [m, ...]."""
        each_cut = (1,) * (self.left.ndim - 1)
        return self.total.view(-1, *each_cut) - self.left

    @property
    def feature(self) -> Tensor:
        """Feature of every cut, which is broadcast to [...]."""
        return self.columns.features[self.column]

    def sides(self) -> Tensor:
        """Whether each of the node's centers is on the left, [..., centers]."""
        return self.columns.center_bins[self.column] <= self.bin[..., None]

    def gap(self) -> tuple[Tensor, Tensor]:
        """Return the node's values below and above every cut, [...] each; infinite where a side is empty."""
        below, above = self.columns.adjacent_values()
        return below[self.column, self.bin], above[self.column, self.bin]

    def sum_left(self, values: Tensor, which: Tensor, exact: bool) -> Tensor:
        """Sum over the points on the left, [...].

        Parameters
        ----------
        values : Tensor [m, points] of float64
            Values of the node's points.
        which : Tensor [...] of int64
            The row of `values` that a cut sums.
        exact : bool
            Whether sums of the values are exact without rounding them first.
        """
        columns = self.columns
        m = len(values)
        if not exact:
            values = columns.problem.exact(values)
        # Cuts of the same column that sum the same row share their prefix sums.
        pairs, pair = torch.unique(self.column * m + which, return_inverse=True)
        pair_column = pairs.div(m, rounding_mode="floor")
        pair_row = pairs % m
        sums = columns.chosen_channels(columns.node.rows, values, pair_column, pair_row)  # [pairs, bins]
        return sums[pair, self.bin]

    def best(self, slack: float) -> Best | None:
        """Return the first cut whose score is within `slack` of the lowest; None if all scores are infinite."""
        lowest = float(self.bound.min())
        if not lowest < torch.inf:
            return None
        is_best = self.bound <= lowest + slack
        first = int(is_best.view(torch.uint8).argmax())
        if self.bound.ndim == 1:
            column = int(self.column[first])
            bin = int(self.bin[first])
        else:
            column, bin = divmod(first, self.bound.shape[1])
        return Best(lowest, int(self.columns.features[column]), self.columns.code(column, bin))

    def at(self, column: Tensor, bin: Tensor) -> Cuts:
        """Select cuts of a grid, by column and bin."""
        return self._selected(column, bin, (column, bin))

    def take(self, which: Tensor) -> Cuts:
        """Select cuts of a list, by position."""
        return self._selected(self.column[which], self.bin[which], (which,))

    def _selected(self, column: Tensor, bin: Tensor, index: tuple[Tensor, ...]) -> Cuts:
        of_all_sums: tuple[slice | Tensor, ...] = (slice(None), *index)
        mass_left = self.mass_left
        if mass_left is not None:
            mass_left = mass_left[index]
        return Cuts(
            self.columns,
            column,
            bin,
            self.left[of_all_sums],
            self.total,
            self.centers_left.expand_as(self.bound)[index],
            mass_left,
            self.bound[index],
        )


def all_cuts(columns: Columns, left: Tensor, mass_left: Tensor | None) -> Cuts:
    """Describe all cuts of some columns [f, bins] by the sums on their left."""
    node = columns.node
    if len(node.centers):  # a histogram of the centers, and its prefix sums
        centers_left = node.centers.new_zeros(len(columns.features), columns.n_bins)
        centers_left.scatter_add_(1, columns.center_bins, torch.ones_like(columns.center_bins)).cumsum_(1)
    else:
        centers_left = node.centers.new_zeros(1, 1)
    column = torch.arange(len(columns.features), device=left.device)[:, None]
    bin = torch.arange(columns.n_bins, device=left.device)
    total = left[:, 0, -1]  # left of the last cut of any column
    if len(left):
        bound = left[0]
    else:  # a node without points may have no sums
        bound = left.new_zeros(left.shape[1:])
    return Cuts(columns, column, bin, left, total, centers_left, mass_left, bound)


def empty_sides(cuts: Cuts) -> Tensor:
    """Mask the cuts [f, bins] that leave a side empty: without centers if the node has some, or without points."""
    n_centers = len(cuts.columns.node.centers)
    if n_centers:
        return (cuts.centers_left == 0) | (cuts.centers_left == n_centers)
    if cuts.mass_left is not None:
        return (cuts.mass_left <= 0) | (cuts.mass_left >= cuts.mass_left[:, -1:])
    low, high = cuts.columns.bin_range()
    return (cuts.bin < low[:, None]) | (cuts.bin >= high[:, None])


def repeated(cuts: Cuts) -> Tensor | None:
    """Mask the cuts [f, bins] that divide points and centers like the cut before; None if that is not known."""
    node = cuts.columns.node
    if not len(node.centers) or cuts.mass_left is None:
        return None
    first = torch.zeros_like(cuts.mass_left[:, :1])
    is_new = cuts.mass_left.diff(dim=1, prepend=first) > 0
    return ~is_new.scatter_(1, cuts.columns.center_bins, True)


def concatenated(sums: Sequence[Tensor]) -> Tensor:
    """Concatenate sums [f, m, bins] to [m, f, bins]."""
    if len(sums) == 1:
        return sums[0].movedim(1, 0)
    return torch.cat([each.movedim(1, 0).to(torch.float64) for each in sums])
