"""Errors about arguments of `neuralize` in the wrong order, with the correct call."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from torch import nn


def check_swapped(model: Any, X: Any, labels: Any) -> None:
    """Refuse a model in the place of data or labels, and labels in the place of a model or data."""
    for name, value, what in (("X", X, "the data"), ("labels", labels, "a label for each row of X")):
        if isinstance(value, (BaseEstimator, nn.Module)):
            raise TypeError(
                f"{name} needs {what}, got a {type(value).__name__}; the model comes first: "
                "neonxc.neuralize(model, X)"
            )
    first, second = _shape(model), _shape(X)
    if first and second and first[0] == second[0] and len(first) != len(second) and 1 in (len(first), len(second)):
        name = "model" if len(first) == 1 else "X"
        raise ValueError(f"{name} looks like labels, which go by name: neonxc.neuralize(labels=labels, X=X)")


def _shape(value: Any) -> tuple[int, ...]:
    """Shape of an array, frame or list; () for anything else."""
    try:
        return tuple(np.shape(value) if isinstance(value, (list, tuple)) else getattr(value, "shape", ()))
    except ValueError:  # lists of different lengths, which the reader of centers explains
        return ()
