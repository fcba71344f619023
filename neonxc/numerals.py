"""Formatting of numbers for readers."""

from __future__ import annotations

from collections.abc import Iterable
from math import floor, isfinite, log10
from typing import Any

import numpy as np

from neonxc.inputs import is_missing


def rounded(values: Iterable[float], digits: int = 3) -> list[float]:
    """Round numbers to a few significant digits, so that JSON stays short; NaN becomes 0."""
    array = np.nan_to_num(np.asarray(list(values), dtype=np.float64))
    return [float(f"{value:.{digits}g}") for value in array]


def text(value: Any, digits: int = 4) -> str:
    """Format a value: whole numbers in full, other numbers with `digits` significant digits."""
    if is_missing(value):
        return "missing"
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"  # as in rules
    if isinstance(value, int | np.integer):
        return str(value)
    if not isinstance(value, float | np.floating):
        return str(value)
    number = float(value)
    if number.is_integer() and abs(number) < 1e9:
        return str(int(number))
    if not isfinite(number) or not 1e-4 <= abs(number) < 1e9:
        return f"{number:.{digits}g}"
    fixed = f"{number:.{max(0, digits - 1 - floor(log10(abs(number))))}f}"
    return fixed.rstrip("0").rstrip(".") if "." in fixed else fixed


def percent(share: float) -> str:
    """Format a share 0 to 1 in percent: ``94%``, and ``99.4%`` if whole percents would round to all or nothing."""
    if 0.98 < share < 1 or 0 < share < 0.02:
        return f"{100 * share:.1f}%"
    return f"{100 * share:.0f}%"
