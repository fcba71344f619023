"""Read tables in CSV, in its many variants, or Parquet, from a file or from standard input."""

from __future__ import annotations

import csv
import gzip
import os
import re
import sys
import zlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from io import BytesIO, StringIO
from itertools import starmap
from pathlib import Path
from statistics import mode
from typing import NamedTuple

import numpy as np
import pandas as pd
from pyarrow import parquet

from neonxc.common.arguments import check_columns, unused
from neonxc.data.frames import as_pandas

UNNAMED = "Unnamed: "
"""Start of the names of columns without a name, as pandas gives them; the position follows."""
SEPARATORS = "\t;|,"
"""Separators in the order in which they are tried; the comma is last, as it may be a decimal comma."""
MISSING = frozenset({"", "na", "n/a", "#n/a", "nan", "null", "none", "?", "-"})
"""Cells that count as missing, in lower case."""
MOSTLY = 0.9
"""Share of numbers above which the other cells of a column count as mistakes, and the column not as strings."""
TYPED = "iufbmM"
"""Kinds of the columns of a Parquet file that hold no text."""
CSV = "export it as CSV"
OTHERS = {
    b"\x89png": f"a PNG image: {CSV}",
    b"\xff\xd8\xff": f"a JPEG image: {CSV}",
    b"%pdf": f"a PDF document: {CSV}",
    b"pk\x03\x04": "an Excel file or a zip archive: save the sheet as CSV, or unpack the archive",
    b"\xd0\xcf\x11\xe0": "an old Excel file: save the sheet as CSV",
    b"<!doctype html": f"an HTML page: {CSV}",
    b"<html": f"an HTML page: {CSV}",
    b"<?xml": f"an XML file: {CSV}",
    b"{": f"a JSON file: {CSV}",
    b"[{": f"a JSON file: {CSV}",
}
"""What files with these first bytes, in lower case, are, and how to make a table of them."""
END = "\0"
"""What is read behind the text, which has no such sign: at the end of a quote that is never closed."""


class Notation(NamedTuple):
    """A way of writing numbers that pandas does not parse by itself, with the sign that tells it from others."""

    what: str
    sign: str
    thousands: str
    pattern: str


DECIMAL_COMMAS = Notation("decimal commas", ",", ".", r"[+-]?(\d+|\d{1,3}(\.\d{3})+)(,\d+)?(e[+-]?\d+)?")
THOUSANDS_COMMAS = Notation(
    "commas between thousands", ",", ",", r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?|[+-]?\d+(\.\d+)?"
)
THOUSANDS_POINTS = Notation("points between thousands", ".", ".", r"[+-]?([1-9]\d{0,2}(\.\d{3})*|0)")


def read_table(
    path: str | os.PathLike[str], *, ignore: Sequence[str] = (), needed: Sequence[str] | None = None
) -> pd.DataFrame:
    r"""Read a table of numbers, Boolean values and text.

    Parameters
    ----------
    path : path-like, or "-"
        CSV file with comma, semicolon, tab or ``|`` as separator, or Parquet file, possibly compressed with gzip.
        ``"-"`` is standard input. Text is read as UTF-8, UTF-16 with a byte order mark, or else Windows-1252.
    ignore : sequence of str
        Columns to leave out.
    needed : sequence of str, optional
        Columns that must exist and be valid; default: all. In other columns, cells that are not numbers are
        accepted in a column of numbers.

    Returns
    -------
    DataFrame [n, d]
        Integers are int64, other numbers and columns with missing numbers are float64, Boolean values are bool,
        and everything else is text, with NaN for missing values. Empty cells and ``NA``, ``N/A``, ``nan``,
        ``null``, ``None``, ``?`` and ``-`` count as missing. Columns with the name of another one, or without a
        name, are called as pandas calls them, such as ``a.1`` and ``Unnamed: 3``.
        ``frame.attrs["notes"]`` is a list of str that describes how the file was interpreted: dropped or renamed
        columns, decimal commas, a guessed encoding.

    Raises
    ------
    ValueError
        If the file is missing, damaged, empty or not a table, if the lines differ in their number of cells, if a
        column in `ignore` or `needed` does not exist, if a number is not finite, or if a few cells in a column of
        numbers are not numbers. The message names the file, the line and the column.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from neonxc.data.files import read_table
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder) / "people.csv"
    ...     _ = file.write_text("age;height;town\n31;1,75;Rome\n?;1,8;Turin\n")
    ...     frame = read_table(file)
    >>> frame
        age  height   town
    0  31.0    1.75   Rome
    1   NaN    1.80  Turin
    """
    name, data = _read(path)
    source, separator = _from_parquet(name, data) if data.startswith(b"PAR1") else _from_text(name, data)
    check_columns(name, [*ignore, *(needed or ())], source.columns)
    columns = {column: _stripped(cells) for column, cells in source.items() if column not in ignore}
    if not columns:
        raise ValueError(f"{name} has no column left")
    commas = [DECIMAL_COMMAS, THOUSANDS_COMMAS]
    if separator == ",":  # 1,234 is ambiguous; CSV files with commas use decimal points
        commas.reverse()
    notations = {column: _notation(cells, commas) for column, cells in columns.items()}
    if DECIMAL_COMMAS in notations.values():  # else 1.234 is a decimal number
        for column, cells in columns.items():
            notations[column] = notations[column] or _notation(cells, [THOUSANDS_POINTS])
    values, examples = {}, defaultdict[str, list[str]](list)
    for column, cells in columns.items():
        notation = notations[column]
        values[column] = _converted(name, cells, notation, needed is None or column in needed)
        if notation:
            row = cells.str.contains(notation.sign, regex=False, na=False).argmax()
            examples[notation.what].append(f"{column} ({cells.iloc[row]} is {values[column].iloc[row]:.15g})")
    notes = [f"{what} were understood in {', '.join(of_notation)}" for what, of_notation in examples.items()]
    first = next(iter(values))
    unnamed = first == f"{UNNAMED}0" and first not in (needed or ()) and len(values) > 1
    if unnamed and values[first].dtype.kind == "i" and values[first].is_unique:
        notes.append("the first column has no name and numbers the rows: it was dropped")
        del values[first]
    frame = pd.DataFrame(values).reset_index(drop=True)
    frame.attrs["notes"] = source.attrs.get("notes", []) + notes
    return frame


