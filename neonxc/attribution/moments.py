"""Means and squared deviations of values by group, collected in chunks, and the effect sizes of every group.

Of the values x with weights w of a group, in one column:

    count     n = sum w
    mean      m = sum w x / n
    squares   q = sum w (x - m)^2

    two chunks    n = n1 + n2,  m = m1 + (m2 - m1) n2 / n
                  q = q1 + q2 + (m1 - m2)^2 n1 n2 / n                  (Chan, Golub and LeVeque, 1979)
    Cohen's d     d = (m - m') / sqrt((q + q') / (N - 2)), where n', m', q' are those of all other groups together,
                  and N = n + n'

The formula for two chunks also merges all groups but one, from the groups before it and those behind it. No step
subtracts large numbers from one another: at values near 1e8, squares about 0 have no digits left for deviations of
1, and squares about the mean of all groups have none where another group is far away. Squares are therefore taken
about the mean of the group in the chunk. As this mean is rounded, the deviations have a mean r of their own,
which is added to it, and q = sum w (x - m)^2 - n r^2. For sparse rows the squares are taken about 0 while that is
exact.

The effect size of categories is Cramér's V of a group against all other points, 0 to 1. Of the n points of the
group, the fraction p_c is in category c, and of all N points the fraction q_c:

    V = sqrt(chi^2 / N) = sqrt(n / (N - n) sum_c (p_c - q_c)^2 / q_c),

with chi^2 of the table whose two rows are the group and all other points, and whose columns are the categories.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from neonxc.data.sparse import SparseRows

ROUNDING = 1e-14  # relative size of what rounding makes of differences and deviations in a constant column
DIGITS = 1e-4  # squares about 0 lose at most 4 of 16 digits if those about the mean are a larger fraction of them


class Sums(NamedTuple):
    """The moments of groups of values; the means are 0 without values."""

    counts: Tensor  # n
    means: Tensor  # m
    squares: Tensor  # q

    def merged(self, other: Sums) -> Sums:
        """Return the moments of these values and others together."""
        counts = self.counts + other.counts
        total = _divisor(counts)
        difference = other.means - self.means
        # without values on one side, the difference is from 0 and does not count
        means = self.means + difference * (other.counts / total)
        means = torch.where(self.counts > 0, means, other.means)
        squares = self.squares + other.squares + difference.square() * (self.counts * other.counts / total)
        return Sums(counts, means, squares)


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
    squares : Tensor [k, d]
        Sums of the squared deviations from the mean of the group.
    """

    def __init__(self, k: int, d: int) -> None:
        self._sums = Sums(*torch.zeros(3, k, d, dtype=torch.float64))

    @property
    def counts(self) -> Tensor:
        """Numbers of values [k, d], or the sums of their weights."""
        return self._sums.counts

    @property
    def squares(self) -> Tensor:
        """Sums [k, d] of the squared deviations from the mean of the group."""
        return self._sums.squares

    @property
    def means(self) -> Tensor:
        """Means [k, d]; NaN without values."""
        return _known(self._sums)

    @property
    def overall(self) -> Tensor:
        """Means [d] of all groups together; NaN without values."""
        return _known(_before_each(self._sums)[-1])

    @property
    def others(self) -> Tensor:
        """Means [k, d] of all groups but each one; NaN without values."""
        return _known(_others(self._sums))

    def deviations(self) -> Tensor:
        """Standard deviations [k, d], with the count as the divisor; 0 without values."""
        return (self.squares / _divisor(self.counts)).sqrt()

    def deviations_of_others(self) -> Tensor:
        """Standard deviations [k, d] of all groups but each one; 0 without values."""
        others = _others(self._sums)
        return (others.squares / _divisor(others.counts)).sqrt()

    def add(
        self,
        values: Tensor | SparseRows | np.ndarray,
        group: Tensor | np.ndarray,
        weights: Tensor | np.ndarray | None = None,
    ) -> None:
        """Add a chunk of rows [n, d].

        Parameters
        ----------
        values : Tensor, array or SparseRows [n, d]
            Values, of which those that are missing (NaN) do not count; sparse rows have none.
        group : Tensor or array [n] of int64
            Position of each row's group.
        weights : Tensor or array [n] of float64, optional
        """
        self._sums = self._sums.merged(self._of_chunk(values, group, weights))

    def add_column(self, column: int, values: np.ndarray, group: np.ndarray, weights: np.ndarray) -> None:
        """Add values [n] of one column, of which those that are missing (NaN) do not count."""
        chunk = Moments(len(self.counts), 1)
        chunk.add(values[:, None], group, weights)
        place = slice(column, column + 1)
        before = Sums(*(part[:, place] for part in self._sums))
        for part, merged in zip(self._sums, before.merged(chunk._sums), strict=True):
            part[:, place] = merged

    def _of_chunk(
        self,
        values: Tensor | SparseRows | np.ndarray,
        group: Tensor | np.ndarray,
        weights: Tensor | np.ndarray | None,
    ) -> Sums:
        """Compute the moments of a chunk of rows."""
        group = _tensor(group).long()  # positions are exact in float64
        if weights is not None:
            weights = _tensor(weights)
        if isinstance(values, SparseRows):
            return self._of_sparse(values.matrix.astype(np.float64, copy=False), group, weights)
        return self._of_dense(_tensor(values), group, weights)

    def _of_dense(self, values: Tensor, group: Tensor, weights: Tensor | None) -> Sums:
        """Compute the moments of dense rows."""
        k, d = self.counts.shape
        is_missing = values.isnan()
        mass = torch.ones(len(values), 1, dtype=torch.float64) if weights is None else weights[:, None]
        if bool(is_missing.any()):
            mass = mass * ~is_missing  # [n, d]
            values = values.masked_fill(is_missing, 0.0)

        def sums_by_group(terms: Tensor) -> Tensor:
            return torch.zeros(k, terms.shape[1], dtype=torch.float64).index_add_(0, group, terms)

        counts = sums_by_group(mass).expand(k, d).clone()
        divisor = _divisor(counts)
        means = sums_by_group(mass * values) / divisor
        deviations = values - means[group]
        rest = sums_by_group(mass * deviations) / divisor  # r
        squares = sums_by_group(mass * deviations.square()) - counts * rest.square()
        return Sums(counts, means + rest, squares.clamp_(min=0))

    def _of_sparse(self, matrix: sparse.csr_matrix, group: Tensor, weights: Tensor | None) -> Sums:
        """Compute the moments of sparse rows, with squares about 0 in the columns where that is exact."""
        n = matrix.shape[0]
        mass = np.ones(n) if weights is None else weights.numpy()
        counts = torch.bincount(group, weights, minlength=len(self.counts))[:, None].double()
        # [k, n], the weight of every row in the line of its group: its products with the rows are sums by group
        members = sparse.csr_matrix((mass, (group.numpy(), np.arange(n))), shape=(len(self.counts), n))
        means = torch.from_numpy((members @ matrix).toarray()) / _divisor(counts)

        # q = sum w x^2 - n m^2
        squares_about_0 = torch.from_numpy((members @ matrix.power(2)).toarray())
        squares = squares_about_0 - counts * means.square()

        is_inexact = (squares < DIGITS * squares_about_0).any(dim=0)
        inexact = is_inexact.nonzero()[:, 0]  # columns
        if len(inexact):
            columns = matrix[:, inexact.numpy()]
            rest, about_means = _about(means[:, inexact], columns, group, mass, counts)
            rest = rest / _divisor(counts)
            squares[:, inexact] = about_means - counts * rest.square()
            means[:, inexact] += rest
        return Sums(counts.expand(self.counts.shape).clone(), means, squares.clamp_(min=0))

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
        own = self._sums
        if groups is not None:
            chosen = torch.from_numpy(groups)
            own = Sums(*(part[chosen] for part in own))
        others = _others(own)
        n_total = own.counts + others.counts  # N
        difference = own.means - others.means
        deviation = ((own.squares + others.squares) / (n_total - 2).clamp(min=1)).sqrt()

        # what rounding leaves of the deviations of constant values is no deviation
        rounding = ROUNDING * torch.maximum(own.means.abs(), others.means.abs())
        deviation = torch.where(deviation <= rounding, 0.0, deviation)
        is_constant = (difference.abs() <= rounding) & (deviation == 0)
        d = torch.where(is_constant | (difference == 0), 0.0, difference / deviation)
        return torch.where((own.counts > 0) & (others.counts > 0), d, torch.nan).numpy()


