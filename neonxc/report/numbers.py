"""How a report prints values: with as many digits as say something."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from neonxc.inputs import is_missing


def rounded(values: Iterable[float], digits: int = 3) -> list[float]:
    """Numbers with a few significant digits, as JSON prints them shortest; NaN becomes 0."""
    array = np.nan_to_num(np.asarray(list(values), dtype=np.float64))
    return [float(f"{value:.{digits}g}") for value in array]


def text(value: Any, digits: int = 4) -> str:
    """A value as it is printed: a few significant digits, whole numbers in full."""
    if is_missing(value):
        return "missing"
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"  # as rules do
    if isinstance(value, int | np.integer):
        return str(value)
    if isinstance(value, float | np.floating):
        number = float(value)
        return str(int(number)) if number.is_integer() and abs(number) < 1e9 else f"{number:.{digits}g}"
    return str(value)


def percent(share: float) -> str:
    """A share 0 to 1 in percent: "94%", "99.4%" where whole percents would round to all or nothing."""
    if 0.98 < share < 1 or 0 < share < 0.02:
        return f"{100 * share:.1f}%"
    return f"{100 * share:.0f}%"
