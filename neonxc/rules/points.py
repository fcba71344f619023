"""Data that rules are applied to; each column that the conditions use is read only once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
import torch

from neonxc.data.inputs import as_array
from neonxc.data.table import Table
from neonxc.rules.condition import Column, Condition


class Points:
    """Column access to arrays, data frames, sparse matrices and tensors.

    Parameters
    ----------
    X : array-like, data frame, sparse matrix or tensor [N, features]
    n_features : int or None
        Required number of columns of arrays, matrices and tensors; None: not checked.

    Raises
    ------
    ValueError
        If X is not two-dimensional or has another number of columns.
    """

    def __init__(self, X: Any, n_features: int | None) -> None:
        table = Table.read(X)
        self.table = Table.read(table, n_features if table.names is None else None)
        self.width = self.table.width
        self._numbers: dict[Any, Any] = {}
        self._categories: dict[Any, tuple[np.ndarray, np.ndarray]] = {}

    def __len__(self) -> int:
        return len(self.table)

    def matches(self, conditions: Iterable[Condition]) -> Any:
        """Test which points meet all conditions, [N] of bool: a tensor if X is a tensor, else an array."""
        met: Any = self._on_device(np.ones(len(self), dtype=bool))
        for condition in conditions:
            met &= self._matches(condition)
        return self.table.labels(met)

    def _on_device(self, mask: np.ndarray) -> Any:
        """Masks are arrays, which are faster than tensors on the CPU, and tensors on other devices."""
        return mask if self.table.device.type == "cpu" else torch.from_numpy(mask).to(self.table.device)

    def _matches(self, condition: Condition) -> Any:
        column = condition.column
        if condition.values is None:
            if column.key not in self._numbers:
                self._numbers[column.key] = self._as_numbers(column)
            return condition.matches(self._numbers[column.key])
        if column.key not in self._categories:
            values = self._column(column)
            codes, found = pd.factorize(as_array(values) if self.table.is_tensor else values)
            # the last category, None, stands for missing values, whose code is -1
            self._categories[column.key] = codes, np.array([*found.tolist(), None], dtype=object)
        codes, categories = self._categories[column.key]
        return self._on_device(condition.matches(categories).take(codes))

    def _as_numbers(self, column: Column) -> Any:
        """Return a numeric column in float64, NaN for missing values; contiguous, because it is read often."""
        values = self._column(column)
        if self.table.is_tensor:
            values = values.detach().double().contiguous()
            return values.numpy() if values.device.type == "cpu" else values
        try:
            if self.table.names is not None:
                values = values.to_numpy(dtype=np.float64, na_value=np.nan)
            return np.ascontiguousarray(values, dtype=np.float64)
        except (TypeError, ValueError):
            raise ValueError(f"column {column.key!r} of X needs numbers, got {values.dtype}") from None

    def _column(self, column: Column) -> Any:
        position, names = column.position, self.table.names
        if names is not None and isinstance(column.key, str):
            if column.key not in names:
                raise ValueError(f"X has no column {column.key!r}, which the rules use; it has {names}")
            position = names.index(column.key)
        elif position < 0:
            raise ValueError(f"the rules use column {column.key!r}, which only a data frame can have")
        elif position >= self.width:
            raise ValueError(f"X has {self.width} columns, but the rules use column {position}")
        return self.table.column(position)
