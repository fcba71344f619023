"""Read tables in CSV, in its many variants, or Parquet, from a file or from standard input."""

from __future__ import annotations

import codecs
import csv
import gzip
import os
import sys
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from io import BytesIO, StringIO
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import pandas as pd
from pyarrow import parquet

from neonxc.common.arguments import check_columns
from neonxc.data.cells import (
    DECIMAL_COMMAS,
    MISSING,
    THOUSANDS_COMMAS,
    THOUSANDS_POINTS,
    Notation,
    converted,
    is_number,
    notation_of,
    stripped,
)
from neonxc.data.frames import as_pandas

NEEDED = "needed are columns separated by comma, semicolon, tab or |"
UNNAMED = "Unnamed: "
"""Start of the names that pandas gives to columns without a name; the position follows."""
SEPARATORS = "\t;|,"
"""Separators in the order in which they are tried; the comma is last, as it may be a decimal comma."""
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
    source = _from_parquet(name, data) if data.startswith(b"PAR1") else _from_text(name, data)
    for wanted in (ignore, needed or ()):
        check_columns(name, wanted, source.columns)
    cells = {column: stripped(source.columns[column]) for column in source.columns if column not in ignore}
    if not cells:
        raise ValueError(f"{name} has no column left")
    notations = _notations(cells, source.separator)
    values, notes = {}, source.notes
    for column, own in cells.items():
        values[column], mistake = converted(own, notations[column])
        if mistake is not None and (needed is None or column in needed):
            cell = own.iloc[mistake]
            what = "a finite number" if is_number(cell) else "a number, as the others are"
            raise ValueError(
                f"{name}, {source.place(mistake)}, column {column!r}: {str(cell)!r} is not {what}; correct it, or "
                "leave the column out"
            )
    for notation in filter(None, dict.fromkeys(notations.values())):
        examples = [
            f"{column} ({own[row]} is {values[column][row]:.15g})"
            for column, own in cells.items()
            if notations[column] == notation
            for row in [own.str.contains(notation.sign, regex=False, na=False).idxmax()]
        ]
        notes.append(f"{notation.what} were understood in {', '.join(examples)}")
    first = next(iter(values))
    unnamed = first == f"{UNNAMED}0" and first not in (needed or ()) and len(values) > 1
    if unnamed and values[first].dtype.kind == "i" and values[first].is_unique:
        notes.append("the first column has no name and numbers the rows: it was dropped")
        del values[first]
    frame = pd.DataFrame(values)
    frame.attrs["notes"] = notes
    return frame


class _Source(NamedTuple):
    """The columns of a file before their conversion, and the text that they are from."""

    columns: pd.DataFrame
    notes: list[str]
    text: str = ""
    separator: str = ""
    above: int = 0  # number of records above the data

    def place(self, row: int) -> str:
        """Describe the position of a row in the file."""
        if not self.text:
            return f"row {row}"
        _, line = next(islice(_records(self.text, self.separator), row + self.above, None))
        return f"line {line}"


def _read(path: str | os.PathLike[str]) -> tuple[str, bytes]:
    """Return the name and the decompressed bytes of a file."""
    if os.fspath(path) == "-":
        name, data = "standard input", sys.stdin.buffer.read()
    elif Path(path).is_dir():
        raise ValueError(f"{path} is a folder; a table is one file")
    elif not Path(path).is_file():
        raise ValueError(f"no such file: {path}")
    else:
        name, data = str(path), Path(path).read_bytes()
    if data.startswith(b"\x1f\x8b"):
        try:
            data = gzip.decompress(data)
        except (EOFError, OSError, zlib.error) as error:
            raise ValueError(
                f"{name} is damaged: gzip can't unpack it ({error}); copy or download it again"
            ) from None
    start = data[:1000].lstrip().lower()
    for signature, what in OTHERS.items():
        if start.startswith(signature):
            raise ValueError(f"{name} is no table but {what}")
    return name, data


def _from_parquet(name: str, data: bytes) -> _Source:
    try:
        table = parquet.read_table(BytesIO(data))
        table.validate(full=True)
        frame = as_pandas(table)
    except Exception as error:  # damaged metadata may raise errors of any type
        raise ValueError(f"{name} is damaged, or no Parquet file that can be read: {error}") from None
    if not len(frame):
        raise ValueError(f"{name} has columns and no data")
    unnamed = all(level is None for level in frame.index.names)
    return _Source(frame.reset_index(drop=unnamed).rename(columns=str), [])


