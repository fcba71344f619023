"""Tables read batch by batch: their sources, their bins and codes, and what a fitted tree needs of them.

A fit reads all batches at least three times, and keeps a code per number:

1. The sketch of every column, from which its bins are made, and a sample of the points.
2. The number of the bin of every value. Unless every point has a label by then, its nearest center; and distances
   to the centers, if growing needs them.
3. Means, variances and cost of the fitted tree's clusters, and the values next to its thresholds.
"""

from __future__ import annotations

import json
import mmap
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
import torch
from torch import Tensor

from neonxc.common.arguments import check_columns
from neonxc.common.memory import CPU, at_once
from neonxc.common.processes import ALONE, Ranks
from neonxc.common.types import SupportsArrow, TableLike
from neonxc.data.distributed import common_type
from neonxc.data.frames import as_pandas
from neonxc.data.labels import are_labels
from neonxc.data.preparation import on_suspects
from neonxc.data.table import Table
from neonxc.trees.cuts.bins import Sketch
from neonxc.trees.cuts.codes import CodedColumns, stored_columns
from neonxc.trees.cuts.exact_sums import counts_by_label, rounding_shift
from neonxc.trees.cuts.ranks import code_type
from neonxc.trees.fit.points import Dense, check_finite, nearest_values
from neonxc.trees.tree import ThresholdTree

BatchesLike: TypeAlias = Callable[[], Iterable[TableLike]] | SupportsArrow
"""Batches of a table: a function that returns an iterator over them, or a relation of DuckDB."""

LARGE = CPU  # memory-mapped arrays of at least this number of bytes are read batch by batch
COPIES = 32  # bytes of working memory per number of a batch
MAX_BINS = 256  # bins of a column, so that a code is one byte
LARGEST = 1 << 32  # bytes of an array; larger ones are stored in a temporary file


class BatchSource:
    """A table that can be read repeatedly, one batch of rows at a time.

    Parameters
    ----------
    open : callable
        Function without arguments that returns an iterator of batches [b, d]: arrays, tensors or data frames; or a
        dataset of PyArrow, a relation of DuckDB or another object with an Arrow stream.
    names : sequence of str, optional
        The columns that are selected from batches that are data frames. Default: those of the first batch.

    Attributes
    ----------
    names : list of str or None
        Names of the columns, which are known once the first batch has been read.
    n : int
        Number of rows, which is known once all batches have been read; -1 before.
    notes : list of str
        On columns that may number or weight the rows, as the first batch tells.
    """

    def __init__(self, open: Callable[[], Any], names: Sequence[str] | None = None) -> None:
        self._open = open
        self.names: list[str] | None = None if names is None else list(names)
        self.notes: list[str] = []
        self.n = -1
        self._checksum = 0
        self._kind = ""

    def __iter__(self) -> Iterator[Tensor]:
        """Yield checked batches as tensors on the CPU; large batches are split to fit into memory.

        Raises
        ------
        ValueError
            If a batch is not a table of finite numbers, or has other columns than the previous ones, or if the
            rows are not those that were read the first time.
        """
        n = 0
        checksum = 0
        for values in self._checked():
            n += len(values)
            checksum = zlib.crc32(values.sum(1).numpy().data, checksum)
            if -1 < self.n < n:
                break
            yield values
        if self.n > -1 and (n, checksum) != (self.n, self._checksum):
            raise ValueError(
                f"X gave {self.n} points when it was first read, and {n} or others when it was read again; a "
                "function needs to return a new iterator over the same batches each time it is called"
            )
        self.n = n
        self._checksum = checksum

    def for_sklearn(self, values: Tensor) -> np.ndarray | pd.DataFrame:
        """Return the points of a batch as scikit-learn takes them, with the names of the columns."""
        if self.names is None:
            return values.numpy()
        return pd.DataFrame(values.numpy(), columns=self.names)

    def leaf_of(self, tree: ThresholdTree) -> Tensor:
        """Return the leaf of every point, [n]."""
        leaves = [torch.empty(0, dtype=torch.int64)]
        for values in self:
            leaves.append(tree.leaf_of(values))
        return torch.cat(leaves)

    def _checked(self) -> Iterator[Tensor]:
        batches = self._open()
        if hasattr(batches, "to_batches"):  # of a dataset of PyArrow
            batches = batches.to_batches()
        elif hasattr(batches, "__arrow_c_stream__"):  # of DuckDB and others
            batches = pa.RecordBatchReader.from_stream(batches)
        if not hasattr(batches, "__iter__"):
            raise ValueError(
                "X as a function needs to return an iterator of batches each time it is called, got "
                f"{type(batches).__name__}"
            )
        for number, batch in enumerate(map(as_pandas, batches)):
            if not np.shape(batch)[0]:
                continue
            name = f"batch {number} of X"
            table = Table.read(batch, name=name)
            if self.names is not None:
                table = table.by_name(self.names)
            values = table.numbers.cpu()
            if values.ndim != 2:
                raise ValueError(f"{name} needs shape [points, features], got {list(values.shape)}")
            kind = f"{values.shape[1]} columns of {values.dtype}"
            if not self._kind:
                self._kind = kind
                self.names = table.names or self.names
                self.notes = [] if table.names is None else on_suspects(table.data)
            if kind != self._kind:
                raise ValueError(f"{name} has {kind}, the previous ones have {self._kind}")
            yield from values.split(at_once(COPIES * values.shape[1]))


