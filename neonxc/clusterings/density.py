"""Density clusterings as models: DBSCAN, OPTICS that is cut at a radius, and HDBSCAN.

    clusterer                rows of the network         a point belongs to the cluster of the nearest one, if
    DBSCAN, OPTICS at eps    its core points u           |x - u| <= eps
    HDBSCAN                  all rows u, noise as well   m_k(x) <= eps_k

m_k is the mutual reachability distance to the nearest member of cluster k in this distance (see
:mod:`neonxc.head.nearest`), whose radius is

    eps_k = min over the rows v outside of cluster k of m_k(v)

the height at which the cluster is merged in the single-linkage tree, and at least the greatest core distance of
the members, which would otherwise be noise.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from sklearn.cluster import DBSCAN, HDBSCAN, OPTICS
from torch import Tensor

from neonxc.clusterings.model import ClusterModel
from neonxc.clusterings.supports import by_cluster, squared_distances
from neonxc.common.memory import CACHE, blocks
from neonxc.common.numbers import percent
from neonxc.common.precision import in_full_precision
from neonxc.common.sizes import CHECKED_ROWS
from neonxc.common.types import ArrayLike, TableLike
from neonxc.common.warnings import warn
from neonxc.data.labels import NOISE, as_labels
from neonxc.data.table import Table
from neonxc.head import Head
from neonxc.head.members import DENSE, TREE_COLUMNS_SELF, search_among
from neonxc.head.nearest import NearestDetection, density_head
from neonxc.head.preprocessing import Preprocessing

AGREES = 0.95
"""Lowest fraction of the rows of the fit to which the rule of HDBSCAN gives their label, unless ties are many."""
FIRST = 256
"""Number of rows outside a cluster, those that may be nearest, with which the search for its radius begins."""


def within_radius(points: TableLike, labels: np.ndarray, radius: float) -> ClusterModel:
    """Return a model of the nearest of some core points [M, p]; noise, the last column, is outside a radius."""
    if not len(labels):
        raise ValueError("the clusterer found no core points, so that all rows are noise: raise eps")
    classes, groups = np.unique(labels, return_inverse=True)
    core_points = torch.from_numpy(np.array(Table.read(points).dense(), np.float64))
    cluster_of_point = torch.from_numpy(groups)

    def head(preprocessing: Preprocessing | None) -> Head:
        return density_head(core_points, cluster_of_point, radius, preprocessing)

    return ClusterModel(head, core_points, np.append(classes, NOISE))


def by_radius(model: object) -> bool:
    """Whether clusters follow from Euclidean distances to core points: DBSCAN, and OPTICS cut at a radius."""
    is_cut = isinstance(model, OPTICS) and model.cluster_method == "dbscan"
    if not isinstance(model, DBSCAN) and not is_cut:
        return False
    return _is_euclidean(model) and model.eps is not None  # type: ignore[attr-defined]


def _is_euclidean(model: object) -> bool:
    """Whether a clusterer measures Euclidean distances."""
    metric = getattr(model, "metric", "euclidean")
    options = getattr(model, "metric_params", None) or {}
    if metric == "minkowski":
        p = options.get("p", getattr(model, "p", 2))
        return p in (None, 2) and not {*options} - {"p"}
    return metric in ("euclidean", "l2") and not options


@in_full_precision
def density(model: Any, points: Tensor) -> ClusterModel | None:
    """Read a density clusterer that does not store its points; None if it has no rule for new points.

    Parameters
    ----------
    model : estimator
        A fitted OPTICS, or an HDBSCAN of scikit-learn or hdbscan.
    points : Tensor [n, p]
        What it was fitted on.

    Warns
    -----
    UserWarning
        Why an HDBSCAN is explained by a surrogate of its labels.
    """
    if by_radius(model):  # an OPTICS
        is_core = model.core_distances_ <= model.eps
        rounding = 10.0 ** -np.finfo(model.core_distances_.dtype).precision  # as OPTICS rounds distances
        return within_radius(points.cpu().numpy()[is_core], model.labels_[is_core], model.eps + rounding / 2)
    if type(model).__name__ != "HDBSCAN":
        return None

    reason = ""
    if not _is_euclidean(model):
        reason = f"metric={model.metric!r}"
    elif getattr(model, "alpha", 1.0) != 1:
        reason = f"alpha={model.alpha}"
    if reason:
        warn(
            f"HDBSCAN with {reason} has no exact network, which needs Euclidean distances: a surrogate explains "
            "its labels"
        )
        return None
    rank = model.min_samples or model.min_cluster_size
    if not isinstance(model, HDBSCAN):  # scikit-learn counts a row among its neighbours, and hdbscan does not
        rank += 1
    return _reachability(points.double().cpu(), model.labels_, min(rank, len(points)))


def _reachability(points: Tensor, labels: ArrayLike, rank: int) -> ClusterModel | None:
    """Return a model of HDBSCAN's clusters, with a radius each; None if ties are too many, or it has no noise."""
    column, classes, is_clustered = as_labels(labels, len(points), points.device)
    if len(classes) == 1 and is_clustered.all():
        return None
    groups = torch.where(is_clustered, column, len(classes))
    core = core_distances(points, groups, rank)
    radii = torch.stack([_radius(points, core, groups == cluster, rank) for cluster in range(len(classes))])

    def head(preprocessing: Preprocessing | None) -> Head:
        return density_head(points, groups, radii, preprocessing, core, rank)

    checked = slice(None, None, max(1, len(points) // CHECKED_ROWS))
    is_correct = head(None).assign(points[checked]) == groups[checked]
    fraction = float(is_correct.double().mean())
    if fraction < AGREES:
        warn(
            f"the rule of HDBSCAN for new points gives {percent(fraction)} of the rows their label, as many "
            "distances are equal: a surrogate explains its labels"
        )
        return None
    return ClusterModel(head, points, np.append(classes, NOISE))


def core_distances(points: Tensor, groups: Tensor, rank: int) -> Tensor:
    """Compute the distance [n] of every row from the nearest row of a rank, itself counted.

    Rows are searched among those of their own group, and then among groups whose ball is nearer than what was
    found. A search among all rows is left if that would not spare half of the distances.
    """
    n_groups = int(groups.max()) + 1
    sizes = torch.bincount(groups, minlength=n_groups)
    is_small = len(points) ** 2 <= DENSE
    has_trees = rank == 1 or points.shape[1] <= TREE_COLUMNS_SELF
    if is_small or has_trees or int(sizes.max()) > len(points) // 2:
        distances, _ = search_among(points, rank)(points, rank)
        return distances[:, -1]

    members = [rows for rows in by_cluster(groups, n_groups) if len(rows)]
    searches = [search_among(points[rows], rank) for rows in members]
    nearest = points.new_full((len(points), rank), torch.inf)  # in ascending order
    for rows, search in zip(members, searches, strict=True):
        distances, _ = search(points[rows], min(rank, len(rows)))
        nearest[rows, : distances.shape[1]] = distances

    from_balls = [_from_ball(points, points[rows]) for rows in members]
    others = []  # the rows outside of each group that may have a neighbor in it
    for rows, from_ball in zip(members, from_balls, strict=True):
        may_be_near = from_ball < nearest[:, -1]
        may_be_near[rows] = False
        others.append(may_be_near.nonzero()[:, 0])
    n_distances = sum(len(rows) * len(near) for rows, near in zip(members, others, strict=True))
    if n_distances > len(points) ** 2 / 2:
        distances, _ = search_among(points, rank)(points, rank)
        return distances[:, -1]
    for rows, near, search in zip(members, others, searches, strict=True):
        if len(near):
            distances, _ = search(points[near], min(rank, len(rows)))
            both = torch.cat([nearest[near], distances], dim=1)
            nearest[near] = both.topk(rank, dim=1, largest=False, sorted=True).values
    return nearest[:, -1]


def _from_ball(points: Tensor, members: Tensor) -> Tensor:
    """Compute a lower bound [n] of the distances of points from members: that from a ball around these."""
    center = members.mean(0)
    radius = (members - center).norm(dim=1).max()
    return (points - center).norm(dim=1) - radius - _rounding(points)


def _rounding(points: Tensor) -> float:
    """Return a bound of the rounding errors of distances between points."""
    return 8 * points.shape[1] * torch.finfo(points.dtype).eps * float(points.abs().max())


def _radius(points: Tensor, core: Tensor, is_member: Tensor, rank: int) -> Tensor:
    """Find the smallest mutual reachability distance [] between a cluster and the other rows, and a little less.

    Rows are tried in the order of a lower bound: their core distances, and distances from the cluster's box and
    ball.
    """
    members = points[is_member]
    outside_rows = (~is_member).nonzero()[:, 0]
    outside = points[outside_rows]
    cluster = NearestDetection.of(
        members,
        torch.zeros(len(members), dtype=torch.int64),
        Preprocessing.identity(points.shape[1]),
        core=core[is_member],
        reach=torch.ones(1),
        rank=rank,
    )

    # m(v) >= max(core(v), distances of v from the box and from the ball of the members)
    low = members.amin(0)
    high = members.amax(0)
    from_box = (low - outside).clamp(min=0) + (outside - high).clamp(min=0)
    from_cluster = torch.maximum(from_box.norm(dim=1) - _rounding(points), _from_ball(outside, members))
    bounds, order = torch.maximum(core[outside_rows], from_cluster).sort()
    candidates = outside_rows[order]

    minimum = math.inf
    start = 0
    size = FIRST
    while start < len(candidates) and bounds[start] < minimum:
        rows = candidates[start : start + size]
        rows = rows[_may_be_nearest(points[rows], members, core[rows], core[is_member], minimum)]
        if len(rows):
            reachability = cluster.reachability(points[rows], core[rows, None])
            minimum = min(minimum, float(reachability.min()))
        start = start + size
        size = 2 * size
    # members are within the radius and others outside it, in spite of rounding
    largest_core = float(core[is_member].max())
    return torch.tensor(max(minimum * (1 - 1e-9), largest_core * (1 + 1e-9)))


def _may_be_nearest(points: Tensor, members: Tensor, core: Tensor, member_core: Tensor, minimum: float) -> Tensor:
    """Whether a row [n] may be the one that a cluster reaches first, and within a minimum, [n] of bool.

    Mutual reachability distances in float32, by a matrix product, take a third of the time of a search. Their
    squares, in units in which points and members are at most 1 from their center, differ from the true ones by at
    most `error`, relative to 1 plus the square.
    """
    center = members.mean(0)
    points = points - center
    members = members - center
    scale = max(float(points.norm(dim=1).max()), float(members.norm(dim=1).max())) or 1.0
    scaled_members = (members / scale).float()
    squared_core = (member_core / scale).clamp(max=1e9).float().square()  # no square overflows
    error = 8 * (points.shape[1] + 4) * torch.finfo(torch.float32).eps

    squares = []
    for block in blocks(len(points), 4 * len(members), on_cpu=CACHE):
        squared = squared_distances((points[block] / scale).float(), scaled_members)
        squares.append(torch.maximum(squared, squared_core, out=squared).amin(1))
    squared_reachability = torch.maximum(torch.cat(squares).double(), (core / scale).square())
    margin = error * (1 + squared_reachability)
    bound = min(float((squared_reachability + margin).min()), (minimum / scale) ** 2)
    return squared_reachability - margin <= bound
