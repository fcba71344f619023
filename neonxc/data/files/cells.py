"""Files of tables: their cells as they are written, from CSV in its many variants or Parquet.

A text is read in these steps:

1. The encoding is UTF-8, UTF-16 with a byte order mark, or else Windows-1252.
2. The separator is named in a first line ``sep=;``, or splits the first lines into the same number of cells, or
   at least most of them.
3. Lines with a cell that is not blank become records, whose lengths are the numbers of their cells. Blank cells
   behind the last column that any record fills do not count if some lines have them and others do not. The usual
   length is that of most of the first records.
4. The header is the line that the caller names, or else the first record that is no title. A title fills at most
   half of the usual number of cells, from the first one on, or is a comment (``#``).
5. Notes at the end, which are text in the first cell alone, are left out.
6. If the header is data, the columns are called x0, x1, ... It is no data if it numbers the columns.
7. A header that is one cell shorter than all rows has no name for the first column, if that names the rows: R
   writes tables so.
"""

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
from itertools import pairwise
from pathlib import Path
from statistics import mode
from typing import Any, NamedTuple, TypeAlias

import pandas as pd

from neonxc.common.arguments import listed, unused
from neonxc.common.numbers import plural
from neonxc.data.files.notation import EXACT, MISSING, is_number
from neonxc.data.frames import as_pandas

UNNAMED = "Unnamed: "
"""Start of the names of columns without a name, as pandas gives them; the position follows."""
SEPARATORS = "\t;|,"
"""Separators in the order in which they are tried; the comma is last, as it may be a decimal comma."""
NAMED = re.compile(r'"?sep=(.)"?[\t;|, ]*\n', re.IGNORECASE)
"""A first line in which Excel names the separator."""
FORMULA = re.compile(r'\A="([^"]*)"\Z')
"""A text that is written as a formula, so that a spreadsheet takes it for no number: ="02346"."""
YEAR = re.compile(r"(?:19|20)\d\d")
"""Numbers that are names of columns."""
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
SAMPLED_RECORDS = 50
"""Records at the start of a file that tell its separator and the usual number of cells."""
MAX_TITLES = 20
"""Titles at most above the header, and notes at most below the table."""
MIN_NUMBERED = 5
"""Columns from which on 0, 1, 2, ... are names: of answers from 1 to 5, one row in 3,125 is 1, 2, 3, 4, 5."""
Records: TypeAlias = dict[int, list[str]]
"""The cells of lines, by the number of the line."""
REPLACED = "\ufffd"
"""What stands for bytes that are no character of an encoding."""
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
        missing_words = MISSING.union(map(str.casefold, na))
        cells = pd.Series(self.columns[column])
        if cells.dtype.kind == "f" and not (cells.dropna() % 1).any():  # whole numbers, as some are missing
            cells = cells.astype("Int64")
        ids: list[str | None] = []
        for cell, is_missing in zip(cells, cells.isna(), strict=True):
            text = str(cell).strip()
            if is_missing or text.casefold() in missing_words:
                ids.append(None)
            else:
                ids.append(text)
        return pd.Index(ids, dtype=object, name=column)


def read_cells(path: str | os.PathLike[str], header: int | None = None) -> Cells:
    """Read the cells of a file, or of standard input ("-").

    Parameters
    ----------
    path : path-like, or "-"
    header : int, optional
        Number of the line with the names of the columns, from 1 on; lines above it are left out. Default: the
        first line that is no title.

    Raises
    ------
    ValueError
        If the file is missing, damaged, empty or not a table, or if the lines differ in their number of cells.
    """
    is_piped = os.fspath(path) == "-"
    name = "standard input" if is_piped else str(path)
    try:
        if is_piped:
            data = sys.stdin.buffer.read()
        else:
            data = Path(path).read_bytes()
        if data.startswith(b"\x1f\x8b"):
            data = _unpacked(name, data)
    except (EOFError, OSError, zlib.error) as error:
        raise ValueError(f"{name} can't be read: {getattr(error, 'strerror', None) or error}") from None

    start = data[:1000].lstrip().lower()
    for signature, what in OTHERS.items():
        if start.startswith(signature):
            raise ValueError(f"{name} is not a table but {what}")
    if data.startswith(b"PAR1"):
        return _from_parquet(name, data)
    return _from_text(name, data, header)


def _unpacked(name: str, data: bytes) -> bytes:
    """Decompress a file of gzip, and stop beyond the limit."""
    limit = max(UNPACKED, RATIO * len(data))
    content = bytearray()
    with gzip.open(BytesIO(data)) as file:
        while chunk := file.read(CHUNK):
            content += chunk
            if len(content) > limit:
                raise _too_large(name, len(data), limit)
    return bytes(content)


