"""Read arrays, weights and texts that users pass, and check numbers.

Checks raise a ValueError that names the argument. Those of numbers take dense tensors and sparse rows, of which
they check the stored entries.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence, ValuesView
from numbers import Number
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from scipy import sparse
from sklearn.utils import check_array
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from neonxc.common.arguments import kind_of
from neonxc.common.numbers import plural
from neonxc.common.types import ArrayLike
from neonxc.data.frames import as_pandas

if TYPE_CHECKING:
    from neonxc.data.sparse import SparseRows

INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)  # torch does not compute with others


def as_array(values: Any) -> np.ndarray:
    """Convert a tensor on any device, or anything array-like, to an array.

    Values of a list, or another sequence, keep their types: NumPy would make strings of numbers, and of None,
    beside strings.
    """
    if isinstance(values, Tensor):
        values = values.detach().cpu()
        if values.dtype == torch.bfloat16:  # NumPy has no such type
            values = values.float()
        return values.numpy()
    if isinstance(values, ValuesView):  # of a dictionary, which NumPy takes for one object
        values = [*values]
    array = np.asarray(as_pandas(values))
    has_strings = array.dtype.kind in "US" and isinstance(values, Sequence) and array.ndim == 1
    if has_strings and not all(isinstance(value, str | bytes) for value in values):
        return np.array([*values], dtype=object)
    return array


def as_texts(texts: Iterable[str], *, name: str = "texts") -> list[str]:
    """Return texts as a list, from any iterable of strings.

    Raises
    ------
    ValueError
        A single string, a table, a mapping or a set, items that are no strings, or no texts.
    """
    if isinstance(texts, str):
        raise ValueError(f"{name} needs a sequence of strings; a single one is [text]")
    check_are_rows(texts, name=name)
    listed = list(texts)
    for n, text in enumerate(listed):
        if not isinstance(text, str):
            raise ValueError(f"{name} needs a sequence of strings; text {n} is {kind_of(text)}")
    if not listed:
        raise ValueError(f"{name} is empty")
    return listed


def check_are_rows(texts: object, *, name: str = "texts") -> None:
    """Raise a ValueError for what has its texts in columns, behind keys, or in no order.

    As an iterable, a table or a mapping has its names in place of its texts.
    """
    needed = f"{name} needs a sequence of strings, got {kind_of(texts)}"
    if isinstance(texts, Mapping):
        raise ValueError(f"{needed}: pass [*{name}.values()]")
    if isinstance(texts, set | frozenset):
        raise ValueError(f"{needed}, which has no order: pass sorted({name})")
    columns = getattr(texts, "columns", None)
    if columns is not None and len(columns):
        raise ValueError(f"{needed}: pass one of its columns, as {name}[{str(columns[0])!r}]")
    if isinstance(texts, np.ndarray) and texts.ndim == 2:
        shape = [*texts.shape]
        raise ValueError(f"{name} needs a sequence of strings, got an array {shape}: pass {name}[:, 0]")


def check_items(X: object, *, name: str = "X") -> None:
    """Raise a ValueError for several inputs of a network, and for documents or tokens in place of texts."""
    if _is_document(X):
        raise ValueError(f"{name} needs a sequence of strings, got {kind_of(X)}: pass [{name}.text]")
    if isinstance(X, DataLoader | Dataset):
        raise ValueError(f"{name} needs one tensor, {LOADED.format(kind_of(X))}")
    if isinstance(X, Mapping) and any(isinstance(item, Tensor) and item.ndim > 1 for item in X.values()):
        raise ValueError(f"{name} needs one tensor, got {kind_of(X)} of {len(X)}: {JOIN}")
    if isinstance(X, Mapping | set | frozenset) and len(X) and not sparse.issparse(X):
        if all(isinstance(text, str) for text in _values(X)):
            check_are_rows(X, name=name)
        if isinstance(X, Mapping) and all(map(np.isscalar, X.values())):
            raise ValueError(f"{name} needs rows, got the values of a single one: pass [{name}]")
    items: Any = X
    if isinstance(X, pd.Series) and X.dtype == object:
        items = X.to_numpy()
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
    # Tensors in a list may be rows of one input, if they have the same shape
    shapes = {tuple(item.shape) for item in items}
    if isinstance(items, list | tuple) and len(items) == 2 and items[0].ndim > 1 >= items[1].ndim:
        raise ValueError(f"{name} needs one tensor, got {kind_of(items)} of inputs and labels: pass {name}[0]")
    are_inputs = isinstance(items, tuple) or len(shapes) > 1
    if len(items) > 1 and min(map(len, shapes)) > 1 and are_inputs:
        raise ValueError(f"{name} needs one tensor, got {kind_of(items)} of {len(items)}: {JOIN}")


def _values(items: Mapping[Any, Any] | set[Any] | frozenset[Any]) -> Iterable[Any]:
    """Return the values of a mapping, or the items of a set."""
    return items.values() if isinstance(items, Mapping) else items


JOIN = (
    "a network takes one input; join several to one, as torch.cat((a, b), 1), and pass a module that parts them "
    "again; rows of one input are torch.stack(rows)"
)
LOADED = (
    "got {0}: join its batches, as torch.cat([x for x, _ in loader]) if they are pairs, with a DataLoader for a "
    "Dataset"
)
TOKENS = "needs a sequence of strings; text 0 is a list of tokens: pass [' '.join(tokens) for tokens in {}]"


def are_tokens(X: Iterable[object]) -> bool:
    """Whether items are lists of strings, such as texts that were split into words."""
    return all(isinstance(item, list | tuple) and all(isinstance(token, str) for token in item) for item in X)


def _is_document(value: object) -> bool:
    """Whether a value is a document of spaCy or of its like, which has its text as an attribute."""
    return not isinstance(value, str | type) and isinstance(getattr(value, "text", None), str)


def as_weights(sample_weight: ArrayLike | float | None, n: int, device: torch.device) -> Tensor:
    """Return weights [n] of points in float64: ones for None, and a single number for all points.

    Raises
    ------
    ValueError
        Another number of weights, or weights that are negative or not finite.
    """
    if sample_weight is None:
        sample_weight = 1.0
    if isinstance(sample_weight, Number):
        values = np.full(n, sample_weight)
    else:
        values = as_array(sample_weight)
    weight = check_array(
        values,
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
    deviation = points.std(dim=0, correction=0)
    # rounding errors make the standard deviation of a constant column greater than 0
    is_varying = deviation > 1e-9 * points.abs().amax(dim=0)
    return torch.where(is_varying, deviation, 1.0)


def moments(x: Tensor | SparseRows) -> tuple[Tensor, Tensor]:
    """Compute the means and standard deviations [d] of the columns of points, which may be sparse rows."""
    if isinstance(x, Tensor):
        return x.double().mean(dim=0), spreads(x)
    return x.moments()


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype to compute with: float32 for half precision, whose distances overflow; float64 for integers."""
    if dtype in (torch.float16, torch.bfloat16):
        return torch.float32
    return dtype if dtype.is_floating_point else torch.float64


