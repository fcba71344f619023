"""Write numbers, intervals and counts as readable text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from math import isfinite

from neonxc.common.locales import current_marks, localized
from neonxc.common.numbers import text
from neonxc.rules.intervals import Intervals

Numbers = Mapping[float, str]  # printed text of each bound of a column


def interval_texts(
    intervals: Intervals, name: str, numbers: Numbers, unit: str = "", is_integer: bool = False
) -> list[str]:
    """Write one text per interval, ``["x ≤ 1", "x in (2, 3]", "x > 5"]``, or a single one if there is no interval.

    Bounded intervals of integers are written as closed intervals: ``x in [36, 45]``. Between numbers with decimal
    commas, there is a semicolon: ``x in (0,8; 1,65]``.
    """
    if not intervals:
        return [f"no value of {name}"]
    after = f" {unit}" if unit else ""
    return [_interval_text(low, high, name, numbers, after, is_integer) for low, high in intervals]


def _interval_text(low: float, high: float, name: str, numbers: Numbers, after: str, is_integer: bool) -> str:
    """Write ``low < x <= high``; `after` is the unit with a space before it."""
    if not isfinite(low) and not isfinite(high):
        return f"any value of {name}"
    if not isfinite(low):
        return f"{name} ≤ {localized(numbers[high])}{after}"
    if not isfinite(high):
        return f"{name} > {localized(numbers[low])}{after}"
    separator = ", "
    if current_marks().decimal == ",":
        separator = "; "
    if is_integer:
        smallest = 1 + _floor(numbers[low])
        largest = _floor(numbers[high])
        if smallest == largest:
            return f"{name} is {text(smallest)}{after}"
        if smallest < largest:
            return f"{name} in [{text(smallest)}{separator}{text(largest)}]{after}"
    # also if no integer lies between
    return f"{name} in ({localized(numbers[low])}{separator}{localized(numbers[high])}]{after}"


def _floor(number: str) -> int:
    """Return the largest integer up to a printed number."""
    return int(Decimal(number).to_integral_value(ROUND_FLOOR))


def shortest(near: float, below: float, above: float, is_integer: bool = False) -> str:
    """Print the number in [below, above) with the fewest significant digits; ties go to the one closest to `near`.

    If it replaces the bound `near`, ``x <= bound`` stays true for all x up to `below` and false from `above` on.

    Parameters
    ----------
    near : float
        Number in [below, above).
    below, above : float
        Limits, possibly infinite.
    is_integer : bool
        Whether to consider only integers, if the interval contains one.

    Returns
    -------
    str

    Examples
    --------
    >>> from neonxc.rules.wording import shortest
    >>> shortest(35.5, 35, 36, is_integer=True), shortest(35.5, 35, 36), shortest(47.5, 35, 60)
    ('35', '35', '50')
    """
    exact = Decimal(near)
    if near == 0:
        return "0"
    for digits in range(1, 18):  # 17 digits identify every float
        exponent = exact.adjusted() - digits + 1  # of the last digit
        if is_integer:
            if exponent < 0 and digits > 1:
                break
            exponent = max(exponent, 0)
        step = Decimal(1).scaleb(exponent)
        # the numbers with so many digits on both sides of `near`
        neighbours = {(exact / step).to_integral_value(mode) * step for mode in (ROUND_FLOOR, ROUND_CEILING)}
        candidates = [number for number in neighbours if below <= float(number) < above]
        if candidates:
            best = min(candidates, key=lambda number: (abs(number - exact), number)).normalize()
            return text(float(best), len(best.as_tuple().digits), separators=False)
    return shortest(near, below, above)  # no integer lies in the interval


def readable(values: Iterable[float], precision: int = 4) -> dict[float, str]:
    """Print numbers with few digits, such that different numbers have different texts.

    Parameters
    ----------
    values : iterable of float
        Numbers; infinite numbers and NaN are skipped.
    precision : int
        Number of significant digits; numbers that would look the same get more.

    Returns
    -------
    dict
        Text of each finite number.

    Raises
    ------
    ValueError
        If `precision` is less than 1.
    """
    if precision < 1:
        raise ValueError(f"precision must be at least 1, got {precision}")
    texts: dict[float, str] = {}
    remaining = {value for value in values if isfinite(value)}
    while remaining:  # ends, because 17 digits identify every float
        candidates = {value: text(value, precision, decimals=1, separators=False) for value in remaining}
        n_values = Counter(candidates.values())
        texts |= {value: written for value, written in candidates.items() if n_values[written] == 1}
        remaining -= texts.keys()
        precision += 1
    return texts


def counts(samples: float, mistakes: float | None = None) -> str:
    """Write the number of points and the number of mistakes among them: ``50 samples, 1 mistake``."""
    written = _number_of(samples, "sample")
    if mistakes is None:
        return written
    return f"{written}, {_number_of(mistakes, 'mistake')}"


def _number_of(number: float, noun: str) -> str:
    """Write a number of points: ``1 sample``, ``2 samples``."""
    if number == 1:
        return f"{text(number)} {noun}"
    return f"{text(number)} {noun}s"


def one_line(name: object) -> str:
    """Replace line breaks in a name by spaces, so that it fits into one line of a rule or drawing."""
    return " ".join(str(name).split())
