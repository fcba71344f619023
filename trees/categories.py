"""Conditions on encoded columns, said by the categories that were encoded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import Any

from neonxc.rules.condition import Column, Condition
from neonxc.rules.intervals import Intervals


class Encoding:
    """Which columns of a tree hold codes of categories, or 1 for one category and 0 for all others.

    Parameters
    ----------
    columns : list of Column
    categories : mapping from columns of the table before it was encoded to their categories

    Raises
    ------
    ValueError
        No column holds the codes of a column's categories, or stands for one of them.
    """

    def __init__(self, columns: list[Column], categories: Mapping[str, Sequence[Any]]) -> None:
        self.codes: dict[int, tuple[Column, tuple[Any, ...]]] = {}
        self.single: dict[int, tuple[Column, Any]] = {}
        positions = {str(column.key): column.position for column in columns}
        for key, values in categories.items():
            before = Column(-1, key)
            if key in positions:
                self.codes[positions[key]] = before, tuple(values)
                continue
            one_hot = {positions[f"{key}_{value}"]: value for value in values if f"{key}_{value}" in positions}
            if not one_hot:
                raise ValueError(
                    f"categories names {key!r}, but the tree has no column {key!r} of codes, nor columns such as "
                    f"{f'{key}_{next(iter(values), None)}'!r}"
                )
            self.single |= {position: (before, value) for position, value in one_hot.items()}

    @property
    def known(self) -> bool:
        """Whether any column is encoded."""
        return bool(self.codes or self.single)

    def decoded(self, conditions: Iterable[Condition]) -> tuple[Condition, ...]:
        """Say conditions on encoded columns by categories; those of one column become one."""
        found: dict[Column, Condition] = {}
        for condition in conditions:
            new = self._decoded(condition)
            old = found.get(new.column)
            found[new.column] = new if old is None else old.both(new)
        return tuple(condition for condition in found.values() if not condition.is_always_met)

    def _decoded(self, condition: Condition) -> Condition:
        position = condition.feature
        if position in self.codes:
            column, values = self.codes[position]
            inside = tuple(value for code, value in enumerate(values) if _holds(condition.intervals, code))
            outside = tuple(value for value in values if value not in inside)
            starts_open = (
                condition.intervals and condition.intervals[0][0] == -inf
            )  # the code -1 lies in it: missing
            if starts_open and len(outside) < len(inside):
                return Condition(column, values=outside, negated=True)
            return Condition(column, values=inside)
        if position in self.single:
            column, value = self.single[position]
            zero, one = _holds(condition.intervals, 0), _holds(condition.intervals, 1)
            if zero and one:
                return Condition(column, values=(), negated=True)
            return Condition(column, values=(value,) if one or zero else (), negated=zero)
        return condition


def _holds(intervals: Intervals, number: float) -> bool:
    return any(low < number <= high for low, high in intervals)
