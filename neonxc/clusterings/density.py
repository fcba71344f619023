"""Readers of density clusterings: DBSCAN, OPTICS that is cut at a radius, and HDBSCAN."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from sklearn.cluster import DBSCAN, HDBSCAN, OPTICS
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from neonxc.clusterings.model import ClusterModel, read
from neonxc.common.numbers import percent
from neonxc.common.warnings import warn
from neonxc.data.labels import NOISE, as_labels
from neonxc.data.table import Table
from neonxc.head import Head
from neonxc.head.members import search_among
from neonxc.head.nearest import NearestDetection, density_head
from neonxc.head.preprocessing import Preprocessing

AGREES = 0.95
"""Least share of the rows of the fit to which the rule of HDBSCAN gives their label; else ties are too many."""
CHECKED = 2000
"""At least this number of rows is checked, if there are as many, and less than twice it."""
FIRST = 256
"""Number of rows outside a cluster, those that may be nearest, with which the search for its radius begins."""


@read.register
def _read_dbscan(model: DBSCAN) -> ClusterModel:
    check_is_fitted(model)
    return _within(model.components_, model.labels_[model.core_sample_indices_], model.eps)


def _within(points: Any, labels: np.ndarray, radius: float) -> ClusterModel:
    """Return a model of the nearest of some core points [M, p]; beyond a radius is noise, the last column."""
    if not len(labels):
        raise ValueError("the clusterer found no core points, so that all rows are noise: raise eps")
    classes, groups = np.unique(labels, return_inverse=True)
    core = torch.from_numpy(np.array(Table.read(points).dense(), np.float64))
    group = torch.from_numpy(groups)
    return ClusterModel(
        lambda preprocessing: density_head(core, group, radius, preprocessing), core, np.append(classes, NOISE)
    )


def by_radius(model: Any) -> bool:
    """Whether clusters follow from Euclidean distances to core points: DBSCAN, and OPTICS cut at a radius."""
    cut = isinstance(model, DBSCAN) or (isinstance(model, OPTICS) and model.cluster_method == "dbscan")
    return cut and _euclidean(model) and model.eps is not None


def _euclidean(model: Any) -> bool:
    """Whether distances are Euclidean."""
    metric = getattr(model, "metric", "euclidean")
    given = getattr(model, "metric_params", None)
    p = (given or {}).get("p", getattr(model, "p", 2))
    if metric == "minkowski":
        return p in (None, 2) and not {*(given or {})} - {"p"}
    return metric in ("euclidean", "l2") and not given


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
        core = model.core_distances_ <= model.eps
        rounded = 10.0 ** -np.finfo(model.core_distances_.dtype).precision  # as OPTICS rounds distances
        return _within(points.cpu().numpy()[core], model.labels_[core], model.eps + rounded / 2)
    if type(model).__name__ != "HDBSCAN":
        return None
    if not _euclidean(model) or getattr(model, "alpha", 1.0) != 1:
        other = f"metric={model.metric!r}" if not _euclidean(model) else f"alpha={model.alpha}"
        warn(
            f"HDBSCAN with {other} has no exact network, which needs Euclidean distances: a surrogate explains "
            "its labels"
        )
        return None
    itself = not isinstance(model, HDBSCAN)  # scikit-learn counts a row among its neighbours
    rank = (model.min_samples or model.min_cluster_size) + itself
    return _reachability(points.double().cpu(), model.labels_, min(rank, len(points)))


def _reachability(points: Tensor, labels: Any, rank: int) -> ClusterModel | None:
    """Return a model of HDBSCAN's clusters, with a radius each; None if ties are too many, or it has no noise.

    The radius is the least mutual reachability distance of a row outside the cluster: the height at which the
    cluster is merged in the single-linkage tree.
    """
    column, classes, there = as_labels(labels, len(points), points.device)
    if len(classes) == 1 and there.all():
        return None
    groups = torch.where(there, column, len(classes))
    core = search_among(points, rank)(points, rank)[0][:, -1]
    radii = torch.stack([_radius(points, core, groups == cluster, rank) for cluster in range(len(classes))])

    def head(preprocessing: Preprocessing | None) -> Head:
        return density_head(points, groups, radii, preprocessing, core, rank)

    some = slice(None, None, max(1, len(points) // CHECKED))
    agrees = float((head(None).assign(points[some]) == groups[some]).double().mean())
    if agrees < AGREES:
        warn(
            f"the rule of HDBSCAN for new points gives {percent(agrees)} of the rows their label, as many "
            "distances are equal: a surrogate explains its labels"
        )
        return None
    return ClusterModel(head, points, np.append(classes, NOISE))


def _radius(points: Tensor, core: Tensor, own: Tensor, rank: int) -> Tensor:
    """The least mutual reachability distance [] between a cluster and the other rows, and a little less.

    Rows are tried in the order of a lower bound: their core distances, and distances from the cluster's box.
    """
    identity = Preprocessing.identity(points.shape[1])
    members = points[own]
    others = ~own
    cluster = NearestDetection.of(
        members,
        torch.zeros(len(members), dtype=torch.int64),
        identity,
        core=core[own],
        reach=torch.ones(1),
        rank=rank,
    )
    low = members.amin(0)
    high = members.amax(0)
    beyond = (low - points[others]).clamp(min=0) + (points[others] - high).clamp(min=0)
    bounds, order = torch.maximum(core[others], beyond.norm(dim=1)).sort()
    rows = others.nonzero()[order, 0]
    least = math.inf
    start = 0
    size = FIRST
    while start < len(rows) and bounds[start] < least:
        some = rows[start : start + size]
        least = min(least, float(cluster.reachability(points[some], core[some, None]).min()))
        start = start + size
        size = 2 * size
    # members are within the radius and others beyond it, in spite of rounding
    return torch.tensor(max(least * (1 - 1e-9), float(core[own].max()) * (1 + 1e-9)))
