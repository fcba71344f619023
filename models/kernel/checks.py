"""Checks of what KernelKMeans is given."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import _check_sample_weight
from torch import Tensor

from neonxc.inputs import as_labels
from neonxc.parameters import check_number, check_whole


def check_options(model: Any, labels: bool) -> None:
    """Refuse parameters that can't be used, or would have no effect.

    Parameters
    ----------
    model : KernelKMeans
    labels : bool
        Whether `fit` is given labels to keep.
    """
    for name in ("n_clusters", "n_support", "n_init", "max_iter"):
        check_whole(name, getattr(model, name))
    check_whole("batch_size", model.batch_size, optional=True)
    if model.objective not in ("lme", "feature", "spherical"):
        raise ValueError(f'objective needs "lme", "feature" or "spherical", got {model.objective!r}')
    if isinstance(model.init, str) and model.init not in ("kmeans", "random"):
        raise ValueError(f'init needs "kmeans", "random" or labels, got {model.init!r}')
    if (isinstance(model.gamma, str) and model.gamma != "median") or model.gamma == 0:
        raise ValueError(f'gamma needs a number > 0 or "median", got {model.gamma!r}')
    if not isinstance(model.gamma, str):
        check_number("gamma", model.gamma)
    if model.prune is not None:
        check_number("prune", model.prune, most=1)
    if labels and model.batch_size is not None:
        raise ValueError("batch_size does not apply where labels are given: fits to them are full-batch")
    if model.objective != "lme":
        for name in ("batch_size", "weighted", "prune"):
            if getattr(model, name) not in (None, False):
                raise ValueError(f'{name} applies to objective="lme" alone, not to {model.objective!r}')


def check_count(n: int, points: Tensor, k: int) -> None:
    """Refuse fewer points that count, or fewer different ones (sorted, as `merged` has them), than clusters."""
    if n < k:
        raise ValueError(f"X has n_samples={n} points that count, fewer than n_clusters={k}")
    different = 1 + int((points[1:] != points[:-1]).any(1).sum())
    if different < k:
        raise ValueError(f"X has {different} different points that count, fewer than n_clusters={k}")


def checked_weights(sample_weight: Any, x: Tensor) -> Tensor:
    """Weights [n] of the points, in float64."""
    if sample_weight is None:
        return x.new_ones(len(x), dtype=torch.float64)
    given = sample_weight.cpu().numpy() if isinstance(sample_weight, Tensor) else sample_weight
    checked = _check_sample_weight(given, np.empty((len(x), 1)), dtype=np.float64)
    weight = torch.as_tensor(checked).to(x.device)
    if bool((weight < 0).any()) or not bool((weight > 0).any()):
        raise ValueError("sample_weight needs weights >= 0 that are not all 0")
    return weight


def counted_labels(labels: Any, kept: Tensor, name: str) -> tuple[Tensor, np.ndarray, Tensor]:
    """Positions of the labels of the points that count, among the classes these have; and which points do."""
    columns, classes, there = as_labels(labels, len(kept), kept.device, name=name)
    kept = kept & there
    used, positions = columns[kept].unique(return_inverse=True)
    return positions, classes[used.cpu().numpy()], kept
