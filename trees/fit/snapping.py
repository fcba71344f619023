"""Centers that equal a value of their column but for rounding become that value."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from neonxc.common.processes import ALONE, Ranks
from neonxc.trees.fit.points import DataMatrix

EPS = torch.finfo(torch.float64).eps


def snapped(
    table: DataMatrix, centers: Tensor, weight: Tensor | None = None, ranks: Ranks = ALONE, n: int | None = None
) -> Tensor:
    """Replace the centers' coordinates by those values of their columns from which only rounding separates them.

    Centers are means, so that the center of the point 0.3 may be 0.30000000000000004, and a cut could part the
    two. Coordinates of several centers that differ by rounding become equal as well.

    Parameters
    ----------
    table : DataMatrix
        The points, or all values of the columns that are known.
    centers : Tensor [k, d] of float64
    weight : Tensor [n] of float64, optional
    ranks : Ranks
        The processes that share the rows; all get the same centers.
    n : int, optional
        Number of points of which the centers are means. Default: those of the table, over all processes.

    Returns
    -------
    Tensor [k, d]

    Notes
    -----
    Differences from the middle of a column are rounded before they are added, in units of the sum of all points:
    a mean may be off by ``n * eps`` times the column's range, where n is the total weight in units of the least.
    Centers of single precision, which k-means finds in tables of single precision, are off by ``eps`` of that type.
    """
    mass = torch.ones(table.n, dtype=torch.float64) if weight is None else weight
    least = ranks.min(torch.cat([mass, mass.new_full((1,), torch.inf)]).amin())
    share = EPS * (n or float(ranks.sum(mass.sum()) / least))
    single = table.dtype == torch.float32 and torch.equal(centers, centers.float().double())
    unit = torch.finfo(torch.float32).eps if single else EPS
    low, high = table.ends(ranks)
    slack = max(share, unit) * (high - low) + 2 * unit * centers.abs()
    centers = _merged(centers, slack)
    if not table.dtype.is_floating_point:
        value = centers.round()
        return value.where((value - centers).abs() <= slack, centers)
    gap = table.gaps(centers)
    nearest = ranks.min(gap)
    value = torch.full_like(centers, -torch.inf)
    for cluster, feature in ((nearest <= slack) & (gap == nearest)).nonzero().tolist():
        value[cluster, feature] = table.nearest(feature, centers[cluster, feature])
    return ranks.max(value).where(nearest <= slack, centers)


def _merged(centers: Tensor, slack: Tensor) -> Tensor:
    """Replace coordinates [k, d] that exceed the next smaller one by at most `slack` by that one."""
    ordered, order = centers.sort(0)
    place = torch.arange(len(centers), device=centers.device)[:, None].expand_as(order).clone()
    place[1:][ordered.diff(dim=0) <= slack.gather(0, order)[1:]] = 0
    return torch.empty_like(centers).scatter_(0, order, ordered.gather(0, place.cummax(0).values))