def _too_large(name: str, size: int, limit: int) -> ValueError:
    return ValueError(
        f"{name} has {size:,} bytes, and unpacks to more than {limit:,}; if that is right, unpack the file, or "
        "read a part of it, such as some columns, with pandas or pyarrow, and pass the data frame"
    )


def _check_unpacked(name: str, data: bytes) -> None:
    """Raise a ValueError if a Parquet file says that it unpacks to more than the limit, or has too many rows.

    A column that repeats one value takes a few bytes in the file, whatever its number of rows.
    """
    from pyarrow import parquet  # which text files do without

    with parquet.ParquetFile(BytesIO(data)) as file:
        metadata = file.metadata
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    stored_bytes = sum(group.total_byte_size for group in groups)
    cell_bytes = 8 * metadata.num_rows * max(1, metadata.num_columns)
    limit = max(UNPACKED, RATIO * len(data))
    if max(stored_bytes, cell_bytes) > limit:
        raise _too_large(name, len(data), limit)


def _from_parquet(name: str, data: bytes) -> Cells:
    try:
        _check_unpacked(name, data)
    except Exception as error:  # as below
        if str(error).startswith(name):
            raise
        raise ValueError(f"{name} is damaged, or is not a Parquet file that can be read: {error}") from None
    from pyarrow import parquet  # as above

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


def _from_text(name: str, data: bytes, header_line: int | None) -> Cells:
    text, notes = _decoded(name, data)
    separator = _separator(text)
    named = NAMED.match(text)
    if named:
        separator = named[1]
        text = text[named.end() - 1 :]  # without the line, but with its end, so that lines are counted as they are
    records, blank = _records(name, text, separator)
    if "'" in text:
        from neonxc.data.files.spreadsheets import text_of  # which most files do without

        records = {line: [*map(text_of, row)] for line, row in records.items()}
    if '="' in text:
        records = {line: [FORMULA.sub(r"\1", cell) for cell in row] for line, row in records.items()}
    records = _without_padding(records)
    first_line = next(iter(records))
    records, note_on_titles = _from_header(name, records, header_line)
    notes += note_on_titles
    blank_rows = [line for line in blank if line > next(iter(records))]
    if blank_rows:
        notes.append(f"{_lines(blank_rows)} no cell that is filled: left out")
    records, note_on_footer = _without_footer(records)
    notes += note_on_footer
    is_first = next(iter(records)) == first_line
    _check_lengths(name, records, "the first line" if is_first else "the header")

    header, *rows = records.values()
    names = [cell.strip() for cell in header]
    if rows and len(rows[0]) > len(header):
        header = ["", *header]
        names = ["", *names]
        notes.append("the header has no name for the first column, whose cells name the rows, as R writes tables")
    columns = [*zip(*rows, strict=True)] or [()] * len(names)
    may_be_data = header_line is None and not note_on_titles
    if may_be_data and any(names) and all(map(_is_data, names, columns)) and not _number_columns(names, columns):
        header = names = [f"x{i}" for i in range(len(header))]
        rows = [*records.values()]
        columns = [*zip(*rows, strict=True)]
        as_header = f"if it names them: header={first_line} or --header {first_line}"
        notes.append(f"the first line is data: the columns are called x0 ... {header[-1]}; {as_header}")
    if not rows:
        raise ValueError(f"{name} has a header and no data")

    named_columns = _with_names(names, columns)
    renamed = [new for new, cell in zip(named_columns, names, strict=True) if cell not in ("", new)]
    if renamed:
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


def _with_names(names: Sequence[str], columns: Sequence[Sequence[str]]) -> dict[str, Sequence[str]]:
    """Return the columns by their names, of which those that are missing or repeated are called as pandas does."""
    named_columns: dict[str, Sequence[str]] = {}
    seen = Counter[str]()  # as many numbers of a name are taken, so that they are not tried again
    for i, (cell, cells) in enumerate(zip(names, columns, strict=True)):
        first = max(1, seen[cell])
        new = unused(cell or f"{UNNAMED}{i}", ".", named_columns.__contains__, first=first)
        seen[cell] += 1
        named_columns[new] = cells
    return named_columns


