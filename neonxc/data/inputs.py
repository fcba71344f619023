"""Arrays, weights and texts that users pass, and checks of numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, ValuesView
from numbers import Number
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.utils import check_array
from torch import Tensor

from neonxc.common.arguments import kind_of
from neonxc.data.frames import as_pandas

INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)  # torch does not compute with others


def as_array(values: Any) -> np.ndarray:
    """Convert a tensor on any device, or anything array-like, to an array.

    Values of a list, or another sequence, keep their types: NumPy would make strings of numbers, and of None,
    beside strings.
    """
    if not isinstance(values, Tensor):
        if isinstance(values, ValuesView):  # of a dictionary, which NumPy takes for one object
            values = [*values]
        array = np.asarray(as_pandas(values))
        made_strings = array.dtype.kind in "US" and isinstance(values, Sequence) and array.ndim == 1
        if made_strings and not all(isinstance(value, str | bytes) for value in values):
            array = np.array([*values], dtype=object)
        return array
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


def check_items(X: Any, *, name: str = "X") -> None:
    """Raise a ValueError for several inputs of a network, and for documents or tokens in place of texts."""
    if _is_document(X):
        raise ValueError(f"{name} needs a sequence of strings, got {kind_of(X)}: pass [{name}.text]")
    if isinstance(X, Mapping) and any(isinstance(item, Tensor) and item.ndim > 1 for item in X.values()):
        raise ValueError(f"{name} needs one tensor, got {kind_of(X)} of {len(X)}: {JOIN}")
    items = X.to_numpy() if isinstance(X, pd.Series) and X.dtype == object else X
    is_sequence = isinstance(items, list | tuple) or (isinstance(items, np.ndarray) and items.dtype == object)
    if not is_sequence or len(items) == 0:
        return
    if _is_document(items[0]):
        raise ValueError(
            f"{name} needs a sequence of strings; text 0 is {kind_of(items[0])}: pass [doc.text for doc in {name}]"
        )
    if are_tokens(items) and len({*map(len, items)}) > 1:
        raise ValueError(f"{name} {TOKENS.format(name)}")
    if isinstance(items, np.ndarray) or not all(isinstance(item, Tensor | np.ndarray) for item in items):
        return
    shapes = {tuple(item.shape) for item in items}
    if len(items) > 1 and min(map(len, shapes)) > 1 and (isinstance(items, tuple) or len(shapes) > 1):
        raise ValueError(f"{name} needs one tensor, got {kind_of(items)} of {len(items)}: {JOIN}")


JOIN = (
    "a network takes one input; join several to one, as torch.cat((a, b), 1), and pass a module that parts them "
    "again; rows of one input are torch.stack(rows)"
)
TOKENS = "needs a sequence of strings; text 0 is a list of tokens: pass [' '.join(tokens) for tokens in {}]"


def are_tokens(X: Any) -> bool:
    """Whether items are lists of strings, such as texts that were split into words."""
    return all(isinstance(item, list | tuple) and all(isinstance(token, str) for token in item) for item in X)


def _is_document(value: Any) -> bool:
    """Whether a value is a document of spaCy or of its like, which has its text as an attribute."""
    return not isinstance(value, str | type) and isinstance(getattr(value, "text", None), str)


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


def check_no_bytes(x: Any, *, name: str = "X") -> None:
    """Raise a ValueError for inputs of a feature network that are bytes, or whole numbers of images."""
    dtype = getattr(x, "dtype", None)
    kind = str(getattr(dtype, "name", dtype)).removeprefix("torch.")
    if kind == "uint8" or (kind.startswith(("int", "uint", "bool")) and x.ndim > 2):
        raise ValueError(
            f"{name} holds pixels of {kind}, and the network takes floating-point numbers: divide bytes by "
            "255 and normalize them as for its training (as preprocess of a FeatureExtractor does), or convert "
            "the type of numbers that it takes as they are"
        )


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
