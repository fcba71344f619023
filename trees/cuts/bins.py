"""Bins of columns of many values, computed from one pass over the rows: from distinct values and a sample of rows.

=======================================  =======================================================================
a column with                            has
=======================================  =======================================================================
at most `max_bins` distinct values       one bin per value
more values                              about equally full bins, of at most `max_bins`, by the rows of the sample
=======================================  =======================================================================

Centers end bins in both, so that all of them can be separated.

The bins do not depend on the order of the rows, the batches or the processes, because the sample consists of the
distinct rows with the smallest hashes. The trees that are grown on them are therefore identical for a table in
memory, for batches of it, and for rows that are distributed over processes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from neonxc.common.memory import at_once
from neonxc.common.processes import Ranks
from neonxc.trees.cuts.exact_sums import integer_weights
from neonxc.trees.cuts.ranks import Rounding, distinct, is_first, sorted_with

# maximum number of rows, and of values, of the sample
ROWS = 1 << 16
NUMBERS = 1 << 24
# values that are sorted, and coded, at a time, which fit into a core's cache
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
        d, n_bins = edge.shape
        # padded to a power of two, the edges of all columns one after the other
        size = 1 << (n_bins - 1).bit_length()
        edges = pad(edge, (0, size - n_bins), value=torch.inf).flatten()
        start = torch.arange(0, len(edges), size, dtype=torch.int32, device=edge.device)[:, None]
        step = max(1, CACHED // d)
        for piece, piece_out in zip(values.split(step, 1), out.split(step, 1), strict=True):
            numbers = piece.to(torch.float64).flatten()
            position = start.repeat(1, piece.shape[1]).flatten()
            half = size // 2
            while half:
                is_less = edges.index_select(0, position + (half - 1)).lt_(numbers)  # 0 or 1: faster than booleans
                position.add_(is_less.to(torch.int32), alpha=half)
                half = half // 2
            piece_out.copy_(position.view(piece.shape) - start)
        return out


class SampledRows(NamedTuple):
    """Rows of a sample."""

    hashes: Tensor  # [s] of int64
    weights: Tensor  # [s] of float64
    rows: Tensor  # [s, d] of float64


class Ends(NamedTuple):
    """Where bins of some columns end."""

    known: Tensor  # [f, m], sorted values, with the centers
    high: Tensor  # [f, b], upper ends in ascending order, padded by infinity
    centers: Tensor  # [f, k], snapped

    def intervals(self, edge_type: torch.dtype) -> Tensor:
        """Return `edge`, `low` and `high` of :class:`Bins`, [3, f, b]; edges are midway to the next value."""
        high = self.high
        above = pad(self.known, (0, 1), value=torch.inf)
        above = above.gather(1, torch.searchsorted(self.known, high, right=True))
        middle = (high / 2 + above / 2).to(edge_type).to(torch.float64)  # also in the type of the table
        edge = middle.where((middle < above) | above.isinf(), high)
        low = pad(above, (1, -1), value=-torch.inf)
        return torch.stack([edge, low, high])


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
        self.max_rows = max(1, min(ROWS, NUMBERS // d))
        # Odd factors, one per column, of the hash of a row
        random = np.random.PCG64(0).random_raw(d).view(np.int64)
        self._factors = torch.from_numpy(random | 1).to(device)
        # Sorted distinct values, padded by infinity; a column with one more than `max_bins` has many
        self._values = torch.full((d, max_bins + 1), torch.inf, dtype=torch.float64, device=device)
        # Rows that may be in the sample
        no_rows = SampledRows(self._factors[:0], self._values[:0, 0], self._values.new_empty(0, d))
        self._pool = [no_rows]
        self._n_pooled = 0
        self._limit = torch.iinfo(torch.int64).max  # greater hashes are not in the sample

    @property
    def few(self) -> Tensor:
        """Whether a column has at most `max_bins` distinct values, [d]."""
        return self._values[:, -1].isinf()

    def add(self, values: Tensor, weight: Tensor | None = None) -> None:
        """Add rows, [b, d] of finite numbers, with weights [b] of float64 whose sums are exact; 1 by default."""
        if weight is None:
            weight = torch.ones_like(values[:, 0], dtype=torch.float64)
        # as many new values as there may be known ones: fewer would sort these again for little
        step = max(self.max_bins, PIECE // self.d)
        for piece, piece_weight in zip(values.split(step), weight.split(step), strict=True):
            rows = piece.to(torch.float64, copy=True).add_(0.0)  # turns -0.0 into 0.0
            self._add_values(rows)
            hashes = self._hashes(rows)
            chosen = (hashes <= self._limit).nonzero()[:, 0]
            self._pool.append(SampledRows(hashes[chosen], piece_weight[chosen], rows[chosen]))
            self._n_pooled += len(chosen)
            if self._n_pooled > 2 * self.max_rows:
                self.sample()

    def _add_values(self, rows: Tensor) -> None:
        """Add new values to the distinct ones of columns that have few."""
        for columns in _groups(self.few, self.max_bins + len(rows)):
            known = _without_padding(self._values[columns])
            merged = distinct(torch.cat([known, rows.T[columns]], 1))
            n_kept = min(merged.shape[1], self.max_bins + 1)
            self._values[columns, :n_kept] = merged[:, :n_kept]

    def _hashes(self, rows: Tensor) -> Tensor:
        """Hashes [b] of rows, which are equal for equal rows."""
        bits = rows.view(torch.int64)
        mixed = (bits >> 32).bitwise_xor_(bits)  # low bits of small integers are 0
        hashes = mixed.mul_(self._factors).sum(1)
        for factor in (-0xAE502812AA7333, -0x3B314601E57A13AD, 1):  # the last steps of MurmurHash3
            hashes = (hashes ^ ((hashes >> 33) & 0x7FFFFFFF)) * factor
        return hashes

    def merged(self, ranks: Ranks) -> Sketch:
        """Sketch of the rows of all processes."""
        if not ranks.alone:
            values = torch.cat(ranks.gather(self._values.T.contiguous()))
            self._values = distinct(values.T)[:, : self.max_bins + 1]
            hashes, weights, rows = map(ranks.gather, self.sample())
            self._pool = [SampledRows(*sample) for sample in zip(hashes, weights, rows, strict=True)]
        return self

    def bins(self, centers: Tensor, dtype: torch.dtype, n: Tensor) -> Bins:
        """Bins of all columns: one bin per value in columns of few values, at most `max_bins` in the others.

        The values of the centers [k, d] end bins as well, so that all centers can be separated; for this, a column
        of many values may have more bins, one more than there are centers. `dtype` is the type of the table, `n`
        is as for :class:`Rounding`.
        """
        sample = self.sample()
        rounding = Rounding.of(centers, dtype, n)
        centers = centers.to(torch.float64)
        edge_type = dtype if dtype.is_floating_point else torch.float64
        few = self.few
        blocks = []
        for columns in _groups(few, self.max_bins):
            ends = self._distinct_ends(columns, centers, rounding)
            blocks.append((columns, ends.intervals(edge_type), ends.centers))
        for columns in _groups(~few, len(sample.rows)):
            ends = self._quantile_ends(sample, columns, centers, rounding)
            blocks.append((columns, ends.intervals(edge_type), ends.centers))

        width = max(intervals.shape[2] for _, intervals, _ in blocks)
        all_intervals = torch.full((3, self.d, width), torch.inf, dtype=torch.float64, device=few.device)
        snapped = all_intervals.new_empty(self.d, len(centers))
        for columns, intervals, of_centers in blocks:
            all_intervals[:, columns, : intervals.shape[2]] = intervals
            snapped[columns] = of_centers
        edge, low, high = all_intervals
        size = high.isfinite().sum(1)
        return Bins(edge, low, high, size, torch.searchsorted(high, snapped))

    def _distinct_ends(self, columns: Tensor, centers: Tensor, rounding: Rounding) -> Ends:
        """Find the upper ends of bins of one value each."""
        values = _without_padding(self._values[columns])
        finite = values.where(values.isfinite(), values[:, :1])
        known, _, snapped = sorted_with(finite, centers.T[columns], rounding)
        high = _without_padding(distinct(torch.cat([values, snapped], 1)))
        return Ends(known, high, snapped)

    def _quantile_ends(self, sample: SampledRows, columns: Tensor, centers: Tensor, rounding: Rounding) -> Ends:
        """Find the upper ends of bins of about equally many points."""
        values = sample.rows.T[columns]
        known, order, snapped = sorted_with(values, centers.T[columns], rounding)
        is_value = order < values.shape[1]  # all others are centers
        ordered = known[is_value].view(values.shape)
        weights = integer_weights(sample.weights)[order[is_value]].view(values.shape)
        upper = quantiles(ordered, weights, max(1, self.max_bins - snapped.shape[1]))
        high = _without_padding(distinct(torch.cat([snapped, upper], 1)))
        return Ends(known, high, snapped)

    def sample(self) -> SampledRows:
        """The distinct rows with the smallest hashes, in ascending order of these, with their total weights.

        A row of the final sample has been in the sample since its first occurrence, so its weight is complete.
        """
        all_hashes, weights, rows = (torch.cat(parts) for parts in zip(*self._pool, strict=True))
        hashes, group = all_hashes.unique(return_inverse=True)
        weights = weights.new_zeros(len(hashes)).index_add_(0, group, weights)
        # one row of every group
        numbers = torch.arange(len(group), device=group.device)
        row_of_group = group.new_empty(len(hashes)).index_copy_(0, group, numbers)
        kept = slice(self.max_rows)
        sample = SampledRows(hashes[kept], weights[kept], rows[row_of_group[kept]])
        self._pool = [sample]
        self._n_pooled = len(sample.hashes)
        if self._n_pooled == self.max_rows:
            self._limit = int(sample.hashes[-1])
        return sample


def _groups(chosen: Tensor, n: int) -> list[Tensor]:
    """Divide the chosen columns, of a mask [d], into groups with so few entries that they fit into a cache."""
    columns = chosen.nonzero()[:, 0]
    step = at_once(8 * n, chosen.device, 8 * PIECE)
    return [columns[first : first + step] for first in range(0, len(columns), step)]


def _without_padding(values: Tensor) -> Tensor:
    """Leave out the last columns of sorted values [f, m] in which all are infinite."""
    return values[:, : int(values.isfinite().sum(1).max())].contiguous()


def quantiles(values: Tensor, weights: Tensor, n_bins: int) -> Tensor:
    """Upper ends, [f, n_bins], of bins with about equally many points, in any order and padded by infinity.

    A value with more points than an average bin gets a bin of its own, and the other values share the other bins.
    Only integer arithmetic is used, so that the result is reproducible.

    Parameters
    ----------
    values : Tensor [f, s]
        In ascending order.
    weights : Tensor [f, s] of int64
        Number of occurrences of every value, or the sum of their weights.
    n_bins : int
        Maximum number of bins of a column.
    """
    is_last = is_first(values.flip(1)).flip(1)  # of equal values
    up_to = weights.cumsum(1)
    total = up_to[:, -1:]
    before = pad(up_to.where(is_last, 0), (1, -1)).cummax(1).values
    mass = (up_to - before).where(is_last, 0)  # of the last of equal values; 0 for the others

    # The mass of a bin: values of more mass count as one bin, so that the other bins hold less than total / n_bins
    bin_mass = total
    for _ in range(4):  # converges fast
        bin_mass = -(-mass.minimum(bin_mass).sum(1, keepdim=True) // n_bins)  # rounded up
    mass = mass.minimum(bin_mass)

    up_to = mass.cumsum(1)
    bin = ((up_to - mass) * n_bins // up_to[:, -1:]).clamp_(max=n_bins - 1)
    ends = values.new_full((len(values), n_bins), -torch.inf)
    ends.scatter_reduce_(1, bin, values.masked_fill(~is_last, -torch.inf), "amax")
    return ends.where(ends.isfinite(), torch.inf)
