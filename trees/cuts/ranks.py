"""The codes of columns: ranks of values among the distinct values of points and centers.

A cut on codes is an integer: points with ``code <= b`` go left. One cut between each two adjacent codes is enough,
because all thresholds between the same two values give the same cut.

1. The values of a column are sorted together with the centers (:func:`sorted_with`).
2. Centers that equal a value but for rounding become that value (:func:`snap`).
3. Where a number differs from the one before it, a code begins (:func:`row_ranks`).

Step 2 is there because centers are means. The center of the points 0.3, 0.3 and 0.3 may be 0.30000000000000004,
and a cut between the two numbers would separate the points from their center. A center c of a column with the
values v is therefore

    snapped to the nearest v      if  |c - v| <= tolerance(c) = relative_to_range * (max - min) +
    relative_to_center * |c|,

where max and min are those of the column, centers included. In a run of centers with no value between them,
neighbours that differ by at most the tolerance become equal, also if no value is near.

Where the tolerance is from: `Dense.means` adds the differences from the middle of a column, which are at most
(max - min) / 2, after they are rounded for the sum over all n points, each by at most

    2 eps * n (max - min) / 2  =  eps * n (max - min)

(:func:`neonxc.trees.cuts.exact_sums.rounded`), and a mean is off by as much as the values are. Measured on
columns in which each of 10 clusters has one value, the largest error of a mean is 0.99 of this for 100 and for
10,000 points, and 0.94 for 1,000,000. With weights, n is the weight of all points in units of the mean weight
of the cluster's points (:func:`~neonxc.trees.cuts.exact_sums.relative_mass`).
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from neonxc.common.processes import Ranks

EPS = torch.finfo(torch.float64).eps
EXACT = 2.0**53  # larger integers are not exact in float64
INDICES = 280_000  # number of indices that fit into a core's cache
INTEGERS = 1 << 10  # integers within a range of this length are coded without sorting
PARALLEL = 1 << 20  # number of entries from which torch, which uses all cores, sorts faster than NumPy


class Ranked(NamedTuple):
    """The codes of some columns."""

    codes: Tensor  # [f, n], of the values
    centers: Tensor  # [f, k] of int64, codes of the centers
    size: Tensor  # [f] of int64, number of codes
    snapped: Tensor  # [f, k] of float64, the centers, snapped


def value_ranks(values: Tensor, centers: Tensor, rounding: Rounding, ranks: Ranks) -> Ranked:
    """Codes of the values [f, n] and the centers [f, k], which are snapped; the same in all processes."""
    if not ranks.alone:
        return _ranks_of_all(values, centers, rounding, ranks)
    by_table = _integer_ranks(values, centers, rounding)
    if by_table is not None:
        return by_table
    return _ranks(values, centers, rounding)


def _ranks(values: Tensor, centers: Tensor, rounding: Rounding) -> Ranked:
    """Ranks of numbers among the distinct ones of their row; those of values are of int32."""
    ordered, order, snapped = sorted_with(values, centers, rounding)
    codes, size = row_ranks(ordered, order)
    n = values.shape[1]
    return Ranked(codes[:, :n], codes[:, n:].to(torch.int64), size, snapped)


def row_ranks(ordered: Tensor, order: Tensor) -> tuple[Tensor, Tensor]:
    """Rank of every number among the distinct ones of its row, [f, n] of int32, and how many these are, [f].

    `ordered` and `order` are as :func:`sorted_rows` gives them.
    """
    rank = is_first(ordered).cumsum(1, dtype=torch.int32).sub_(1)
    size = rank[:, -1].to(torch.int64) + 1
    return torch.empty_like(rank).scatter_(1, order, rank), size


def _integer_ranks(values: Tensor, centers: Tensor, rounding: Rounding) -> Ranked | None:
    """Codes of integers in a small range, computed by table lookup; None for other values."""
    if not _are_integers(values[:, :100]):  # the first ones tell most tables of other numbers
        return None
    low = values.amin(1).to(torch.float64)
    high = values.amax(1).to(torch.float64)
    is_large = (high - low >= INTEGERS) | (high >= EXACT) | (low <= -EXACT)
    if bool(is_large.any()) or not _are_integers(values):
        return None

    # ranks of all integers of the range, of which some may not occur
    longest = int((high - low).max()) + 1
    integers = low[:, None] + torch.arange(longest, device=values.device)
    ranked = _ranks(integers, centers, rounding)
    table = ranked.codes.to(code_type(longest + centers.shape[1]))

    codes = torch.empty(values.shape, dtype=table.dtype, device=values.device)
    low = low.to(torch.int64)
    step = max(1, INDICES // values.shape[1])
    for first in range(0, len(values), step):
        columns = slice(first, first + step)
        index = torch.sub(values[columns], low[columns, None]).to(torch.int64)
        torch.gather(table[columns], 1, index, out=codes[columns])
    return ranked._replace(codes=codes)


def _are_integers(values: Tensor) -> bool:
    """Whether all numbers are integers."""
    return not values.is_floating_point() or torch.equal(values, values.round())


def _ranks_of_all(values: Tensor, centers: Tensor, rounding: Rounding, ranks: Ranks) -> Ranked:
    """Codes among the values of all processes."""
    values = values.to(torch.float64)
    local_values = distinct(values)
    n_distinct = int(local_values.isfinite().sum(1).max())
    gathered = ranks.gather(local_values[:, :n_distinct].T.contiguous())
    all_values = distinct(torch.cat(gathered).T.contiguous())

    largest = all_values.where(all_values.isfinite(), -torch.inf).amax(1, keepdim=True)
    all_values = all_values.minimum(largest)  # instead of infinity behind the last value
    ranked = _ranks(all_values, centers, rounding)
    codes = ranked.codes.gather(1, torch.searchsorted(all_values, values))
    return ranked._replace(codes=codes)


def code_type(size: int) -> torch.dtype:
    """The smallest integer type that holds `size` codes."""
    if size <= 256:
        return torch.uint8
    if size <= 1 << 15:
        return torch.int16
    return torch.int32


# --- sorted values ---


def sorted_rows(values: Tensor) -> tuple[Tensor, Tensor]:
    """Sort every row; return the sorted values and the permutation, [f, n] of int64; ties are in any order."""
    if values.device.type != "cpu" or values.numel() >= PARALLEL:
        ordered, order = values.sort(dim=1)
        return ordered, order
    kind: Literal["stable"] | None = "stable" if values.element_size() <= 2 else None  # a radix sort of integers
    order = torch.from_numpy(np.argsort(values.numpy(), axis=1, kind=kind))
    return values.gather(1, order), order


def ascending(values: Tensor) -> Tensor:
    """Sort every row [f, n]."""
    if values.device.type != "cpu":
        return values.sort(dim=1).values
    return torch.from_numpy(np.sort(values.numpy(), axis=1))  # on one core, a tenth of torch's time


def is_first(ordered: Tensor) -> Tensor:
    """Mask of the values that differ from the previous one in their row, and of the first value of every row."""
    new = torch.ones_like(ordered, dtype=torch.bool)
    torch.ne(ordered[:, 1:], ordered[:, :-1], out=new[:, 1:])
    return new


def distinct(values: Tensor) -> Tensor:
    """Sorted distinct numbers of every row, padded by infinity, [f, n]."""
    ordered = ascending(values + 0.0)  # -0.0 is 0.0
    return ascending(ordered.masked_fill_(~is_first(ordered), torch.inf))


# --- centers but for rounding ---


class Rounding(NamedTuple):
    """Largest rounding errors of centers.

    Attributes
    ----------
    relative_to_range : float
        Error relative to the range of a column: of means, ``n * eps`` for n points, as derived above.
    relative_to_center : float
        Error relative to the center itself: the centers that scikit-learn's k-means finds are of single precision
        for tables of single precision.
    """

    relative_to_range: float
    relative_to_center: float

    @classmethod
    def of(cls, centers: Tensor, dtype: torch.dtype, n: Tensor) -> Rounding:
        """Rounding of centers [k, d] of `n` points, which :func:`relative_mass` counts, in a table of a type."""
        is_single = dtype == torch.float32 and torch.equal(centers, centers.float().double())
        eps = torch.finfo(torch.float32).eps if is_single else EPS
        return cls(max(EPS * float(n.max()), eps), 2 * eps)


def snap(ordered: Tensor, position: Tensor, begin: Tensor, rounding: Rounding) -> Tensor:
    """Replace centers among sorted values by the values from which only rounding separates them, and return them.

    Parameters
    ----------
    ordered : Tensor [m]
        Values and centers of all columns, sorted by column and then by value; they are changed.
    position : Tensor [c] of int64
        Positions of the centers in that order, ascending.
    begin : Tensor [columns + 1] of int64
        Where the columns begin.
    rounding : Rounding
    """
    centers = ordered[position]
    all_ranges = ordered[begin[1:] - 1] - ordered[begin[:-1]]
    neighbours = ordered[torch.stack([position - 1, position + 1]).clamp_(0, len(ordered) - 1)]
    distances = (neighbours - centers).abs_()
    largest_tolerance = (
        rounding.relative_to_range * all_ranges.max() + rounding.relative_to_center * centers.abs().max()
    )
    if not bool(((distances > 0) & (distances <= largest_tolerance)).any()):  # the usual case
        return centers

    column = torch.searchsorted(begin, position, right=True)  # counted from 1
    center_range = all_ranges[column - 1]
    tolerance = rounding.relative_to_range * center_range + rounding.relative_to_center * centers.abs()

    # Centers next to each other form runs: the positions of the first and the last center of each one's run
    in_run = position.diff() == 1
    first = position.clone()
    first[1:][in_run] = 0
    first = first.cummax(0).values
    last = position.clone()
    last[:-1][in_run] = len(ordered)
    last = last.flip(0).cummin(0).values.flip(0)

    # A center that differs by rounding only from the one before it becomes equal to it
    equals_previous = in_run & (centers.diff() <= tolerance[1:]) & (column.diff() == 0)
    representative = torch.arange(len(position), device=position.device)
    representative[1:][equals_previous] = 0
    representative = representative.cummax(0).values

    # The values before and after the run, of the same column
    beside = torch.stack([first - 1, last + 1])
    is_inside = torch.searchsorted(begin, beside, right=True) == column
    value = ordered[beside.clamp_(0, len(ordered) - 1)]
    distance, side = (value - centers).abs_().masked_fill_(~is_inside, torch.inf).min(0)
    nearest = value.gather(0, side[None])[0]
    ordered[position] = nearest.where(distance <= tolerance, centers[representative])
    return ordered[position]


def sorted_with(values: Tensor, centers: Tensor, rounding: Rounding) -> tuple[Tensor, Tensor, Tensor]:
    """Sort the values [f, n] together with the centers [f, k], which are snapped.

    Returns
    -------
    ordered, order : Tensor [f, n + k]
        As :func:`sorted_rows` gives them.
    centers : Tensor [f, k]
    """
    f, n = values.shape
    k = centers.shape[1]
    ordered, order = sorted_rows(torch.cat([values.to(torch.float64), centers], 1))
    if not k:
        return ordered, order, torch.empty_like(centers)
    position = (order >= n).flatten().nonzero()[:, 0]  # every row has k of them
    cluster = order.flatten()[position] - n
    begin = torch.arange(f + 1, device=position.device) * (n + k)
    snapped = snap(ordered.view(-1), position, begin, rounding)
    return ordered, order, torch.empty_like(centers).scatter_(1, cluster.view(f, k), snapped.view(f, k))
