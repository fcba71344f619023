"""Checks of what KernelKMeans is given, and which points count."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import _check_sample_weight
from torch import Tensor

from neonxc.inputs import as_labels


def check_options(model: Any, labels: bool) -> None:
    """Refuse parameters of a KernelKMeans that can't be used or, with or without given labels, have no effect."""
    model._validate_params()
    if labels and model.batch_size is not None:
        raise ValueError("batch_size does not apply where labels are given: fits to them are full-batch")
    if model.objective != "lme":
        for name in ("batch_size", "weighted", "prune"):
            if getattr(model, name) not in (None, False):
                raise ValueError(f'{name} applies to objective="lme" alone, not to {model.objective!r}')


def check_spread(x: Tensor, names: Sequence[str] | None = None, fitting: bool = True) -> None:
    """Refuse points (less their mean) whose squared distances leave the range of their type.

    Only the points of a fit have to lie apart; others may all be close to the mean.
    """
    kind = torch.finfo(x.dtype)
    width, column = (value.item() for value in x.abs().amax(0).max(0))
    over = not width < math.sqrt(kind.max / (4 * x.numel()))  # as even their sum must not overflow; NaN is over
    if over or (fitting and 0 < width < math.sqrt(kind.tiny / kind.eps)):
        flow = "overflow" if over else "underflow"
        place = column if names is None else repr(names[int(column)])
        raise ValueError(
            f"squared distances {flow} in {kind.dtype}: points of X lie up to {width:.3g} from their mean "
            f"in column {place}; rescale X"
        )


def checked_weights(sample_weight: Any, x: Tensor) -> Tensor:
    """Weights [n] of the points, in float64."""
    given = sample_weight.cpu().numpy() if isinstance(sample_weight, Tensor) else sample_weight
    weight = _check_sample_weight(given, np.empty((len(x), 1)), dtype=np.float64)
    if (weight < 0).any() or not (weight > 0).any():
        raise ValueError("sample_weight needs weights >= 0 that are not all 0")
    return torch.as_tensor(weight).to(x.device)


def counted_labels(labels: Any, kept: Tensor, name: str) -> tuple[Tensor, np.ndarray, Tensor]:
    """Positions of the labels of the points that count, the classes that these have, and which points count."""
    columns, classes, there = as_labels(labels, len(kept), kept.device, name=name)
    kept = kept & there
    used, positions = columns[kept].unique(return_inverse=True)
    return positions, classes[used.cpu().numpy()], kept


def merged(x: Tensor, weight: Tensor, labels: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """Equal points of one label as one point with their total weight: a weight of two is a point given twice.

    The points come in the order of a random projection, so that draws do not depend on how often one was given.
    """
    direction = torch.randn(x.shape[1], generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    order = torch.arange(len(x), device=x.device) if labels is None else labels.argsort(stable=True)
    order = order[(x.double() @ direction.to(x.device))[order].argsort(stable=True)]
    x, labels = x[order], None if labels is None else labels[order]
    new = (x[1:] != x[:-1]).any(1)
    if labels is not None:
        new |= labels[1:] != labels[:-1]
    first = torch.cat([new.new_ones(1), new])
    mass = weight.new_zeros(int(first.sum())).index_add_(0, first.cumsum(0) - 1, weight[order])
    return x[first], mass, None if labels is None else labels[first]
