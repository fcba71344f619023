"""Reads a table batch by batch in several passes: for a sketch, for the reference clustering, for the codes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neonxc.common.processes import Ranks
from neonxc.data.inputs import NOISE, label_array
from neonxc.trees.batches import BatchSource
from neonxc.trees.binned_table import BinMoments, BinnedTable, CodeStorage, allocate
from neonxc.trees.exact import rounded_, tally
from neonxc.trees.reference import Reference, centers_of, kmeans
from neonxc.trees.shards import check_columns, classes_of_shards, common_seed
from neonxc.trees.sketch import Sketch
from neonxc.trees.table import Table

MAX_BINS = 256  # bins of a column, so that a code is one byte
PIECE = 1 << 17  # numbers that are coded at a time, so that they fit into a core's cache


@dataclass
class StreamResult:
    """A table that was read batch by batch.

    Attributes
    ----------
    table : BinnedTable
    found : Reference
        Reference clustering.
    selected : Tensor or None
        Indices of the points that are not noise; None if these are all points.
    """

    table: BinnedTable
    found: Reference
    selected: Tensor | None


class CheckedPasses:
    """Repeated passes over a table, with a check that every pass yields the same rows.

    Parameters
    ----------
    source : BatchSource
    labels : ndarray [n], optional
        Points of label -1 (noise) are skipped.
    """

    def __init__(self, source: BatchSource, labels: np.ndarray | None = None) -> None:
        self.source, self.labels = source, labels
        self.selected: Tensor | None = None  # mask of the points that are not noise
        if labels is not None and labels.dtype.kind in "if":
            noise = torch.from_numpy(labels == NOISE)
            self.selected = ~noise if bool(noise.any()) else None
        self.n: int | None = None  # number of selected points
        self._first_pass: tuple[int, int] | None = None  # number of points and checksum

    def __iter__(self) -> Iterator[tuple[int, Tensor]]:
        """Yield the position of a batch's first point among the selected ones, and the batch's values [b, d]."""
        total = first = checksum = 0
        for values in self.source:
            checksum = (checksum + _checksum(values, total)) % (1 << 64)
            own = None if self.selected is None else self.selected[total : total + len(values)]
            total += len(values)
            if self._first_pass is not None and total > self._first_pass[0]:
                raise ValueError(
                    f"X gave {self._first_pass[0]} points when it was first read, and more when it was read again"
                )
            if own is not None and len(own) == len(values):
                values = values[own]
            yield first, values
            first += len(values)
        self.n = first
        self._check(total, checksum)

    def _check(self, n: int, checksum: int) -> None:
        """Compare a complete pass with the first one."""
        if self.labels is not None and len(self.labels) != n:
            raise ValueError(f"labels needs one label per point, shape ({n},), got {self.labels.shape}")
        if self._first_pass is None:
            self._first_pass = n, checksum
        elif self._first_pass[0] != n:
            raise ValueError(
                f"X gave {self._first_pass[0]} points when it was first read, and {n} when it was read again; a "
                "function needs to return a new iterator over the same batches each time it is called"
            )
        elif self._first_pass[1] != checksum:
            raise ValueError("X gave other values, or the points in another order, when it was read again")


def _checksum(values: Tensor, first: int) -> int:
    """Checksum of the contents and the order of rows, the first of which has the number `first`."""
    if values.is_floating_point():
        values = values.view(torch.int32 if values.dtype == torch.float32 else torch.int64)
    total = 0
    for piece in values.split(max(1, PIECE // values.shape[1])):
        place = torch.arange(first, first + len(piece)).mul_(2).add_(1)
        total += int((piece.sum(1, dtype=torch.int64) * place).sum())
        first += len(piece)
    return total


def read_stream(
    source: BatchSource,
    *,
    labels: Any,
    centers: Any,
    n_clusters: int,
    max_bins: int | None,
    metric: str,
    random_state: Any,
    distances: bool,
    ranks: Ranks,
) -> StreamResult:
    """Read a table in two or three passes: for a sketch, for the means of the `labels` (if any), for the codes.

    Parameters
    ----------
    source : BatchSource
    labels : array-like [n], optional
        Reference clustering.
    centers : array-like [k, d], optional
        Centers of the reference clustering. With neither labels nor centers, k-means is fitted to a sample.
    n_clusters, max_bins, metric, random_state
        Parameters of the explainer; `max_bins` is 256 by default.
    distances : bool
        Whether to store the distances of all points to the centers.
    """
    values = None if labels is None else label_array(labels)
    passes = CheckedPasses(source, values)
    sketch, dtype = _sketch(passes, max_bins or MAX_BINS, ranks)
    d = sketch.d
    classes, own = np.arange(n_clusters), None
    if values is not None:
        clustered = values if passes.selected is None else values[passes.selected.numpy()]
        clustered, classes = classes_of_shards(clustered, ranks)
        own = torch.from_numpy(np.searchsorted(classes, clustered))
        if metric != "l2":
            raise ValueError(f'labels of a stream need metric="l2", got {metric!r}; pass centers')
        middles = _means(passes, own, len(classes), sketch, ranks)
    elif centers is not None:
        middles = centers_of(centers, d, source.names)
        classes = np.arange(len(middles))
    else:
        rows, count = sketch.rows
        seed = random_state if ranks.alone else common_seed(random_state, ranks)
        sample = Table(rows.to(dtype) if dtype.is_floating_point else rows)
        middles = kmeans(sample, n_clusters, count, seed)[0]
        classes = np.arange(len(middles))
    return _code_rows(passes, sketch, middles, own, classes, dtype, metric, distances, ranks)


def _sketch(passes: CheckedPasses, max_bins: int, ranks: Ranks) -> tuple[Sketch, torch.dtype]:
    """First pass: sketch of the rows of all processes, and the type of the values."""
    sketch, source = None, passes.source
    with ranks.agreed():
        for _, values in passes:
            if sketch is None:
                sketch = Sketch(values.shape[1], max_bins)
            sketch.add(values)
        if ranks.alone and (sketch is None or not sketch.n):
            raise ValueError("X has no points" if sketch is None else "labels has only noise (-1)")
    if ranks.alone:
        assert sketch is not None
        assert source.dtype is not None
        return sketch, source.dtype
    d = int(ranks.max(torch.tensor(0 if sketch is None else sketch.d)))  # a process may have no batches
    sketch = sketch or Sketch(d, max_bins)
    names = ranks.texts(json.dumps(source.names))
    named = next((text for text in names if text != "null"), "null")
    source.names = source.names or json.loads(named)
    dtype = check_columns(ranks, sketch.n, sketch.d, source.dtype or torch.float64, source.names)
    return sketch.merged(ranks), dtype


def _means(passes: CheckedPasses, labels: Tensor, k: int, sketch: Sketch, ranks: Ranks) -> Tensor:
    """Means of the points of every label, [k, d], equal to those of :meth:`neonxc.trees.table.Table.means`."""
    middle, extent = (sketch.low + sketch.high) / 2, (sketch.high - sketch.low) / 2
    sums = torch.zeros(k, sketch.d, dtype=torch.float64)
    with ranks.agreed():
        for first, batch in passes:
            for piece in range(0, len(batch), step := max(1, PIECE // sketch.d)):
                values = batch[piece : piece + step].to(torch.float64, copy=True).sub_(middle)
                rounded_(values, sketch.n * extent)
                member = torch.zeros(len(values), k, dtype=torch.float64)
                own = labels[first + piece : first + piece + len(values), None]
                sums += member.scatter_(1, own, torch.ones_like(member[:, :1])).T @ values
    mass = ranks.sum(tally(labels, k))
    return ranks.sum(sums) / mass[:, None] + middle


def _code_rows(
    passes: CheckedPasses,
    sketch: Sketch,
    centers: Tensor,
    labels: Tensor | None,
    classes: np.ndarray,
    dtype: torch.dtype,
    metric: str,
    distances: bool,
    ranks: Ranks,
) -> StreamResult:
    """Last pass: the codes of all rows and, if needed, their labels and distances to the centers."""
    assert passes.n is not None
    n, k, bins = passes.n, len(centers), sketch.bins(centers)
    codes = CodeStorage(n, bins.size)
    moments = BinMoments(sketch, bins)
    far = allocate((k, n), torch.float64) if distances else None
    nearest = torch.empty(n, dtype=torch.int64) if labels is None else labels
    with ranks.agreed():
        for first, batch in passes:
            for piece in range(0, len(batch), step := max(1, PIECE // sketch.d)):
                values = batch[piece : piece + step].T.contiguous()
                codes.put(first + piece, moments.add(values))
            if labels is not None and far is None:
                continue
            costs = Table(batch).distances(centers, metric)
            if not bool(costs.isfinite().all()):
                raise ValueError("centers are too far from X for squared distances in float64; scale both")
            if labels is None:
                nearest[first : first + len(batch)] = costs.argmin(1)
            if far is not None:
                far[:, first : first + len(batch)] = costs.T
    columns = codes.columns(bins.places(centers.T.contiguous()))
    table: Any = moments.table(n, dtype, columns, ranks)
    found = Reference(nearest, centers, classes, table, centers, distances=None if far is None else far.T)
    return StreamResult(table, found, None if passes.selected is None else passes.selected.nonzero()[:, 0])
