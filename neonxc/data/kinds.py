"""Columns of data frames: what they hold, and their values in types that NumPy and scikit-learn compute with.

A column is computed with in a type that its values decide::

    values of a column                                  computable as                   kind
    numbers of NumPy                                    themselves                      number
    numbers of Arrow, in a sparse column, or objects    numbers of NumPy, NaN: missing  number
    truth values                                        bool; objects if some miss      category
    strings, categories, intervals                      themselves                      category
    dates, times and durations                          themselves                      time
    objects of several or other types that have a text  their text                      category
    lists, dictionaries, complex numbers                themselves                      object
"""

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
    inferred = pd.api.types.infer_dtype(column, skipna=True)
    if inferred in CATEGORIES:
        return "category"
    if inferred in TIMES:
        return "time"
    return "object"


def computable(column: pd.Series) -> pd.Series:
    """Return a column in a type that NumPy and scikit-learn compute with; most columns are returned unchanged.

    Numbers become numbers of NumPy, whatever held them: decimal numbers, Arrow, a sparse column, or a column of
    objects, with NaN where they are missing. Columns of different or unknown objects, such as truth values and
    strings, bytes or identifiers, become text. Times, intervals, and what has no text of its own, such as lists,
    stay as they are.
    """
    dtype: Any = column.dtype
    name = column.name
    if isinstance(dtype, pd.SparseDtype):
        column = column.sparse.to_dense()
    elif getattr(dtype, "na_value", None) is pd.NA:  # scikit-learn can't compare it
        values = pa.Array.from_pandas(column).to_pandas().array
        column = pd.Series(values, column.index, name=name)
    elif isinstance(dtype, np.dtype) and not dtype.isnative:  # pandas can't sort it
        native = column.to_numpy().astype(dtype.newbyteorder("="))
        column = pd.Series(native, column.index, name=name)
    if column.dtype != object:
        return column
    return _computable_objects(column)


def _computable_objects(column: pd.Series) -> pd.Series:
    """Return a column of objects in a type that is computed with."""
    missing = column.isna()
    if any(value is pd.NA for value in column[missing]):  # nothing can be compared with it
        column = column.where(~missing, None)
    inferred = pd.api.types.infer_dtype(column, skipna=True)
    if inferred in ("string", "empty", "interval") or inferred in TIMES:
        return column
    if inferred == "boolean":
        return column if missing.any() else column.astype(bool)

    present = column[~missing]
    if inferred in NUMBERS or all(map(_is_number, present)):
        integers = column.infer_objects()
        if integers.dtype.kind in "iu":
            return integers
        return column.where(~missing, np.nan).astype(np.float64)
    have_texts = all(isinstance(value, Hashable) and not isinstance(value, complex) for value in present)
    if have_texts:
        return column.map(as_text, na_action="ignore")
    return column


def computable_array(array: np.ndarray) -> Any:
    """Return an array in a type that is computed with: one with fields as a data frame, masked values as NaN."""
    if array.dtype.names:  # an array with fields
        return pd.DataFrame({name: computable_array(array[name]) for name in array.dtype.names})
    if isinstance(array, np.ma.MaskedArray):
        if np.ma.is_masked(array):
            floating = array.astype(np.result_type(array.dtype, np.float32))  # which NaN needs
            array = np.ma.filled(floating, np.nan)
        array = np.ma.getdata(array)
    if array.ndim == 2 and array.dtype == object:
        columns = pd.DataFrame(array).apply(computable)
        are_numbers = all(column_kind(column) == "number" for _, column in columns.items())
        return columns.to_numpy() if are_numbers else array
    if array.dtype.isnative:
        return array
    return array.astype(array.dtype.newbyteorder("="))


def _is_number(value: Any) -> bool:
    if isinstance(value, Real | Decimal):
        return True
    return hasattr(value, "dtype") and np.shape(value) == () and np.asarray(value).dtype.kind in "iuf"


def plain(value: Any) -> Any:
    """Return a category or label as a string, number or truth value of Python, and None for a missing one."""
    if hasattr(value, "item") and np.shape(value) == ():  # of NumPy or PyTorch, also arrays of one number
        value = value.item()
    if is_missing(value):
        return None
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Real | Decimal):
        return float(value)
    return as_text(value)


def as_category(value: object, known: Collection[object]) -> Any:
    """Return a value as :func:`plain` does, or its text if that is a known category and the value is not.

    The type of a column may depend on its rows: among truth values and strings, truth values are text.
    """
    category = plain(value)
    if category is None or category in known:
        return category
    text = as_text(category)
    return text if text in known else category


def as_text(value: object) -> str:
    """Return the text of a value, such as a date or an interval."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value).removesuffix(" 00:00:00")  # of a date
