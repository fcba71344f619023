"""Formatting of numbers for readers; imports nothing that takes long, for the command line."""

from __future__ import annotations

import re
from collections.abc import Iterable
from math import copysign, isfinite, nan, sqrt
from typing import Any

import numpy as np


def is_missing(value: Any) -> bool:
    """Whether a value is None, NaN, or pandas' NA or NaT."""
    return value is None or type(value).__name__ in ("NAType", "NaTType") or value != value


def mean_error(values: np.ndarray, weight: np.ndarray | None = None) -> tuple[float, float]:
    """Return the mean and its standard error, NaN for a single value.

    With weights, the mean is that of repeated values, and the error that of a weighted mean of so many independent
    values: repeating a value gives no evidence.
    """
    if weight is not None:
        mean = float(np.average(values, weights=weight))
        squares = (weight**2 * (values - mean) ** 2).sum() / weight.sum() ** 2
        n = len(values)
        return mean, sqrt(squares * n / (n - 1)) if n > 1 else nan
    error = float(values.std(ddof=1)) / sqrt(len(values)) if len(values) > 1 else nan
    return float(values.mean()), error


def shares(values: np.ndarray) -> np.ndarray:
    """Values [..., n] as shares of the sum of their sizes: from -1 to 1, and 0 if all values are 0.

    Unlike shares of the sum of the values, they stay small where positive and negative values cancel.
    """
    sizes = np.abs(values).sum(axis=-1, keepdims=True)
    return np.divide(values, sizes, out=np.zeros_like(values), where=sizes > 0)


def rounded(values: Iterable[float], digits: int = 3) -> list[float]:
    """Round numbers to a few significant digits, so that JSON stays short; NaN becomes 0."""
    array = np.nan_to_num(np.asarray(list(values), dtype=np.float64))
    return [float(f"{value:.{digits}g}") for value in array]


def text(value: Any, digits: int = 4, *, decimals: int = 0, signed: bool = False, separators: bool = True) -> str:
    """Format a value: whole numbers in full, other numbers with `digits` significant digits.

    Numbers from 10,000 on get thousands separators; years and other numbers of four digits do not.

    Parameters
    ----------
    value : object
        A number or any other value, such as a category; None and NaN are "missing".
    digits : int
        Number of significant digits.
    decimals : int
        Least number of decimals, unless they are zeros.
    signed : bool
        Whether positive numbers and zero get a sign.
    separators : bool
        Whether numbers get thousands separators. Categories and numbers that are read again have none.

    Returns
    -------
    str
    """
    if is_missing(value):
        return "missing"
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"  # as in rules
    if not isinstance(value, int | float | np.integer | np.floating):
        return str(value)
    number: Any = value + 0  # removes the sign of -0.0
    sign = "+" if signed else ""
    if not isinstance(value, int | np.integer) and not (number == 0 or 1e-4 <= abs(number) < 1e15):
        return f"{number:{sign}.{digits}g}"
    if number % 1 == 0:
        found = f"{int(number):{sign}d}"
    else:
        exponent = int(f"{number:.{digits - 1}e}".partition("e")[2])
        found = f"{number:{sign}.{max(digits - 1 - exponent, decimals)}f}"
        found = found.rstrip("0").rstrip(".") if "." in found else found
    return grouped(found) if separators else found


def plural(number: float, thing: str) -> str:
    """Write a number of things: ``1 row``, ``2 rows``."""
    return f"{text(number)} {thing}{'s' * (number != 1)}"


def as_printed(value: float) -> float:
    """Round a finite number as `text` prints it."""
    return float(text(float(value), separators=False))


def grouped(number: str) -> str:
    """Insert thousands separators into a printed number of five or more digits: ``186,061.5``."""
    return re.sub(r"^([-+]?)(\d{5,})(?=\.|$)", lambda found: f"{found[1]}{int(found[2]):,}", number)


def percent(share: float | None, *, signed: bool = False) -> str:
    """Format a share in percent: ``94%``, and ``99.4%`` where whole percents come close to all or nothing.

    Only the shares 0, 1 and -1 are printed as ``0%``, ``100%`` and ``-100%``: others have one decimal, which is
    not rounded to them. An unknown share, None or NaN, is ``–``.
    """
    if share is None or not isfinite(share):
        return "–"
    nearest = round(share)
    digits = 0
    if abs(nearest) <= 1 and 0 < abs(share - nearest) < 0.01:
        tenths = max(1, round(1000 * abs(share - nearest)))
        digits = 1
        share = nearest + copysign(tenths / 1000, share - nearest)
    return f"{share + 0.0:{'+' if signed and share > 0 else ''}.{digits}%}"
