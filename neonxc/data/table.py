"""Points as users pass them: the one place that knows frames, arrays, tensors, sparse matrices and lists.

:meth:`Table.read` reads and checks them in five steps:

1. A path becomes the data frame in its file.
2. Rows or columns with names, and tables of other libraries, become data frames of pandas.
3. Other sequences become arrays; only texts stay a sequence.
4. Arrays and sparse matrices get a type and a format that can be computed with.
5. Columns are selected by their names if they have some, or else counted.

A :class:`Table` keeps what step 4 returns. It is converted to finite numbers when these are asked for, and
:meth:`Table.restore` converts results back to the type of the points.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from functools import cached_property
from itertools import pairwise
from typing import Any, Self, TypeAlias

import numpy as np
import pandas as pd
import torch
from scipy import sparse
from sklearn.utils.validation import check_array, validate_data
from torch import Tensor

from neonxc.common.arguments import listed
from neonxc.common.memory import blocks
from neonxc.common.numbers import plural
from neonxc.common.shortening import shortened
from neonxc.common.types import TableLike
from neonxc.common.warnings import warn
from neonxc.data.frames import (
    Columns,
    from_named,
    index_of,
    is_path,
    library_of,
    names_of_variables,
    opened,
    to_library,
    with_cells,
    with_columns,
)
from neonxc.data.inputs import (
    INTEGERS,
    TOKENS,
    are_tokens,
    as_array,
    check_are_rows,
    check_finite,
    check_items,
    check_names,
    check_no_bytes,
    check_width,
    compute_dtype,
)
from neonxc.data.kinds import column_kind, computable_array
from neonxc.data.preparation import on_suspects
from neonxc.data.sparse import DenseBlocks, SparseRows, canonical, check_room

KEPT = {"float32": torch.float32, "float64": torch.float64, "float128": torch.float64}
"""Types of points that results have as well; with other points they keep the type of the computation."""

FORMATS = ("csr", "csc")
"""Formats of sparse matrices that are kept; others can't select rows, lack a minimum, or are slow."""

Positions: TypeAlias = np.ndarray | Tensor | Sequence[int]
"""Positions of rows or columns."""


