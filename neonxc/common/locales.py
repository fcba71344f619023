"""The marks of printed numbers: a decimal mark, and one between thousands.

Numbers for readers are printed with the first of these marks that there are::

    chosen    those of the locale that the user has named (:func:`printed_in`)
    file      those of the file that the explained table is from (:func:`printed_like`)
    neither   a decimal point, and commas between thousands

The marks of a locale are those of the Unicode Common Locale Data Repository (CLDR). Forms that programs read, such
as JSON, CSV and SQL, have decimal points and no marks between thousands.

Numbers of four digits, which may be years, have no mark between thousands, except in a column of a file that has
such marks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, NamedTuple, TypeVar, cast

Function = TypeVar("Function", bound=Callable[..., Any])


class Marks(NamedTuple):
    """With which marks numbers are printed."""

    decimal: str = "."
    thousands: str = ","
    n_digits: int = 5  # before the decimal mark, from which on there are marks between thousands


POINT = Marks()
COMMA = Marks(",", ".")
SPACED = Marks(",", "\u00a0")
"""With a space between thousands at which no line is broken."""
SWISS = Marks(".", "’")
# languages, and regions whose marks differ from those of their language
_LOCALES = {
    POINT: """
        en ja ko zh he hi th bn ta te ur cy ga mt sw ms fil
        es_MX es_GT es_HN es_NI es_PA es_PE es_SV es_PR es_DO es_US
        """,
    COMMA: "de es it nl pt da el tr id ro hr sl sr mk bs is eu gl ca vi",
    SPACED: "fr ru uk be pl cs sk sv nb nn no fi bg hu et lv lt hy ka kk de_AT pt_PT fr_CH en_ZA",
    SWISS: "de_CH de_LI it_CH en_CH rm_CH",
}
LOCALES = {locale: marks for marks, locales in _LOCALES.items() for locale in locales.split()}
"""Marks by language, or by language and region."""


class _Current(NamedTuple):
    """The marks in force, and whether a user has chosen them."""

    marks: Marks = POINT
    is_chosen: bool = False


_DEFAULT = _Current()
_CURRENT: ContextVar[_Current] = ContextVar("marks", default=_DEFAULT)


def current_marks() -> Marks:
    """Return the marks with which numbers are printed now."""
    return _CURRENT.get().marks


def marks_of(locale: str) -> Marks:
    """Return the marks of a locale, such as ``"de"``, ``"de_CH"`` or ``"fr-FR"``.

    Raises
    ------
    ValueError
        If the locale is unknown.
    """
    parts = re.fullmatch(r"([A-Za-z]{2,3})(?:[-_]([A-Za-z]{2}))?(?:\..*)?", str(locale).strip())
    if parts is not None:
        language = parts[1].lower()
        region = (parts[2] or "").upper()
        marks = LOCALES.get(f"{language}_{region}") or LOCALES.get(language)
        if marks is not None:
            return marks
    languages = ", ".join(sorted(name for name in LOCALES if "_" not in name))
    raise ValueError(
        f"locale needs a language, possibly with a region, such as de, de_CH or fr, got {locale!r}; known "
        f"languages are {languages}"
    )


@contextmanager
def printed_in(locale: str | None) -> Iterator[None]:
    """Print numbers with the marks of a locale that a user has chosen; None chooses nothing."""
    if locale is None:
        yield
        return
    with _with(_Current(marks_of(locale), is_chosen=True)):
        yield


@contextmanager
def printed_like(marks: Marks | None) -> Iterator[None]:
    """Print numbers with the marks of a file or column, unless a user has chosen others; None is no file."""
    if marks is None:
        yield
        return
    current = _CURRENT.get()
    if current.is_chosen:
        marks = current.marks._replace(n_digits=marks.n_digits)
    with _with(current._replace(marks=marks)):
        yield


@contextmanager
def restored() -> Iterator[None]:
    """End at the end of a block what :func:`print_in` has chosen in it."""
    with _with(_CURRENT.get()):
        yield


def restoring(function: Function) -> Function:
    """Decorate a function such that marks which it chooses by :func:`print_in` end with it."""

    @wraps(function)
    def calling(*args: Any, **options: Any) -> Any:
        with restored():
            return function(*args, **options)

    return cast(Function, calling)


def print_in(locale: str | None = None, marks: Marks | None = None) -> None:
    """Choose the marks of a locale, or else of a file, until a :func:`restored` block or function ends."""
    if locale is not None:
        _CURRENT.set(_Current(marks_of(locale), is_chosen=True))
    if marks is not None and not _CURRENT.get().is_chosen:
        _CURRENT.set(_Current(marks))


@contextmanager
def _with(current: _Current) -> Iterator[None]:
    """Keep marks in force."""
    token = _CURRENT.set(current)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def localized(number: str) -> str:
    """Write a number, which has a decimal point and no other marks, with the current marks."""
    parts = re.fullmatch(r"([-+]?)(\d+)(?:\.(\d+))?(e.*|%)?", number)
    if parts is None:
        return number
    marks = current_marks()
    sign, whole, fraction, end = parts.groups(default="")
    if len(whole) >= marks.n_digits and not end:
        whole = f"{int(whole):,}".replace(",", marks.thousands)
    if fraction:
        fraction = marks.decimal + fraction
    return f"{sign}{whole}{fraction}{end}"
