"""Files of tables: their cells as they are written, from CSV in its many variants or Parquet."""

from __future__ import annotations

import csv
import gzip
import os
import re
import sys
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from io import BytesIO, StringIO
from pathlib import Path
from statistics import mode
from typing import Any, NamedTuple

import pandas as pd
from pyarrow import parquet

from neonxc.common.arguments import unused
from neonxc.common.numbers import plural
from neonxc.data.files.notation import EXACT, MISSING, is_number
from neonxc.data.files.spreadsheets import text_of
from neonxc.data.frames import as_pandas

UNNAMED = "Unnamed: "
"""Start of the names of columns without a name, as pandas gives them; the position follows."""
SEPARATORS = "\t;|,"
"""Separators in the order in which they are tried; the comma is last, as it may be a decimal comma."""
NAMED = re.compile(r'"?sep=(.)"?[\t;|, ]*\n', re.IGNORECASE)
"""A first line in which Excel names the separator."""
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
UNPACKED = 1 << 30
"""Bytes to which a file may unpack: pandas needs several times as much, and more is read in batches."""
RATIO = 20
"""Times the file that it may unpack to beyond that; gzip takes tables to a tenth, and blanks to a thousandth."""
CHUNK = 1 << 20
"""Bytes that are unpacked at a time."""
END = "\0"
"""What is read behind the text, which has no such sign: at the end of a quote that is never closed."""


class Cells(NamedTuple):
    """The cells of a file.

    Attributes
    ----------
    name : str
        What messages call the file.
    columns : mapping of str to sequence of str, or Series
        The cells of the columns that are not empty, by names that are all different: as they are written, or of a
        Parquet file with their types.
    header, rows : list of str, and list of lists of str or DataFrame
        The names as they are in the file, and all of its cells; those that
        :func:`~neonxc.data.files.spreadsheets.written` has given an apostrophe are without it.
    places : Index
        Where a row is in the file; its name is "line" or "row".
    separator : str
        What separates the cells; "" for a Parquet file.
    notes : list of str
        How the file was interpreted.
    """

    name: str
    columns: Mapping[str, Any]
    header: list[str]
    rows: Any
    places: pd.Index
    separator: str
    notes: list[str]

    def written(self) -> pd.DataFrame:
        """Return the table as it is in the file: text as it is written, and values of a Parquet file."""
        return pd.DataFrame(self.rows).set_axis(self.header, axis=1)

    def ids(self, column: str, na: Sequence[str] = ()) -> pd.Index:
        """Return the identifiers in a column as text, as they are written; None for missing ones, such as `na`."""
        words = MISSING.union(map(str.casefold, na))
        cells = pd.Series(self.columns[column])
        if cells.dtype.kind == "f" and not (cells.dropna() % 1).any():  # whole numbers, as some are missing
            cells = cells.astype("Int64")
        texts = ["" if missing else str(cell).strip() for cell, missing in zip(cells, cells.isna(), strict=True)]
        return pd.Index([None if text.casefold() in words else text for text in texts], dtype=object, name=column)


def read_cells(path: str | os.PathLike[str]) -> Cells:
    """Read the cells of a file, or of standard input ("-").

    Raises
    ------
    ValueError
        If the file is missing, damaged, empty or not a table, or if the lines differ in their number of cells.
    """
    piped = os.fspath(path) == "-"
    name = "standard input" if piped else str(path)
    try:
        data = sys.stdin.buffer.read() if piped else Path(path).read_bytes()
        if data.startswith(b"\x1f\x8b"):
            data = _unpacked(name, data)
    except (EOFError, OSError, zlib.error) as error:
        raise ValueError(f"{name} can't be read: {getattr(error, 'strerror', None) or error}") from None
    start = data[:1000].lstrip().lower()
    for signature, what in OTHERS.items():
        if start.startswith(signature):
            raise ValueError(f"{name} is not a table but {what}")
    return _from_parquet(name, data) if data.startswith(b"PAR1") else _from_text(name, data)


def _unpacked(name: str, data: bytes) -> bytes:
    """Decompress a file of gzip, and stop beyond the limit."""
    most = max(UNPACKED, RATIO * len(data))
    content = bytearray()
    with gzip.open(BytesIO(data)) as file:
        while chunk := file.read(CHUNK):
            content += chunk
            if len(content) > most:
                raise _too_large(name, len(data), most)
    return bytes(content)


def _too_large(name: str, size: int, most: int) -> ValueError:
    return ValueError(
        f"{name} has {size:,} bytes, and unpacks to more than {most:,}; if that is right, unpack the file, or "
        "read a part of it, such as some columns, with pandas or pyarrow, and pass the data frame"
    )


def _check_unpacked(name: str, data: bytes) -> None:
    """Raise a ValueError if a Parquet file says that it unpacks to more than the limit, or has too many rows.

    A column that repeats one value takes a few bytes in the file, whatever its number of rows.
    """
    with parquet.ParquetFile(BytesIO(data)) as file:
        metadata = file.metadata
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    stored = sum(group.total_byte_size for group in groups)
    cells = 8 * metadata.num_rows * max(1, metadata.num_columns)
    most = max(UNPACKED, RATIO * len(data))
    if max(stored, cells) > most:
        raise _too_large(name, len(data), most)


