"""What a user passes as points: the one place that knows frames, arrays, tensors, sparse matrices and lists."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from functools import cached_property
from itertools import pairwise
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from scipy import sparse
from sklearn.utils.validation import validate_data
from torch import Tensor

from neonxc.common.arguments import listed
from neonxc.common.memory import blocks
from neonxc.common.warnings import warn
from neonxc.data.frames import as_pandas, from_named, given_back, index_of, is_path, library_of
from neonxc.data.inputs import (
    INTEGERS,
    TOKENS,
    are_tokens,
    as_array,
    check_finite,
    check_items,
    check_names,
    check_no_bytes,
    check_width,
    compute_dtype,
)
from neonxc.data.kinds import column_kind, computable_array
from neonxc.data.preparation import on_suspects
from neonxc.data.sparse import SparseRows, canonical, check_room

KEPT = {"float32": torch.float32, "float64": torch.float64, "float128": torch.float64}
"""Types of points that results have as well; with other points they keep the type of the computation."""

FORMATS = ("csr", "csc")
"""Formats of sparse matrices that are kept; others can't select rows, lack a minimum, or are slow."""


class Table:
    """Points as they were passed, their values as a tensor, and the way back to the caller's type.

    Parameters
    ----------
    data : DataFrame, ndarray, Tensor, SciPy sparse matrix, or a sequence or series of texts
        Points [N, ...]; :meth:`read` takes all other types.
    name : str
        Name of the argument in errors.

    Attributes
    ----------
    names : list of str or None
        Names of the columns of a data frame.
    columns, index : pandas.Index or None
        Labels of results that have the shape of the points: those of a data frame. Tables of libraries without an
        index have none, and an AnnData the names of its observations.
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

    def __init__(self, data: Any, name: str = "X") -> None:
        self.data, self.name = data, name
        self.reader: Any = None
        self.library = "pandas"
        self.path: Any = None
        self.of_tokens = False
        self.index = data.index if isinstance(data, (pd.DataFrame, pd.Series)) else None
        self.columns: Any = data.columns if isinstance(data, pd.DataFrame) else None
        self.names = None if self.columns is None else [*map(str, self.columns)]
        self.collected: Callable[[Tensor], Tensor] = lambda relevance: relevance

    @classmethod
    def read(
        cls,
        X: Any,
        like: Sequence[str] | int | None = None,
        name: str = "X",
        columns: Sequence[Any] | None = None,
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
        name = X.name if isinstance(X, cls) else name
        if columns is None and like is not None and not isinstance(like, int):
            columns = like
        X = cls._of_file(X, name, columns, format) if is_path(X) else X
        if not isinstance(X, cls):
            if isinstance(X, str):
                raise ValueError(
                    f"{name} can't be read: {X!r:.60} is not the path of an existing file. If it is a text, "
                    f"{name} needs a sequence of strings; a single one is [text]"
                )
            check_items(X, name=name)
            given, X = X, as_pandas(from_named(X), name)
            index = index_of(given, X)
            if not (isinstance(X, (np.ndarray, Tensor, pd.DataFrame)) or sparse.issparse(X) or is_texts(X)):
                try:
                    array = np.asarray(X)  # of strings, if a list has numbers and strings
                    X = np.array(X, dtype=object) if array.dtype.kind in "US" else array
                except ValueError as error:
                    raise ValueError(f"{name} can't be read as an array of numbers: {error}") from None
            X = computable_array(X) if isinstance(X, np.ndarray) else X
            if sparse.issparse(X) and X.format not in FORMATS:
                X = X.tocsr()
            X = cls(X if hasattr(X, "__len__") else [*X], name)
            X.library, X.index = library_of(given) or "pandas", index
            X.of_tokens = isinstance(given, list | tuple) and bool(given) and are_tokens(given)
        if like is not None and not isinstance(like, int):
            X = X.by_name([*map(str, like)])
            like = len(like)
        if like is not None and X.width != like:
            if X.of_tokens:
                raise ValueError(f"{name} {TOKENS.format(name)}")
            check_width(X.width, like, name=name)
        return X

    @classmethod
    def _of_file(cls, path: Any, name: str, columns: Sequence[Any] | None, format: str | None) -> Self:
        """Read a file, or the columns of it that are needed."""
        from neonxc.data.files import read_table  # only data in files need it

        needed = None if columns is None else [*map(str, columns)]
        frame = read_table(path, needed=needed, format=format)
        table = cls(frame if needed is None else frame[needed], name)
        table.path = path
        return table

    @classmethod
    def of_estimator(cls, model: Any, X: Any, reset: bool, **checks: Any) -> Self:
        """Read points that an estimator is fitted to (`reset`) or applied to; `checks` are those of arrays."""
        columns = None if reset else getattr(model, "feature_names_in_", None)
        format = None if reset else getattr(getattr(model, "tree_", None), "table_format", None)
        table = cls.read(X, columns=columns, format=format)
        if table.names is None and not table.is_tensor:
            try:
                return cls(validate_data(model, X=table.data, reset=reset, **checks))
            except ValueError as error:
                if table._dtype.kind not in "OUS":
                    raise
                raise ValueError(f"X can't be read as an array of numbers: {error}") from None
        table.check_filled()
        validate_data(model, X=table.data, reset=reset, skip_check_array=True)
        if reset:
            table.warn_of_suspects()
        return table

    def warn_of_suspects(self) -> None:
        """Warn of columns of a file, whose user has not selected columns, that may number or weight the rows."""
        for note in [] if self.path is None else on_suspects(self.data):
            warn(f"X, the table in {self.path}: {note}")

    def holding(self, values: Any, **changes: Any) -> Table:
        """Return the same points with other values in :attr:`tensor`, and with other attributes."""
        table = copy(self)
        table.__dict__.update(tensor=values, **changes)
        return table

    def __len__(self) -> int:
        return int(self.shape[0])

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of points, and those of columns and other dimensions."""
        return tuple(self.data.shape) if hasattr(self.data, "shape") else (len(self.data),)

    @property
    def width(self) -> int:
        """Number of columns; an error if the points are no table."""
        if len(self.shape) != 2:
            hint = f"; a single point is {self.name}.reshape(1, -1)" if len(self.shape) < 2 else ""
            raise ValueError(f"{self.name} needs shape [points, features], got {list(self.shape)}{hint}")
        return self.shape[1]

    def check_filled(self) -> None:
        """Raise a ValueError unless the points are a table that is not empty."""
        if 0 in (self.width, len(self)):
            raise ValueError(f"{self.name} is empty: shape {list(self.shape)}")

    def check_no_bytes(self) -> None:
        """Raise a ValueError for bytes and whole numbers of images; the columns of a frame are numbers."""
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
        dtypes = {} if self.names is None else self.data.dtypes
        return [str(name) for name, dtype in dtypes.items() if dtype.kind not in "fiub"]

    @cached_property
    def numbers(self) -> Tensor:
        """The points as a finite tensor of at least two dimensions; integers keep their type.

        Raises
        ------
        ValueError
            Values that are no finite numbers (the message names the column), no points, or too few dimensions.
        """
        X, name = self.data, self.name
        if self.is_sparse or (self.is_tensor and X.layout != torch.strided):
            raise ValueError(f"{name} is sparse; pass {name}.{'toarray' if self.is_sparse else 'to_dense'}()")
        tensor = X.detach() if self.is_tensor else torch.from_numpy(self._array())
        if tensor.is_complex():
            raise ValueError(f"{name} holds complex numbers; neonxc needs real ones")
        if tensor.ndim < 2:
            _ = self.width  # raises the error
        if not tensor.numel():
            raise ValueError(f"{name} is empty: shape {list(tensor.shape)}")
        tensor = tensor if tensor.dtype in INTEGERS else tensor.to(compute_dtype(tensor.dtype))
        check_finite(tensor, name=name, names=self.names)
        return tensor

    @cached_property
    def tensor(self) -> Any:
        """:attr:`numbers` in floating point: float32 for half precision, and float64 for integers."""
        return self.numbers.to(compute_dtype(self.numbers.dtype))

    def _array(self) -> np.ndarray:
        """The points as an array of numbers that PyTorch can use."""
        if bad := self._no_numbers:
            raise ValueError(
                f"{self.name} has columns that are not numeric: {bad}; drop or encode them, or fit a Pipeline "
                f"that does and pass {self.name} to neonxc.neuralize with it"
            )
        array = np.asarray(self.data, dtype=self._dtype)
        if array.dtype.kind not in "fiubc":
            hint = "; texts need features=SentenceEncoder(...) or WordVectors, or a Pipeline with a vectorizer"
            raise ValueError(
                f"{self.name} can't be read as an array of numbers: its type is {array.dtype}"
                + hint * is_texts(self)
                + f"; as texts, {self.name} {TOKENS.format(self.name)}" * self.of_tokens
            )
        dtype = np.float64 if array.dtype == np.longdouble else array.dtype
        return np.require(array, dtype=dtype, requirements=["C", "W"])

    @cached_property
    def _dtype(self) -> Any:
        """The type of the points; float64 for a frame with columns of several types or of types of pandas."""
        if self.names is None:
            return getattr(self.data, "dtype", None)
        first, *others = {*self.data.dtypes} or {None}
        return first if isinstance(first, np.dtype) and not others else np.dtype(float)

    def rows(self, device: torch.device, whole: bool = True) -> Any:
        """Return the tensor on a device, or a checked sparse matrix with the part of its interface that heads use.

        Raises
        ------
        ValueError
            The matrix is empty, or has values that are no finite real numbers; the message names the column.
        """
        X = self.data
        if not self.is_sparse:
            return self.tensor.to(device)
        if X.dtype.kind not in "fiub":
            raise ValueError(f"{self.name} needs real numbers, got sparse rows of {X.dtype}")
        self.check_filled()
        dtype = X.dtype if X.dtype in (np.float32, np.float64) else np.float64
        rows = SparseRows(canonical(X).astype(dtype, copy=False), device, whole)
        check_finite(rows, name=self.name)
        return rows

    def frame(self, names: Sequence[str] | None = None) -> pd.DataFrame:
        """Return a table as a data frame whose columns are called by strings: `names`, if they had no name.

        Raises
        ------
        ValueError
            The points are no table, or empty.
        """
        self.check_filled()
        names = self.names or names or [f"x{i}" for i in range(self.width)]
        if self.columns is None:
            return pd.DataFrame(as_array(self.dense()), columns=[*names])
        return self.data if list(self.columns) == names else self.data.set_axis(names, axis=1)

    def dense(self, limited: bool = False) -> Any:
        """Return the points, a sparse matrix as an array, which may take 1 GiB if it is `limited`."""
        if not self.is_sparse:
            return self.data
        if limited:
            check_room(
                self.data, f"{self.name} is sparse, and a dense array is needed", "fewer columns (TruncatedSVD)"
            )
        return self.data.toarray()

    @property
    def for_sklearn(self) -> Any:
        """The points in a type that scikit-learn takes: a tensor as an array, others as they are."""
        return self.numbers.cpu().numpy() if self.is_tensor else self.data

    def column(self, position: int) -> Any:
        """Return one column [n] in its own type: a series of a data frame, an array or a tensor."""
        column = self.select([position])
        return column.dense()[:, 0] if self.names is None else column.data.iloc[:, 0]

    def values_of_columns(self) -> dict[str, np.ndarray]:
        """Return the columns of a dense table by their names, which are numbers if they have none."""
        if self.names is not None:
            return {name: self.data.iloc[:, i].to_numpy() for i, name in enumerate(self.names)}
        return {str(i): column for i, column in enumerate(as_array(self.data).T)}

    @cached_property
    def _csc(self) -> Any:
        return self.data.tocsc()

    def select(self, columns: Any) -> Table:
        """Select columns by their positions."""
        data = self._csc if self.is_sparse else self.data if self.names is None else self.data.iloc
        return Table(data[:, columns], self.name)

    def take(self, rows: Any) -> Table:
        """Select rows by their indices or by a slice."""
        X = self.data.tocsr() if self.is_sparse else getattr(self.data, "iloc", self.data)
        if not isinstance(rows, slice):
            if isinstance(X, list | tuple):
                return Table([X[i] for i in rows], self.name)
            rows = torch.as_tensor(rows, device=X.device) if self.is_tensor else rows
        return Table(X[rows], self.name)

    def aligned(self, names: Sequence[str] | None, like: Table) -> Table:
        """Return the same rows and columns in the order of other ones, if both have names; else by position.

        Parameters
        ----------
        names : sequence of str or None
            Names of the columns that are wanted.
        like : Table
            Its index is the order of the rows.

        Raises
        ------
        ValueError
            Other names of columns, or another index.
        """
        table = self
        if names is not None and table.names is not None and table.width == len(names):
            if missing := [name for name in names if name not in table.names]:
                raise ValueError(f"{self.name} has no column {missing}; its columns are those of X: {list(names)}")
            table = table.select([table.names.index(name) for name in names])
        if table.index is None or like.index is None or table.index.equals(like.index):
            return table
        if len(table) != len(like) or not (table.index.is_unique and like.index.is_unique):
            return table
        places = table.index.get_indexer(like.index)
        return table.take(places) if (places >= 0).all() else table

    def by_name(self, names: Sequence[str]) -> Self:
        """Return the columns with these names, in this order; points without names of columns are unchanged.

        Raises
        ------
        ValueError
            A column is missing.
        """
        if self.names is None or self.names == [*names]:
            return self
        if {*names} - {*self.names}:
            check_names(self.names, names, name=self.name)
        positions = [self.names.index(name) for name in names]
        selected = type(self)(self.data.iloc[:, positions], self.name)
        selected.library = self.library
        selected.path = self.path
        selected.index = self.index
        return selected

    def blocks(self, bytes_per_row: int) -> Iterator[Table]:
        """Yield the points in blocks that fit into memory."""
        return map(self.take, blocks(len(self), bytes_per_row))

    def distinct(self) -> int:
        """Return the number of distinct points."""
        if self.is_sparse:
            rows = canonical(self.data)
            places = pairwise(rows.indptr)
            return len({(rows.indices[a:b].tobytes(), rows.data[a:b].tobytes()) for a, b in places})
        points = pd.DataFrame(self.data if self.names is not None else as_array(self.data).reshape(len(self), -1))
        unhashable = [name for name, column in points.items() if column_kind(column) == "object"]
        return len(points.astype(dict.fromkeys(unhashable, str)).drop_duplicates())

    def why_identical(self, clusters: int) -> str:
        """Return the end of an error about clusters with the same center: its probable cause in the points."""
        n, different = len(self), self.distinct()
        if different == 1 < n:
            constant = " (every column is constant)" if len(self.shape) == 2 else ""
            constant = f" (constant columns: {listed(self.names)})" if self.names else constant
            return f": all {n} points of X are the same{constant}"
        if different < clusters:
            return f": X has only {different} different points; fit at most {different} clusters"
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
        return frame if self.library == "pandas" else given_back(frame, self.library)

    def labels(self, values: np.ndarray | Tensor) -> Any:
        """Convert one value per point to an array, or to a tensor if the points are one and the values numbers."""
        if self.is_tensor and (isinstance(values, Tensor) or values.dtype.kind in "fiub"):
            return torch.as_tensor(values, device=self.device)
        return as_array(values)


def is_texts(X: Any) -> bool:
    """Whether data are texts: one-dimensional and not numeric."""
    X = X.data if isinstance(X, Table) else X
    if isinstance(X, (list, tuple)):
        return not X or isinstance(X[0], (str, bytes, type(None)))
    if isinstance(X, (np.ndarray, pd.Series)):
        return X.ndim == 1 and X.dtype.kind not in "fiubc"
    return isinstance(X, Iterable) and not (hasattr(X, "__array__") or sparse.issparse(X))
