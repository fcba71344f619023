"""Conditions of rules: a number lies in one of several intervals, or a category is one of several.

What meets a condition::

    kind of a condition     a value x meets it if                             a missing value meets it if
    intervals               low < x <= high for one of them                   `missing`
    values                  x is one of them                                  None is one of them
    values, `negated`       x is none of them                                 None is none of them

Bounds of intervals are printed with as few digits as separate the same training values (:meth:`Column.numbers`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, compress
from math import inf, isfinite
from typing import overload

import numpy as np
from torch import Tensor

from neonxc.common.locales import Marks, printed_like
from neonxc.common.types import Label
from neonxc.data.kinds import as_category, plain
from neonxc.rules.intervals import EVERYTHING, Intervals, contains, intersection, union
from neonxc.rules.wording import Numbers, interval_texts, one_line, readable, shortest


@dataclass(frozen=True)
class Column:
    """A column that rules use, and how its values are printed.

    Attributes
    ----------
    position : int
        Position of the column in arrays and tensors; -1 for a column that only data frames have.
    key : str or int
        Name of the column in data frames, databases and dictionaries; default: the position.
    name : str
        Name of the column in printed rules; default: the key, or ``x[3]`` for a column without a name.
    unit : str
        Unit, which is printed after the numbers.
    whole : bool
        Whether all values are integers.
    gaps : tuple of (bound, below, above)
        Largest training value that is at most the bound, and smallest training value above it, for each bound of
        an interval. A bound is printed with as few digits as keep it between the two.
    term : bool
        Whether the column holds the weight or number of a term in a text, which is zero in texts without the term.
    marks : Marks or None
        The marks with which the file of the column writes numbers; None if it is not from a file.
    """

    position: int
    key: str | int | None = None
    name: str = ""
    unit: str = ""
    whole: bool = False
    gaps: tuple[tuple[float, float, float], ...] = field(default=(), hash=False)  # may be many
    term: bool = False
    marks: Marks | None = None

    def __post_init__(self) -> None:
        key = self.position if self.key is None else self.key
        default = key if isinstance(key, str) else f"x[{key}]"
        name = self.name or default
        object.__setattr__(self, "key", key)
        object.__setattr__(self, "name", one_line(name))
        object.__setattr__(self, "unit", one_line(self.unit))

    def numbers(self, bounds: Iterable[float], precision: int | None = None) -> dict[float, str]:
        """Print the bounds of intervals such that different bounds have different texts.

        Parameters
        ----------
        bounds : iterable of float
            Bounds; infinite bounds are skipped.
        precision : int, optional
            Number of significant digits. More are used if two bounds would look the same, and the first decimal is
            always kept. Default: as many as are needed to separate the training values, or 4 if these are unknown.

        Returns
        -------
        dict
            Text of each finite bound.
        """
        finite = sorted({bound for bound in bounds if isfinite(bound)})
        if precision is not None:
            return readable(finite, precision)
        neighbours = {bound: (below, above) for bound, below, above in self.gaps}  # the training values around it
        if not neighbours.keys() >= set(finite):
            return readable(finite)
        texts = {}
        for before, bound, after in zip([-inf, *finite], finite, [*finite[1:], inf], strict=False):
            below, above = neighbours[bound]
            if before >= below:  # no training value lies between the two bounds: keep their texts in order
                below = bound
            texts[bound] = shortest(bound, below, min(above, after), self.whole)
        return texts


@dataclass(frozen=True)
class Condition:
    """A condition on one column: its value lies in one of several intervals, or is one of several categories.

    Intervals are half-open, ``low < x <= high``. A missing number lies in no interval, but `missing` can allow it.
    A missing category is None.

    Attributes
    ----------
    column : Column
        The column to which the condition applies.
    intervals : tuple of (low, high)
        Disjoint intervals in ascending order; bounds may be infinite. Intervals that touch or overlap are joined.
        If there are no intervals, no number meets the condition.
    values : tuple or None
        Categories, where None stands for a missing value. If given, `intervals` and `missing` are ignored.
    negated : bool
        Whether the column must have none of `values`.
    missing : bool
        Whether a missing number meets the condition too.

    Examples
    --------
    >>> from math import inf
    >>> from neonxc.rules import Column, Condition
    >>> width = Column(3, "petal width", unit="cm")
    >>> print(Condition(width, ((0.8, 1.65),)))
    petal width in (0.8, 1.65] cm
    >>> print(Condition(width, ((-inf, 0.8), (1.65, inf))))
    petal width ≤ 0.8 cm or petal width > 1.65 cm
    >>> print(Condition(Column(1, "workclass"), values=("Private",)))
    workclass is Private
    >>> print(Condition(Column(0, "age"), ((-inf, 35),), missing=True))
    age ≤ 35 or missing
    """

    column: Column
    intervals: Intervals = EVERYTHING
    values: tuple[Label, ...] | None = None
    negated: bool = False
    missing: bool = False

    def __post_init__(self) -> None:
        if self.values is None:
            object.__setattr__(self, "intervals", union(self.intervals))
        else:
            object.__setattr__(self, "intervals", EVERYTHING)
            object.__setattr__(self, "missing", False)
            object.__setattr__(self, "values", tuple(map(plain, self.values)))

    @property
    def feature(self) -> int:
        """Position of the column in arrays and tensors."""
        return self.column.position

    @property
    def name(self) -> str:
        """Name of the column in printed rules."""
        return self.column.name

    @property
    def low(self) -> float:
        """Lower bound of all intervals, exclusive; -inf if there is no lower bound."""
        if not self.intervals:  # no number meets the condition
            return inf
        return self.intervals[0][0]

    @property
    def high(self) -> float:
        """Upper bound of all intervals, inclusive; inf if there is no upper bound."""
        if not self.intervals:
            return -inf
        return self.intervals[-1][1]

    @property
    def is_always_met(self) -> bool:
        """Whether every value meets the condition; missing numbers are not considered."""
        if self.values is None:
            return self.intervals == EVERYTHING
        return self.negated and not self.values

    def text(self, precision: int | None = None) -> str:
        """Write the condition as text, such as ``age in [36, 45] years`` or ``workclass is Private or State-gov``.

        Parameters
        ----------
        precision : int, optional
            As for :meth:`Column.numbers`.
        """
        return self.render(self.column.numbers(chain(*self.intervals), precision))

    def __str__(self) -> str:
        return self.text()

    def render(self, numbers: Numbers, escape: Callable[[str], str] = str) -> str:
        """Write the condition as text with the texts of its bounds.

        Parameters
        ----------
        numbers : mapping of float to str
            Text of each finite bound.
        escape : callable
            Function applied to the name and the unit of the column and to categories.

        Returns
        -------
        str
        """
        return " or ".join(self.alternatives(numbers, escape))

    def alternatives(self, numbers: Numbers, escape: Callable[[str], str] = str) -> list[str]:
        """Write the condition as alternatives: one text per interval, or one text for all categories.

        Parameters
        ----------
        numbers : mapping of float to str
            Text of each finite bound.
        escape : callable
            Function applied to the name and the unit of the column and to categories.

        Returns
        -------
        list of str
        """
        name = escape(self.column.name)
        if self.values is not None:
            return [self._categories_text(name, [escape(_category(value)) for value in self.values])]
        if self.missing and not self.intervals:
            return [f"{name} is missing"]
        if self._has_term is not None:
            texts = [f"with {name}" if self._has_term else f"without {name}"]
        else:
            unit = escape(self.column.unit)
            with printed_like(self.column.marks):
                texts = interval_texts(self.intervals, name, numbers, unit, self.column.whole)
        if self.missing:
            texts.append("missing")
        return texts

    @property
    def is_absence(self) -> bool:
        """Whether the condition is that a text does not have a term."""
        return self._has_term is False

    @property
    def _has_term(self) -> bool | None:
        """Whether a text has a term, if that is what the bound of the term's weight says; None otherwise."""
        if not self.column.term:
            return None
        for bound, below, _ in self.column.gaps:
            is_about_presence = below <= 0  # otherwise the bound separates texts that have the term
            if is_about_presence and self.intervals == ((bound, inf),):
                return True
            if is_about_presence and self.intervals == ((-inf, bound),):
                return False
        return None

    def _categories_text(self, name: str, categories: list[str]) -> str:
        """Write the condition on the categories of a column."""
        if not categories:
            any_or_no = "any" if self.negated else "no"
            return f"{any_or_no} value of {name}"
        *first, last = categories
        if not first:
            return f"{name} is not {last}" if self.negated else f"{name} is {last}"
        if self.negated:
            return f"{name} is none of {', '.join(categories)}"
        return f"{name} is {', '.join(first)} or {last}"

    @overload
    def matches(self, values: Tensor) -> np.ndarray | Tensor: ...
    @overload
    def matches(self, values: np.ndarray | Sequence[object]) -> np.ndarray: ...
    def matches(self, values: np.ndarray | Tensor | Sequence[object]) -> np.ndarray | Tensor:
        """Test which values of the column meet the condition.

        Parameters
        ----------
        values : array or Tensor [N]
            Values of the column.

        Returns
        -------
        ndarray of bool [N], or Tensor for a tensor of numbers
        """
        if self.values is not None:
            categories = set(self.values)
            is_listed = [as_category(value, categories) in categories for value in values]
            return np.array(is_listed, dtype=bool) ^ self.negated
        inside = contains(self.intervals, values)
        if self.missing:
            inside = inside | ~contains(EVERYTHING, values)
        return inside

    def intersect(self, other: Condition) -> Condition:
        """Combine two conditions on the same column into one that requires both.

        Parameters
        ----------
        other : Condition
            Condition on the same column, also with intervals or also with categories.

        Returns
        -------
        Condition
        """
        if self.values is None or other.values is None:
            intervals = intersection(self.intervals, other.intervals)
            return replace(self, intervals=intervals, missing=self.missing and other.missing)
        if self.negated and other.negated:
            return replace(self, values=tuple(dict.fromkeys(self.values + other.values)))
        if self.negated:
            return other.intersect(self)
        allowed = other.matches(self.values).tolist()
        return replace(self, values=tuple(compress(self.values, allowed)))


def printed_bounds(conditions: Iterable[Condition], precision: int | None = None) -> dict[Column, Numbers]:
    """Print the bounds of all conditions; those of a column get different texts. See :meth:`Column.numbers`."""
    bounds: dict[Column, list[float]] = {}
    for condition in conditions:
        bounds.setdefault(condition.column, []).extend(chain(*condition.intervals))
    return {column: column.numbers(values, precision) for column, values in bounds.items()}


def _category(value: object) -> str:
    """Write a category, such that it is seen even if it is blank."""
    if value is None:
        return "missing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return repr(value).removesuffix(".0")
    return one_line(value) or repr(str(value))


def in_column(condition: Condition, position: int) -> Condition:
    """Return the same condition on a column at another position."""
    column = replace(condition.column, position=position)
    return replace(condition, column=column)
