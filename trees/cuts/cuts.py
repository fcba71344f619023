"""Cuts of a node, described by the sums on their left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from neonxc.trees.cuts import histograms
from neonxc.trees.cuts.columns import Columns


class Best(NamedTuple):
    """The best cut of a node."""

    score: float
    feature: int
    code: int


@dataclass(frozen=True)
class Cuts:
    """Cuts of one node: all places of some columns, [f, places], or those that may still be the best, [cuts].

    Attributes
    ----------
    columns : Columns
    row, place : Tensor
        Positions of the columns and places, which are broadcast to [...].
    left : Tensor [m, ...]
        Sums over the points on the left.
    total : Tensor [m]
        The same sums over all points of the node.
    centers_left : Tensor [...] of int64
        Number of the node's centers on the left.
    mass_left : Tensor [...] or None
        Number (or weight) of points on the left, if one of the sums counts points.
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
        return totals[member, self.place]

    def best(self, slack: float) -> Best | None:
        """The first of the cuts with the lowest of the scores in `bound`; None if all are infinite."""
        least = float(self.bound.min())
        if not least < torch.inf:
            return None
        at = int((self.bound <= least + slack).view(torch.uint8).argmax())
        if self.bound.ndim == 1:
            row, place = int(self.row[at]), int(self.place[at])
        else:
            row, place = divmod(at, self.bound.shape[1])
        return Best(least, int(self.columns.features[row]), self.columns.code(row, place))

    def __getitem__(self, which: tuple[Tensor, ...]) -> Cuts:
        """Select some of all cuts, by column and place, or of the cuts that may still be the best, by position."""
        row, place = which if len(which) == 2 else (self.row[which], self.place[which])
        centers_left, bound = (own.expand_as(self.bound)[which] for own in (self.centers_left, self.bound))
        mass_left = None if self.mass_left is None else self.mass_left[which]
        every: Any = slice(None)
        left = self.left[(every, *which)]
        return Cuts(self.columns, row, place, left, self.total, centers_left, mass_left, bound)


def all_cuts(columns: Columns, left: Tensor, mass_left: Tensor | None, only_new: bool) -> tuple[Cuts, Tensor]:
    """Describe all cuts of some columns; the second result is a mask of the cuts that leave a side empty.

    With `only_new`, cuts that divide points and centers like the cut at the place before are masked, too.
    """
    node, places = columns.node, columns.places
    place = torch.arange(places, device=left.device)
    if len(node.centers):
        centers = columns.centers_of(node.centers)
        centers_left = histograms.centers_left(centers, places)
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
    bound = left[0] if len(left) else left.new_zeros(left.shape[1:])  # a node without points may have no sums
    return Cuts(columns, row, place, left, left[:, 0, -1], centers_left, mass_left, bound), impossible


def concatenated(numbers: Sequence[Tensor]) -> Tensor:
    """Concatenate sums [f, m, places], [m, f, places]."""
    if len(numbers) == 1:
        return numbers[0].movedim(1, 0)
    return torch.cat([own.movedim(1, 0).to(torch.float64) for own in numbers])
