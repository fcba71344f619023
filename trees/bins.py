"""Bins of columns by their upper ends, and the least and the greatest value that each of them has."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from neonxc.ranks import Ranks

PIECE = 1 << 17  # entries whose bins are looked up at once: they stay in a core's cache
CELLS = 8  # of the grid of a column, per bin
MOST = 1 << 14  # cells of a column


@dataclass
class Bins:
    """Bins of columns: a value is in the first bin whose upper end it does not exceed.

    Attributes
    ----------
    upper : Tensor [d, most] of float64
        Upper ends in order, with infinities behind.
    size : Tensor [d] of int64
        How many there are.
    """

    upper: Tensor
    size: Tensor

    def some(self, part: slice) -> Bins:
        """The bins of some columns."""
        return Bins(self.upper[part], self.size[part])

    def places(self, values: Tensor) -> Tensor:
        """The bins of values [d, b] of float32 or float64; `size` for a value above all ends.

        A grid of equal cells says between which ends a value may be, and the rest is found by halving.
        """
        grid = self._grid(values.dtype)
        result = torch.empty(values.shape, dtype=torch.int64, device=values.device)
        step = max(1, PIECE // max(1, len(values)))
        for first in range(0, values.shape[1], step):
            part = values[:, first : first + step]
            found = grid.before.gather(1, grid.cell(part))
            for half in grid.halves:
                end = grid.upper.gather(1, found if half == 1 else found + (half - 1))
                found.add_(end < part, alpha=half)
            result[:, first : first + step] = found
        return result

    def codes(self, values: Tensor, dtype: torch.dtype) -> Tensor:
        """The same for any numbers, in a type of integers."""
        exact = torch.float32 if values.dtype in (torch.float32, torch.uint8, torch.int8, torch.int16) else None
        result = torch.empty(values.shape, dtype=dtype, device=values.device)
        step = max(1, PIECE // max(1, len(values)))
        for first in range(0, values.shape[1], step):
            some = slice(first, first + step)
            result[:, some] = self.places(values[:, some].to(exact or torch.float64))
        return result

    @cached_property
    def _grids(self) -> dict[torch.dtype, _Grid]:
        return {}

    def _grid(self, dtype: torch.dtype) -> _Grid:
        if dtype not in self._grids:
            self._grids[dtype] = _grid(self.upper, self.size, dtype)
        return self._grids[dtype]


@dataclass
class _Grid:
    """Cells of equal width between the ends of a column, in a type of floats.

    Attributes
    ----------
    low, scale : Tensor [d, 1]
    before : Tensor [d, cells] of int64
        How many ends are in cells before each.
    upper : Tensor [d, most + padding]
    halves : list of int
        Steps that find the place among the ends of a cell.
    cells : int
    """

    low: Tensor
    scale: Tensor
    before: Tensor
    upper: Tensor
    halves: list[int]
    cells: int

    def cell(self, values: Tensor) -> Tensor:
        """The cell of values [d, b]; it never falls where values rise, however they are rounded."""
        return (values - self.low).mul_(self.scale).clamp_(0, self.cells - 1).to(torch.int64)


def _grid(upper: Tensor, size: Tensor, dtype: torch.dtype) -> _Grid:
    d, most = upper.shape
    own = upper.to(dtype)
    if dtype != torch.float64:  # the greatest number of the type that is not above the end
        own = torch.where(own.to(torch.float64) > upper, own.nextafter(torch.full_like(own, -torch.inf)), own)
    cells = min(MOST, CELLS * most)
    low, large = own[:, :1], torch.finfo(dtype)
    width = own.gather(1, (size - 2).clamp(min=0)[:, None]) - low  # the last end may be far away
    scale = ((cells - 1) / width).clamp(large.tiny, large.max)  # so that no number times it is NaN
    grid = _Grid(low, scale, torch.empty(0), own, [], cells)
    cell = grid.cell(own)
    count = torch.zeros(d, cells, dtype=torch.int64, device=upper.device)
    count.scatter_add_(1, cell, own.isfinite().to(torch.int64))
    grid.before = count.cumsum(1) - count
    widest = max(1, int(count.max()))
    grid.halves = [1 << power for power in reversed(range(widest.bit_length()))]
    grid.upper = torch.nn.functional.pad(own, (0, 2 * widest), value=torch.inf)
    return grid


@dataclass
class Ends:
    """The least and the greatest value that every code of a column stands for.

    Attributes
    ----------
    low, high : Tensor [d, codes] of float64
        Infinite, and minus infinite, for codes that no point has.
    whole : Tensor [d] of bool
        Whether all values of a column are whole numbers.
    """

    low: Tensor
    high: Tensor
    whole: Tensor

    @classmethod
    def none(cls, bins: Bins, whole: Tensor) -> Ends:
        """Before any value."""
        low = torch.full_like(bins.upper, torch.inf)
        return cls(low, -low, whole)

    def add(self, codes: Tensor, values: Tensor, first: int = 0) -> None:
        """Take in values [f, b] and their codes, of columns from the `first` one on."""
        some = slice(first, first + len(codes))
        low, high = self.low[some], self.high[some]
        step = max(1, PIECE // max(1, len(codes)))
        for begin in range(0, codes.shape[1], step):
            own = values[:, begin : begin + step].to(torch.float64) + 0.0  # -0.0 is 0.0
            place = codes[:, begin : begin + step].to(torch.int64)
            beyond = (own < low.gather(1, place)) | (own > high.gather(1, place))
            rows, at = beyond.nonzero(as_tuple=True)  # soon there are hardly any
            if len(rows):
                index, found = rows * low.shape[1] + place[rows, at], own[rows, at]
                low.view(-1).scatter_reduce_(0, index, found, "amin")
                high.view(-1).scatter_reduce_(0, index, found, "amax")

    def merged(self, ranks: Ranks) -> Ends:
        """Those of the values of all processes."""
        return Ends(ranks.min(self.low), ranks.max(self.high), self.whole)

    def of(self, feature: int, codes: Tensor) -> tuple[Tensor, Tensor]:
        """The greatest and the least value that codes [points] of a column stand for."""
        codes = codes.to(torch.int64)
        return self.high[feature].index_select(0, codes), self.low[feature].index_select(0, codes)

    def beside(self, feature: int, code: int, threshold: float, ends: tuple[float, float]) -> tuple[float, float]:
        """Between which values a threshold is that parts codes at `code`, but no code that only other points have.

        `ends` are the values on its two sides; they stay as they are where it parts no code.
        """
        low, high = self.low[feature], self.high[feature]
        inside = ((low <= threshold) & (threshold < high)).nonzero()[:, 0].tolist()
        if not inside:
            return ends
        if inside[0] <= code:
            return float(high[inside[0]]), min(ends[1], float(low[inside[0] + 1 :].min()))
        return max(ends[0], float(high[: inside[0]].max())), float(low[inside[0]])

    def values(self, feature: int) -> Tensor:
        """The ends of all codes of a column that points have, in order."""
        both = torch.cat([self.low[feature], self.high[feature]])
        return both[both.isfinite()].sort().values
