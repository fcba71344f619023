"""Carrier of encoded tables: the head works on encoded columns, and relevance is summed by table column."""

from __future__ import annotations

from typing import Any

import pandas as pd
import torch
from torch import Tensor

from neonxc.carriers import Columns, carrier_of
from neonxc.data.sparse import SparseRows
from neonxc.data.table import Table
from neonxc.pipelines.encoding import Encoding


class EncodedTable(Columns):
    """Carrier of tables with categories and missing values.

    Data frames and arrays [N, d] are tables; tensors [N, D] hold encoded columns, as ``net(x)`` takes them. The
    relevance of a table has its columns, that of a tensor the encoded columns.
    """

    module: Encoding

    def stored(self, X: Any) -> Table:
        """Encode a table as [N, D] of float64, or check a tensor of encoded columns."""
        table, encoding = Table.read(X), self.module
        if not table.is_tensor:
            tensor = encoding.encode(self._frame(table)).to(self.device)
            table = table.holding(tensor, collected=encoding.collected)
        elif table.tensor.shape[1:] != (encoding.width,):
            raise ValueError(
                f"X needs the {encoding.width} encoded columns of net.batch(table).tensor if it is a tensor, got "
                f"shape {list(table.shape)}; pass the table itself as a data frame or an array"
            )
        else:
            table = table.holding(table.tensor.to(self.device))
        self.head.detection.check(table.tensor, encoding.names)
        return table

    def _frame(self, table: Table) -> pd.DataFrame:
        """A table as a frame with the names that the encoding knows; without names, columns go by position."""
        columns = self.module.columns
        return Table.read(table, columns if self.names else len(columns)).frame().set_axis(columns, axis=1)

    @property
    def units(self) -> list[str]:
        """The table's columns."""
        return list(self.module.columns)

    @property
    def categories(self) -> list[int]:
        """Columns of the table that are encoded, and not as numbers."""
        owner, is_number = self.module.owner, self.module.is_number
        return sorted({*owner.tolist()} - {*owner[is_number].tolist()})

    def values(self, x: Tensor, points: Tensor | SparseRows) -> Tensor:
        """Nothing, as NaN: encoded columns do not tell which numbers were missing, :meth:`table` does."""
        return torch.full((len(x), len(self.units)), torch.nan, dtype=torch.float64)

    def table(self, X: Any) -> tuple[pd.DataFrame, dict[int, Any]] | None:
        """The table as it was given; None for a tensor, which holds encoded columns."""
        if (table := Table.read(X)).is_tensor:
            return None
        frame, numbers = self._frame(table), self.module.owner[self.module.is_number].unique().tolist()
        return frame, {column: self.module.numbers(frame, column) for column in numbers}

    @property
    def groups(self) -> Tensor:
        """The unit [D] of each encoded column in pixel-flipping: the index of its table column."""
        return self.module.owner.unique(return_inverse=True)[1]

    def spread(self, relevance: Any) -> Any:
        """Divide the relevance of each table column equally among its encoded columns."""
        table, owner = Table.read(relevance, name="relevance"), self.module.owner
        if table.is_tensor:
            return relevance
        Table.read(table, len(self.module.columns), "relevance")
        return table.tensor[:, owner] / owner.bincount()[owner]

    def collected(self, relevance: Tensor) -> Tensor:
        """Sum the relevance of the encoded columns by table column."""
        return self.module.collected(relevance)


@carrier_of.register
def _(features: Encoding, *options: Any) -> EncodedTable:
    return EncodedTable(features, *options)
