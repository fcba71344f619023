"""What a rule asks of one column: that a number lies in an interval, or that a category is one of some."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import chain
from math import inf, isfinite
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neonxc.inputs import is_missing
from neonxc.rules.intervals import EVERYTHING, Intervals, contains, intersection, union
from neonxc.rules.wording import Numbers, interval_texts, one_line, readable, readable_number, shortest


@dataclass(frozen=True)
class Column:
    """A column that rules speak of, and how its numbers are said.

    Attributes
    ----------
    position : int
        Its position in arrays and tensors; -1 for a column that only data frames have.
    key : str or int
        What data frames, databases and dictionaries call it; the position where columns have no names.
    name : str
        What it is called in texts; default: the key, or ``x[3]``.
    unit : str
        Said after its numbers.
    whole : bool
        Whether all of its values are whole numbers.
    gaps : tuple of (bound, below, above)
        For bounds of intervals, the greatest value of the data at most the bound and the least beyond it. A bound
        is then printed with as many digits as tell these two apart.
    """

    position: int
    key: str | int = ""
    name: str = ""
    unit: str = ""
    whole: bool = False
    gaps: tuple[tuple[float, float, float], ...] = ()

    def __post_init__(self) -> None:
        key = self.position if self.key == "" else self.key
        object.__setattr__(self, "key", key)
        object.__setattr__(self, "name", one_line(self.name or (key if isinstance(key, str) else f"x[{key}]")))

    def numbers(self, bounds: Iterable[float], precision: int | None = None) -> dict[float, str]:
        """Print bounds of intervals, no two of them alike.

        Parameters
        ----------
        bounds : iterable of float
            Infinite ones are left out.
        precision : int, optional
            Significant digits; more where two bounds would look the same, and tenths are never rounded away.
            Default: as many as tell the column's values apart, or 4 where these are not known.
        """
        wanted = {bound for bound in bounds if isfinite(bound)}
        if precision is not None:
            return readable(wanted, precision)
        short: dict[str, float] = {}
        for bound, below, above in self.gaps:
            text = shortest(bound, below, above, self.whole) if bound in wanted else None
            if text is not None and text not in short:  # bounds in one gap would look the same
                short[text] = bound
        texts = {bound: text for text, bound in short.items()}
        return texts | {bound: text for bound, text in readable(wanted).items() if bound not in texts}


@dataclass(frozen=True)
class Condition:
    """What a rule asks of one column: an interval ``low < x <= high``, one of several, or one of some categories.

    A missing value lies in no interval. Among categories it is the category None.

    Attributes
    ----------
    column : Column
    intervals : tuple of (low, high)
        Disjoint, from low to high; bounds are infinite where an interval is open. Intervals that touch or overlap
        are joined. None at all: no point meets the condition.
    values : tuple or None
        Categories; `intervals` is then not used.
    negated : bool
        Whether the column must have none of `values`.

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
    """

    column: Column
    intervals: Intervals = EVERYTHING
    values: tuple[Any, ...] | None = None
    negated: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "intervals", union(self.intervals) if self.values is None else EVERYTHING)

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
        """Say the condition with given texts of its bounds; `escape` is applied to names and categories."""
        column, name = self.column, escape(self.column.name)
        if self.values is None:
            return " or ".join(interval_texts(self.intervals, name, numbers, escape(column.unit), column.whole))
        if not self.values:
            return f"{'any' if self.negated else 'no'} value of {name}"
        *most, last = [escape(_category(value)) for value in self.values]
        return f"{name} is {'not ' if self.negated else ''}{', '.join(most)}{' or ' if most else ''}{last}"

    def met_by(self, values: Any) -> Any:
        """Whether values meet the condition: a mask, a tensor [N] for a tensor of numbers, else an array [N]."""
        if self.values is None:
            numbers = values if isinstance(values, Tensor) else torch.from_numpy(np.array(values, np.float64))
            met = contains(self.intervals, numbers) & ~numbers.isnan()
            return met if isinstance(values, Tensor) else met.numpy()
        items = values.tolist() if hasattr(values, "tolist") else list(values)
        asked = set(self.values)
        found = np.array([(None if is_missing(item) else item) in asked for item in items], dtype=bool)
        return found ^ self.negated

    def both(self, other: Condition) -> Condition:
        """Ask for this and another condition of the same column and kind at once."""
        if self.values is None or other.values is None:
            return replace(self, intervals=intersection(self.intervals, other.intervals))
        if self.negated and other.negated:
            return replace(self, values=tuple(dict.fromkeys(self.values + other.values)))
        one, two = (other, self) if self.negated else (self, other)  # the first names what is allowed
        allowed = one.values or ()
        return replace(
            one, values=tuple(value for value in allowed if (value in (two.values or ())) ^ two.negated)
        )


def _category(value: Any) -> str:
    if value is None:
        return "missing"
    if isinstance(value, bool | np.bool_):
        return str(bool(value)).lower()
    return readable_number(value, 17) if isinstance(value, float) else one_line(value)
