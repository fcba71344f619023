"""Data that rules are applied to; each column that the conditions use is read only once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neonxc.data.frames import as_pandas, column_names
from neonxc.data.inputs import check_width
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
        X = as_pandas(X)
        if not hasattr(X, "iloc"):
            X = X.tocsc() if hasattr(X, "tocsc") else X if isinstance(X, Tensor) else np.asarray(X)
            if X.ndim != 2:
                raise ValueError(f"X needs shape [points, features], got {list(X.shape)}")
            if n_features is not None:
                check_width(X.shape[1], n_features)
        self.X = X
        on_cpu = not isinstance(X, Tensor) or X.device.type == "cpu"
        self.device = None if on_cpu else X.device  # device of the masks; None: masks are NumPy arrays
        self.names = column_names(X)
        self._numbers: dict[Any, Any] = {}
        self._categories: dict[Any, tuple[np.ndarray, np.ndarray]] = {}

    def __len__(self) -> int:
        return int(self.X.shape[0])

    def matches(self, conditions: Iterable[Condition]) -> Any:
        """Test which points meet all conditions, [N] of bool: a tensor if X is a tensor, else an array."""
        met: Any = np.ones(len(self), dtype=bool)
        if self.device is not None:
            met = torch.from_numpy(met).to(self.device)
        for condition in conditions:
            met &= self._matches(condition)
        return torch.from_numpy(met) if isinstance(self.X, Tensor) and self.device is None else met

    def _matches(self, condition: Condition) -> Any:
        column = condition.column
        if condition.values is None:
            if column.key not in self._numbers:
                self._numbers[column.key] = self._as_numbers(column)
            return condition.matches(self._numbers[column.key])
        if column.key not in self._categories:
            self._categories[column.key] = self._as_categories(column)
        codes, categories = self._categories[column.key]
        met = condition.matches(categories).take(codes)
        return met if self.device is None else torch.from_numpy(met).to(self.device)

    def _as_numbers(self, column: Column) -> Any:
        """Return a numeric column in float64, NaN for missing values; contiguous, because it is read often."""
        values = self._column(column)
        if isinstance(values, Tensor):
            values = values.detach().double().contiguous()
            return values.numpy() if self.device is None else values
        try:
            if self.names is not None:
                return np.ascontiguousarray(values.to_numpy(dtype=np.float64, na_value=np.nan))
            return np.ascontiguousarray(values, dtype=np.float64)
        except (TypeError, ValueError):
            raise ValueError(f"column {column.key!r} of X needs numbers, got {values.dtype}") from None

    def _as_categories(self, column: Column) -> tuple[np.ndarray, np.ndarray]:
        """Return codes [N] and the categories that they index; the last category, None, stands for missing."""
        import pandas as pd

        values = self._column(column)
        codes, found = pd.factorize(values.cpu().numpy() if isinstance(values, Tensor) else values)
        return codes, np.array([*found.tolist(), None], dtype=object)

    def _column(self, column: Column) -> Any:
        position, width = column.position, self.X.shape[1]
        if self.names is not None and isinstance(column.key, str):
            if column.key not in self.names:
                raise ValueError(f"X has no column {column.key!r}, which the rules use; it has {self.names}")
            position = self.names.index(column.key)
        elif position < 0:
            raise ValueError(f"the rules use column {column.key!r}, which only a data frame can have")
        elif position >= width:
            raise ValueError(f"X has {width} columns, but the rules use column {position}")
        if self.names is not None:
            return self.X.iloc[:, position]
        return self.X[:, [position]].toarray()[:, 0] if hasattr(self.X, "tocsc") else self.X[:, position]