def _from_text(name: str, data: bytes) -> _Source:
    text, notes = _decoded(name, data)
    separator = _separator(text)

    def read(header: int | None) -> pd.DataFrame:
        options = {"dtype": str, "keep_default_na": False, "skipinitialspace": True}
        return pd.read_csv(StringIO(text), sep=separator, header=header, **options)

    try:
        header = _header(name, text, separator)
        frame = read(header=0)
        row_names = not isinstance(frame.index, pd.RangeIndex)  # R writes no cell above them
        headed = row_names or not _is_data(header, frame)
        frame = frame if headed else read(header=None).add_prefix("x")
    except (csv.Error, pd.errors.ParserError) as error:
        raise ValueError(f"{name} can't be read as a table: {error}; is a quote never closed?") from None
    frame = as_pandas(frame.set_axis(frame.columns.str.strip(), axis=1), name)
    if not headed:
        notes.append(f"the first line is data: the columns are called x0 ... x{len(header) - 1}")
    elif renamed := [new for new, given in zip(frame, header, strict=True) if given not in ("", new)]:
        notes.append(f"columns of the same name are called {', '.join(renamed)}")
    if not len(frame):
        raise ValueError(f"{name} has a header and no data")
    empty = [column for column in frame.columns[1:] if column.startswith(UNNAMED) and not frame[column].any()]
    frame = frame.drop(columns=empty)
    if row_names:
        frame = frame.reset_index(names=f"{UNNAMED}0")
    if frame.shape[1] == 1:
        cells = stripped(frame.iloc[:, 0]).dropna()
        if len(cells) and not is_number(cells.iloc[0]):
            raise ValueError(f"{name} is no table but one column of text; {NEEDED}")
    return _Source(frame, notes, text, separator, int(headed))


def _decoded(name: str, data: bytes) -> tuple[str, list[str]]:
    """Return the text of a file, with line feeds between the lines, and a note if its encoding was guessed."""
    notes = []
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        text = data.decode("utf-16", errors="replace")
    else:
        try:
            text = data.decode("utf-8-sig")
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


def _records(text: str, separator: str) -> Iterator[tuple[list[str], int]]:
    """Iterate over the records that are not blank, each with the number of its last line."""
    reader = csv.reader(StringIO(text), delimiter=separator, skipinitialspace=True)
    return ((record, reader.line_num) for record in reader if len(record) > 1 or any(map(str.strip, record)))


def _header(name: str, text: str, separator: str) -> list[str]:
    """Return the cells of the first line, after a check that all lines have the same number of cells."""
    records = _records(text, separator)
    header = [cell.strip() for cell in next(records)[0]]
    lines = [(len(record), line) for record, line in records]
    widths, first = Counter(width for width, _ in lines), len(header)
    if first > 1 and set(widths) == {first + 1}:  # row names, as R writes them
        return header
    usual, often = widths.most_common(1)[0] if widths else (first, 0)
    if usual != first and often > (len(lines) + 1) / 2:
        raise ValueError(
            f"{name} can't be read as a table: the first line has {first} cells, most others have {usual}; remove "
            "what is above the header"
        )
    for width, line in lines:
        if width != first:
            raise ValueError(
                f"{name} can't be read as a table: line {line} has {width} cells, the first line has {first}"
            )
    return header


def _is_data(header: list[str], frame: pd.DataFrame) -> bool:
    """Whether every cell of the first line is a number, missing, or occurs again in its column."""

    def again(i: int) -> bool:
        return bool((frame.iloc[:, i].str.strip() == header[i]).any())

    return any(header) and all(
        is_number(cell) or (cell.lower() in MISSING and cell != "") or again(i) for i, cell in enumerate(header)
    )


def _notations(cells: dict[str, pd.Series], separator: str) -> dict[str, Notation | None]:
    """Return how the numbers of each column are written, as far as other columns help to tell."""
    usual = [DECIMAL_COMMAS, THOUSANDS_COMMAS]
    if separator == ",":  # 1,234 is ambiguous; CSV files with commas use decimal points
        usual.reverse()
    found = {column: notation_of(own, usual) for column, own in cells.items()}
    if DECIMAL_COMMAS not in found.values():
        return found
    return {column: found[column] or notation_of(own, [THOUSANDS_POINTS]) for column, own in cells.items()}
