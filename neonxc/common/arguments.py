"""Checks of the parameters of functions and estimators, and the words of their errors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from itertools import chain, count
from math import inf
from numbers import Integral, Real
from shlex import quote
from typing import Any

LISTED = 10
"""Largest number of names that a message lists."""
REMEDIED = 30
"""Largest number of names or cells for which a message writes the argument that helps."""
CUTOFF = 0.65
"""Smallest similarity of :mod:`difflib` at which a name is suggested for a misspelled one."""


def listed(names: list[str]) -> str:
    """Join names for a message, which lists the first ones and counts the others."""
    n_more = len(names) - LISTED
    if n_more <= 0:
        return ", ".join(names)
    return ", ".join([*names[:LISTED], f"and {n_more} more"])


def remedy(argument: str, names: Iterable[object]) -> str:
    """Write an argument with names of columns, or with cells, in Python and for a command.

    Examples
    --------
    >>> from neonxc.common.arguments import remedy
    >>> remedy("ignore", ["zip", "post code"])
    "ignore=['zip', 'post code'] or --ignore zip --ignore 'post code'"
    """
    first = [str(name) for name in names][:REMEDIED]
    options = " ".join(f"--{argument} {quote(name)}" for name in first)
    return f"{argument}={first} or {options}"


def installed_by(*extras: str) -> str:
    """Return the command that installs extras of this package, for an error about a package that is missing.

    There is no release yet, so that they are installed from a checkout. Docstrings and the documentation write the
    same command, which a test compares.

    Parameters
    ----------
    *extras : str
        Names in ``pyproject.toml``.

    Examples
    --------
    >>> from neonxc.common.arguments import installed_by
    >>> print(installed_by("vision", "text"))
    in a checkout, pip install -e ".[vision,text]"
    """
    names = ",".join(extras)
    return f'in a checkout, pip install -e ".[{names}]"'


def similar(names: Iterable[object], known: Iterable[object]) -> str:
    """Return the end of an error about misspelled names: the most similar known names, or "" without any."""
    by_spelling = {str(name).casefold(): name for name in known}
    suggestions = []
    for name in names:
        matches = get_close_matches(str(name).casefold(), by_spelling, n=1, cutoff=CUTOFF)
        suggestions += [repr(by_spelling[match]) for match in matches]
    if not suggestions:
        return ""
    return f" (did you mean {', '.join(suggestions)}?)"


def kind_of(value: object) -> str:
    """Return the name of an object's type, with its article: "a KMeans", "an AnnData"."""
    name = type(value).__name__
    article = "an" if name[0] in "AEIOaeio" else "a"
    return f"{article} {name}"


def unused(name: str, sign: str, taken: Callable[[str], bool], first: int = 2) -> str:
    """Return a name that is not taken: the name itself, or the name with a sign and a number from `first` on."""
    numbered = (f"{name}{sign}{i}" for i in count(first))
    return next(candidate for candidate in chain([name], numbered) if not taken(candidate))


def result_names(names: Sequence[str], columns: Iterable[str]) -> list[str]:
    """Return names of results that no column of a table has: taken ones get a number, such as ``cluster_2``."""
    taken = {*columns}
    return [unused(name, "_", taken.__contains__) for name in names]


def check_columns(table: str, needed: Iterable[str], known: Iterable[str]) -> None:
    """Raise ValueError unless a table has all columns that are needed; the message calls it `table`."""
    known = list(known)
    unknown = [name for name in needed if name not in known]
    if unknown:
        raise ValueError(f"{table} has no column {unknown}{similar(unknown, known)}; its columns are {known}")


def check_whole(name: str, value: object, least: int = 1, optional: bool = False) -> None:
    """Raise ValueError unless a parameter is a whole number >= `least` (or None, if it is optional)."""
    if optional and value is None:
        return
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < least:
        none = " or None" if optional else ""
        raise ValueError(f"{name} needs a whole number >= {least}{none}, got {value!r}")


def check_number(name: str, value: Any, most: float = inf) -> None:
    """Raise ValueError unless a parameter is a finite number from 0 to `most`."""
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= most or value == inf:
        needed = "finite number >= 0" if most == inf else f"number in [0, {most:g}]"
        raise ValueError(f"{name} needs a {needed}, got {value!r}")


def as_range(clusters: object) -> range:
    """Convert a number of clusters, a text such as "2-12", or a range to a range; raise ValueError for others."""
    if isinstance(clusters, range):
        numbers = clusters
    else:
        lowest, dash, highest = str(clusters).partition("-")
        if not dash:
            highest = lowest
        try:
            numbers = range(int(lowest), int(highest) + 1)
        except ValueError:
            raise ValueError(
                f"clusters: {clusters!r} is neither a number of clusters nor a range such as 2-12."
            ) from None
    if not numbers or min(numbers) < 2:
        raise ValueError(f"clusters: {clusters!r}: at least 2 clusters are needed, and a range must increase.")
    return numbers
