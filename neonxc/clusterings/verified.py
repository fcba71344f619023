"""Clusterers without a reader of their own: centers whose nearest one gives their labels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neonxc.clusterings.labels import predicted
from neonxc.clusterings.model import ClusterModel
from neonxc.clusterings.readers import are_nearest, nearest_centroid, points_near, squared_distances
from neonxc.common.warnings import warn
from neonxc.data.inputs import as_array
from neonxc.data.labels import are_labels

NAMES = ("cluster_centers", "centers", "centroids", "cluster_centroids", "medoids", "prototypes")
ROWS = ("medoid_indices", "cluster_centers_indices")  # rows of X that are centers
CENTERS = (*(name + end for name in (*NAMES, *ROWS) for end in ("_", "")), "get_centers", "get_medoids")


def has_centers(model: Any) -> bool:
    """Whether a model has an attribute that is named like centers."""
    return not hasattr(model, "__array__") and any(getattr(model, name, None) is not None for name in CENTERS)


def verified(model: Any, labels: np.ndarray, points: Tensor) -> ClusterModel | None:
    """Read the centers of a model, if the nearest center of every point gives its label.

    The label of a center is that of `classes_` or its number; if those do not agree, the one that most of the
    points nearest to it have, as in a clustering whose clusters were merged or renamed.

    Warns
    -----
    UserWarning
        The model has centers that give other labels.
    """
    if not are_labels(labels).all():  # noise is no center's
        return None
    for name, centers in _centers(model, points):
        own = as_array(getattr(model, "classes_", np.arange(len(centers))))
        own = own if len(own) == len(centers) else np.arange(len(centers))
        if _agrees(points, labels, centers, own):
            if _predicts_nearest(model, centers, own):
                return nearest_centroid(centers, classes=own)
        else:
            frequent = _most_frequent(points, labels, centers)
            if _agrees(points, labels, centers, frequent) and _predicts_nearest(model, centers):
                names, groups = np.unique(frequent, return_inverse=True)
                return nearest_centroid(centers, groups, names)
        warn(
            f"the {name} of the {type(model).__name__} do not give its labels as the nearest center does: a "
            "surrogate explains its labels"
        )
    return None


def _centers(model: Any, points: Tensor) -> Iterator[tuple[str, Tensor]]:
    """The first centers [K, d] of a model, with the name of its attribute."""
    for name in CENTERS:
        value = getattr(model, name, None)
        with suppress(Exception):  # a method that needs arguments, strings, rows of several lengths
            value = value() if callable(value) else value
            gpu = hasattr(value, "__cuda_array_interface__")  # also of CuPy, whose arrays NumPy does not convert
            array = as_array(torch.as_tensor(value) if gpu else value)
            if array.ndim == 1 and array.dtype.kind in "iu":  # medoids, by the numbers of their rows
                yield name, points[torch.as_tensor(array.astype(np.int64))]
                return
            if array.ndim == 2 and array.shape[1] == points.shape[1]:
                yield name, torch.as_tensor(array.astype(np.float64)).to(points.device)
                return


def _predicts_nearest(model: Any, centers: Tensor, classes: np.ndarray | None = None) -> bool:
    """Whether a model that predicts goes by the nearest center elsewhere, too: at random points near the centers.

    Without `classes` a center may have any label there: a pipeline may rename what its clusterer predicts.
    """
    points = points_near(centers)
    labels = predicted(model, points.cpu().numpy())
    if labels is None:
        return True
    classes = _most_frequent(points, labels, centers) if classes is None else classes
    return _agrees(points, labels, centers, classes)


def _most_frequent(points: Tensor, labels: np.ndarray, centers: Tensor) -> np.ndarray:
    """Return the label [K] that most of the points nearest to each center have; numbers if a center has none."""
    if labels.shape != (len(points),):
        return np.arange(len(centers))
    names, codes = np.unique(labels, return_inverse=True)
    nearest = squared_distances(points, centers).argmin(1).cpu().numpy()
    counts = np.zeros((len(centers), len(names)), dtype=np.int64)
    np.add.at(counts, (nearest, codes), 1)
    frequent = names[counts.argmax(1)]
    if counts.any(axis=1).all():
        return frequent
    return np.arange(len(centers))


def _agrees(points: Tensor, labels: np.ndarray, centers: Tensor, classes: np.ndarray) -> bool:
    """Whether the label of every point is that of its nearest center; several centers may have the same label."""
    if labels.shape != (len(points),):
        return False
    codes = {label: code for code, label in enumerate(dict.fromkeys(classes.tolist()))}
    code_of_center = torch.tensor([codes[label] for label in classes.tolist()])
    code_of_point = torch.tensor([codes.get(label, -1) for label in labels.tolist()])
    chosen = code_of_point[:, None] == code_of_center
    return are_nearest(chosen.to(points.device), points, centers)
