"""Carrier of encoded tables: the head works on encoded columns, and relevance is summed by table column."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from neonxc.carriers import Columns, carrier_of
from neonxc.encoding.encoding import Encoding
from neonxc.inputs import Batch, as_batch, check_width
from neonxc.sparse import is_sparse


class EncodedTable(Columns):
    """Carrier of tables with categories and missing values.

    Data frames and arrays [N, d] are tables; tensors [N, D] hold encoded columns, as ``net(x)`` takes them. The
    relevance of a table has its columns, that of a tensor the encoded columns.
    """

    module: Encoding

    def batch(self, X: Any) -> Batch:
        """Encode a table as [N, D] of float64, or check a tensor of encoded columns."""
        if isinstance(X, Tensor):
            return self._encoded_already(X)
        if is_sparse(X):
            return as_batch(X)  # raises the error about sparse data
        table: Any = X if hasattr(X, "iloc") and hasattr(X, "columns") else np.asarray(X)
        given = table
        if self.names is None and hasattr(X, "iloc"):  # columns without names go by their positions
            check_width(table.shape[1], len(self.module.columns))
            given = table.set_axis(self.module.columns, axis=1)
        tensor = self.module.encode(given).to(self.device)
        self.head.detection.check(tensor, self.module.names)

        def restore(result: Tensor) -> Any:
            array = result.detach().cpu().numpy()
            if isinstance(table, np.ndarray):
                return array.astype(np.float32) if table.dtype == np.float32 else array
            if array.shape != table.shape:
                return array
            return type(table)(array, index=table.index, columns=table.columns)

        return Batch(tensor, list(self.module.columns), restore, lambda values: values, self.module.collected)

    def _encoded_already(self, X: Tensor) -> Batch:
        """Check a tensor of encoded columns."""
        batch, D = as_batch(X, device=self.device), self.module.width
        if batch.tensor.ndim != 2 or batch.tensor.shape[1] != D:
            raise ValueError(
                f"X needs the {D} encoded columns of net.batch(table).tensor if it is a tensor, got shape "
                f"{list(X.shape)}; pass the table itself as a data frame or an array"
            )
        self.head.detection.check(batch.tensor, self.module.names)
        return batch

    def stored(self, X: Any) -> Batch:
        """Encode a table; the encoded columns are dense."""
        return self.batch(X)

    @property
    def units(self) -> list[str]:
        """The table's columns."""
        return list(self.module.columns)

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


@carrier_of.register
def _(features: Encoding, *options: Any) -> EncodedTable:
    return EncodedTable(features, *options)
