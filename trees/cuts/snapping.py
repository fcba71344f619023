"""Centers that equal a value of their column but for rounding become that value before columns are coded.

Centers are means, so that the center of the points 0.3, 0.3 and 0.3 may be 0.30000000000000004, and a cut
between the two numbers would separate the points from their center. A center c of a column with the values v is
therefore

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
of the cluster's points (:func:`relative_mass`).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from neonxc.common.processes import Ranks
from neonxc.trees.cuts.exact_sums import counts_by_label, sorted_rows

EPS = torch.finfo(torch.float64).eps


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
        """Rounding of centers [k, d] of `n` points (see :func:`relative_mass`) in a table of a type."""
        is_single = dtype == torch.float32 and torch.equal(centers, centers.float().double())
        eps = torch.finfo(torch.float32).eps if is_single else EPS
        return cls(max(EPS * float(n.max()), eps), 2 * eps)


def relative_mass(labels: Tensor, k: int, weight: Tensor | None, ranks: Ranks) -> Tensor:
    """Weight of all points in units of the mean weight of each cluster's points, [k]: without weights, n."""
    count = counts_by_label(labels, k, None, ranks)
    mass = counts_by_label(labels, k, weight, ranks)
    return mass.sum() * (count / mass).nan_to_num(0)


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
