"""Whether folded steps are what `transform` of a pipeline says about rows of X.

    z(x) = (A e(x) + b) / n(x) + c     the folded steps, of the encoded columns e(x), with the row norm n(x)
    s(x) = max (|A| |e| + |b|) / n(x) + |c|     what is summed, whose largest row decides how far sums are rounded
    |z(x) - transform(x)| <= t s(x)    with t = 1e-9, or 1000 eps where a step returns numbers in single precision

Rows are compared in float64, also those of X in float32, so that t is that of the steps and not of the data.
Columns that no step has made numbers of are compared as texts.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from joblib import parallel_config
from sklearn.base import BaseEstimator
from torch import Tensor

from neonxc.common.types import TableLike
from neonxc.data.table import Table
from neonxc.head.preprocessing import Preprocessing, mapped
from neonxc.pipelines.encoding import Encoding
from neonxc.pipelines.parts import Number, Part
from neonxc.pipelines.steps import has_formula

if TYPE_CHECKING:
    from neonxc.pipelines.folding import Folding

N_ROWS = 64
"""Number of rows of X that are compared; fewer if their values take more than 128 MiB."""
N_VALUES = 2**24
TOLERANCE = 1e-9
"""Largest difference by the size of what is summed: room for the rounding of several steps in float64."""
LARGEST_TOLERANCE = 1e-2
"""That of steps that return half precision."""


class Rows:
    """Some rows of X as they enter a step of a pipeline, which are computed when a step is compared or read.

    Parameters
    ----------
    make : callable
        Returns the rows, as an array, a data frame or a sparse matrix, or raises what the steps before it raise.
    """

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make

    @cached_property
    def data(self) -> Any:
        """The rows; whoever changes them needs a copy."""
        return self._make()

    def after(self, step: object) -> Rows:
        """Return the rows behind a step."""

        def transform() -> Any:
            data = self.data
            # a class of its own may learn from what it sees
            fitted = step if has_formula(step) else deepcopy(step)
            return transformed(fitted, data)

        return Rows(transform)

    def select(self, columns: list[int]) -> Rows:
        """Return some of the columns, by their positions."""

        def select() -> Any:
            data = self.data
            if isinstance(data, pd.DataFrame):
                return data.iloc[:, columns]
            return data[:, columns]

        return Rows(select)


def rows_of(X: Table, names: list[str] | None = None) -> Rows:
    """Return evenly spaced rows of a table, with the names of the columns that a pipeline was fitted on."""

    def select() -> Any:
        data = sample(X).data
        if isinstance(data, Tensor):
            data = data.detach().double().cpu().numpy()
        else:
            data = _widened(data)
        if names is None or X.names is not None or X.is_sparse or data.shape[1] != len(names):
            return data
        return pd.DataFrame(data, columns=names).infer_objects()  # steps may select columns by name

    return Rows(select)


def sample(X: Table) -> Table:
    """Return evenly spaced rows of a table, or evenly spaced ones of other inputs."""
    values_per_row = max(1, int(np.prod(X.shape[1:])))
    n_within_memory = max(8, N_VALUES // values_per_row)
    n = min(len(X), N_ROWS, n_within_memory)
    positions = np.linspace(0, len(X) - 1, n).round()
    return X.take([*map(int, positions)])


def _widened(data: Any) -> Any:
    """Convert numbers in float32 or less to float64."""
    if isinstance(data, pd.DataFrame):
        narrow = data.select_dtypes(["float16", "float32"]).columns
        if not len(narrow):
            return data
        return data.astype(dict.fromkeys(narrow, np.float64))
    if getattr(data, "dtype", None) in (np.float16, np.float32):
        return data.astype(np.float64)
    return data


def transformed(step: Any, data: TableLike) -> Any:
    """Return what a step makes of rows, which stay as they are."""
    with warnings.catch_warnings(), np.errstate(all="ignore"), parallel_config("sequential"):
        warnings.simplefilter("ignore")
        return step.transform(deepcopy(data))


class Numbers(NamedTuple):
    """The numbers of rows, whatever their type."""

    values: np.ndarray  # [n, p] of float64, NaN where a value is missing or no number
    is_number: np.ndarray  # [p], whether a column holds numbers
    tolerance: float  # the largest difference by the size of what is summed

    @classmethod
    def of(cls, data: TableLike) -> Numbers:
        """Read rows; an error if they are not a table."""
        table = Table.read(data, name="transform(X)")
        n_columns = table.width
        array = table.dense()
        if isinstance(array, Tensor):
            array = array.detach().cpu().numpy()
        if not isinstance(array, pd.DataFrame) and array.dtype.kind in "fiub":
            return cls(array.astype(np.float64), np.full(n_columns, True), _tolerance([array.dtype]))

        frame = pd.DataFrame(array).infer_objects()
        is_number = np.array([dtype.kind in "fiub" for dtype in frame.dtypes], dtype=bool)
        values = np.full(frame.shape, np.nan)
        if is_number.any():
            numbers = frame.loc[:, is_number]
            values[:, is_number] = numbers.to_numpy(np.float64, na_value=np.nan)
        return cls(values, is_number, _tolerance(frame.dtypes[is_number]))


def _tolerance(dtypes: Iterable[Any]) -> float:
    """Return t for numbers of these types; integers are exact."""
    eps = [float(np.finfo(np.dtype(f"f{dtype.itemsize}")).eps) for dtype in dtypes if dtype.kind == "f"]
    return min(LARGEST_TOLERANCE, max(TOLERANCE, 1e3 * max(eps, default=0.0)))


def _fitted_dtypes(step: object) -> Iterator[np.dtype]:
    """Yield the types of what a step has stored, and the steps in it: an imputer fills with numbers in float32."""
    stored = [*getattr(step, "__dict__", {}).values()]
    for value in stored:
        dtype = value if isinstance(value, np.dtype) else getattr(value, "dtype", None)
        if isinstance(dtype, np.dtype):
            yield dtype
        elif isinstance(value, BaseEstimator):
            yield from _fitted_dtypes(value)
        elif isinstance(value, list | tuple):
            stored += value


def difference(expected: np.ndarray, size: np.ndarray, numbers: Numbers) -> str:
    """Describe where numbers are not the expected ones [n, p]; an empty text if they are.

    Parameters
    ----------
    expected : array [n, p]
        NaN where a value is missing.
    size : array [n, p] or [p]
        Size of what was summed.
    numbers : Numbers
        What `transform` returns.
    """
    values = numbers.values
    if values.shape != expected.shape:
        return f"it returns shape {[*values.shape]} in place of {[*expected.shape]}"
    with np.errstate(all="ignore"):
        is_equal = np.abs(values - expected) <= numbers.tolerance * size
    is_equal |= np.isnan(values) & np.isnan(expected)
    is_equal |= ~numbers.is_number
    if is_equal.all():
        return ""
    row, column = np.argwhere(~is_equal)[0]
    return f"it returns {values[row, column]:.6g} in place of {expected[row, column]:.6g} in column {column}"


class FoldingCheck:
    """Compares folded steps with what the steps themselves return for the same rows.

    Parameters
    ----------
    rows : Rows
        Rows as they enter the first step.
    """

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._tolerance = TOLERANCE
        self._encoded: tuple[Encoding, np.ndarray] | None = None

    @cached_property
    def _table(self) -> Table:
        return Table(self._rows.data.copy())

    @cached_property
    def _numbers(self) -> Numbers:
        return Numbers.of(self._table.data)

    def difference(self, step: object, folding: Folding, after: Rows) -> str:
        """Describe a difference between the steps up to one, folded, and rows behind it; empty if there is none.

        Rows that the steps or the encoding do not take are not compared: the network refuses them, too.
        """
        try:
            result = Numbers.of(after.data)
        except Exception:
            return ""
        # a step that rounds leaves its error to those behind it, which may return float64 again
        self._tolerance = max(self._tolerance, result.tolerance, _tolerance(_fitted_dtypes(step)))
        result = result._replace(tolerance=self._tolerance)
        try:
            encoded = self._encode(folding)
        except ValueError:
            return ""
        expected, size = _mapped(folding.map, encoded)
        return difference(expected, size, result) or self._changed_text(folding, after.data, result)

    def _encode(self, folding: Folding) -> np.ndarray:
        """Encode the rows as [n, D]; NaN where no step fills a missing value, and in columns without a weight."""
        encoding = folding.encoding
        if self._encoded is not None and self._encoded[0] is encoding:
            return self._encoded[1]
        numbers = [part for part in encoding.parts if isinstance(part, Number)]
        are_numbers = len(numbers) == len(encoding.parts) and not encoding.known
        if are_numbers and all(not isinstance(part.fill, str) and not part.functions for part in numbers):
            # the columns of the table, or their fills
            encoded = self._numbers.values[:, [part.column for part in numbers]]
            fills = [np.nan if part.fill is None else part.fill for part in numbers]
            encoded = np.where(np.isnan(encoded), np.array(fills, dtype=np.float64), encoded)
        else:
            used = folding.used
            parts = tuple(_unfilled(encoding.parts[i]) for i in used)
            names = encoding.columns
            frame = self._table.frame(names).set_axis(names, axis=1)
            encoded = np.full((len(frame), encoding.width), np.nan)
            encoded[:, used] = replace(encoding, parts=parts).encode(frame).numpy()
        self._encoded = (encoding, encoded)
        return encoded

    def _changed_text(self, folding: Folding, data: TableLike, result: Numbers) -> str:
        """Describe a difference in a column of texts, which steps may select and fill, but not change."""
        texts = np.flatnonzero(~result.is_number)
        if not len(texts):
            return ""
        frame = pd.DataFrame(data)
        table = self._table.frame()
        for column in texts:
            part = folding.unchanged(int(column))
            if part is None:
                continue
            before = table.iloc[:, part.column].astype(object)
            if part.fill is not None:
                before = before.where(before.notna(), part.fill)
            after = frame.iloc[:, column].astype(object)
            if written(before) != written(after):
                return f"it changes texts in column {column}"
        return ""


def _unfilled(part: Part) -> Part:
    """Return a part that leaves missing values missing, in place of an error."""
    if isinstance(part, Number) and part.fill is None and not part.functions:
        return replace(part, fill=np.nan)
    return part


def written(column: pd.Series) -> list[str | None]:
    """Return the values as texts; None where one is missing."""
    return [None if missing else str(value) for value, missing in zip(column, column.isna(), strict=True)]


def _mapped(affine: Preprocessing, encoded: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Compute z and s [n, p] of encoded rows; z is NaN where a missing value has a weight."""
    x = torch.from_numpy(np.nan_to_num(encoded, posinf=np.nan, neginf=np.nan))
    has_no_value = torch.from_numpy(~np.isfinite(encoded))
    x = x.masked_fill(has_no_value, 0)
    z = mapped(affine.weight, x) + affine.bias  # A e + b
    summands = mapped(affine.weight.abs(), x.abs()) + affine.bias.abs()
    size = summands.amax(dim=0).expand_as(z)

    is_missing = torch.zeros_like(z, dtype=torch.bool)
    if bool(has_no_value.any()):
        has_weight = (affine.weight != 0).double()
        is_missing = mapped(has_weight, has_no_value.double()) > 0
    if affine.norm is not None:
        norm = affine.norm.of(x)
        z = z / norm + affine.offset
        size = size / norm + affine.offset.abs()
        is_missing |= is_missing.any(dim=1, keepdim=True)
    return z.masked_fill(is_missing, torch.nan).numpy(), size.numpy()
