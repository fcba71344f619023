"""Checks of the arguments of KernelKMeans, and the selection of points."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from neonxc.common.processes import Ranks
from neonxc.common.warnings import warn
from neonxc.data.distributed import common_classes
from neonxc.data.labels import are_labels, as_labels, label_array


def check_options(model: Any, labels: bool, group: Any) -> None:
    """Refuse parameters of a KernelKMeans that are invalid, or have no effect with or without given labels."""
    model._validate_params()
    for name, value in {"group": group, "batch_size": model.batch_size, "weighted": model.weighted}.items():
        if model.objective != "lme" and value not in (None, False):
            raise ValueError(f'{name} applies to objective="lme" alone, not to {model.objective!r}')
    if model.batch_size is not None and (group is not None or labels):
        where = "to a group: its fits are" if group is not None else "where labels are given: fits to them are"
        raise ValueError(f"batch_size does not apply {where} full-batch")


def counted(
    model: Any, x: Tensor, weight: Tensor, labels: Any, ranks: Ranks
) -> tuple[Tensor, Tensor, Tensor | None, np.ndarray]:
    """Distinct points that count, their weights and given clusters, and the classes of all ranks."""
    name, given = ("init", model.init) if labels is None else ("labels", labels)
    counts = weight > 0
    first = None
    classes = np.arange(model.n_clusters)
    if not isinstance(given, str):
        with ranks.agreed():
            values = label_array(given, name=name)
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
            raise ValueError(f"init has {len(classes)} different labels, n_clusters is {model.n_clusters}")
        first = torch.from_numpy(np.searchsorted(classes, values)).to(x.device)
    k = len(classes)
    n = int(ranks.sum(counts.sum()))
    if n < k:
        raise ValueError(f"X has n_samples={n} points that count, fewer than n_clusters={k}")
    points, mass, first = merged(x[counts], weight[counts], first)
    distinct = merged(points, mass, None)
    different = len(torch.cat(ranks.gather(distinct[0][:k])).unique(dim=0))
    if different >= k:
        return points, mass, first, classes
    if labels is not None:
        raise ValueError(f"X has {different} distinct points that count, fewer than the {k} clusters of labels")
    warn(
        f"Number of distinct clusters ({different}) found smaller than n_clusters ({k}). Possibly due to "
        "duplicate points in X.",
        ConvergenceWarning,
    )
    return *distinct, classes[:different]


def merged(x: Tensor, weight: Tensor, labels: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """Equal points of one label as one point with their total weight: a weight of two is a point given twice.

    The points come in the order of a random projection, so that draws do not depend on how often one was given.
    """
    direction = torch.randn(x.shape[1], generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    group = x.new_zeros(len(x), dtype=torch.int64) if labels is None else labels
    order = group.argsort(stable=True)
    order = order[(x.double() @ direction.to(x.device))[order].argsort(stable=True)]
    x = x[order]
    group = group[order]
    new = x.new_ones(len(x), dtype=torch.bool)
    new[1:] = (x[1:] != x[:-1]).any(1) | (group[1:] != group[:-1])
    mass = weight.new_zeros(int(new.sum())).index_add_(0, new.cumsum(0) - 1, weight[order])
    return x[new], mass, None if labels is None else group[new]
