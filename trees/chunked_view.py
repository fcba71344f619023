"""Views of tables so long that the codes of a node's points are gathered some points at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

import neonxc.trees.sums as sums
from neonxc.trees.codes import transposed

ROWS = 1 << 16  # points whose codes are gathered at once


class ChunkedView:
    """Columns whose codes are laid out by point; sums over points are added up piece by piece.

    Parameters
    ----------
    codes : Tensor [n, f]
    centers : Tensor [f, k] of int64
    bins : int
    """

    coarse = False

    def __init__(self, codes: Tensor, centers: Tensor, bins: int) -> None:
        self._codes, self.centers, self.bins = codes, centers, bins

    def subset(self, part: slice) -> ChunkedView:
        """A range of the columns."""
        return ChunkedView(self._codes[:, part], self.centers[part], self.bins)

    def by_point(self, rows: Tensor) -> Tensor:
        """The codes of points, [points, f]."""
        return self._codes.index_select(0, rows)

    def at(self, rows: Tensor) -> Tensor:
        """The codes of points in order, [f, points]."""
        return transposed(self.by_point(rows))

    def histogram(self, rows: Tensor, labels: Tensor | None, k: int, weight: Tensor | None = None) -> Tensor:
        """Points by column, label and code."""

        def of(codes: Tensor, part: slice) -> Tensor:
            return sums.histogram(codes, self.bins, _of(labels, part), k, _of(weight, part))

        return self._added(rows, of)

    def channels(self, rows: Tensor, values: Tensor) -> Tensor:
        """Sums of values by column and code."""
        return self._added(rows, lambda codes, part: sums.channels(codes, self.bins, values[:, part]))

    def selected_channels(self, rows: Tensor, values: Tensor, column: Tensor, which: Tensor) -> Tensor:
        """Prefix sums of some columns."""

        def of(codes: Tensor, part: slice) -> Tensor:
            return sums.selected_channels(codes.index_select(0, column), self.bins, values[:, part], which)

        return self._added(rows, of)

    def parted(self, rows: Tensor, labels: Tensor, centers: Tensor, weight: Tensor | None = None) -> Tensor:
        """Points parted from their centers."""

        def of(codes: Tensor, part: slice) -> Tensor:
            return sums.parted(codes, self.bins, labels[part], centers, _of(weight, part))

        return self._added(rows, of)

    def parted_by_center(
        self, rows: Tensor, labels: Tensor, centers: Tensor, weight: Tensor | None = None
    ) -> Tensor:
        """The same, center by center."""

        def of(codes: Tensor, part: slice) -> Tensor:
            return sums.parted_by_center(codes, self.bins, labels[part], centers, _of(weight, part))

        return self._added(rows, of)

    def ends(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The least and the greatest code."""
        there = self.histogram(rows, None, 1)[:, 0] > 0
        places = torch.arange(self.bins, device=there.device)
        return places.where(there, self.bins).amin(1), places.where(there, -1).amax(1)

    def extremes(self, rows: Tensor, values: Callable[[], Tensor]) -> tuple[Tensor, Tensor]:
        """The greatest value, and that of minus the values, by code."""
        own = values()
        low = own.new_full((len(self.centers), self.bins), -torch.inf)
        high = low.clone()
        for codes, part in self._pieces(rows):
            places = codes.to(torch.int64)
            low.scatter_reduce_(1, places, own[:, part], "amax")
            high.scatter_reduce_(1, places, -own[:, part], "amax")
        return low, high

    def _pieces(self, rows: Tensor) -> Iterator[tuple[Tensor, slice]]:
        """The codes of some points after the others, [f, points]; of none at all where there are none."""
        for first in range(0, max(1, len(rows)), ROWS):
            part = slice(first, first + ROWS)
            yield self.at(rows[part]), part

    def _added(self, rows: Tensor, of: Callable[[Tensor, slice], Tensor]) -> Tensor:
        """Sums over all points: they are exact, so that pieces don't change them."""
        pieces = self._pieces(rows)
        result = of(*next(pieces))
        for codes, part in pieces:
            result += of(codes, part)
        return result


def _of(values: Tensor | None, part: slice) -> Tensor | None:
    return None if values is None else values[part]
