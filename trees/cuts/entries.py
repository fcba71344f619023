"""Codes of sparse columns: codes of the stored entries, and one code per column for all zeros.

The codes of all columns are numbered consecutively; these numbers are called *bins* here. Points without an entry
in a column are never listed. Their number is the number of the node's points minus that of its entries.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from neonxc.trees.cuts.exact_sums import whole
from neonxc.trees.cuts.snapping import Rounding, snap
from neonxc.trees.fit.points import DataMatrix


@dataclass
class SparseEntries:
    """The nonzero entries of a node's points in the columns that can be cut at the node.

    Attributes
    ----------
    n, n_all : int
        Number of points of the node, and of the table.
    features : Tensor [f] of int64
        The columns, in ascending order.
    start : Tensor [f + 1] of int64
        Position of the first entry of every column.
    row, bin : Tensor [entries] of int64
        Point and bin of every entry, column by column.
    first : Tensor [f + 1] of int64
        First bin of every column.
    code : Tensor [bins] of int64
        Code of the table for every bin.
    zero : Tensor [f] of int64
        Bin of the value 0 in every column.
    which : Tensor [c] of int64
        Indices of the node's centers, in ascending order.
    centers : Tensor [f, c] of int64
        Bins of the node's centers.
    """

    n: int
    n_all: int
    features: Tensor
    start: Tensor
    row: Tensor
    bin: Tensor
    first: Tensor
    code: Tensor
    zero: Tensor
    which: Tensor
    centers: Tensor
    _places: tuple[Tensor, Tensor] | None = field(default=None, init=False, repr=False)

    def places(self, rows: Tensor) -> Tensor:
        """Position in `rows` of every entry's point, or -1; the last result is cached."""
        if self._places is None or self._places[0] is not rows:
            place = torch.full((self.n_all,), -1)
            place[rows] = torch.arange(len(rows))
            self._places = rows, place.index_select(0, self.row)
        return self._places[1]

    def subset(self, selected: Tensor, n: int, which: Tensor) -> SparseEntries:
        """The entries of a subset of the points, in the columns that can still be cut.

        Parameters
        ----------
        selected : Tensor [all points] of bool
            Mask of the points.
        n : int
            Number of selected points.
        which : Tensor of int64
            Indices of the selected centers, in ascending order.
        """
        centers = self.centers.index_select(1, torch.searchsorted(self.which, which))
        kept = selected.index_select(0, self.row)
        held = torch.zeros(len(self.code), dtype=torch.bool)
        held[self.bin.masked_select(kept)] = True
        if len(which):
            may_be_cut = centers.amin(1) < centers.amax(1)
        else:
            held[self.zero] |= _counted(kept, self.start) < n
            may_be_cut = _counted(held, self.first) > 1
        held[self.zero] = True
        held[centers] = True
        held &= may_be_cut.repeat_interleave(self.first.diff())
        kept &= may_be_cut.repeat_interleave(self.start.diff())
        number, stay = held.cumsum(0).sub_(1), kept.nonzero()[:, 0]
        return SparseEntries(
            n,
            self.n_all,
            self.features[may_be_cut],
            _starts(_counted(kept, self.start)[may_be_cut]),
            self.row.index_select(0, stay),
            number.index_select(0, self.bin.index_select(0, stay)),
            _starts(_counted(held, self.first)[may_be_cut]),
            self.code.masked_select(held),
            number[self.zero[may_be_cut]],
            which,
            number[centers[may_be_cut]],
        )

    def among(self, features: Tensor) -> Tensor:
        """Positions in ``self.features`` of the given columns, without those that can't be cut."""
        place = torch.searchsorted(self.features, features).clamp_(max=max(len(self.features) - 1, 0))
        return place[self.features[place] == features] if len(self.features) else place[:0]


@dataclass
class SparseColumns:
    """The codes of a sparse table.

    Attributes
    ----------
    entries : SparseEntries
        Entries of all points in all columns.
    """

    entries: SparseEntries
    ends = None

    @property
    def size(self) -> Tensor:
        """Number of codes of every column, [d]."""
        return self.entries.first.diff()

    @cached_property
    def centers(self) -> Tensor:
        """Codes of the centers, [d, k]."""
        return self.entries.centers - self.entries.first[:-1, None]

    def column(self, feature: int) -> Tensor:
        """Codes of all points in a column, [n]."""
        entries, own = self.entries, slice(*self.entries.start[feature : feature + 2].tolist())
        codes = entries.zero[feature].repeat(entries.n).index_copy_(0, entries.row[own], entries.bin[own])
        return codes - entries.first[feature]

    def at(self, feature: Tensor, rows: Tensor) -> Tensor:
        """Code of every point in a column that is given for that point, [points]."""
        result = torch.empty_like(rows)
        for column in feature.unique().tolist():
            mask = feature == column
            result[mask] = self.column(column).index_select(0, rows[mask])
        return result

    def entries_of(self, rows: Tensor, which: Tensor) -> SparseEntries:
        """Entries of the points `rows`, in the columns that separate these points or the centers `which`."""
        selected = torch.zeros(self.entries.n, dtype=torch.bool)
        selected[rows] = True
        return self.entries.subset(selected, len(rows), which)


