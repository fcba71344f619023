"""Reading of tables: data frames of other libraries, Arrow data and AnnData become data frames of pandas."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
import pandas as pd
import pyarrow as pa
from scipy import sparse

from neonxc.common.arguments import kind_of
from neonxc.data.kinds import computable, computable_array

Function = TypeVar("Function", bound=Callable[..., Any])
BACK = ("polars", "pyarrow", "modin")
"""Libraries whose users get data frames back as tables of theirs."""
SUFFIXES = (".csv", ".tsv", ".parquet")
"""Ends of names, possibly before ``.gz``, that tell the path of a table from other strings."""


def reads_tables(function: Function) -> Function:
    """Decorate a public function such that its arguments are read by :func:`as_pandas`.

    A result that is a data frame becomes a table of the library that the first table of the arguments is from. In
    a group, the error of one process is raised in all of them.
    """

    @wraps(function)
    def reading(*args: Any, **options: Any) -> Any:
        with _agreed(options.get("group")):
            read, named = tuple(map(as_pandas, args)), {k: as_pandas(v, k) for k, v in options.items()}
        result = function(*read, **named)
        if not isinstance(result, pd.DataFrame):
            return result
        given = map(library_of, (*args, *options.values()))
        return given_back(result, next((library for library in given if library), "pandas"))

    return cast(Function, reading)


def library_of(value: Any) -> str:
    """Return the name of the library of a table, "" for what is no table whose like is given back."""
    name = type(value).__module__.partition(".")[0]
    return name if name in ("pandas", *BACK) else ""


def given_back(result: pd.DataFrame, library: str) -> Any:
    """Convert a result to a table of a library."""
    match library:
        case "pyarrow":
            return pa.Table.from_pandas(result)
        case "polars":
            return import_module("polars").DataFrame(pa.Table.from_pandas(result))  # its index is a column
        case "modin":
            return import_module("modin.pandas").DataFrame(result)
    return result


def is_path(value: Any) -> bool:
    """Whether a value is a path-like object, or a string that ends as the name of a table or is that of a file."""
    if not isinstance(value, str):
        return isinstance(value, os.PathLike)
    return value.lower().removesuffix(".gz").endswith(SUFFIXES) or os.path.isfile(value)


def is_texts_file(value: Any) -> bool:
    """Whether a value is the path of a ``.txt`` file, which has a text in every line."""
    return is_path(value) and os.fspath(value).lower().endswith(".txt")


def read_texts(path: str | os.PathLike[str]) -> list[str]:
    """Read a file with one text per line; blank lines are left out.

    Raises
    ------
    ValueError
        The file is missing, or is no text in UTF-8.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} can't be read as text: {getattr(error, 'strerror', None) or error}") from None
    return [line.strip() for line in lines if line.strip()]


def _agreed(group: Any) -> AbstractContextManager[None]:
    if group is None:
        return nullcontext()
    from neonxc.common.processes import (
        Ranks,  # imports PyTorch, which commands do without until their arguments are checked
    )

    return Ranks(group).agreed()


def as_pandas(value: Any, name: str = "X") -> Any:
    """Read a table or a column of any library; return anything else unchanged.

    Parameters
    ----------
    value : Any
        Data frames and series of polars and modin, tables and arrays of PyArrow, relations of DuckDB, and all
        other objects with an Arrow interface become data frames and series of pandas. An AnnData becomes a data
        frame of its matrix ``X``, or that matrix if it is sparse. A MultiIndex of columns becomes the joined names
        of its levels, and columns become those of :func:`~neonxc.data.kinds.computable`.
    name : str
        Name of the argument in errors.

    Raises
    ------
    ValueError
        Several columns have the same name, an AnnData has no matrix, or a stream of Arrow data has no rows (left).
    """
    if hasattr(value, "var_names"):
        rows = value.X
        if rows is None:
            raise ValueError(
                f"{name} is an AnnData without a matrix X: set adata.X to one of adata.layers, {[*value.layers]}"
            )
        value = rows if sparse.issparse(rows) else pd.DataFrame(np.asarray(rows), value.obs_names, value.var_names)
    elif hasattr(value, "iloc"):
        if not isinstance(value, pd.DataFrame | pd.Series):
            value = value.to_pandas() if hasattr(value, "to_pandas") else value._to_pandas()  # the name in modin
    else:
        value = _from_arrow(value.collect() if type(value).__name__ == "LazyFrame" else value, name)
    if not isinstance(value, pd.DataFrame):
        return value
    names = [*map(str, value.columns)]
    if value.columns.nlevels > 1:
        names = ["_".join(filter(None, map(str, levels))) for levels in value.columns]
        value = value.set_axis(names, axis=1)
    if len(set(names)) < len(names):
        twice = sorted({column for column in names if names.count(column) > 1})
        raise ValueError(f"{name} has several columns of the same name: {twice}; rename them")
    unlike = [i for i, dtype in enumerate(value.dtypes) if not _is_plain(dtype)]
    read = [computable(value.iloc[:, i]) for i in unlike]
    value = value.copy(deep=False) if unlike else value
    for i, column in zip(unlike, read, strict=True):
        value.isetitem(i, column)
    return value


