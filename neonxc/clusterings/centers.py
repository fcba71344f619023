"""Readers for clusterers that assign points to the nearest center."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.cluster import AffinityPropagation, Birch, KMeans, MeanShift, MiniBatchKMeans
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from neonxc.clusterings.model import ClusterModel, SameCenters, read
from neonxc.data.inputs import check_finite, check_range
from neonxc.data.table import Table
from neonxc.head import centroid_head


@read.register(KMeans)
@read.register(MiniBatchKMeans)
@read.register(MeanShift)
@read.register(AffinityPropagation)
def _(model: KMeans | MiniBatchKMeans | MeanShift | AffinityPropagation) -> ClusterModel:
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


@read.register(np.ndarray)
@read.register(Tensor)
@read.register(list)
@read.register(tuple)
def bare(model: Any) -> ClusterModel:
    """Read an array of centers [K, d]."""
    flat = not any(map(np.ndim, model)) if isinstance(model, (list, tuple)) else np.ndim(model) < 2
    if flat:
        raise ValueError(f"centers need shape [K, d], got {list(np.shape(model))}")
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
    _, first = torch.unique(points, dim=0, return_inverse=True)
    number = torch.arange(len(points)) if numbers is None else numbers
    order = torch.argsort(first, stable=True)
    first, number = first[order], number[order]
    same = (first[1:] == first[:-1]) & (number[1:] != number[:-1])
    if same.any():
        at = int(same.nonzero()[0])
        raise SameCenters(message.format(*sorted(number[at : at + 2].tolist())))
