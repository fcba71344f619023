"""Tables of other libraries become data frames of pandas, and results become tables of these libraries.

What an argument is read as::

    passed                                              read as
    frame or series of pandas, polars, modin            a frame or series of pandas
    table or column of Arrow, relation of DuckDB        a frame or series of pandas
    AnnData, or the path of its .h5ad file              a frame of its matrix X, or X itself if it is sparse
    list or mapping of rows or columns with names       a frame of pandas (:func:`from_named`)
    anything else                                       itself
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard, TypeVar, cast

import numpy as np
import pandas as pd
import pyarrow as pa
from scipy import sparse

from neonxc.common.arguments import installed_by, kind_of
from neonxc.data.kinds import computable, computable_array

Function = TypeVar("Function", bound=Callable[..., Any])
BACK = ("polars", "pyarrow", "modin")
"""Libraries whose users get data frames back as tables of theirs."""
CELLS = ".h5ad"
"""End of the name of a file that holds an AnnData."""
SUFFIXES = (".csv", ".tsv", ".parquet")
"""Ends of names, possibly before ``.gz``, that tell the path of a table from other strings."""


def reads_tables(function: Function) -> Function:
    """Decorate a public function such that its arguments are read by :func:`keeping_names`.

    A result that is a data frame becomes a table of the library that the first table of the arguments is from. In
    a group, the error of one process is raised in all of them.
    """

    @wraps(function)
    def reading(*args: Any, **options: Any) -> Any:
        with _agreed(options.get("group")):
            read_args = [keeping_names(value) for value in args]
            read_options = {name: keeping_names(value, name) for name, value in options.items()}
        result = function(*read_args, **read_options)
        if not isinstance(result, pd.DataFrame):
            return result
        libraries = filter(None, map(library_of, (*args, *options.values())))
        return to_library(result, next(libraries, "pandas"))

    return cast(Function, reading)


def library_of(value: object) -> str:
    """Return the name of the library of a table; "" for anything whose like is not returned to users."""
    name = type(value).__module__.partition(".")[0]
    if name == "pandas" or name in BACK:
        return name
    return ""


def to_library(result: pd.DataFrame, library: str) -> Any:
    """Convert a result to a table of a library."""
    match library:
        case "pyarrow":
            return pa.Table.from_pandas(result)
        case "polars":
            return import_module("polars").DataFrame(pa.Table.from_pandas(result))  # its index is a column
        case "modin":
            return import_module("modin.pandas").DataFrame(result)
    return result


def is_path(value: object) -> TypeGuard[str | os.PathLike[str]]:
    """Whether a value is a path-like object, or a string with the suffix of a table or the path of a file.

    The path of a ``.h5ad`` file is not: it stands for its AnnData (:func:`with_cells`).
    """
    if is_cells_file(value):
        return False
    if not isinstance(value, str):
        return isinstance(value, os.PathLike)
    is_named_as_table = value.lower().removesuffix(".gz").endswith(SUFFIXES)
    return is_named_as_table or os.path.isfile(value)


def is_cells_file(value: object) -> TypeGuard[str | os.PathLike[str]]:
    """Whether a value is the path of a ``.h5ad`` file."""
    return isinstance(value, str | os.PathLike) and str(value).lower().endswith(CELLS)


def with_cells(value: Any) -> Any:
    """Read the AnnData in a ``.h5ad`` file if a value is the path of one; return anything else unchanged.

    Raises
    ------
    ImportError
        The package anndata is not installed.
    ValueError
        The file is missing or can't be read.
    """
    if not is_cells_file(value):
        return value
    try:
        anndata = import_module("anndata")
    except ImportError:
        advice = installed_by("cells")
        raise ImportError(f"{value} is read by the package anndata, which is not installed: {advice}") from None
    try:
        return anndata.read_h5ad(value)
    except Exception as error:  # of many types, by what is wrong with the file
        reason = getattr(error, "strerror", None) or error
        raise ValueError(f"{value} can't be read as an AnnData: {reason}") from None


def is_texts_file(value: object) -> bool:
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
        reason = getattr(error, "strerror", None) or error
        raise ValueError(f"{path} can't be read as text: {reason}") from None
    return [line.strip() for line in lines if line.strip()]


def _agreed(group: object) -> AbstractContextManager[None]:
    """Raise the error of one process in all processes of a group, if there is one."""
    if group is None:
        return nullcontext()
    # This imports PyTorch, which commands do without until their arguments are checked
    from neonxc.common.processes import Ranks

    return Ranks(group).agreed()


def as_pandas(value: Any, name: str = "X") -> Any:
    """Read a table or a column of any library; return anything else unchanged.

    Parameters
    ----------
    value : Any
        Data frames and series of polars and modin, tables and arrays of PyArrow, relations of DuckDB, and all
        other objects with an Arrow interface become data frames and series of pandas. An AnnData, also one in a
        ``.h5ad`` file, becomes a data frame of its matrix ``X``, or that matrix if it is sparse. A MultiIndex of
        columns becomes the joined names of its levels, and columns become those of
        :func:`~neonxc.data.kinds.computable`.
    name : str
        Name of the argument in errors.

    Raises
    ------
    ValueError
        Several columns have the same name, an AnnData has no matrix, or a stream of Arrow data has no rows (left).
    """
    value = opened(value, name)
    if isinstance(value, pd.DataFrame):
        value, _ = with_columns(value, name)
    return value


def keeping_names(value: Any, name: str = "X") -> Any:
    """Read a table as :func:`as_pandas` does, but leave an AnnData of sparse rows, whose matrix has no names.

    :meth:`Table.read <neonxc.data.table.Table.read>` reads both.
    """
    value = with_cells(value)
    matrix = value.X if hasattr(value, "var_names") else None
    if sparse.issparse(matrix) or hasattr(matrix, "to_memory"):  # the latter in a file
        return value
    return as_pandas(value, name)


def opened(value: Any, name: str = "X") -> Any:
    """Read a table or a column of any library as one of pandas, whose columns are not looked at yet."""
    value = with_cells(value)
    if hasattr(value, "var_names"):
        value = _from_anndata(value, name)
    elif hasattr(value, "iloc"):
        if not isinstance(value, pd.DataFrame | pd.Series):
            convert = getattr(value, "to_pandas", None) or value._to_pandas  # the name in modin
            value = convert()
    else:
        if type(value).__name__ == "LazyFrame":  # of polars, which has not been computed
            value = value.collect()
        value = _from_arrow(value, name)
    return value


class Columns(NamedTuple):
    """The columns of a data frame, which pandas takes a while to list."""

    names: list[str]
    dtypes: list[Any]

    @classmethod
    def of(cls, frame: pd.DataFrame) -> Columns:
        """List the columns of a data frame."""
        return cls([*map(str, frame.columns.tolist())], [*frame.dtypes])


def with_columns(value: pd.DataFrame, name: str) -> tuple[pd.DataFrame, Columns]:
    """Check the names of a data frame's columns, make the columns computable, and list them."""
    columns = Columns.of(value)
    names = columns.names
    if value.columns.nlevels > 1:
        names = ["_".join(filter(None, map(str, levels))) for levels in value.columns]
        value = value.set_axis(names, axis=1)
    _check_distinct(names, name)

    # pandas lists one object for all columns of a type
    types = {id(dtype): dtype for dtype in columns.dtypes}
    others = {number for number, dtype in types.items() if not _is_plain(dtype)}
    if not others:
        return value, Columns(names, columns.dtypes)
    converted = {i: computable(value.iloc[:, i]) for i, dtype in enumerate(columns.dtypes) if id(dtype) in others}
    value = value.copy(deep=False)  # the caller's frame keeps its columns
    for i, column in converted.items():
        value.isetitem(i, column)
        columns.dtypes[i] = column.dtype
    return value, Columns(names, columns.dtypes)


