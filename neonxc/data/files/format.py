"""How a table was read from a file, which models keep, so that new rows are read, and numbers are printed, alike.

A :class:`Format` travels as one JSON text: from :func:`~neonxc.data.files.read_table` in
``frame.attrs["format"]``, which pandas passes on to selections of rows and columns, and from ``fit`` or
:func:`neonxc.neuralize` on in the tree or the inputs of the network, which are saved. So nothing is lost once a
model is fitted, and no argument has to be passed on beside a table. Where numbers are printed, a column has a
:class:`ColumnFormat`: its unit and its marks.

Arithmetic of pandas passes ``attrs`` on as well. A unit is therefore kept with the range of its column, and
belongs to no column whose numbers leave this range: those that were scaled or converted. (Numbers that are scaled
into the range, such as percentages as fractions, can't be told.)
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, Self

import pandas as pd

from neonxc.common.locales import Marks, printed_like
from neonxc.common.numbers import is_missing, text
from neonxc.data.files.notation import Notation

TEXT = "text"
TRUTH = "truth"
"""What columns without numbers hold."""


PRINTED = {"'": "’", " ": "\u00a0"}
"""Marks between thousands as they are printed, if it is not as they are read."""
DEFAULT_THOUSANDS = {",": ".", ".": ","}
"""The marks between thousands of a file that has none, by its decimal mark."""


class ColumnFormat(NamedTuple):
    """How the numbers of a column are printed: its unit, "" for none, and the marks of its file, None for none."""

    unit: str = ""
    marks: Marks | None = None

    def text(self, *values: object, digits: int = 4, decimals: int = 0, between: str = " ") -> str:
        """Write numbers of the column with one unit behind them: ``1.250,5 € vs 980 €`` without the first unit.

        Missing values have no unit.
        """
        with printed_like(self.marks):
            written = between.join(text(value, digits, decimals=decimals) for value in values)
        has_unit = bool(self.unit) and not is_missing(values[-1])
        return f"{written} {self.unit}" if has_unit else written


PLAIN = ColumnFormat()
"""The format of a column that is not from a file."""


class Format(NamedTuple):
    """How a table was read from a file.

    Attributes
    ----------
    columns : mapping
        The notation, "text" or "truth" for every column that was text.
    missing : sequence of str
        Further words for missing values.
    units : mapping of str to list
        The unit of columns that have one, and their least and greatest number.
    categories : mapping of str to list of str
        The different texts of columns that have a few, so that new ones are told.
    """

    columns: Mapping[str, str | list[str]]
    missing: Sequence[str]
    units: Mapping[str, Sequence[Any]] = {}
    categories: Mapping[str, Sequence[str]] = {}

    @classmethod
    def read(cls, text: str | None) -> Self:
        """Return what a JSON text describes; None describes nothing."""
        if text is None:
            return cls({}, ())
        try:
            return cls(**json.loads(text))
        except (TypeError, ValueError):
            raise ValueError(f"format needs the text in frame.attrs['format'], got {text!r}") from None

    def text(self) -> str | None:
        """Return the description as a JSON text, which pandas copies fast; None if it says nothing."""
        if not self.columns and not self.missing:
            return None
        described = self._asdict()
        for optional in ("units", "categories"):
            if not described[optional]:
                del described[optional]
        return json.dumps(described, ensure_ascii=False)

    def notation(self, name: str) -> Notation | None:
        """Return the notation of a column of numbers, None for another or unknown column."""
        kind = self.columns.get(name)
        if not isinstance(kind, list):
            return None
        return Notation(*kind)

    @property
    def marks(self) -> Marks | None:
        """The marks with which numbers of this file are printed; None if its columns tell none, or several."""
        notations = [self.notation(name) for name in self.columns]
        decimals = {notation.decimal for notation in notations if notation is not None and notation.decimal}
        if len(decimals) != 1:
            return None
        (decimal,) = decimals
        used = {notation.thousands for notation in notations if notation is not None and notation.thousands}
        thousands = used.pop() if len(used) == 1 else DEFAULT_THOUSANDS[decimal]
        return Marks(decimal, PRINTED.get(thousands, thousands))

    def of_column(self, name: str) -> ColumnFormat:
        """Return how the numbers of a column are printed."""
        unit = str(self.units[name][0]) if name in self.units else ""
        marks = self.marks
        notation = self.notation(name)
        if marks is not None and notation is not None and notation.thousands:
            marks = marks._replace(n_digits=4)
        return ColumnFormat(unit, marks)


@lru_cache(maxsize=16)
def _described(format: str | None) -> Format:
    return Format.read(format)


def marks_of_file(format: str | None) -> Marks | None:
    """Return the marks with which numbers of a file are printed, given the text of its :class:`Format`."""
    return _described(format).marks


def column_formats(format: str | None, names: Sequence[str]) -> tuple[ColumnFormat, ...]:
    """Return how the numbers of columns are printed, given the text of the :class:`Format` of their file."""
    if format is None:
        return (PLAIN,) * len(names)
    described = _described(format)
    marks = described.marks
    plain = ColumnFormat("", marks)
    return tuple(described.of_column(name) if name in described.columns else plain for name in names)


def table_format(X: object) -> str | None:
    """Return how the columns of a frame were read, if they still hold what they held; None for other data."""
    text = X.attrs.get("format") if isinstance(X, pd.DataFrame) else None
    if not isinstance(X, pd.DataFrame) or not isinstance(text, str) or not text.startswith('{"columns"'):
        return None

    is_number = {str(name): dtype.kind in "iuf" for name, dtype in X.dtypes.items()}
    described = Format.read(text)
    unchanged = {
        name: kind for name, kind in described.columns.items() if is_number.get(name) == isinstance(kind, list)
    }
    values = {str(name): X.iloc[:, i] for i, name in enumerate(X.columns)}
    units = {}
    for name, (unit, low, high) in described.units.items():
        if name in unchanged and values[name].min() >= low and values[name].max() <= high:
            units[name] = [unit, low, high]
    categories = {name: texts for name, texts in described.categories.items() if name in unchanged}
    return described._replace(columns=unchanged, units=units, categories=categories).text()