def _read(path: str | os.PathLike[str]) -> tuple[str, bytes]:
    """Return the name and the decompressed bytes of a file."""
    piped = os.fspath(path) == "-"
    name = "standard input" if piped else str(path)
    try:
        data = sys.stdin.buffer.read() if piped else Path(path).read_bytes()
        data = gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data
    except (EOFError, OSError, zlib.error) as error:
        raise ValueError(f"{name} can't be read: {getattr(error, 'strerror', None) or error}") from None
    start = data[:1000].lstrip().lower()
    for signature, what in OTHERS.items():
        if start.startswith(signature):
            raise ValueError(f"{name} is no table but {what}")
    return name, data


# Both kinds of files become frames whose index says where a row is in the file, and what separates the cells.


def _from_parquet(name: str, data: bytes) -> tuple[pd.DataFrame, str]:
    try:
        table = parquet.read_table(BytesIO(data))
        table.validate(full=True)
        frame = as_pandas(table)
    except Exception as error:  # damaged metadata may raise errors of any type
        raise ValueError(f"{name} is damaged, or no Parquet file that can be read: {error}") from None
    if not len(frame):
        raise ValueError(f"{name} has columns and no data")
    unnamed = all(level is None for level in frame.index.names)
    return frame.reset_index(drop=unnamed).rename(columns=str).rename_axis("row"), ""


def _from_text(name: str, data: bytes) -> tuple[pd.DataFrame, str]:
    text, notes = _decoded(name, data)
    separator = _separator(text)
    records = _records(name, text, separator)
    header, *rows = records.values()
    header = [cell.strip() for cell in header]
    if rows and len(rows[0]) > len(header):
        header.insert(0, "")
    elif any(header) and all(starmap(_is_data, zip(*records.values(), strict=True))):
        header, rows = [f"x{i}" for i in range(len(header))], [*records.values()]
        notes.append(f"the first line is data: the columns are called x0 ... {header[-1]}")
    if not rows:
        raise ValueError(f"{name} has a header and no data")
    names: list[str] = []
    for i, cell in enumerate(header):
        names.append(unused(cell or f"{UNNAMED}{i}", ".", names.__contains__, first=1))
    if renamed := [new for new, cell in zip(names, header, strict=True) if cell not in ("", new)]:
        notes.append(f"columns of the same name are called {', '.join(renamed)}")
    lines = pd.Index([*records][-len(rows) :], name="line")
    frame = pd.DataFrame(rows, lines, names, dtype=str)
    frame = frame.drop(columns=[new for new in names[1:] if new.startswith(UNNAMED) and not frame[new].any()])
    if frame.shape[1] == 1 and not all(map(_is_number, _stripped(frame.iloc[:, 0]).dropna()[:1])):
        raise ValueError(
            f"{name} is no table but one column of text; separate columns by comma, semicolon, tab or |"
        )
    frame.attrs["notes"] = notes
    return frame, separator


