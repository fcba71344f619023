"""Sparse points, such as counts of terms, of which only the nonzero entries are stored."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy import sparse
from scipy.sparse.linalg import norm
from sklearn.utils.sparsefuncs import mean_variance_axis
from torch import Tensor

from neonxc.common.memory import blocks
from neonxc.common.numbers import plural

MOST = 1 << 30  # maximum bytes of a dense result, 1 GiB
ABSENT = "relevance is dense, because absent terms have relevance, too"
"""Why the relevance of sparse points is dense."""
ORDERS = {"l1": 1.0, "l2": 2.0, "max": float("inf")}
"""Orders p of the norms (sum of |z_i|^p)^(1/p) of scikit-learn's Normalizer."""


class SparseRows:
    """Sparse points [N, d], whose slices are sparse, with the part of the tensor interface that heads use.

    Parameters
    ----------
    matrix : scipy.sparse CSR matrix [N, d]
        The points, in float32 or float64.
    device : torch.device
        Device of the results; the products themselves are computed on the CPU, in float64.

    Attributes
    ----------
    entries : Tensor [entries]
        Values of the stored entries.
    """

    ndim = 2
    has_sparse_slices = True

    def __init__(self, matrix: sparse.csr_matrix | sparse.csr_array, device: torch.device) -> None:
        self.matrix = matrix
        self.device = device
        self.entries = torch.from_numpy(matrix.data)  # shares the memory of the matrix
        self.shape = torch.Size(matrix.shape)
        self.dtype = self.entries.dtype

    def __len__(self) -> int:
        return int(self.matrix.shape[0])

    def __getitem__(self, rows: slice) -> Any:
        return SparseRows(self.matrix[rows], self.device)

    @property
    def bytes_per_row(self) -> int:
        """Average number of stored bytes per row."""
        return 16 * self.matrix.nnz // max(1, len(self))

    def element_size(self) -> int:
        """Number of bytes per entry."""
        return self.entries.element_size()

    def dense(self) -> Tensor:
        """Return the points as a dense tensor [N, d]."""
        return torch.from_numpy(self.matrix.toarray()).to(self.device)

    def places(self) -> tuple[Tensor, Tensor]:
        """Return the rows and columns [entries] of the stored entries."""
        rows = np.repeat(np.arange(len(self)), np.diff(self.matrix.indptr))
        columns = self.matrix.indices.astype(np.int64)
        return torch.from_numpy(rows), torch.from_numpy(columns)

    def __matmul__(self, other: Tensor) -> Tensor:
        """Return the product [N, p] with a matrix [d, p], in float64."""
        matrix = self.matrix.astype(np.float64, copy=False)
        product = matrix @ other.detach().double().cpu().numpy()
        return torch.from_numpy(product).to(self.device)

    def moments(self) -> tuple[Tensor, Tensor]:
        """Compute the means and standard deviations [d] of the columns; the latter are 1 for constant columns."""
        mean, variance = mean_variance_axis(self.matrix.astype(np.float64), axis=0)
        deviation = np.where(variance > 0, np.sqrt(variance), 1.0)
        return torch.from_numpy(mean), torch.from_numpy(deviation)

    def norms(self, weight: Tensor, bias: Tensor, kind: str) -> Tensor:
        """Compute the norms [N] (l1, l2 or max) of ``weight x + bias`` for a weight [d] or [p, d], in float64."""
        order = ORDERS[kind]
        if weight.ndim == 1 and not bool(bias.any()):  # weight x is as sparse as x
            factors = weight.detach().double().cpu().numpy()
            scaled = self.matrix.astype(np.float64).multiply(factors).tocsr()
            return torch.from_numpy(norm(scaled, order, axis=1)).to(self.device)

        weight = weight.double()
        bias = bias.double()
        norms = []
        for block in blocks(len(self), 32 * max(weight.shape[0], 1), self.device):
            x = SparseRows(self.matrix[block], self.device)
            if weight.ndim == 1:  # a scale [d]
                z = x.dense().double() * weight
            else:  # a matrix [p, d]
                z = x @ weight.T
            norms.append(torch.linalg.vector_norm(z + bias, order, dim=1))
        return torch.cat(norms)


class DenseBlocks(SparseRows):
    """Sparse points [N, d] whose slices are dense tensors."""

    has_sparse_slices = False

    def __getitem__(self, rows: slice) -> Tensor:
        return SparseRows(self.matrix[rows], self.device).dense()


def canonical(matrix: Any, form: str = "csr") -> Any:
    """Convert a sparse matrix to CSR or CSC with sorted indices, without duplicates and explicit zeros."""
    converted = matrix.asformat(form)
    if not converted.has_canonical_format or not converted.data.all():
        if converted is matrix:  # the caller's own matrix stays as it is
            converted = converted.copy()
        converted.sum_duplicates()
        converted.eliminate_zeros()
    return converted


def dense(x: Tensor | SparseRows) -> Tensor:
    """Convert sparse points to a dense tensor; tensors are returned unchanged."""
    if isinstance(x, SparseRows):
        return x.dense()
    return x


def check_room(x: object, why: str = ABSENT, instead: str = "use NEON.summary") -> None:
    """Raise a ValueError if sparse points, or their relevance, take more than 1 GiB as a dense tensor."""
    matrix: Any = getattr(x, "matrix", x)
    if not sparse.issparse(matrix):
        return
    n, d = matrix.shape
    bytes_per_row = d * matrix.dtype.itemsize
    n_max = max(1, MOST // bytes_per_row)
    if n > n_max:
        raise ValueError(
            f"{why}: for {n} points with {d} columns it takes {n * bytes_per_row / 2**30:.1f} GiB; pass at most "
            f"{plural(n_max, 'point')} at once, or {instead}"
        )
