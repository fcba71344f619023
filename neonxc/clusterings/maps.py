"""Clusterings behind a map of the rows, such as UMAP: the vote of the nearest rows in the columns before it.

A pipeline of steps, a map, steps, and a clusterer is read as follows:

    labels      those of the clusterer for the coordinates that the map stores (``embedding_``)
    network     the steps before the map, then the vote of the mapped rows, each for the cluster of its label
    fidelity    fraction of the rows that get their label by this vote, of the first ones in the order of hashes
    held out    the same fraction of the first fifth, by the vote of the rest
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.pipeline import Pipeline
from torch import Tensor

from neonxc.clusterings.fidelity import fraction_of, hashed, held_out_rows, warn_of_labels
from neonxc.clusterings.labels import labels_of
from neonxc.clusterings.model import ClusterModel, Fidelity
from neonxc.clusterings.neuralize_arguments import ClusteringArguments, is_map
from neonxc.common.arguments import kind_of
from neonxc.common.cluster_names import is_noise
from neonxc.common.precision import in_full_precision
from neonxc.common.sizes import CHECKED_ROWS
from neonxc.common.types import ArrayLike
from neonxc.data.inputs import check_width
from neonxc.data.labels import as_labels
from neonxc.data.table import Table
from neonxc.head.vote import vote_head
from neonxc.network import with_noise_label


@in_full_precision
def behind_map(arguments: ClusteringArguments, points: Tensor) -> ClusterModel:
    """Return a model of the labels of a clusterer behind a map; noise is the last of its columns.

    Parameters
    ----------
    arguments : ClusteringArguments
        With the steps from the map on in `behind`.
    points : Tensor [n, p]
        The rows that were mapped, in the columns before the map.

    Raises
    ------
    ValueError
        The map has other rows or columns, or the clusterer has no labels of them.
    """
    width = getattr(arguments.behind[0][1], "n_features_in_", None)
    if width is not None:
        check_width(points.shape[1], width)
    labels = _labels(arguments, points)
    column, classes, is_clustered = as_labels(labels, len(points), points.device)
    groups = torch.where(is_clustered, column, len(classes))
    if not is_clustered.all():
        classes = with_noise_label(classes)
    if len(classes) < 2:
        raise ValueError(
            f"{kind_of(arguments.final)} behind the map has found one cluster alone, so that nothing competes"
        )
    return ClusterModel(
        lambda preprocessing: vote_head(points.cpu(), groups.cpu(), preprocessing),
        points.cpu(),
        classes,
        fidelity=_fidelity(points, groups, classes),
    )


def _labels(arguments: ClusteringArguments, points: Tensor) -> ArrayLike:
    """Return the labels [n] of the rows that a map knows."""
    *_, last = (index for index, (_, step) in enumerate(arguments.behind) if is_map(step))
    last_map: Any = arguments.behind[last][1]
    later_steps = arguments.behind[last + 1 :]
    coordinates = np.asarray(last_map.embedding_)
    if len(coordinates) != len(points):
        raise ValueError(
            f"the {type(last_map).__name__} was fitted on {len(coordinates)} rows, and X has {len(points)}: pass "
            "the X that the pipeline was fitted on"
        )
    if later_steps:
        coordinates = Pipeline(later_steps).transform(coordinates)
    labels = labels_of(arguments.final, Table(coordinates))
    if labels is None:
        raise ValueError(
            f"{kind_of(arguments.final)} has no labels of the rows that it was fitted on, and predicts none"
        )
    return labels


def _fidelity(points: Tensor, groups: Tensor, classes: np.ndarray) -> Fidelity:
    """Measure how many rows get their label, of those that vote, and of rows held out from the others' vote."""
    order = hashed(points, groups).argsort(stable=True)
    points = points[order]
    groups = groups[order]
    name = "the vote of the nearest rows before the map"

    checked = slice(CHECKED_ROWS)
    is_correct = vote_head(points, groups).assign(points[checked]) == groups[checked]
    fitted = fraction_of(is_correct)
    held_out = slice(min(held_out_rows(points).stop, CHECKED_ROWS))
    rest = slice(held_out.stop, None)
    if len(groups[rest].unique()) < len(classes):  # a cluster would be lost
        warn_of_labels(is_correct, groups[checked], classes, "the points", name)
        return Fidelity(fitted)

    assigned = vote_head(points[rest], groups[rest]).assign(points[held_out])
    expected = groups[held_out]
    warn_of_labels(assigned == expected, expected, classes, "the points held out from it", name)
    noise_fraction = None
    if is_noise(classes[-1]):
        noise = len(classes) - 1
        noise_fraction = fraction_of((assigned == noise) == (expected == noise))
    return Fidelity(fitted, fraction_of(assigned == expected), noise=noise_fraction)
