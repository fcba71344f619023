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
from neonxc.data.inputs import are_labels, as_labels, label_array
from neonxc.data.table import Table


def check_options(model: Any, labels: bool, group: bool = False) -> None:
    """Refuse parameters of a KernelKMeans that are invalid, or have no effect with or without given labels."""
    model._validate_params()
    used = model.get_params(deep=False) | {"group": group}
    for name in ("group", "batch_size", "weighted", "prune"):
        if model.objective != "lme" and used[name] not in (None, False):
            raise ValueError(f'{name} applies to objective="lme" alone, not to {model.objective!r}')
    if model.batch_size is not None and (group or labels):
        where = "to a group: its fits are" if group else "where labels are given: fits to them are"
        raise ValueError(f"batch_size does not apply {where} full-batch")


def given_clusters(
    model: Any, labels: Any, kept: Tensor, ranks: Ranks
) -> tuple[Tensor | None, Tensor, np.ndarray]:
    """Positions of the given labels among the classes of all ranks, which points count, and the classes."""
    name, own = ("init", model.init) if labels is None else ("labels", labels)
    if isinstance(own, str):
        return None, kept, np.arange(model.n_clusters)
    with ranks.agreed():
        values = label_array(own, name=name)
        if ranks.alone or values.shape != (len(kept),) or are_labels(values).any():
            columns, classes, clustered = as_labels(values, len(kept), kept.device, name=name)
            kept = kept & clustered
            found = classes[columns[kept].cpu().numpy()]
        else:  # only other ranks have points in clusters
            kept, found = torch.zeros_like(kept), values[:0]
    classes = common_classes(found, ranks, name=name)
    if not len(classes):
        raise ValueError(f"{name} has no point that counts in a cluster")
    if name == "init" and len(classes) != model.n_clusters:
        raise ValueError(f"init has {len(classes)} different labels, n_clusters is {model.n_clusters}")
    return torch.from_numpy(np.searchsorted(classes, found)).to(kept.device), kept, classes


def possible_clusters(points: Tensor, k: int, fixed: bool, ranks: Ranks) -> int:
    """Number of clusters, at most k, that points can form, of which those of a rank are distinct."""
    different = min(k, len(torch.cat(ranks.gather(points[:k])).unique(dim=0)))
    if different == k:
        return k
    if fixed:
        raise ValueError(f"X has {different} distinct points that count, fewer than the {k} clusters of labels")
    warn(
        f"Number of distinct clusters ({different}) found smaller than n_clusters ({k}). Possibly due to "
        "duplicate points in X.",
        ConvergenceWarning,
    )
    return different


def check_alike(model: Any, labels: bool, batch: Table, ranks: Ranks) -> None:
    """Refuse models, columns and devices that differ between ranks."""
    init = model.init if isinstance(model.init, str) else "labels"
    parameters = model.get_params(deep=False) | {"init": init, "random_state": None}
    ranks.same(
        model=type(model)(**parameters),
        labels="given" if labels else None,
        columns=batch.names or batch.tensor.shape[1],
        device=batch.tensor.device.type,
    )


def merged(x: Tensor, weight: Tensor, labels: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """Equal points of one label as one point with their total weight: a weight of two is a point given twice.

    The points come in the order of a random projection, so that draws do not depend on how often one was given.
    """
    direction = torch.randn(x.shape[1], generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    group = torch.zeros(len(x), dtype=torch.int64, device=x.device) if labels is None else labels
    order = group.argsort(stable=True)
    order = order[(x.double() @ direction.to(x.device))[order].argsort(stable=True)]
    x, group = x[order], group[order]
    new = torch.ones(len(x), dtype=torch.bool, device=x.device)
    new[1:] = (x[1:] != x[:-1]).any(1) | (group[1:] != group[:-1])
    mass = weight.new_zeros(int(new.sum())).index_add_(0, new.cumsum(0) - 1, weight[order])
    return x[new], mass, None if labels is None else group[new]
