"""Labels of clusters that users pass, of any type, and which of them are noise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from neonxc.common.numbers import is_missing
from neonxc.data.inputs import as_array
from neonxc.data.kinds import plain

NOISE = -1
"""The label of noise points in density-based clusterings."""
OTHER_NOISE = (-2, -3)
"""Labels of HDBSCAN for rows with infinite and with missing values."""


def as_labels(
    labels: Any, n: int, device: torch.device, *, name: str = "labels"
) -> tuple[Tensor, np.ndarray, Tensor]:
    """Encode cluster labels as columns.

    Parameters
    ----------
    labels : array-like [n]
        As :func:`label_array` reads them. -1 and missing values (None, NaN, NA) are noise.
    n : int
        Number of points.
    device : torch.device
        Device of the tensors returned.
    name : str
        Name of the argument in errors.

    Returns
    -------
    columns : Tensor [n] of int64
        Position of each label in `classes`; 0 for noise.
    classes : ndarray [K]
        The distinct labels, sorted; those of a pandas categorical in the order of its categories.
    clustered : Tensor [n] of bool
        Whether a point is in a cluster, that is, no noise.

    Raises
    ------
    ValueError
        Another number of labels, labels that are neither whole numbers nor strings, or noise alone.
    """
    values = label_array(labels, name=name)
    if values.shape != (n,):
        raise ValueError(f"{name} needs one label per point, shape ({n},), got {values.shape}")
    clustered = are_labels(values)
    if not clustered.any():
        raise ValueError(f"{name} needs at least one cluster: all points are noise (-1)")
    known = label_array(values[clustered], name=name)
    if known.dtype.kind == "f" and (broken := known[known % 1 != 0]).size:
        raise ValueError(f"{name} needs whole numbers or names, got {broken[0]:g}")
    if len({isinstance(value, str) for value in known}) > 1:
        raise ValueError(f"{name} needs whole numbers or names, got both")
    classes = np.unique(known)
    classes = classes[class_order(labels, classes)]
    columns = torch.zeros(n, dtype=torch.int64)
    columns[clustered] = torch.from_numpy(pd.Index(classes).get_indexer(known))
    return columns.to(device), classes, torch.from_numpy(clustered).to(device)


def class_order(labels: Any, classes: np.ndarray) -> np.ndarray:
    """Return the order [K] of sorted classes: for labels of a pandas categorical, that of its categories."""
    categories = getattr(getattr(labels, "cat", labels), "categories", None)
    if categories is None:
        return np.arange(len(classes))
    return pd.Index([*map(plain, categories)]).get_indexer(classes).argsort()


def are_labels(values: np.ndarray) -> np.ndarray:
    """Mask [n] of the labels that belong to a cluster: neither noise (-1) nor missing."""
    if values.dtype == object:
        return np.array([not is_missing(value) and value != NOISE for value in values], dtype=bool)
    return values != NOISE if values.dtype.kind in "if" else np.ones(len(values), dtype=bool)


def label_array(labels: Any, *, name: str = "labels") -> np.ndarray:
    """Return labels as an array of whole numbers, truth values or strings.

    Labels of other types, such as dates, intervals, bytes and pairs, become their text. Missing labels, and -2 and
    -3, which are those of HDBSCAN for rows that are not finite, are noise: -1. Beside noise, truth values are 0
    and 1.
    """
    if isinstance(labels, list | tuple) and any(isinstance(label, tuple) for label in labels):
        pairs = np.empty(len(labels), dtype=object)  # of which NumPy would make an array of two columns
        pairs[:] = labels
        labels = pairs
    values = as_array(labels)
    if values.ndim != 1 or values.dtype.kind in "bu":
        return values
    if values.dtype.kind in "if":
        values = np.where(np.isnan(values) | np.isin(values, OTHER_NOISE), values.dtype.type(NOISE), values)
    if values.dtype.kind == "i":
        return values
    if values.dtype.kind == "f":
        if not np.isfinite(values).all():
            raise ValueError(f"{name} has infinite values")
        return values if (values % 1).any() else values.astype(np.int64)
    try:
        codes, levels = pd.factorize(values)
    except TypeError:
        raise ValueError(f"{name} needs whole numbers or names, got lists or other objects") from None
    names = [*map(plain, levels)]
    known = np.asarray(names) if names else np.empty(0, np.int64)
    if known.dtype.kind == "b" and codes.min() >= 0:
        return known[codes]
    if known.dtype.kind in "bif":
        return label_array(np.append(known, NOISE)[codes], name=name)
    return np.array([*names, NOISE], dtype=object)[codes]
