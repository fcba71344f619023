"""Read tables in CSV, in its many variants, or Parquet, from a file or from standard input."""

from __future__ import annotations

import csv
import os
import sys
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from io import BytesIO, StringIO
from itertools import islice
from pathlib import Path

import pandas as pd
from pyarrow import parquet

from neonxc.common.arguments import check_columns
from neonxc.data.cells import DECIMAL_COMMAS, MISSING, converted, grouped, is_number
from neonxc.data.file_contents import text_of, unpacked

NEEDED = "needed are columns separated by comma, semicolon, tab or |"
UNNAMED = "Unnamed: 0"
"""Name that pandas gives to a first column without a name."""
SEPARATORS = "\t;|,"
"""Separators in the order in which they are tried; the comma is last, as it may be a decimal comma."""


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
        ``null``, ``None``, ``?`` and ``-`` count as missing. ``frame.attrs["notes"]`` is a list of str that
        describes how the file was interpreted: dropped or renamed columns, decimal commas, a guessed encoding.

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
    data = unpacked(name, data)
    found = _from_parquet(name, data) if data.startswith(b"PAR1") else _from_text(name, *text_of(name, data))
    return found.frame(ignore, needed)


@dataclass
class _Table:
    """Columns as found in the file, with the context for error messages and notes."""

    name: str
    columns: dict[str, pd.Series]
    text: str | None = None
    separator: str = ","
    first: int = 0  # number of records above the data
    notes: list[str] = field(default_factory=list)
    commas: dict[str, list[str]] = field(default_factory=dict)

    def frame(self, ignore: Sequence[str], needed: Sequence[str] | None) -> pd.DataFrame:
        for wanted in (ignore, needed or ()):
            check_columns(self.name, wanted, self.columns)
        kept = [column for column in self.columns if column not in set(ignore)]
        if not kept:
            raise ValueError(f"{self.name} has no column left")
        strict = set(self.columns if needed is None else needed)
        values = {column: self._converted(column, column in strict) for column in kept}
        if DECIMAL_COMMAS in self.commas:
            values |= self._grouped(kept)
        self.notes += [f"{kind} were understood in {', '.join(found)}" for kind, found in self.commas.items()]
        if UNNAMED not in (needed or ()) and _numbers_rows(values):
            self.notes.append("the first column has no name and numbers the rows: it was dropped")
            del values[UNNAMED]
        frame = pd.DataFrame(values)
        frame.attrs["notes"] = self.notes
        return frame

    def _converted(self, column: str, strict: bool) -> pd.Series:
        values, commas, bad = converted(self.columns[column], self.separator)
        if strict and bad is not None:
            place = f"{self.name}, {self._place(bad)}, column {column!r}"
            cell = str(self.columns[column].iloc[bad]).strip()
            what = "a finite number" if is_number(cell) else "a number, as the others are"
            raise ValueError(f"{place}: {cell!r} is not {what}; correct it, or leave the column out")
        if commas is not None:
            kind, example = commas
            self.commas.setdefault(kind, []).append(f"{column} ({example})")
        return values

    def _grouped(self, kept: list[str]) -> dict[str, pd.Series]:
        """Convert columns in which points separate thousands, for a table with decimal commas."""
        found = {column: grouped(self.columns[column]) for column in kept}
        result = {column: values for column, values in found.items() if values is not None}
        if result:
            self.commas["points between thousands"] = list(result)
        return result

    def _place(self, row: int) -> str:
        """Describe the position of a row in the file."""
        if self.text is None:
            return f"row {row}"
        _, line = next(islice(_records(self.text, self.separator), row + self.first, None))
        return f"line {line}"


def _read(path: str | os.PathLike[str]) -> tuple[str, bytes]:
    if os.fspath(path) == "-":
        name, data = "standard input", sys.stdin.buffer.read()
    elif Path(path).is_dir():
        raise ValueError(f"{path} is a folder; a table is one file")
    elif not Path(path).is_file():
        raise ValueError(f"no such file: {path}")
    else:
        name, data = str(path), Path(path).read_bytes()
    if not data.strip():
        raise ValueError(f"{name} can't be read as a table: it is empty")
    return name, data


def _from_parquet(name: str, data: bytes) -> _Table:
    try:
        table = parquet.read_table(BytesIO(data))
        table.validate(full=True)
        frame = table.to_pandas()
    except Exception as error:  # damaged metadata may raise errors of any type
        raise ValueError(f"{name} is damaged, or no Parquet file that can be read: {error}") from None
    if any(level is not None for level in frame.index.names):
        frame = frame.reset_index()
    if not len(frame):
        raise ValueError(f"{name} has columns and no data")
    return _Table(name, {str(column): frame.iloc[:, i] for i, column in enumerate(frame.columns)})


