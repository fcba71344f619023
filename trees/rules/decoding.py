"""Translates the tests of a tree to conditions on the table that its columns encode."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import inf, nan
from typing import Any

from torch import Tensor

from neonxc.data.inputs import is_missing
from neonxc.pipelines.parts import Number
from neonxc.rules.condition import Column, Condition
from neonxc.rules.intervals import EVERYTHING, Intervals
from neonxc.trees.fitted.tree import ThresholdTree

Decode = Callable[[Intervals], Condition]
"""Translates a test of one column of a tree."""


class Decoding:
    """Translates the tests of a tree to conditions on its table.

    Parameters
    ----------
    tree : ThresholdTree
    columns : sequence of Column
        Columns of the table.
    categories : mapping
        The caller's categories of columns that were encoded before the tree was fitted.

    Raises
    ------
    ValueError
        If the tree knows its categories, or if no column of the tree holds the codes or the one-hot encoding of a
        column in `categories`.
    """

    def __init__(
        self, tree: ThresholdTree, columns: Sequence[Column], categories: Mapping[str, Sequence[Any]]
    ) -> None:
        self.encoded = bool(categories)  # whether the conditions are on another table than the tree's
        self.numbers: set[int] = set()  # columns of a table with gaps
        if tree.encoding is None:
            self.decode = _of_categories(columns, categories, tree.boolean)
            return
        if categories:
            raise ValueError("categories are known to a tree of a table with categories; leave them out")
        self.numbers = {part.column for part in tree.encoding.parts if isinstance(part, Number)}
        self.decode = []
        for part in tree.encoding.parts:
            column = columns[part.column]
            if isinstance(part, Number):
                self.decode.append(partial(_number, column, part.fill))
            elif part.column in self.numbers:  # the indicator is 1 where the number is missing
                self.decode.append(partial(_gap, column))
            else:
                self.decode.append(partial(_listed, column, part.numbers, part.other))

    def one(self, feature: int, test: Intervals) -> Condition:
        """Translate a single test."""
        return self._on_missing(self.decode[feature](test))

    def all(self, tests: Mapping[int, Intervals]) -> tuple[Condition, ...]:
        """Translate the tests of a rule, at most one per column of the tree, to one condition per column."""
        found: dict[Column, Condition] = {}
        for feature, test in tests.items():
            new = self.decode[feature](test)
            found[new.column] = found[new.column].intersect(new) if new.column in found else new
        return tuple(one for one in map(self._on_missing, found.values()) if not one.is_always_met)

    def _on_missing(self, condition: Condition) -> Condition:
        """Rewrite a condition that only depends on whether a number is missing."""
        missing, intervals = condition.missing, condition.intervals
        if condition.feature in self.numbers and intervals in ((), EVERYTHING) and missing != bool(intervals):
            return Condition(condition.column, values=(None,), negated=not missing)
        return condition


def _of_categories(
    columns: Sequence[Column], categories: Mapping[str, Sequence[Any]], boolean: Tensor | None
) -> list[Decode]:
    """Read categories of columns with codes or a one-hot encoding; other columns are translated to themselves."""
    decode: list[Decode] = [partial(Condition, column) for column in columns]
    for position in [] if boolean is None else boolean.nonzero()[:, 0].tolist():  # a missing value meets neither
        decode[position] = partial(_listed, columns[position], {False: 0, True: 1}, nan)
    positions = {str(column.key): column.position for column in columns}
    if not isinstance(categories, Mapping):
        raise TypeError(f"categories needs a mapping {{column: categories}}, got {type(categories).__name__}")
    for key, values in categories.items():
        if isinstance(values, str) or len(set(values)) < len(values):
            raise ValueError(f"categories[{key!r}] needs a sequence of distinct categories, got {values!r}")
        if key in positions:
            codes = {value: code for code, value in enumerate(v for v in values if not is_missing(v))}
            codes |= {None: -1} if any(map(is_missing, values)) else {}
            own = columns[positions[key]]
            decode[own.position] = partial(_listed, Column(-1, key, own.name), codes, inf)
            continue
        names = [(f"{key}_{value}", value) for value in values]
        names += [(f"{key}_nan", value) for value in values if is_missing(value)]
        one_hot = {positions[name]: value for name, value in names if name in positions}
        if not one_hot:
            raise ValueError(
                f"categories: the tree has no column {key!r} of codes, and no column "
                f"{f'{key}_{next(iter(values), None)}'!r} of zeros and ones"
            )
        for position, value in one_hot.items():
            decode[position] = partial(_listed, Column(-1, key), {value: 1}, 0)
    return decode


def _number(column: Column, fill: float | None, test: Intervals) -> Condition:
    return Condition(column, test, missing=fill is not None and _holds(test, fill))


def _gap(column: Column, test: Intervals) -> Condition:
    return Condition(column, EVERYTHING if _holds(test, 0) else (), missing=_holds(test, 1))


def _listed(column: Column, codes: Mapping[Any, float], other: float, test: Intervals) -> Condition:
    """Translate a test of codes; `other` is the code of values that are not listed, NaN if there are none."""
    sides: dict[bool, list[Any]] = {True: [], False: []}
    for value, code in codes.items():
        sides[_holds(test, code)].append(value)
    negated = _holds(test, other)
    if other == inf:  # of a column of codes, which should list all values, the shorter side is written
        negated = len(sides[False]) < len(sides[True]) + negated
    return Condition(column, values=tuple(sides[not negated]), negated=negated)


def _holds(intervals: Intervals, number: float) -> bool:
    """Whether a number lies in one of the intervals."""
    return any(low < number <= high for low, high in intervals)
