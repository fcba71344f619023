"""What a rule asks of one column: that a number lies in an interval, or that a category is one of some."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import chain
from math import inf, isfinite, nan
from operator import or_
from typing import Any

import numpy as np
from torch import Tensor

from neonxc.inputs import plain
from neonxc.rules.intervals import EVERYTHING, Intervals, intersection, union
from neonxc.rules.wording import Numbers, interval_texts, one_line, readable, shortest


@dataclass(frozen=True)
class Column:
    """A column that rules speak of, and how its numbers are said.

    Attributes
    ----------
    position : int
        Its position in arrays and tensors; -1 for a column that only data frames have.
    key : str or int
        What data frames, databases and dictionaries call it; default: the position, for columns without names.
    name : str
        What it is called in texts; default: the key, or ``x[3]``.
    unit : str
        Said after its numbers.
    whole : bool
        Whether all of its values are whole numbers.
    gaps : tuple of (bound, below, above)
        For bounds of intervals, the greatest value of the training data that is at most the bound, and the least
        that is beyond it. The bound is printed with as many digits as tell these two apart.
    """

    position: int
    key: str | int | None = None
    name: str = ""
    unit: str = ""
    whole: bool = False
    gaps: tuple[tuple[float, float, float], ...] = field(default=(), hash=False)  # may be many

    def __post_init__(self) -> None:
        key = self.position if self.key is None else self.key
        name = self.name or (key if isinstance(key, str) else f"x[{key}]")
        object.__setattr__(self, "key", key)
        object.__setattr__(self, "name", one_line(name))
        object.__setattr__(self, "unit", one_line(self.unit))

    def numbers(self, bounds: Iterable[float], precision: int | None = None) -> dict[float, str]:
        """Print bounds of intervals, no two of them alike.

        Parameters
        ----------
        bounds : iterable of float
            Infinite ones are left out.
        precision : int, optional
            Significant digits; more where two bounds would look the same, and tenths are never rounded away.
            Default: as many as tell the training values apart, or 4 where these are not known.
        """
        wanted = sorted({bound for bound in bounds if isfinite(bound)})
        gaps = {bound: (below, above) for bound, below, above in self.gaps}
        if precision is not None or not gaps.keys() >= set(wanted):
            return readable(wanted, 4 if precision is None else precision)
        texts = {}
        for before, bound, after in zip([-inf, *wanted], wanted, [*wanted[1:], inf], strict=False):
            below, above = gaps[bound]
            if before >= below:  # bounds in one gap share it, so that their texts are in their order
                below = bound
            texts[bound] = shortest(bound, below, min(above, after), self.whole)
        return texts


@dataclass(frozen=True)
class Condition:
    """What a rule asks of one column: an interval ``low < x <= high``, one of several, or one of some categories.

    A missing value lies in no interval, but may be allowed beside them. Among categories it is the category None.

    Attributes
    ----------
    column : Column
    intervals : tuple of (low, high)
        Disjoint, from low to high; bounds are infinite where an interval is open. Intervals that touch or overlap
        are joined. None at all: no point meets the condition.
    values : tuple or None
        Categories, where None is a missing value; `intervals` is then not used.
    negated : bool
        Whether the column must have none of `values`.
    missing : bool
        Whether a missing number meets the condition, beside those in the intervals. Not used with `values`.

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
    values: tuple[Any, ...] | None = None
    negated: bool = False
    missing: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "intervals", union(self.intervals) if self.values is None else EVERYTHING)
        if self.values is not None:
            object.__setattr__(self, "missing", False)
            object.__setattr__(self, "values", tuple(map(plain, self.values)))

    @property
    def feature(self) -> int:
        """The column's position in arrays and tensors."""
        return self.column.position

    @property
    def name(self) -> str:
        """What the column is called."""
        return self.column.name

    @property
    def low(self) -> float:
        """What the column is above wherever the condition is met; infinite where there is no such bound."""
        return self.intervals[0][0] if self.intervals else inf

    @property
    def high(self) -> float:
        """What the column is at most wherever the condition is met; infinite where there is no such bound."""
        return self.intervals[-1][1] if self.intervals else -inf

    @property
    def is_always_met(self) -> bool:
        """Whether every value but a missing number meets the condition."""
        return self.intervals == EVERYTHING if self.values is None else self.negated and not self.values

    def text(self, precision: int | None = None) -> str:
        """Say the condition, such as ``age in [36, 45] years`` or ``workclass is Private or State-gov``.

        Parameters
        ----------
        precision : int, optional
            As for :meth:`Column.numbers`.
        """
        return self.said(self.column.numbers(chain(*self.intervals), precision))

    def __str__(self) -> str:
        return self.text()

    def said(self, numbers: Numbers, escape: Callable[[str], str] = str) -> str:
        """Say the condition with given texts of its bounds; `escape` is applied to names and categories.

        Parameters
        ----------
        numbers : sequence of str
            Texts of the bounds.
        escape : callable
            Applied to the names of columns and categories.

        Returns
        -------
        str
        """
        return " or ".join(self.parts(numbers, escape))

    def parts(self, numbers: Numbers, escape: Callable[[str], str] = str) -> list[str]:
        """Texts, any of which holds where the condition is met: one for each interval, one for categories.

        Parameters
        ----------
        numbers : sequence of str
            Texts of the bounds.
        escape : callable
            Applied to the names of columns and categories.

        Returns
        -------
        list of str
        """
        column, name = self.column, escape(self.column.name)
        if self.missing and not self.intervals:
            return [f"{name} is missing"]
        if self.values is None:
            texts = interval_texts(self.intervals, name, numbers, escape(column.unit), column.whole)
            return texts + ["missing"] * self.missing
        if not self.values:
            return [f"{'any' if self.negated else 'no'} value of {name}"]
        *most, last = [escape(_category(value)) for value in self.values]
        if self.negated:
            return [f"{name} is {'none of ' if most else 'not '}{', '.join([*most, last])}"]
        return [f"{name} is {', '.join(most)}{' or ' if most else ''}{last}"]

    def met_by(self, values: Any) -> Any:
        """Whether values [N] meet the condition, [N] of bool: a tensor for a tensor of numbers, else an array.

        Parameters
        ----------
        values : array or Tensor [N]
            Values of the column.
        """
        if self.values is not None:
            asked = set(self.values)
            return np.array([(plain(value) in asked) ^ self.negated for value in values], dtype=bool)
        numbers = values.double() if isinstance(values, Tensor) else np.asarray(values, np.float64)
        parts = [_between(numbers, low, high) for low, high in self.intervals]
        parts += [numbers != numbers] * self.missing
        return reduce(or_, parts) if parts else numbers == nan  # which no number is

    def both(self, other: Condition) -> Condition:
        """Ask for this and another condition of the same column and kind at once.

        Parameters
        ----------
        other : Condition
            A condition of the same column and kind.

        Returns
        -------
        Condition
        """
        if self.values is None or other.values is None:
            met = intersection(self.intervals, other.intervals)
            return replace(self, intervals=met, missing=self.missing and other.missing)
        if self.negated and other.negated:
            return replace(self, values=tuple(dict.fromkeys(self.values + other.values)))
        one, two = (other, self) if self.negated else (self, other)  # the first names what is allowed
        allowed = one.values or ()
        return replace(
            one, values=tuple(value for value in allowed if (value in (two.values or ())) ^ two.negated)
        )


def _between(numbers: Any, low: float, high: float) -> Any:
    """Whether numbers lie in an interval, where NaN lies in none."""
    if not isfinite(low):
        return numbers <= high if isfinite(high) else numbers == numbers
    return (numbers > low) & (numbers <= high) if isfinite(high) else numbers > low


def _category(value: Any) -> str:
    if value is None:
        return "missing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return repr(value).removesuffix(".0")
    return one_line(value) or repr(str(value))
