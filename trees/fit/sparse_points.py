"""A sparse table of points, whose mostly nonzero columns are computed with as a dense one.

For the other columns, sums over points are those over the entries, corrected for the zeros. With z the number (or
weight) of the points without an entry in a column:

    l2 distance to c   |x|^2 - 2 x c + |c|^2
    l1 distance to c   sum over the columns of |c_j|, plus |x_j - c_j| - |c_j| for the entries
    cost at c          sum over the entries of w (x_j - c_j)^2, plus z c_j^2
    variance           sum over the entries of w (x_j - mean)^2, plus z mean^2, for weights of sum 1
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from neonxc.common.processes import ALONE, Ranks
from neonxc.data.sparse import canonical
from neonxc.trees.cuts.exact_sums import counts_by_label
from neonxc.trees.fit.points import Dense, column_ranges, native, projection

FEW = 16  # if at most 1 of FEW values is nonzero, storing entries takes less memory than storing all codes


class Sparse:
    """The same as :class:`~neonxc.trees.fit.points.Dense` for a sparse matrix, in a single process.

    Parameters
    ----------
    data : SciPy sparse matrix [n, d]
    """

    device = torch.device("cpu")

    def __init__(self, data: Any) -> None:
        data = canonical(data, "csc")
        self.data = data.astype(native(data.dtype), copy=False)
        self.dtype = torch.from_numpy(self.data.data[:0]).dtype
        self.n, self.d = self.data.shape

    @cached_property
    def by_row(self) -> Any:
        """The matrix in CSR format."""
        return self.data.tocsr()

    @property
    def few_entries(self) -> bool:
        """Whether there are so few entries that cuts are searched among the entries."""
        return FEW * self.data.nnz <= self.n * self.d

    @cached_property
    def _halves(self) -> tuple[Tensor, Dense, Tensor, _Entries]:
        """Mask and dense table of the mostly nonzero columns, and mask and entries of the other columns."""
        is_full = np.diff(self.data.indptr) > self.n / 2
        dense = Dense(torch.from_numpy(self.data[:, is_full].toarray()))
        entries = _Entries(self.data[:, ~is_full])
        return torch.from_numpy(is_full), dense, torch.from_numpy(~is_full), entries

    def columns(self, first: int, last: int) -> Tensor:
        """As for a dense table."""
        return torch.from_numpy(self.data[:, first:last].toarray(order="F").T)

    def column(self, feature: int, rows: Tensor | None = None) -> Tensor:
        """As for a dense table."""
        column = self.columns(feature, feature + 1)[0]
        if rows is None:
            return column
        return column[rows]

    def at(self, features: Tensor, rows: Tensor) -> Tensor:
        """As for a dense table."""
        chosen = self.by_row[rows.numpy()].tocsc()[:, features.numpy()]
        return torch.from_numpy(chosen.toarray(order="F").T)

    def rows(self, chunk: slice) -> Tensor:
        """As for a dense table."""
        return torch.from_numpy(self.by_row[chunk].toarray())

    def take(self, rows: Tensor) -> Sparse:
        """As for a dense table."""
        return Sparse(self.by_row[rows.numpy()])

    def chunks(self, ranks: Ranks = ALONE) -> list[tuple[int, int]]:
        """As for a dense table."""
        return column_ranges(self.d, self.n)

    def distinct(self) -> tuple[Any, np.ndarray, np.ndarray]:
        """As for a dense table; rows are compared by two random projections."""
        rows = self.by_row
        # KMeans takes indices of 32 bits only; this constructor finds out whether they suffice
        rows = sparse.csr_matrix((rows.data, rows.indices, rows.indptr), rows.shape)
        _, first, inverse, count = np.unique(
            rows @ projection(self.d), axis=0, return_index=True, return_inverse=True, return_counts=True
        )
        return rows[first], inverse.reshape(-1), count

    def ends(self, ranks: Ranks = ALONE) -> tuple[Tensor, Tensor]:
        """As for a dense table."""
        return self._ends

    @cached_property
    def _ends(self) -> tuple[Tensor, Tensor]:
        low, high = _ends(self.data)
        return low.to(torch.float64), high.to(torch.float64)

    def distances(self, centers: Tensor, metric: str = "l2") -> Tensor:
        """As for a dense table."""
        full, dense, sparse_columns, entries = self._halves
        distances = entries.distances(centers[:, sparse_columns], metric)
        if not dense.d:
            return distances
        return distances + dense.distances(centers[:, full], metric)

    def means(self, labels: Tensor, k: int, weight: Tensor | None = None, ranks: Ranks = ALONE) -> Tensor:
        """As for a dense table."""
        full, dense, sparse_columns, entries = self._halves
        means = torch.empty(k, self.d, dtype=torch.float64)
        means[:, sparse_columns] = entries.means(labels, counts_by_label(labels, k, weight), weight)
        if dense.d:
            means[:, full] = dense.means(labels, k, weight)
        return means

    def cost(self, centers: Tensor, labels: Tensor, weight: Tensor | None = None, ranks: Ranks = ALONE) -> float:
        """As for a dense table."""
        full, dense, sparse_columns, entries = self._halves
        cost = entries.cost(centers[:, sparse_columns], labels, weight)
        if not dense.d:
            return cost
        return cost + dense.cost(centers[:, full], labels, weight)

    def variances(self, weight: Tensor | None = None, ranks: Ranks = ALONE) -> Tensor:
        """As for a dense table."""
        full, dense, sparse_columns, entries = self._halves
        variances = torch.empty(self.d, dtype=torch.float64)
        variances[sparse_columns] = entries.variances(weight)
        if dense.d:
            variances[full] = dense.variances(weight)
        return variances


Points = Dense | Sparse
"""The points of a fit."""


def as_points(data: Any) -> Points:
    """Return the points of a tensor or of a SciPy sparse matrix."""
    if isinstance(data, Tensor):
        return Dense(data)
    return Sparse(data)


class _Entries:
    """Columns that are mostly zeros, as a sparse matrix [n, d] in CSC format."""

    def __init__(self, matrix: Any) -> None:
        self.n, self.d = matrix.shape
        self.matrix = matrix.astype(np.float64)
        self.value = torch.from_numpy(self.matrix.data)
        self.row = torch.from_numpy(self.matrix.indices).to(torch.int64)
        self.column = torch.arange(self.d).repeat_interleave(torch.from_numpy(np.diff(self.matrix.indptr)))

    def distances(self, centers: Tensor, metric: str) -> Tensor:
        """Compute the squared Euclidean ("l2") or Manhattan ("l1") distances to centers [k, d], [n, k]."""
        if metric == "l2":
            squares = torch.from_numpy(np.asarray(self.matrix.power(2).sum(1)).reshape(-1, 1))
            products = torch.from_numpy(self.matrix @ np.ascontiguousarray(centers.numpy().T))
            return (squares - 2 * products + centers.square().sum(1)).clamp_(min=0)
        result = torch.empty(self.n, len(centers), dtype=torch.float64)
        for number, center in enumerate(centers):
            at_entries = center.index_select(0, self.column)
            change = (self.value - at_entries).abs_().sub_(at_entries.abs_())
            result[:, number] = center.abs().sum() + _added(self.row, change, self.n)
        return result.clamp_(min=0)

    def means(self, labels: Tensor, mass: Tensor, weight: Tensor | None) -> Tensor:
        """Compute the mean of the points of every label, [k, d], given their mass [k]."""
        weights = np.ones(self.n) if weight is None else weight.numpy()
        positions = labels.numpy(), np.arange(self.n)
        is_member = sparse.csr_array((weights, positions), shape=(len(mass), self.n))
        sums = torch.from_numpy((is_member @ self.matrix).toarray())
        low, high = _ends(self.matrix)
        middle = (low + high) / 2  # as for dense tables, so that rounding errors are the same
        return (sums - mass[:, None] * middle) / mass[:, None] + middle

    def cost(self, centers: Tensor, labels: Tensor, weight: Tensor | None) -> float:
        """Compute the sum of squared distances of all points to the centers of their labels."""
        k = len(centers)
        mass = torch.ones(self.n, dtype=torch.float64) if weight is None else weight
        label_of_entry = labels.index_select(0, self.row)
        mass_of_entry = mass.index_select(0, self.row)
        squares = (self.value - centers[label_of_entry, self.column]).square_()
        cell = label_of_entry * self.d + self.column
        entries = _added(cell, mass_of_entry, k * self.d).view(k, self.d)
        zeros = _added(labels, mass, k)[:, None] - entries
        return float(mass_of_entry @ squares + (zeros * centers.square()).sum())

    def variances(self, weight: Tensor | None) -> Tensor:
        """Compute the variance of every column, [d]."""
        if weight is None:
            fraction = torch.full((self.n,), 1 / self.n, dtype=torch.float64)
        else:
            fraction = weight / weight.sum()
        of_entry = fraction.index_select(0, self.row)
        means = _added(self.column, of_entry * self.value, self.d)
        differences = self.value - means.index_select(0, self.column)
        squares = differences.square_().mul_(of_entry)
        zeros = 1 - _added(self.column, of_entry, self.d)
        return _added(self.column, squares, self.d) + zeros * means.square()


def _added(index: Tensor, values: Tensor, size: int) -> Tensor:
    """Compute the sums of the values with equal indices, [size]."""
    return torch.zeros(size, dtype=torch.float64).scatter_add_(0, index, values)


def _ends(matrix: Any) -> tuple[Tensor, Tensor]:
    """Compute the minimum and maximum of every column, [d] each."""
    low = torch.from_numpy(matrix.min(0).toarray().ravel())
    high = torch.from_numpy(matrix.max(0).toarray().ravel())
    return low, high