def batch_source(X: Any, columns: Sequence[str] | None = None, shard: bool = False) -> BatchSource | None:
    """Create a source of batches for X; None if X is a table in memory, or a file that is to be read at once.

    Parameters
    ----------
    X : numpy.memmap or Parquet file of at least 128 MB, folder of these, dataset of PyArrow, callable, or other
    columns : sequence of str, optional
        The columns that are selected; of files, only these are read.
    shard : bool
        Whether other processes have other rows: they must not differ in how they read files of different sizes.
    """
    if isinstance(X, np.memmap) and X.ndim == 2 and X.nbytes >= LARGE:
        return BatchSource(partial(_of_memmap, X), columns)
    if isinstance(X, str | PathLike):
        path = Path(X)
        if not _in_batches(path, shard):
            return None
        return BatchSource(partial(_of_parquet, path, columns), columns)
    if type(X).__module__ == "pyarrow._dataset":
        return BatchSource(X.to_batches, columns)
    if callable(X) and not hasattr(X, "__array__") and not hasattr(X, "shape"):
        return BatchSource(X, columns)
    return None


def _of_memmap(X: np.memmap[Any, Any]) -> Iterator[np.ndarray]:
    """Yield batches of a memory-mapped array, and give back its pages once they have been copied."""
    base: Any = X
    while isinstance(base, np.ndarray):
        base = base.base
    step = at_once(COPIES * X.shape[1])
    for first in range(0, len(X), step):
        yield np.array(X[first : first + step])
        # Free the memory of the pages that were read, unless they are the only place of changes (copy-on-write)
        with suppress(AttributeError, OSError, ValueError):
            if X.mode != "c":
                base.madvise(mmap.MADV_DONTNEED)


def _in_batches(path: Path, shard: bool) -> bool:
    """Whether a path is a folder, or a Parquet file that is a shard, or whose numbers take much memory."""
    if not path.is_file():
        return path.is_dir()
    from pyarrow import parquet  # which tables in memory do without

    try:
        metadata = parquet.read_metadata(path)
    except (OSError, pa.ArrowException):
        return False
    return shard or metadata.num_rows * metadata.num_columns * 8 >= LARGE


def _of_parquet(path: Path, columns: Sequence[str] | None) -> Iterator[Any]:
    """Yield batches of a file, or of the files of a folder sorted by name, except hidden and metadata files."""
    from pyarrow import parquet  # as above

    if path.is_file():
        files = [path]
    else:
        files = sorted(file for file in path.rglob("*.parquet") if not file.name.startswith((".", "_")))
    if not files:
        raise ValueError(f"X is a path, but there is no file or folder with files *.parquet: {str(path)!r}")
    names = None if columns is None else [*columns]
    for file in files:
        try:
            opened = parquet.ParquetFile(file)
        except ValueError as error:
            raise ValueError(f"X: {str(file)!r} can't be read as a Parquet file: {error}") from None
        with opened:
            check_columns(str(file), names or [], opened.schema_arrow.names)
            width = len(names or opened.schema_arrow)
            size = at_once(COPIES * max(1, width))
            for batch in opened.iter_batches(size, columns=names):
                if names is not None:
                    batch = batch.select(names)  # in their order
                yield batch


