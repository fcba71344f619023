"""From a table that is read batch by batch to a problem: a sketch, a reference clustering, and codes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neonxc.inputs import NOISE, as_batch, check_names, label_array
from neonxc.ranks import Ranks
from neonxc.trees.batches import Source
from neonxc.trees.coded_table import CodedTable, Codes, Moments, room
from neonxc.trees.exact import rounded_, tally
from neonxc.trees.reference import Reference, kmeans
from neonxc.trees.shards import check_columns, classes_of_shards, common_seed
from neonxc.trees.sketch import Sketch
from neonxc.trees.table import Table

MAX_BINS = 256  # of a column, so that a code is one byte
PIECE = 1 << 17  # numbers that are coded at once: they stay in a core's cache


@dataclass
class Streamed:
    """A table that has been read.

    Attributes
    ----------
    table : CodedTable
    found : Reference
    kept : Tensor or None
        Which points count, those that are not noise; None for all.
    """

    table: CodedTable
    found: Reference
    kept: Tensor | None


class Passes:
    """Passes over a table, which have to give the same rows every time.

    Parameters
    ----------
    source : Source
    labels : ndarray [n], optional
        Points of label -1 are passed over.
    """

    def __init__(self, source: Source, labels: np.ndarray | None = None) -> None:
        self.source, self.labels = source, labels
        self.there: Tensor | None = None
        if labels is not None and labels.dtype.kind in "if":
            noise = torch.from_numpy(labels == NOISE)
            self.there = ~noise if bool(noise.any()) else None
        self.n: int | None = None  # points that count
        self._before: tuple[int, int] | None = None

    def __iter__(self) -> Iterator[tuple[int, Tensor]]:
        """The number of a batch's first point among those that count, and its values [b, d]."""
        total = first = mark = 0
        for values in self.source:
            mark = (mark + _mark(values, total)) % (1 << 64)
            own = None if self.there is None else self.there[total : total + len(values)]
            total += len(values)
            if self._before is not None and total > self._before[0]:
                raise ValueError(
                    f"X gave {self._before[0]} points when it was first read, and more when it was again"
                )
            if own is not None and len(own) == len(values):
                values = values[own]
            yield first, values
            first += len(values)
        self.n = first
        self._check(total, mark)

    def _check(self, n: int, mark: int) -> None:
        """Compare with the pass before."""
        if self.labels is not None and len(self.labels) != n:
            raise ValueError(f"labels needs one label per point, shape ({n},), got {self.labels.shape}")
        if self._before is None:
            self._before = n, mark
        elif self._before[0] != n:
            raise ValueError(
                f"X gave {self._before[0]} points when it was first read, and {n} when it was read again; a "
                "function needs to return a new iterator over the same batches each time it is called"
            )
        elif self._before[1] != mark:
            raise ValueError("X gave other values, or the points in another order, when it was read again")


def _mark(values: Tensor, first: int) -> int:
    """A number that tells the contents and the order of rows."""
    if values.is_floating_point():
        values = values.view(torch.int32 if values.dtype == torch.float32 else torch.int64)
    total = 0
    for piece in values.split(max(1, PIECE // values.shape[1])):
        place = torch.arange(first, first + len(piece)).mul_(2).add_(1)
        total += int((piece.sum(1, dtype=torch.int64) * place).sum())
        first += len(piece)
    return total


def streamed(
    source: Source,
    *,
    labels: Any,
    centers: Any,
    n_clusters: int,
    max_bins: int | None,
    metric: str,
    random_state: Any,
    distances: bool,
    ranks: Ranks,
) -> Streamed:
    """Read a table: once for its sketch, with `labels` once more for their means, and once for its codes.

    Parameters
    ----------
    source : Source
    labels : array-like [n], optional
        The reference clustering.
    centers : array-like [k, d], optional
        Its centers. With neither, it is k-means of the sketch's sample.
    n_clusters, max_bins, metric, random_state
        As the explainer has them; `max_bins` is 256 by default.
    distances : bool
        Whether the distances of all points to the centers shall be kept.
    """
    values = None if labels is None else label_array(labels)
    passes = Passes(source, values)
    sketch, dtype = _sketched(passes, max_bins or MAX_BINS, ranks)
    d = sketch.d
    classes, own = np.arange(n_clusters), None
    if values is not None:
        counted, classes = classes_of_shards(
            values if passes.there is None else values[passes.there.numpy()], ranks
        )
        own = torch.from_numpy(np.searchsorted(classes, counted))
        if metric != "l2":
            raise ValueError(f'labels of a stream need metric="l2", got {metric!r}; pass centers')
        middles = _means(passes, own, len(classes), sketch, ranks)
    elif centers is not None:
        middles = _given(centers, d, source.names)
        classes = np.arange(len(middles))
    else:
        rows, count = sketch.rows
        seed = random_state if ranks.alone else common_seed(random_state, ranks)
        sample = Table(rows.to(dtype) if dtype.is_floating_point else rows)
        middles = kmeans(sample, n_clusters, count.to(torch.float64), seed)[0]
        classes = np.arange(len(middles))
    return _coded(passes, sketch, middles, own, classes, dtype, metric, distances, ranks)


def _sketched(passes: Passes, max_bins: int, ranks: Ranks) -> tuple[Sketch, torch.dtype]:
    """The sketch of all processes, and the type of the values."""
    sketch, source = None, passes.source
    with ranks.agreed():
        for _, values in passes:
            if sketch is None:
                sketch = Sketch(values.shape[1], max_bins)
            sketch.add(values)
        if ranks.alone and (sketch is None or not sketch.n):
            raise ValueError("X has no points" if sketch is None else "labels holds noise (-1) alone")
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


def _given(centers: Any, d: int, names: list[str] | None) -> Tensor:
    batch = as_batch(centers, name="centers", device="cpu")
    check_names(batch.names, names, name="centers")
    if batch.tensor.ndim != 2 or batch.tensor.shape[1] != d:
        raise ValueError(f"centers needs shape [clusters, {d}], got {list(batch.tensor.shape)}")
    return batch.tensor.to(torch.float64)


def _means(passes: Passes, labels: Tensor, k: int, sketch: Sketch, ranks: Ranks) -> Tensor:
    """Means of the points of every label, [k, d], as :meth:`neonxc.trees.table.Table.means` has them."""
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


def _coded(
    passes: Passes,
    sketch: Sketch,
    centers: Tensor,
    labels: Tensor | None,
    classes: np.ndarray,
    dtype: torch.dtype,
    metric: str,
    distances: bool,
    ranks: Ranks,
) -> Streamed:
    """The last pass."""
    assert passes.n is not None
    n, k, bins = passes.n, len(centers), sketch.bins(centers)
    codes = Codes(n, bins.size)
    moments = Moments(sketch, bins)
    far = room((k, n), torch.float64) if distances else None
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
    return Streamed(table, found, None if passes.there is None else passes.there.nonzero()[:, 0])
