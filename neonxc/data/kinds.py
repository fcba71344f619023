"""Columns of data frames: what they hold, and their values in types that NumPy and scikit-learn compute with."""

from __future__ import annotations

from collections.abc import Collection, Hashable
from decimal import Decimal
from numbers import Real
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa

from neonxc.common.numbers import is_missing

Kind = Literal["number", "category", "time", "object"]
NUMBERS = ("integer", "floating", "mixed-integer-float", "decimal")
CATEGORIES = ("string", "boolean", "empty", "interval")
TIMES = ("datetime64", "datetime", "date", "timedelta64", "timedelta", "time", "period")
"""Types that pandas infers from the values of a column."""


def column_kind(column: pd.Series) -> Kind:
    """What a column of :func:`computable` holds: numbers, categories, times, or objects such as lists."""
    dtype = column.dtype
    if isinstance(dtype, pd.CategoricalDtype) or dtype.kind == "b":
        return "category"
    if dtype.kind in "iuf":
        return "number"
    found = pd.api.types.infer_dtype(column, skipna=True)
    return "category" if found in CATEGORIES else "time" if found in TIMES else "object"


def computable(column: pd.Series) -> pd.Series:
    """Return a column in a type that NumPy and scikit-learn compute with; most columns are returned unchanged.

    Numbers become numbers of NumPy, whatever held them: decimal numbers, Arrow, a sparse column, or a column of
    objects, with NaN where they are missing. Columns of different or unknown objects, such as truth values and
    strings, bytes or identifiers, become text. Times, intervals, and what has no text of its own, such as lists,
    stay as they are.
    """
    dtype: Any = column.dtype
    if isinstance(dtype, pd.SparseDtype):
        column = column.sparse.to_dense()
    elif getattr(dtype, "na_value", None) is pd.NA:  # scikit-learn can't compare it
        column = pd.Series(pa.Array.from_pandas(column).to_pandas().array, column.index, name=column.name)
    elif isinstance(dtype, np.dtype) and not dtype.isnative:  # pandas can't sort it
        column = pd.Series(column.to_numpy().astype(dtype.newbyteorder("=")), column.index, name=column.name)
    if column.dtype != object:
        return column
    missing = column.isna()
    if any(value is pd.NA for value in column[missing]):  # in a column of objects; nothing can be compared with it
        column = column.where(~missing, None)
    found = pd.api.types.infer_dtype(column, skipna=True)
    if found in ("string", "empty") or found in TIMES or found == "interval":
        return column
    if found == "boolean":
        return column if missing.any() else column.astype(bool)
    present = column[~missing]
    if found in NUMBERS or all(map(_is_number, present)):
        integers = column.infer_objects()
        return integers if integers.dtype.kind in "iu" else column.where(~missing, np.nan).astype(np.float64)
    texts = all(isinstance(value, Hashable) and not isinstance(value, complex) for value in present)
    return column.map(as_text, na_action="ignore") if texts else column


def computable_array(array: np.ndarray) -> Any:
    """Return an array in a type that is computed with: one with fields as a data frame, masked values as NaN."""
    if array.dtype.names:
        return pd.DataFrame({name: computable_array(array[name]) for name in array.dtype.names})
    if np.ma.is_masked(array):
        array = np.ma.filled(array.astype(np.result_type(array.dtype, np.float32)), np.nan)
    array = np.ma.getdata(array)
    if array.ndim == 2 and array.dtype == object:
        columns = pd.DataFrame(array).apply(computable)
        are_numbers = all(column_kind(column) == "number" for _, column in columns.items())
        return columns.to_numpy() if are_numbers else array
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _is_number(value: Any) -> bool:
    if isinstance(value, Real | Decimal):
        return True
    return hasattr(value, "dtype") and np.shape(value) == () and np.asarray(value).dtype.kind in "iuf"


def plain(value: Any) -> Any:
    """A category or label as a string, number or truth value of Python, and None for a missing one."""
    if hasattr(value, "item") and np.shape(value) == ():  # of NumPy or PyTorch, also arrays of one number
        value = value.item()
    if is_missing(value):
        return None
    if isinstance(value, bool | int | float | str):
        return value
    return float(value) if isinstance(value, Real | Decimal) else as_text(value)


def as_category(value: Any, known: Collection[Any]) -> Any:
    """A value as :func:`plain` returns it, or its text if that is a known category and the value is not.

    The type of a column may depend on its rows: among truth values and strings, truth values are text.
    """
    value = plain(value)
    if value is None or value in known or (written := as_text(value)) not in known:
        return value
    return written


def as_text(value: Any) -> str:
    """The text of a value, such as a date or an interval."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    written = str(int(value) if isinstance(value, float) and value.is_integer() else value)
    return written.removesuffix(" 00:00:00")
