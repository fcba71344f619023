"""Clusterings behind a map of the rows, such as UMAP: the vote of the nearest rows in the columns before it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.pipeline import Pipeline
from torch import Tensor

from neonxc.clusterings.fidelity import hashed, held_out_rows, share, warn_of_labels
from neonxc.clusterings.labels import labels_of
from neonxc.clusterings.model import ClusterModel, Fidelity
from neonxc.clusterings.neuralize_arguments import ClusteringArguments, is_map
from neonxc.common.arguments import kind_of
from neonxc.data.inputs import check_width
from neonxc.data.labels import as_labels
from neonxc.data.table import Table
from neonxc.head.vote import vote_head
from neonxc.network import is_noise, with_noise_label

CHECKED = 2000
"""Number of rows at most on which the vote is compared with the labels."""


def behind_map(given: ClusteringArguments, points: Tensor) -> ClusterModel:
    """Return a model of the labels of a clusterer behind a map; noise is the last of its columns.

    Parameters
    ----------
    given : ClusteringArguments
        With the steps from the map on in `behind`.
    points : Tensor [n, p]
        The rows that were mapped, in the columns before the map.

    Raises
    ------
    ValueError
        The map has other rows or columns, or the clusterer has no labels of them.
    """
    if (width := getattr(given.behind[0][1], "n_features_in_", None)) is not None:
        check_width(points.shape[1], width)
    labels = _labels(given, points)
    column, classes, there = as_labels(labels, len(points), points.device)
    groups = torch.where(there, column, len(classes))
    if not there.all():
        classes = with_noise_label(classes)
    if len(classes) < 2:
        raise ValueError(
            f"{kind_of(given.final)} behind the map has found one cluster alone, so that nothing competes"
        )
    return ClusterModel(
        lambda preprocessing: vote_head(points.cpu(), groups.cpu(), preprocessing),
        points.cpu(),
        classes,
        fidelity=_fidelity(points, groups, classes),
    )


def _labels(given: ClusteringArguments, points: Tensor) -> Any:
    """The labels [n] of the rows that a map knows."""
    *_, last = (place for place, (_, step) in enumerate(given.behind) if is_map(step))
    step = given.behind[last][1]
    later = given.behind[last + 1 :]
    coordinates = np.asarray(step.embedding_)
    if len(coordinates) != len(points):
        raise ValueError(
            f"the {type(step).__name__} was fitted on {len(coordinates)} rows, and X has {len(points)}: pass the "
            "X that the pipeline was fitted on"
        )
    if later:
        coordinates = Pipeline(later).transform(coordinates)
    labels = labels_of(given.final, Table(coordinates))
    if labels is None:
        raise ValueError(
            f"{kind_of(given.final)} has no labels of the rows that it was fitted on, and predicts none"
        )
    return labels


def _fidelity(points: Tensor, groups: Tensor, classes: np.ndarray) -> Fidelity:
    """Measure how many rows get their label, of those that vote, and of rows held out from the others' vote."""
    order = hashed(points, groups).argsort(stable=True)
    points = points[order]
    groups = groups[order]
    out = slice(min(held_out_rows(points).stop, CHECKED))
    rest = slice(out.stop, None)
    told = _assigned(points, groups, points[:CHECKED]) == groups[:CHECKED]
    who = "the vote of the nearest rows before the map"
    if len(groups[rest].unique()) < len(classes):  # a cluster would be lost
        warn_of_labels(told, groups[:CHECKED], classes, "the points", who)
        return Fidelity(share(told))
    found = _assigned(points[rest], groups[rest], points[out])
    wanted = groups[out]
    warn_of_labels(found == wanted, wanted, classes, "the points held out from it", who)
    if not is_noise(classes[-1]):
        return Fidelity(share(told), share(found == wanted))
    noise = len(classes) - 1
    return Fidelity(share(told), share(found == wanted), noise=share((found == noise) == (wanted == noise)))


def _assigned(points: Tensor, groups: Tensor, x: Tensor) -> Tensor:
    """The groups [N] that the votes of some points give to x [N, p]."""
    return vote_head(points, groups).assign(x)
