"""Data frames with categories or missing values: the columns that trees cut, and the space of their costs.

=========================  =================================  =========================  =======================
column                     `cut`: columns that are tested     `filled`: for the centers  `space`: for the costs
=========================  =================================  =========================  =======================
numbers                    the numbers                        the numbers                standardized numbers
numbers, some missing      is missing; missing = minimum;     is missing; missing =      standardized, missing =
                           missing = maximum                  median                     median
two categories             is the second                      is the second              is each of them
other categories           is each of them                    is each of them            is each of them
=========================  =================================  =========================  =======================
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

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
    parts_of = [_parts(frame.iloc[:, i], i, rows, weight) for i in range(len(columns))]
    unreadable = [name for name, parts in zip(columns, parts_of, strict=True) if parts is None]
    if unreadable:
        raise ValueError(
            f"X has columns that are neither numbers nor categories: {unreadable}; drop or encode them"
        )

    # all parts are encoded at once, each only once
    cut: list[Part] = []
    filled: list[Part] = []
    space: list[Part] = []
    for parts in filter(None, parts_of):
        cut += parts.cut
        filled += parts.filled
        space += parts.space
    distinct = tuple(dict.fromkeys([*cut, *filled, *space]))
    position = {part: i for i, part in enumerate(distinct)}
    encoded = Encoding(columns, distinct).encode(frame.iloc[rows])

    def table(parts: list[Part]) -> Dense:
        return Dense(encoded[:, [position[part] for part in parts]])

    points = table(space)
    steps = _standardized(points, Encoding(columns, tuple(space)), weight)
    points = Dense(points.data.sub_(steps.mean).div_(steps.scale))
    cut_table = table(cut)
    filled_table = cut_table if cut == filled else table(filled)
    return MixedTable(Encoding(columns, tuple(cut)), cut_table, filled_table, points, steps)


def _standardized(points: Dense, encoding: Encoding, weight: Tensor | None) -> Standardized:
    """Fit the transformation of encoded numbers to mean 0 and standard deviation 1; categories stay 0 and 1."""
    check_size(points, encoding.names)
    one_label = torch.zeros(points.n, dtype=torch.int64)
    mean = points.means(one_label, 1, weight)[0]
    scale = points.variances(weight).sqrt()
    is_scaled = encoding.is_number & (scale > 0)
    return Standardized(encoding, mean.where(encoding.is_number, 0), scale.where(is_scaled, 1))


def centers_in_columns(reference: Reference, mixed: MixedTable, metric: str, weight: Tensor | None) -> Reference:
    """Complete the reference clustering of an encoded data frame by centers in the columns that are cut."""
    k = len(reference.classes)
    centers = cluster_centers(mixed.filled, reference.labels, k, metric, weight)
    if reference.steps is not None:  # costs are measured in the space of a pipeline
        return replace(reference, centers=centers)
    space_centers = cluster_centers(mixed.space, reference.labels, k, metric, weight)
    return replace(reference, centers=centers, space_centers=space_centers, steps=mixed.steps)


class ColumnParts(NamedTuple):
    """The encoded columns that one column of a data frame becomes."""

    cut: Sequence[Part]
    filled: Sequence[Part]
    space: Sequence[Part]


def _parts(column: pd.Series, i: int, rows: np.ndarray | slice, weight: Tensor | None) -> ColumnParts | None:
    """Choose the parts of the encodings for the i-th column; return None if it can't be encoded."""
    kind = column_kind(column)
    if kind == "category" or column.isna().all():
        indicators = [Indicator(i, (value,)) for value in _categories(column)]
        tested = indicators[1:] if len(indicators) == 2 else indicators  # of two categories, one column is enough
        return ColumnParts(tested, tested, indicators)
    if kind != "number":
        return None
    values = column.to_numpy(dtype=np.float64, na_value=np.nan)
    if not np.isnan(values).any():
        return ColumnParts([Number(i)], [Number(i)], [Number(i)])
    fills = _fills(values, values[rows], weight)
    minimum, median, maximum = (Number(i, fill) for fill in fills)
    is_missing = Indicator(i, (None,))
    # twice the median, for the two columns with minimum and maximum
    return ColumnParts([is_missing, minimum, maximum], [is_missing, median, median], [median])


def _categories(column: pd.Series) -> list[Any]:
    """Return the distinct values of a column in alphabetical order; None, for missing values, comes last."""
    values = {*map(plain, column.unique())}
    known = sorted(values - {None}, key=str)
    if None in values:
        return [*known, None]
    return known


def _fills(column: np.ndarray, selected: np.ndarray, weight: Tensor | None) -> tuple[float, float, float]:
    """Return minimum, median and maximum of the selected values; of all values if all of those are missing."""
    known = ~np.isnan(selected)
    if not known.any():
        selected = column
        known = ~np.isnan(column)
        weight = None
    values = torch.from_numpy(selected[known])
    if weight is not None:
        weight = weight.cpu()[torch.from_numpy(known)]
    return float(values.min()), float(medians(values[None], weight)), float(values.max())


register(Standardized, pack_fields, lambda cls, values: cls(**values))
