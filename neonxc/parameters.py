"""Checks of the parameters of functions and estimators."""

from __future__ import annotations

from math import inf
from numbers import Integral, Real
from typing import Any


def plain_parameters(model: Any) -> dict[str, Any]:
    """Return the parameters of an estimator that are numbers, strings or None."""
    plain = bool, int, float, str, type(None)
    return {name: value for name, value in model.get_params().items() if isinstance(value, plain)}


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


def as_range(clusters: Any) -> range:
    """Convert a number of clusters, a text such as "2-12", or a range to a range; raise ValueError for others."""
    if isinstance(clusters, range):
        found = clusters
    else:
        least, dash, most = str(clusters).partition("-")
        try:
            found = range(int(least), int(most if dash else least) + 1)
        except ValueError:
            raise ValueError(
                f"clusters: {clusters!r} is neither a number of clusters nor a range such as 2-12."
            ) from None
    if not found or min(found) < 2:
        raise ValueError(f"clusters: {clusters!r}: at least 2 clusters are needed, and a range must increase.")
    return found
