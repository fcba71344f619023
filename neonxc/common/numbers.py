"""Formatting of numbers for readers; imports nothing that takes long, for the command line."""

from __future__ import annotations

import re
from collections.abc import Iterable
from math import ceil, copysign, isfinite, log10, nan, sqrt
from typing import Any

import numpy as np

from neonxc.common.locales import localized

MAX_DECIMALS = 12  # those of a number near 1 that are not rounded in its last digits


def is_missing(value: object) -> bool:
    """Whether a value is None, NaN, or pandas' NA or NaT."""
    if value is None:
        return True
    if type(value).__name__ in ("NAType", "NaTType"):  # of pandas, which is not imported here
        return True
    return bool(value != value)  # only NaN differs from itself


def mean_error(values: np.ndarray, weight: np.ndarray | None = None) -> tuple[float, float]:
    """Return the mean of n values and its standard error, which is NaN for a single value.

    Without weights, the error is s / sqrt(n), where s^2 is the variance with the divisor n - 1. With weights w_i,

        mean = sum w_i x_i / sum w_i
        error^2 = n / (n - 1) sum w_i^2 (x_i - mean)^2 / (sum w_i)^2

    which is the error of n independent values: repeating a value gives no evidence.
    """
    n = len(values)
    error = nan
    if weight is not None:
        mean = float(np.average(values, weights=weight))
        squares = (weight**2 * (values - mean) ** 2).sum() / weight.sum() ** 2
        if n > 1:
            error = sqrt(squares * n / (n - 1))
        return mean, error
    if n > 1:
        error = float(values.std(ddof=1)) / sqrt(n)
    return float(values.mean()), error


def shares(values: np.ndarray) -> np.ndarray:
    """Divide values [..., n] by the sum of their absolute values: from -1 to 1, and 0 if all values are 0.

    Unlike fractions of the sum of the values, they stay small where positive and negative values cancel.
    """
    sizes = np.abs(values).sum(axis=-1, keepdims=True)
    return np.divide(values, sizes, out=np.zeros_like(values), where=sizes > 0)


def rounded(values: Iterable[float], digits: int = 3) -> list[float]:
    """Round numbers to a few significant digits, so that JSON stays short; NaN becomes 0."""
    array = np.nan_to_num(np.asarray(list(values), dtype=np.float64))
    return [float(f"{value:.{digits}g}") for value in array]


def text(
    value: object, digits: int = 4, *, decimals: int = 0, signed: bool = False, separators: bool = True
) -> str:
    """Format a value: whole numbers in full, other numbers with `digits` significant digits.

    Numbers from 10,000 on get thousands separators; years and other numbers of four digits do not. The marks are
    those of :mod:`neonxc.common.locales`.

    Parameters
    ----------
    value : object
        A number or any other value, such as a category; None and NaN are "missing".
    digits : int
        Number of significant digits.
    decimals : int
        Smallest number of decimals, unless they are zeros.
    signed : bool
        Whether positive numbers and zero get a sign.
    separators : bool
        Whether numbers are for readers: with thousands separators, and the decimal mark of the locale. Categories
        and numbers that are parsed again need neither.

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
    is_integer = isinstance(value, int | np.integer)
    has_exponent = number != 0 and not 1e-4 <= abs(number) < 1e15
    if not is_integer and has_exponent:
        printed = f"{number:{sign}.{digits}g}"
    elif number % 1 == 0:
        printed = f"{int(number):{sign}d}"
    else:
        _, _, exponent = f"{number:.{digits - 1}e}".partition("e")  # after rounding: 9.9996 is 1.000e+01
        n_decimals = max(digits - 1 - int(exponent), decimals)
        printed = f"{number:{sign}.{n_decimals}f}"
        if "." in printed:
            printed = printed.rstrip("0").rstrip(".")
    return localized(printed) if separators else printed


def plural(number: float, noun: str) -> str:
    """Write a number with a noun: ``1 row``, ``2 rows``, ``1 entry``, ``2 entries``."""
    if number == 1:
        return f"{text(number)} {noun}"
    if re.search("[^aeiou]y$", noun):
        return f"{text(number)} {noun[:-1]}ies"
    return f"{text(number)} {noun}s"


def in_words(items: Iterable[str]) -> str:
    """Enumerate items in a sentence: ``a``, ``a and b``, ``a, b and c``."""
    *first, last = items
    if not first:
        return last
    return f"{', '.join(first)} and {last}"


def as_printed(value: float, decimals: int = 0) -> float:
    """Round a finite number as `text` prints it: to 4 significant digits, and from 1,000 on to a whole number.

    From 1e15 on, where `text` prints exponents, whole numbers are rounded, too. At least `decimals` decimals are
    kept.
    """
    to_digits = float(f"{value:.4g}") + 0.0  # removes the sign of -0.0
    if abs(to_digits) >= 1e15:
        return to_digits
    to_decimals = round(float(value), decimals) + 0.0
    return to_decimals if abs(value - to_decimals) < abs(value - to_digits) else to_digits


def decimals_by(deviation: float) -> int:
    """Return how many decimals tell values apart that differ by a twentieth of their standard deviation."""
    if not isfinite(deviation) or deviation <= 0:
        return 0
    return min(max(ceil(log10(20 / deviation)), 0), MAX_DECIMALS)


def percent(fraction: float | None, *, signed: bool = False) -> str:
    """Format a fraction in percent: ``94%``, and ``99.4%`` where whole percents come close to all or nothing.

    Only the fractions 0, 1 and -1 are printed as ``0%``, ``100%`` and ``-100%``: fractions close to them have one
    decimal, and are not rounded to them. An unknown fraction, None or NaN, is ``–``.
    """
    if fraction is None or not isfinite(fraction):
        return "–"
    nearest = round(fraction)
    difference = fraction - nearest
    digits = 0
    if abs(nearest) <= 1 and 0 < abs(difference) < 0.01:
        tenths = max(1, round(1000 * abs(difference)))  # of a percent
        digits = 1
        fraction = nearest + copysign(tenths / 1000, difference)
    sign = "+" if signed and fraction > 0 else ""
    return localized(f"{fraction + 0.0:{sign}.{digits}%}")  # + 0.0 removes the sign of -0.0