def _before_each(groups: Sums) -> list[Sums]:
    """Merge the groups [k, d] before each of them, and, in the last place, all of them."""
    total = Sums(*(torch.zeros_like(part[0]) for part in groups))
    merged = [total]
    for group in zip(*groups, strict=True):
        total = total.merged(Sums(*group))
        merged.append(total)
    return merged


def _others(groups: Sums) -> Sums:
    """Merge all groups [k, d] but each one: those before it and those behind it."""
    before = _before_each(groups)[:-1]
    behind = _before_each(Sums(*(part.flip(0) for part in groups)))[:-1]
    merged = [first.merged(last) for first, last in zip(before, reversed(behind), strict=True)]
    return Sums(*map(torch.stack, zip(*merged, strict=True)))


def _about(
    means: Tensor, matrix: sparse.csr_matrix, group: Tensor, mass: np.ndarray, counts: Tensor
) -> tuple[Tensor, Tensor]:
    """Compute the deviations and squares [k, d] of sparse rows about the means of groups, summed up.

    They are the sums of w (x - m) and w (x - m)^2 over the stored entries, and of -w m and w m^2 over the zeros,
    which are not stored.
    """
    k, d = means.shape
    row = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))  # of each stored entry
    cell = group.numpy()[row] * d + matrix.indices  # position in [k, d] of its group and column
    deviations = matrix.data - means.numpy().ravel()[cell]
    of_entries = np.bincount(cell, mass[row] * deviations, minlength=k * d).reshape(k, d)
    squares_of_entries = np.bincount(cell, mass[row] * deviations**2, minlength=k * d).reshape(k, d)

    # zeros are counted: the difference of two sums of weights may be rounding, which the square of a mean enlarges
    n_rows = np.bincount(group.numpy(), minlength=k)[:, None]
    n_entries = np.bincount(cell, minlength=k * d).reshape(k, d)
    mass_of_entries = np.bincount(cell, mass[row], minlength=k * d).reshape(k, d)
    mass_of_zeros = torch.from_numpy(np.where(n_rows > n_entries, counts.numpy() - mass_of_entries, 0.0))
    deviation = torch.from_numpy(of_entries) - mass_of_zeros * means
    return deviation, torch.from_numpy(squares_of_entries) + mass_of_zeros * means.square()