def _decoded(name: str, data: bytes) -> tuple[str, list[str]]:
    """Return the text of a file, with line feeds between the lines, and a note if its encoding was guessed."""
    notes = []
    try:
        text = data.decode("utf-16" if data.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("cp1252", errors="replace")
        notes.append("the text is not UTF-8: it was read as Windows-1252 (Latin-1)")
    if "\0" in text:
        raise ValueError(f"{name} is no table but binary data, or text in UTF-16 without a byte order mark: {CSV}")
    if not text.strip():
        raise ValueError(f"{name} can't be read as a table: it is empty")
    return text.replace("\r\n", "\n").replace("\r", "\n"), notes


def _separator(text: str) -> str:
    """Find the separator that splits the first lines into the same number of cells, or else the most frequent."""
    sample = [line for line in text[:100_000].splitlines()[:50] if line.strip()]
    for separator in SEPARATORS:
        widths = {len(record) for record in csv.reader(sample, delimiter=separator, skipinitialspace=True)}
        if len(widths) == 1 and widths != {1}:
            return separator
    return max(",;\t|", key=sample[0].count)


def _records(name: str, text: str, separator: str) -> dict[int, list[str]]:
    """Return the cells of all lines that are not blank, by the number of the line."""
    reader = csv.reader(StringIO(f"{text}\n{END}"), delimiter=separator, skipinitialspace=True)
    try:
        rows = ((reader.line_num, row) for row in reader)
        records = {line: row for line, row in rows if len(row) > 1 or any(map(str.strip, row))}
        if records.popitem()[1] != [END]:
            raise csv.Error("the file ends inside a quote")
    except csv.Error as error:
        raise ValueError(f"{name} can't be read as a table: {error}; is a quote never closed?") from None
    first, *others = map(len, records.values())
    usual = first + 1 if first > 1 and {*others} == {first + 1} else first  # R writes no cell above names of rows
    for line, width in zip([*records][1:], others, strict=True):
        if width != usual:
            hint = "; remove what is above the header" if mode(others) != first else ""
            widths = f"line {line} has {width} cells, the first line has {first}"
            raise ValueError(f"{name} can't be read as a table: {widths}{hint}")
    return records


def _is_data(first: str, *others: str) -> bool:
    """Whether a cell of the first line is a number, missing, or occurs again in its column."""
    cell = first.strip()
    return _is_number(cell) or (cell != "" and cell.lower() in MISSING) or cell in map(str.strip, others)


def _is_number(cell: str) -> bool:
    """Return whether a cell is a number; inf, nan and numbers with commas count too."""
    try:
        float(cell)
    except ValueError:
        return bool(re.fullmatch(f"{DECIMAL_COMMAS.pattern}|{THOUSANDS_COMMAS.pattern}", cell))
    return True


def _stripped(cells: pd.Series) -> pd.Series:
    """Return cells as strings without spaces around them, or NaN for missing ones; typed columns are unchanged."""
    if cells.dtype.kind in TYPED:
        return cells
    text = cells.astype(str).str.strip()
    return text.where(cells.notna() & ~text.str.lower().isin(MISSING))


def _notation(cells: pd.Series, notations: Iterable[Notation]) -> Notation | None:
    """Return the first notation in which all cells are numbers, and some cell has its sign."""
    if cells.dtype.kind in TYPED:
        return None
    for notation in notations:
        has_sign = cells.str.contains(notation.sign, regex=False, na=False).any()
        if has_sign and cells.dropna().str.fullmatch(notation.pattern, case=False).all():
            return notation
    return None


def _converted(name: str, cells: pd.Series, notation: Notation | None, needed: bool) -> pd.Series:
    """Return the values of a stripped column; a mistake in a needed column of numbers is an error."""
    values = cells
    if cells.dtype.kind in "bmM":
        return cells
    if cells.dtype.kind not in TYPED:
        lower = cells.str.lower()
        if lower.isin(["true", "false"]).all():
            return (lower == "true").astype(bool)
        if notation is not None:  # with a decimal point and without separators of thousands
            values = cells.str.replace(notation.thousands, "", regex=False).str.replace(",", ".", regex=False)
        values = pd.to_numeric(values, errors="coerce")
    values = values.astype(np.result_type(values.dtype, np.int64))
    filled = cells.notna()
    mistakes = filled & ~np.isfinite(values)
    if values[filled].isna().mean() > 1 - MOSTLY or (mistakes.any() and not needed):
        return cells
    if not mistakes.any():
        return values
    row = mistakes.argmax()
    cell = str(cells.iloc[row])
    what = "a finite number" if _is_number(cell) else "a number, as the others are"
    raise ValueError(
        f"{name}, {cells.index.name} {cells.index[row]}, column {cells.name!r}: {cell!r} is not {what}; correct "
        "it, or leave the column out"
    )
