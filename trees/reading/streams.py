"""A table that is read batch by batch: its bins, its codes, and what a fitted tree needs of its values."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neonxc.common.processes import ALONE, Ranks
from neonxc.data.distributed import common_type
from neonxc.data.inputs import are_labels, label_array
from neonxc.trees.coding.bins import Sketch
from neonxc.trees.coding.codes import CodedColumns, code_type, stored_columns
from neonxc.trees.coding.exact import tally
from neonxc.trees.coding.table import Table
from neonxc.trees.fitted.training_bounds import nearest_values
from neonxc.trees.fitted.tree import ThresholdTree
from neonxc.trees.reading.batches import BatchSource
from neonxc.trees.reading.reference import Reference, classes_of, common_seed, from_centers, kmeans

MAX_BINS = 256  # bins of a column, so that a code is one byte
LARGEST = 1 << 32  # bytes of an array; larger ones are stored in a temporary file


class Stream:
    """A table that is read batch by batch: for its sketch, for its codes, and once more under the fitted tree.

    It replaces :class:`~neonxc.trees.coding.table.Table` in a problem, where only the codes are looked at.

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
        self.source, self.ranks, self.selected = source, ranks, None
        if labels is not None and not (own := are_labels(labels)).all():
            self.selected = torch.from_numpy(own).nonzero()[:, 0]
        sketch, dtype, ends = None, torch.float64, np.array(np.inf)
        with ranks.agreed():
            for _, values in self:
                sketch, dtype = sketch or Sketch(values.shape[1], max_bins), values.dtype
                sketch.add(values)
                if len(values):  # NumPy is faster with few columns
                    low, high = values.numpy().min(0), values.numpy().max(0).astype(np.float64)
                    ends = np.minimum(ends, [low, -high])
            if labels is not None and labels.shape != (source.n,):
                raise ValueError(f"labels needs one label per point, shape ({source.n},), got {labels.shape}")
            self.n = source.n if self.selected is None else len(self.selected)
            if ranks.alone and not self.n:
                raise ValueError("X has no points, or labels has only noise (-1)")
        d = int(ranks.max(torch.tensor(0 if sketch is None else sketch.d)))  # a process may have no batches
        sketch = sketch or Sketch(d, max_bins)
        self.d = sketch.d
        names = filter(None, map(json.loads, ranks.texts(json.dumps(source.names))))
        source.names = source.names or next(names, None)
        self.dtype = check_columns(ranks, self.n, self.d, dtype, source.names)
        self.sketch = sketch.merged(ranks)
        low, high = ranks.min(torch.from_numpy(np.broadcast_to(ends, (2, self.d)).copy()))
        self._middle, self._extent = (low - high) / 2, -(low + high) / 2

    def __iter__(self) -> Iterator[tuple[slice, Tensor]]:
        """Yield the positions of a batch's points among the selected ones, and their values [b, d]."""
        first = 0
        for values in self.source:
            ends = [first, first + len(values)]
            if self.selected is not None:
                ends = torch.searchsorted(self.selected, torch.tensor(ends)).tolist()
            part = slice(*ends)
            yield part, values if self.selected is None else values[self.selected[part] - first]
            first += len(values)

    def code(
        self, centers: Tensor, labels: Tensor | None, metric: str, distances: bool
    ) -> tuple[CodedColumns, Tensor, Tensor | None]:
        """Codes, labels (by default, the nearest centers), and distances to the centers, if they are asked for."""
        bins = self.sketch.bins(centers, self.dtype)
        codes = allocate((self.n, self.d), code_type(int(bins.size.max())))
        far = allocate((len(centers), self.n), torch.float64) if distances else None
        nearest = torch.empty(self.n, dtype=torch.int64) if labels is None else labels
        with self.ranks.agreed():
            for part, batch in self:
                bins.code(batch.T, codes[part].T)
                if labels is not None and far is None:
                    continue
                costs = Table(batch).distances(centers, metric)
                if not bool(costs.isfinite().all()):
                    raise ValueError("centers are too far from X for squared distances in float64; scale both")
                if labels is None:
                    nearest[part] = costs.argmin(1)
                if far is not None:
                    far[:, part] = costs.T
        columns = stored_columns(codes, bins)
        return columns, nearest, None if far is None else far.T

    def moments(
        self, labels: Tensor, k: int, tree: ThresholdTree | None = None
    ) -> tuple[Tensor, float, Tensor, list[Tensor]]:
        """What one pass tells about clusters of all processes, and about a tree.

        Returns
        -------
        means : Tensor [k, d]
            Means of the points of every label; NaN for a label without points.
        cost : float
            Sum of the squared distances to these means.
        variances : Tensor [d]
            Variances of the columns that the tree tests; 0 for others.
        nearest : list of Tensor [bounds, 5]
            What :func:`nearest_values` tells about the batches of this process.
        """
        mass = self.ranks.sum(tally(labels, k))
        n = mass.sum()
        sums = torch.zeros(2, k, self.d, dtype=torch.float64)
        tested = torch.empty(0, dtype=torch.int64) if tree is None else tree.feature[tree.feature >= 0].unique()
        empty = torch.empty(len(tested), 0, dtype=torch.float64)
        nearest = [] if tree is None else [nearest_values(tree, tested, empty)]
        with self.ranks.agreed():
            for part, batch in self:
                values = Table(batch)
                for power, most in enumerate((self._extent, self._extent.square())):
                    sums[power] += values.sums(labels[part], k, None, self._middle, most, n, ALONE, bool(power))
                if tree is not None:
                    nearest.append(nearest_values(tree, tested, batch.T[tested].double()))
        first, second = self.ranks.sum(sums)
        means = first / mass[:, None]
        cost = float((second - first * means.nan_to_num()).sum().clamp(min=0))
        variances = torch.zeros(self.d, dtype=torch.float64)
        variances[tested] = (second.sum(0) / n - (first.sum(0) / n).square())[tested]
        return means + self._middle, cost, variances, nearest