def _from_parquet(name: str, data: bytes) -> Cells:
    try:
        _check_unpacked(name, data)
    except Exception as error:  # as below
        if str(error).startswith(name):
            raise
        raise ValueError(f"{name} is damaged, or is not a Parquet file that can be read: {error}") from None
    try:
        table = parquet.read_table(BytesIO(data))
        table.validate(full=True)
        frames = as_pandas(table), table.to_pandas(types_mapper=pd.ArrowDtype)
    except Exception as error:  # damaged metadata may raise errors of any type
        raise ValueError(f"{name} is damaged, or is not a Parquet file that can be read: {error}") from None
    unnamed = all(level is None for level in frames[0].index.names)
    frame, written = (frame.reset_index(drop=unnamed).rename(columns=str) for frame in frames)
    if not len(frame):
        raise ValueError(f"{name} has columns and no data")
    columns: dict[str, Any] = dict(frame.items())
    for column, values in written.items():
        if values.dtype.kind in "iu" and values.isna().any() and values.dropna().abs().max() >= EXACT:
            columns[str(column)] = [
                "" if value is pd.NA else str(value) for value in values
            ]  # floats are too short
    return Cells(name, columns, [*written], written, frame.index.rename("row"), "", [])


def _from_text(name: str, data: bytes) -> Cells:
    text, notes = _decoded(name, data)
    named = NAMED.match(text)
    if named:
        text = text[named.end() - 1 :]  # without the line, but with its end, so that lines are counted as they are
    separator = named[1] if named else _separator(text)
    records = _records(name, text, separator)
    if "'" in text:
        records = {line: [*map(text_of, row)] for line, row in records.items()}
    header, *rows = records.values()
    names = [cell.strip() for cell in header]
    if rows and len(rows[0]) > len(header):
        header, names = ["", *header], ["", *names]
    columns = [*zip(*rows, strict=True)] or [()] * len(names)
    if any(names) and len(records) > len(rows) and all(map(_is_data, names, columns)):
        header = names = [f"x{i}" for i in range(len(header))]
        rows = [*records.values()]
        columns = [*zip(*rows, strict=True)]
        notes.append(f"the first line is data: the columns are called x0 ... {header[-1]}")
    if not rows:
        raise ValueError(f"{name} has a header and no data")
    named_columns: dict[str, Sequence[str]] = {}
    seen = Counter[str]()  # as many numbers of a name are taken, so that they are not tried again
    for i, (cell, cells) in enumerate(zip(names, columns, strict=True)):
        new = unused(cell or f"{UNNAMED}{i}", ".", named_columns.__contains__, first=max(1, seen[cell]))
        seen[cell] += 1
        named_columns[new] = cells
    if renamed := [new for new, cell in zip(named_columns, names, strict=True) if cell not in ("", new)]:
        notes.append(f"columns of the same name are called {', '.join(renamed)}")
    for new in [*named_columns][1:]:
        if new.startswith(UNNAMED) and not any(named_columns[new]):
            del named_columns[new]
    if len(named_columns) == 1 and not _starts_with_number(columns[0]):
        raise ValueError(
            f"{name} is not a table but one column of text; separate columns by comma, semicolon, tab or |"
        )
    places = pd.Index([*records][-len(rows) :], name="line")
    return Cells(name, named_columns, header, rows, places, separator, notes)


def _decoded(name: str, data: bytes) -> tuple[str, list[str]]:
    """Return the text of a file, with line feeds between the lines, and a note if its encoding was guessed."""
    notes = []
    try:
        text = data.decode("utf-16" if data.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("cp1252", errors="replace")
        notes.append("the text is not UTF-8: it was read as Windows-1252 (Latin-1)")
    if "\0" in text:
        raise ValueError(
            f"{name} is not a table but binary data, or text in UTF-16 without a byte order mark: {CSV}"
        )
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
    first, *others = sample
    if others and not {*SEPARATORS} & {*first} and all(is_number(line.strip(), with_unit=True) for line in others):
        return ";"  # one column, of numbers with decimal commas
    return max(",;\t|", key=first.count)


def _records(name: str, text: str, separator: str) -> dict[int, list[str]]:
    """Return the cells of all lines that are not blank, by the number of the line."""
    spaced = f'{separator} "' in text  # else spaces belong to the cells, and are passed on with them
    reader = csv.reader(StringIO(f"{text}\n{END}"), delimiter=separator, skipinitialspace=spaced)
    try:
        rows = ((reader.line_num, row) for row in reader)
        records = {line: row for line, row in rows if len(row) > 1 or any(map(str.strip, row))}
        if records.popitem()[1] != [END]:
            raise csv.Error("the file ends inside a quote")
    except csv.Error as error:
        raise ValueError(f"{name} can't be read as a table: {error}; is a quote never closed?") from None
    if not records:
        raise ValueError(f"{name} can't be read as a table: it is empty")
    first, *others = map(len, records.values())
    usual = first + 1 if first > 1 and {*others} == {first + 1} else first  # R writes no cell above names of rows
    for line, width in zip([*records][1:], others, strict=True):
        if width != usual:
            hint = "; remove what is above the header" if mode(others) != first else ""
            widths = f"line {line} has {plural(width, 'cell')}, the first line has {first}"
            raise ValueError(f"{name} can't be read as a table: {widths}{hint}")
    return records


def _is_data(first: str, others: Sequence[str]) -> bool:
    """Whether a cell of the first line is a number, missing, or occurs again in its column."""
    return is_number(first) or (first != "" and first.casefold() in MISSING) or first in map(str.strip, others)


def _starts_with_number(cells: Sequence[str]) -> bool:
    """Whether the first cell that is not missing is a number, with a unit or without."""
    first = next((cell.strip() for cell in cells if cell.strip().casefold() not in MISSING), "0")
    return is_number(first, with_unit=True)
