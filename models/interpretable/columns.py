"""The values that a column is said to have: its categories, or bins of its numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor

from neonxc.inputs import plain
from neonxc.rules import Column, Condition


@dataclass(frozen=True)
class Coding:
    """Which numbers stand for the values of a column.

    Bins ``edges[i-1] < x <= edges[i]`` have the codes 0, 1, ..., and so have listed values. A missing value has
    the last code if it is a value of its own.
    """

    edges: list[float] | None  # of bins; None: the values are listed
    values: list[Any] | None
    missing: bool
    whole: bool = False  # whether all are whole numbers
    gaps: Sequence[tuple[float, float, float]] = ()  # of each edge with the numbers next to it

    def __len__(self) -> int:
        return self.missing + (len(self.edges or []) + 1 if self.values is None else len(self.values))

    def codes(self, column: Any) -> np.ndarray:
        """Codes [n]; -1 for a value that is not known."""
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


def items(
    column: Any, name: str | int, n_bins: int | Sequence[float], position: int = 0
) -> tuple[np.ndarray, list[Condition]]:
    """Read a column as values that can be said.

    Parameters
    ----------
    column : array, series or tensor [n]
        Numbers, or categories of any kind. Missing ones (None, NaN, NA) are a value of their own.
    name : str or int
        What conditions call the column; its position where columns have no names.
    n_bins : int or sequence of float
        Numbers with more different values than this are cut into so many bins of about equal frequency; equal
        numbers are never parted. Or the inner edges of the bins, each of which holds the edge above it.
    position : int
        Of the column, for the conditions.

    Returns
    -------
    codes : ndarray [n] of int64
    conditions : list of Condition
        One for each code, in ascending order of the values.

    Raises
    ------
    ValueError
        Numbers that are infinite.

    Examples
    --------
    >>> from neonxc.models.interpretable.columns import items
    >>> codes, conditions = items([17, 20, 31, 31, 44, 60], "age", 2)
    >>> codes.tolist(), [str(condition) for condition in conditions]
    ([0, 0, 1, 1, 1, 1], ['age ≤ 20', 'age > 20'])
    """
    coding = coded(column, n_bins, name)
    return coding.codes(column), conditions(coding, name, position)


def coded(column: Any, n_bins: int | Sequence[float], name: str | int) -> Coding:
    """How to code a column and others like it."""
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
    last = _last(counts, int(n_bins))
    gaps = [(float(numbers[i]), float(numbers[i]), float(numbers[i + 1])) for i in last]
    return Coding([edge for edge, _, _ in gaps], None, missing, whole, gaps)


def check_categories(column: Any, name: str | int) -> None:
    """Refuse a column of objects that are neither names nor numbers, which no query could ask for."""
    values = _array(column)
    if values.dtype.kind in "fiubmM":
        return
    for value in pd.unique(values[~pd.isna(values)]):
        own = plain(value)
        if not isinstance(own, str | bool | int | float):
            raise ValueError(
                f"column {name!r} holds objects of type {type(own).__name__}; convert them by astype(str)"
            )


def conditions(coding: Coding, name: str | int, position: int = 0) -> list[Condition]:
    """What the column is like that has each of the codes."""
    column = Column(
        position,
        name,
        whole=coding.whole,
        gaps=tuple((bound, below, above) for bound, below, above in coding.gaps),
    )
    gone = [Condition(column, values=(None,))] * coding.missing
    if coding.values is not None:
        return [Condition(column, values=(value,)) for value in coding.values] + gone
    bounds = [-inf, *(coding.edges or []), inf]
    return [Condition(column, (pair,)) for pair in pairwise(bounds)] + gone


def _last(counts: np.ndarray, n_bins: int) -> list[int]:
    """The last numbers of all bins but the last, up to which the shares are nearest to 1/n_bins, 2/n_bins, ..."""
    below = counts.cumsum()[:-1]
    return sorted({int(np.abs(below - i * counts.sum() / n_bins).argmin()) for i in range(1, n_bins)})


def _levels(values: Any, gone: np.ndarray) -> list[Any]:
    """The categories that occur, in their own order or that of the alphabet."""
    found = {level(value) for value in pd.unique(values[~gone])}
    if isinstance(values.dtype, pd.CategoricalDtype) and values.dtype.ordered:
        return [one for one in map(level, values.dtype.categories) if one in found]
    return sorted(
        found, key=lambda level: (isinstance(level, str), str(level) if isinstance(level, str) else level)
    )


def _array(column: Any) -> Any:
    """An array of numbers, or an array (of pandas) of something else."""
    if isinstance(column, Tensor):
        return column.detach().cpu().double().numpy() if column.is_floating_point() else column.cpu().numpy()
    values = pd.Series(column)
    if getattr(values.dtype, "kind", "O") in "fiu" and not isinstance(values.dtype, np.dtype):
        return values.to_numpy(dtype=np.float64, na_value=np.nan)  # numbers of pandas, which may be NA
    return values.to_numpy() if isinstance(values.dtype, np.dtype) else values.array


def level(value: Any) -> Any:
    """A category as Python's own number, truth value or text, and None for a missing one."""
    value = plain(value)
    return value if isinstance(value, str | bool | int | float | None) else str(value)
