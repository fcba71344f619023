"""Means and squared deviations of values by group, collected in chunks, and Cohen's d of every group.

Of the values x with weights w of a group, in one column:

    count     n = sum w
    mean      m = sum w x / n
    squares   q = sum w (x - m)^2

    two chunks    q = q1 + q2 + (m1 - m2)^2 n1 n2 / (n1 + n2)        (Chan, Golub and LeVeque, 1979)
    Cohen's d     d = (m - m') / sqrt((q + q') / (N - 2)), where n', m', q' are those of all other groups together,
                  and N = n + n'

Cohen's d needs no sums over the other groups. With the mean M of all groups and Q = sum (q + n (m - M)^2) over
them,

    m - m' = (m - M) N / n'     and     q + q' = Q - n n' / N (m - m')^2.

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
DIGITS = 1e-4  # squares about 0 lose at most 4 of 16 digits if those about the mean are a larger fraction of them
MIN_WITHIN = 1e-12  # a smaller fraction of the squared deviations within the two groups is rounding error


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
        of_column = [torch.from_numpy(array)[:, None] for array in (counts, sums, squares)]
        self._merge(slice(column, column + 1), *of_column)

    def _of_dense(
        self, values: Tensor, group: Tensor, weights: Tensor | None, counts: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Compute the sums and squares [k, d] of dense rows, with the mean of the chunk as the point c."""
        mass = 1.0 if weights is None else weights[:, None]
        sums = torch.zeros_like(self.sums).index_add_(0, group, mass * values)
        means = sums / _divisor(counts)

        # q = sum w (x - c)^2 - n (m - c)^2
        c = values.mean(dim=0)
        squares = torch.zeros_like(self.sums).index_add_(0, group, mass * (values - c).square())
        squares -= counts * (means - c).square()
        return sums, squares

    def _of_sparse(
        self, matrix: sparse.csr_matrix, group: Tensor, weights: Tensor | None, counts: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Compute the sums and squares [k, d] of sparse rows, with c = 0 in the columns where that is exact."""
        n = matrix.shape[0]
        mass = np.ones(n) if weights is None else weights.numpy()
        # [k, n], the weight of every row in the line of its group: its products with the rows are sums by group
        members = sparse.csr_matrix((mass, (group.numpy(), np.arange(n))), shape=(len(self.counts), n))
        sums = torch.from_numpy((members @ matrix).toarray())

        # q = sum w x^2 - (sum w x)^2 / n
        squares_about_0 = torch.from_numpy((members @ matrix.power(2)).toarray())
        squares = squares_about_0 - sums.square() / _divisor(counts)

        is_inexact = (squares < DIGITS * squares_about_0).any(dim=0)
        inexact = is_inexact.nonzero()[:, 0]  # columns
        if len(inexact):
            means = sums[:, inexact] / _divisor(counts)
            columns = matrix[:, inexact.numpy()]
            squares[:, inexact] = _squares_about(means, columns, group, mass, counts)
        return sums, squares

    def _merge(self, columns: slice, counts: Tensor, sums: Tensor, squares: Tensor) -> None:
        """Add the counts, sums and squares [k, columns] of a chunk of columns."""
        counts_before = self.counts[:, columns]
        means_before = self.sums[:, columns] / _divisor(counts_before)
        means = sums / _divisor(counts)
        difference = means_before - means
        total = _divisor(counts_before + counts)

        # q = q1 + q2 + (m1 - m2)^2 n1 n2 / (n1 + n2)
        self.squares[:, columns] += squares + difference.square() * counts_before * counts / total
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
        counts = self.counts[chosen].numpy()  # n [G, d]
        means = self.means[chosen].numpy()  # m, NaN without values
        squares = self.squares[chosen].numpy()  # q
        with np.errstate(divide="ignore", invalid="ignore"):
            means = np.where(counts > 0, means, 0.0)
            total = counts.sum(0)  # N [d]
            n_others = total - counts  # n' [G, d]
            overall = (counts * means).sum(0) / counts.sum(0)  # M [d]
            from_overall = means - overall
            difference = from_overall * total / n_others  # m - m'

            all_squares = (squares + counts * from_overall**2).sum(0)  # Q [d]
            within = all_squares - counts * n_others / total * difference**2  # q + q'
            within = np.where(within > MIN_WITHIN * all_squares, within, 0.0)
            deviation = np.sqrt(within / np.maximum(total - 2, 1))

            is_constant = np.maximum(np.abs(difference), deviation) <= ROUNDING * np.abs(overall)
            d = np.where(is_constant | (difference == 0), 0.0, difference / deviation)
        return np.where((counts > 0) & (n_others > 0), d, np.nan)


def _squares_about(
    means: Tensor, matrix: sparse.csr_matrix, group: Tensor, mass: np.ndarray, counts: Tensor
) -> Tensor:
    """Compute the squares [k, d] of sparse rows about the means of groups.

    They are the sum of w (x - m)^2 over the stored entries, and of w m^2 over the zeros, which are not stored.
    """
    k, d = means.shape
    row = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))  # of each stored entry
    cell = group.numpy()[row] * d + matrix.indices  # position in [k, d] of its group and column
    deviations = matrix.data - means.numpy().ravel()[cell]
    squares_of_entries = np.bincount(cell, mass[row] * deviations**2, minlength=k * d).reshape(k, d)

    # zeros are counted: the difference of two sums of weights may be rounding, which the square of a mean enlarges
    n_rows = np.bincount(group.numpy(), minlength=k)[:, None]
    n_entries = np.bincount(cell, minlength=k * d).reshape(k, d)
    mass_of_entries = np.bincount(cell, mass[row], minlength=k * d).reshape(k, d)
    mass_of_zeros = np.where(n_rows > n_entries, counts.numpy() - mass_of_entries, 0.0)
    return torch.from_numpy(squares_of_entries) + torch.from_numpy(mass_of_zeros) * means.square()


def _divisor(counts: Tensor) -> Tensor:
    """Return the counts by which sums are divided; 1 where there are no values, whose sum is 0."""
    return torch.where(counts > 0, counts, 1.0)