def _from_header(name: str, records: Records, header_line: int | None) -> tuple[Records, list[str]]:
    """Return the records from the header on, and a note if titles above it were left out."""
    lines = [*records]
    if header_line is not None:
        below = {line: row for line, row in records.items() if line >= header_line}
        if not below:
            raise ValueError(
                f"header needs the line with the names of the columns, and {name} has {lines[-1]} lines"
            )
        return below, []

    n_titles = _n_titles([*records.values()])
    if not n_titles:
        return records, []
    header = lines[n_titles]
    title = " ".join(records[lines[0]]).strip()
    note = (
        f"line {header} is the header, and what is above it is left out ({title!r:.60}); to take another line: "
        f"header={lines[0]} or --header {lines[0]}"
    )
    return {line: records[line] for line in lines[n_titles:]}, [note]


def _usual_length(rows: Sequence[Sequence[str]]) -> int:
    """Return the number of cells that most of the first records have."""
    return mode(len(row) for row in rows[:SAMPLED_RECORDS])


def _n_titles(rows: Sequence[Sequence[str]]) -> int:
    """Return the number of titles above the header; 0 if there is no header below them."""
    usual = _usual_length(rows)
    n_titles = 0
    for row, next_row in pairwise(rows[:MAX_TITLES]):
        if not _is_title(row, usual) and not _is_comment(row, next_row):
            break
        n_titles += 1
    below = rows[n_titles + 1 :]
    if not n_titles or not below:
        return 0

    names = [cell.strip() for cell in rows[n_titles]]
    is_filled = all(names[1:]) and len({*names}) == len(names)
    if len(names) not in (usual, usual - 1) or not is_filled or {len(row) for row in below} != {usual}:
        return 0
    if all(not is_number(cell) or YEAR.fullmatch(cell) for cell in names):
        return n_titles
    columns = [*zip(*below, strict=True)][-len(names) :]
    is_padded = any(len(row) == usual for row in rows[:n_titles])
    if is_padded or all(map(_is_data, names, columns)):
        return 0
    return n_titles


def _is_title(row: Sequence[str], usual: int) -> bool:
    """Whether a record fills at most half of the usual number of cells, from the first one on."""
    is_filled = [bool(cell.strip()) for cell in row]
    n_filled = sum(is_filled)
    return n_filled <= usual / 2 and all(is_filled[:n_filled])


def _is_comment(row: Sequence[str], next_row: Sequence[str]) -> bool:
    """Whether a record begins with ``#``, and is not the header ``#name`` of the next one, which has numbers."""
    first = row[0].lstrip()
    return first.startswith(("# ", "##")) or (first.startswith("#") and not any(map(is_number, next_row)))


def _decoded(name: str, data: bytes) -> tuple[str, list[str]]:
    """Return the text of a file, with line feeds between the lines, and a note if its encoding was guessed."""
    notes = []
    encoding = "utf-8-sig"
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        encoding = "utf-16"
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        text = data.decode(encoding, errors="replace")
        n_damaged = text.count(REPLACED)
        n_others = sum(not character.isascii() for character in text) - n_damaged
        if n_damaged < n_others:
            notes.append(f"{plural(n_damaged, 'character')} of the text can't be read: read as {REPLACED}")
        else:
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
    """Find the separator that splits the first lines into the same number of cells, or else most of them."""
    sample = [line for line in text[:100_000].splitlines()[:SAMPLED_RECORDS] if line.strip()]
    most_frequent = {}
    for separator in SEPARATORS:
        records = csv.reader(sample, delimiter=separator, skipinitialspace=True)
        lengths = Counter(map(len, records))
        if len(lengths) == 1 and lengths.keys() != {1}:
            return separator
        del lengths[1]
        most_frequent[separator] = max(lengths.values(), default=0)

    first, *others = sample
    if others and not {*SEPARATORS} & {*first} and all(is_number(line.strip(), with_unit=True) for line in others):
        return ";"  # one column, of numbers with decimal commas
    best = max(most_frequent, key=most_frequent.__getitem__)
    if 2 * most_frequent[best] > len(sample):
        return best
    return max(",;\t|", key=first.count)


def _records(name: str, text: str, separator: str) -> tuple[Records, list[int]]:
    """Return the cells of all lines with a filled one, and the numbers of lines that have separators alone."""
    spaced = f'{separator} "' in text  # else spaces belong to the cells, and are passed on with them
    reader = csv.reader(StringIO(f"{text}\n{END}"), delimiter=separator, skipinitialspace=spaced)
    try:
        records: Records = {}
        blank = []
        for row in reader:
            if any(map(str.strip, row)):
                records[reader.line_num] = row
            elif len(row) > 1:
                blank.append(reader.line_num)
        if records.popitem()[1] != [END]:
            raise csv.Error("the file ends inside a quote")
    except csv.Error as error:
        raise ValueError(f"{name} can't be read as a table: {error}; is a quote never closed?") from None
    if not records:
        raise ValueError(f"{name} can't be read as a table: it is empty")
    return records, blank


