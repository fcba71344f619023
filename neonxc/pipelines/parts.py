"""Encoded columns: the numbers of a table column, an indicator of its values, or codes; and their composition."""

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

LEAST = {"log": 0.0, "log1p": -1.0, "log2": 0.0, "log10": 0.0, "sqrt": 0.0}
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

    def apply(self, values: Any) -> Any:
        """Apply the functions to numbers; outside of the domain the result is NaN or infinite."""
        with np.errstate(all="ignore"):
            for function in self.functions:
                values = FUNCTIONS[function](values)
        return values

    def clipped(self, value: float) -> float:
        """Apply the functions to a number, clipped to each function's domain."""
        with np.errstate(all="ignore"):
            for function in self.functions:
                value = FUNCTIONS[function](max(value, LEAST.get(function, -np.inf)))
        return value

    def undo(self, values: Any) -> Any:
        """Invert :meth:`apply`."""
        with np.errstate(all="ignore"):
            for function in reversed(self.functions):
                values = INVERSES[function](values)
        return values

    @property
    def has_gaps(self) -> bool:
        """Whether the numbers may be missing."""
        return self.fill is None

    def number(self, value: Any) -> float:
        """The number of a value; NaN for a missing one that is not filled."""
        filled = self.fill if is_missing(value) else value
        return np.nan if filled is None else self.apply(filled)


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
        codes = range(len(self.values)) if self.codes is None else self.codes
        return dict(zip(self.values, map(float, codes), strict=True))

    @property
    def other(self) -> float:
        """The code of all other values, NaN if they are an error."""
        return np.nan if self.unknown is None else float(self.unknown)

    @property
    def has_gaps(self) -> bool:
        """Whether some values have no number."""
        return bool(np.isnan([*self.numbers.values(), self.other]).any())

    def number(self, value: Any) -> float:
        """The number of a value; NaN where there is none."""
        return self.numbers.get(plain(value), self.other)


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
        """The column's number where that of the part is known."""
        return self.slope * number + self.shift


def composed(part: Part, column: Scaled) -> Scaled:
    """Compose two parts: a part of a scaled column, in terms of the column that the scaled part is of.

    Raises
    ------
    ValueError
        The composition is no scaled part, for example the categories of a scaled column.
    """
    source = column.part
    as_it_is = column == Scaled(column.part)
    if isinstance(part, Number) and not part.functions:
        fill = part.fill
        if fill is None or not source.has_gaps:
            return column
        if isinstance(source, Number):
            fill = fill if as_it_is else (fill - column.shift) / column.slope
            filled = replace(source, fill=source.undo(fill))
            if source.functions and not np.isclose(filled.number(None), fill, rtol=1e-9, atol=1e-12):
                functions = " and ".join(source.functions)
                raise ValueError(f"it fills with {fill:g}, which is no value of {functions} before it")
            return column._replace(part=filled)
    if not isinstance(source, Number):
        *codes, other = (part.number(column.at(number)) for number in (*source.numbers.values(), source.other))
        return Scaled(Code(source.column, tuple(source.numbers), None if np.isnan(other) else other, tuple(codes)))
    if part == Indicator(part.column, (None,)):  # scaling does not change which values are missing
        return Scaled(Indicator(source.column, (None,) * source.has_gaps))
    if not as_it_is:
        raise ValueError("it needs unscaled columns, but a step before it scales them; put that step after it")
    if isinstance(part, Number):
        return Scaled(replace(source, functions=source.functions + part.functions))
    if source.functions:
        raise ValueError(f"it needs untransformed columns, but a step before it takes their {source.functions[0]}")
    if source.fill is not None and None in part.values:
        raise ValueError("it has a category for missing values, but a SimpleImputer before it fills them")
    if source.fill is not None and source.fill in part.values:
        with_fill = part.codes and (*part.codes, part.numbers[source.fill])
        part = replace(part, values=(*part.values, None), codes=with_fill)
    return Scaled(replace(part, column=source.column))


def composed_known(values: tuple[Any, ...], column: Scaled) -> tuple[Any, ...] | None:
    """The values of the scaled part's own column that are mapped to one of some values; None: all are."""
    source = column.part
    if isinstance(source, Number):
        return values + (None,) * (source.fill is not None and source.fill in values)
    if column.at(source.other) in values:
        return None
    return tuple(value for value, number in source.numbers.items() if column.at(number) in values)
