"""Translates conditions on encoded columns (codes or one-hot columns) to conditions on the original categories."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import Any

from neonxc.inputs import is_missing
from neonxc.rules.condition import Column, Condition
from neonxc.trees.decoding import holds, one_of


class Categories:
    """The columns of a tree that hold codes of categories, or are 1 for one category and 0 for all others.

    Parameters
    ----------
    columns : list of Column
        Columns of the tree.
    categories : mapping
        The categories of every column of the original table.

    Raises
    ------
    ValueError
        If no column of the tree holds the codes or the one-hot encoding of an original column.
    """

    def __init__(self, columns: list[Column], categories: Mapping[str, Sequence[Any]]) -> None:
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
            sides: dict[bool, list[Any]] = {True: [], False: []}
            for code, value in values.items():
                sides[holds(condition.intervals, code)].append(value)
            # Unlisted codes are above all others; a condition without an upper limit includes them by "none of"
            negated = len(sides[False]) < len(sides[True]) + (condition.high == inf)
            return Condition(column, values=tuple(sides[not negated]), negated=negated)
        if position in self.single:
            column, value = self.single[position]
            return one_of(column, (value,), holds(condition.intervals, 0), holds(condition.intervals, 1))
        return condition
