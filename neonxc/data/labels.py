"""Labels of clusters that users pass, of any type, and which of them are noise.

What labels are read as::

    passed                                          read as
    integers; floats that are integers              int64, or their own type of integers
    other floats                                    themselves
    truth values                                    themselves; 0 and 1 beside noise
    strings                                         themselves, in an array of objects
    dates, intervals, bytes, pairs and the like     their text
    -2, -3, None, NaN and NA                        -1: noise
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from neonxc.common.cluster_names import NOISE as NOISE
from neonxc.common.numbers import is_missing
from neonxc.common.types import ArrayLike
from neonxc.common.warnings import warn
from neonxc.data.inputs import as_array
from neonxc.data.kinds import plain

if TYPE_CHECKING:
    from neonxc.data.table import Table

SAMPLED_ROWS = 200
"""Number of rows, at least, that are compared first, as they tell most columns from labels."""
FEW = 10
"""Maximum number of columns that a warning names."""
OTHER_NOISE = (-2, -3)
"""Labels of HDBSCAN for rows with infinite and with missing values."""


def as_labels(
    labels: ArrayLike, n: int, device: torch.device, *, name: str = "labels"
) -> tuple[Tensor, np.ndarray, Tensor]:
    """Encode cluster labels as positions among the distinct ones.

    Parameters
    ----------
    labels : array-like [n]
        As :func:`label_array` reads them. -1 and missing values (None, NaN, NA) are noise, and
        so are -2 and -3.
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
    if known.dtype.kind == "f":
        fractions = known[known % 1 != 0]
        if fractions.size:
            raise ValueError(f"{name} needs whole numbers or names, got {fractions[0]:g}")
    check_alike(known, name=name)
    classes = np.unique(known)
    if str(NOISE) in classes.tolist():
        warn(
            f"{name} has the text '{NOISE}', which is a cluster of this name: for noise, pass the number {NOISE} "
            "or None in its place"
        )
    classes = classes[class_order(labels, classes)]
    columns = torch.zeros(n, dtype=torch.int64)
    columns[clustered] = torch.from_numpy(pd.Index(classes).get_indexer(known))
    return columns.to(device), classes, torch.from_numpy(clustered).to(device)


def class_order(labels: object, classes: np.ndarray) -> np.ndarray:
    """Return the order [K] of sorted classes: for labels of a pandas categorical, that of its categories."""
    categories = getattr(getattr(labels, "cat", labels), "categories", None)
    if categories is None:
        return np.arange(len(classes))
    positions = pd.Index([*map(plain, categories)]).get_indexer(classes)  # of each class among the categories
    return positions.argsort()


def are_labels(values: np.ndarray) -> np.ndarray:
    """Mask [n] of the labels that belong to a cluster: neither noise (-1) nor missing."""
    if values.dtype == object:
        return np.array([not is_missing(value) and value != NOISE for value in values], dtype=bool)
    if values.dtype.kind in "if":
        return values != NOISE
    return np.ones(len(values), dtype=bool)


def is_any_noise(label: object) -> bool:
    """Whether a label is that of noise: -1, -2 or -3 as a number, or missing."""
    label = plain(label)
    if label is None:
        return True
    is_number = isinstance(label, int | float) and not isinstance(label, bool)
    return is_number and label in (NOISE, *OTHER_NOISE)


def name_of_noise(clusters: Iterable[object]) -> str:
    """Return a name for noise beside the labels of clusters, which may be called "noise" themselves."""
    return "noise (-1)" if "noise" in map(str, clusters) else "noise"


def check_alike(labels: np.ndarray, *, name: str = "labels") -> None:
    """Raise a ValueError if clusters have numbers and names, which have no order."""
    if labels.dtype != object:
        return
    are_strings = {isinstance(label, str) for label in labels[are_labels(labels)]}
    if len(are_strings) > 1:
        raise ValueError(f"{name} needs whole numbers or names, got both")


def repeating_columns(columns: Mapping[str, ArrayLike], labels: np.ndarray) -> list[str]:
    """Return the columns with one value for each cluster, which no other cluster and no noise has.

    Parameters
    ----------
    columns : mapping of str to array-like [n]
        The values of the columns, of any type.
    labels : ndarray [n]
        Labels as :func:`label_array` returns them.
    """
    if not columns:
        return []
    clustered = are_labels(labels)
    rows, same_cluster = _sampled_rows(labels)
    n_sampled_clusters = len(np.unique(same_cluster))

    repeating = []
    for name, values in columns.items():
        column = np.asarray(values)
        if labels.shape != column.shape[:1]:  # the function that reads both raises the error
            continue
        numbers = column[rows]
        first = column[same_cluster]
        if column.dtype.kind not in "iufb":
            try:
                codes, _ = pd.factorize(np.concatenate([numbers, first]), use_na_sentinel=False)
            except TypeError:  # lists or other objects
                continue
            numbers, first = np.split(codes, 2)
        if not _are_equal(numbers, first).all():
            continue
        if len(np.unique(first)) < n_sampled_clusters:
            continue
        if _is_one_to_one(column, labels, clustered):
            repeating.append(str(name))
    return repeating


