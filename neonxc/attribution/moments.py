"""Means and squared deviations of values by group, collected in chunks, and Cohen's d of every group.

Of the values x with weights w of a group, in one column:

    count     n = sum w
    mean      m = sum w x / n
    squares   q = sum w (x - m)^2

    two chunks    q = q1 + q2 + (m1 - m2)^2 n1 n2 / (n1 + n2)        (Chan, Golub and LeVeque, 1979)
    Cohen's d     (m - m') / sqrt((q + q') / (n + n' - 2)), where n', m', q' are those of all other groups

Squares about another point c than the mean are larger, so that q = sum w (x - c)^2 - n (m - c)^2 has fewer digits:
at values near 1e8, squares about 0 have none left for deviations of 1. Therefore c is the mean of a chunk; for
sparse rows it is 0 while that is exact, and otherwise m, about which zeros have the square m^2.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from neonxc.data.sparse import SparseRows

ROUNDING = 1e-14  # relative size of what rounding makes of differences and deviations in a constant column
DIGITS = 1e-4  # squares about 0 lose at most 4 of 16 digits if those about the mean are a larger share of them
LEAST = 1e-12  # a smaller share of the squared deviations within the two groups is rounding error


class Moments:
    """Counts, means and squared deviations of d columns in k groups; all are on the CPU, in float64.

    Parameters
    ----------
    k, d : int
        Numbers of groups and of columns.

    Attributes
    ----------
    counts : Tensor [k, d]
        Numbers of values, or the sums of their weights.
    sums : Tensor [k, d]
        Sums of the values times their weights.
    squares : Tensor [k, d]
        Sums of the squared deviations from the mean of the group.
    """

    def __init__(self, k: int, d: int) -> None:
        self.counts = torch.zeros(k, d, dtype=torch.float64)
        self.sums = torch.zeros(k, d, dtype=torch.float64)
        self.squares = torch.zeros(k, d, dtype=torch.float64)

    @property
    def means(self) -> Tensor:
        """Means [k, d]; NaN without values."""
        return self.sums / self.counts

    @property
    def overall(self) -> Tensor:
        """Means [d] of all groups together."""
        return self.sums.sum(0) / self.counts.sum(0)

    def add(self, values: Tensor | SparseRows, group: Tensor, weights: Tensor | None = None) -> None:
        """Add a chunk of rows [n, d], none of whose values is missing.

        Parameters
        ----------
        values : Tensor or SparseRows [n, d]
        group : Tensor [n] of int64
            Position of each row's group.
        weights : Tensor [n] of float64, optional
        """
        group = group.cpu()
        weights = None if weights is None else weights.cpu()
        counts = torch.bincount(group, weights, minlength=len(self.counts))[:, None].double()
        if isinstance(values, SparseRows):
            matrix = values.matrix.astype(np.float64, copy=False)
            sums, squares = self._of_sparse(matrix, group, weights, counts)
        else:
            sums, squares = self._of_dense(values.cpu().double(), group, weights, counts)
        self._merge(slice(None), counts, sums, squares)

    def add_column(self, column: int, values: np.ndarray, group: np.ndarray, weights: np.ndarray) -> None:
        """Add values [n] of one column, of which those that are missing (NaN) do not count."""
        known = ~np.isnan(values)
        values = values[known]
        group = group[known]
        weights = weights[known]
        k = len(self.counts)
        counts = np.bincount(group, weights, minlength=k)
        sums = np.bincount(group, weights * values, minlength=k)
        means = sums / np.where(counts > 0, counts, 1.0)
        squares = np.bincount(group, weights * (values - means[group]) ** 2, minlength=k)
        parts = [torch.from_numpy(part)[:, None] for part in (counts, sums, squares)]
        self._merge(slice(column, column + 1), *parts)

    def _of_dense(
        self, values: Tensor, group: Tensor, weights: Tensor | None, counts: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Sums and squares [k, d] of dense rows: q = sum w (x - c)^2 - n (m - c)^2 for the mean c of the chunk."""
        mass = 1.0 if weights is None else weights[:, None]
        sums = torch.zeros_like(self.sums).index_add_(0, group, mass * values)
        center = values.mean(dim=0)
        squares = torch.zeros_like(self.sums).index_add_(0, group, mass * (values - center).square())
        squares -= counts * (sums / _divisor(counts) - center).square()
        return sums, squares

    def _of_sparse(
        self, matrix: sparse.csr_matrix, group: Tensor, weights: Tensor | None, counts: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Sums and squares [k, d] of sparse rows: about 0, where most values are, unless that loses digits."""
        n = matrix.shape[0]
        mass = np.ones(n) if weights is None else weights.numpy()
        members = sparse.csr_matrix((mass, (group.numpy(), np.arange(n))), shape=(len(self.counts), n))
        sums = torch.from_numpy((members @ matrix).toarray())
        about_0 = torch.from_numpy((members @ matrix.power(2)).toarray())
        squares = about_0 - sums.square() / _divisor(counts)

        inexact = (squares < DIGITS * about_0).any(dim=0).nonzero()[:, 0]
        if len(inexact):
            means = sums[:, inexact] / _divisor(counts)
            some = matrix[:, inexact.numpy()]
            squares[:, inexact] = _squares_about(means, some, group, mass, counts)
        return sums, squares

    def _merge(self, columns: slice, counts: Tensor, sums: Tensor, squares: Tensor) -> None:
        """Add the counts, sums and squares of a chunk in some columns."""
        before = self.counts[:, columns]
        apart = self.sums[:, columns] / _divisor(before) - sums / _divisor(counts)
        together = _divisor(before + counts)
        self.squares[:, columns] += squares + apart.square() * before * counts / together
        self.sums[:, columns] += sums
        self.counts[:, columns] += counts

    def cohens_d(self, groups: np.ndarray | None = None) -> np.ndarray:
        """Compute Cohen's d of every group against all others: the difference of means in pooled deviations.

        Parameters
        ----------
        groups : ndarray of int, optional
            The groups that are compared with one another. Default: all.

        Returns
        -------
        ndarray [G, d]
            Infinite if both sides are constant, and NaN if one of them has no values.
        """
        chosen = slice(None) if groups is None else torch.from_numpy(groups)
        counts, means, squares = (part[chosen].numpy() for part in (self.counts, self.means, self.squares))
        with np.errstate(divide="ignore", invalid="ignore"):
            filled = np.where(counts > 0, means, 0.0)
            n = counts.sum(0)
            grand = (counts * filled).sum(0) / counts.sum(0)
            others = n - counts
            difference = (filled - grand) * n / others  # to the mean of the others
            whole = (squares + counts * (filled - grand) ** 2).sum(0)
            within = whole - counts * others / n * difference**2
            pooled = np.sqrt(np.where(within > LEAST * whole, within, 0.0) / np.maximum(n - 2, 1))
            constant = np.maximum(np.abs(difference), pooled) <= ROUNDING * np.abs(grand)
            d = np.where(constant | (difference == 0), 0.0, difference / pooled)
        return np.where((counts > 0) & (others > 0), d, np.nan)


def _squares_about(
    means: Tensor, matrix: sparse.csr_matrix, group: Tensor, mass: np.ndarray, counts: Tensor
) -> Tensor:
    """Squares [k, d] of sparse rows about the means of groups: of the stored entries, and of the zeros."""
    k, d = means.shape
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    cell = group.numpy()[rows] * d + matrix.indices
    entries = mass[rows] * (matrix.data - means.numpy().ravel()[cell]) ** 2
    of_entries = np.bincount(cell, entries, minlength=k * d).reshape(k, d)

    # zeros are counted: the difference of two sums of weights may be rounding, which the square of a mean enlarges
    n_rows = np.bincount(group.numpy(), minlength=k)[:, None]
    has_zeros = n_rows > np.bincount(cell, minlength=k * d).reshape(k, d)
    stored = np.bincount(cell, mass[rows], minlength=k * d).reshape(k, d)
    zeros = np.where(has_zeros, counts.numpy() - stored, 0.0)
    return torch.from_numpy(of_entries) + torch.from_numpy(zeros) * means.square()


def _divisor(counts: Tensor) -> Tensor:
    """Counts by which sums are divided; 1 where there is nothing."""
    return torch.where(counts > 0, counts, 1.0)
