"""Write numbers, intervals and counts as readable text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from math import isfinite

from neonxc.common.numbers import grouped, text
from neonxc.rules.intervals import Intervals

Numbers = Mapping[float, str]  # printed text of each bound of a column


def interval_texts(
    intervals: Intervals, name: str, numbers: Numbers, unit: str = "", whole: bool = False
) -> list[str]:
    """Write one text per interval, ``["x ≤ 1", "x in (2, 3]", "x > 5"]``, or a single one if there is no interval.

    Bounded intervals of integers are written as closed intervals: ``x in [36, 45]``.
    """
    after = f" {unit}" if unit else ""

    def one(low: float, high: float) -> str:
        first, last = (grouped(numbers[bound]) if isfinite(bound) else "" for bound in (low, high))
        if not first:
            return f"{name} ≤ {last}{after}" if last else f"any value of {name}"
        if not last:
            return f"{name} > {first}{after}"
        least, most = (1 + _floor(numbers[low]), _floor(numbers[high])) if whole else (1, 0)
        if least > most:  # no integer lies between
            return f"{name} in ({first}, {last}]{after}"
        return f"{name} {f'is {text(least)}' if least == most else f'in [{text(least)}, {text(most)}]'}{after}"

    return [one(low, high) for low, high in intervals] or [f"no value of {name}"]


def _floor(number: str) -> int:
    return int(Decimal(number).to_integral_value(ROUND_FLOOR))


def shortest(near: float, below: float, above: float, whole: bool = False) -> str:
    """Print the number in [below, above) with the fewest significant digits; ties go to the one closest to `near`.

    If it replaces the bound `near`, ``x <= bound`` stays true for all x up to `below` and false from `above` on.

    Parameters
    ----------
    near : float
        Number in [below, above).
    below, above : float
        Limits, possibly infinite.
    whole : bool
        Whether to consider only integers, if the interval contains one.

    Returns
    -------
    str

    Examples
    --------
    >>> from neonxc.rules.wording import shortest
    >>> shortest(35.5, 35, 36, whole=True), shortest(35.5, 35, 36), shortest(47.5, 35, 60)
    ('35', '35', '50')
    """
    exact = Decimal(near)
    if near == 0:
        return "0"
    for digits in range(1, 18):
        step = exact.adjusted() - digits + 1
        if whole and step < 0 and digits > 1:
            break
        grid = Decimal(1).scaleb(max(step, 0) if whole else step)
        around = {(exact / grid).to_integral_value(way) * grid for way in (ROUND_FLOOR, ROUND_CEILING)}
        fitting = [number for number in around if below <= float(number) < above]
        if fitting:
            best = min(fitting, key=lambda number: (abs(number - exact), number)).normalize()
            return text(float(best), len(best.as_tuple().digits), separators=False)
    return shortest(near, below, above)  # no integer lies in the interval; 17 digits identify every float


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
    todo = {value for value in values if isfinite(value)}
    while todo:  # ends, because 17 digits identify every float
        new = {value: text(value, precision, decimals=1, separators=False) for value in todo}
        often = Counter(new.values())
        texts |= {value: text for value, text in new.items() if often[text] == 1}
        todo -= texts.keys()
        precision += 1
    return texts


def counts(samples: float, mistakes: float | None = None) -> str:
    """Write the number of points and the number of mistakes among them: ``50 samples, 1 mistake``."""
    numbers = {"sample": samples, "mistake": mistakes}
    return ", ".join(f"{text(n)} {noun}{'' if n == 1 else 's'}" for noun, n in numbers.items() if n is not None)


def one_line(name: object) -> str:
    """Replace line breaks in a name by spaces, so that it fits into one line of a rule or drawing."""
    return " ".join(str(name).split())
