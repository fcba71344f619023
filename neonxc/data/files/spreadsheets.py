"""CSV files that a person may open in a spreadsheet, and a program may read.

A spreadsheet runs a cell as a formula if it begins with one of the marks of FORMULA. So that no text does,

    written(text) = "'" + text  if text begins with a mark, but is neither a number nor a missing value,
                                or if it begins with apostrophes and then a mark, so that the way back is unique
                    text        otherwise
    text_of(cell) = the text whose written form is this cell: without its first apostrophe, if it got one

A spreadsheet takes a file for the text of an old code page unless it begins with a byte order mark, and separates
cells as the language of its user does. Files with other characters than those of ASCII therefore begin with the
mark, and the tables that commands write have the separator and the decimal mark of the table that was read
(:func:`form_of`).

Numbers stay numbers, also in text and with a unit (``-5``, ``+4930123``, ``-1,5 kg``), and so do cells that count
as missing (``-``, ``--``).
"""

from __future__ import annotations

import os
import re
from typing import Any

import pandas as pd

from neonxc.data.files.notation import AMONG_NUMBERS, MISSING, is_number

FORMULA = "=+@\t\r\n＝＋－＠-"
"""Marks at the start of a cell that spreadsheets run; some take those of full width for the others."""
_MARKED = re.compile(f"('*+)[{FORMULA}]")
_WRITTEN = re.compile(f"'+[{FORMULA}]")


def written(text: str) -> str:
    """Return the text of a cell that no spreadsheet runs."""
    marked = _MARKED.match(text)
    if marked is None:
        return text
    if not marked[1]:
        word = text.strip()
        if word.casefold() in MISSING or word.casefold() in AMONG_NUMBERS or is_number(word, with_unit=True):
            return text
    return f"'{text}"


def text_of(cell: str) -> str:
    """Return the text that :func:`written` has written as this cell."""
    if _WRITTEN.match(cell) is None:
        return cell
    text = cell[1:]
    return text if written(text) == cell else cell


def write_csv(frame: pd.DataFrame, file: Any = None, **options: Any) -> str | None:
    """Write a data frame without its index as CSV, in which no text and no name is run by a spreadsheet.

    Parameters
    ----------
    frame : DataFrame
        Its index is left out.
    file : path or file, optional
        A path gets a byte order mark if there are other characters than those of ASCII. Default: the CSV is
        returned.
    **options
        Those of ``DataFrame.to_csv``.

    Returns
    -------
    str or None
    """
    cells = frame.copy(deep=False)
    is_ascii = all(isinstance(name, str) and name.isascii() for name in frame.columns)
    for position, kind in enumerate(frame.dtypes):
        if pd.api.types.is_numeric_dtype(kind) or pd.api.types.is_datetime64_any_dtype(kind):
            continue
        values = list(frame.iloc[:, position])
        safe = [_of_any(value) for value in values]
        is_ascii = is_ascii and all(str(value).isascii() for value in values)
        if any(new is not old for new, old in zip(safe, values, strict=True)):  # other columns keep their type
            cells.isetitem(position, pd.Series(safe, index=frame.index, dtype=object))
    cells.columns = [_of_any(name) for name in frame.columns]
    if isinstance(file, str | os.PathLike) and not is_ascii:
        options.setdefault("encoding", "utf-8-sig")
    return cells.to_csv(file, index=False, **options)


def form_of(frame: pd.DataFrame) -> dict[str, str]:
    """Return the options of :func:`write_csv` for a file like that of a table; {} for a table without one."""
    separator = frame.attrs.get("separator")
    if not separator:
        return {}
    return {"sep": separator, "decimal": frame.attrs["decimal"]}


def _of_any(value: Any) -> Any:
    """Return a cell as it is written; only texts change."""
    return written(value) if isinstance(value, str) else value
