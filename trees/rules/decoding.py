"""Translates conditions on the columns that a tree tests to conditions on the table that they encode."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import Any

from torch import Tensor

from neonxc.data.inputs import is_missing
from neonxc.pipelines.encoding import Encoding
from neonxc.pipelines.parts import Indicator, Number
from neonxc.rules.condition import Column, Condition
from neonxc.rules.intervals import EVERYTHING, Intervals

MISSING = (None,)


class Decoding:
    """Translates the tests of a tree to the columns of the table that the tree has encoded.

    Parameters
    ----------
    encoding : Encoding
        Encoding of the table as numbers and indicators.
    columns : sequence of Column
        Columns of the table.
    """

    def __init__(self, encoding: Encoding, columns: Sequence[Column]) -> None:
        self.parts, self.columns = encoding.parts, columns
        self.numbers = {part.column for part in encoding.parts if isinstance(part, Number)}

    def decoded(self, conditions: Iterable[Condition]) -> tuple[Condition, ...]:
        """Translate conditions; those on the same column of the table are combined."""
        found = map(_on_missing, _by_column(map(self._decoded, conditions)))
        return tuple(condition for condition in found if not condition.is_always_met)

    def one(self, feature: int, test: Intervals) -> Condition:
        """Translate a single test."""
        return _on_missing(self._decoded(Condition(Column(feature), test)))

    def _decoded(self, condition: Condition) -> Condition:
        part, met = self.parts[condition.feature], condition.intervals
        column = self.columns[part.column]
        if isinstance(part, Number):
            return Condition(column, met, missing=part.fill is not None and _holds(met, part.fill))
        assert isinstance(part, Indicator)
        zero, one = _holds(met, 0), _holds(met, 1)
        if part.column in self.numbers:  # the indicator is 1 where the number is missing
            return Condition(column, EVERYTHING if zero else (), missing=one)
        return _one_of(column, part.values, zero, one)


class Categories:
    """Translates conditions on encoded columns (codes or one-hot) to conditions on the original categories.

    Parameters
    ----------
    columns : sequence of Column
        Columns of the tree.
    categories : mapping
        The categories of every column of the original table.
    boolean : Tensor [columns] of bool, or None
        Columns that hold truth values; None if no column does.

    Raises
    ------
    ValueError
        If no column of the tree holds the codes or the one-hot encoding of an original column.
    """

    def __init__(
        self, columns: Sequence[Column], categories: Mapping[str, Sequence[Any]], boolean: Tensor | None
    ) -> None:
        self.columns, self.boolean = columns, boolean
        self.codes: dict[int, tuple[Column, dict[int, Any]]] = {}
        self.single: dict[int, tuple[Column, Any]] = {}
        positions = {str(column.key): column.position for column in columns}
        if not isinstance(categories, Mapping):
            raise TypeError(f"categories needs a mapping {{column: categories}}, got {type(categories).__name__}")
        for key, values in categories.items():
            if isinstance(values, str) or len(set(values)) < len(values):
                raise ValueError(f"categories[{key!r}] needs a sequence of distinct categories, got {values!r}")
            before = Column(-1, key)
            if key in positions:
                before = Column(-1, key, columns[positions[key]].name)
                known = dict(enumerate(value for value in values if not is_missing(value)))
                self.codes[positions[key]] = before, known | {-1: None} if any(map(is_missing, values)) else known
                continue
            one_hot = {}
            for value in values:
                name = f"{key}_{value}"
                if is_missing(value) and name not in positions:
                    name = f"{key}_nan"
                if name in positions:
                    one_hot[positions[name]] = value
            if not one_hot:
                raise ValueError(
                    f"categories: the tree has no column {key!r} of codes, and no column "
                    f"{f'{key}_{next(iter(values), None)}'!r} of zeros and ones"
                )
            self.single |= {position: (before, value) for position, value in one_hot.items()}

    @property
    def known(self) -> bool:
        """Whether any column is encoded."""
        return bool(self.codes or self.single)

    def decoded(self, conditions: Iterable[Condition]) -> tuple[Condition, ...]:
        """Translate conditions on encoded columns; those on the same original column are combined."""
        return tuple(one for one in _by_column(map(self._decoded, conditions)) if not one.is_always_met)

    def one(self, feature: int, test: Intervals) -> Condition:
        """Translate a single test."""
        return self._decoded(Condition(self.columns[feature], test))

    def _decoded(self, condition: Condition) -> Condition:
        position = condition.feature
        if position in self.codes:
            column, values = self.codes[position]
            sides: dict[bool, list[Any]] = {True: [], False: []}
            for code, value in values.items():
                sides[_holds(condition.intervals, code)].append(value)
            # Unlisted codes are above all others; a condition without an upper limit includes them by "none of"
            negated = len(sides[False]) < len(sides[True]) + (condition.high == inf)
            return Condition(column, values=tuple(sides[not negated]), negated=negated)
        if position in self.single:
            column, value = self.single[position]
            return _one_of(column, (value,), _holds(condition.intervals, 0), _holds(condition.intervals, 1))
        if self.boolean is not None and self.boolean[position]:
            allowed = tuple(truth for truth in (False, True) if _holds(condition.intervals, truth))
            return Condition(condition.column, values=allowed)  # never negated: a missing value meets neither
        return condition


def _by_column(conditions: Iterable[Condition]) -> Iterable[Condition]:
    """Combine the conditions on each column into one."""
    found: dict[Column, Condition] = {}
    for new in conditions:
        old = found.get(new.column)
        found[new.column] = new if old is None else old.intersect(new)
    return found.values()


def _on_missing(condition: Condition) -> Condition:
    """Rewrite a condition on a number that only depends on whether the number is missing."""
    if condition.values is None and not condition.intervals and condition.missing:
        return Condition(condition.column, values=MISSING)
    if condition.values is None and condition.intervals == EVERYTHING and not condition.missing:
        return Condition(condition.column, values=MISSING, negated=True)
    return condition


def _one_of(column: Column, values: Sequence[Any], zero: bool, one: bool) -> Condition:
    """Condition on a column from the allowed states of the indicator of `values`: 0, 1 or both."""
    if zero and one:
        return Condition(column, values=(), negated=True)
    return Condition(column, values=tuple(values) if one or zero else (), negated=zero)


def _holds(intervals: Intervals, number: float) -> bool:
    """Whether a number lies in one of the intervals."""
    return any(low < number <= high for low, high in intervals)
