"""The columns that are cut: a dense tensor, or a sparse matrix."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neonxc.trees.sparse_table import SparsePart, canonical

CHUNK = 1 << 21  # entries of a table whose columns are coded at once
SMALL = 1 << 15  # rows of 8-bit differences whose sums float32 holds
FEW = 16  # places per entry from which on entries take less memory than codes of all places, and often less time
ROWS = 1 << 17  # entries whose rows are worked on at once: in float64 they stay in a core's cache


class Table:
    """Points [n] by columns [d], read a few columns (or rows) at a time.

    Parameters
    ----------
    data : Tensor [n, d] or scipy sparse matrix
        Finite numbers; integers stay integers.
    """

    def __init__(self, data: Any) -> None:
        self.sparse = not isinstance(data, Tensor)
        self.data = canonical(data) if self.sparse else data
        self.n, self.d = self.data.shape

    @property
    def dtype(self) -> torch.dtype:
        """Type of the columns."""
        return torch.from_numpy(self.data.data[:0]).dtype if self.sparse else self.data.dtype

    @property
    def device(self) -> torch.device:
        """Where the columns are."""
        return torch.device("cpu") if self.sparse else self.data.device

    @cached_property
    def by_row(self) -> Any:
        """A sparse matrix by rows."""
        return self.data.tocsr()

    @property
    def few_entries(self) -> bool:
        """Whether it is a sparse matrix of so few entries that it is searched by them."""
        return self.sparse and FEW * self.data.nnz <= self.n * self.d

    @cached_property
    def halves(self) -> tuple[Tensor, Table, Tensor, SparsePart]:
        """The columns of a sparse matrix that are mostly entries, made dense, and the others, mostly zeros."""
        full = np.diff(self.data.indptr) > self.n / 2
        dense = Table(torch.from_numpy(self.data[:, full].toarray()))
        rest = SparsePart(self.data[:, ~full])
        return torch.from_numpy(full), dense, torch.from_numpy(~full), rest

    def columns(self, first: int, last: int) -> Tensor:
        """Columns `first` to `last`, one per row, [last - first, n]."""
        if self.sparse:
            return torch.from_numpy(self.data[:, first:last].toarray(order="F").T)
        return self.data[:, first:last].T.contiguous()

    def column(self, feature: int, rows: Tensor | None = None) -> Tensor:
        """One column, [n], or its entries at `rows`."""
        column = self.columns(feature, feature + 1)[0] if self.sparse else self.data[:, feature]
        return column if rows is None else column[rows]

    def at(self, features: Tensor, rows: Tensor) -> Tensor:
        """Some columns of some points, [features, rows]."""
        if self.sparse:
            part = self.by_row[rows.numpy()].tocsc()[:, features.numpy()]
            return torch.from_numpy(part.toarray(order="F").T)
        return self.data.index_select(1, features).index_select(0, rows).T

    def rows(self, part: slice) -> Tensor:
        """The points of a range, [points, d]."""
        return torch.from_numpy(self.by_row[part].toarray()) if self.sparse else self.data[part]

    def take(self, rows: Tensor) -> Table:
        """The table of some of the points."""
        return Table(self.by_row[rows.numpy()] if self.sparse else self.data[rows])

    def chunks(self) -> Iterator[tuple[int, int]]:
        """Ranges of columns of about equal size."""
        step = max(1, CHUNK // self.n)
        for first in range(0, self.d, step):
            yield first, min(first + step, self.d)

    def check_size(self, names: Sequence[str] | None) -> None:
        """Refuse values so large that squares of their sums overflow: costs would be no numbers."""
        values = torch.from_numpy(self.data.data) if self.sparse else self.data
        if self.dtype != torch.float64 or not values.numel():  # other types hold no such values
            return
        most = (torch.finfo(torch.float64).max / (4 * self.d)) ** 0.5 / self.n
        if max(abs(float(end)) for end in values.aminmax()) <= most:
            return
        for first, last in self.chunks():
            largest = self.columns(first, last).abs().amax(1)
            for column in (largest > most).nonzero()[:1, 0].tolist():
                name = first + column if names is None else repr(names[first + column])
                raise ValueError(
                    f"X has values as large as {largest[column]:.3g} in column {name}, too large for squared "
                    "distances in float64; scale the column"
                )

    def _rows(self, dtype: torch.dtype = torch.float64) -> Iterator[tuple[slice, Tensor]]:
        """Ranges of points, with their values, which may be changed; the next ones are in the same memory."""
        step = max(1, ROWS // self.d)
        buffer = torch.empty(min(step, self.n), self.d, dtype=dtype, device=self.device)
        for first in range(0, self.n, step):
            part = slice(first, first + step)
            values = self.data[part]
            yield part, buffer[: len(values)].copy_(values)

    def distances(self, centers: Tensor, metric: str = "l2") -> Tensor:
        """Squared Euclidean ("l2") or Manhattan ("l1") distances [n, k] to the centers [k, d], in float64."""
        if self.sparse:
            full, dense, others, rest = self.halves
            found = rest.distances(centers[:, others], metric)
            return found + dense.distances(centers[:, full], metric) if dense.d else found
        result = torch.empty(self.n, len(centers), dtype=torch.float64, device=self.device)
        middle = centers.mean(0)  # distances far from the origin would lose digits
        moved = centers - middle
        squares = moved.square().sum(1)
        for part, values in self._rows():
            if metric == "l1":
                result[part] = torch.cdist(values, centers, p=1)
                continue
            values.sub_(middle)
            own = torch.linalg.vecdot(values, values)[:, None]
            torch.addmm(own + squares, values, moved.T, alpha=-2, out=result[part])
        return result.clamp_(min=0)

    def means(self, labels: Tensor, k: int, weight: Tensor | None = None) -> Tensor:
        """Mean of the points of every label, [k, d] in float64; NaN for a label without points."""
        mass = torch.bincount(labels, weight, minlength=k).to(torch.float64)
        if self.sparse:
            full, dense, others, rest = self.halves
            means = torch.empty(k, self.d, dtype=torch.float64)
            means[:, others] = rest.means(labels, mass, weight)
            if dense.d:
                means[:, full] = dense.means(labels, k, weight)
            return means
        sums = torch.zeros(k, self.d, dtype=torch.float64, device=self.device)
        middle: Tensor | None = None
        small = self.dtype in (torch.uint8, torch.int8) and weight is None  # float32 adds up their blocks exactly
        dtype = torch.float32 if small and ROWS // self.d < SMALL else torch.float64
        for part, values in self._rows(dtype):
            middle = values[0].clone() if middle is None else middle
            values.sub_(middle)
            member = torch.zeros(len(values), k, dtype=dtype, device=self.device)
            own = weight[part, None] if weight is not None else torch.ones_like(member[:, :1])
            sums += (member.scatter_(1, labels[part, None], own).T @ values).to(torch.float64)
        assert middle is not None
        return sums / mass[:, None] + middle

    def cost(self, centers: Tensor, labels: Tensor, weight: Tensor | None = None) -> float:
        """Sum of squared distances of all points to the centers of their labels."""
        if self.sparse:
            full, dense, others, rest = self.halves
            found = rest.cost(centers[:, others], labels, weight)
            return found + dense.cost(centers[:, full], labels, weight) if dense.d else found
        total = torch.zeros((), dtype=torch.float64, device=self.device)
        for part, values in self._rows():
            squares = values.sub_(centers[labels[part]]).square_().sum(1)
            total += (squares if weight is None else squares * weight[part]).sum()
        return float(total)

    def variances(self, rows: Tensor, weight: Tensor | None = None) -> Tensor:
        """Variance of every column over some points, [d] in float64."""
        part = self.take(rows)
        if self.sparse:
            weight = None if weight is None else weight[rows]
            full, dense, others, rest = part.halves
            variances = torch.empty(self.d, dtype=torch.float64)
            variances[others] = rest.variances(weight)
            if dense.d:
                variances[full] = dense.variances(torch.arange(part.n), weight)
            return variances
        labels = torch.zeros(len(rows), dtype=torch.int64, device=self.device)
        weight = None if weight is None else weight[rows]
        middle = part.means(labels, 1, weight)[0]
        total = torch.zeros(self.d, dtype=torch.float64, device=self.device)
        mass = len(rows) if weight is None else weight.sum()
        for piece, values in part._rows():
            squares = values.sub_(middle).square_()
            total += squares.sum(0) if weight is None else weight[piece] @ squares
        return total / mass
