"""Encoded columns: the numbers of a table column, an indicator of its values, or codes; and their composition.

A part is a function of one column v of the table:

    Number       f_m(... f_1(v)), where `fill` replaces a missing v before the increasing functions f
    Code         the code of the value v; `unknown` for a value without a code
    Indicator    1 if v is one of some values, 0 elsewhere
    Scaled       slope * part + shift

A step that computes a part of a scaled column, ``part(slope * source + shift)``, gives a scaled part of the table:

    part                     source    composed
    Number, nothing to do    any       the scaled column
    Number that fills        Number    the scaled column, whose source fills with the value that becomes the fill
    any                      Code      the Code of what the part makes of the scaled code of each value
    Indicator of missing     Number    an Indicator of missing values, if the source does not fill them
    Number with functions    Number    the functions of both, if slope = 1 and shift = 0
    Code                     Number    the Code of the table column, if slope = 1, shift = 0 and without functions
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from neonxc.common.numbers import is_missing
from neonxc.data.kinds import plain

INVERSES: dict[str, Callable[[Any], Any]] = {
    "log": np.exp,
    "log1p": np.expm1,
    "log2": np.exp2,
    "log10": lambda values: np.power(10.0, values),
    "sqrt": np.square,
    "cbrt": lambda values: np.power(values, 3),
    "exp": np.log,
    "expm1": np.log1p,
    "arcsinh": np.sinh,
}
"""Inverses of :data:`FUNCTIONS`."""

FUNCTIONS: dict[str, Callable[[Any], Any]] = {name: getattr(np, name) for name in INVERSES}
"""Increasing functions by their NumPy names."""

LOWER_ENDS = {"log": 0.0, "log1p": -1.0, "log2": 0.0, "log10": 0.0, "sqrt": 0.0}
"""Lower ends of the domains of functions that are not defined for all numbers."""


@dataclass(frozen=True)
class Number:
    """The numbers of a table column, to which increasing functions may be applied.

    Attributes
    ----------
    column : int
        Position of the column in the table.
    fill : float or None
        Replaces missing numbers, before the functions. None: a missing number is an error.
    functions : tuple of str
        Names among :data:`FUNCTIONS`, in the order of application.
    """

    column: int
    fill: float | None = None
    functions: tuple[str, ...] = ()

    def apply(self, values: float | np.ndarray) -> Any:
        """Apply the functions to numbers; outside of the domain the result is NaN or infinite."""
        with np.errstate(all="ignore"):
            for function in self.functions:
                values = FUNCTIONS[function](values)
        return values

    def clipped(self, value: float) -> float:
        """Apply the functions to a number, clipped to each function's domain."""
        with np.errstate(all="ignore"):
            for function in self.functions:
                lower_end = LOWER_ENDS.get(function, -np.inf)
                value = FUNCTIONS[function](max(value, lower_end))
        return value

    def undo(self, values: float | np.ndarray) -> Any:
        """Invert :meth:`apply`."""
        with np.errstate(all="ignore"):
            for function in reversed(self.functions):
                values = INVERSES[function](values)
        return values

    @property
    def has_missing(self) -> bool:
        """Whether the numbers may be missing."""
        return self.fill is None

    def number(self, value: object) -> float:
        """Return the number of a value; NaN for a missing one that is not filled."""
        filled: Any = self.fill if is_missing(value) else value
        if filled is None:
            return np.nan
        number: float = self.apply(filled)
        return number


@dataclass(frozen=True)
class Code:
    """A numeric code of a column's value (None is a missing value), by default its position in `values`.

    Other values get the code `unknown`; if that is None, they are an error.
    """

    column: int
    values: tuple[Any, ...]
    unknown: float | None = None
    codes: tuple[float, ...] | None = None

    @property
    def numbers(self) -> dict[Any, float]:
        """The code of each value."""
        codes = self.codes
        if codes is None:
            codes = tuple(range(len(self.values)))
        return dict(zip(self.values, map(float, codes), strict=True))

    @property
    def unknown_number(self) -> float:
        """The code of all other values, NaN if they are an error."""
        if self.unknown is None:
            return np.nan
        return float(self.unknown)

    @property
    def has_missing(self) -> bool:
        """Whether some values have no number."""
        return bool(np.isnan([*self.numbers.values(), self.unknown_number]).any())

    def number(self, value: object) -> float:
        """Return the number of a value; NaN where there is none."""
        return self.numbers.get(plain(value), self.unknown_number)


