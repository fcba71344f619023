"""From a fitted clustering to its network."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import numpy as np
import torch
from sklearn.cluster import (
    AffinityPropagation,
    Birch,
    BisectingKMeans,
    KMeans,
    MeanShift,
    MiniBatchKMeans,
)
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from neonxc.heads import CentroidHead, Head, HierarchyHead
from neonxc.inputs import as_batch, check_finite, check_names, check_width
from neonxc.network import NeuralizedClustering
from neonxc.preprocessing import Preprocessing, fold

SUPPORTED = (
    "KMeans, MiniBatchKMeans, BisectingKMeans, MeanShift, AffinityPropagation, Birch, a Pipeline that ends in one "
    "of them, or centers [K, d] as an array or tensor"
)


@dataclass(frozen=True)
class ClusterModel:
    """What a handler reads off a fitted clusterer."""

    head: Callable[[Preprocessing | None], Head]
    """Makes the head behind a preprocessing."""
    points: Tensor
    """[M, p]: the centers it remembers, to judge the size of its logits without data."""
    classes: np.ndarray | None = None


def neuralize(model: Any, X: Any = None, features: nn.Module | None = None) -> NeuralizedClustering:
    """Rewrite a fitted clustering as a network with the same decisions, without training.

    Parameters
    ----------
    model : estimator, Pipeline, array or Tensor
        A fitted KMeans, MiniBatchKMeans, BisectingKMeans, MeanShift, AffinityPropagation or Birch of
        scikit-learn, a Pipeline of affine steps that ends in one of them, or bare centers [K, d].
    X : array, frame or tensor, optional
        Data to calibrate beta on (and to choose reference points by, where a Pipeline loses dimensions). It is
        what the network will be called with: points [N, d], or images where `features` is given. Without it
        beta is calibrated on the centers the model remembers, each counted once.
    features : nn.Module, optional
        Network from inputs to the features the clusterer was fitted on, [N, d], or a map [N, d, ...] whose
        locations are the points. It is used as it is and should be in eval mode.

    Returns
    -------
    NeuralizedClustering
        On the device of `features`, of bare tensor centers, or the CPU.

    Raises
    ------
    TypeError
        A clusterer that is not supported.
    sklearn.exceptions.NotFittedError
        One that was not fitted.
    ValueError
        Fewer than two clusters, identical or infinite centers, steps that are not affine, unusable X.

    Examples
    --------
    >>> import neonxc
    >>> from sklearn.cluster import KMeans
    >>> from sklearn.datasets import load_iris
    >>> X = load_iris().data
    >>> net = neonxc.neuralize(KMeans(3, random_state=0).fit(X), X)
    >>> relevance = neonxc.NEON(net).attribute(X)
    >>> relevance.shape
    (150, 4)
    """
    if features is not None and not isinstance(features, nn.Module):
        raise TypeError(f"features needs an nn.Module, got {type(features).__name__}")
    steps, final = _split(model)
    cluster_model = read(final)
    names = _feature_names(model, X, features)
    preprocessing = None
    if steps:
        data = None if X is None or features is not None else as_batch(X).tensor
        width = _width(model) or 0
        if data is not None:
            check_width(data.shape[1], width)
        preprocessing = fold(steps, width, data)
    net = NeuralizedClustering(cluster_model.head(preprocessing), features, cluster_model.classes, names)
    net.to(_device(model, features))
    if X is not None:
        return net.calibrate(X)
    plain = cluster_model.head(None)
    mean = float(plain(cluster_model.points).amax(dim=1).mean())
    net.beta = 1 / mean if mean > 0 else math.inf
    return net


@singledispatch
def read(model: Any) -> ClusterModel:
    """What a fitted clusterer decides by; register a handler to teach neuralize another one."""
    if isinstance(model, type):
        raise TypeError(f"can't neuralize the class {model.__name__}; pass a fitted instance of it")
    if hasattr(model, "detach") or hasattr(model, "__array__") or isinstance(model, (list, tuple)):
        flat = not any(map(np.ndim, model)) if isinstance(model, (list, tuple)) else np.ndim(model) < 2
        if flat:
            raise ValueError(f"centers need shape [K, d], got {list(np.shape(model))}")
        return _centroids(as_batch(model, name="centers").tensor)
    raise TypeError(f"can't neuralize a {type(model).__name__}; supported: {SUPPORTED}")


@read.register(KMeans)
@read.register(MiniBatchKMeans)
@read.register(MeanShift)
def _(model: KMeans | MiniBatchKMeans | MeanShift) -> ClusterModel:
    check_is_fitted(model)
    return _centroids(model.cluster_centers_)


@read.register
def _(model: AffinityPropagation) -> ClusterModel:
    check_is_fitted(model)
    if not hasattr(model, "cluster_centers_"):
        raise ValueError("AffinityPropagation on a precomputed affinity has no centers to explain by")
    centers = model.cluster_centers_
    if centers.shape[0] == 0:
        raise ValueError("AffinityPropagation did not converge and found no cluster")
    return _centroids(centers.toarray() if hasattr(centers, "toarray") else centers)


@read.register
def _(model: Birch) -> ClusterModel:
    check_is_fitted(model)
    classes, groups = np.unique(model.subcluster_labels_, return_inverse=True)
    return _centroids(model.subcluster_centers_, groups, classes)


@read.register
def _(model: BisectingKMeans) -> ClusterModel:
    check_is_fitted(model)
    if model.n_clusters < 2:
        return _centroids(model.cluster_centers_)
    children: list[tuple[int, int]] = []
    centers: list[np.ndarray] = []
    queue = [model._bisecting_tree]  # scikit-learn keeps its hierarchy nowhere else
    for node in queue:
        sides = []
        for child in (node.left, node.right):
            if child.left is None:
                sides.append(int(child.label))
            else:
                queue.append(child)
                sides.append(-(len(queue) - 1))
        children.append((sides[0], sides[1]))
        centers.append(np.stack([node.left.center, node.right.center]) + getattr(model, "_X_mean", 0.0))
    pairs = torch.as_tensor(np.stack(centers), dtype=torch.float64)
    _check_centers(pairs[:, 0], pairs[:, 1])
    points = torch.as_tensor(model.cluster_centers_, dtype=torch.float64)
    return ClusterModel(lambda chain: HierarchyHead(children, pairs[:, 0], pairs[:, 1], chain), points)


def _centroids(centers: Any, groups: Any = None, classes: np.ndarray | None = None) -> ClusterModel:
    points = torch.as_tensor(centers).detach().double().cpu()
    if points.ndim != 2:
        raise ValueError(f"centers need shape [K, d], got {list(points.shape)}")
    check_finite(points, name="centers")
    group = None if groups is None else torch.as_tensor(groups)
    _check_distinct(points, group)
    return ClusterModel(lambda chain: CentroidHead(points, group, chain), points, classes)


def _check_distinct(centers: Tensor, groups: Tensor | None) -> None:
    """Two clusters with one center can't be told apart, and no contrast explains them."""
    _, first = torch.unique(centers, dim=0, return_inverse=True)
    column = torch.arange(len(centers)) if groups is None else groups
    order = torch.argsort(first, stable=True)
    same = (first[order][1:] == first[order][:-1]) & (column[order][1:] != column[order][:-1])
    if same.any():
        at = int(same.nonzero()[0])
        a, b = sorted((int(column[order[at]]), int(column[order[at + 1]])))
        raise ValueError(f"clusters {a} and {b} have identical centers; fit fewer clusters")