def _known(sums: Sums) -> Tensor:
    """Return means, which are NaN without values."""
    return torch.where(sums.counts > 0, sums.means, torch.nan)


def _divisor(counts: Tensor) -> Tensor:
    """Return the counts by which sums are divided; 1 where there are no values, whose sum is 0."""
    return torch.where(counts > 0, counts, 1.0)


def _tensor(values: Tensor | np.ndarray) -> Tensor:
    """Return values as a tensor on the CPU, in float64; an array that can't be written to is copied."""
    if isinstance(values, np.ndarray):
        values = torch.from_numpy(values.astype(np.float64))
    return values.cpu().double()


def cramers_v(in_cluster: np.ndarray, overall: np.ndarray, size: float, total: float) -> np.ndarray:
    """Compute Cramér's V of a cluster and the categories of columns, 0 to 1; NaN without points on both sides.

    Parameters
    ----------
    in_cluster, overall : ndarray [categories, ...]
        Fractions of the categories in the cluster and in all points, p and q.
    size, total : float
        Numbers of these points, n and N.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(overall > 0, (in_cluster - overall) ** 2 / overall, 0.0)
        squared_difference = terms.sum(0)
        if size >= total:  # there are no other points
            return np.full_like(squared_difference, np.nan)
        return np.sqrt(np.float64(size) / (total - size) * squared_difference)
