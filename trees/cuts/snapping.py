"""Centers that equal a value of their column but for rounding become that value before columns are coded."""

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
    share : float
        Error relative to the range of a column: of means, ``n * eps`` for n points, because differences from the
        middle of the column are rounded in units of their sum over all points (``Dense.sums``).
    unit : float
        Error relative to the center itself: the centers that scikit-learn's k-means finds are of single precision
        for tables of single precision.
    """

    share: float
    unit: float

    @classmethod
    def of(cls, centers: Tensor, dtype: torch.dtype, n: Tensor) -> Rounding:
        """Rounding of centers [k, d] of `n` points (see :func:`relative_mass`) in a table of a type."""
        single = dtype == torch.float32 and torch.equal(centers, centers.float().double())
        unit = torch.finfo(torch.float32).eps if single else EPS
        return cls(max(EPS * float(n.max()), unit), 2 * unit)


def relative_mass(labels: Tensor, k: int, weight: Tensor | None, ranks: Ranks) -> Tensor:
    """Weight of all points in units of the mean weight of each cluster's points, [k]: without weights, n."""
    count, mass = (ranks.sum(counts_by_label(labels, k, own)) for own in (None, weight))
    return mass.sum() * (count / mass).nan_to_num(0)


def snap(ordered: Tensor, place: Tensor, begin: Tensor, rounding: Rounding) -> Tensor:
    """Replace centers among sorted values by the values from which only rounding separates them, and return them.

    Centers are means, so that the center of the point 0.3 may be 0.30000000000000004, and a cut could part the
    two. Centers that differ by rounding, with no value between them, become equal as well.

    Parameters
    ----------
    ordered : Tensor [m]
        Values and centers of all columns, sorted by column and then by value; they are changed.
    place : Tensor [c] of int64
        Positions of the centers in that order, ascending.
    begin : Tensor [columns + 1] of int64
        Where the columns begin.
    rounding : Rounding
    """
    own = ordered[place]
    extents = ordered[begin[1:] - 1] - ordered[begin[:-1]]
    beside = (ordered[torch.stack([place - 1, place + 1]).clamp_(0, len(ordered) - 1)] - own).abs_()
    most = rounding.share * extents.max() + rounding.unit * own.abs().max()
    if not bool(((beside > 0) & (beside <= most)).any()):  # the usual case
        return own
    column = torch.searchsorted(begin, place, right=True)
    run = place.diff() == 1
    extent = extents[column - 1]
    slack = rounding.share * extent + rounding.unit * own.abs()
    number = torch.arange(len(place), device=place.device)
    first = place.clone()
    last = place.clone()
    number[1:][run & (own.diff() <= slack[1:]) & (column.diff() == 0)] = 0
    first[1:][run] = 0
    last[:-1][run] = len(ordered)
    near = torch.stack([first.cummax(0).values - 1, last.flip(0).cummin(0).values.flip(0) + 1])
    inside = torch.searchsorted(begin, near, right=True) == column
    value = ordered[near.clamp_(0, len(ordered) - 1)]
    gap, side = (value - own).abs_().masked_fill_(~inside, torch.inf).min(0)
    ordered[place] = value.gather(0, side[None])[0].where(gap <= slack, own[number.cummax(0).values])
    return ordered[place]


def sorted_with(values: Tensor, centers: Tensor, rounding: Rounding) -> tuple[Tensor, Tensor, Tensor]:
    """Sort the values [f, n] together with the centers [f, k], which are snapped.

    Returns
    -------
    ordered, order : Tensor [f, n + k]
        As :func:`sorted_rows` gives them.
    centers : Tensor [f, k]
    """
    (f, n), k = values.shape, centers.shape[1]
    ordered, order = sorted_rows(torch.cat([values.to(torch.float64), centers], 1))
    place = (order >= n).flatten().nonzero()[:, 0]
    cluster = order.flatten()[place] - n
    begin = torch.arange(f + 1, device=place.device) * (n + k)
    found = snap(ordered.view(-1), place, begin, rounding) if k else centers.flatten()
    return ordered, order, torch.empty_like(centers).scatter_(1, cluster.view(f, k), found.view(f, k))
