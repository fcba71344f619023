"""Sparse points, such as counts of terms, of which only the nonzero entries are stored."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import torch
from scipy import sparse
from scipy.sparse.linalg import norm
from sklearn.utils.sparsefuncs import mean_variance_axis
from torch import Tensor

from neonxc.common.memory import blocks
from neonxc.data.inputs import Batch, check_finite, compute_dtype

MOST = 1 << 30  # maximum bytes of a dense result, 1 GiB
ORDERS = {"l1": 1.0, "l2": 2.0, "max": float("inf")}


class SparseRows:
    """Sparse points [N, d] with the part of the tensor interface that carriers and heads use.

    Parameters
    ----------
    matrix : scipy.sparse CSR matrix [N, d]
        The points, in float32 or float64.
    device : torch.device
        Device of the results; the products themselves are computed on the CPU, in float64.
    whole : bool
        Whether a slice is sparse as well. If False, a slice is a dense tensor.
    """

    ndim = 2

    def __init__(self, matrix: Any, device: torch.device, whole: bool = True) -> None:
        self.matrix, self.device, self.whole = matrix, device, whole

    def __len__(self) -> int:
        return int(self.matrix.shape[0])

    def __getitem__(self, rows: slice) -> Any:
        part = SparseRows(self.matrix[rows], self.device)
        return part if self.whole else part.dense()

    @property
    def shape(self) -> torch.Size:
        """Numbers of points and columns, (N, d)."""
        return torch.Size(self.matrix.shape)

    @property
    def entries(self) -> Tensor:
        """Values of the stored entries, [entries]."""
        return torch.from_numpy(self.matrix.data)

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the entries."""
        return self.entries.dtype

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

    def place(self, entry: int) -> tuple[int, int]:
        """Return the row and the column of a stored entry."""
        row = int(np.searchsorted(self.matrix.indptr, entry, side="right")) - 1
        return row, int(self.matrix.indices[entry])

    def places(self) -> tuple[Tensor, Tensor]:
        """Return the rows and columns [entries] of the stored entries."""
        rows = np.repeat(np.arange(len(self)), np.diff(self.matrix.indptr))
        return torch.from_numpy(rows), torch.from_numpy(self.matrix.indices.astype(np.int64))

    def __matmul__(self, other: Tensor) -> Tensor:
        """Return the product [N, p] with a matrix [d, p], in float64."""
        product = self.matrix.astype(np.float64, copy=False) @ other.detach().double().cpu().numpy()
        return torch.from_numpy(product).to(self.device)

    def norms(self, weight: Tensor, bias: Tensor, kind: str) -> Tensor:
        """Compute the norms [N] (l1, l2 or max) of ``weight x + bias`` for a weight [d] or [p, d], in float64."""
        if weight.ndim == 1 and not bool(bias.any()):
            scaled = self.matrix.astype(np.float64).multiply(weight.detach().double().cpu().numpy()).tocsr()
            return torch.from_numpy(norm(scaled, ORDERS[kind], axis=1)).to(self.device)
        weight, bias, parts = weight.double(), bias.double(), []
        for block in blocks(len(self), 32 * max(weight.shape[0], 1), self.device):
            part = SparseRows(self.matrix[block], self.device)
            z = part.dense().double() * weight if weight.ndim == 1 else part @ weight.T
            parts.append(torch.linalg.vector_norm(z + bias, ORDERS[kind], dim=1))
        return torch.cat(parts)


def is_sparse(X: Any) -> bool:
    """Whether data is a SciPy sparse matrix or array."""
    return sparse.issparse(X)


def canonical(matrix: Any, form: str = "csr") -> Any:
    """Convert a sparse matrix to CSR or CSC with sorted indices, without duplicates and explicit zeros."""
    result = matrix.asformat(form)
    if not result.has_canonical_format or not result.data.all():
        result = result.copy() if result is matrix else result
        result.sum_duplicates()
        result.eliminate_zeros()
    return result


def sparse_batch(X: Any, *, device: torch.device, whole: bool, name: str = "X") -> Batch:
    """Check a SciPy sparse matrix [N, d]; the counterpart of :func:`neonxc.data.inputs.as_batch` for sparse data.

    Results are returned as arrays.

    Raises
    ------
    ValueError
        If the data is not numeric, is empty, does not have two dimensions, or has values that are not finite. The
        message names the column.
    """
    if X.dtype.kind not in "fiub":
        raise ValueError(f"{name} needs real numbers, got sparse rows of {X.dtype}")
    if X.ndim != 2 or 0 in X.shape:
        raise ValueError(f"{name} needs shape [points, features] and points, got {list(X.shape)}")
    source = X.dtype if X.dtype in (np.float32, np.float64) else np.dtype(np.float64)
    matrix = canonical(X).astype(source, copy=False)
    rows = SparseRows(matrix, device, whole)
    check_finite(cast(Tensor, rows), name=name)

    def restore(result: Tensor) -> np.ndarray:
        keep = compute_dtype(rows.dtype) if X.dtype.kind == "f" else result.dtype
        return result.detach().cpu().to(keep).numpy()

    # used as a tensor: callers slice it and read its length, dtype and device
    return Batch(cast(Tensor, rows), None, restore, lambda values: values)


def moments(X: Any) -> tuple[Tensor, Tensor]:
    """Compute the means and standard deviations [d] of sparse columns; the latter are 1 for constant columns."""
    batch = X if isinstance(X, SparseRows) else sparse_batch(X, device=torch.device("cpu"), whole=True).tensor
    mean, variance = mean_variance_axis(cast(SparseRows, batch).matrix.astype(np.float64), axis=0)
    return torch.from_numpy(mean), torch.from_numpy(np.where(variance > 0, np.sqrt(variance), 1.0))


def dense(x: Any) -> Tensor:
    """Convert sparse points to a dense tensor; tensors are returned unchanged."""
    return x.dense() if isinstance(x, SparseRows) else x


def laid_out(X: Any, *, name: str = "X") -> Any:
    """Convert a sparse matrix to a dense array; other data is returned unchanged.

    Raises
    ------
    ValueError
        If the array takes more than 1 GiB.
    """
    if not is_sparse(X):
        return X
    n, d = X.shape
    if n > _room(d, 8):
        raise ValueError(
            f"{name} is sparse, and a surrogate needs a dense array; {n} points with {d} columns take too much "
            f"memory: give it at most {_room(d, 8)} points, or fewer columns (TruncatedSVD)"
        )
    return X.toarray()


def check_room(x: Any) -> None:
    """Raise a ValueError if the relevance of sparse points, which is dense, takes more than 1 GiB."""
    if not isinstance(x, SparseRows):
        return
    n, d = x.shape
    if n > (most := _room(d, x.element_size())):
        size = n * d * x.element_size() / (1 << 30)
        raise ValueError(
            f"relevance is dense, because absent terms have relevance, too: for {n} points with {d} columns "
            f"it takes {size:.1f} GiB; pass at most {most} points at once, or use NEON.summary"
        )


def _room(d: int, size: int) -> int:
    """Maximum number of dense rows of d numbers."""
    return max(1, MOST // (d * size))
