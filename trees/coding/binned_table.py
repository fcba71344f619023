"""A table that is stored as the bins of its values, and the statistics of the values in every bin."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

import neonxc.trees.columns.sums as sums
from neonxc.common.processes import ALONE, Ranks
from neonxc.trees.coding.bins import BinEnds, Bins
from neonxc.trees.coding.codes import CodedColumns, ColumnBlock, transposed
from neonxc.trees.coding.exact import rounding_constant
from neonxc.trees.coding.sketch import Sketch
from neonxc.trees.coding.value_ranks import code_type
from neonxc.trees.columns.columns import ROWS

SHARE = 4  # arrays of more than 1 / SHARE of the machine's memory are stored in a temporary file


@dataclass
class BinnedTable:
    """A table that was read batch by batch and whose values are known only by their bins.

    It replaces :class:`~neonxc.trees.coding.table.Table` in a problem. The code of a value is its bin.

    Attributes
    ----------
    n, d : int
        Number of points of this process, and of columns.
    dtype : torch.dtype
        Type of the values.
    columns : CodedColumns
    count : Tensor [d, codes] of float64
        Number of points of every code, over all processes.
    mean : Tensor [d, codes] of float64
        Mean of the values of every code; 0 for codes without points.
    within : Tensor [d] of float64
        Sum of squared differences between the values and the means of their codes.
    """

    n: int
    d: int
    dtype: torch.dtype
    columns: CodedColumns
    count: Tensor
    mean: Tensor
    within: Tensor
    sparse = False
    few_entries = False

    @property
    def device(self) -> torch.device:
        """Device of the codes."""
        return self.mean.device

    def by_label(self, labels: Tensor, k: int, ranks: Ranks) -> Tensor:
        """Number of points of all processes by column, label and code, [d, k, codes]."""
        result = torch.zeros(self.d, k, self.mean.shape[1], dtype=torch.float64)
        for block in self.columns.blocks:
            assert block.row_major is not None
            for codes, own in zip(block.row_major.split(ROWS), labels.split(ROWS), strict=True):
                counts = sums.histogram(transposed(codes), block.n_bins, own, k)
                result[block.features, :, : block.n_bins] += counts.to(torch.float64)
        return ranks.sum(result)

    def means(self, labels: Tensor, k: int, weight: Tensor | None = None, ranks: Ranks = ALONE) -> Tensor:
        """Mean of the points of every label, [k, d], with every value replaced by the mean of its code."""
        assert weight is None
        counts = self.by_label(labels, k, ranks)
        return ((counts * self.mean[:, None]).sum(2) / counts.sum(2)).T.contiguous()

    def cost(self, centers: Tensor, labels: Tensor, weight: Tensor | None = None, ranks: Ranks = ALONE) -> float:
        """Sum of squared distances of the points to the centers of their labels.

        It assumes that the values of a code have the same distribution in all labels.
        """
        assert weight is None
        counts = self.by_label(labels, len(centers), ranks)
        far = (self.mean[:, None] - centers.T.nan_to_num()[:, :, None]).square_()
        return float((counts * far).sum() + self.within.sum())

    def ends(self, ranks: Ranks = ALONE) -> tuple[Tensor, Tensor]:
        """Minimum and maximum of every column over all processes, [d] each."""
        ends = self.columns.ends
        assert ends is not None
        return ends.low.amin(1), ends.high.amax(1)

    def spread(self) -> Tensor:
        """Standard deviation of every column, [d]; 1 for constant columns."""
        mass = self.count.sum(1)
        middle = (self.count * self.mean).sum(1) / mass
        between = (self.count * (self.mean - middle[:, None]).square()).sum(1)
        deviation = ((between + self.within) / mass).sqrt()
        return deviation.where(deviation > 0, 1.0)


class BinMoments:
    """Sums over the values of every bin, which are accumulated batch by batch and do not depend on their order.

    Parameters
    ----------
    sketch : Sketch
        Sketch of all values, from an earlier pass.
    bins : Bins
        The bins of the sketch.
    """

    def __init__(self, sketch: Sketch, bins: Bins) -> None:
        self.bins, self.whole = bins, sketch.whole
        self.count = torch.zeros_like(bins.upper)
        # In a column of few distinct values, every code stands for a single value that is known already
        self.many = (~sketch.few).nonzero()[:, 0]
        low, high = sketch.low[self.many, None], sketch.high[self.many, None]
        self.middle, extent = (low + high) / 2, (high - low) / 2
        self.units = [rounding_constant(low, sketch.n * own) for own in (extent, extent.square())]
        self.ends = BinEnds.empty(bins.subset(self.many), sketch.whole[self.many])
        self.sum = torch.zeros_like(self.ends.low)
        self.squares = torch.zeros_like(low[:, 0])
        self._ones = torch.empty(0, 0, dtype=torch.float64)

    def add(self, values: Tensor) -> Tensor:
        """Add a batch of values [d, b]; return their codes, [d, b] of int64."""
        single = values.dtype in (torch.float32, torch.uint8, torch.int8, torch.int16)
        codes = self.bins.places(values.to(torch.float32 if single else torch.float64))
        codes.clamp_(max=self.bins.upper.shape[1] - 1)  # values missing in the first pass; an error follows later
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

    def table(self, n: int, dtype: torch.dtype, columns: CodedColumns, ranks: Ranks) -> BinnedTable:
        """The table after the last batch; `n` is the number of rows of this process."""
        count, total, squares = (ranks.sum(own) for own in (self.count, self.sum, self.squares))
        present, upper, many = count > 0, self.bins.upper, self.many
        ends = BinEnds(upper.where(present, torch.inf), upper.where(present, -torch.inf), self.whole)
        found = self.ends.merged(ranks)
        ends.low[many], ends.high[many] = found.low, found.high
        columns.ends = ends
        mean = upper.where(present, 0)
        own = total / count[many].clamp(min=1)
        within = torch.zeros(len(mean), dtype=torch.float64)
        within[many] = (squares - (count[many] * own.square()).sum(1)).clamp_(min=0)
        # The mean of a bin with a single distinct value is that value, without rounding errors
        single = found.low == found.high
        mean[many] = torch.where(single, found.low, (own + self.middle).where(present[many], 0))
        within[many] = within[many].where((single | ~present[many]).logical_not().any(1), 0)
        return BinnedTable(n, len(mean), dtype, columns, count, mean, within)


class CodeStorage:
    """Storage of the codes of all points by row: one array for columns of up to 256 bins, another for the rest.

    Parameters
    ----------
    n : int
        Number of points.
    size : Tensor [d] of int64
        Number of bins of every column.
    """

    def __init__(self, n: int, size: Tensor) -> None:
        few = size <= 256
        self.size, self.groups = size, [group.nonzero()[:, 0] for group in (few, ~few) if bool(group.any())]
        self.stored = [allocate((n, len(own)), code_type(int(size[own].max()))) for own in self.groups]

    def put(self, first: int, codes: Tensor) -> None:
        """Store the codes [d, b] of the points from number `first` on."""
        for group, stored in zip(self.groups, self.stored, strict=True):
            own = codes if len(group) == len(codes) else codes.index_select(0, group)
            # NumPy transposes bytes several times faster than PyTorch
            stored.numpy()[first : first + codes.shape[1]] = own.to(stored.dtype).numpy().T

    def columns(self, centers: Tensor) -> CodedColumns:
        """The stored codes as columns, with the codes of the centers [d, k]."""
        place = torch.empty(len(self.size), 2, dtype=torch.int64)
        blocks = []
        for number, (group, stored) in enumerate(zip(self.groups, self.stored, strict=True)):
            place[group, 0], place[group, 1] = number, torch.arange(len(group))
            most = int(self.size[group].max())
            blocks.append(ColumnBlock(group, stored.T, centers[group], torch.ones_like(group), most, stored))
        return CodedColumns([stored.T for stored in self.stored], centers, self.size, blocks, place)


def allocate(shape: tuple[int, int], dtype: torch.dtype) -> Tensor:
    """An uninitialized array: in memory or, if it is too large, in a temporary file."""
    size = shape[0] * shape[1] * dtype.itemsize
    if size * SHARE <= machine_memory():
        return torch.empty(shape, dtype=dtype)
    kind = torch.empty(0, dtype=dtype).numpy().dtype
    with tempfile.TemporaryFile() as file:  # the file is deleted together with the array
        return torch.from_numpy(np.memmap(file, kind, "w+", shape=shape))


def machine_memory() -> int:
    """Size of the machine's memory in bytes; 8 GB if it is unknown."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 8 << 30
