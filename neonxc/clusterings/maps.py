"""Clusterings behind a map of the rows, such as UMAP: the vote of the nearest rows in the columns before it."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from neonxc.clusterings.fidelity import hashed, held_out_rows, share, warn_of_labels
from neonxc.clusterings.given import Given
from neonxc.clusterings.model import ClusterModel, Fidelity
from neonxc.clusterings.verified import labels_of
from neonxc.common.arguments import kind_of
from neonxc.data.labels import NOISE, as_labels
from neonxc.head.vote import vote_head

CHECKED = 2000
"""Number of rows at most on which the vote is compared with the labels."""


def behind_map(given: Given, points: Tensor) -> ClusterModel:
    """Return a model of the labels of a clusterer behind a map; noise is the last of its columns.

    Parameters
    ----------
    given : Given
        With the steps from the map on in `behind`.
    points : Tensor [n, p]
        The rows that were mapped, in the columns before the map.

    Raises
    ------
    ValueError
        The map has other rows, or the clusterer has no labels of them.
    """
    labels = _labels(given, points)
    column, classes, there = as_labels(labels, len(points), points.device)
    groups = torch.where(there, column, len(classes))
    if not there.all():
        classes = np.append(classes, NOISE)
    if len(classes) < 2:
        raise ValueError(
            f"the {kind_of(given.final)} behind the map found one cluster alone, so that nothing competes"
        )
    return ClusterModel(
        lambda preprocessing: vote_head(points.cpu(), groups.cpu(), preprocessing),
        points.cpu(),
        classes,
        fidelity=_fidelity(points, groups, classes),
    )


def _labels(given: Given, points: Tensor) -> np.ndarray:
    """The labels [n] of the rows that a map knows."""
    (_, step), *later = given.behind
    coordinates = np.asarray(step.embedding_)
    if len(coordinates) != len(points):
        raise ValueError(
            f"the {type(step).__name__} was fitted on {len(coordinates)} rows, and X has {len(points)}: pass the "
            "X that the pipeline was fitted on"
        )
    for _, one in later:
        coordinates = one.transform(coordinates)
    labels = labels_of(given.final, coordinates, torch.as_tensor(np.asarray(coordinates)))
    if labels is None:
        raise ValueError(
            f"{kind_of(given.final)} has no labels of the rows that it was fitted on, and predicts none"
        )
    return labels


def _fidelity(points: Tensor, groups: Tensor, classes: np.ndarray) -> Fidelity:
    """Measure how many rows get their label, of those that vote, and of rows held out from the others' vote."""
    order = hashed(points, groups).argsort(stable=True)
    points, groups = points[order], groups[order]
    out = slice(min(held_out_rows(points).stop, CHECKED))
    rest = slice(out.stop, None)
    told = vote_head(points, groups).assign(points[:CHECKED]) == groups[:CHECKED]
    if len(groups[rest].unique()) < len(classes):  # a cluster would be lost
        return Fidelity(share(told))
    found, wanted = vote_head(points[rest], groups[rest]).assign(points[out]), groups[out]
    who = "the vote of the nearest rows before the map"
    warn_of_labels(found == wanted, wanted, classes, "the points held out from it", who)
    noise = len(classes) - 1 if classes[-1] == NOISE else -1
    told_apart = share((found == noise) == (wanted == noise)) if noise >= 0 else None
    return Fidelity(share(told), share(found == wanted), noise=told_apart)
