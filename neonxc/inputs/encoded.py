"""Inputs of tables with categories, missing values or functions of columns, which are encoded as numbers.

Every column of the table is encoded as one or several columns of the head; `owner` [D] is the table column of
each.

- Reading encodes a table as [N, D].
- Relevance of a table column is the sum over its encoded columns.
- Writing decodes the numbers that have changed, by the inverse of their functions, and the categories whose codes
  have changed; all else stays as it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from neonxc.common.types import TableLike
from neonxc.data.sparse import SparseRows
from neonxc.data.table import Table
from neonxc.head.head import Head
from neonxc.inputs.base import make_inputs
from neonxc.inputs.raw_columns import RawColumns
from neonxc.inputs.space import EncodedSpace, Space
from neonxc.pipelines.encoding import Encoding
from neonxc.pipelines.parts import Number


class Encoded(RawColumns):
    """Encoded tables.

    Data frames and arrays [N, d] are tables; tensors [N, D] hold encoded columns, as ``net(x)`` takes them. The
    relevance of a table has its columns, that of a tensor the encoded columns.
    """

    encoding: Encoding

    def __init__(self, head: Head | None, names: Sequence[str] | None, encoding: Encoding) -> None:
        super().__init__(head, names)
        self.encoding = encoding

    @property
    def needed(self) -> list[str] | None:
        """Names of the table's columns, if it had names."""
        return self.units if self.names else None

    @property
    def units(self) -> list[str]:
        """The table's columns."""
        return list(self.encoding.columns)

    @property
    def categories(self) -> list[int]:
        """Columns of the table that are encoded, and not as numbers."""
        owner = self.encoding.owner
        numbers = owner[self.encoding.is_number]
        return sorted({*owner.tolist()} - {*numbers.tolist()})

    @property
    def groups(self) -> Tensor:
        """The feature [D] of each encoded column in pixel-flipping: the index of its table column."""
        _, index = self.encoding.owner.unique(return_inverse=True)
        return index

    def _read(self, table: Table) -> Table:
        """Encode a table as [N, D] of float64, or check a tensor of encoded columns."""
        encoding = self.encoding
        if not table.is_tensor:
            tensor = encoding.encode(self._frame(table), name=table.name).to(self.device)
            table = table.holding(tensor, collected=encoding.collected)
        elif table.tensor.shape[1:] != (encoding.width,):
            raise ValueError(
                f"{table.name} needs the {encoding.width} encoded columns of net.inputs.read(table).tensor if it "
                f"is a tensor, got shape {list(table.shape)}; pass the table itself as a data frame or an array"
            )
        else:
            table = table.holding(table.rows(self.device))
        self.head.detection.check(table.tensor, encoding.names)
        return table

    def space(self, table: Table) -> Space:
        """Return the columns that a counterfactual can change: numbers that are encoded in a single column."""
        encoding = self.encoding
        n_columns = encoding.owner.bincount()[encoding.owner]
        is_fixed = ~encoding.is_number | (n_columns > 1)
        if table.is_tensor:
            return Space(table, encoding.names, is_fixed)
        return EncodedSpace(table, encoding, is_fixed, self.categories)

    def write(
        self, x: Tensor, like: TableLike | Table, bounds: Mapping[int, tuple[float, float]] | None = None
    ) -> Any:
        """Return the table with the numbers and categories that have changed."""
        table = Table.read(like)
        if table.is_tensor:
            return super().write(x, table)
        encoding = self.encoding
        frame = self._frame(table).copy()
        has_changed = (x.cpu() != encoding.encode(frame).to(x.dtype)).numpy()
        for position, number in encoding.number_parts.items():
            if has_changed[:, position].any():
                column = frame.iloc[:, number.column]
                after = x[:, position].double().cpu().numpy()
                bound = (bounds or {}).get(number.column, (None, None))
                values = _changed(column, number, after, has_changed[:, position], bound)
                frame.isetitem(number.column, pd.Series(values, index=frame.index))
        for index in self.categories:
            positions = np.flatnonzero(encoding.owner == index)
            rows = np.flatnonzero(has_changed[:, positions].any(axis=1))
            if len(rows):
                values_by_code = encoding.categories(index)
                new = [values_by_code[tuple(codes)] for codes in x.cpu()[rows][:, positions].tolist()]
                frame.isetitem(index, _replaced(frame.iloc[:, index], rows, new))
        if table.names is not None:
            return frame.set_axis(table.columns, axis=1)
        dtype = table.data.dtype
        if dtype.kind in "iub":
            dtype = np.float64
        return frame.to_numpy(dtype=dtype)

    def baseline(self, baseline: TableLike | float, name: str = "baseline") -> Any:
        """Read one row of the table; a number is the value of every column."""
        base = super().baseline(baseline, name)
        if isinstance(baseline, Tensor) or base.ndim:
            return base
        if self.categories:
            raise ValueError(f"{name} needs a row of the table, as a number is not a category; got {baseline!r}")
        values = np.full((1, len(self.units)), float(base))
        row = pd.DataFrame(values, columns=self.units)
        return self.read(Table(row, name=name)).tensor

    def collect(self, relevance: Tensor) -> Tensor:
        """Sum the relevance of the encoded columns by table column."""
        return self.encoding.collected(relevance)

    def spread(self, relevance: Table) -> Tensor:
        """Divide the relevance of each table column equally among its encoded columns."""
        owner = self.encoding.owner
        if relevance.is_tensor:
            return super().spread(relevance)
        Table.read(relevance, len(self.encoding.columns))
        return relevance.tensor[:, owner] / owner.bincount()[owner]

    def values(self, x: Tensor | SparseRows, points: Tensor | SparseRows) -> Tensor:
        """Return NaN: encoded columns do not tell which numbers were missing, :meth:`table` does."""
        return torch.full((len(points), len(self.units)), torch.nan, dtype=torch.float64)

    def table(self, X: TableLike | Table) -> tuple[pd.DataFrame, dict[int, np.ndarray]] | None:
        """Return the table that the user passed; None for a tensor, which holds encoded columns."""
        table = Table.read(X)
        if table.is_tensor:
            return None
        frame = self._frame(table)
        numbers = self.encoding.owner[self.encoding.is_number].unique().tolist()
        return frame, {column: self.encoding.numbers(frame, column) for column in numbers}

    def _frame(self, table: Table) -> pd.DataFrame:
        """Return a table as a frame with the names of the encoding; without names, columns go by position."""
        columns = self.encoding.columns
        like = columns if self.names else len(columns)
        return Table.read(table, like).frame().set_axis(columns, axis=1)