def _check_distinct(names: list[str], name: str) -> None:
    """Raise a ValueError if several columns have the same name."""
    if len(set(names)) < len(names):
        repeated = sorted(column for column, count in Counter(names).items() if count > 1)
        raise ValueError(f"{name} has several columns of the same name: {repeated}; rename them")


def names_of_variables(adata: Any, name: str) -> list[str]:
    """Return the names of the variables of an AnnData, which have to differ."""
    names = [*map(str, adata.var_names)]
    _check_distinct(names, name)
    return names


def in_memory(matrix: Any) -> Any:
    """Read a sparse matrix of an AnnData that is still in its file (``backed="r"``); return others unchanged."""
    return matrix.to_memory() if hasattr(matrix, "to_memory") else matrix


def _from_anndata(adata: Any, name: str) -> Any:
    """Return the matrix of an AnnData, as a data frame unless it is sparse."""
    matrix = adata.X
    if matrix is None:
        raise ValueError(
            f"{name} is an AnnData without a matrix X: set adata.X to one of adata.layers, {[*adata.layers]}"
        )
    matrix = in_memory(matrix)
    if sparse.issparse(matrix):
        return matrix
    return pd.DataFrame(np.asarray(matrix), adata.obs_names, adata.var_names)


def from_named(value: object) -> Any:
    """Return rows or columns with names as a data frame, and a ``.h5ad`` file as its AnnData; else the value.

    Rows are series, named tuples or mappings, in a list or in a mapping from their own names. Columns are
    sequences in a mapping, or fields of an array.
    """
    value = with_cells(value)
    if isinstance(value, np.ndarray) and value.dtype.names:
        return computable_array(value)
    if isinstance(value, Mapping) and not sparse.issparse(value):  # a dok_array is a mapping, too
        return _from_mapping(value)
    if not isinstance(value, list | tuple) or not len(value) or _by_name(value[0]) is None:
        return value
    rows = [*map(_by_name, value)]
    if None in rows:
        return value
    return pd.DataFrame(rows)


