"""View of the columns of a long table, which gathers the codes of a node's points in chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

import neonxc.trees.sums as sums
from neonxc.trees.codes import transposed

ROWS = 1 << 16  # number of points whose codes are gathered at a time


class ChunkedView:
    """Columns whose codes are stored row by row; sums over points are computed chunk by chunk.

    The methods are those of :class:`~neonxc.trees.views.View`.

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
        """Select a range of the columns."""
        return ChunkedView(self._codes[:, part], self.centers[part], self.bins)

    def by_point(self, rows: Tensor) -> Tensor:
        """Codes of the points `rows`, [points, f]."""
        return self._codes.index_select(0, rows)

    def at(self, rows: Tensor) -> Tensor:
        """Codes of the points `rows`, which are in ascending order, [f, points]."""
        return transposed(self.by_point(rows))

    def histogram(self, rows: Tensor, labels: Tensor | None, k: int, weight: Tensor | None = None) -> Tensor:
        """Number (or weight) of points by column, label and code."""

        def chunk_sums(codes: Tensor, part: slice) -> Tensor:
            return sums.histogram(codes, self.bins, _slice(labels, part), k, _slice(weight, part))

        return self._sum_over_chunks(rows, chunk_sums)

    def channels(self, rows: Tensor, values: Tensor) -> Tensor:
        """Sums of values by column and code."""
        return self._sum_over_chunks(rows, lambda codes, part: sums.channels(codes, self.bins, values[:, part]))

    def selected_channels(self, rows: Tensor, values: Tensor, column: Tensor, which: Tensor) -> Tensor:
        """Prefix sums of one channel for each of the given columns."""

        def chunk_sums(codes: Tensor, part: slice) -> Tensor:
            return sums.selected_channels(codes.index_select(0, column), self.bins, values[:, part], which)

        return self._sum_over_chunks(rows, chunk_sums)

    def parted(self, rows: Tensor, labels: Tensor, centers: Tensor, weight: Tensor | None = None) -> Tensor:
        """Number (or weight) of points that each cut separates from their centers."""

        def chunk_sums(codes: Tensor, part: slice) -> Tensor:
            return sums.parted(codes, self.bins, labels[part], centers, _slice(weight, part))

        return self._sum_over_chunks(rows, chunk_sums)

    def parted_by_center(
        self, rows: Tensor, labels: Tensor, centers: Tensor, weight: Tensor | None = None
    ) -> Tensor:
        """The same by center."""

        def chunk_sums(codes: Tensor, part: slice) -> Tensor:
            return sums.parted_by_center(codes, self.bins, labels[part], centers, _slice(weight, part))

        return self._sum_over_chunks(rows, chunk_sums)

    def ends(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Smallest and largest code."""
        present = self.histogram(rows, None, 1)[:, 0] > 0
        places = torch.arange(self.bins, device=present.device)
        return places.where(present, self.bins).amin(1), places.where(present, -1).amax(1)

    def extremes(self, rows: Tensor, values: Callable[[], Tensor]) -> tuple[Tensor, Tensor]:
        """Maximum of the values, and of minus the values, by code."""
        own = values()
        low = own.new_full((len(self.centers), self.bins), -torch.inf)
        high = low.clone()
        for codes, part in self._chunks(rows):
            places = codes.to(torch.int64)
            low.scatter_reduce_(1, places, own[:, part], "amax")
            high.scatter_reduce_(1, places, -own[:, part], "amax")
        return low, high

    def _chunks(self, rows: Tensor) -> Iterator[tuple[Tensor, slice]]:
        """Codes of the points in chunks, [f, points]; there is always at least one, possibly empty, chunk."""
        for first in range(0, max(1, len(rows)), ROWS):
            part = slice(first, first + ROWS)
            yield self.at(rows[part]), part

    def _sum_over_chunks(self, rows: Tensor, chunk_sums: Callable[[Tensor, slice], Tensor]) -> Tensor:
        """Add the sums of all chunks. Sums are exact, so the result does not depend on the chunks."""
        chunks = self._chunks(rows)
        result = chunk_sums(*next(chunks))
        for codes, part in chunks:
            result += chunk_sums(codes, part)
        return result


def _slice(values: Tensor | None, part: slice) -> Tensor | None:
    return None if values is None else values[part]
