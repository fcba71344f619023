"""From conditions on columns of numbers to conditions on the columns of the table that these are made from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from neonxc.encoding import Encoding
from neonxc.encoding.parts import Indicator, Number
from neonxc.rules.condition import Column, Condition
from neonxc.rules.intervals import EVERYTHING, Intervals

MISSING = (None,)


class Decoding:
    """What tests of a tree's columns of numbers mean for the columns of a table.

    Parameters
    ----------
    encoding : Encoding
        Of numbers and indicators.
    columns : sequence of Column
        Those of the table.
    """

    def __init__(self, encoding: Encoding, columns: Sequence[Column]) -> None:
        self.parts, self.columns = encoding.parts, columns
        self.numbers = {part.column for part in encoding.parts if isinstance(part, Number)}

    def decoded(self, conditions: Iterable[Condition]) -> tuple[Condition, ...]:
        """Conditions on the table's columns, one for each column, from conditions on columns of numbers."""
        found: dict[int, Condition] = {}
        for condition in conditions:
            new = self._decoded(condition)
            old = found.get(new.feature)
            found[new.feature] = new if old is None else old.both(new)
        decoded = map(_on_missing, found.values())
        return tuple(condition for condition in decoded if not condition.is_always_met)

    def one(self, feature: int, test: Intervals) -> Condition:
        """A single test as a condition on a column of the table."""
        return _on_missing(self._decoded(Condition(Column(feature), test)))

    def _decoded(self, condition: Condition) -> Condition:
        part, met = self.parts[condition.feature], condition.intervals
        column = self.columns[part.column]
        if isinstance(part, Number):
            return Condition(column, met, missing=part.fill is not None and holds(met, part.fill))
        assert isinstance(part, Indicator)
        zero, one = holds(met, 0), holds(met, 1)
        if part.column in self.numbers:  # which are missing where the indicator is 1
            return Condition(column, EVERYTHING if zero else (), missing=one)
        return one_of(column, part.values, zero, one)


def _on_missing(condition: Condition) -> Condition:
    """Write a condition on a number that only asks whether it is missing as a test of that."""
    if condition.values is None and not condition.intervals and condition.missing:
        return Condition(condition.column, values=MISSING)
    if condition.values is None and condition.intervals == EVERYTHING and not condition.missing:
        return Condition(condition.column, values=MISSING, negated=True)
    return condition


def same_tests(encoding: Encoding) -> list[int]:
    """For every column of numbers the first one that tests the same, but for where missing numbers go."""
    asked = [(part.column, None if isinstance(part, Number) else part.values) for part in encoding.parts]
    first = {what: i for i, what in reversed(list(enumerate(asked)))}
    return [first[what] for what in asked]


def one_of(column: Column, values: Sequence[Any], zero: bool, one: bool) -> Condition:
    """The condition on a column whose indicator of some values may be 0, or 1, or both."""
    if zero and one:
        return Condition(column, values=(), negated=True)
    return Condition(column, values=tuple(values) if one or zero else (), negated=zero)


def holds(intervals: Intervals, number: float) -> bool:
    """Whether a number lies in one of the intervals."""
    return any(low < number <= high for low, high in intervals)
