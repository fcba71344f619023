"""Inputs of tables with categories, missing values or functions of columns, which are encoded as numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from neonxc.data.table import Table
from neonxc.head.head import Head
from neonxc.inputs.base import make_inputs
from neonxc.inputs.raw_columns import RawColumns
from neonxc.inputs.space import EncodedSpace, Space
from neonxc.pipelines.encoding import Encoding


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
        is_number = self.encoding.is_number
        return sorted({*owner.tolist()} - {*owner[is_number].tolist()})

    @property
    def groups(self) -> Tensor:
        """The unit [D] of each encoded column in pixel-flipping: the index of its table column."""
        return self.encoding.owner.unique(return_inverse=True)[1]

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
        still = ~encoding.is_number | (encoding.owner.bincount()[encoding.owner] > 1)
        return Space(table, encoding.names, still) if table.is_tensor else EncodedSpace(table, encoding, still)

    def write(self, x: Tensor, like: Any, bounds: Mapping[int, tuple[float, float]] | None = None) -> Any:
        """Return the table with the numbers that have changed; categories stay as they are."""
        table = Table.read(like)
        if table.is_tensor:
            return super().write(x, table)
        encoding = self.encoding
        frame = self._frame(table).copy()
        moved = (x.cpu() != encoding.encode(frame).to(x.dtype)).numpy()
        for place, number in encoding.number_parts.items():
            if moved[:, place].any():
                column = frame.iloc[:, number.column]
                dtype = column.dtype if column.dtype.kind == "f" else np.dtype(float)
                values = column.to_numpy(dtype=dtype, na_value=np.nan, copy=True)
                after = number.undo(x[:, place].double().cpu().numpy())
                low, high = (bounds or {}).get(number.column, (None, None))
                if (low, high) != (None, None):  # which NumPy before 2.1 refuses
                    after = after.clip(low, high)
                after = after.astype(dtype)
                valid = moved[:, place] & np.isfinite(number.apply(after))  # an inverse may be infinite
                values[valid] = after[valid]
                frame.isetitem(number.column, pd.Series(values, index=frame.index))
        if table.names is not None:
            return frame.set_axis(table.columns, axis=1)
        given = table.data.dtype
        return frame.to_numpy(dtype=np.float64 if given.kind in "iub" else given)

    def baseline(self, along: Any, name: str = "along") -> Any:
        """Read one row of the table; a number is the value of every column."""
        base = super().baseline(along, name)
        if isinstance(along, Tensor) or base.ndim:
            return base
        if self.categories:
            raise ValueError(f"{name} needs a row of the table, as a number is no category; got {along!r}")
        row = pd.DataFrame(np.full((1, len(self.units)), float(base)), columns=self.units)
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

    def values(self, x: Any, points: Any) -> Tensor:
        """Nothing, as NaN: encoded columns do not tell which numbers were missing, :meth:`table` does."""
        return torch.full((len(points), len(self.units)), torch.nan, dtype=torch.float64)

    def table(self, X: Any) -> tuple[pd.DataFrame, dict[int, Any]] | None:
        """The table as it was given; None for a tensor, which holds encoded columns."""
        if (table := Table.read(X)).is_tensor:
            return None
        frame = self._frame(table)
        numbers = self.encoding.owner[self.encoding.is_number].unique().tolist()
        return frame, {column: self.encoding.numbers(frame, column) for column in numbers}

    def _frame(self, table: Table) -> pd.DataFrame:
        """A table as a frame with the names that the encoding knows; without names, columns go by position."""
        columns = self.encoding.columns
        return Table.read(table, columns if self.names else len(columns)).frame().set_axis(columns, axis=1)


make_inputs.register(Encoding, lambda encoding, head=None, names=None: Encoded(head, names, encoding))
