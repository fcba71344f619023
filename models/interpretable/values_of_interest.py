"""Columns as a few values, categories or bins of numbers, and the values of interest that they define."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from torch import Tensor

from neonxc.common.arguments import check_columns
from neonxc.data.inputs import as_array
from neonxc.data.kinds import column_kind, computable, plain
from neonxc.data.table import Table
from neonxc.rules import Column, Condition


class Coding(NamedTuple):
    """Codes 0, 1, ... of the values of a column: of bins or listed values, and last of a missing value.

    The bins are ``edges[i-1] < x <= edges[i]``, also below the first and above the last edge.
    """

    edges: list[float] | None  # None if the values are listed
    values: list[Any]
    missing: bool

    def codes(self, column: pd.Series) -> np.ndarray:
        """Codes of a column, [n]; -1 for unknown values."""
        positions, distinct = pd.factorize(column)
        if self.edges is None:
            size = len(self.values)
            known = {value: code for code, value in enumerate(self.values)}
            codes: Any = [known.get(plain(value), -1) for value in distinct]
        else:
            size = len(self.edges) + 1
            codes = np.searchsorted(self.edges, np.asarray(distinct, np.float64))
        # The position of a missing value is -1
        return np.append(codes, size if self.missing else -1).astype(np.int64)[positions]


def fit_coding(
    column: pd.Series, n_bins: int | Sequence[float], position: int = 0
) -> tuple[Coding, list[Condition]]:
    """Learn the coding of a column, and the condition that each code stands for.

    Parameters
    ----------
    column : Series [n]
        Numbers, or categories of any kind. A missing value (None, NaN, NA) is a value of its own.
    n_bins : int or sequence of float
        Columns with more distinct numbers than this are divided into this number of bins of about equal frequency;
        equal numbers are in the same bin. A sequence gives the inner edges of the bins, which include their upper
        edges.
    position : int
        Position of the column in its table.

    Raises
    ------
    ValueError
        If a number is infinite, or the column holds times or objects such as lists.
    """
    name = column.name
    dtype = column.dtype
    kind = column_kind(column)
    if kind in ("time", "object"):
        held, better = (
            ("dates or times", "such as days") if kind == "time" else ("lists or other objects", "or text")
        )
        raise ValueError(f"column {name!r} holds {held}; convert it to numbers, {better}")
    present = column.dropna()
    edges = None
    ends = []
    gaps = []
    whole = False
    if kind == "category":
        values = sorted({*map(plain, present.unique())}, key=lambda level: (isinstance(level, str), level))
        if getattr(dtype, "ordered", False):
            values.sort(key=[*map(plain, dtype.categories)].index)
    else:
        numbers, counts = np.unique(present.to_numpy(getattr(dtype, "numpy_dtype", None)), return_counts=True)
        if not np.isfinite(numbers).all():
            raise ValueError(f"column {name!r} has a value that is not finite")
        values = numbers.tolist()
        if not isinstance(n_bins, int | np.integer):
            edges = [*map(float, n_bins)]
        elif len(numbers) > n_bins:
            below = counts.cumsum()[:-1]
            last = {np.abs(below - i * counts.sum() / n_bins).argmin() for i in range(1, n_bins)}
            gaps = [(float(values[i]), float(values[i]), float(values[i + 1])) for i in sorted(last)]
            edges = [edge for edge, *_ in gaps]
        if edges is not None:
            values = []
            ends = [-inf, *edges, inf]
            whole = bool((numbers % 1 == 0).all())
    described = Column(position, name, whole=whole, gaps=tuple(gaps))
    missing = len(present) < len(column)
    conditions = [Condition(described, (pair,)) for pair in pairwise(ends)]
    conditions += [Condition(described, values=(value,)) for value in [*values, *[None] * missing]]
    return Coding(edges, values, missing), conditions


def as_series(values: Any, name: str | int) -> pd.Series:
    """Convert a column to a series."""
    if isinstance(values, Tensor):
        values = as_array(values.double() if values.is_floating_point() else values)
    return computable(pd.Series(values).rename(name))


def series_of(table: Table, column: int) -> pd.Series:
    """One column of a table, called by its position if the columns have no names."""
    return as_series(table.column(column), column if table.names is None else table.names[column])


def column_positions(table: Table, given: Any, argument: str) -> list[int]:
    """Positions of the columns in `given`, which are names or numbers."""
    # The place of a key, modulo the number of columns, is the position of its column
    keys = [*range(-table.width, table.width), *(table.names or ())]
    given = [given] if isinstance(given, str | Integral) else given
    for column in given:
        if isinstance(column, str) and table.names:
            check_columns(f"{argument}: X", [column], table.names)
        if column not in keys or isinstance(column, bool):
            known = "names" if table.names else "X has no names"
            needed = f"columns of X ({known}, or numbers below {table.width})"
            raise ValueError(f"{argument} needs {needed}, got {column!r}")
    positions = [keys.index(column) % table.width for column in given]
    if not positions or len(set(positions)) < len(positions):
        raise ValueError(f"{argument} needs one or more distinct columns, got {given!r}")
    return positions


@dataclass(frozen=True)
class Interest:
    """The features of interest and the values of interest, which are the occurring combinations of their values.

    Attributes
    ----------
    columns : list of int
        Columns of X that are features of interest; empty if the values were passed as an array, or by default.
    codings : list of Coding
        Coding of each feature of interest.
    codes : ndarray [F, features]
        Combination of codes of each value of interest.
    values : list of str
        Description of each value of interest, [F].
    """

    columns: list[int]
    codings: list[Coding]
    codes: np.ndarray
    values: list[str]

    def read(self, table: Table, foi: Any = None) -> np.ndarray | None:
        """Values of interest of new points, [n], -1 for unknown ones; None if they can't be determined."""
        if foi is not None and len(self.codings) != 1:
            raise ValueError(f"foi in predict needs one feature of interest, but fit had {len(self.codings)}")
        given = [series_of(table, column) for column in self.columns] if foi is None else [_given(foi, len(table))]
        if not given:
            return None
        codes = [coding.codes(column) for coding, column in zip(self.codings, given, strict=True)]
        return pd.MultiIndex.from_arrays(self.codes.T).get_indexer(pd.MultiIndex.from_arrays(codes))


