"""Tables with columns of several types: checks of an estimator's input, and access to columns and rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import validate_data
from torch import Tensor

from neonxc.common.arguments import check_columns
from neonxc.data.frames import column_names, reads_tables
from neonxc.data.inputs import as_batch, compute_dtype, some_rows


@dataclass(frozen=True)
class Table:
    """Columns and rows of a data frame, an array or a tensor [n, d]."""

    X: Any
    names: list[str] | None  # column names of a data frame

    def __len__(self) -> int:
        return len(self.X)

    @property
    def width(self) -> int:
        """Number of columns."""
        return int(self.X.shape[1])

    def name(self, column: int) -> str:
        """Name of a column for messages."""
        return f"x[{column}]" if self.names is None else self.names[column]

    def key(self, column: int) -> str | int:
        """Name of a column, or its position if the columns have no names."""
        return column if self.names is None else self.names[column]

    def positions(self, given: Any, argument: str, otherwise: str = "") -> list[int]:
        """Positions of the columns in `given`; `otherwise` tells in error messages what else is accepted."""
        columns = [given] if isinstance(given, str | Integral) else list(given)
        found = [self._position(column, argument, otherwise) for column in columns]
        if not found or len(set(found)) < len(found):
            raise ValueError(f"{argument} needs one or more distinct columns, got {given!r}")
        return found

    def _position(self, column: Any, argument: str, otherwise: str) -> int:
        if isinstance(column, str):
            if self.names is None:
                raise ValueError(
                    f"{argument} has the name {column!r}, but the columns of X have no names; pass a column number"
                )
            if self.names.count(column) != 1:
                check_columns(f"{argument}: X", [column], self.names)
                raise ValueError(f"{argument}: X has {self.names.count(column)} columns {column!r}")
            return self.names.index(column)
        whole = isinstance(column, Integral) and not isinstance(column, bool)
        if whole and -self.width <= int(column) < self.width:
            return int(column) % self.width
        raise ValueError(
            f"{argument} needs columns of X (names, or numbers below {self.width}){otherwise}, got {column!r}"
        )

    def column(self, column: int) -> Any:
        """One column in its original type: a series of a data frame, or an array or tensor [n]."""
        return self.X[:, column] if self.names is None else self.X.iloc[:, column]

    def is_number(self, column: int, boolean: bool) -> bool:
        """Whether a column holds numbers; booleans are numbers if `boolean` is True."""
        kinds = "fiub" if boolean else "fiu"
        return self.names is None or getattr(self.X.dtypes.iloc[column], "kind", "O") in kinds

    def numbers(self, columns: Sequence[int]) -> Tensor:
        """The given columns as finite numbers [n, m]."""
        if len(columns) == self.width:
            return as_batch(self.X).tensor
        rows = self.X if self.names is None else self.X.iloc
        return as_batch(rows[:, list(columns)]).tensor

    def numbers_with_gaps(self, column: int) -> Tensor:
        """One column as numbers [n], with NaN for missing values."""
        values = self.column(column)
        if not isinstance(values, Tensor):  # copied, because arrays of pandas may be read-only
            values = torch.from_numpy(np.array(values, dtype=None if self.names is None else np.float64))
        values = values.to(compute_dtype(values.dtype))
        if bool(values.isinf().any()):
            raise ValueError(f"X has a value that is not finite in column {self.name(column)!r}: inf")
        return values

    def rows(self, index: np.ndarray) -> Any:
        """Select rows in the type of X."""
        return some_rows(self.X, index)


@reads_tables
def as_table(X: Any) -> Table:
    """Read a data frame, tensor or array of any type, without an estimator.

    Raises
    ------
    ValueError
        If X is not a table or has no points.
    """
    names = column_names(X)
    if isinstance(X, Tensor):
        if X.layout != torch.strided or X.is_complex():
            as_batch(X)  # raises an error
        X = X.detach()
    elif names is None:
        X = np.asarray(X)
    if len(X.shape) != 2 or 0 in X.shape:
        raise ValueError(f"X needs shape [points, features] with at least one point, got {list(X.shape)}")
    return Table(X, names)


@reads_tables
def read_table(model: Any, X: Any, *, reset: bool, gaps: bool) -> Table:
    """Check the input of an estimator; numbers may be missing if `gaps` is True.

    Raises
    ------
    ValueError
        If X is not a table or has no points, its columns differ from those in `fit`, or an array has invalid
        values.
    """
    if column_names(X) is None and not isinstance(X, Tensor):
        finite = "allow-nan" if gaps else True
        return Table(validate_data(model, X=X, reset=reset, ensure_all_finite=finite), None)
    table = as_table(X)
    validate_data(model, X=table.X, reset=reset, skip_check_array=True)
    return table