def code_sparse(
    table: DataMatrix,
    centers: Tensor,
    max_bins: int | None = None,
    weight: Tensor | None = None,
    n: Tensor | None = None,
) -> tuple[SparseColumns, Tensor]:
    """Compute the codes of a sparse table; as :func:`neonxc.trees.cuts.codes.code_columns`."""
    (k, d), data = centers.shape, table.data
    start = torch.from_numpy(data.indptr).to(torch.int64)
    n_entries, every = start.diff(), torch.arange(d)
    own, row = torch.from_numpy(data.data).to(torch.float64), torch.from_numpy(data.indices).to(torch.int64)
    values = torch.cat([own, torch.zeros(d, dtype=torch.float64), centers.T.flatten()])
    column = torch.cat([every.repeat_interleave(n_entries), every, every.repeat_interleave(k)])
    order = values.argsort(stable=True)
    order = order[column[order].argsort(stable=True)]
    values, column = values[order], column[order]
    begin = _starts(n_entries + 1 + k)  # where every column begins in that order
    place = (order >= len(own) + d).nonzero()[:, 0]
    which = order[place] - len(own) - d
    rounding = Rounding.of(centers, table.dtype, torch.tensor(table.n) if n is None else n)
    found = torch.empty(d * k, dtype=torch.float64)
    found[which] = snap(values, place, begin, rounding)
    new = torch.ones_like(order, dtype=torch.bool)
    new[1:] = (values[1:] != values[:-1]) | (column[1:] != column[:-1])
    if max_bins is not None:
        mass = whole(torch.ones(table.n, dtype=torch.float64) if weight is None else weight)
        present = mass.index_select(0, row)
        absent = mass.sum() - _starts(present)[start].diff()
        mass = torch.cat([present, absent, absent.new_zeros(d * k)])[order]
        new = _quantiles(new, column, begin, mass, order >= len(own) + d, max_bins)
    rank = new.cumsum(0).sub_(1)
    bins = torch.empty_like(rank).index_copy_(0, order, rank)
    first = torch.cat([rank[begin[:-1]], rank[-1:] + 1])
    entries = SparseEntries(
        table.n,
        table.n,
        every,
        start,
        row,
        bins[: len(own)],
        first,
        torch.arange(int(first[-1])) - first[:-1].repeat_interleave(first.diff()),
        bins[len(own) : len(own) + d],
        torch.arange(k),
        bins[len(own) + d :].view(d, k),
    )
    return SparseColumns(entries), found.view(d, k).T


def _quantiles(new: Tensor, column: Tensor, begin: Tensor, mass: Tensor, center: Tensor, max_bins: int) -> Tensor:
    """Mask of the values at which a code begins, with about `max_bins` codes of about equal mass per column.

    A code also begins after every center, so that all centers can be separated, as in :meth:`Sketch.bins`.
    """
    center = center & torch.cat([new[1:], new[:1]])  # the last of equal values
    before = _starts(mass)[:-1]
    place = (before - before[begin[:-1]][column])[new][new.cumsum(0) - 1]
    total = _starts(mass)[begin].diff()
    quantile = place * (max_bins - _counted(center, begin)).clamp(min=1)[column] // total[column]
    wide = torch.ones_like(new)
    wide[1:] = (quantile[1:] != quantile[:-1]) | (column[1:] != column[:-1]) | center[:-1]
    return torch.where((_counted(new, begin) > max_bins)[column], wide, new)


def _starts(lengths: Tensor) -> Tensor:
    """Start of every part if parts of the given lengths are concatenated, and the end of the last one."""
    starts = lengths.new_zeros(len(lengths) + 1, dtype=torch.int64)
    torch.cumsum(lengths, 0, dtype=torch.int64, out=starts[1:])
    return starts


def _counted(flags: Tensor, start: Tensor) -> Tensor:
    """Number of flags that are set in every part."""
    return _starts(flags).index_select(0, start).diff()
