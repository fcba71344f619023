"""Carrier of encoded tables: the head works on encoded columns, and relevance is summed by table column."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from neonxc.carriers import Columns, carrier_of
from neonxc.data.frames import column_names
from neonxc.data.inputs import Batch, as_batch, check_width
from neonxc.data.sparse import SparseRows, is_sparse
from neonxc.pipelines.encoding import Encoding, as_frame
from neonxc.pipelines.parts import Number


class EncodedTable(Columns):
    """Carrier of tables with categories and missing values.

    Data frames and arrays [N, d] are tables; tensors [N, D] hold encoded columns, as ``net(x)`` takes them. The
    relevance of a table has its columns, that of a tensor the encoded columns.
    """

    module: Encoding

    def batch(self, X: Any) -> Batch:
        """Encode a table as [N, D] of float64, or check a tensor of encoded columns."""
        if isinstance(X, Tensor) or is_sparse(X):  # the latter raises an error
            batch, D = as_batch(X, device=self.device), self.module.width
            if batch.tensor.ndim != 2 or batch.tensor.shape[1] != D:
                raise ValueError(
                    f"X needs the {D} encoded columns of net.batch(table).tensor if it is a tensor, got shape "
                    f"{list(X.shape)}; pass the table itself as a data frame or an array"
                )
        else:
            tensor = self.module.encode(self._frame(X)).to(self.device)
            restore, collected = partial(_restored, X), self.module.collected
            batch = Batch(tensor, self.units, restore, lambda values: values, collected)
        self.head.detection.check(batch.tensor, self.module.names)
        return batch

    def _frame(self, X: Any) -> pd.DataFrame:
        """A frame or array as a frame with the names that the encoding knows."""
        if self.names is None and column_names(X) is not None:  # columns go by their positions
            check_width(X.shape[1], len(self.module.columns))
            X = X.set_axis(self.module.columns, axis=1)
        return as_frame(X, self.module.columns)

    stored = batch

    @property
    def units(self) -> list[str]:
        """The table's columns."""
        return list(self.module.columns)

    @property
    def _numbers(self) -> set[int]:
        """Columns of the table that are encoded as numbers."""
        return {part.column for part in self.module.parts if isinstance(part, Number)}

    @property
    def categories(self) -> list[int]:
        """Columns of the table that are encoded, and not as numbers."""
        return sorted({part.column for part in self.module.parts} - self._numbers)

    def values(self, x: Tensor, points: Tensor | SparseRows) -> Tensor:
        """Nothing, as NaN: encoded columns do not tell which numbers were missing, :meth:`table` does."""
        return torch.full((len(x), len(self.units)), torch.nan, dtype=torch.float64)

    def table(self, X: Any) -> tuple[pd.DataFrame, dict[int, Any]] | None:
        """The table as it was given; None for a tensor, which holds encoded columns."""
        if isinstance(X, Tensor):
            return None
        frame = self._frame(X)
        return frame, {column: self.module.numbers(frame, column) for column in sorted(self._numbers)}

    @property
    def groups(self) -> Tensor:
        """The unit [D] of each encoded column in pixel-flipping: the index of its table column."""
        return self.module.owner.unique(return_inverse=True)[1]

    def spread(self, relevance: Any) -> Any:
        """Divide the relevance of each table column equally among its encoded columns."""
        if isinstance(relevance, Tensor):
            return relevance
        values = as_batch(relevance, name="relevance").tensor
        check_width(values.shape[1], len(self.module.columns), name="relevance")
        owner = self.module.owner
        return values[:, owner] / owner.bincount()[owner]

    def collected(self, relevance: Tensor) -> Tensor:
        """Sum the relevance of the encoded columns by table column."""
        return self.module.collected(relevance)


def _restored(X: Any, result: Tensor) -> Any:
    """Convert a result to the type of a table."""
    array = result.detach().cpu().numpy()
    if column_names(X) is None:
        return array.astype(np.float32) if np.asarray(X).dtype == np.float32 else array
    return array if array.shape != X.shape else type(X)(array, index=X.index, columns=X.columns)


@carrier_of.register
def _(features: Encoding, *options: Any) -> EncodedTable:
    return EncodedTable(features, *options)
