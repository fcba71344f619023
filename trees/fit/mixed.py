"""Data frames with categories or missing values: the columns that trees cut, and the space of their costs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from neonxc.common.registry import pack_fields, register
from neonxc.data.kinds import column_kind, plain
from neonxc.data.table import Table
from neonxc.pipelines.encoding import Encoding
from neonxc.pipelines.parts import Indicator, Number, Part
from neonxc.trees.fit.points import Dense, check_size
from neonxc.trees.fit.reference import Reference, cluster_centers, medians


@dataclass(frozen=True)
class Standardized:
    """The space in which costs of a data frame are measured: standardized numbers and one-hot categories.

    Attributes
    ----------
    encoding : Encoding
        One column for every numeric column, with missing values replaced by the median, and one for every
        category.
    mean, scale : Tensor [D]
        Mean and standard deviation of every column; 0 and 1 for categories.
    """

    encoding: Encoding
    mean: Tensor
    scale: Tensor

    def transform(self, X: Any) -> Tensor:
        """Transform a data frame to points of this space, [N, D] of float64."""
        return self.encoding.encode(X).sub_(self.mean).div_(self.scale)


@dataclass(frozen=True)
class MixedTable:
    """Numeric tables made from a data frame with categories or missing values.

    Attributes
    ----------
    encoding : Encoding
        Encoding of the columns that are cut. Every category has a one-hot column. A numeric column with missing
        values has two columns: in one, missing values are replaced by the minimum, so that cuts send them left,
        and in the other by the maximum. A third column tells whether the value is missing.
    cut : Dense
        The selected points in these columns.
    filled : Dense
        The same with missing numbers replaced by the median; centers are means of these points.
    space : Dense
        The selected points in the space of the costs.
    steps : Standardized
        The transformation to that space.
    """

    encoding: Encoding
    cut: Dense
    filled: Dense
    space: Dense
    steps: Standardized


def read_mixed(X: Any, kept: Tensor | None, weight: Tensor | None) -> MixedTable:
    """Encode a data frame.

    Parameters
    ----------
    X : data frame [n, d]
    kept : Tensor [points] or None
        Indices of the selected rows; None for all. Missing values are replaced by statistics of these rows, while
        categories are taken from all rows.
    weight : Tensor [points] or None
        Weights of the selected rows.

    Raises
    ------
    ValueError
        If a column holds dates or other objects, or infinite numbers.
    """
    frame = Table.read(X).frame()
    columns = tuple(frame.columns)
    rows = slice(None) if kept is None else kept.cpu().numpy()
    made = [_parts(frame.iloc[:, i], i, rows, weight) for i in range(len(columns))]
    bad = [name for name, parts in zip(columns, made, strict=True) if parts is None]
    if bad:
        raise ValueError(f"X has columns that are neither numbers nor categories: {bad}; drop or encode them")
    cut, filled, space = (list(chain(*parts)) for parts in zip(*filter(None, made), strict=True))
    places = {part: place for place, part in enumerate(dict.fromkeys([*cut, *filled, *space]))}
    every = Encoding(columns, tuple(places)).encode(frame.iloc[rows])

    def table(parts: list[Part]) -> Dense:
        return Dense(every[:, [places[part] for part in parts]])

    points = table(space)
    encoding = Encoding(columns, tuple(space))
    check_size(points, encoding.names)
    mean = points.means(torch.zeros(points.n, dtype=torch.int64), 1, weight)[0].where(encoding.is_number, 0)
    scale = points.variances(torch.arange(points.n), weight).sqrt()
    steps = Standardized(encoding, mean, scale.where(encoding.is_number & (scale > 0), 1))
    points = Dense(points.data.sub_(steps.mean).div_(steps.scale))
    tested = table(cut)
    middles = tested if cut == filled else table(filled)
    return MixedTable(Encoding(columns, tuple(cut)), tested, middles, points, steps)


def centers_in_columns(reference: Reference, mixed: MixedTable, metric: str, weight: Tensor | None) -> Reference:
    """Complete the reference clustering of an encoded data frame by centers in the columns that are cut."""
    k = len(reference.classes)
    centers = cluster_centers(mixed.filled, reference.labels, k, metric, weight)
    if reference.steps is not None:  # costs are measured in the space of a pipeline
        return replace(reference, centers=centers)
    space_centers = cluster_centers(mixed.space, reference.labels, k, metric, weight)
    return replace(reference, centers=centers, space_centers=space_centers, steps=mixed.steps)


def _parts(column: pd.Series, i: int, rows: Any, weight: Tensor | None) -> tuple[list[Part], ...] | None:
    """Parts of the encodings `cut`, `filled` and `space` for the i-th column; None if it can't be encoded."""
    kind = column_kind(column)
    if kind == "category" or column.isna().all():
        each: list[Part] = [Indicator(i, (value,)) for value in _categories(column)]
        tested = each[1:] if len(each) == 2 else each  # of two categories, one column is enough
        return tested, tested, each
    if kind != "number":
        return None
    values = column.to_numpy(dtype=np.float64, na_value=np.nan)
    if not np.isnan(values).any():
        return [Number(i)], [Number(i)], [Number(i)]
    least, median, most = (Number(i, fill) for fill in _fills(values, values[rows], weight))
    missing = Indicator(i, (None,))
    return [missing, least, most], [missing, median, median], [median]


def _categories(column: pd.Series) -> list[Any]:
    """Distinct values of a column in alphabetical order; None, for missing values, comes last."""
    found = {*map(plain, column.unique())}
    return sorted(found - {None}, key=str) + [None] * (None in found)


def _fills(column: np.ndarray, selected: np.ndarray, weight: Tensor | None) -> tuple[float, float, float]:
    """Minimum, median and maximum of the selected values; of the whole column if all of those are missing."""
    known = ~np.isnan(selected)
    if not known.any():
        selected = column
        known = ~np.isnan(column)
        weight = None
    values = torch.from_numpy(selected[known])
    weight = None if weight is None else weight.cpu()[torch.from_numpy(known)]
    return float(values.min()), float(medians(values[None], weight)), float(values.max())


register(Standardized, pack_fields, lambda cls, values: cls(**values))
