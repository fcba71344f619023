"""Readers for clusterers that assign points to the nearest center, or down a hierarchy of nearest centers."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.cluster import AffinityPropagation, Birch, BisectingKMeans, KMeans, MeanShift, MiniBatchKMeans
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from neonxc.clusterings.model import ClusterModel, SameCenters, read
from neonxc.data.inputs import check_finite, check_range
from neonxc.data.table import Table
from neonxc.head import bisecting_head, centroid_head


@read.register(KMeans)
@read.register(MiniBatchKMeans)
@read.register(MeanShift)
@read.register(AffinityPropagation)
def _(model: Any) -> ClusterModel:
    check_is_fitted(model)
    if not hasattr(model, "cluster_centers_"):
        raise ValueError("AffinityPropagation needs features: with a precomputed affinity it has no centers")
    centers = model.cluster_centers_
    if centers.shape[0] == 0:
        raise ValueError("AffinityPropagation found no cluster, as it did not converge")
    return centroids(Table.read(centers).dense())


@read.register
def _(model: Birch) -> ClusterModel:
    check_is_fitted(model)
    classes, groups = np.unique(model.subcluster_labels_, return_inverse=True)
    return centroids(model.subcluster_centers_, groups, classes)


@read.register
def _(model: BisectingKMeans) -> ClusterModel:
    check_is_fitted(model)
    if model.n_clusters < 2:
        return centroids(model.cluster_centers_)
    children: list[Any] = []
    centers = []
    queue = [model._bisecting_tree]  # scikit-learn stores its hierarchy only in this private attribute
    for node in queue:
        sides = (node.left, node.right)
        inner = [child for child in sides if child.left is not None]
        numbers = {child: -(len(queue) + i) for i, child in enumerate(inner)}
        queue += inner
        children.append(tuple(numbers[child] if child in numbers else int(child.label) for child in sides))
        centers.append(np.stack([child.center for child in sides]) + getattr(model, "_X_mean", 0.0))
    left, right = torch.as_tensor(np.stack(centers, 1), dtype=torch.float64)
    if (left == right).all(dim=1).any():
        raise SameCenters("a split of the hierarchy has identical centers on both sides")
    points = torch.as_tensor(model.cluster_centers_, dtype=torch.float64)
    return ClusterModel(lambda chain: bisecting_head(children, left, right, chain), points)


@read.register(np.ndarray)
@read.register(Tensor)
@read.register(list)
@read.register(tuple)
def bare(model: Any) -> ClusterModel:
    """Read an array of centers [K, d]."""
    if len(model) and not any(map(np.ndim, model)):
        raise ValueError(
            "model looks like labels, which go by name: neonxc.neuralize(labels=labels, X=X); "
            f"centers need shape [K, d], got {list(np.shape(model))}"
        )
    return centroids(Table.read(model, name="centers").tensor)


def centroids(centers: Any, groups: Any = None, classes: np.ndarray | None = None) -> ClusterModel:
    """Return a model of the nearest of some centers [M, p]; `groups` [M] are the columns of their clusters."""
    points = torch.as_tensor(centers).detach().double().cpu()
    if points.ndim != 2:
        raise ValueError(f"centers need shape [K, d], got {list(points.shape)}")
    check_finite(points, name="centers")
    group = None if groups is None else torch.as_tensor(groups)
    check_range(points, (torch.finfo(points.dtype).max / (16 * points.shape[1])) ** 0.5, name="centers")
    check_distinct(points, group)
    return ClusterModel(lambda chain: centroid_head(points, group, chain), points, classes, softens=True)


def check_distinct(
    points: Tensor, numbers: Tensor | None = None, message: str = "clusters {} and {} have identical centers"
) -> None:
    """Refuse clusters with identical rows of parameters, because no contrast distinguishes them."""
    first: dict[bytes, int] = {}
    owners = range(len(points)) if numbers is None else numbers.tolist()
    for owner, row in zip(owners, (points + 0.0).numpy(), strict=True):  # -0.0 is 0.0
        if (other := first.setdefault(row.tobytes(), owner)) != owner:
            raise SameCenters(message.format(*sorted((other, owner))))
