"""Definitions of encoded columns: the numbers of a table column, an indicator of its values, or their codes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

INVERSES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
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

FUNCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {name: getattr(np, name) for name in INVERSES}
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

    def apply(self, values: np.ndarray) -> np.ndarray:
        """Apply the functions to numbers; outside of the domain the result is NaN or infinite."""
        with np.errstate(all="ignore"):
            for function in self.functions:
                values = FUNCTIONS[function](values)
        return values

    def clipped(self, value: float) -> float:
        """Apply the functions to a number, clipped to each function's domain."""
        with np.errstate(all="ignore"):
            for function in self.functions:
                value = float(FUNCTIONS[function](np.array(max(value, LEAST.get(function, -np.inf)))))
        return value

    def undo(self, values: np.ndarray) -> np.ndarray:
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
        found = self.fill if value is None or value != value else value
        return np.nan if found is None else float(self.apply(np.asarray(found))) if self.functions else found


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
        return np.nan if self.unknown is None else self.unknown

    @property
    def has_gaps(self) -> bool:
        """Whether some values have no number."""
        return bool(np.isnan([*self.numbers.values(), self.other]).any())

    def number(self, value: Any) -> float:
        """The number of a value; NaN where there is none."""
        return self.numbers.get(None if value is None or value != value else value, self.other)


@dataclass(frozen=True)
class Indicator(Code):
    """1 where a column has one of some values (None is a missing value), 0 elsewhere."""

    unknown: float | None = 0.0

    @property
    def numbers(self) -> dict[Any, float]:
        """The number of each value."""
        return dict.fromkeys(self.values, 1.0)


Part = Number | Code
