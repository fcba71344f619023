"""A table of which only the codes are kept, with what is known of the values that they stand for."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from neonxc.ranks import ALONE, Ranks
from neonxc.trees.bins import Bins, Ends
from neonxc.trees.codes import Block, Columns, code_type
from neonxc.trees.exact import rounding_to
from neonxc.trees.long_view import LongView
from neonxc.trees.sketch import Sketch

SHARE = 4  # an array of more than one part in so many of the memory of the machine goes to a file


@dataclass
class CodedTable:
    """What trees need of a table besides its codes.

    Attributes
    ----------
    n, d : int
    dtype : torch.dtype
        Of the values.
    columns : Columns
    count : Tensor [d, codes] of float64
        Points by code, of all processes.
    mean : Tensor [d, codes] of float64
        The mean of their values; 0 where there are none.
    within : Tensor [d] of float64
        Sum of squared differences of the points from the means of their codes.
    """

    n: int
    d: int
    dtype: torch.dtype
    columns: Columns
    count: Tensor
    mean: Tensor
    within: Tensor
    sparse = False
    few_entries = False

    @property
    def device(self) -> torch.device:
        """Where the codes are."""
        return self.mean.device

    def by_label(self, labels: Tensor, k: int, ranks: Ranks) -> Tensor:
        """Points of all processes by column, label and code, [d, k, codes]."""
        rows = torch.arange(self.n)
        result = torch.zeros(self.d, k, self.mean.shape[1], dtype=torch.float64)
        for block in self.columns.blocks:
            assert block.long is not None
            view = LongView(block.long, block.centers, block.n_bins)
            result[block.features, :, : block.n_bins] = view.histogram(rows, labels, k).to(torch.float64)
        return ranks.sum(result)

    def means(self, labels: Tensor, k: int, weight: Tensor | None = None, ranks: Ranks = ALONE) -> Tensor:
        """Mean of the points of every label, [k, d], as if they had the means of their codes."""
        assert weight is None
        counts = self.by_label(labels, k, ranks)
        return ((counts * self.mean[:, None]).sum(2) / counts.sum(2)).T.contiguous()

    def cost(self, centers: Tensor, labels: Tensor, weight: Tensor | None = None, ranks: Ranks = ALONE) -> float:
        """Sum of squared distances to the centers of their labels, if within a code all are spread alike."""
        assert weight is None
        counts = self.by_label(labels, len(centers), ranks)
        far = (self.mean[:, None] - centers.T.nan_to_num()[:, :, None]).square_()
        return float((counts * far).sum() + self.within.sum())

    def ends(self, ranks: Ranks = ALONE) -> tuple[Tensor, Tensor]:
        """The least and the greatest value of every column over all processes, [d]."""
        ends = self.columns.ends
        assert ends is not None
        return ends.low.amin(1), ends.high.amax(1)

    def spread(self) -> Tensor:
        """Standard deviation of every column, [d]; 1 for constant ones."""
        mass = self.count.sum(1)
        middle = (self.count * self.mean).sum(1) / mass
        between = (self.count * (self.mean - middle[:, None]).square()).sum(1)
        deviation = ((between + self.within) / mass).sqrt()
        return deviation.where(deviation > 0, 1.0)


class Moments:
    """Sums by code over the values of batches; none depends on the order of the rows.

    Parameters
    ----------
    sketch : Sketch
        Of all values that there will be.
    bins : Bins
        Those of the sketch.
    """

    def __init__(self, sketch: Sketch, bins: Bins) -> None:
        self.bins, self.whole = bins, sketch.whole
        self.count = torch.zeros_like(bins.upper)
        # A column of few values has one for every code, so that there is nothing else to find out about it
        self.many = (~sketch.few).nonzero()[:, 0]
        low, high = sketch.low[self.many, None], sketch.high[self.many, None]
        self.middle, extent = (low + high) / 2, (high - low) / 2
        self.units = [rounding_to(low, sketch.n * own) for own in (extent, extent.square())]
        self.ends = Ends.none(bins.some(self.many), sketch.whole[self.many])
        self.sum = torch.zeros_like(self.ends.low)
        self.squares = torch.zeros_like(low[:, 0])
        self._ones = torch.empty(0, 0, dtype=torch.float64)

    def add(self, values: Tensor) -> Tensor:
        """Take in values [d, b]; returns their codes, [d, b] of int64."""
        single = values.dtype in (torch.float32, torch.uint8, torch.int8, torch.int16)
        codes = self.bins.places(values.to(torch.float32 if single else torch.float64))
        codes.clamp_(max=self.bins.upper.shape[1] - 1)  # of values that were not there before, as is found out yet
        if self._ones.shape[1] < codes.shape[1]:
            self._ones = torch.ones(codes.shape, dtype=torch.float64)
        self.count.scatter_add_(1, codes, self._ones[:, : codes.shape[1]])
        own, numbers = codes, values
        if len(self.many) < len(values):
            own, numbers = codes.index_select(0, self.many), values.index_select(0, self.many)
        moved = numbers.to(torch.float64, copy=True)
        self.ends.add(own, moved)
        unit, square = self.units
        self.sum.scatter_add_(1, own, moved.sub_(self.middle).add_(unit).sub_(unit))
        self.squares += moved.square_().add_(square).sub_(square).sum(1)
        return codes

    def table(self, n: int, dtype: torch.dtype, columns: Columns, ranks: Ranks) -> CodedTable:
        """What is known of the table after the last batch; `n` rows are here."""
        count, total, squares = (ranks.sum(own) for own in (self.count, self.sum, self.squares))
        there, upper, many = count > 0, self.bins.upper, self.many
        ends = Ends(upper.where(there, torch.inf), upper.where(there, -torch.inf), self.whole)
        found = self.ends.merged(ranks)
        ends.low[many], ends.high[many] = found.low, found.high
        columns.ends = ends
        mean = upper.where(there, 0)
        own = total / count[many].clamp(min=1)
        within = torch.zeros(len(mean), dtype=torch.float64)
        within[many] = (squares - (count[many] * own.square()).sum(1)).clamp_(min=0)
        # Of bins of a single value, the mean is that value without any rounding
        single = found.low == found.high
        mean[many] = torch.where(single, found.low, (own + self.middle).where(there[many], 0))
        within[many] = within[many].where((single | ~there[many]).logical_not().any(1), 0)
        return CodedTable(n, len(mean), dtype, columns, count, mean, within)


class Codes:
    """Room for the codes of all points, by point: one array for columns of few bins, another for those of more.

    Parameters
    ----------
    n : int
    size : Tensor [d] of int64
        Bins of every column.
    """

    def __init__(self, n: int, size: Tensor) -> None:
        few = size <= 256
        self.size, self.groups = size, [group.nonzero()[:, 0] for group in (few, ~few) if bool(group.any())]
        self.stored = [room((n, len(own)), code_type(int(size[own].max()))) for own in self.groups]

    def put(self, first: int, codes: Tensor) -> None:
        """Keep the codes [d, b] of points from the `first` one on."""
        for group, stored in zip(self.groups, self.stored, strict=True):
            own = codes if len(group) == len(codes) else codes.index_select(0, group)
            # NumPy transposes single bytes several times as fast as PyTorch
            stored.numpy()[first : first + codes.shape[1]] = own.to(stored.dtype).numpy().T

    def columns(self, centers: Tensor) -> Columns:
        """The codes, with those of the centers [d, k]."""
        place = torch.empty(len(self.size), 2, dtype=torch.int64)
        blocks = []
        for number, (group, stored) in enumerate(zip(self.groups, self.stored, strict=True)):
            place[group, 0], place[group, 1] = number, torch.arange(len(group))
            most = int(self.size[group].max())
            blocks.append(Block(group, stored.T, centers[group], torch.ones_like(group), most, stored))
        return Columns([stored.T for stored in self.stored], centers, self.size, blocks, place)


def room(shape: tuple[int, int], dtype: torch.dtype) -> Tensor:
    """An array that is yet to be filled: in memory, or in a temporary file where it takes too much of that."""
    size = shape[0] * shape[1] * dtype.itemsize
    if size * SHARE <= memory():
        return torch.empty(shape, dtype=dtype)
    kind = torch.empty(0, dtype=dtype).numpy().dtype
    with tempfile.TemporaryFile() as file:  # it is gone with the array
        return torch.from_numpy(np.memmap(file, kind, "w+", shape=shape))


def memory() -> int:
    """Bytes of memory that the machine has; 8 GB where it does not say."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 8 << 30