class Batches:
    """A table that is read batch by batch: for its sketch, for its codes, and once more under the fitted tree.

    It replaces :class:`~neonxc.trees.fit.points.Dense` in a problem, where only the codes are looked at.

    Parameters
    ----------
    source : BatchSource
    labels : ndarray [n] or None
        Points of noise are left out.
    max_bins : int
    ranks : Ranks
        The processes that share the rows.

    Attributes
    ----------
    n, d : int
        Number of points of this process that are not noise, and of columns.
    dtype : torch.dtype
        Type of the values.
    selected : Tensor or None
        Indices of the points that are not noise; None if these are all points.
    sketch : Sketch
        Sketch of the points of all processes.
    """

    def __init__(self, source: BatchSource, labels: np.ndarray | None, max_bins: int, ranks: Ranks) -> None:
        self.source = source
        self.ranks = ranks
        self.selected = None
        if labels is not None:
            is_labelled = are_labels(labels)
            if not is_labelled.all():
                self.selected = torch.from_numpy(is_labelled).nonzero()[:, 0]

        # the first pass
        sketch = None
        dtype = torch.float64
        ends = np.array(np.inf)  # minimum and minus the maximum of every column
        with ranks.agreed():
            for _, values in self:
                sketch = sketch or Sketch(values.shape[1], max_bins)
                dtype = values.dtype
                sketch.add(values)
                if len(values):  # NumPy is faster with few columns
                    low = values.numpy().min(0)
                    high = values.numpy().max(0).astype(np.float64)
                    ends = np.minimum(ends, [low, -high])
            if labels is not None and labels.shape != (source.n,):
                raise ValueError(f"labels needs one label per point, shape ({source.n},), got {labels.shape}")
            self.n = source.n if self.selected is None else len(self.selected)
            if ranks.alone and not self.n:
                raise ValueError("X has no points, or labels has only noise (-1)")

        # what all processes share; a process may have no batches
        own_d = 0 if sketch is None else sketch.d
        d = int(ranks.max(torch.tensor(own_d)))
        sketch = sketch or Sketch(d, max_bins)
        self.d = sketch.d
        names_of_ranks = [json.loads(text) for text in ranks.texts(json.dumps(source.names))]
        source.names = source.names or next(filter(None, names_of_ranks), None)
        ranks.same(columns=self.d, **{"the names of columns": source.names})
        self.dtype = common_type(self.n, dtype, ranks)
        self.device = torch.device("cpu")
        self.sketch = sketch.merged(ranks)
        low, high = ranks.min(torch.from_numpy(np.broadcast_to(ends, (2, self.d)).copy()))
        self._middle = (low - high) / 2
        self._extent = -(low + high) / 2

    def __iter__(self) -> Iterator[tuple[slice, Tensor]]:
        """Yield the positions of a batch's points among the selected ones, and their values [b, d]."""
        first = 0
        for values in self.source:
            ends = [first, first + len(values)]
            if self.selected is not None:
                ends = torch.searchsorted(self.selected, torch.tensor(ends)).tolist()
            chunk = slice(*ends)
            if self.selected is None:
                yield chunk, values
            else:
                yield chunk, values[self.selected[chunk] - first]
            first += len(values)

    def sample(self) -> tuple[Tensor, Tensor]:
        """Return a sample of the distinct points, [s, d], and how often each occurs, [s]."""
        _, counts, rows = self.sketch.sample()
        if self.dtype.is_floating_point:
            rows = rows.to(self.dtype)
        return rows, counts

    def predict(self, clusterer: Any) -> np.ndarray:
        """Label all points [n] by a fitted clusterer."""
        return np.concatenate([clusterer.predict(self.source.for_sklearn(values)) for _, values in self])

    def behind(self, steps: Any) -> Batches:
        """Return the points behind the first steps of a fitted pipeline."""

        def transformed() -> Iterator[Any]:
            for _, values in self:
                yield Table.read(steps.transform(self.source.for_sklearn(values))).dense()

        return Batches(BatchSource(transformed), None, MAX_BINS, self.ranks)

    def means(self, labels: Tensor, k: int, weight: None = None, ranks: Ranks = ALONE) -> Tensor:
        """Compute the means [k, d] of the points of every label over all processes; the points have no weights."""
        return self.moments(labels, k)[0]

    def code(
        self, centers: Tensor, labels: Tensor | None, metric: str, distances: bool
    ) -> tuple[CodedColumns, Tensor, Tensor, Tensor | None]:
        """Return codes, snapped centers, labels (by default, of the nearest centers), and distances if needed."""
        bins = self.sketch.bins(centers, self.dtype, self.ranks.sum(torch.tensor(self.n)))
        codes = allocate((self.n, self.d), code_type(int(bins.size.max())))
        by_center = allocate((len(centers), self.n), torch.float64) if distances else None
        nearest = torch.empty(self.n, dtype=torch.int64) if labels is None else labels
        with self.ranks.agreed():
            for chunk, batch in self:
                bins.code(batch.T, codes[chunk].T)
                if labels is not None and by_center is None:
                    continue
                costs = Dense(batch).distances(centers, metric)
                check_finite(costs)
                if labels is None:
                    nearest[chunk] = costs.min(1).indices
                if by_center is not None:
                    by_center[:, chunk] = costs.T
        columns = stored_columns(codes, bins)
        by_point = None if by_center is None else by_center.T
        return columns, bins.snapped, nearest, by_point

    def moments(
        self, labels: Tensor, k: int, tree: ThresholdTree | None = None
    ) -> tuple[Tensor, float, Tensor, Tensor]:
        """Compute, in one pass, means and cost of clusters over all processes, and values that a tree tests.

        With differences d from the middle of a column, sum d and sum d^2 by cluster give its mean, and

            cost = sum d^2 - (sum d) mean of d,    variance = (sum d^2) / n - ((sum d) / n)^2.

        Returns
        -------
        means : Tensor [k, d]
            Means of the points of every label; NaN for a label without points.
        cost : float
            Sum of the squared distances to these means.
        variances : Tensor [d]
            Variances of the columns that the tree tests; 0 for others.
        nearest : Tensor [bounds, 5]
            The rows of :func:`nearest_values` for the points of this process.
        """
        mass = counts_by_label(labels, k, None, self.ranks)
        n = mass.sum()
        sums = torch.zeros(2, k, self.d, dtype=torch.float64)  # of differences, and of their squares
        tested = torch.empty(0, dtype=torch.int64)
        nearest = torch.empty(0, 0, dtype=torch.float64)
        if tree is not None:
            tested = tree.feature[tree.feature >= 0].unique()
            no_values = torch.empty(len(tested), 0, dtype=torch.float64)
            nearest = nearest_values(tree, tested, no_values)
        shift = rounding_shift(n * self._extent)
        shift_of_squares = rounding_shift(n * self._extent.square())
        with self.ranks.agreed():
            for chunk, batch in self:
                values = Dense(batch)
                own_labels = labels[chunk]
                sums[0] += values.sums(own_labels, k, None, self._middle, shift, ALONE)
                sums[1] += values.sums(own_labels, k, None, self._middle, shift_of_squares, ALONE, square=True)
                if tree is not None:
                    nearest_of_batch = nearest_values(tree, tested, batch.T[tested].double())
                    nearest = torch.minimum(nearest, nearest_of_batch)
        first, second = self.ranks.sum(sums)
        means = first / mass[:, None]
        cost = float((second - first * means.nan_to_num()).sum().clamp(min=0))
        variances = torch.zeros(self.d, dtype=torch.float64)
        variances[tested] = (second.sum(0) / n - (first.sum(0) / n).square())[tested]
        return means + self._middle, cost, variances, nearest


def allocate(shape: tuple[int, int], dtype: torch.dtype) -> Tensor:
    """Return an uninitialized array: in memory or, if it is large, in a temporary file."""
    size = shape[0] * shape[1]
    if size * dtype.itemsize <= LARGEST:
        return torch.empty(shape, dtype=dtype)
    with tempfile.NamedTemporaryFile() as file:  # the file is deleted together with the array
        return torch.from_file(file.name, True, size, dtype=dtype).view(shape)