def find_interest(table: Table, foi: Any, n_bins: Any) -> tuple[Interest, np.ndarray]:
    """Find the values of interest, and their codes for all points, [n].

    Raises
    ------
    ValueError
        If a column is unknown, a name is given but the columns have none, an array has a wrong length, or `n_bins`
        is neither a number of bins nor their increasing edges.
    """
    edges = np.atleast_1d(np.asarray(n_bins, dtype=float))
    if not (edges.size and np.isfinite(edges).all() and (np.diff(edges) > 0).all()):
        raise ValueError(f"foi_bins needs a number of bins or their increasing inner edges, got {n_bins!r}")
    if foi is None:
        return Interest([], [], np.zeros((1, 0), np.int64), ["any value"]), np.zeros(len(table), np.int64)
    single = isinstance(foi, str | Integral) and not isinstance(foi, bool)
    several = isinstance(foi, list | tuple) or (np.ndim(foi) == 1 and all(isinstance(item, str) for item in foi))
    columns = []
    if single or (several and len(foi) != len(table)):
        columns = column_positions(table, foi, "foi")
        given = [series_of(table, column) for column in columns]
    else:
        given = [_given(foi, len(table))]
        # Integers are names of groups, like labels, unless edges of bins are given; floats are binned
        if isinstance(n_bins, Integral) and given[0].dtype.kind != "f":
            n_bins = len(table)
    codings, conditions = zip(*(fit_coding(column, n_bins) for column in given), strict=True)
    codes = [coding.codes(column) for coding, column in zip(codings, given, strict=True)]
    occurring, positions = np.unique(np.stack(codes, axis=1), axis=0, return_inverse=True)
    values = [" and ".join(str(of[code]) for of, code in zip(conditions, row, strict=True)) for row in occurring]
    return Interest(columns, [*codings], occurring, values), positions.reshape(-1)


def _given(foi: Any, n: int) -> pd.Series:
    """Check values of interest that are given as an array, one per point."""
    if isinstance(foi, list | tuple) and not all(isinstance(item, Real) for item in foi):
        foi = pd.Series(foi, dtype=object)  # keeps the items of a mixed list, for example with None
    values = foi if isinstance(foi, pd.Series | Tensor) else np.asarray(foi)
    if tuple(values.shape) != (n,):
        raise ValueError(f"foi needs one value per point, shape ({n},), got {tuple(values.shape)}")
    return as_series(values, str(getattr(foi, "name", None) or "foi"))
