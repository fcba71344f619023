"""Tables with columns of several types, which arguments name or number."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neonxc.common.arguments import check_columns
from neonxc.data.inputs import compute_dtype
from neonxc.data.table import Table


class Columns(Table):
    """A data frame, an array or a tensor [n, d], read column by column."""

    def key(self, column: int) -> str | int:
        """Name of a column, or its position if the columns have no names."""
        return column if self.names is None else self.names[column]

    def title(self, column: int) -> str:
        """Name of a column for messages."""
        return f"x[{column}]" if self.names is None else self.names[column]

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
            check_columns(f"{argument}: X", [column], self.names)
            return self.names.index(column)
        whole = isinstance(column, Integral) and not isinstance(column, bool)
        if whole and -self.width <= int(column) < self.width:
            return int(column) % self.width
        raise ValueError(
            f"{argument} needs columns of X (names, or numbers below {self.width}){otherwise}, got {column!r}"
        )

    def is_number(self, column: int, boolean: bool) -> bool:
        """Whether a column holds numbers; booleans are numbers if `boolean` is True."""
        return self.names is None or self.data.dtypes.iloc[column].kind in ("fiub" if boolean else "fiu")

    def some(self, columns: Sequence[int]) -> Tensor:
        """Return the given columns as finite numbers [n, m]."""
        return self.tensor if len(columns) == self.width else self.select(list(columns)).tensor

    def numbers_with_gaps(self, column: int) -> Tensor:
        """One column as numbers [n], with NaN for missing values."""
        values = self.column(column)
        if not self.is_tensor:  # copied, because arrays of pandas may be read-only
            values = torch.from_numpy(np.array(values, dtype=None if self.names is None else np.float64))
        values = values.detach().to(compute_dtype(values.dtype))
        if bool(values.isinf().any()):
            raise ValueError(f"X has a value that is not finite in column {self.title(column)!r}: inf")
        return values