def _from_text(name: str, text: str, notes: list[str]) -> _Table:
    separator = _separator(text)
    try:
        width, named_rows = _width(name, text, separator)
        cells = pd.read_csv(
            StringIO(text), sep=separator, header=None, names=range(width), dtype=str, keep_default_na=False
        )
    except (csv.Error, pd.errors.ParserError) as error:
        raise ValueError(f"{name} can't be read as a table: {error}; is a quote never closed?") from None
    columns = {i: cells[i] for i in cells}
    header = [str(columns[i].iloc[0]).strip() for i in columns]
    if named_rows:  # in files written by R the header has no cell above the row names
        header = ["", *header[:-1]]
    headed = named_rows or not _is_data(cells)
    if headed:
        columns = {i: values.iloc[1:].reset_index(drop=True) for i, values in columns.items()}
    else:
        header = [f"x{i}" for i in range(width)]
        notes.append(f"the first line is data: the columns are called x0 ... x{width - 1}")
    if not len(columns[0]):
        raise ValueError(f"{name} has a header and no data")
    named = _named(header, columns, notes)
    if len(named) == 1 and not is_number(next((v for v in columns[0] if v.strip().lower() not in MISSING), "0")):
        raise ValueError(f"{name} is no table but one column of text; {NEEDED}")
    return _Table(name, named, text, separator, int(headed), notes)


def _separator(text: str) -> str:
    """Find the separator that splits the first lines into the same number of cells, or else the most frequent."""
    sample = [line for line in text[:100_000].splitlines()[:50] if line.strip()]
    for separator in SEPARATORS:
        try:
            widths = {len(record) for record in csv.reader(sample, delimiter=separator)}
        except csv.Error:
            continue
        if len(widths) == 1 and widths != {1}:
            return separator
    return max(",;\t|", key=sample[0].count)


def _records(text: str, separator: str) -> Iterator[tuple[list[str], int]]:
    """Iterate over the records that are not blank, each with the number of its last line."""
    reader = csv.reader(StringIO(text), delimiter=separator)
    return ((record, reader.line_num) for record in reader if len(record) > 1 or any(map(str.strip, record)))


def _width(name: str, text: str, separator: str) -> tuple[int, bool]:
    """Return the number of cells per line, and whether the header has one cell less, as in files written by R."""
    lines = [(len(record), line) for record, line in _records(text, separator)]
    widths = Counter(width for width, _ in lines[1:])
    first = lines[0][0]
    usual, often = widths.most_common(1)[0] if widths else (first, 0)
    if set(widths) == {first + 1} and first > 1:
        return first + 1, True
    if usual != first and often > len(lines) / 2:
        raise ValueError(
            f"{name} can't be read as a table: the first line has {first} cells, most others have {usual}; remove "
            "what is above the header"
        )
    if odd := [(width, line) for width, line in lines if width != first]:
        if len(odd) > len(lines) / 2:
            raise ValueError(
                f"{name} is no table: its lines have between {min(widths)} and {max(widths)} cells; {NEEDED}"
            )
        width, line = odd[0]
        raise ValueError(
            f"{name} can't be read as a table: line {line} has {width} cells, the first line has {first}"
        )
    return first, False


def _is_data(cells: pd.DataFrame) -> bool:
    """Whether every cell of the first line is a number or occurs again in its column."""
    first = [str(cell).strip() for cell in cells.iloc[0]]
    if not any(first):
        return False

    def again(i: int) -> bool:
        return bool((cells[i].iloc[1:].str.strip() == first[i]).any())

    return all(
        is_number(cell) or (cell.lower() in MISSING and cell != "") or again(i) for i, cell in enumerate(first)
    )


def _named(header: list[str], columns: dict[int, pd.Series], notes: list[str]) -> dict[str, pd.Series]:
    """Map names to columns; empty columns without a name are dropped, repeated names are numbered."""
    result: dict[str, pd.Series] = {}
    for i, (name, values) in enumerate(zip(header, columns.values(), strict=True)):
        if not name and i and not values.str.strip().any():
            continue
        given = name or (f"x{i}" if i else UNNAMED)
        free = free_name(given, result)
        if free != given:
            notes.append(f"{given!r} is the name of several columns: column {i + 1} is called {free}")
        elif not name and i:
            notes.append(f"column {i + 1} has no name and is called {free}")
        result[free] = values
    return result


def free_name(name: str, taken: Container[str]) -> str:
    """Return a name, with a number appended if it is already taken."""
    free, number = name, 2
    while free in taken:
        free, number = f"{name}_{number}", number + 1
    return free


def _numbers_rows(values: dict[str, pd.Series]) -> bool:
    """Whether a first column without a name contains distinct integers, like an index."""
    first = values.get(UNNAMED)
    return len(values) > 1 and first is not None and first.dtype.kind == "i" and first.is_unique
