"""Columns as a few values, categories or bins of numbers, and the values of interest that they define.

    code of a cell       the bin of a number, or the position of its value in the list of values; the last code is
                         that of a missing value
    value of interest    a combination of codes of the features of interest that occurs; it is called by its
                         position among the sorted combinations, and described by the conditions of its codes

If the features of interest are an array with one value per point, there is one feature, which is no column of X.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from numbers import Integral, Real
from typing import Any, NamedTuple, TypeAlias, TypeGuard

import numpy as np
import pandas as pd
from torch import Tensor

from neonxc.common.arguments import check_columns
from neonxc.common.types import ArrayLike
from neonxc.data.frames import in_order_of
from neonxc.data.inputs import as_array
from neonxc.data.kinds import column_kind, computable, plain
from neonxc.data.table import Table
from neonxc.rules import Column, Condition

FeaturesOfInterest: TypeAlias = str | int | ArrayLike | None
"""The name or number of a column of X, several of them, or an array [n] with the value of every point."""


class Coding(NamedTuple):
    """Codes 0, 1, ... of the values of a column: of bins or listed values, and last of a missing value.

    The bins are ``edges[i-1] < x <= edges[i]``, also below the first and above the last edge.
    """

    edges: list[float] | None  # None if the values are listed
    values: list[Any]
    missing: bool

    def codes(self, column: pd.Series) -> np.ndarray:
        """Encode a column as codes, [n], which are -1 for unknown values."""
        positions, distinct = pd.factorize(column)
        if self.edges is None:
            n_codes = len(self.values)
            code_of = {value: code for code, value in enumerate(self.values)}
            codes = np.array([code_of.get(plain(value), -1) for value in distinct], dtype=np.int64)
        else:
            n_codes = len(self.edges) + 1
            codes = np.searchsorted(self.edges, np.asarray(distinct, np.float64))

        # The position of a missing value is -1, which selects the code that is appended
        code_of_missing = n_codes if self.missing else -1
        return np.append(codes, code_of_missing).astype(np.int64)[positions]


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
    kind = column_kind(column)
    if kind == "time":
        raise ValueError(f"column {name!r} holds dates or times; convert it to numbers, such as days")
    if kind == "object":
        raise ValueError(f"column {name!r} holds lists or other objects; convert it to numbers, or text")

    present = column.dropna()
    missing = len(present) < len(column)
    if kind == "category":
        coding = Coding(None, _levels(present), missing)
        described = Column(position, name)
    else:
        numbers, counts = _numbers(present)
        edges = None
        gaps: list[tuple[float, float, float]] = []
        if not isinstance(n_bins, int | np.integer):
            edges = [*map(float, n_bins)]
        elif len(numbers) > n_bins:
            gaps = _quantile_gaps(numbers, counts, int(n_bins))
            edges = [edge for edge, *_ in gaps]

        if edges is None:
            coding = Coding(None, numbers.tolist(), missing)
            described = Column(position, name)
        else:
            is_integer = bool((numbers % 1 == 0).all())
            coding = Coding(edges, [], missing)
            described = Column(position, name, whole=is_integer, gaps=tuple(gaps))

    # One condition per code, in their order
    conditions = []
    if coding.edges is not None:
        conditions += [Condition(described, (ends,)) for ends in pairwise([-inf, *coding.edges, inf])]
    conditions += [Condition(described, values=(value,)) for value in coding.values]
    if missing:
        conditions.append(Condition(described, values=(None,)))
    return coding, conditions


def _levels(present: pd.Series) -> list[Any]:
    """List the categories of a column in their order; without one, sorted, with numbers before names."""
    levels = sorted({*map(plain, present.unique())}, key=lambda level: (isinstance(level, str), level))
    if getattr(present.dtype, "ordered", False):
        order = [*map(plain, present.dtype.categories)]
        levels.sort(key=order.index)
    return levels


def _numbers(present: pd.Series) -> tuple[np.ndarray, np.ndarray]:
    """List the distinct numbers of a column without missing values, sorted, and count each of them."""
    dtype = getattr(present.dtype, "numpy_dtype", None)
    numbers, counts = np.unique(present.to_numpy(dtype), return_counts=True)
    if not np.isfinite(numbers).all():
        raise ValueError(f"column {present.name!r} has a value that is not finite")
    return numbers, counts


def _quantile_gaps(numbers: np.ndarray, counts: np.ndarray, n_bins: int) -> list[tuple[float, float, float]]:
    """Find the gaps between bins of about equal frequency: the edge, and the numbers below and above it.

    The edge between bin i - 1 and bin i is the number at which the count of all numbers up to it is nearest to the
    fraction i / n_bins of all, so that equal numbers are in the same bin. Edges that coincide count once.
    """
    counts_up_to = counts.cumsum()[:-1]
    last = {np.abs(counts_up_to - i * counts.sum() / n_bins).argmin() for i in range(1, n_bins)}
    values = numbers.tolist()
    return [(float(values[i]), float(values[i]), float(values[i + 1])) for i in sorted(last)]


def as_series(values: ArrayLike, name: str | int) -> pd.Series:
    """Convert a column to a series."""
    if isinstance(values, Tensor):
        if values.is_floating_point():
            values = values.double()
        values = as_array(values)
    return computable(pd.Series(values).rename(name))


def series_of(table: Table, column: int) -> pd.Series:
    """Convert a column of a table to a series, called by its position if the columns have no names."""
    name = column if table.names is None else table.names[column]
    return as_series(table.column(column), name)


def column_positions(
    table: Table, columns: str | int | Sequence[str | int] | np.ndarray, argument: str
) -> list[int]:
    """Find the positions of columns, which are called by names or numbers, negative ones from the end."""
    # The position of a key, modulo the number of columns, is the position of its column
    keys = [*range(-table.width, table.width), *(table.names or ())]
    if isinstance(columns, str | int | Integral):
        columns = [columns]
    for column in columns:
        if isinstance(column, str) and table.names:
            check_columns(f"{argument}: X", [column], table.names)
        if column not in keys or isinstance(column, bool):
            known = "names" if table.names else "X has no names"
            needed = f"columns of X ({known}, or numbers below {table.width})"
            raise ValueError(f"{argument} needs {needed}, got {column!r}")

    positions = [keys.index(column) % table.width for column in columns]
    if not positions or len(set(positions)) < len(positions):
        raise ValueError(f"{argument} needs one or more distinct columns, got {columns!r}")
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

    def read(self, table: Table, foi: FeaturesOfInterest = None) -> np.ndarray | None:
        """Find the values of interest of new points, [n], -1 for unknown ones; None if X and foi hold none."""
        if foi is not None and len(self.codings) != 1:
            raise ValueError(f"foi in predict needs one feature of interest, but fit had {len(self.codings)}")
        if foi is None:
            features = [series_of(table, column) for column in self.columns]
        else:
            features = [_one_per_point(in_order_of(foi, table, "foi"), len(table))]
        if not features:
            return None
        codes = [coding.codes(feature) for coding, feature in zip(self.codings, features, strict=True)]
        known = pd.MultiIndex.from_arrays(self.codes.T)
        return known.get_indexer(pd.MultiIndex.from_arrays(codes))


def find_interest(
    table: Table, foi: FeaturesOfInterest, n_bins: int | Sequence[float]
) -> tuple[Interest, np.ndarray]:
    """Find the values of interest, and the position of the value of every point among them, [n].

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
        interest = Interest([], [], np.zeros((1, 0), np.int64), ["any value"])
        return interest, np.zeros(len(table), np.int64)

    columns = []
    if _names_columns(foi, len(table)):
        columns = column_positions(table, foi, "foi")
        features = [series_of(table, column) for column in columns]
    else:
        features = [_one_per_point(in_order_of(foi, table, "foi"), len(table))]
        # Integers are names of groups, like labels, unless edges of bins are given; floats are binned
        if isinstance(n_bins, Integral) and features[0].dtype.kind != "f":
            n_bins = len(table)

    codings, conditions = zip(*(fit_coding(feature, n_bins) for feature in features), strict=True)
    codes = [coding.codes(feature) for coding, feature in zip(codings, features, strict=True)]
    combinations, positions = np.unique(np.stack(codes, axis=1), axis=0, return_inverse=True)
    values = []
    for combination in combinations:
        described = [str(of_codes[code]) for of_codes, code in zip(conditions, combination, strict=True)]
        values.append(" and ".join(described))
    return Interest(columns, [*codings], combinations, values), positions.reshape(-1)


def _names_columns(foi: Any, n: int) -> TypeGuard[str | int | Sequence[str | int]]:
    """Tell whether features of interest are columns of X, and not an array with the values of n points."""
    if isinstance(foi, str | Integral) and not isinstance(foi, bool):
        return True
    is_list = isinstance(foi, list | tuple)
    if not is_list and not (np.ndim(foi) == 1 and all(isinstance(item, str) for item in foi)):
        return False
    return len(foi) != n


def _one_per_point(foi: Any, n: int) -> pd.Series:
    """Read values of interest that are an array with one value for each of n points."""
    if isinstance(foi, list | tuple) and not all(isinstance(item, Real) for item in foi):
        foi = pd.Series(foi, dtype=object)  # keeps the items of a mixed list, for example with None
    values = foi if isinstance(foi, pd.Series | Tensor) else np.asarray(foi)
    if tuple(values.shape) != (n,):
        raise ValueError(f"foi needs one value per point, shape ({n},), got {tuple(values.shape)}")
    name = getattr(foi, "name", None) or "foi"
    return as_series(values, str(name))
