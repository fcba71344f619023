"""Table that arguments name, and their codings as a few values: their categories, or bins of their numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from numbers import Integral
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor

from neonxc.common.arguments import check_columns
from neonxc.data.inputs import plain
from neonxc.data.table import Table
from neonxc.rules import Column, Condition

PLAIN = (str, bool, int, float)  # types of categories in files and conditions


@dataclass(frozen=True)
class Coding:
    """Codes of the values of a column.

    The bins ``edges[i-1] < x <= edges[i]``, or the listed values, have the codes 0, 1, ... If values may be
    missing, the last code stands for a missing value.
    """

    edges: list[float] | None  # inner edges of the bins; None if the values are listed
    values: list[Any] | None
    missing: bool
    whole: bool = False  # whether all numbers are integers
    gaps: Sequence[tuple[float, float, float]] = ()  # every edge, with the nearest numbers below and above it

    def __len__(self) -> int:
        return self.missing + (len(self.edges or []) + 1 if self.values is None else len(self.values))

    def codes(self, column: Any) -> np.ndarray:
        """Codes of a column, [n]; -1 for unknown values."""
        values = _array(column)
        gone = pd.isna(values)
        if self.values is None:
            codes = np.searchsorted(np.array(self.edges), values.astype(np.float64), side="left")
        else:
            found, different = pd.factorize(values)
            known = {value: code for code, value in enumerate(self.values)}
            codes = np.array([*(known.get(level(value), -1) for value in different), -1])[found]
        codes = codes.astype(np.int64)
        codes[gone] = len(self) - 1 if self.missing else -1
        return codes

    def conditions(self, name: str | int, position: int = 0) -> list[Condition]:
        """The condition on the column that each code stands for."""
        column = Column(position, name, whole=self.whole, gaps=tuple((*gap,) for gap in self.gaps))
        bins = [] if self.edges is None else pairwise([-inf, *self.edges, inf])
        values = [*(self.values or []), *[None] * self.missing]
        return [Condition(column, (pair,)) for pair in bins] + [Condition(column, values=(one,)) for one in values]


def fit_coding(column: Any, n_bins: int | Sequence[float], name: str | int, plain_only: bool = False) -> Coding:
    """Learn the coding of a column, which can then be applied to other data.

    Parameters
    ----------
    column : array, series or tensor [n]
        Numbers, or categories of any kind. A missing value (None, NaN, NA) is a value of its own.
    n_bins : int or sequence of float
        Table with more distinct numbers than this are divided into this number of bins of about equal frequency;
        equal numbers are in the same bin. A sequence gives the inner edges of the bins, which include their upper
        edges.
    name : str or int
        Name of the column in errors.
    plain_only : bool
        Whether categories have to be strings or truth values.

    Raises
    ------
    ValueError
        If a number is infinite, or the column holds dates or, with `plain_only`, other objects.
    """
    values = _array(column)
    if values.dtype.kind in "mM":
        raise ValueError(f"column {name!r} holds dates or durations; convert it to numbers, such as days")
    gone = pd.isna(values)
    missing = bool(gone.any())
    if values.dtype.kind not in "fiu":
        different = pd.unique(values[~gone])
        for value in different if plain_only else []:
            if not isinstance(plain(value), PLAIN):
                raise ValueError(
                    f"column {name!r} holds objects of type {type(value).__name__}; convert them by astype(str)"
                )
        levels = sorted({*map(level, different)}, key=lambda level: (isinstance(level, str), level))
        if isinstance(values.dtype, pd.CategoricalDtype) and values.dtype.ordered:
            levels = [one for one in map(level, values.dtype.categories) if one in levels]
        return Coding(None, levels, missing)
    numbers, counts = np.unique(values[~gone], return_counts=True)
    if not np.isfinite(numbers.astype(np.float64)).all():
        raise ValueError(f"column {name!r} has a value that is not finite")
    whole = bool((numbers == np.round(numbers)).all())
    if not isinstance(n_bins, int | np.integer):
        return Coding([float(edge) for edge in n_bins], None, missing, whole)
    if len(numbers) <= n_bins:
        return Coding(None, numbers.tolist(), missing)
    below = counts.cumsum()[:-1]
    last = {int(np.abs(below - i * counts.sum() / n_bins).argmin()) for i in range(1, int(n_bins))}
    gaps = [(float(numbers[i]), float(numbers[i]), float(numbers[i + 1])) for i in sorted(last)]
    return Coding([edge for edge, _, _ in gaps], None, missing, whole, gaps)


def column_key(table: Table, column: int) -> str | int:
    """Name of a column, or its position if the columns have no names."""
    return column if table.names is None else table.names[column]


def column_positions(table: Table, given: Any, argument: str, otherwise: str = "") -> list[int]:
    """Positions of the columns in `given`; `otherwise` tells in error messages what else is accepted."""
    found = []
    for column in [given] if isinstance(given, str | Integral) else given:
        if isinstance(column, str) and table.names is None:
            raise ValueError(
                f"{argument} has the name {column!r}, but the columns of X have no names; pass a column number"
            )
        if isinstance(column, str):
            check_columns(f"{argument}: X", [column], table.names or ())
            column = (table.names or []).index(column)
        whole = isinstance(column, Integral) and not isinstance(column, bool)
        if not whole or not -table.width <= int(column) < table.width:
            raise ValueError(
                f"{argument} needs columns of X (names, or numbers below {table.width}){otherwise}, got {column!r}"
            )
        found.append(int(column) % table.width)
    if not found or len(set(found)) < len(found):
        raise ValueError(f"{argument} needs one or more distinct columns, got {given!r}")
    return found


def _array(column: Any) -> Any:
    """Convert a column to an array of numbers, or to an array (or pandas array) of other values."""
    if isinstance(column, Tensor):
        return column.detach().cpu().double().numpy() if column.is_floating_point() else column.cpu().numpy()
    values = pd.Series(column)
    if getattr(values.dtype, "kind", "O") in "fiu" and not isinstance(values.dtype, np.dtype):
        return values.to_numpy(dtype=np.float64, na_value=np.nan)  # a nullable dtype of pandas
    return values.to_numpy() if isinstance(values.dtype, np.dtype) else values.array


def level(value: Any) -> Any:
    """Convert a category to a Python string, number or bool; a missing one to None."""
    value = plain(value)
    return value if value is None or isinstance(value, PLAIN) else str(value)
