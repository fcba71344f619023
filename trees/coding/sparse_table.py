"""Means, distances, costs and variances of a sparse matrix, computed from its entries, and types of numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

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
