"""Bins of columns of many values, computed from one pass over the rows: from distinct values and a sample of rows.

The bins do not depend on the order of the rows, the batches or the processes, because the sample consists of the
distinct rows with the smallest hashes. The trees that are grown on them are therefore identical for a table in
memory, for batches of it, and for rows that are distributed over processes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from neonxc.common.processes import Ranks
from neonxc.trees.cuts.exact_sums import distinct, integer_weights, is_first, sorted_rows
from neonxc.trees.cuts.snapping import Rounding, sorted_with

# maximum number of rows, and of values, of the sample
ROWS = 1 << 16
NUMBERS = 1 << 24
# values that are hashed, and coded, at a time, which fit into a core's cache
PIECE = 1 << 17
CACHED = 1 << 15


@dataclass
class Bins:
    """Bins of columns, which are separated midway between neighbouring known values; their numbers are the codes.

    Attributes
    ----------
    edge : Tensor [d, bins] of float64
        Upper ends: a value belongs to the first bin whose upper end is not below it. Infinity from the last bin.
    low, high : Tensor [d, bins] of float64
        The least and the greatest known value in every bin: of the centers and, in a column of few distinct
        values, all values; otherwise of the sample.
    size : Tensor [d] of int64
        Number of bins of every column.
    centers : Tensor [d, k] of int64
        The bins of the centers, which end with their values.
    """

    edge: Tensor
    low: Tensor
    high: Tensor
    size: Tensor
    centers: Tensor

    @property
    def snapped(self) -> Tensor:
        """The values of the centers, [k, d]."""
        return self.high.gather(1, self.centers).T

    def code(self, values: Tensor, out: Tensor, columns: slice = slice(None)) -> Tensor:
        """Write the bins of values [columns, b] to `out`, by a binary search without branches, and return it."""
        edge = self.edge[columns]
        size = 1 << (edge.shape[1] - 1).bit_length()
        edges = pad(edge, (0, size - edge.shape[1]), value=torch.inf).flatten()
        start = torch.arange(0, len(edges), size, dtype=torch.int32, device=edge.device)[:, None]
        step = max(1, CACHED // len(edge))
        for own, result in zip(values.split(step, 1), out.split(step, 1), strict=True):
            numbers = own.to(torch.float64).flatten()
            found = start.repeat(1, own.shape[1]).flatten()
            half = size
            while half := half // 2:
                less = edges.index_select(0, found + (half - 1)).lt_(numbers)  # 0 or 1: faster than booleans
                found.add_(less.to(torch.int32), alpha=half)
            result.copy_(found.view(own.shape) - start)
        return out


class Sketch:
    """Distinct values of the columns that have few, and a sample of the rows.

    Parameters
    ----------
    d : int
        Number of columns.
    max_bins : int
        Columns with more distinct values than this are binned by quantiles of the sample.
    device : torch.device or str
    """

    def __init__(self, d: int, max_bins: int, device: torch.device | str = "cpu") -> None:
        self.d = d
        self.max_bins = max_bins
        self.most = max(1, min(ROWS, NUMBERS // d))
        self._factors = torch.from_numpy(np.random.PCG64(0).random_raw(d).view(np.int64) | 1).to(device)
        # Sorted distinct values, padded by infinity; a column with one more than `max_bins` has many
        self._values = torch.full((d, max_bins + 1), torch.inf, dtype=torch.float64, device=device)
        self._pool = [(self._factors[:0], self._values[:0, 0], self._values.new_empty(0, d))]
        self._pooled = 0
        self._limit = torch.iinfo(torch.int64).max

    @property
    def few(self) -> Tensor:
        """Whether a column has at most `max_bins` distinct values, [d]."""
        return self._values[:, -1].isinf()

    def add(self, values: Tensor, weight: Tensor | None = None) -> None:
        """Add rows, [b, d] of finite numbers, with weights [b] of float64 whose sums are exact; 1 by default."""
        weight = torch.ones_like(values[:, 0], dtype=torch.float64) if weight is None else weight
        step = max(1, PIECE // self.d)
        for piece, mass in zip(values.split(step), weight.split(step), strict=True):
            numbers = piece.to(torch.float64, copy=True).add_(0.0)  # turns -0.0 into 0.0
            few = self.few.nonzero()[:, 0]
            if len(few):
                known = self._values[few]
                own = numbers.T[few].contiguous()
                new = (known.gather(1, torch.searchsorted(known, own)) != own).any(1)
                both = distinct(torch.cat([known[new], own[new]], 1))
                self._values[few[new]] = both[:, : self.max_bins + 1]
            bits = numbers.view(torch.int64)
            hashes = (bits >> 32).bitwise_xor_(bits).mul_(self._factors).sum(1)  # low bits of small integers are 0
            for factor in (-0xAE502812AA7333, -0x3B314601E57A13AD, 1):  # the last steps of MurmurHash3
                hashes = (hashes ^ ((hashes >> 33) & 0x7FFFFFFF)) * factor
            chosen = (hashes <= self._limit).nonzero()[:, 0]
            self._pool.append((hashes[chosen], mass[chosen], numbers[chosen]))
            self._pooled += len(chosen)
            if self._pooled > 2 * self.most:
                self.sample()

    def merged(self, ranks: Ranks) -> Sketch:
        """Sketch of the rows of all processes."""
        if not ranks.alone:
            every = torch.cat(ranks.gather(self._values.T.contiguous()))
            self._values = distinct(every.T)[:, : self.max_bins + 1]
            self._pool = list(zip(*map(ranks.gather, self.sample()), strict=True))
        return self

    def bins(self, centers: Tensor, dtype: torch.dtype, n: Tensor) -> Bins:
        """Bins of all columns: one bin per value in columns of few values, at most `max_bins` in the others.

        The values of the centers [k, d] end bins as well, so that all centers can be separated; for this, a column
        of many values may have more bins, one more than there are centers. `dtype` is the type of the table, `n`
        is as for :class:`Rounding`.
        """
        _, counts, rows = self.sample()
        rounding = Rounding.of(centers, dtype, n)
        centers = centers.T.to(torch.float64, copy=True).contiguous()
        kind = dtype if dtype.is_floating_point else torch.float64
        found = []
        for part in torch.arange(self.d, device=rows.device).split(max(1, NUMBERS // 4 // len(rows))):
            sample = rows[:, part].T.contiguous()
            few = self.few[part, None]
            values = self._values[part].where(few, torch.inf)
            finite = values.where(values.isfinite(), sample[:, :1])
            known, _, centers[part] = sorted_with(torch.cat([finite, sample], 1), centers[part], rounding)
            ends = quantiles(sample, counts, max(1, self.max_bins - centers.shape[1]))
            high = distinct(torch.cat([values, centers[part], ends.masked_fill(few, torch.inf)], 1))
            above = pad(known, (0, 1), value=torch.inf).gather(1, torch.searchsorted(known, high, right=True))
            middle = (high / 2 + above / 2).to(kind).to(torch.float64)
            edge = middle.where((middle < above) | above.isinf(), high)
            found.append(torch.stack([edge, pad(above, (1, -1), value=-torch.inf), high]))
        every = torch.cat(found, 1)
        size = every[2].isfinite().sum(1)
        edge, low, high = every[..., : int(size.max())].contiguous()
        return Bins(edge, low, high, size, torch.searchsorted(high, centers))

    def sample(self) -> tuple[Tensor, Tensor, Tensor]:
        """The distinct rows with the smallest hashes: hashes in ascending order, total weights, rows of float64.

        A row of the final sample has been in the sample since its first occurrence, so its weight is complete.
        """
        every, counts, rows = (torch.cat(parts) for parts in zip(*self._pool, strict=True))
        hashes, member = every.unique(return_inverse=True)
        counts = counts.new_zeros(len(hashes)).index_add_(0, member, counts)
        one = member.new_empty(len(hashes)).index_copy_(0, member, torch.arange(len(member), device=member.device))
        found = hashes[: self.most], counts[: self.most], rows[one[: self.most]]
        self._pool = [found]
        self._pooled = len(found[0])
        if self._pooled == self.most:
            self._limit = int(found[0][-1])
        return found


def quantiles(values: Tensor, counts: Tensor, n_bins: int) -> Tensor:
    """Upper ends, [f, n_bins], of bins with about equally many points, in any order and padded by infinity.

    A value with more points than an average bin gets a bin of its own, and the other values share the other bins.
    Only integer arithmetic is used, so that the result is reproducible.

    Parameters
    ----------
    values : Tensor [f, s]
    counts : Tensor [s] of float64
        Number of occurrences of every value, or the sum of their weights.
    n_bins : int
        Maximum number of bins of a column.
    """
    values, order = sorted_rows(values)
    last = is_first(values.flip(1)).flip(1)  # the last of equal values
    up_to = integer_weights(counts)[order].cumsum(1)
    before = pad(up_to.where(last, 0), (1, -1)).cummax(1).values
    mass = (up_to - before).where(last, 0)
    step = up_to[:, -1:]
    for _ in range(4):  # converges fast
        step = -(-mass.minimum(step).sum(1, keepdim=True) // n_bins)
    mass = mass.minimum(step)
    up_to = mass.cumsum(1)
    place = ((up_to - mass) * n_bins // up_to[:, -1:]).clamp_(max=n_bins - 1)
    ends = values.new_full((len(values), n_bins), -torch.inf)
    ends.scatter_reduce_(1, place, values.masked_fill(~last, -torch.inf), "amax")
    return ends.where(ends.isfinite(), torch.inf)
