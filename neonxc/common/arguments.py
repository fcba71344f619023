"""Checks of the parameters of functions and estimators."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from itertools import chain, count
from math import inf
from numbers import Integral, Real
from typing import Any

LISTED = 10
"""Largest number of names that a message lists."""


def listed(names: list[str]) -> str:
    """Join names for a message, which lists the first ones and counts the others."""
    n_more = len(names) - LISTED
    if n_more <= 0:
        return ", ".join(names)
    return ", ".join([*names[:LISTED], f"and {n_more} more"])


def similar(names: Iterable[Any], known: Iterable[Any]) -> str:
    """Return what to say behind misspelled names in an error: the most similar known names, if there are any."""
    spelled = {str(name).casefold(): name for name in known}
    close = [get_close_matches(str(name).casefold(), spelled, n=1, cutoff=0.65) for name in names]
    found = ", ".join(repr(spelled[one]) for some in close for one in some)
    return f" (did you mean {found}?)" if found else ""


def kind_of(value: Any) -> str:
    """Return the name of an object's type, with its article: "a KMeans", "an AnnData"."""
    name = type(value).__name__
    return f"{'an' if name[0] in 'AEIOaeio' else 'a'} {name}"


def unused(name: str, sign: str, taken: Callable[[str], bool], first: int = 2) -> str:
    """Return a name, or the first of the name numbered from `first` behind a sign, that is not taken."""
    return next(new for new in chain([name], (f"{name}{sign}{i}" for i in count(first))) if not taken(new))


def result_names(names: Sequence[str], columns: Iterable[str]) -> list[str]:
    """Return the names of results beside the columns of a table, numbered (``cluster_2``) if a column has one."""
    taken = {*columns}
    return [unused(name, "_", taken.__contains__) for name in names]


def check_columns(table: str, wanted: Iterable[str], known: Iterable[str]) -> None:
    """Raise ValueError unless a table has all columns; `table` is what the message calls it."""
    known = list(known)
    if unknown := [name for name in wanted if name not in known]:
        raise ValueError(f"{table} has no column {unknown}{similar(unknown, known)}; its columns are {known}")


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
