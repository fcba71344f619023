"""Sketches, from which bins of columns are computed after one pass: distinct values and a sample of rows.

A sketch does not depend on the order of the rows, the batches or the processes, because its sample consists of the
distinct rows with the smallest hashes. The bins, and the trees that are grown on them, are therefore identical for
a table in memory, for batches of it, and for rows that are distributed over processes.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from neonxc.common.processes import Ranks
from neonxc.trees.coding.bins import Bins
from neonxc.trees.coding.exact import whole
from neonxc.trees.coding.ordering import is_first, sorted_rows

ROWS, NUMBERS = 1 << 16, 1 << 24  # maximum number of rows, and of values, of the sample
PIECE = 1 << 17  # values that are hashed at a time, so that they fit into a core's cache
FIRST = 1 << 12  # rows that are added first, which show that most columns have many distinct values


class Sketch:
    """Distinct values and ranges of the columns, and a sample of the rows.

    Parameters
    ----------
    d : int
        Number of columns.
    max_bins : int
        Columns with more distinct values than this are binned by quantiles of the sample.
    device : torch.device or str

    Attributes
    ----------
    n : int
        Number of rows.
    low, high : Tensor [d] of float64
        Minimum and maximum of every column.
    whole : Tensor [d] of bool
        Whether all values of a column are integers.
    few : Tensor [d] of bool
        Whether a column has at most `max_bins` distinct values.
    """

    def __init__(self, d: int, max_bins: int, device: torch.device | str = "cpu") -> None:
        self.d, self.max_bins, self.n = d, max_bins, 0
        self.most = max(1, min(ROWS, NUMBERS // d))
        self._factors = torch.tensor(_factors(d), device=device)
        everywhere = torch.full((d,), torch.inf, dtype=torch.float64, device=device)
        self.low, self.high = everywhere, -everywhere
        self.whole = torch.ones(d, dtype=torch.bool, device=device)
        self.few = torch.ones_like(self.whole)
        # Sorted distinct values of the columns that have few of them, padded by infinity
        self._values = everywhere[:, None].repeat(1, max_bins)
        none = torch.empty(0, dtype=torch.int64, device=device)
        self._pool = [(none, none.to(torch.float64), torch.empty(0, d, dtype=torch.float64, device=device))]
        self._pooled, self._limit = 0, torch.iinfo(torch.int64).max

    def add(self, values: Tensor, weight: Tensor | None = None) -> None:
        """Add rows, [b, d] of finite numbers, with weights [b] of float64 whose sums are exact; 1 by default."""
        if not len(values):
            return
        self.n += len(values)
        self._add_distinct(values)
        weight = torch.ones_like(values[:, 0], dtype=torch.float64) if weight is None else weight
        step = max(1, PIECE // self.d)
        for piece, mass in zip(values.split(step), weight.split(step), strict=True):
            low, high = _extremes(piece)
            self.low = torch.minimum(self.low, low.to(torch.float64))
            self.high = torch.maximum(self.high, high.to(torch.float64))
            numbers = piece.to(torch.float64, copy=True).add_(0.0)  # turns -0.0 into 0.0
            hashes = hash_rows(numbers, self._factors)
            sampled = (hashes <= self._limit).nonzero()[:, 0]
            if len(sampled):
                self._add_to_sample(hashes[sampled], mass[sampled], numbers[sampled])

    def merged(self, ranks: Ranks) -> Sketch:
        """Sketch of the rows of all processes."""
        if ranks.alone:
            return self
        result = Sketch(self.d, self.max_bins, self.low.device)
        result.n = int(ranks.sum(torch.tensor(self.n)))
        result.low, result.high = ranks.min(self.low), ranks.max(self.high)
        result.whole, result.few = ranks.min(self.whole), ranks.min(self.few)
        for values in ranks.gather(self._values[None]):
            result._merge_values(values[0])
        self._reduce()
        for hashes, counts, rows in zip(*(ranks.gather(own) for own in self._pool[0]), strict=True):
            result._add_to_sample(hashes, counts, rows)
        return result

    @property
    def rows(self) -> tuple[Tensor, Tensor]:
        """The sample [rows, d] of float64, sorted by hash, and the total weight of every row, [rows]."""
        self._reduce()
        _, counts, rows = self._pool[0]
        return rows, counts

    def bins(self, centers: Tensor) -> Bins:
        """Bins of all columns: one bin per value in columns of few values, at most `max_bins` in the others.

        The values of the centers [k, d] are additional upper ends, so that all centers can be separated. A column
        of many values has at most `max_bins` bins including these, but at least one more than the centers have
        distinct values.
        """
        centers = centers.T.to(torch.float64).contiguous() + 0.0
        sample, counts = self.rows
        upper, size = [], []
        for first in range(0, self.d, max(1, NUMBERS // (4 * max(1, len(sample))))):
            part = slice(first, first + max(1, NUMBERS // (4 * max(1, len(sample)))))
            own = centers[part].sort(dim=1).values
            own = own.masked_fill(~is_first(own), torch.inf)
            n_bins = self.max_bins - own.isfinite().sum(1)
            many = quantiles(sample[:, part].T.contiguous(), counts, n_bins)
            many = torch.cat([many, self.high[part, None]], 1)
            pad = self._values.shape[1] - many.shape[1]
            many = torch.nn.functional.pad(many, (0, max(0, pad)), value=torch.inf)
            few = torch.nn.functional.pad(self._values[part], (0, max(0, -pad)), value=torch.inf)
            ends = torch.cat([torch.where(self.few[part, None], few, many), own], 1).sort(dim=1).values
            ends = ends.masked_fill(~is_first(ends), torch.inf).sort(dim=1).values
            upper.append(ends)
            size.append(ends.isfinite().sum(1))
        sizes = torch.cat(size)
        return Bins(torch.cat(upper)[:, : int(sizes.max())].contiguous(), sizes)

    # --- distinct values -----------------------------------------------------------------------------------

    def _add_distinct(self, values: Tensor) -> None:
        """Add the values of columns that have few distinct ones so far, and update `whole`."""
        for rows in _growing(len(values)):
            if values.is_floating_point():
                open_ = self.whole.nonzero()[:, 0]
                if len(open_):
                    part = values[rows].index_select(1, open_)
                    self.whole[open_] = (part == part.round()).all(0)
            columns = self.few.nonzero()[:, 0]
            if len(columns):
                part = values[rows].index_select(1, columns).T.to(torch.float64).contiguous()
                self._add_values(part.add_(0.0), columns)

    def _add_values(self, part: Tensor, columns: Tensor) -> None:
        """Add values [columns, b] of the given columns."""
        known = self._values.index_select(0, columns)
        new = torch.ones_like(part, dtype=torch.bool)
        if bool(known[:, 0].isfinite().any()):
            place = Bins(known, known.isfinite().sum(1)).places(part).clamp_(max=known.shape[1] - 1)
            new = known.gather(1, place) != part
        for row in new.any(1).nonzero()[:, 0].tolist():
            more = part[row][new[row]].unique()
            self._set(int(columns[row]), torch.cat([known[row][known[row].isfinite()], more]))

    def _merge_values(self, values: Tensor) -> None:
        """Add the distinct values of another sketch."""
        for column in self.few.nonzero()[:, 0].tolist():
            both = torch.cat([self._values[column], values[column]])
            self._set(column, both[both.isfinite()].unique())

    def _set(self, column: int, values: Tensor) -> None:
        self._values[column] = torch.inf
        if len(values) > self.max_bins:
            self.few[column] = False
        else:
            self._values[column, : len(values)] = values.sort().values

    # --- sample --------------------------------------------------------------------------------------------

    def _add_to_sample(self, hashes: Tensor, counts: Tensor, rows: Tensor) -> None:
        self._pool.append((hashes, counts, rows))
        self._pooled += len(hashes)
        if self._pooled > 2 * self.most:
            self._reduce()

    def _reduce(self) -> None:
        """Keep the distinct rows with the smallest hashes.

        A row of the final sample has been in the sample since its first occurrence, so its count is complete.
        """
        if len(self._pool) == 1:
            return
        every, counts, rows = (torch.cat(parts) for parts in zip(*self._pool, strict=True))
        hashes, member = torch.unique(every, return_inverse=True)
        count = counts.new_zeros(len(hashes)).index_add_(0, member, counts)[: self.most]
        first = torch.full_like(hashes, len(member))
        first.scatter_reduce_(0, member, torch.arange(len(member), device=member.device), "amin")
        self._pool = [(hashes[: self.most], count, rows[first[: self.most]])]
        self._pooled = len(count)
        if self._pooled == self.most:
            self._limit = int(self._pool[0][0][-1])


def hash_rows(rows: Tensor, factors: Tensor) -> Tensor:
    """64-bit hashes of rows, [b, d] of float64 -> [b]."""
    bits = rows.view(torch.int64)
    found = (bits >> 32).bitwise_xor_(bits).mul_(factors).sum(1)  # the low bits of small integers are all 0
    for factor in (-0xAE502812AA7333, -0x3B314601E57A13AD, 1):  # the last steps of MurmurHash3
        found = (found ^ ((found >> 33) & 0x7FFFFFFF)) * factor
    return found


def _extremes(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Minimum and maximum of every column, [d] each."""
    n, d = rows.shape
    beside = max(1, min(n, 1024 // d))  # rows that are joined to one, because torch is slow with few columns
    first = n - n % beside
    wide, rest = rows[:first].reshape(-1, beside * d), rows[first:]
    low, high = wide.amin(0).view(beside, d), wide.amax(0).view(beside, d)
    return torch.cat([low, rest]).amin(0), torch.cat([high, rest]).amax(0)


def quantiles(values: Tensor, counts: Tensor, n_bins: Tensor) -> Tensor:
    """Upper ends of bins with about equally many points.

    A value with more points than an average bin gets a bin of its own, and the other values share the other bins.
    Only integer arithmetic is used, so that the result is reproducible.

    Parameters
    ----------
    values : Tensor [f, s]
    counts : Tensor [s] of float64
        Number of occurrences of every value, or the sum of their weights.
    n_bins : Tensor [f] of int64
        Maximum number of bins of every column.

    Returns
    -------
    Tensor [f, bins]
        Upper ends in ascending order without that of the last bin, padded by infinity.
    """
    f, s = values.shape
    n_bins = n_bins.clamp(min=1)
    if not s:
        return values.new_full((f, 1), torch.inf)
    counts = whole(counts)
    values, order = sorted_rows(values)
    last = is_first(values.flip(1)).flip(1)  # the last of equal values
    up_to = counts[order].cumsum(1)
    before = torch.zeros_like(up_to)
    before[:, 1:] = torch.where(last, up_to, 0).cummax(1).values[:, :-1]
    mass = torch.where(last, up_to - before, 0)
    step = up_to[:, -1:]
    for _ in range(4):  # converges fast
        step = -(-mass.minimum(step).sum(1, keepdim=True) // n_bins[:, None])
    mass = mass.minimum(step)
    up_to = mass.cumsum(1)
    place = (up_to - mass) * n_bins[:, None] // up_to[:, -1:]
    ends = values.new_full((f, int(n_bins.max())), -torch.inf)
    ends.scatter_reduce_(1, place.clamp_(max=ends.shape[1] - 1), values.masked_fill(~last, -torch.inf), "amax")
    ends.scatter_(1, place[:, -1:], -torch.inf)
    return torch.where(ends == -torch.inf, torch.inf, ends).sort(dim=1).values


def _growing(n: int) -> Iterator[slice]:
    """A slice with the first rows, and one with all others."""
    yield slice(0, FIRST)
    if n > FIRST:
        yield slice(FIRST, n)


def _factors(d: int) -> list[int]:
    """Odd 64-bit factors, computed by SplitMix64."""
    result, mask = [], (1 << 64) - 1
    for column in range(1, d + 1):
        x = column * 0x9E3779B97F4A7C15 & mask
        x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & mask
        x = (x ^ x >> 27) * 0x94D049BB133111EB & mask
        x = (x ^ x >> 31) | 1
        result.append(x - (1 << 64) if x >> 63 else x)
    return result
