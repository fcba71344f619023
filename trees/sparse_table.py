"""Means, distances and costs of a sparse matrix whose columns are mostly zeros, from its entries."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor


def canonical(matrix: Any) -> Any:
    """A sparse matrix by columns, in which entries are sorted, each is there once, and none is zero."""
    result = matrix.tocsc()
    if not result.has_canonical_format or not result.data.all():
        result = result.copy() if result is matrix else result
        result.sum_duplicates()
        result.eliminate_zeros()
    return result


class SparsePart:
    """Points [n] by columns [d] that are mostly zeros.

    Parameters
    ----------
    matrix : sparse matrix [n, d]
        By columns.
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
        for number, center in enumerate(centers):  # how far an entry is, in place of zero
            own = center.index_select(0, self.column)
            change = (self.value - own).abs_().sub_(own.abs_())
            result[:, number] = center.abs().sum() + torch.bincount(self.row, change, minlength=self.n)
        return result.clamp_(min=0)

    def sums(self, labels: Tensor, k: int, weight: Tensor | None) -> Tensor:
        """Sums of the points of every label, [k, d]."""
        return torch.from_numpy((_member(labels, k, weight) @ self.matrix).toarray())

    def cost(self, centers: Tensor, labels: Tensor, weight: Tensor | None) -> float:
        """Sum of squared distances of all points to the centers of their labels."""
        k = len(centers)
        own = labels.index_select(0, self.row)
        squares = (self.value - centers[own, self.column]).square_()
        entries = torch.bincount(own * self.d + self.column, _of(weight, self.row), minlength=k * self.d)
        zeros = torch.bincount(labels, weight, minlength=k)[:, None] - entries.view(k, self.d)
        own_weight = _of(weight, self.row)
        squares = squares if own_weight is None else squares.mul_(own_weight)
        return float(squares.sum() + (zeros * centers.square()).sum())

    def variances(self, weight: Tensor | None) -> Tensor:
        """Variance of every column, [d]."""
        share = torch.full((self.n,), 1 / self.n, dtype=torch.float64) if weight is None else weight / weight.sum()
        own = share.index_select(0, self.row)
        means = torch.bincount(self.column, own * self.value, minlength=self.d)
        squares = (self.value - means.index_select(0, self.column)).square_().mul_(own)
        zeros = 1 - torch.bincount(self.column, own, minlength=self.d)
        return torch.bincount(self.column, squares, minlength=self.d) + zeros * means.square()


def _member(labels: Tensor, k: int, weight: Tensor | None) -> Any:
    """Which points have a label, with their weights, [k, n]."""
    n = len(labels)
    values = np.ones(n) if weight is None else weight.numpy()
    return sparse.csr_array((values, (labels.numpy(), np.arange(n))), shape=(k, n))


def _of(weight: Tensor | None, rows: Tensor) -> Tensor | None:
    return None if weight is None else weight.index_select(0, rows)
