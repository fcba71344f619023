"""Parsing of a table's column: its cells as numbers, truth values or strings."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pandas as pd

MISSING = frozenset({"", "na", "n/a", "#n/a", "nan", "null", "none", "?", "-"})
"""Cells that count as missing, in lower case."""
TRUTH = {"true": True, "false": False}
MOSTLY = 0.9
"""Share of numbers above which the other cells of a column count as mistakes, and the column not as strings."""


class Notation(NamedTuple):
    """A way of writing numbers that pandas does not parse by itself, with the sign that tells it from others."""

    what: str
    sign: str
    thousands: str
    pattern: str

    def plain(self, text: pd.Series) -> pd.Series:
        """Rewrite numbers with a decimal point and without separators of thousands."""
        return text.str.replace(self.thousands, "", regex=False).str.replace(",", ".", regex=False)


DECIMAL_COMMAS = Notation("decimal commas", ",", ".", r"[+-]?(\d+|\d{1,3}(\.\d{3})+)(,\d+)?(e[+-]?\d+)?")
THOUSANDS_COMMAS = Notation(
    "commas between thousands", ",", ",", r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?|[+-]?\d+(\.\d+)?"
)
THOUSANDS_POINTS = Notation("points between thousands", ".", ".", r"[+-]?([1-9]\d{0,2}(\.\d{3})*|0)")


def is_number(cell: str) -> bool:
    """Return whether a cell is a number; inf, nan and numbers with commas count too."""
    try:
        float(cell)
    except ValueError:
        return bool(re.fullmatch(f"{DECIMAL_COMMAS.pattern}|{THOUSANDS_COMMAS.pattern}", cell))
    return True


def stripped(cells: pd.Series) -> pd.Series:
    """Return cells as strings without spaces around them, or NaN for missing ones; typed columns are unchanged."""
    if cells.dtype.kind in "iufbmM":
        return cells
    text = cells.astype(str).str.strip()
    return text.where(cells.notna() & ~text.str.lower().isin(MISSING))


def notation_of(cells: pd.Series, candidates: Iterable[Notation]) -> Notation | None:
    """Return the first notation that all cells have and that some need; None for typed columns."""
    if cells.dtype.kind in "iufbmM":
        return None
    filled = cells.dropna()
    for notation in candidates:
        needed = filled.str.contains(notation.sign, regex=False).any()
        if needed and filled.str.fullmatch(notation.pattern, case=False).all():
            return notation
    return None


def converted(cells: pd.Series, notation: Notation | None) -> tuple[pd.Series, int | None]:
    """Return the values of a stripped column, and the first row with a mistake in a column of numbers."""
    if cells.dtype.kind in "bmM":
        return cells, None
    if cells.dtype.kind in "iuf":
        values = cells
    elif cells.str.lower().isin(TRUTH).all():
        return cells.str.lower().map(TRUTH).astype(bool), None
    else:
        values = pd.to_numeric(cells if notation is None else notation.plain(cells), errors="coerce")
    values = values.astype(np.result_type(values.dtype, np.int64))
    filled = cells.notna()
    if values[filled].isna().mean() > 1 - MOSTLY:
        return cells, None
    mistakes = filled & ~np.isfinite(values)
    return (cells, int(mistakes.argmax())) if mistakes.any() else (values, None)
