"""Translates conditions on the numeric columns of an encoded table to conditions on the table's own columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from neonxc.encoding import Encoding
from neonxc.encoding.parts import Indicator, Number
from neonxc.rules.condition import Column, Condition
from neonxc.rules.intervals import EVERYTHING, Intervals

MISSING = (None,)


class Decoding:
    """Translates the tests of a tree to the columns of the table that was encoded.

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
        found: dict[int, Condition] = {}
        for condition in conditions:
            new = self._decoded(condition)
            old = found.get(new.feature)
            found[new.feature] = new if old is None else old.both(new)
        decoded = map(_on_missing, found.values())
        return tuple(condition for condition in decoded if not condition.is_always_met)

    def one(self, feature: int, test: Intervals) -> Condition:
        """Translate a single test."""
        return _on_missing(self._decoded(Condition(Column(feature), test)))

    def _decoded(self, condition: Condition) -> Condition:
        part, met = self.parts[condition.feature], condition.intervals
        column = self.columns[part.column]
        if isinstance(part, Number):
            return Condition(column, met, missing=part.fill is not None and holds(met, part.fill))
        assert isinstance(part, Indicator)
        zero, one = holds(met, 0), holds(met, 1)
        if part.column in self.numbers:  # the indicator is 1 where the number is missing
            return Condition(column, EVERYTHING if zero else (), missing=one)
        return one_of(column, part.values, zero, one)


def _on_missing(condition: Condition) -> Condition:
    """Rewrite a condition on a number that only depends on whether the number is missing."""
    if condition.values is None and not condition.intervals and condition.missing:
        return Condition(condition.column, values=MISSING)
    if condition.values is None and condition.intervals == EVERYTHING and not condition.missing:
        return Condition(condition.column, values=MISSING, negated=True)
    return condition


def canonical_columns(encoding: Encoding) -> list[int]:
    """For every encoded column, the first column with the same tests up to the side of missing numbers."""
    keys = [(part.column, None if isinstance(part, Number) else part.values) for part in encoding.parts]
    first = {key: i for i, key in reversed(list(enumerate(keys)))}
    return [first[key] for key in keys]


def one_of(column: Column, values: Sequence[Any], zero: bool, one: bool) -> Condition:
    """Condition on a column from the allowed states of the indicator of `values`: 0, 1 or both."""
    if zero and one:
        return Condition(column, values=(), negated=True)
    return Condition(column, values=tuple(values) if one or zero else (), negated=zero)


def holds(intervals: Intervals, number: float) -> bool:
    """Whether a number lies in one of the intervals."""
    return any(low < number <= high for low, high in intervals)
