"""Columns of a node that are searched together: the codes of its points, and sums over the points by code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from neonxc.trees.cuts import histograms

if TYPE_CHECKING:
    from neonxc.trees.cuts.nodes import Node
    from neonxc.trees.fit.problem import Problem


@dataclass(frozen=True)
class Columns:
    """Columns of a node whose cuts are searched together; a cut sends the codes up to a *place* left.

    All sums are those over all processes.

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
    codes : Tensor [f, n]
        Codes of all points; of the node's points if the codes have been renumbered.
    width : Tensor [f] of int64, optional
        Number of the table's codes per place. Default: one.
    original : Tensor [f, places], optional
        The table's code for every place, if the codes have been renumbered.
    step : int, optional
        Number of points whose codes are gathered at a time, from codes that are stored row by row. Default: all.
    block : (int, slice), optional
        The block of the table whose places these are, and which of its columns.
    """

    problem: Problem
    node: Node
    features: Tensor
    centers: Tensor
    places: int
    codes: Tensor
    width: Tensor | None = None
    original: Tensor | None = None
    step: int | None = None
    block: tuple[int, slice] | None = None
    _kept: list[Tensor] = field(default_factory=list, init=False, repr=False)

    def code(self, row: int, place: int) -> int:
        """The table's code for a place in the column with position `row`."""
        if self.original is not None:
            return int(self.original[row, place])
        return place if self.width is None else int(self.width[row]) * (place + 1) - 1

    def centers_of(self, which: Tensor) -> Tensor:
        """Codes of some of the centers, [f, centers]."""
        return self.centers.index_select(1, which)

    def at(self, rows: Tensor) -> Tensor:
        """Codes of points, [f, points], in any order unless codes are renumbered; the last result is kept."""
        if self.step is not None:
            return histograms.transposed(self.codes.T.index_select(0, rows))
        if not self._kept or self._kept[0] is not rows:
            own = rows if self.original is None else torch.searchsorted(self.node.rows, rows)
            self._kept[:] = rows, histograms.gathered(self.codes, own)
        return self._kept[1]

    def counts(
        self, rows: Tensor, labels: Tensor | None = None, k: int = 1, weight: Tensor | None = None
    ) -> Tensor:
        """Number (or weight) of points by column, label and code, [f, k, places]."""

        def of(codes: Tensor, part: slice) -> Tensor:
            return histograms.histogram(codes, self.places, _some(labels, part), k, _some(weight, part))

        return self._added(rows, of)

    def channels(self, rows: Tensor, values: Tensor) -> Tensor:
        """Sums of values [m, points] by column and code, [f, m, places]."""
        return self._added(rows, lambda codes, part: histograms.channels(codes, self.places, values[:, part]))

    def chosen_channels(self, rows: Tensor, values: Tensor, row: Tensor, which: Tensor) -> Tensor:
        """Sums up to every place, [groups, places], of the rows `which` of values [m, points] in columns `row`."""

        def of(codes: Tensor, part: slice) -> Tensor:
            return histograms.selected_channels(codes.index_select(0, row), self.places, values[:, part], which)

        return self._added(rows, of)

    def parted(
        self, rows: Tensor, labels: Tensor, centers: Tensor, weight: Tensor | None = None, by_center: bool = False
    ) -> Tensor:
        """Number (or weight) of points that each cut separates from their centers [f, k], [f, places].

        With `by_center`, those of every center, [f, k, places].
        """

        def of(codes: Tensor, part: slice) -> Tensor:
            return histograms.parted(codes, self.places, labels[part], centers, _some(weight, part), by_center)

        return self._added(rows, of)

    def ends(self) -> tuple[Tensor, Tensor]:
        """Smallest and largest code of the node's points over all processes, [f] each."""
        if self.step is None and not self.problem.sharded:
            low, high = self.at(self.node.rows).aminmax(dim=1)
            return low.to(torch.int64), high.to(torch.int64)
        present = self.counts(self.node.rows)[:, 0] > 0
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
            return self.problem.reduce(function(self.at(rows), slice(None)))
        parts = (slice(first, first + self.step) for first in range(0, max(1, len(rows)), self.step))
        result: Tensor | None = None
        for part in parts:
            own = function(self.at(rows[part]), part)
            result = own if result is None else result.add_(own)
        assert result is not None
        return self.problem.reduce(result)


def _some(values: Tensor | None, part: slice) -> Tensor | None:
    return None if values is None else values[part]
