"""Data frames with categories or missing values: the columns that trees cut, and where costs are measured."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from neonxc.encoding import Encoding, as_frame, category
from neonxc.encoding.parts import Indicator, Number, Part
from neonxc.estimators import pack_fields
from neonxc.registry import register
from neonxc.trees.reference import Reference, cluster_centers, medians
from neonxc.trees.table import Table

NUMBERS = ("integer", "floating", "mixed-integer-float", "decimal")  # as pandas infers types of objects
CATEGORIES = ("string", "boolean", "categorical", "mixed", "mixed-integer", "empty")


@dataclass(frozen=True)
class Standardized:
    """The space of a table's costs: numbers over their standard deviation, 1 for a category and 0 for all others.

    Attributes
    ----------
    encoding : Encoding
        A column for every number, where the median stands in for a missing one, and for every category.
    mean, scale : Tensor [D]
        Subtracted first, and divided by then; 0 and 1 for categories.
    """

    encoding: Encoding
    mean: Tensor
    scale: Tensor

    def transform(self, X: Any) -> Tensor:
        """Points of the space, [N, D] of float64, from a table."""
        return self.encoding.encode(X).sub_(self.mean).div_(self.scale)


@dataclass(frozen=True)
class MixedTable:
    """A data frame with categories or missing values, as tables of numbers.

    Attributes
    ----------
    encoding : Encoding
        Of the columns that are cut. A category is 1 in a column of its own. A number that is missing in some rows
        is there twice: as the least of all values, so that a cut sends missing ones to the left, and as the
        greatest; whether it is missing is a column, too.
    cut : Table
        Those columns, of the points that count.
    filled : Table
        The same, but for missing numbers, for which the median stands in: centers are means of these.
    space : Table
        Where costs are measured.
    steps : Standardized
        The way there.
    """

    encoding: Encoding
    cut: Table
    filled: Table
    space: Table
    steps: Standardized

    @property
    def numbers(self) -> Tensor:
        """Whether a column that is cut holds numbers, [D]; the others are 0 or 1."""
        return torch.tensor([isinstance(part, Number) for part in self.encoding.parts])


def is_mixed(X: Any) -> bool:
    """Whether a data frame has a column that holds no numbers, or one with missing values."""
    return any(dtype.kind not in "fiub" for dtype in X.dtypes) or bool(X.isna().to_numpy().any())


def read_mixed(X: Any, kept: Tensor | None, weight: Tensor | None) -> MixedTable:
    """Read a data frame.

    Parameters
    ----------
    X : data frame [n, d]
    kept : Tensor [points] or None
        The rows that count; None for all. What their columns hold stands in for what is missing; the categories
        are those of all rows.
    weight : Tensor [points] or None
        Of these rows.

    Raises
    ------
    ValueError
        Columns of dates or other objects, infinite numbers.
    """
    frame = as_frame(X)
    columns = tuple(frame.columns)
    rows = slice(None) if kept is None else kept.cpu().numpy()
    made = [_parts(frame.iloc[:, i], i, rows, weight) for i in range(len(columns))]
    bad = [name for name, parts in zip(columns, made, strict=True) if parts is None]
    if bad:
        raise ValueError(f"X has columns that are neither numbers nor categories: {bad}; drop or encode them")
    cut, filled, space = (list(chain(*parts)) for parts in zip(*filter(None, made), strict=True))
    places = {part: place for place, part in enumerate(dict.fromkeys([*cut, *filled, *space]))}
    every = Encoding(columns, tuple(places)).encode(frame.iloc[rows])

    def table(parts: list[Part]) -> Table:
        return Table(every[:, [places[part] for part in parts]])

    points = table(space)
    steps = _standardized(points, Encoding(columns, tuple(space)), weight)
    points.data.sub_(steps.mean).div_(steps.scale)
    tested = table(cut)
    middles = tested if cut == filled else table(filled)
    return MixedTable(Encoding(columns, tuple(cut)), tested, middles, points, steps)


def centers_in_columns(found: Reference, made: MixedTable | None, metric: str, weight: Tensor | None) -> Reference:
    """A reference clustering of a data frame with categories or missing values, with centers in its columns."""
    if made is None:
        return found
    k = len(found.classes)
    centers = cluster_centers(made.filled, found.labels, k, metric, weight)
    if found.steps is not None:  # a pipeline has a space of its own
        return replace(found, centers=centers)
    space_centers = cluster_centers(made.space, found.labels, k, metric, weight)
    return replace(found, centers=centers, space_centers=space_centers, steps=made.steps)


def _parts(column: pd.Series, i: int, rows: Any, weight: Tensor | None) -> tuple[list[Part], ...] | None:
    """What the i-th column becomes where it is cut, filled and a part of costs; None for dates, say."""
    found = pd.api.types.infer_dtype(column, skipna=True)
    if isinstance(column.dtype, pd.CategoricalDtype) or found in CATEGORIES or column.isna().all():
        each: list[Part] = [Indicator(i, (value,)) for value in _categories(column)]
        some = each[1:] if len(each) == 2 else each  # what is not the one is the other
        return some, some, each
    if found not in NUMBERS:
        return None
    values = column.to_numpy(dtype=np.float64, na_value=np.nan)
    if not np.isnan(values).any():
        return [Number(i)], [Number(i)], [Number(i)]
    least, median, most = (Number(i, fill) for fill in _fills(values, values[rows], weight))
    missing = Indicator(i, (None,))
    return [missing, least, most], [missing, median, median], [median]


def _categories(column: pd.Series) -> list[Any]:
    """The different values of a column in alphabetical order; None, for a missing one, is the last."""
    try:
        found = {category(value) for value in column.unique()}
    except ValueError as error:
        raise ValueError(f"column {column.name!r} of X: {error}") from None
    return sorted(found - {None}, key=str) + [None] * (None in found)


def _fills(column: np.ndarray, some: np.ndarray, weight: Tensor | None) -> tuple[float, float, float]:
    """The least value, the median and the greatest of some rows of a column; of all rows, if those have none."""
    known = ~np.isnan(some)
    if not known.any():
        some, known, weight = column, ~np.isnan(column), None
    values = torch.from_numpy(some[known])
    weight = None if weight is None else weight.cpu()[torch.from_numpy(known)]
    return float(values.min()), float(medians(values[None], weight)), float(values.max())


def _standardized(table: Table, encoding: Encoding, weight: Tensor | None) -> Standardized:
    """What a table's numbers are shifted and divided by."""
    table.check_size(encoding.names)
    number = torch.tensor([isinstance(part, Number) for part in encoding.parts])
    every = torch.zeros(table.n, dtype=torch.int64)
    mean = table.means(every, 1, weight)[0].where(number, 0)
    scale = table.variances(torch.arange(table.n), weight).sqrt()
    return Standardized(encoding, mean, scale.where(number & (scale > 0), 1))


register(Standardized, pack_fields, lambda cls, values: cls(**values))
