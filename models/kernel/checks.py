"""Checks of the arguments of KernelKMeans, and the selection of points.

Points of weight 0 and points of label -1 (noise) do not count. Equal points of one label are merged: a point of
weight w is as good as w points. If X has fewer distinct points than clusters, every distinct point becomes a
cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from neonxc.common.numbers import plural
from neonxc.common.processes import Ranks
from neonxc.common.types import ArrayLike
from neonxc.common.warnings import warn
from neonxc.data.distributed import common_classes
from neonxc.data.labels import are_labels, as_labels, label_array

if TYPE_CHECKING:
    from .estimator import KernelKMeans


class CountedPoints(NamedTuple):
    """The distinct points that count."""

    x: Tensor  # [n, d]
    mass: Tensor  # [n], their weights
    labels: Tensor | None  # [n], their clusters, where labels are given


def check_options(model: KernelKMeans, has_labels: bool, group: object) -> None:
    """Refuse parameters of a KernelKMeans that are invalid, or have no effect with or without given labels."""
    model._validate_params()
    for name, value in {"group": group, "batch_size": model.batch_size, "weighted": model.weighted}.items():
        if model.objective != "lme" and value not in (None, False):
            raise ValueError(f'{name} applies to objective="lme" alone, not to {model.objective!r}')
    if model.batch_size is not None and group is not None:
        raise ValueError("batch_size does not apply to a group: its fits are full-batch")
    if model.batch_size is not None and has_labels:
        raise ValueError("batch_size does not apply where labels are given: fits to them are full-batch")


def counted(
    model: KernelKMeans, x: Tensor, weight: Tensor, labels: ArrayLike | None, ranks: Ranks
) -> tuple[CountedPoints, np.ndarray]:
    """Select the distinct points that count, with their given clusters, and find the classes of all ranks."""
    if labels is None:
        name = "init"
        clusters = model.init
    else:
        name = "labels"
        clusters = labels

    counts = weight > 0
    codes = None
    classes = np.arange(model.n_clusters)
    if not isinstance(clusters, str):
        with ranks.agreed():
            values = label_array(clusters, name=name)
            if ranks.alone or values.shape != (len(x),) or are_labels(values).any():
                positions, classes, clustered = as_labels(values, len(x), x.device, name=name)
                counts = counts & clustered
                values = classes[positions[counts].cpu().numpy()]
            else:  # only other ranks have points in clusters
                counts = torch.zeros_like(counts)
                values = values[:0]
        classes = common_classes(values, ranks, name=name)
        if not len(classes):
            raise ValueError(f"{name} has no point that counts in a cluster")
        if name == "init" and len(classes) != model.n_clusters:
            n_labels = plural(len(classes), "different label")
            raise ValueError(f"init has {n_labels}, n_clusters is {model.n_clusters}")
        codes = torch.from_numpy(np.searchsorted(classes, values)).to(x.device)

    k = len(classes)
    n = int(ranks.sum(counts.sum()))
    if n < k:
        raise ValueError(f"X has n_samples={n} points that count, fewer than n_clusters={k}")
    points = merged(x[counts], weight[counts], codes)
    distinct = merged(points.x, points.mass, None)
    # k rows of each rank are enough to know whether there are k distinct points
    n_distinct = len(torch.cat(ranks.gather(distinct.x[:k])).unique(dim=0))
    if n_distinct >= k:
        return points, classes
    if labels is not None:
        n_points = plural(n_distinct, "distinct point")
        verb = "counts" if n_distinct == 1 else "count"
        raise ValueError(f"X has {n_points} that {verb}, fewer than the {k} clusters of labels")
    warn(
        f"Number of distinct clusters ({n_distinct}) found smaller than n_clusters ({k}). Possibly due to "
        "duplicate points in X.",
        ConvergenceWarning,
    )
    return distinct, classes[:n_distinct]


def merged(x: Tensor, weight: Tensor, labels: Tensor | None) -> CountedPoints:
    """Merge equal points of one label into one with their total weight: a weight of two is a point given twice.

    The points come in the order of a random projection, so that draws do not depend on how often one was given.
    """
    direction = torch.randn(x.shape[1], generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    projection = x.double() @ direction.to(x.device)
    codes = x.new_zeros(len(x), dtype=torch.int64) if labels is None else labels
    order = codes.argsort(stable=True)
    order = order[projection[order].argsort(stable=True)]
    x = x[order]
    codes = codes[order]

    is_first = x.new_ones(len(x), dtype=torch.bool)  # of equal points, which follow each other
    is_first[1:] = (x[1:] != x[:-1]).any(1) | (codes[1:] != codes[:-1])
    position = is_first.cumsum(0) - 1
    mass = weight.new_zeros(int(is_first.sum())).index_add_(0, position, weight[order])
    first_codes = None if labels is None else codes[is_first]
    return CountedPoints(x[is_first], mass, first_codes)
