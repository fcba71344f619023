"""Parsing of a table's column: its cells as numbers, truth values or strings."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

MISSING = frozenset({"", "na", "n/a", "#n/a", "nan", "null", "none", "?", "-"})
"""Cells that count as missing, in lower case."""
TRUTH = {"true": True, "false": False}
DECIMAL_COMMAS, THOUSANDS_COMMAS = "decimal commas", "commas between thousands"
MOSTLY = 0.9
"""Share of numbers above which the other cells of a column count as mistakes, and the column not as strings."""
# Formats of numbers that neither Python nor pandas parses
DECIMAL_COMMA = r"[+-]?(\d+|\d{1,3}(\.\d{3})+)(,\d+)?(e[+-]?\d+)?"
THOUSANDS_POINT = r"[+-]?([1-9]\d{0,2}(\.\d{3})*|0)"
THOUSANDS_COMMA = r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?|[+-]?\d+(\.\d+)?"


def is_number(cell: str) -> bool:
    """Return whether a cell is a number; inf, nan and numbers with commas count too."""
    try:
        float(cell)
    except ValueError:
        return bool(re.fullmatch(f"{DECIMAL_COMMA}|{THOUSANDS_COMMA}", cell))
    return True


def converted(cells: pd.Series, separator: str) -> tuple[pd.Series, tuple[str, str] | None, int | None]:
    """Parse a column; return its values, the role of commas with an example, and the first row with a mistake."""
    if cells.dtype.kind in "iufbmM":
        return _typed(cells)
    present = cells.notna()
    text = cells.where(present, "").astype(str).str.strip()
    missing = text.str.lower().isin(MISSING)
    words = text.str.lower()
    if not missing.any() and words.isin(TRUTH).all():
        return words.map(TRUTH).astype(bool), None, None
    numbers, text, commas = _numbers(text, missing, separator)
    filled = ~missing.to_numpy()
    bad = filled & ~np.isfinite(numbers)
    mostly_words = np.isnan(numbers)[filled].sum() > (1 - MOSTLY) * filled.sum()
    if bad.any():
        return text.where(~missing, np.nan), None, None if mostly_words else int(bad.argmax())
    whole = filled.all() and (numbers == np.round(numbers)).all() and (np.abs(numbers) < 2**53).all()
    whole = whole and not text.str.contains(r"[.e]", case=False).any()
    return pd.Series(numbers.astype(np.int64) if whole else numbers, index=cells.index), commas, None


def grouped(cells: pd.Series) -> pd.Series | None:
    """Parse a column in which points can only be separators of thousands; return None for other columns."""
    if cells.dtype.kind in "iufbmM":
        return None
    text = cells.where(cells.notna(), "").astype(str).str.strip()
    missing = text.str.lower().isin(MISSING)
    filled = text[~missing]
    if not (filled.str.contains(".", regex=False).any() and filled.str.fullmatch(THOUSANDS_POINT).all()):
        return None
    return converted(text.str.replace(".", "", regex=False), ";")[0]


def _typed(cells: pd.Series) -> tuple[pd.Series, None, int | None]:
    """Parse a column that is typed already, as in Parquet files."""
    if cells.dtype.kind in "mM":
        return cells, None, None
    if cells.isna().any() or cells.dtype.kind == "f":
        values = cells.to_numpy(dtype=np.float64, na_value=np.nan)
        infinite = np.isinf(values)
        return pd.Series(values, index=cells.index), None, int(infinite.argmax()) if infinite.any() else None
    kind = bool if cells.dtype.kind == "b" else np.int64
    return pd.Series(cells.to_numpy(dtype=kind), index=cells.index), None, None


def _numbers(
    text: pd.Series, missing: pd.Series, separator: str
) -> tuple[np.ndarray, pd.Series, tuple[str, str] | None]:
    """Return a column's numbers (NaN for other cells), their text without commas, and the role of the commas."""
    numbers = _floats(text, missing)
    filled = text[~missing]
    commas = filled.str.contains(",", regex=False)
    if not commas.any():
        return numbers, text, None
    example = filled[commas].iloc[0]
    decimal = filled.str.fullmatch(DECIMAL_COMMA, case=False).all()
    thousands = filled.str.fullmatch(THOUSANDS_COMMA).all()
    if decimal and (separator != "," or not thousands):  # 1,234 is ambiguous; CSV files with commas use points
        kind, plain = DECIMAL_COMMAS, text.str.replace(".", "", regex=False).str.replace(",", ".", regex=False)
    elif thousands:
        kind, plain = THOUSANDS_COMMAS, text.str.replace(",", "", regex=False)
    else:
        return numbers, text, None
    value = float(plain[filled[commas].index[0]])
    return _floats(plain, missing), plain, (kind, f"{example} is {value:.15g}")


def _floats(text: pd.Series, missing: pd.Series) -> np.ndarray:
    return pd.to_numeric(text.where(~missing, "nan"), errors="coerce").to_numpy(dtype=np.float64)