def read_stream(
    model: Any, source: BatchSource, labels: Any, centers: Any, ranks: Ranks
) -> tuple[Any, CodedColumns, Reference]:
    """Read a table for its bins, for the means of the `labels` (if any), and for its codes.

    Parameters
    ----------
    model : TreeExplainer
    source : BatchSource
    labels : array-like [n], optional
        Reference clustering.
    centers : array-like [k, d], optional
        Centers of the reference clustering. With neither labels nor centers, k-means is fitted to a sample.
    ranks : Ranks
    """
    values, own = None if labels is None else label_array(labels), None
    if values is not None and model.metric != "l2":
        raise ValueError(f'labels of a stream need metric="l2", got {model.metric!r}; pass centers')
    table: Any = Stream(source, values, model.max_bins or MAX_BINS, ranks)
    if values is not None:
        clustered = values if table.selected is None else values[table.selected.numpy()]
        clustered, classes = classes_of(clustered, ranks)
        own = torch.from_numpy(np.searchsorted(classes, clustered))
        centers = table.moments(own, len(classes))[0]
    else:
        _, count, rows = table.sketch.sample()
        sample = Table(rows.to(table.dtype) if table.dtype.is_floating_point else rows)
        if centers is None:
            centers = kmeans(sample, model.n_clusters, count, common_seed(model.random_state, ranks))[0]
        else:
            centers = from_centers(sample, centers, model.metric, source.names).centers
        classes = np.arange(len(centers))
    columns, own, far = table.code(centers, own, model.metric, bool(model._streams()))
    return table, columns, Reference(own, centers, classes, table, centers, distances=far)


def allocate(shape: tuple[int, int], dtype: torch.dtype) -> Tensor:
    """An uninitialized array: in memory or, if it is large, in a temporary file."""
    size = shape[0] * shape[1]
    if size * dtype.itemsize <= LARGEST:
        return torch.empty(shape, dtype=dtype)
    with tempfile.NamedTemporaryFile() as file:  # the file is deleted together with the array
        return torch.from_file(file.name, True, size, dtype=dtype).view(shape)


def check_columns(ranks: Ranks, n: int, d: int, dtype: torch.dtype, names: Any) -> torch.dtype:
    """Check that all processes have the same columns; return the common data type of those with rows.

    Raises
    ------
    ValueError
        In all processes, naming what differs, or if no process has rows.
    """
    ranks.same(columns=d, **{"the names of columns": names})
    return common_type(n, dtype, ranks)
