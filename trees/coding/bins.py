"""Bins of columns, given by their upper ends, and the smallest and largest value in every bin."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from neonxc.common.processes import Ranks

PIECE = 1 << 17  # number of values that are looked up at a time, so that they fit into a core's cache
CELLS = 8  # grid cells per bin
MOST = 1 << 14  # maximum number of grid cells of a column


@dataclass
class Bins:
    """Bins of columns: a value belongs to the first bin whose upper end is not below it.

    Attributes
    ----------
    upper : Tensor [d, most] of float64
        Upper ends in ascending order, padded by infinity.
    size : Tensor [d] of int64
        Number of bins of every column.
    """

    upper: Tensor
    size: Tensor

    def subset(self, part: slice | Tensor) -> Bins:
        """Select columns."""
        return Bins(self.upper[part], self.size[part])

    def places(self, values: Tensor) -> Tensor:
        """Find the bins of values [d, b] of float32 or float64; `size` for a value above all upper ends.

        A grid of equally wide cells narrows down the bins, and binary search finds the right one.
        """
        grid = self._grid(values.dtype)
        result = torch.empty(values.shape, dtype=torch.int64, device=values.device)
        step = max(1, PIECE // max(1, len(values)))
        for first in range(0, values.shape[1], step):
            part = slice(first, first + step)
            result[:, part] = grid.places(values[:, part])
        return result

    def codes(self, values: Tensor, dtype: torch.dtype) -> Tensor:
        """Find the bins of numbers of any type; the result has the given integer type."""
        exact = torch.float32 if values.dtype in (torch.float32, torch.uint8, torch.int8, torch.int16) else None
        result = torch.empty(values.shape, dtype=dtype, device=values.device)
        step = max(1, PIECE // max(1, len(values)))
        for first in range(0, values.shape[1], step):
            part = slice(first, first + step)
            result[:, part] = self.places(values[:, part].to(exact or torch.float64))
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
    """Lookup grid: cells of equal width between the first and the last upper end of every column.

    The arrays of all columns are concatenated to one row, because gathering from a single row is three times as
    fast.

    Attributes
    ----------
    low, scale : Tensor [d, 1]
        Value where the first cell begins, and number of cells per unit.
    before : Tensor [d * cells]
        Position in `upper` of the first end in the cell or behind it.
    upper : Tensor [d * (most + padding)]
        Upper ends, rounded down to the type of the values.
    halves : list of int
        Steps of the binary search among the ends of a cell.
    cells : int
        Number of cells per column.
    cell_0, upper_0 : Tensor [d, 1]
        Positions at which the columns begin in `before` and in `upper`.
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
        """Cells of values [d, b]; they are monotonic in the values despite rounding."""
        return (values - self.low).mul_(self.scale).clamp_(0, self.cells - 1).to(self.cell_0.dtype)

    def places(self, values: Tensor) -> Tensor:
        """Number of upper ends below every value, [d, b]."""
        found = self.before.index_select(0, self.cell(values).add_(self.cell_0).reshape(-1))
        for half in self.halves:
            end = self.upper.index_select(0, found if half == 1 else found + (half - 1))
            less = end.view(values.shape).lt_(values)  # 0.0 or 1.0, which is faster than booleans
            found.add_(less.view(-1).to(found.dtype), alpha=half)
        return found.view(values.shape).sub_(self.upper_0)


def _grid(upper: Tensor, size: Tensor, dtype: torch.dtype) -> _Grid:
    d, most = upper.shape
    own = upper.to(dtype)
    if dtype != torch.float64:  # round down to the largest number of the type that is not above the end
        own = torch.where(own.to(torch.float64) > upper, own.nextafter(torch.full_like(own, -torch.inf)), own)
    cells = min(MOST, CELLS * most)
    low, large = own[:, :1], torch.finfo(dtype)
    width = own.gather(1, (size - 2).clamp(min=0)[:, None]) - low  # without the last end, which may be far away
    scale = ((cells - 1) / width).clamp(large.tiny, large.max)  # finite, so that no product is NaN
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
class BinEnds:
    """Smallest and largest value of every code.

    Attributes
    ----------
    low, high : Tensor [d, codes] of float64
        Smallest and largest value; infinity and minus infinity for codes without points.
    whole : Tensor [d] of bool
        Whether all values of a column are integers.
    """

    low: Tensor
    high: Tensor
    whole: Tensor

    @classmethod
    def empty(cls, bins: Bins, whole: Tensor) -> BinEnds:
        """Ends before any value has been added."""
        low = torch.full_like(bins.upper, torch.inf)
        return cls(low, -low, whole)

    def add(self, codes: Tensor, values: Tensor, first: int = 0) -> None:
        """Add values [f, b] with their codes, for the columns from number `first` on."""
        columns = slice(first, first + len(codes))
        step = max(1, PIECE // max(1, len(codes)))
        for begin in range(0, codes.shape[1], step):
            own = values[:, begin : begin + step].to(torch.float64)
            place = codes[:, begin : begin + step].to(torch.int64)
            self.low[columns].scatter_reduce_(1, place, own, "amin").add_(0.0)  # turns -0.0 into 0.0
            self.high[columns].scatter_reduce_(1, place, own, "amax").add_(0.0)

    def merged(self, ranks: Ranks) -> BinEnds:
        """Ends of the values of all processes."""
        return BinEnds(ranks.min(self.low), ranks.max(self.high), self.whole)

    def of(self, feature: int, codes: Tensor, code: int) -> tuple[Tensor, Tensor, Tensor]:
        """Largest and smallest value of each distinct code among `codes` [points], and whether it is <= `code`."""
        present = torch.bincount(codes, minlength=self.low.shape[1]).nonzero()[:, 0]
        return self.high[feature, present], self.low[feature, present], present <= code

    def beside(self, feature: int, code: int, threshold: float, ends: tuple[float, float]) -> tuple[float, float]:
        """The values between which to place a threshold above `code` so that it does not cut through any code.

        `ends` are the node's values on the two sides of the threshold. They are returned unchanged unless the
        threshold would lie inside the range of a code that only points outside the node have.
        """
        low, high = self.low[feature], self.high[feature]
        inside = ((low <= threshold) & (threshold < high)).nonzero()[:, 0].tolist()
        if not inside:
            return ends
        if inside[0] <= code:
            return float(high[inside[0]]), min(ends[1], float(low[inside[0] + 1 :].min()))
        return max(ends[0], float(high[: inside[0]].max())), float(low[inside[0]])

    def values(self, feature: int) -> Tensor:
        """Smallest and largest values of all codes of a column, sorted."""
        both = torch.cat([self.low[feature], self.high[feature]])
        return both[both.isfinite()].sort().values
