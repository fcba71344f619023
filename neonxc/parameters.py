"""Checks of the parameters of functions and estimators."""

from __future__ import annotations

from math import inf
from numbers import Integral, Real
from typing import Any


def check_whole(name: str, value: Any, least: int = 1, optional: bool = False) -> None:
    """Raise ValueError unless a parameter is a whole number >= `least` (or None, if it is optional)."""
    if optional and value is None:
        return
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < least:
        none = " or None" if optional else ""
        raise ValueError(f"{name} needs a whole number >= {least}{none}, got {value!r}")


def check_number(name: str, value: Any, most: float = inf) -> None:
    """Raise ValueError unless a parameter is a finite number from 0 to `most`."""
    number = isinstance(value, Real) and not isinstance(value, bool)
    if not number or not 0 <= value <= most or value == inf:
        needed = "finite number >= 0" if most == inf else f"number in [0, {most:g}]"
        raise ValueError(f"{name} needs a {needed}, got {value!r}")