def from_named(value: Any) -> Any:
    """Return rows or columns with names as a data frame; anything else unchanged.

    Rows are series, named tuples or mappings, in a list or in a mapping from their own names. Columns are
    sequences in a mapping, or fields of an array.
    """
    if isinstance(value, np.ndarray) and value.dtype.names:
        return computable_array(value)
    if isinstance(value, Mapping) and not sparse.issparse(value):  # a dok_array is a mapping, too
        if not len(value):
            return value
        rows = [*map(_by_name, value.values())]
        if None not in rows:
            return pd.DataFrame(rows, index=[*value])
        is_columns = all(isinstance(key, str) and np.ndim(column) == 1 for key, column in value.items())
        same_length = is_columns and len({*map(len, value.values())}) == 1
        return pd.DataFrame({**value}) if same_length else value
    if not isinstance(value, list | tuple) or not len(value) or _by_name(value[0]) is None:
        return value
    rows = [*map(_by_name, value)]
    return value if None in rows else pd.DataFrame(rows)


def _by_name(row: Any) -> dict[str, Any] | None:
    """Return the values of a row by their names; None if they have none."""
    if isinstance(row, pd.Series):
        return None if isinstance(row.index, pd.RangeIndex) else {str(name): value for name, value in row.items()}
    if isinstance(row, tuple) and hasattr(row, "_asdict"):
        return dict(row._asdict())
    is_named = isinstance(row, Mapping) and all(isinstance(name, str) for name in row)
    return dict(row) if is_named else None


def _is_plain(dtype: Any) -> bool:
    return isinstance(dtype, np.dtype) and dtype.kind != "O" and dtype.isnative


def in_order_of(values: Any, rows: Any, name: str = "labels", of: str = "X") -> Any:
    """Put labels or weights of rows in their order: by index, if both have one, and else as they are.

    Parameters
    ----------
    values : Series [n] or array-like
    rows : data frame [n, d], Table, Series, array or other
        An index that only numbers rows need not match the other one.
    name, of : str
        Names of the arguments in errors.

    Raises
    ------
    ValueError
        The values' index has not all rows, or repeats some.
    """
    own, index = (getattr(given, "index", None) for given in (values, rows))
    if not (isinstance(own, pd.Index) and isinstance(index, pd.Index)) or own.equals(index):
        return values
    if own.is_unique and index.is_unique and (places := own.get_indexer(index)).min(initial=0) >= 0:
        return values.iloc[places]
    if len(own) == len(index) and any(each.equals(pd.RangeIndex(len(each))) for each in (own, index)):
        return values
    missing = index.difference(own, sort=False)
    why = f"lacks {missing[0]!r}" if len(missing) else "repeats rows"
    raise ValueError(
        f"{name} and {of} are matched by index, and that of {name} {why}: pass {name}.reindex({of}.index), or "
        f"{name}.to_numpy() if both are in the same order"
    )


def index_of(value: Any, read: Any) -> pd.Index | None:
    """Return the identifiers of the rows of a table; `read` is what :func:`as_pandas` made of it.

    Returns
    -------
    pandas.Index or None
        The index of a data frame of pandas or modin, or one that Arrow data have stored, and the names of an
        AnnData's observations. Others have none, as rows that are numbered on reading have no identifiers.
    """
    if hasattr(value, "obs_names"):
        return pd.Index(value.obs_names)
    arrow = isinstance(value, pa.Table | pa.RecordBatch | pa.RecordBatchReader)
    stored = ((arrow and value.schema.pandas_metadata) or {}).get("index_columns", [])
    has_index = hasattr(value, "iloc") or any(isinstance(column, str) for column in stored)
    return read.index if has_index else None


def _from_arrow(value: Any, name: str) -> Any:
    """A table or column with an Arrow interface as a frame or series of pandas."""
    if not (hasattr(value, "__arrow_c_stream__") or hasattr(value, "__arrow_c_array__")):
        return value
    if "Object" in map(str, getattr(value, "dtypes", [getattr(value, "dtype", "")])):
        return value.to_pandas()  # objects of Python in polars, which Arrow has as pointers
    try:
        table = pa.table(value)
    except (TypeError, pa.ArrowInvalid):  # a column
        return pa.chunked_array(value).to_pandas()
    if not (table.num_rows or hasattr(value, "shape")):
        raise ValueError(f"{name} has no rows (left): {kind_of(value)} can be read once; pass its table")
    return table.to_pandas()
