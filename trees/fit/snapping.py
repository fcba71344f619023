"""Centers that equal a value of their column but for rounding become that value."""

from __future__ import annotations

import torch
from torch import Tensor

from neonxc.common.processes import ALONE, Ranks
from neonxc.trees.cuts.exact_sums import counts_by_label
from neonxc.trees.fit.sparse_points import Points

EPS = torch.finfo(torch.float64).eps


def snapped(table: Points, centers: Tensor, n: Tensor, ranks: Ranks = ALONE) -> Tensor:
    """Replace the centers' coordinates by those values of their columns from which only rounding separates them.

    Centers are means, so that the center of the point 0.3 may be 0.30000000000000004, and a cut could part the
    two. Coordinates of several centers that differ by rounding become equal as well.

    Parameters
    ----------
    table : Points
        The points, or all values of the columns that are known.
    centers : Tensor [k, d] of float64
    n : Tensor [] or [k, 1]
        Number of points of which the centers are means; see :func:`relative_mass`.
    ranks : Ranks
        The processes that share the rows; all get the same centers.

    Returns
    -------
    Tensor [k, d]
    """
    most = slack(table, centers, n, ranks)
    centers = _merged(centers, most)
    if not table.dtype.is_floating_point:
        value = centers.round()
        return value.where((value - centers).abs() <= most, centers)
    gap = ranks.min(table.gaps(centers))
    near = (gap <= most) & (gap > 0)
    value = torch.full_like(centers, -torch.inf)
    for cluster in near.any(1).nonzero()[:, 0].tolist():
        features = near[cluster].nonzero()[:, 0]
        value[cluster, features] = table.values_at(centers[cluster], gap[cluster], features)
    return ranks.max(value).where(near, centers)


def slack(table: Points, centers: Tensor, n: Tensor, ranks: Ranks = ALONE) -> Tensor:
    """Largest rounding errors of the centers' coordinates, [k, d]; parameters as for :func:`snapped`.

    A mean is off by up to ``n * eps`` times the range of its column, because differences from the middle of the
    column are rounded in units of their sum over all points (``Dense.sums``). The centers that
    scikit-learn's k-means finds are more accurate, but of single precision for tables of single precision.
    """
    single = table.dtype == torch.float32 and torch.equal(centers, centers.float().double())
    unit = torch.finfo(torch.float32).eps if single else EPS
    low, high = table.ends(ranks)
    return (n * EPS).clamp(min=unit) * (high - low) + 2 * unit * centers.abs()


def relative_mass(labels: Tensor, k: int, weight: Tensor | None, ranks: Ranks) -> Tensor:
    """Weight of all points in units of the mean weight of each cluster's points, [k, 1]: without weights, n."""
    count, mass = (ranks.sum(counts_by_label(labels, k, own)) for own in (None, weight))
    return mass.sum() * (count / mass).nan_to_num(0)[:, None]


def _merged(centers: Tensor, most: Tensor) -> Tensor:
    """Replace coordinates [k, d] that exceed the next smaller one by at most `most` by that one."""
    ordered, order = centers.sort(0)
    place = torch.arange(len(centers), device=centers.device)[:, None].expand_as(order).clone()
    place[1:][ordered.diff(dim=0) <= most.gather(0, order)[1:]] = 0
    return torch.empty_like(centers).scatter_(0, order, ordered.gather(0, place.cummax(0).values))