def _check_centers(left: Tensor, right: Tensor) -> None:
    if (left == right).all(dim=1).any():
        raise ValueError("a split of the hierarchy has identical centers on both sides; fit fewer clusters")


def _split(model: Any) -> tuple[list[tuple[str, Any]], Any]:
    if not isinstance(model, Pipeline):
        return [], model
    check_is_fitted(model)
    steps, final = _split(model.steps[-1][1])
    return [*model.steps[:-1], *steps], final


def _width(step: Any) -> int | None:
    """Number of raw columns, as far as a step remembers it ('passthrough' and None don't)."""
    if isinstance(step, Pipeline):
        return next((width for _, inner in step.steps if (width := _width(inner)) is not None), None)
    return getattr(step, "n_features_in_", None)


def _feature_names(model: Any, X: Any, features: nn.Module | None) -> list[str] | None:
    if features is not None:
        return None
    fitted = getattr(model, "feature_names_in_", None)
    given = as_batch(X).names if hasattr(X, "iloc") else None
    check_names(given, fitted)
    names = given if fitted is None else fitted
    return None if names is None else [str(name) for name in names]


def _device(model: Any, features: nn.Module | None) -> torch.device:
    if features is not None:
        tensors = [*features.parameters(), *features.buffers()]
        return tensors[0].device if tensors else torch.device("cpu")
    return model.device if isinstance(model, Tensor) else torch.device("cpu")
