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

    def some(self, part: slice | Tensor) -> Bins:
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
            some = slice(first, first + step)
            result[:, some] = grid.places(values[:, some])
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

    Tables are laid out in one row, and columns have their parts of it: what is gathered from a single row takes a
    third of the time.

    Attributes
    ----------
    low, scale : Tensor [d, 1]
    before : Tensor [d * cells]
        Where in `upper` the first end is that is in the same cell or behind it.
    upper : Tensor [d * (most + padding)]
    halves : list of int
        Steps that find the place among the ends of a cell.
    cells : int
    cell_0, upper_0 : Tensor [d, 1]
        Where columns begin in `before`, and in `upper`.
    """

    low: Tensor
    scale: Tensor
    before: Tensor
    upper: Tensor
    halves: list[int]
    cells: int
    cell_0: Tensor
    upper_0: Tensor

    def cell(self, values: Tensor) -> Tensor:
        """The cell of values [d, b]; it never falls where values rise, however they are rounded."""
        return (values - self.low).mul_(self.scale).clamp_(0, self.cells - 1).to(self.cell_0.dtype)

    def places(self, values: Tensor) -> Tensor:
        """How many ends are below values [d, b]."""
        found = self.before.index_select(0, self.cell(values).add_(self.cell_0).reshape(-1))
        for half in self.halves:
            end = self.upper.index_select(0, found if half == 1 else found + (half - 1))
            less = end.view(values.shape).lt_(values)  # as 0.0 and 1.0, for truth values take long
            found.add_(less.view(-1).to(found.dtype), alpha=half)
        return found.view(values.shape).sub_(self.upper_0)


def _grid(upper: Tensor, size: Tensor, dtype: torch.dtype) -> _Grid:
    d, most = upper.shape
    own = upper.to(dtype)
    if dtype != torch.float64:  # the greatest number of the type that is not above the end
        own = torch.where(own.to(torch.float64) > upper, own.nextafter(torch.full_like(own, -torch.inf)), own)
    cells = min(MOST, CELLS * most)
    low, large = own[:, :1], torch.finfo(dtype)
    width = own.gather(1, (size - 2).clamp(min=0)[:, None]) - low  # the last end may be far away
    scale = ((cells - 1) / width).clamp(large.tiny, large.max)  # so that no number times it is NaN
    column = torch.arange(d, device=upper.device)[:, None]
    grid = _Grid(low, scale, own, own, [], cells, column, column)
    cell = grid.cell(own)
    count = torch.zeros(d, cells, dtype=torch.int64, device=upper.device)
    count.scatter_add_(1, cell, own.isfinite().to(torch.int64))
    widest = max(1, int(count.max()))
    grid.halves = [1 << power for power in reversed(range(widest.bit_length()))]
    padded = torch.nn.functional.pad(own, (0, 2 * widest), value=torch.inf)
    index = torch.int32 if max(count.numel(), padded.numel()) < 1 << 31 else torch.int64
    grid.cell_0, grid.upper_0 = (column * cells).to(index), (column * padded.shape[1]).to(index)
    grid.before = (count.cumsum(1) - count + grid.upper_0).to(index).view(-1)
    grid.upper = padded.view(-1)
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
        step = max(1, PIECE // max(1, len(codes)))
        for begin in range(0, codes.shape[1], step):
            own = values[:, begin : begin + step].to(torch.float64)
            place = codes[:, begin : begin + step].to(torch.int64)
            self.low[some].scatter_reduce_(1, place, own, "amin").add_(0.0)  # -0.0 is 0.0
            self.high[some].scatter_reduce_(1, place, own, "amax").add_(0.0)

    def merged(self, ranks: Ranks) -> Ends:
        """Those of the values of all processes."""
        return Ends(ranks.min(self.low), ranks.max(self.high), self.whole)

    def of(self, feature: int, codes: Tensor, code: int) -> tuple[Tensor, Tensor, Tensor]:
        """What codes [points] of a column stand for, each code once.

        The greatest value of each, the least one, and whether it is at most `code`.
        """
        there = torch.bincount(codes, minlength=self.low.shape[1]).nonzero()[:, 0]
        return self.high[feature, there], self.low[feature, there], there <= code

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
