"""Codings of columns as a few values: their categories, or bins of their numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor

from neonxc.data.inputs import plain
from neonxc.rules import Column, Condition


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
        gone = [Condition(column, values=(None,))] * self.missing
        if self.values is not None:
            return [Condition(column, values=(value,)) for value in self.values] + gone
        return [Condition(column, (pair,)) for pair in pairwise([-inf, *(self.edges or []), inf])] + gone


def column_items(
    column: Any, name: str | int, n_bins: int | Sequence[float], position: int = 0
) -> tuple[np.ndarray, list[Condition]]:
    """Encode a column by a few values that conditions describe.

    Parameters
    ----------
    column : array, series or tensor [n]
        Numbers, or categories of any kind. A missing value (None, NaN, NA) is a value of its own.
    name : str or int
        Name of the column in the conditions, or its position if the columns have no names.
    n_bins : int or sequence of float
        Columns with more distinct numbers than this are divided into this number of bins of about equal frequency;
        equal numbers are in the same bin. A sequence gives the inner edges of the bins, which include their upper
        edges.
    position : int
        Position of the column, for the conditions.

    Returns
    -------
    codes : ndarray [n] of int64
    conditions : list of Condition
        One condition for each code, in ascending order of the values.

    Raises
    ------
    ValueError
        If a number is infinite.

    Examples
    --------
    >>> from neonxc.models.interpretable.columns import column_items
    >>> codes, conditions = column_items([17, 20, 31, 31, 44, 60], "age", 2)
    >>> codes.tolist(), [str(condition) for condition in conditions]
    ([0, 0, 1, 1, 1, 1], ['age ≤ 20', 'age > 20'])
    """
    coding = fit_coding(column, n_bins, name)
    return coding.codes(column), coding.conditions(name, position)


def fit_coding(column: Any, n_bins: int | Sequence[float], name: str | int) -> Coding:
    """Learn the coding of a column, which can then be applied to other data."""
    values = _array(column)
    if values.dtype.kind in "mM":
        raise ValueError(f"column {name!r} holds dates or durations; convert it to numbers, such as days")
    gone = pd.isna(values)
    missing = bool(gone.any())
    if values.dtype.kind not in "fiu":
        return Coding(None, _levels(values, gone), missing)
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


def check_categories(column: Any, name: str | int) -> None:
    """Raise a ValueError if a column holds objects that are neither strings nor numbers."""
    values = _array(column)
    if values.dtype.kind in "fiubmM":
        return
    for value in pd.unique(values[~pd.isna(values)]):
        own = plain(value)
        if not isinstance(own, str | bool | int | float):
            raise ValueError(
                f"column {name!r} holds objects of type {type(own).__name__}; convert them by astype(str)"
            )


def _levels(values: Any, gone: np.ndarray) -> list[Any]:
    """Categories that occur, in the order of an ordered categorical or in alphabetical order."""
    found = {level(value) for value in pd.unique(values[~gone])}
    if isinstance(values.dtype, pd.CategoricalDtype) and values.dtype.ordered:
        return [one for one in map(level, values.dtype.categories) if one in found]
    return sorted(found, key=lambda level: (isinstance(level, str), level))


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
    return value if isinstance(value, str | bool | int | float | None) else str(value)
