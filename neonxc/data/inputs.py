"""Labels, weights and texts that users pass, and checks of numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from numbers import Number
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.utils import check_array
from torch import Tensor

from neonxc.common.arguments import kind_of
from neonxc.common.numbers import is_missing
from neonxc.data.frames import as_pandas
from neonxc.data.kinds import plain

INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)  # torch does not compute with others
NOISE = -1
"""The label of noise points in density-based clusterings."""
OTHER_NOISE = (-2, -3)
"""Labels of HDBSCAN for rows with infinite and with missing values."""


def as_array(values: Any) -> np.ndarray:
    """Convert a tensor on any device, or anything array-like, to an array."""
    if not isinstance(values, Tensor):
        return np.asarray(as_pandas(values))
    values = values.detach().cpu()
    return (values.float() if values.dtype == torch.bfloat16 else values).numpy()


def as_texts(texts: Iterable[str], *, name: str = "texts") -> list[str]:
    """Return texts as a list, from any iterable of strings.

    Raises
    ------
    ValueError
        A single string, items that are no strings, or no texts.
    """
    listed = list(texts)
    if isinstance(texts, str):
        raise ValueError(f"{name} needs a sequence of strings; a single one is [text]")
    for n, text in enumerate(listed):
        if not isinstance(text, str):
            raise ValueError(f"{name} needs a sequence of strings; text {n} is {kind_of(text)}")
    if not listed:
        raise ValueError(f"{name} is empty")
    return listed


def as_labels(
    labels: Any, n: int, device: torch.device, *, name: str = "labels"
) -> tuple[Tensor, np.ndarray, Tensor]:
    """Encode cluster labels as columns.

    Parameters
    ----------
    labels : array-like [n]
        Whole numbers or strings. -1 and missing values (None, NaN, NA) are noise.
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


def as_weights(sample_weight: Any, n: int, device: torch.device) -> Tensor:
    """Return weights [n] of points in float64: ones for None, and a single number for all points.

    Raises
    ------
    ValueError
        Another number of weights, or weights that are negative or not finite.
    """
    sample_weight = 1.0 if sample_weight is None else sample_weight
    if isinstance(sample_weight, Number):
        sample_weight = np.full(n, sample_weight)
    weight = check_array(
        as_array(sample_weight),
        dtype=np.float64,
        copy=True,  # a Series is read-only
        ensure_2d=False,
        ensure_min_samples=0,
        input_name="sample_weight",
    )
    if weight.shape != (n,):
        raise ValueError(f"sample_weight needs one weight per point, shape ({n},), got {weight.shape}")
    if (weight < 0).any():
        raise ValueError("sample_weight needs weights >= 0, got negative ones")
    return torch.as_tensor(weight).to(device)


def are_labels(values: np.ndarray) -> np.ndarray:
    """Mask [n] of the labels that belong to a cluster: neither noise (-1) nor missing."""
    if values.dtype == object:
        return np.array([not is_missing(value) and value != NOISE for value in values], dtype=bool)
    return values != NOISE if values.dtype.kind in "if" else np.ones(len(values), dtype=bool)


def label_array(labels: Any, *, name: str = "labels") -> np.ndarray:
    """Return labels as an array of whole numbers, truth values or strings.

    Labels of other types, such as dates, intervals and bytes, become their text. Missing labels, and -2 and -3,
    which are those of HDBSCAN for rows that are not finite, are noise: -1. Beside noise, truth values are 0 and 1.
    """
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
    known = np.asarray([*map(plain, levels)]) if len(levels) else np.empty(0, np.int64)
    if known.dtype.kind == "b" and codes.min() >= 0:
        return known[codes]
    if known.dtype.kind in "bif":
        return label_array(np.append(known, NOISE)[codes], name=name)
    return np.array([*map(plain, levels), NOISE], dtype=object)[codes]


def spreads(points: Tensor) -> Tensor:
    """Standard deviations [d] of the columns of points [n, d], in float64; 1 for constant columns."""
    points = points.double()
    spread = points.std(dim=0, correction=0)
    return torch.where(spread > 1e-9 * points.abs().amax(dim=0), spread, 1.0)


def moments(x: Any) -> tuple[Tensor, Tensor]:
    """Compute the means and standard deviations [d] of the columns of points, which may be sparse rows."""
    return (x.double().mean(dim=0), spreads(x)) if isinstance(x, Tensor) else x.moments()


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype to compute with: float32 for half precision, whose distances overflow; float64 for integers."""
    if dtype in (torch.float16, torch.bfloat16):
        return torch.float32
    return dtype if dtype.is_floating_point else torch.float64


def check_finite(x: Any, *, name: str = "X", names: Sequence[str] | None = None) -> None:
    """Raise a ValueError that names the first column with a value that is not finite; x may be sparse rows."""
    values = getattr(x, "entries", x)
    if values.is_floating_point() and not bool(values.sum().isfinite()):  # ten times faster than isfinite
        _refuse(x, values, ~values.isfinite(), f"{name} has a value that is not finite: {{0}} {{1}}", names)


def check_range(x: Any, most: float, *, name: str = "X", names: Sequence[str] | None = None) -> None:
    """Raise a ValueError that names the first column [n, d] with a value so large that its square overflows."""
    values = getattr(x, "entries", x)
    if values.numel() and float(torch.stack(torch.aminmax(values)).abs().amax()) > most:  # no copy of the values
        kind = str(x.dtype).removeprefix("torch.")
        wider = " or pass float64" if x.dtype == torch.float32 else ""
        text = f"{name} has a value whose square is too large for {kind}: {{0:g}} {{1}}; rescale the column{wider}"
        _refuse(x, values, values.abs() > most, text, names)


def _refuse(x: Any, values: Tensor, bad: Tensor, text: str, names: Sequence[str] | None) -> None:
    """Raise a ValueError with the first bad value and its place, if there is one."""
    for entry in bad.nonzero()[:1].tolist():
        row, *rest = entry if x is values else [int(positions[entry]) for positions in x.places()]
        place = f"at index {entry}"
        if len(rest) == 1:
            place = f"in row {row}, column {rest[0] if names is None else repr(names[rest[0]])}"
        raise ValueError(text.format(values[tuple(entry)].item(), place))


def check_width(got: int, needed: int, *, name: str = "X") -> None:
    """Raise a ValueError unless the data has as many columns as the clustering was fitted on."""
    if got != needed:
        raise ValueError(f"{name} has {got} features, the clustering was fitted on {needed}")


def check_names(got: Sequence[str] | None, needed: Sequence[str] | None, *, name: str = "X") -> None:
    """Raise a ValueError unless a frame has the columns that the clustering was fitted on, in the same order."""
    if got is None or needed is None or list(got) == list(needed):
        return
    missing, extra = [n for n in needed if n not in got], [n for n in got if n not in needed]
    if missing or extra:
        raise ValueError(f"columns of {name} differ from the fitted ones: missing {missing}, unexpected {extra}")
    raise ValueError(f"columns of {name} are in another order than at fit time; needed: {list(needed)}")