def _sampled_rows(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return clustered rows from all over the table, and for each of them the first one of its cluster.

    In a column that repeats the labels, the two have the same value, and no two clusters have the same. This tells
    nearly all columns from labels, also if the table is in the order of the clusters.
    """
    clustered_rows = np.flatnonzero(are_labels(labels))
    rows = clustered_rows[:: max(1, len(clustered_rows) // SAMPLED_ROWS)]
    clusters, _ = pd.factorize(labels[rows])
    _, first = np.unique(clusters, return_index=True)
    return rows, rows[first[clusters]]


def _are_equal(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Mask the numbers that are the same in two arrays, among which NaN equals NaN."""
    is_equal: np.ndarray = a == b
    if a.dtype.kind == "f":
        is_equal |= np.isnan(a) & np.isnan(b)
    return is_equal


def _is_one_to_one(values: np.ndarray, labels: np.ndarray, clustered: np.ndarray) -> bool:
    """Whether every cluster has one value, which no other cluster and no noise has, and not all values differ."""
    try:
        codes, _ = pd.factorize(values, use_na_sentinel=False)
    except TypeError:  # lists or other objects
        return False
    clusters, _ = pd.factorize(labels[clustered])
    value_codes = codes[clustered]
    n_pairs = np.unique(np.stack([value_codes, clusters]), axis=1).shape[1]
    n_values = len(np.unique(value_codes))
    n_clusters = len(np.unique(clusters))
    if not n_pairs == n_values == n_clusters:
        return False
    return 1 < n_values < len(value_codes) and not np.isin(codes[~clustered], value_codes).any()


def warn_of_labels(table: Table, labels: np.ndarray, name: str = "X") -> None:
    """Warn of columns of a dense table that repeat the labels, unless there is no other one."""
    if len(table.shape) != 2 or table.width < 2:
        return
    if table.names is None:
        columns = _varying_by_cluster(as_array(table.data), labels)
    else:
        columns = table.values_of_columns()
    repeated = repeating_columns(columns, labels)
    if repeated:
        warn(
            f"{name} has columns with one value for each cluster, as the labels have: {repeated[:FEW]}; leave "
            "them out, unless the clusters were made from them"
        )


def _varying_by_cluster(values: np.ndarray, labels: np.ndarray) -> dict[str, np.ndarray]:
    """Return the columns of an array [n, d] that differ between some of the rows, but not inside a cluster.

    This compares all columns of numbers at once, which takes a tenth of the time of one after the other. All
    columns are returned if they are other objects.
    """
    if values.dtype.kind not in "iufb" or labels.shape != values.shape[:1]:
        return {str(i): column for i, column in enumerate(values.T)}
    rows, same_cluster = _sampled_rows(labels)
    sampled = values[rows]
    is_one_value = _are_equal(sampled, values[same_cluster]).all(axis=0)
    is_constant = _are_equal(sampled, sampled[:1]).all(axis=0)
    return {str(i): values[:, i] for i in np.flatnonzero(is_one_value & ~is_constant)}


def written_labels(labels: pd.Series) -> pd.Series:
    """Return the labels in a column of a file, where the numbers of noise beside names have become text."""
    texts_of_noise = {str(number) for number in (NOISE, *OTHER_NOISE)}
    values = labels.astype(object)
    is_noise = [isinstance(value, str) and value.strip().removesuffix(".0") in texts_of_noise for value in values]
    if not any(is_noise):
        return labels
    return values.mask(is_noise, NOISE)


def label_array(labels: ArrayLike, *, name: str = "labels") -> np.ndarray:
    """Return labels as an array of whole numbers, truth values or strings.

    Labels of other types, such as dates, intervals, bytes and pairs, become their text. Missing labels, and -2 and
    -3, which are those of HDBSCAN for rows that are not finite, are noise: -1. Beside noise, truth values are 0
    and 1.

    Raises
    ------
    ValueError
        Infinite numbers, or lists and other objects.
    """
    if isinstance(labels, list | tuple) and any(isinstance(label, tuple) for label in labels):
        values = np.empty(len(labels), dtype=object)  # NumPy would make an array of two columns
        values[:] = labels
    else:
        values = as_array(labels)
    if values.ndim != 1 or values.dtype.kind in "bu":
        return values
    if values.dtype.kind in "if":
        is_noise = np.isnan(values)
        for number in OTHER_NOISE:  # eight times faster than `np.isin`
            is_noise |= values == number
        values = np.where(is_noise, values.dtype.type(NOISE), values)
    if values.dtype.kind == "i":
        return values
    if values.dtype.kind == "f":
        if not np.isfinite(values).all():
            raise ValueError(f"{name} has infinite values")
        has_fractions = (values % 1).any()
        return values if has_fractions else values.astype(np.int64)

    # Objects and strings: every distinct label is read once. The code of a missing one is -1, the position of the
    # noise that is appended to them
    try:
        codes, levels = pd.factorize(values)
    except TypeError:
        raise ValueError(f"{name} needs whole numbers or names, got lists or other objects") from None
    names = [NOISE if is_any_noise(level) else plain(level) for level in levels]
    known = np.asarray(names)
    if not names:  # of which NumPy would make floats
        known = np.empty(0, np.int64)
    if known.dtype.kind == "b" and codes.min() >= 0:
        return known[codes]
    if known.dtype.kind in "bif":
        return label_array(np.append(known, NOISE)[codes], name=name)
    return np.array([*names, NOISE], dtype=object)[codes]
