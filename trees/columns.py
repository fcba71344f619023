"""Columns as codes: the rank of a value among the distinct values of its column.

On codes a cut is an integer: ``code <= b`` goes left. Centers get the code of the nearest value, which is to say
that the cut between two neighbouring values stands for the threshold midway between them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from neonxc.trees.table import Table

BINS = 256  # of a histogram: what a byte can tell apart


@dataclass
class Columns:
    """The codes of a table.

    Attributes
    ----------
    codes : Tensor [d, n] of uint8, int16 or int32
    centers : Tensor [d, k] of int64
        The code of the value nearest to a center.
    size : Tensor [d] of int64
        Distinct codes of every column.
    rows : Tensor [n, d] of uint8
        ``codes // width`` once more, point by point: points are gathered faster so.
    width : Tensor [d] of int64
        Codes that share one of the 256 bins of `rows`; 1 where bins separate all values.
    """

    codes: Tensor
    centers: Tensor
    size: Tensor
    rows: Tensor
    width: Tensor

    @property
    def bins(self) -> int:
        """Codes of the column that has most."""
        return int(self.size.max())

    @property
    def separated(self) -> bool:
        """Whether the bins separate all values of all columns."""
        return bool((self.width == 1).all())

    def at(self, rows: Tensor) -> Tensor:
        """The codes of some points, [d, points]."""
        return _transpose(self.rows.index_select(0, rows)) if self.separated else self.codes.index_select(1, rows)

    def binned(self, rows: Tensor) -> Tensor:
        """The bins of some points, [d, points]."""
        return _transpose(self.rows.index_select(0, rows))


def code(table: Table, centers: Tensor, max_bins: int | None = None) -> Columns:
    """Code a table.

    Parameters
    ----------
    table : Table
    centers : Tensor [k, d] of float64
    max_bins : int, optional
        Values of a column that has more distinct ones are put into so many bins of about equally many points:
        faster, and the cuts within a bin are lost. Default: every value counts.
    """
    parts, middles, sizes = [], [], []
    for first, last in table.chunks():
        values = table.columns(first, last)
        own = centers[:, first:last].T.contiguous()
        part, middle, size = _integers(values, own) or _ranks(values, own, max_bins)
        parts.append(part)
        middles.append(middle)
        sizes.append(size)
    size = torch.cat(sizes)
    codes = torch.cat([part.to(_type(int(size.max()))) for part in parts])
    width = (size + BINS - 1).div(BINS, rounding_mode="floor")
    binned = (
        codes if bool((width == 1).all()) else codes.div(width[:, None], rounding_mode="floor").to(torch.uint8)
    )
    return Columns(codes, torch.cat(middles), size, _transpose(binned), width)


def _integers(values: Tensor, centers: Tensor) -> tuple[Tensor, Tensor, Tensor] | None:
    """Whole numbers in a small range are codes already."""
    if values.is_floating_point() and not bool((values[:, :100] == values[:, :100].round()).all()):
        return None
    low, high = values.amin(1), values.amax(1)
    if bool((high.to(torch.float64) - low.to(torch.float64) >= BINS).any()):
        return None
    if values.is_floating_point() and not bool((values == values.round()).all()):
        return None
    size = (high.to(torch.int64) - low.to(torch.int64)) + 1
    codes = (values - low[:, None]).to(torch.uint8)
    nearest = (centers - 0.5).ceil().to(torch.int64) - low.to(torch.int64)[:, None]
    return codes, nearest.clamp(min=0).minimum(size[:, None] - 1), size


def _ranks(values: Tensor, centers: Tensor, max_bins: int | None) -> tuple[Tensor, Tensor, Tensor]:
    """Codes of any numbers, by sorting."""
    n = values.shape[1]
    ordered, order = values.sort(dim=1)
    first = torch.ones_like(ordered, dtype=torch.bool)  # of its value
    torch.ne(ordered[:, 1:], ordered[:, :-1], out=first[:, 1:])
    if max_bins is not None and int(first.sum(1).max()) > max_bins:
        place = torch.arange(n, device=values.device).where(first, 0).cummax(1).values  # of the first of equals
        quantile = place * max_bins // n
        first[:, 1:] = quantile[:, 1:] != quantile[:, :-1]
    rank = first.cumsum(1, dtype=torch.int32).sub_(1)
    codes = torch.empty_like(rank).scatter_(1, order, rank)
    ordered = ordered.to(torch.float64)
    above = torch.searchsorted(ordered, centers).clamp(max=n - 1)
    below = (above - 1).clamp(min=0)
    upper, lower = ordered.gather(1, above), ordered.gather(1, below)
    nearest = torch.where(centers - lower <= upper - centers, below, above)
    return codes, rank.gather(1, nearest).to(torch.int64), rank[:, -1].to(torch.int64) + 1


def _type(size: int) -> torch.dtype:
    return torch.uint8 if size <= BINS else torch.int16 if size <= 1 << 15 else torch.int32


def _transpose(codes: Tensor) -> Tensor:
    """Transposed copy, in blocks that fit into a cache."""
    rows, columns = codes.shape
    result = codes.new_empty(columns, rows)
    for first in range(0, rows, 256):
        result[:, first : first + 256] = codes[first : first + 256].T
    return result
