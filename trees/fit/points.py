"""A table of points, dense or sparse, with means, distances and variances that are bitwise reproducible."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from neonxc.common.processes import ALONE, Ranks
from neonxc.data.sparse import canonical
from neonxc.trees.cuts.exact_sums import counts_by_label, exact_total, rounded

CHUNK = 1 << 21  # entries of the columns that are processed at a time
SMALL = 1 << 15  # number of 8-bit differences whose sum is exact in float32
FEW = 16  # if at most 1 of FEW values is nonzero, storing entries takes less memory than storing all codes
ROWS = 1 << 17  # entries of the rows that are processed at a time, so that they fit into a core's cache
FIXED = 1 << 12  # rows of every matrix product; a fixed number, because the rounding of a row depends on it


class DataMatrix:
    """The n points of a fit, with d columns of numbers: the table without names, categories and gaps.

    Parameters
    ----------
    data : Tensor [n, d] or SciPy sparse matrix
        Finite numbers of any type; integers are not converted.
    """

    def __init__(self, data: Any) -> None:
        self.sparse = not isinstance(data, Tensor)
        if self.sparse:
            data = canonical(data, "csc")
            data = data.astype(native(data.dtype), copy=False)
        self.data = data
        self.n, self.d = self.data.shape

    @property
    def dtype(self) -> torch.dtype:
        """Data type of the columns."""
        return torch.from_numpy(self.data.data[:0]).dtype if self.sparse else self.data.dtype

    @property
    def device(self) -> torch.device:
        """Device of the columns."""
        return torch.device("cpu") if self.sparse else self.data.device

    @cached_property
    def by_row(self) -> Any:
        """The sparse matrix in CSR format."""
        return self.data.tocsr()

    @property
    def few_entries(self) -> bool:
        """Whether it is a sparse matrix with so few entries that cuts are searched among the entries."""
        return self.sparse and FEW * self.data.nnz <= self.n * self.d

    @cached_property
    def halves(self) -> tuple[Tensor, DataMatrix, Tensor, SparseMatrix]:
        """Mask and dense table of the mostly nonzero columns, and mask and matrix of the other columns."""
        full = np.diff(self.data.indptr) > self.n / 2
        dense = DataMatrix(torch.from_numpy(self.data[:, full].toarray()))
        rest = SparseMatrix(self.data[:, ~full])
        return torch.from_numpy(full), dense, torch.from_numpy(~full), rest

    def columns(self, first: int, last: int) -> Tensor:
        """Columns `first` to `last` (exclusive), [last - first, n]."""
        if self.sparse:
            return torch.from_numpy(self.data[:, first:last].toarray(order="F").T)
        return self.data[:, first:last].T.contiguous()

    def column(self, feature: int, rows: Tensor | None = None) -> Tensor:
        """One column, [n], or its entries at `rows`."""
        column = self.columns(feature, feature + 1)[0] if self.sparse else self.data[:, feature]
        return column if rows is None else column[rows]

    def at(self, features: Tensor, rows: Tensor) -> Tensor:
        """The given columns of the given points, [features, rows]."""
        if self.sparse:
            part = self.by_row[rows.numpy()].tocsc()[:, features.numpy()]
            return torch.from_numpy(part.toarray(order="F").T)
        return self.data.index_select(1, features).index_select(0, rows).T

    def rows(self, part: slice) -> Tensor:
        """A range of the points, [points, d]."""
        return torch.from_numpy(self.by_row[part].toarray()) if self.sparse else self.data[part]

    def take(self, rows: Tensor) -> DataMatrix:
        """The matrix of a subset of the points."""
        return DataMatrix(self.by_row[rows.numpy()] if self.sparse else self.data[rows])

    def chunks(self, ranks: Ranks = ALONE) -> Iterator[tuple[int, int]]:
        """Ranges of columns that are processed together, the same in all processes."""
        step = max(1, CHUNK // max(1, int(ranks.max(torch.tensor(self.n)))))
        for first in range(0, self.d, step):
            yield first, min(first + step, self.d)

    def check_size(self, names: Sequence[str] | None) -> None:
        """Raise a ValueError if values are so large that costs would overflow."""
        if self.dtype != torch.float64 or not self.n:  # other types have no values of this size
            return
        most = (torch.finfo(torch.float64).max / (4 * self.d)) ** 0.5 / self.n
        low, high = self.ends()
        largest = torch.maximum(-low, high)
        for column in (largest > most).nonzero()[:1, 0].tolist():
            name = column if names is None else repr(names[column])
            raise ValueError(
                f"X has values as large as {largest[column]:.3g} in column {name}, too large for squared "
                "distances in float64; scale the column"
            )

    def _rows(self, dtype: torch.dtype = torch.float64) -> Iterator[tuple[slice, Tensor]]:
        """Yield ranges of points with a copy of their values, in a buffer that the next range overwrites."""
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
        middle = centers.mean(0)  # subtracted first, because distances far from the origin are inaccurate
        moved = centers - middle
        squares = moved.square().sum(1)
        step = max(1, min(FIXED, ROWS // self.d))
        values = torch.zeros(step, self.d, dtype=torch.float64, device=self.device)
        for first in range(0, self.n, step):
            part = result[first : first + step]
            values[: len(part)].copy_(self.data[first : first + step])
            if metric == "l1":
                part.copy_(torch.cdist(values, centers, p=1)[: len(part)])
                continue
            values.sub_(middle)
            own = torch.linalg.vecdot(values, values)[:, None]
            part.copy_(torch.addmm(own + squares, values, moved.T, alpha=-2)[: len(part)])
        return result.clamp_(min=0)

    def ends(self, ranks: Ranks = ALONE) -> tuple[Tensor, Tensor]:
        """Minimum and maximum of every column over all processes, [d] of float64 each."""
        low, high = self._ends
        return ranks.min(low), ranks.max(high)

    @cached_property
    def _ends(self) -> Tensor:
        if not self.n:
            ends = torch.tensor([[torch.inf], [-torch.inf]], dtype=torch.float64, device=self.device)
            return ends.expand(2, self.d)
        if self.sparse:
            found = [torch.from_numpy(end.toarray().ravel()) for end in (self.data.min(0), self.data.max(0))]
        else:
            found = [*self.data.aminmax(dim=0)]
        return torch.stack(found).to(torch.float64)

    def means(self, labels: Tensor, k: int, weight: Tensor | None = None, ranks: Ranks = ALONE) -> Tensor:
        """Mean of the points of every label, [k, d] of float64; NaN for a label without points.

        For a dense table, the result does not depend on the distribution of rows to processes.
        """
        mass = ranks.sum(counts_by_label(labels, k, weight))
        if self.sparse:
            full, dense, others, rest = self.halves
            means = torch.empty(k, self.d, dtype=torch.float64)
            means[:, others] = rest.means(labels, mass, weight)
            if dense.d:
                means[:, full] = dense.means(labels, k, weight)
            return means
        return self._means(labels, mass, weight, self.ends(ranks), ranks)

    def _means(
        self, labels: Tensor, mass: Tensor, weight: Tensor | None, ends: tuple[Tensor, Tensor], ranks: Ranks
    ) -> Tensor:
        """The same, given the mass [k] of the labels and the ends of the columns."""
        low, high = ends
        middle, extent = (low + high) / 2, (high - low) / 2
        return self.sums(labels, len(mass), weight, middle, extent, mass.sum(), ranks) / mass[:, None] + middle

    def sums(
        self,
        labels: Tensor,
        k: int,
        weight: Tensor | None,
        middle: Tensor,
        extent: Tensor,
        mass: Tensor,
        ranks: Ranks,
        square: bool = False,
    ) -> Tensor:
        """Exact sums by label, [k, d], of the differences from `middle` [d], or of their squares.

        `extent` [d] is an upper bound of the absolute values, `mass` the weight of all points.
        """
        small = self.dtype in (torch.uint8, torch.int8) and weight is None and not square
        # Sums of blocks of small integers are exact in float32
        dtype = torch.float32 if small and ROWS // self.d < SMALL else torch.float64
        result = torch.zeros(k, self.d, dtype=torch.float64, device=self.device)
        for part, values in self._rows(dtype):
            values.sub_(middle)
            if square:
                values.square_()
            if weight is not None:
                values.mul_(weight[part, None])
            if dtype == torch.float64:
                rounded(values, mass * extent, values)
            member = torch.zeros(len(values), k, dtype=dtype, device=self.device)
            member.scatter_(1, labels[part, None], torch.ones_like(member[:, :1]))
            result += (member.T @ values).to(torch.float64)
        return ranks.sum(result)

    def cost(self, centers: Tensor, labels: Tensor, weight: Tensor | None = None, ranks: Ranks = ALONE) -> float:
        """Sum of squared distances of all points to the centers of their labels."""
        if self.sparse:
            full, dense, others, rest = self.halves
            found = rest.cost(centers[:, others], labels, weight)
            return found + dense.cost(centers[:, full], labels, weight) if dense.d else found
        squares = torch.empty(self.n, dtype=torch.float64, device=self.device)
        for part, values in self._rows():
            torch.sum(values.sub_(centers[labels[part]]).square_(), 1, out=squares[part])
        squares = squares if weight is None else squares * weight
        return float(exact_total(squares, ranks))

    def variances(self, rows: Tensor, weight: Tensor | None = None, ranks: Ranks = ALONE) -> Tensor:
        """Variance of every column over a subset of the points, [d] of float64."""
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
        (low, high), mass = part.ends(ranks), ranks.sum(counts_by_label(labels, 1, weight))
        middle = part._means(labels, mass, weight, (low, high), ranks)[0]
        extent = torch.maximum(high - middle, middle - low).square()
        return part.sums(labels, 1, weight, middle, extent, mass, ranks, square=True)[0] / mass


WIDER = {"bool": "uint8", "uint16": "int32", "uint32": "int64", "uint64": "float64", "float128": "float64"}


def native(dtype: np.dtype) -> Any:
    """The NumPy type in which torch computes with numbers of a type."""
    own = dtype.newbyteorder("=")
    return WIDER.get(own.name, own)


class SparseMatrix:
    """Matrix of n points and d columns that are mostly zeros.

    Parameters
    ----------
    matrix : sparse matrix [n, d]
        In CSC format.
    """

    def __init__(self, matrix: Any) -> None:
        self.n, self.d = matrix.shape
        self.matrix = matrix.astype(np.float64)
        self.value = torch.from_numpy(self.matrix.data)
        self.row = torch.from_numpy(self.matrix.indices).to(torch.int64)
        self.column = torch.arange(self.d).repeat_interleave(torch.from_numpy(np.diff(self.matrix.indptr)))

    def distances(self, centers: Tensor, metric: str) -> Tensor:
        """Squared Euclidean ("l2") or Manhattan ("l1") distances to centers [k, d], [n, k]."""
        if metric == "l2":
            squares = torch.from_numpy(np.asarray(self.matrix.power(2).sum(1)).reshape(-1, 1))
            products = torch.from_numpy(self.matrix @ np.ascontiguousarray(centers.numpy().T))
            return (squares - 2 * products + centers.square().sum(1)).clamp_(min=0)
        result = torch.empty(self.n, len(centers), dtype=torch.float64)
        for number, center in enumerate(centers):  # start from the distance of 0, and correct it for the entries
            own = center.index_select(0, self.column)
            change = (self.value - own).abs_().sub_(own.abs_())
            result[:, number] = center.abs().sum() + _added(self.row, change, self.n)
        return result.clamp_(min=0)

    def means(self, labels: Tensor, mass: Tensor, weight: Tensor | None) -> Tensor:
        """Mean of the points of every label, [k, d], given their mass [k]."""
        values = np.ones(self.n) if weight is None else weight.numpy()
        member = sparse.csr_array((values, (labels.numpy(), np.arange(self.n))), shape=(len(mass), self.n))
        sums = torch.from_numpy((member @ self.matrix).toarray())
        ends = [torch.from_numpy(end.toarray().ravel()) for end in (self.matrix.min(0), self.matrix.max(0))]
        middle = (ends[0] + ends[1]) / 2  # as for dense tables, so that rounding errors are the same
        return (sums - mass[:, None] * middle) / mass[:, None] + middle

    def cost(self, centers: Tensor, labels: Tensor, weight: Tensor | None) -> float:
        """Sum of squared distances of all points to the centers of their labels."""
        k = len(centers)
        share = torch.ones(self.n, dtype=torch.float64) if weight is None else weight
        own, mass = labels.index_select(0, self.row), share.index_select(0, self.row)
        squares = (self.value - centers[own, self.column]).square_()
        entries = _added(own * self.d + self.column, mass, k * self.d).view(k, self.d)
        zeros = _added(labels, share, k)[:, None] - entries
        return float(mass @ squares + (zeros * centers.square()).sum())

    def variances(self, weight: Tensor | None) -> Tensor:
        """Variance of every column, [d]."""
        share = torch.full((self.n,), 1 / self.n, dtype=torch.float64) if weight is None else weight / weight.sum()
        own = share.index_select(0, self.row)
        means = _added(self.column, own * self.value, self.d)
        squares = (self.value - means.index_select(0, self.column)).square_().mul_(own)
        zeros = 1 - _added(self.column, own, self.d)
        return _added(self.column, squares, self.d) + zeros * means.square()


def _added(index: Tensor, values: Tensor, size: int) -> Tensor:
    """Sums of the values with equal indices, [size]."""
    return torch.zeros(size, dtype=torch.float64).scatter_add_(0, index, values)