def _changed(
    column: pd.Series,
    number: Number,
    after: np.ndarray,
    has_changed: np.ndarray,
    bounds: tuple[float | None, float | None],
) -> np.ndarray:
    """Return the values of a table column [N], where those that have changed are decoded from `after` [N]."""
    dtype = column.dtype if column.dtype.kind == "f" else np.dtype(float)
    values = column.to_numpy(dtype=dtype, na_value=np.nan, copy=True)
    after = number.undo(after)
    low, high = bounds
    if (low, high) != (None, None):  # which NumPy before 2.1 refuses
        after = np.clip(after, low, high)
    after = after.astype(dtype)
    is_valid = has_changed & np.isfinite(number.apply(after))  # an inverse may be infinite
    values[is_valid] = after[is_valid]
    return values


def _replaced(column: pd.Series, rows: np.ndarray, values: Sequence[object]) -> pd.Series:
    """Return a column of categories with other values in some rows, in its own type if that has these values."""
    changed = column.astype(object)
    changed.iloc[rows] = [np.nan if value is None else value for value in values]
    try:
        typed = changed.astype(column.dtype)
    except (TypeError, ValueError):
        return changed
    has_lost_some = (typed.isna() & changed.notna()).any()  # a category that the type does not have
    return changed if has_lost_some else typed


make_inputs.register(Encoding, lambda encoding, head=None, names=None: Encoded(head, names, encoding))
