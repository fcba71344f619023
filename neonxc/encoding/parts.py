"""What a column of numbers is made of: the numbers of another column, an indicator of values, or their codes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

FUNCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "log": np.log,
    "log1p": np.log1p,
    "log2": np.log2,
    "log10": np.log10,
    "sqrt": np.sqrt,
    "cbrt": np.cbrt,
    "exp": np.exp,
    "expm1": np.expm1,
    "arcsinh": np.arcsinh,
}
"""Increasing functions by their name in NumPy."""

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
"""What takes :data:`FUNCTIONS` back."""

LEAST = {"log": 0.0, "log1p": -1.0, "log2": 0.0, "log10": 0.0, "sqrt": 0.0}
"""Where the functions begin that are not defined for all numbers."""


@dataclass(frozen=True)
class Number:
    """The numbers of a column, behind increasing functions.

    Attributes
    ----------
    column : int
        Position of the column in the table.
    fill : float or None
        Stands in for a missing number, before the functions. None: a missing number is an error.
    functions : tuple of str
        Names of :data:`FUNCTIONS`, the first one applied first.
    """

    column: int
    fill: float | None = None
    functions: tuple[str, ...] = ()

    def apply(self, values: np.ndarray) -> np.ndarray:
        """Numbers behind the functions, NaN or infinite outside of their domain."""
        with np.errstate(all="ignore"):
            for function in self.functions:
                values = FUNCTIONS[function](values)
        return values

    def clipped(self, value: float) -> float:
        """A number behind the functions, each at the end of its domain that is nearest."""
        with np.errstate(all="ignore"):
            for function in self.functions:
                value = float(FUNCTIONS[function](np.array(max(value, LEAST.get(function, -np.inf)))))
        return value

    def undo(self, values: np.ndarray) -> np.ndarray:
        """The numbers that :meth:`apply` takes to some."""
        with np.errstate(all="ignore"):
            for function in reversed(self.functions):
                values = INVERSES[function](values)
        return values


@dataclass(frozen=True)
class Indicator:
    """1 where a column has one of some values (None: a missing one), 0 elsewhere."""

    column: int
    values: tuple[Any, ...]


@dataclass(frozen=True)
class Code:
    """The number of a column's value among some (None: a missing one): its code, by default its position.

    Any other value is `unknown`, or an error if that is None.
    """

    column: int
    values: tuple[Any, ...]
    unknown: float | None = None
    codes: tuple[float, ...] | None = None

    @property
    def numbers(self) -> dict[Any, float]:
        """The number of each value."""
        codes = range(len(self.values)) if self.codes is None else self.codes
        return dict(zip(self.values, map(float, codes), strict=True))


Part = Number | Indicator | Code