def check_finite(x: Tensor | SparseRows, *, name: str = "X", names: Sequence[str] | None = None) -> None:
    """Raise a ValueError that names the first column with a value that is not finite; x may be sparse rows."""
    values = x if isinstance(x, Tensor) else x.entries
    if values.is_floating_point() and not math.isfinite(values.sum().item()):  # ten times faster than of all
        _refuse(x, values, ~values.isfinite(), f"{name} has a value that is not finite: {{0}} {{1}}", names)


def check_no_bytes(x: object, *, name: str = "X") -> None:
    """Raise a ValueError for inputs of a feature network that are bytes, or integers of images."""
    dtype = getattr(x, "dtype", None)
    kind = str(getattr(dtype, "name", dtype)).removeprefix("torch.")
    is_integer = kind.startswith(("int", "uint", "bool"))
    if kind == "uint8" or (is_integer and getattr(x, "ndim", 0) > 2):
        raise ValueError(
            f"{name} holds pixels of {kind}, and the network takes floating-point numbers: divide bytes by "
            "255 and normalize them as for its training (as preprocess of a FeatureExtractor does), or convert "
            "the type of numbers that it takes as they are"
        )


def check_range(
    x: Tensor | SparseRows, most: float, *, name: str = "X", names: Sequence[str] | None = None
) -> None:
    """Raise a ValueError that names the first column [n, d] with a value so large that its square overflows."""
    values = x if isinstance(x, Tensor) else x.entries
    if not values.numel():
        return
    lowest, highest = torch.stack(torch.aminmax(values)).tolist()  # no copy of the values
    if max(-lowest, highest) > most:
        kind = str(x.dtype).removeprefix("torch.")
        wider = " or pass float64" if x.dtype == torch.float32 else ""
        text = f"{name} has a value whose square is too large for {kind}: {{0:g}} {{1}}; rescale the column{wider}"
        _refuse(x, values, values.abs() > most, text, names)


def _refuse(x: Tensor | SparseRows, values: Tensor, bad: Tensor, text: str, names: Sequence[str] | None) -> None:
    """Raise a ValueError with the first bad value and its position, if there is one."""
    if not bool(bad.any()):
        return
    index = bad.nonzero()[0].tolist()  # in a tensor, or among the stored entries
    position = index
    if not isinstance(x, Tensor):
        rows, columns = x.places()
        position = [int(rows[index]), int(columns[index])]

    where = f"at index {index}"
    if len(position) == 2:
        row, column = position
        column_name = f"{column}" if names is None else repr(names[column])
        where = f"in row {row}, column {column_name}"
    raise ValueError(text.format(values[tuple(index)].item(), where))


def check_width(got: int, needed: int, *, name: str = "X") -> None:
    """Raise a ValueError unless the data has as many columns as the clustering was fitted on."""
    if got != needed:
        raise ValueError(f"{name} has {plural(got, 'feature')}, the clustering was fitted on {needed}")


def check_names(got: Sequence[str] | None, needed: Sequence[str] | None, *, name: str = "X") -> None:
    """Raise a ValueError unless a frame has the columns that the clustering was fitted on, in the same order."""
    if got is None or needed is None or list(got) == list(needed):
        return
    missing = [column for column in needed if column not in got]
    extra = [column for column in got if column not in needed]
    if missing or extra:
        raise ValueError(f"columns of {name} differ from the fitted ones: missing {missing}, unexpected {extra}")
    raise ValueError(f"columns of {name} are in another order than at fit time; needed: {list(needed)}")
