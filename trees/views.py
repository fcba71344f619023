"""Views: the codes of a node's points in a group of columns, and histograms of these codes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

import neonxc.trees.sums as sums


class View(Protocol):
    """Interface to the codes of points in a group of columns.

    The methods take the indices of a node's points, `rows`.

    Attributes
    ----------
    centers : Tensor [f, k] of int64
        Codes of all reference centers. Codes of centers outside the node may be wrong.
    bins : int
        Largest number of codes of a column.
    coarse : bool
        Whether a code stands for several codes of the table.
    """

    centers: Tensor
    bins: int
    coarse: bool

    def at(self, rows: Tensor) -> Tensor:
        """Codes of the points `rows`, which are in ascending order, [f, points]."""

    def by_point(self, rows: Tensor) -> Tensor:
        """Codes of the points `rows`, [points, f]."""

    def histogram(self, rows: Tensor, labels: Tensor | None, k: int, weight: Tensor | None = None) -> Tensor:
        """Number (or weight) of points by column, label and code; see :func:`neonxc.trees.sums.histogram`."""

    def channels(self, rows: Tensor, values: Tensor) -> Tensor:
        """Sums of several values per point by column and code; see :func:`neonxc.trees.sums.channels`."""

    def selected_channels(self, rows: Tensor, values: Tensor, column: Tensor, which: Tensor) -> Tensor:
        """Prefix sums of one channel for each of the given columns, [columns, bins]."""

    def parted(self, rows: Tensor, labels: Tensor, centers: Tensor, weight: Tensor | None = None) -> Tensor:
        """Points that each cut separates from their center; see :func:`neonxc.trees.sums.parted`."""

    def parted_by_center(
        self, rows: Tensor, labels: Tensor, centers: Tensor, weight: Tensor | None = None
    ) -> Tensor:
        """The same by center; see :func:`neonxc.trees.sums.parted_by_center`."""

    def ends(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Smallest and largest code, [f] of int64 each."""

    def extremes(self, rows: Tensor, values: Callable[[], Tensor]) -> tuple[Tensor, Tensor]:
        """Maximum of the values, and of minus the values, by code, [f, bins] each; -inf for codes without points.

        ``values()`` returns the values of the points, [f, points] of float64. Views that store values ignore it.
        """


class DenseView:
    """View of columns whose codes are stored for all points; its methods are those of :class:`View`.

    Parameters
    ----------
    by_point : callable
        Function that returns the codes of given points, [points, f].
    by_column : callable
        Function that returns the codes of given points in ascending order, [f, points].
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
        """Codes of the points `rows`, which are in ascending order, [f, points]; the last result is cached."""
        if self._codes is None or self._rows is not rows:
            self._rows, self._codes = rows, self.by_column(rows)
        return self._codes

    def subset(self, part: slice) -> DenseView:
        """Select a range of the columns."""
        return DenseView(
            lambda rows: self.by_point(rows)[:, part],
            lambda rows: self.at(rows)[part],
            self.centers[part],
            self.bins,
            self.coarse,
        )

    def histogram(self, rows: Tensor, labels: Tensor | None, k: int, weight: Tensor | None = None) -> Tensor:
        """Number (or weight) of points by column, label and code."""
        return sums.histogram(self.at(rows), self.bins, labels, k, weight)

    def channels(self, rows: Tensor, values: Tensor) -> Tensor:
        """Sums of values by column and code."""
        return sums.channels(self.at(rows), self.bins, values)

    def selected_channels(self, rows: Tensor, values: Tensor, column: Tensor, which: Tensor) -> Tensor:
        """Prefix sums of one channel for each of the given columns."""
        return sums.selected_channels(self.at(rows).index_select(0, column), self.bins, values, which)

    def parted(self, rows: Tensor, labels: Tensor, centers: Tensor, weight: Tensor | None = None) -> Tensor:
        """Number (or weight) of points that each cut separates from their centers."""
        return sums.parted(self.at(rows), self.bins, labels, centers, weight)

    def parted_by_center(
        self, rows: Tensor, labels: Tensor, centers: Tensor, weight: Tensor | None = None
    ) -> Tensor:
        """The same by center."""
        return sums.parted_by_center(self.at(rows), self.bins, labels, centers, weight)

    def ends(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Smallest and largest code."""
        low, high = self.at(rows).aminmax(dim=1)
        return low.to(torch.int64), high.to(torch.int64)

    def extremes(self, rows: Tensor, values: Callable[[], Tensor]) -> tuple[Tensor, Tensor]:
        """Maximum of the values, and of minus the values, by code."""
        codes, own = self.at(rows).to(torch.int64), values()
        none = own.new_full((len(codes), self.bins), -torch.inf)
        return none.scatter_reduce(1, codes, own, "amax"), none.scatter_reduce(1, codes, -own, "amax")