@dataclass(frozen=True)
class Indicator(Code):
    """1 where a column has one of some values (None is a missing value), 0 elsewhere."""

    unknown: float | None = 0.0

    @property
    def numbers(self) -> dict[Any, float]:
        """The number of each value."""
        return dict.fromkeys(self.values, 1.0)


Part = Number | Code


class Scaled(NamedTuple):
    """The column ``slope * part + shift``."""

    part: Part
    slope: float = 1.0
    shift: float = 0.0

    def at(self, number: float) -> float:
        """Return the column's number where that of the part is known."""
        return self.slope * number + self.shift


def composed(part: Part, column: Scaled) -> Scaled:
    """Compose two parts: a part of a scaled column, in terms of the column that the scaled part is of.

    Raises
    ------
    ValueError
        The composition is not a scaled part, for example the categories of a scaled column.
    """
    source = column.part
    if isinstance(part, Number) and not part.functions:
        if part.fill is None or not source.has_missing:
            return column
        if isinstance(source, Number):
            return _filled(part.fill, source, column)
    if not isinstance(source, Number):
        return Scaled(_recoded(part, source, column))
    if part == Indicator(part.column, (None,)):  # scaling does not change which values are missing
        missing = (None,) if source.has_missing else ()
        return Scaled(Indicator(source.column, missing))

    if column != Scaled(source):
        raise ValueError("it needs unscaled columns, but a step before it scales them; put that step after it")
    if isinstance(part, Number):
        return Scaled(replace(source, functions=source.functions + part.functions))
    if source.functions:
        raise ValueError(f"it needs untransformed columns, but a step before it takes their {source.functions[0]}")
    if source.fill is not None and None in part.values:
        raise ValueError("it has a category for missing values, but a SimpleImputer before it fills them")
    if source.fill is not None and source.fill in part.values:  # missing values have the code of the fill
        codes = part.codes
        if codes:
            codes = (*codes, part.numbers[source.fill])
        part = replace(part, values=(*part.values, None), codes=codes)
    return Scaled(replace(part, column=source.column))


def _filled(fill: float, source: Number, column: Scaled) -> Scaled:
    """Fill the missing numbers of a scaled column: the source fills with what becomes the fill behind it."""
    if column != Scaled(source):
        fill = (fill - column.shift) / column.slope
    filled = replace(source, fill=source.undo(fill))
    if source.functions and not np.isclose(filled.number(None), fill, rtol=1e-9, atol=1e-12):
        functions = " and ".join(source.functions)
        raise ValueError(f"it fills with {fill:g}, which is not a value of {functions} before it")
    return column._replace(part=filled)


def _recoded(part: Part, source: Code, column: Scaled) -> Code:
    """Return the codes that a part makes of the scaled codes of a source."""
    codes = tuple(part.number(column.at(number)) for number in source.numbers.values())
    number = part.number(column.at(source.unknown_number))
    unknown = None if np.isnan(number) else number
    return Code(source.column, tuple(source.numbers), unknown, codes)


def composed_known(values: tuple[Any, ...], column: Scaled) -> tuple[Any, ...] | None:
    """Return the values of the scaled part's own column that are mapped to one of some values; None: all are."""
    source = column.part
    if isinstance(source, Number):
        if source.fill is not None and source.fill in values:
            return (*values, None)
        return values
    if column.at(source.unknown_number) in values:
        return None
    return tuple(value for value, number in source.numbers.items() if column.at(number) in values)