def _from_mapping(value: Mapping[Any, Any]) -> Any:
    """Return a mapping of rows with names, or of columns of the same length, as a data frame."""
    if not len(value):
        return value
    rows = [*map(_by_name, value.values())]
    if None not in rows:
        return pd.DataFrame(rows, index=[*value])
    has_columns = all(isinstance(key, str) and np.ndim(column) == 1 for key, column in value.items())
    if has_columns and len({*map(len, value.values())}) == 1:
        return pd.DataFrame({**value})
    return value


def _by_name(row: object) -> dict[str, Any] | None:
    """Return the values of a row by their names; None if they have none."""
    if isinstance(row, pd.Series):
        if isinstance(row.index, pd.RangeIndex):
            return None
        return {str(name): value for name, value in row.items()}
    if isinstance(row, tuple) and hasattr(row, "_asdict"):
        return dict(row._asdict())
    if isinstance(row, Mapping) and all(isinstance(name, str) for name in row):
        return dict(row)
    return None


def _is_plain(dtype: object) -> bool:
    """Whether a column with this type is one that :func:`computable` returns unchanged."""
    if isinstance(dtype, np.dtype):
        return dtype.kind != "O" and dtype.isnative
    return isinstance(dtype, pd.StringDtype | pd.CategoricalDtype) and dtype.na_value is not pd.NA


def in_order_of(values: Any, rows: object, name: str = "labels", of: str = "X") -> Any:
    """Put labels or weights of rows in their order: by index, if both have one, and else as they are.

    Parameters
    ----------
    values : Series [n] or array-like
    rows : data frame [n, d], Table, Series, array or other
        An index that only numbers rows need not match the other one. That of an AnnData are its observations.
    name, of : str
        Names of the arguments in errors.

    Raises
    ------
    ValueError
        The values' index has not all rows, or repeats some.
    """
    index = getattr(values, "index", None)
    if isinstance(index, pd.Index):
        rows = with_cells(rows)
    row_index = getattr(rows, "obs_names", getattr(rows, "index", None))
    if not (isinstance(index, pd.Index) and isinstance(row_index, pd.Index)) or index.equals(row_index):
        return values
    if index.is_unique and row_index.is_unique:
        order = index.get_indexer(row_index)
        if order.min(initial=0) >= 0:  # -1 is a row that the values lack
            return values.iloc[order]
    if len(index) == len(row_index) and (_numbers_rows(index) or _numbers_rows(row_index)):
        return values
    missing = row_index.difference(index, sort=False)
    why = f"lacks {missing[0]!r}" if len(missing) else "repeats rows"
    raise ValueError(
        f"{name} and {of} are matched by index, and that of {name} {why}: pass {name}.reindex({of}.index), or "
        f"{name}.to_numpy() if both are in the same order"
    )


def _numbers_rows(index: pd.Index) -> bool:
    """Whether an index only numbers the rows from 0 on."""
    return index.equals(pd.RangeIndex(len(index)))


def index_of(value: object, read: Any) -> pd.Index | None:
    """Return the identifiers of the rows of a table; `read` is what :func:`as_pandas` made of it.

    Returns
    -------
    pandas.Index or None
        The index of a data frame of pandas or modin, or one that Arrow data have stored, and the names of an
        AnnData's observations. Others have none, as rows that are numbered on reading have no identifiers.
    """
    if hasattr(value, "obs_names"):
        return pd.Index(value.obs_names)
    has_index = hasattr(value, "iloc")
    if isinstance(value, pa.Table | pa.RecordBatch | pa.RecordBatchReader):
        metadata = value.schema.pandas_metadata or {}
        # a stored index is a column with a name; one that only numbers the rows is described by a dictionary
        has_index = has_index or any(isinstance(column, str) for column in metadata.get("index_columns", []))
    if has_index:
        return read.index
    return None


def _from_arrow(value: Any, name: str) -> Any:
    """Return a table or column with an Arrow interface as a frame or series of pandas."""
    if not (hasattr(value, "__arrow_c_stream__") or hasattr(value, "__arrow_c_array__")):
        return value
    dtypes = getattr(value, "dtypes", [getattr(value, "dtype", "")])
    if "Object" in map(str, dtypes):
        return value.to_pandas()  # objects of Python in polars, which Arrow has as pointers
    try:
        table = pa.table(value)
    except (TypeError, pa.ArrowInvalid):  # a column
        return pa.chunked_array(value).to_pandas()
    if not (table.num_rows or hasattr(value, "shape")):
        raise ValueError(f"{name} has no rows (left): {kind_of(value)} can be read once; pass its table")
    return table.to_pandas()