class Table:
    """Points as they were passed, their values as a tensor, and the way back to the caller's type.

    Parameters
    ----------
    data : DataFrame, ndarray, Tensor, SciPy sparse matrix, or a sequence or series of texts
        Points [N, ...]; :meth:`read` takes all other types.
    name : str
        Name of the argument in errors.
    listed : Columns, optional
        The columns of a data frame, if they are listed already.

    Attributes
    ----------
    names : list of str or None
        Names of the columns of a data frame.
    variables : list of str or None
        Names of the columns of a sparse matrix, if it is that of an AnnData.
    columns, index : pandas.Index or None
        Labels of results that have the shape of the points: those of a data frame. Tables of libraries without an
        index have none, and an AnnData the names of its variables and observations.
    collected : callable
        Converts relevance of the tensor's columns to relevance of the caller's columns.
    reader : Inputs or None
        The inputs of the network that :attr:`tensor` is for, if they have read it.
    library : str
        The library whose tables results are.
    path : path-like or None
        The file that the points are from.
    of_tokens : bool
        Whether rows are lists of strings, which may be texts that were split into words.
    """

    def __init__(self, data: TableLike, name: str = "X", listed: Columns | None = None) -> None:
        self.data: Any = data
        self.name = name
        self.reader: Any = None
        self.library = "pandas"
        self.path: str | os.PathLike[str] | None = None
        self.of_tokens = False
        self.index = data.index if isinstance(data, (pd.DataFrame, pd.Series)) else None
        self.columns: Any = data.columns if isinstance(data, pd.DataFrame) else None
        if listed is None and self.columns is not None:
            listed = Columns.of(self.data)
        self.names = None if listed is None else listed.names
        self._dtypes = [] if listed is None else listed.dtypes
        self.variables: list[str] | None = None
        self.collected: Callable[[Tensor], Tensor] = lambda relevance: relevance

    @classmethod
    def read(
        cls,
        X: TableLike | Table,
        like: Sequence[str] | int | None = None,
        name: str = "X",
        columns: Sequence[object] | None = None,
        format: str | None = None,
    ) -> Self:
        """Read points of any type, and check their columns.

        Parameters
        ----------
        X : data frame, array, tensor, sparse matrix, sequence, path of a CSV or Parquet file, or Table
        like : sequence of str or int, optional
            The columns that a model was fitted on: their names, by which those of a data frame are selected, or
            their number.
        name : str
            Name of the argument in errors.
        columns : sequence of str, optional
            The columns that are selected from a file.
        format : str, optional
            How the table was read that the model was fitted on; see :func:`~neonxc.data.files.read_table`.

        Raises
        ------
        ValueError
            Columns that are missing; another number of them, if they have no names; no table; a file that is
            missing or can't be read.
        """
        if columns is None and not isinstance(like, int):
            columns = like
        if isinstance(X, cls):
            table = X
            name = X.name
        elif is_path(X):
            table = cls._of_file(X, name, columns, format)
        else:
            table = cls._of_values(X, name)

        if like is None:
            return table
        if isinstance(like, int):
            width = like
        else:
            table = table.by_name([*map(str, like)])
            width = len(like)
        table.check_width(width)
        return table

    @classmethod
    def _of_file(
        cls, path: str | os.PathLike[str], name: str, columns: Sequence[object] | None, format: str | None
    ) -> Self:
        """Read a file, or the columns of it that are needed."""
        from neonxc.data.files import read_table  # only data in files need it

        needed = None if columns is None else [*map(str, columns)]
        frame = read_table(path, needed=needed, format=format)
        if needed is not None:
            frame = frame[needed]
        table = cls(frame, name)
        table.path = path
        return table

    @classmethod
    def _of_values(cls, X: object, name: str) -> Self:
        """Read points in memory, or the cells in a file."""
        if type(X) is np.ndarray and X.dtype.kind in "fiub" and X.dtype.isnative:
            return cls(X, name)  # nothing of what follows changes numbers
        X = with_cells(X)
        if isinstance(X, str):
            beginning = shortened(repr(X), 60)
            raise ValueError(
                f"{name} can't be read: {beginning} is not the path of an existing file. If it is a text, "
                f"{name} needs a sequence of strings; a single one is [text]"
            )
        check_items(X, name=name)
        data = opened(from_named(X), name)
        columns = None
        if isinstance(data, pd.DataFrame):
            data, columns = with_columns(data, name)
        index = index_of(X, data)

        is_kept = isinstance(data, (np.ndarray, Tensor, pd.DataFrame)) or sparse.issparse(data) or is_texts(data)
        if not is_kept:
            try:
                array = np.asarray(data)
                if array.dtype.kind in "US":  # NumPy makes strings of numbers beside strings
                    array = np.array(data, dtype=object)
            except ValueError as error:
                raise ValueError(f"{name} can't be read as an array of numbers: {error}") from None
            data = array

        if isinstance(data, np.ndarray):
            data = computable_array(data)
        if sparse.issparse(data) and data.format not in FORMATS:
            data = data.tocsr()
        if not hasattr(data, "__len__"):  # an iterator of texts
            data = [*data]

        table = cls(data, name, columns)
        table.library = library_of(X) or "pandas"
        table.index = index
        if sparse.issparse(data) and hasattr(X, "var_names"):
            table._name_variables(names_of_variables(X, name))
        table.of_tokens = isinstance(X, list | tuple) and bool(X) and are_tokens(X)
        return table

    @classmethod
    def of_estimator(cls, model: object, X: TableLike, reset: bool, **checks: Any) -> Self:
        """Read points that an estimator is fitted to (`reset`) or applied to; `checks` are those of arrays."""
        columns = None
        format = None
        if not reset:
            columns = getattr(model, "feature_names_in_", None)
            format = getattr(getattr(model, "tree_", None), "table_format", None)
        table = cls.read(X, columns=columns, format=format)
        if table.names is None and not table.is_tensor:
            return cls._validated(model, table, reset, **checks)

        table.check_filled()
        validate_data(model, X=table.data, reset=reset, skip_check_array=True)
        if reset:
            table.warn_of_suspects()
        return table

    @classmethod
    def _validated(cls, model: Any, table: Table, reset: bool, **checks: Any) -> Self:
        """Check an array or a sparse matrix as scikit-learn does, which knows names of data frames alone."""
        if table.variables is not None:
            columns = pd.DataFrame(columns=table.variables)
            validate_data(model, X=columns, reset=reset, skip_check_array=True)
            validated = cls(check_array(table.data, input_name="X", **checks))
            validated._name_variables(table.variables)
            return validated
        try:
            return cls(validate_data(model, X=table.data, reset=reset, **checks))
        except ValueError as error:
            if table._dtype.kind not in "OUS":
                raise
            raise ValueError(f"X can't be read as an array of numbers: {error}") from None

    def _name_variables(self, variables: Sequence[str]) -> None:
        """Give the columns of a sparse matrix their names."""
        self.variables = [*variables]
        self.columns = pd.Index(variables)

    @property
    def column_names(self) -> list[str] | None:
        """Names of the columns: those of a data frame, or the variables of an AnnData; None if there are none."""
        return self.variables if self.names is None else self.names

    def warn_of_suspects(self) -> None:
        """Warn of columns of a file, whose user has not selected columns, that may number or weight the rows."""
        if self.path is None:
            return
        for note in on_suspects(self.data):
            warn(f"X, the table in {self.path}: {note}")

    def with_none(self) -> Table:
        """Return a table of a file in which None, in place of NaN, stands for a missing text.

        A file has neither of both. pandas before 3.0 reads None from Parquet and NaN from CSV, and encoders of
        scikit-learn take them for two categories.
        """
        data = self.data.copy()
        for name in self._no_numbers:
            column = data[name].astype(object)
            data[name] = column.where(column.notna(), None)
        table = copy(self)
        table.data = data
        return table

    def holding(
        self,
        values: Tensor | SparseRows,
        *,
        columns: Sequence[str] | None = None,
        collected: Callable[[Tensor], Tensor] | None = None,
    ) -> Table:
        """Return the same points with other values in :attr:`tensor`.

        `columns` are the labels of results of this shape, and `collected` converts relevance of these columns.
        """
        table = copy(self)
        table.tensor = values
        if columns is not None:
            table.columns = columns
        if collected is not None:
            table.collected = collected
        return table

    def __len__(self) -> int:
        return int(self.shape[0])

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of points, and those of columns and other dimensions."""
        if hasattr(self.data, "shape"):
            return tuple(self.data.shape)
        return (len(self.data),)

    @property
    def width(self) -> int:
        """Number of columns; an error if the points are no table."""
        if len(self.shape) != 2:
            hint = ""
            if self.index is not None:
                hint = f"; a single row is [{self.name}]"
            elif len(self.shape) < 2:
                hint = f"; a single point is {self.name}.reshape(1, -1)"
            raise ValueError(f"{self.name} needs shape [points, features], got {list(self.shape)}{hint}")
        return self.shape[1]

    def check_width(self, needed: int) -> None:
        """Raise a ValueError unless the points have as many columns as a model was fitted on."""
        if self.width == needed:
            return
        if self.of_tokens:
            raise ValueError(f"{self.name} {TOKENS.format(self.name)}")
        check_width(self.width, needed, name=self.name)

    def check_filled(self) -> None:
        """Raise a ValueError unless the points are a table that is not empty."""
        if 0 in (self.width, len(self)):
            raise ValueError(f"{self.name} is empty: shape {list(self.shape)}")

    def check_not_of_texts(self) -> None:
        """Raise a ValueError for a table with columns of texts, where a network takes a sequence of them."""
        if is_texts(self) or self.is_tensor or self.of_tokens:  # tokens have an error of their own
            return
        if self._no_numbers or (self.names is None and self._dtype.kind in "OUS"):
            check_are_rows(self.data, name=self.name)

    def check_no_bytes(self) -> None:
        """Raise a ValueError for bytes and integers of images; the columns of a frame are numbers."""
        if self.names is None:
            check_no_bytes(self.data, name=self.name)

    @property
    def is_sparse(self) -> bool:
        """Whether the points are a SciPy sparse matrix or array."""
        return sparse.issparse(self.data)

    @property
    def is_tensor(self) -> bool:
        """Whether the points are a tensor."""
        return isinstance(self.data, Tensor)

    @property
    def device(self) -> torch.device:
        """Device of a tensor; other points are on the CPU."""
        return self.data.device if self.is_tensor else torch.device("cpu")

    @property
    def is_mixed(self) -> bool:
        """Whether the points are a data frame with a column that is not numeric, or with missing values."""
        return self.names is not None and bool(self._no_numbers or self.data.isna().to_numpy().any())

    @cached_property
    def _no_numbers(self) -> list[str]:
        """Columns of a data frame that are not numeric."""
        if self.names is None:
            return []
        return [name for name, dtype in zip(self.names, self._dtypes, strict=True) if dtype.kind not in "fiub"]

    @cached_property
    def numbers(self) -> Tensor:
        """The points as a finite tensor of at least two dimensions; integers keep their type.

        Raises
        ------
        ValueError
            Values that are no finite numbers (the message names the column), no points, or too few dimensions.
        """
        X = self.data
        name = self.name
        if self.is_sparse:
            raise ValueError(f"{name} is sparse; pass {name}.toarray()")
        if self.is_tensor and X.layout != torch.strided:
            raise ValueError(f"{name} is sparse; pass {name}.to_dense()")

        tensor = X.detach() if self.is_tensor else torch.from_numpy(self._array())
        if tensor.is_complex():
            raise ValueError(f"{name} holds complex numbers; neonxc needs real ones")
        if tensor.ndim < 2:
            _ = self.width  # raises the error
        if not tensor.numel():
            raise ValueError(f"{name} is empty: shape {list(tensor.shape)}")
        if tensor.dtype not in INTEGERS:
            tensor = tensor.to(compute_dtype(tensor.dtype))
        check_finite(tensor, name=name, names=self.names)
        return tensor

    @cached_property
    def tensor(self) -> Any:
        """:attr:`numbers` in floating point: float32 for half precision, and float64 for integers."""
        return self.numbers.to(compute_dtype(self.numbers.dtype))

    def _array(self) -> np.ndarray:
        """The points as an array of numbers that PyTorch can use."""
        if self._no_numbers:
            raise ValueError(
                f"{self.name} has columns that are not numeric: {self._no_numbers}; drop or encode them, or fit a "
                f"Pipeline that does and pass {self.name} to neonxc.neuralize with it"
            )
        if self.names is None:
            array = np.asarray(self.data, dtype=self._dtype)
        else:
            array = self.data.to_numpy(dtype=self._dtype)
        if array.dtype.kind not in "fiubc":
            message = f"{self.name} can't be read as an array of numbers: its type is {array.dtype}"
            if is_texts(self):
                message += (
                    "; texts need features=SentenceEncoder(...) or WordVectors, or a Pipeline with a vectorizer"
                )
            if self.of_tokens:
                message += f"; as texts, {self.name} {TOKENS.format(self.name)}"
            raise ValueError(message)
        # PyTorch has no longdouble, and takes arrays that are contiguous and writable
        dtype = np.float64 if array.dtype == np.longdouble else array.dtype
        return np.require(array, dtype=dtype, requirements=["C", "W"])

    @cached_property
    def _dtype(self) -> Any:
        """The type of the points; float64 for a frame with columns of several types or of types of pandas."""
        if self.names is None:
            return getattr(self.data, "dtype", None)
        dtypes = {*self._dtypes}
        if len(dtypes) == 1:
            (dtype,) = dtypes
            if isinstance(dtype, np.dtype):
                return dtype
        return np.dtype(float)

    def rows(self, device: torch.device) -> Any:
        """Return the tensor on a device, or sparse points as rows with the part of its interface that heads use.

        Raises
        ------
        ValueError
            The matrix is empty, or has values that are no finite real numbers; the message names the column.
        """
        if not self.is_sparse:
            return self.tensor.to(device)
        X = self.data
        if X.dtype.kind not in "fiub":
            raise ValueError(f"{self.name} needs real numbers, got sparse rows of {X.dtype}")
        self.check_filled()
        dtype = X.dtype if X.dtype in (np.float32, np.float64) else np.float64
        rows = SparseRows(canonical(X).astype(dtype, copy=False), device)
        check_finite(rows, name=self.name)
        return rows

    def dense_blocks(self, device: torch.device) -> Any:
        """Return the same as :meth:`rows`, where slices of sparse points are dense tensors."""
        rows = self.rows(device)
        if isinstance(rows, SparseRows):
            return DenseBlocks(rows.matrix, device)
        return rows

    def frame(self, names: Sequence[str] | None = None) -> pd.DataFrame:
        """Return a table as a data frame whose columns are called by strings: `names`, if they had no name.

        Raises
        ------
        ValueError
            The points are no table, or empty.
        """
        self.check_filled()
        names = self.column_names or names or [f"x{i}" for i in range(self.width)]
        if not isinstance(self.data, pd.DataFrame):
            return pd.DataFrame(as_array(self.dense()), columns=[*names])
        if list(self.columns) == names:
            return self.data
        return self.data.set_axis(names, axis=1)

    def dense(self, limited: bool = False) -> Any:
        """Return the points, a sparse matrix as an array, which may take 1 GiB if it is `limited`."""
        if not self.is_sparse:
            return self.data
        if limited:
            why = f"{self.name} is sparse, and a dense array is needed"
            check_room(self.data, why, "fewer columns (TruncatedSVD)")
        return self.data.toarray()

    @property
    def for_sklearn(self) -> Any:
        """The points in a type that scikit-learn takes: a tensor as an array, others as they are."""
        if self.is_tensor:
            return self.numbers.cpu().numpy()
        return self.data

    def column(self, position: int) -> Any:
        """Return one column [n] in its own type: a series of a data frame, an array or a tensor."""
        if self.names is None:
            return self.select([position]).dense()[:, 0]
        return self.data.iloc[:, position]

    def values_of_columns(self) -> dict[str, np.ndarray]:
        """Return the columns of a dense table by their names, which are numbers if they have none."""
        if self.names is not None:
            return {name: self.data.iloc[:, i].to_numpy() for i, name in enumerate(self.names)}
        return {str(i): column for i, column in enumerate(as_array(self.data).T)}

    @cached_property
    def _csc(self) -> Any:
        return self.data.tocsc()

    def select(self, columns: Positions | slice) -> Self:
        """Select columns by their positions."""
        data = self.data
        if self.is_sparse:
            data = self._csc
        elif self.names is not None:
            data = data.iloc
        selected = type(self)(data[:, columns], self.name)
        if self.variables is not None:
            selected._name_variables(as_array(self.variables)[columns].tolist())
        return selected

    def take(self, rows: Positions | slice) -> Table:
        """Select rows by their indices or by a slice."""
        X = getattr(self.data, "iloc", self.data)
        if self.is_sparse:
            X = self.data.tocsr()
        if not isinstance(rows, slice):
            if isinstance(X, list | tuple):
                return Table([X[i] for i in rows], self.name)
            if self.is_tensor:
                rows = torch.as_tensor(rows, device=X.device)
        listed = None
        if self.names is not None:
            listed = Columns(self.names, self._dtypes)
        taken = Table(X[rows], self.name, listed)
        if self.variables is not None:
            taken._name_variables(self.variables)
        return taken

    def aligned(self, names: Sequence[str] | None, like: Table) -> Table:
        """Return the same rows and columns in the order of other ones, if both have names; else by position.

        Parameters
        ----------
        names : sequence of str or None
            Names of the columns in the order that is needed.
        like : Table
            Its index is the order of the rows.

        Raises
        ------
        ValueError
            Other names of columns, or another index.
        """
        table = self
        known = table.column_names
        if names is not None and known is not None and table.width == len(names):
            missing = [name for name in names if name not in known]
            if missing:
                raise ValueError(f"{self.name} has no column {missing}; its columns are those of X: {list(names)}")
            table = table.select([known.index(name) for name in names])

        if table.index is None or like.index is None or table.index.equals(like.index):
            return table
        if len(table) != len(like) or not (table.index.is_unique and like.index.is_unique):
            return table
        order = table.index.get_indexer(like.index)
        if (order >= 0).all():
            return table.take(order)
        return table

    def by_name(self, names: Sequence[str]) -> Self:
        """Return the columns with these names, in this order; points without names of columns are unchanged.

        Raises
        ------
        ValueError
            A column is missing.
        """
        known = self.column_names
        if known is None or known == [*names]:
            return self
        if {*names} - {*known}:
            check_names(known, names, name=self.name)
        position_of_name = {name: position for position, name in enumerate(known)}
        selected = self.select([position_of_name[name] for name in names])
        selected.library = self.library
        selected.path = self.path
        selected.index = self.index
        return selected

    def ordered(self, names: Sequence[str] | None) -> Self:
        """Return the columns with these names, in this order, if there are all of them; else the table itself."""
        known = self.column_names
        if names is None or known is None or known == names:
            return self
        return self.by_name(names) if {*names} <= {*known} else self

    def blocks(self, bytes_per_row: int) -> Iterator[Table]:
        """Yield the points in blocks that fit into memory."""
        return map(self.take, blocks(len(self), bytes_per_row))

    def distinct(self) -> int:
        """Return the number of distinct points."""
        if self.is_sparse:
            rows = canonical(self.data)
            spans = pairwise(rows.indptr)  # of the stored entries of each row
            return len({(rows.indices[a:b].tobytes(), rows.data[a:b].tobytes()) for a, b in spans})
        data = self.data
        if self.names is None:
            data = as_array(data).reshape(len(self), -1)
        points = pd.DataFrame(data)
        unhashable = [name for name, column in points.items() if column_kind(column) == "object"]
        return len(points.astype(dict.fromkeys(unhashable, str)).drop_duplicates())

    def why_identical(self, clusters: int) -> str:
        """Return the end of an error about clusters with the same center: its probable cause in the points."""
        n = len(self)
        n_distinct = self.distinct()
        if n_distinct == 1 < n:
            constant = ""
            if self.names:
                constant = f" (constant columns: {listed(self.names)})"
            elif len(self.shape) == 2:
                constant = " (every column is constant)"
            return f": all {plural(n, 'point')} of X are the same{constant}"
        if n_distinct < clusters:
            return f": X has only {plural(n_distinct, 'different point')}; fit at most {n_distinct} clusters"
        return "; fit fewer clusters"

    def restore(self, result: Tensor) -> Any:
        """Convert a result to the type of the points; to a data frame only if it has the frame's shape."""
        kind = str(getattr(self._dtype, "name", self._dtype)).removeprefix("torch.")
        result = result.detach().to(KEPT.get(kind, result.dtype))
        if self.is_tensor:
            return result.to(self.device)

        array = result.cpu().numpy()
        if self.columns is None or array.shape != (len(self), len(self.columns)):
            return array
        kind_of_frame = type(self.data) if self.names else pd.DataFrame
        frame = kind_of_frame(array, index=self.index, columns=self.columns)
        if self.library == "pandas":
            return frame
        return to_library(frame, self.library)

    def labels(self, values: np.ndarray | Tensor) -> np.ndarray | Tensor:
        """Convert one value per point to an array, or to a tensor if the points are one and the values numbers."""
        if self.is_tensor and (isinstance(values, Tensor) or values.dtype.kind in "fiub"):
            return torch.as_tensor(values, device=self.device)
        return values if isinstance(values, np.ndarray) else as_array(values)


def is_texts(X: object) -> bool:
    """Whether data are texts: one-dimensional and not numeric."""
    if isinstance(X, Table):
        X = X.data
    if isinstance(X, (list, tuple)):
        return not X or isinstance(X[0], (str, bytes, type(None)))
    if isinstance(X, (np.ndarray, pd.Series)):
        return X.ndim == 1 and X.dtype.kind not in "fiubc"
    return isinstance(X, Iterable) and not (hasattr(X, "__array__") or sparse.issparse(X))