def _lines(lines: Sequence[int]) -> str:
    """Write the numbers of lines as the subject of a sentence, and its verb."""
    numbers = listed([*map(str, lines)])
    return f"lines {numbers} have" if len(lines) > 1 else f"line {numbers} has"


def _without_padding(records: Records) -> Records:
    """Take blank cells away that only some lines have behind the last column that is filled in any line."""
    if len({*map(len, records.values())}) == 1:
        return records
    width = max(map(_filled_length, records.values()))
    return {line: row[:width] for line, row in records.items()}


def _filled_length(row: Sequence[str]) -> int:
    """Return the number of cells up to the last one that is not blank."""
    length = len(row)
    while length and not row[length - 1].strip():
        length -= 1
    return length


def _without_footer(records: Records) -> tuple[Records, list[str]]:
    """Leave out notes below the table, which are text in its first cell alone, if nothing above looks like them.

    A line of two columns may lack its second value, so that only a line without a separator is a note there.
    """
    header, *rows = records.items()
    usual = _usual_length([row for _, row in rows]) if rows else 1
    n_footer = 0
    for _, row in reversed(rows):
        if not _is_footer(row, usual):
            break
        n_footer += 1
    body = rows[: len(rows) - n_footer]
    if not 0 < n_footer <= MAX_TITLES or not body or any(_is_footer(row, usual) for _, row in body):
        return records, []

    lines = [line for line, _ in rows[len(body) :]]
    text = rows[len(body)][1][0].strip()
    note = f"{_lines(lines)} a note below the table and no row: left out ({text!r:.60})"
    return dict([header, *body]), [note]


def _is_footer(row: Sequence[str], usual: int) -> bool:
    """Whether a record is text in its first cell alone."""
    is_alone = len(row) == 1 < usual or (usual > 2 and _filled_length(row) == 1)
    return is_alone and not is_number(row[0], with_unit=True)


def _number_columns(names: Sequence[str], columns: Sequence[Sequence[str]]) -> bool:
    """Whether names number the columns, as pandas does.

    A first row of whole numbers may be 1, 2, 3 by chance, unless it is long.
    """
    positions = [[str(i + first) for i in range(len(names))] for first in (0, 1)]
    if names not in positions or len(names) < 2:
        return False
    are_whole = all(cell.strip().lstrip("+-").isdecimal() for cells in columns for cell in cells if cell.strip())
    return len(names) >= MIN_NUMBERED or not are_whole


def _check_lengths(name: str, records: Records, first: str) -> None:
    """Raise a ValueError about a line with another number of cells than the header, which is called `first`."""
    lengths = {line: len(row) for line, row in records.items()}
    header, *lines = lengths
    n_names = lengths[header]
    needed = n_names
    if n_names > 1 and {lengths[line] for line in lines} == {n_names + 1}:
        row_names = [records[line][0].strip() for line in lines]
        if len({*row_names}) == len(row_names):  # R writes no cell above names of rows, which are all different
            needed += 1
    for line in lines:
        if lengths[line] != needed:
            differ = f"line {line} has {plural(lengths[line], 'cell')}, {first} has {n_names}"
            hint = _hint_at_header(records)
            if not hint and line == lines[-1]:
                hint = "; if it is no row of the table, remove it"
            raise ValueError(f"{name} can't be read as a table: {differ}{hint}")


def _hint_at_header(records: Records) -> str:
    """Name the line that may be the header, if most records have another length than the first one."""
    usual = _usual_length([*records.values()])
    line = next(line for line, row in records.items() if len(row) == usual)
    if line == next(iter(records)) or usual == 1:
        return ""
    return f"; remove what is above the header, or if that is line {line}, pass header={line} or --header {line}"


def _is_data(first: str, others: Sequence[str]) -> bool:
    """Whether a cell of the first line is a number, missing, or occurs again in its column."""
    return is_number(first) or (first != "" and first.casefold() in MISSING) or first in map(str.strip, others)


def _starts_with_number(cells: Sequence[str]) -> bool:
    """Whether the first cell that is not missing is a number, with a unit or without."""
    first = next((cell.strip() for cell in cells if cell.strip().casefold() not in MISSING), "0")
    return is_number(first, with_unit=True)
