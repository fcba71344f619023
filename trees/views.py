"""Some columns of a node in the codes in which they are searched, and histograms of these codes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

import neonxc.trees.sums as sums


class View(Protocol):
    """Some columns of a node, in the codes in which they are searched.

    Attributes
    ----------
    centers : Tensor [f, k] of int64
        Codes of all reference centers; only those of the node's need be right.
    bins : int
        One more than the greatest code.
    coarse : bool
        Whether codes are bins that stand for several codes each.
    """

    centers: Tensor
    bins: int
    coarse: bool

    def at(self, rows: Tensor) -> Tensor:
        """The codes of points in order, [f, points]."""

    def by_point(self, rows: Tensor) -> Tensor:
        """The codes of points, [points, f]."""

    def histogram(self, rows: Tensor, labels: Tensor | None, k: int, weight: Tensor | None = None) -> Tensor:
        """Points, or their weights, by column, label and code; see :func:`neonxc.trees.sums.histogram`."""

    def channels(self, rows: Tensor, values: Tensor) -> Tensor:
        """Sums of several values per point by column and code; see :func:`neonxc.trees.sums.channels`."""

    def selected_channels(self, rows: Tensor, values: Tensor, column: Tensor, which: Tensor) -> Tensor:
        """Prefix sums over the codes of some columns, each of one of several values per point, [columns, bins]."""

    def parted(self, rows: Tensor, labels: Tensor, centers: Tensor, weight: Tensor | None = None) -> Tensor:
        """Points that each cut parts from the center of their label; see :func:`neonxc.trees.sums.parted`."""

    def parted_by_center(
        self, rows: Tensor, labels: Tensor, centers: Tensor, weight: Tensor | None = None
    ) -> Tensor:
        """The same, center by center; see :func:`neonxc.trees.sums.parted_by_center`."""

    def ends(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The least and the greatest code of points, [f] of int64."""

    def extremes(self, rows: Tensor, values: Callable[[], Tensor]) -> tuple[Tensor, Tensor]:
        """The greatest value of points by code, and the greatest of minus the values, [f, bins]; -inf for none.

        `values` gives the values of the points, [f, points] of float64, to who hasn't got them.
        """


class DenseView:
    """Columns whose codes are there for all points.

    Parameters
    ----------
    by_point : callable
        Numbers of points -> their codes, [points, f].
    by_column : callable
        Numbers of points in order -> their codes, [f, points].
    centers, bins, coarse
        As for :class:`View`.
    """

    def __init__(
        self,
        by_point: Callable[[Tensor], Tensor],
        by_column: Callable[[Tensor], Tensor],
        centers: Tensor,
        bins: int,
        coarse: bool = False,
    ) -> None:
        self.by_point, self.by_column = by_point, by_column
        self.centers, self.bins, self.coarse = centers, bins, coarse
        self._rows: Tensor | None = None
        self._codes: Tensor | None = None

    def at(self, rows: Tensor) -> Tensor:
        """The codes of points in order; those asked for last are at hand."""
        if self._codes is None or self._rows is not rows:
            self._rows, self._codes = rows, self.by_column(rows)
        return self._codes

    def subset(self, part: slice) -> DenseView:
        """A range of the columns."""
        return DenseView(
            lambda rows: self.by_point(rows)[:, part],
            lambda rows: self.at(rows)[part],
            self.centers[part],
            self.bins,
            self.coarse,
        )

    def histogram(self, rows: Tensor, labels: Tensor | None, k: int, weight: Tensor | None = None) -> Tensor:
        """Points by column, label and code."""
        return sums.histogram(self.at(rows), self.bins, labels, k, weight)

    def channels(self, rows: Tensor, values: Tensor) -> Tensor:
        """Sums of values by column and code."""
        return sums.channels(self.at(rows), self.bins, values)

    def selected_channels(self, rows: Tensor, values: Tensor, column: Tensor, which: Tensor) -> Tensor:
        """Prefix sums of some columns."""
        return sums.selected_channels(self.at(rows).index_select(0, column), self.bins, values, which)

    def parted(self, rows: Tensor, labels: Tensor, centers: Tensor, weight: Tensor | None = None) -> Tensor:
        """Points parted from their centers."""
        return sums.parted(self.at(rows), self.bins, labels, centers, weight)

    def parted_by_center(
        self, rows: Tensor, labels: Tensor, centers: Tensor, weight: Tensor | None = None
    ) -> Tensor:
        """The same, center by center."""
        return sums.parted_by_center(self.at(rows), self.bins, labels, centers, weight)

    def ends(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The least and the greatest code."""
        low, high = self.at(rows).aminmax(dim=1)
        return low.to(torch.int64), high.to(torch.int64)

    def extremes(self, rows: Tensor, values: Callable[[], Tensor]) -> tuple[Tensor, Tensor]:
        """The greatest value, and that of minus the values, by code."""
        codes, own = self.at(rows).to(torch.int64), values()
        none = own.new_full((len(codes), self.bins), -torch.inf)
        return none.scatter_reduce(1, codes, own, "amax"), none.scatter_reduce(1, codes, -own, "amax")
