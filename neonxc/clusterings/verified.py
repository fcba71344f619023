"""Clusterers without a reader of their own: centers whose nearest one gives their labels.

Centers c_j with labels l_j describe a clusterer exactly if

1. every row of X has the label l_j of its nearest center, and
2. the model, if it predicts, gives that label to random points near the centers as well.

Tried as the labels l_j are first those of `classes_`, or the numbers of the centers, and then those that most of
the rows nearest to each center have, as in a clustering whose clusters were merged or renamed.
"""

from __future__ import annotations

from contextlib import suppress

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


def has_centers(model: object) -> bool:
    """Whether a model has an attribute that is named like centers."""
    return not hasattr(model, "__array__") and any(getattr(model, name, None) is not None for name in CENTERS)


def verified(model: object, labels: np.ndarray, points: Tensor) -> ClusterModel | None:
    """Read the centers of a model, if the nearest center of every point gives its label.

    Warns
    -----
    UserWarning
        The model has centers that give other labels.
    """
    if not are_labels(labels).all():  # noise is not a center's
        return None
    name, centers = _centers(model, points)
    if centers is None:
        return None
    n_centers = len(centers)
    classes = as_array(getattr(model, "classes_", np.arange(n_centers)))
    if len(classes) != n_centers:
        classes = np.arange(n_centers)
    if _agrees(points, labels, centers, classes):
        if _predicts_nearest(model, centers, classes):
            return nearest_centroid(centers, classes=classes)
    else:
        frequent = _most_frequent(points, labels, centers)
        if _agrees(points, labels, centers, frequent) and _predicts_nearest(model, centers):
            distinct, groups = np.unique(frequent, return_inverse=True)
            return nearest_centroid(centers, groups, distinct)
    warn(
        f"the {name} of the {type(model).__name__} do not give its labels as the nearest center does: a "
        "surrogate explains its labels"
    )
    return None


def _centers(model: object, points: Tensor) -> tuple[str, Tensor | None]:
    """Return the first centers [K, d] of a model, and the name of its attribute; None without centers."""
    for name in CENTERS:
        value = getattr(model, name, None)
        with suppress(Exception):  # a method that needs arguments, strings, rows of several lengths
            if callable(value):
                value = value()
            if hasattr(value, "__cuda_array_interface__"):  # also of CuPy, whose arrays NumPy does not convert
                value = torch.as_tensor(value)
            array = as_array(value)
            if array.ndim == 1 and array.dtype.kind in "iu":  # medoids, by the numbers of their rows
                return name, points[torch.as_tensor(array.astype(np.int64))]
            if array.ndim == 2 and array.shape[1] == points.shape[1]:
                return name, torch.as_tensor(array.astype(np.float64)).to(points.device)
    return "", None


def _predicts_nearest(model: object, centers: Tensor, classes: np.ndarray | None = None) -> bool:
    """Whether a model that predicts goes by the nearest center elsewhere, too: at random points near the centers.

    Without `classes` a center may have any label there: a pipeline may rename what its clusterer predicts.
    """
    points = points_near(centers)
    labels = predicted(model, points.cpu().numpy())
    if labels is None:
        return True
    if classes is None:
        classes = _most_frequent(points, labels, centers)
    return _agrees(points, labels, centers, classes)


def _most_frequent(points: Tensor, labels: np.ndarray, centers: Tensor) -> np.ndarray:
    """Return the label [K] that most of the points nearest to each center have; numbers if a center has none."""
    numbers = np.arange(len(centers))
    if labels.shape != (len(points),):
        return numbers
    distinct, codes = np.unique(labels, return_inverse=True)
    nearest = squared_distances(points, centers).argmin(1).cpu().numpy()
    counts = np.zeros((len(centers), len(distinct)), dtype=np.int64)
    np.add.at(counts, (nearest, codes), 1)
    if not counts.any(axis=1).all():
        return numbers
    return distinct[counts.argmax(1)]


def _agrees(points: Tensor, labels: np.ndarray, centers: Tensor, classes: np.ndarray) -> bool:
    """Whether the label of every point is that of its nearest center; several centers may have the same label."""
    if labels.shape != (len(points),):
        return False
    codes = {label: code for code, label in enumerate(dict.fromkeys(classes.tolist()))}
    code_of_center = torch.tensor([codes[label] for label in classes.tolist()])
    code_of_point = torch.tensor([codes.get(label, -1) for label in labels.tolist()])
    has_label = code_of_point[:, None] == code_of_center  # [n, K]
    return are_nearest(has_label.to(points.device), points, centers)
