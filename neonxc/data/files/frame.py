"""Read tables of numbers, truth values and text from CSV files, in their many variants, and Parquet files."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from neonxc.common.arguments import check_columns, listed
from neonxc.data.files.cells import UNNAMED, Cells, read_cells
from neonxc.data.files.column import TextColumn
from neonxc.data.files.format import TEXT, TRUTH, Format
from neonxc.data.files.notation import MARKS, MISSING, Notation

TYPED = "iufbmM"
"""Kinds of the columns of a Parquet file that hold no text."""
_WORDS = (
    "total|totals|grand total|subtotal|sum|sums|summe|summen|gesamt|gesamtsumme|gesamtergebnis|insgesamt|totale"
    "|somma|total general|total général|suma|totaal|average|mean|mittelwert|durchschnitt|moyenne|media|promedio"
)
TOTALS = frozenset(_WORDS.split("|"))
"""Words at the start of a row that sums up those above it, in lower case."""
LEAST = 3
"""Rows of which another one is recognised as the sum."""


def read_table(
    path: str | os.PathLike[str],
    *,
    ignore: Sequence[str] = (),
    needed: Sequence[str] | None = None,
    na: Sequence[str] = (),
    format: str | None = None,
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
    na : sequence of str
        Further cells that count as missing, in all columns, whether in capitals or not.
    format : str, optional
        ``frame.attrs["format"]`` of an earlier table, as whose columns those of this table are read: what a single
        1.106 is, a column of one row can't tell.

    Returns
    -------
    DataFrame [n, d]
        Integers are int64, other numbers and columns with missing numbers are float64, Boolean values are bool,
        and everything else is text, with NaN for missing values. Empty cells and ``NA``, ``N/A``, ``nan``,
        ``null``, ``None``, ``?`` and ``-`` count as missing, in columns of numbers also words such as ``k.A.``,
        ``unknown`` and ``#DIV/0!``. Columns with the name of another one, or without a name, are called as pandas
        calls them, such as ``a.1`` and ``Unnamed: 3``.

        Numbers may have decimal points or commas; points, commas, spaces or apostrophes between thousands; a unit
        or currency, which is the same in the whole column; and parentheses or minus signs behind them if they are
        negative. Whether ``1.106`` is a decimal number is told by the other cells of the column, or else by the
        other columns; beside whole numbers without a mark, it is 1106.

        ``frame.attrs["notes"]`` is a list of str that describes how the file was interpreted: dropped or renamed
        columns, decimal commas, units, a guessed encoding. ``frame.attrs["format"]`` is a JSON text with the
        notation of every column; models that are fitted to the frame keep it.

    Raises
    ------
    ValueError
        If the file is missing, damaged, empty or not a table, if the lines differ in their number of cells, if a
        column in `ignore` or `needed` does not exist, if a number is not finite, or if a few cells in a column of
        numbers are not numbers, or in another unit. The message names the file, the line and the column.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from neonxc.data.files import read_table
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder) / "people.csv"
    ...     _ = file.write_text("age;height;town\n31;1,75 m;Rome\nk.A.;1,8 m;Turin\n")
    ...     frame = read_table(file)
    >>> frame
        age  height   town
    0  31.0    1.75   Rome
    1   NaN    1.80  Turin
    """
    return as_table(read_cells(path), ignore=ignore, needed=needed, na=na, format=format)


def read_with_ids(
    path: str | os.PathLike[str],
    ids: str,
    *,
    needed: Sequence[str] | None = None,
    na: Sequence[str] = (),
    format: str | None = None,
) -> pd.DataFrame:
    """Read a table whose index are the identifiers in a column, as they are written; see :func:`read_table`."""
    cells = read_cells(path)
    check_columns(cells.name, [ids], cells.columns)
    table = as_table(cells, needed=needed, na=na, format=format)
    table = table.drop(columns=ids, errors="ignore") if needed is None else table[needed]
    return table.set_axis(cells.ids(ids, na), axis=0)


def as_table(
    cells: Cells,
    *,
    ignore: Sequence[str] = (),
    needed: Sequence[str] | None = None,
    na: Sequence[str] = (),
    format: str | None = None,
) -> pd.DataFrame:
    """Return the table in the cells of a file; see :func:`read_table`.

    ``frame.attrs["decimal"]`` is the decimal mark of its columns if they tell a single one, or else a point.
    """
    check_columns(cells.name, [*ignore, *(needed or ())], cells.columns)
    fitted = Format.read(format)
    given = [na] if np.isscalar(na) else na
    words = {*fitted.missing, *(str(word).strip().casefold() for word in given)}
    fitted = fitted._replace(missing=sorted(words))
    names = [name for name in cells.columns if name not in ignore]
    reader = Reader(cells, frozenset(names if needed is None else needed), fitted)
    values = {name: reader.read(name) for name in names}
    if not values:
        raise ValueError(f"{cells.name} has no column left")
    notes = cells.notes + [f"{what} {listed(examples)}" for what, examples in reader.told.items()]
    first = next(iter(values))
    unnamed = first == f"{UNNAMED}0" and first not in (needed or ()) and len(values) > 1
    if unnamed and values[first].dtype.kind == "i" and pd.Series(values[first]).is_unique:
        notes.append("the first column has no name and numbers the rows: it was dropped")
        del values[first]
    frame = pd.DataFrame(values)
    frame.attrs["decimal"] = reader.mark or "."
    frame.attrs["notes"] = notes + _on_total(frame, cells.places)
    if (text := fitted._replace(columns=reader.kinds).text()) is not None:
        frame.attrs["format"] = text
    return frame


class Reader:
    """Reads the columns of a file one by one; then, `kinds` are what they hold, and `told` what was understood."""

    def __init__(self, cells: Cells, needed: frozenset[str], fitted: Format) -> None:
        self.cells, self.needed, self.fitted = cells, needed, fitted
        words = pd.to_numeric(pd.Series(fitted.missing, dtype=object), errors="coerce")
        self.missing = words.dropna().to_numpy()
        self.kinds, self.told = dict[str, Any](), defaultdict[str, list[str]](list)
        self.columns = {name: self._column(name) for name in cells.columns}
        known = {name: notation.decimal for name in self.columns if (notation := fitted.notation(name))}
        marks = {
            name: column.decimal
            for name, column in self.columns.items()
            if isinstance(column, TextColumn) and column.decimal and fitted.columns.get(name) not in (TEXT, TRUTH)
        }
        self.against = [name for name, mark in marks.items() if known.get(name) not in (None, "", mark)]
        self.marks = {} if self.against else known
        self.mark = next(iter(marks.values())) if len({*marks.values()}) == 1 else ""

    def _column(self, name: str) -> Any:
        """The distinct cells of a column of text; a column with a type as it is."""
        given = self.cells.columns[name]
        if isinstance(given, pd.Series):
            if given.dtype.kind in TYPED and self.fitted.columns.get(name) != TEXT:
                return given
            given = ["" if missing else str(cell) for cell, missing in zip(given, given.isna(), strict=True)]
        return TextColumn(given, MISSING.union(self.fitted.missing), self.fitted.notation(name))

    def read(self, name: str) -> Any:
        """Return the values of a column."""
        column, kind = self.columns[name], self.fitted.columns.get(name)
        if not isinstance(column, TextColumn):
            return self._typed(name, column)
        if kind != TEXT and (truths := column.truths(gaps=kind == TRUTH)) is not None:
            self.kinds[name] = TRUTH
            return truths
        is_number = kind not in (TEXT, TRUTH) and (column.known or column.options or not column.present.any())
        if is_number and (numbers := self._numbers(name, column)) is not None:
            return numbers
        self.kinds[name] = TEXT
        if kind is None and column.mixed:
            units = ", ".join(unit or "none" for unit in column.units)
            self.told["numbers in several units stay text:"].append(f"{name} ({units})")
        return column.text

    def _typed(self, name: str, values: pd.Series) -> pd.Series:
        """A column of a Parquet file that is no text; missing words may be numbers."""
        if values.dtype.kind not in "iuf":
            return values
        values = values.mask(values.isin(self.missing)) if len(self.missing) else values
        values = values.astype(np.result_type(values.dtype, np.int64))
        if name in self.needed and (infinite := np.isinf(values)).any():
            self._refuse(name, int(infinite.argmax()), str(values[infinite.argmax()]), "a finite number")
        return values

    def _numbers(self, name: str, column: TextColumn) -> np.ndarray | None:
        """The numbers in a column of text; None if it stays text: float64 would round it, or not all are valid."""
        comma = "." if self.cells.separator == "," else ","  # CSV files with commas use decimal points
        notation, doubt = column.notation(self.marks.get(name) or self.mark, comma)
        numbers = column.numbers(notation)
        if numbers is None:
            if name in self.needed:
                self.told["whole numbers beyond 2**53 stay text, as some are missing or too large:"].append(name)
            return None
        mistakes = column.filled & ~np.isfinite(numbers)
        if mistakes.any():
            if name not in self.needed:
                return None
            self._mistake(name, column, notation, numbers, int(mistakes.argmax()))
        if column.filled.any():
            self.kinds[name] = [*notation]
        if name in self.needed and column.filled.any():
            self._tell(name, column, notation, numbers, doubt)
        if (missing := np.isin(numbers, self.missing)).any():
            numbers = np.where(missing, np.nan, numbers)  # -999.0, where -999 is missing
        return numbers[column.codes]

    def _tell(self, name: str, column: TextColumn, notation: Notation, numbers: np.ndarray, doubt: bool) -> None:
        """Note what was understood in a column of numbers."""
        for what, at in column.told(notation, doubt):
            self.told[f"{what} were understood in"].append(f"{name} ({column.cells[at]} is {numbers[at]:.15g})")
        if name in self.against:
            mark = MARKS[column.decimal]
            self.told[f"decimal {mark}, unlike in the table that the model was fitted to, are in"].append(name)
        if column.words:
            self.told["words for missing values were understood in"].append(
                f"{name} ({', '.join(column.words[:3])})"
            )
        if column.known is None and (code := column.code):
            self.told["numbers that look like codes, as postal codes do, are in"].append(f"{name} ({code})")
        if column.known and column.known.unit and not column.unit:
            self.told[f"no unit, but {column.known.unit} in the table that the model was fitted to, is in"].append(
                name
            )

    def _mistake(self, name: str, column: TextColumn, notation: Notation, numbers: np.ndarray, at: int) -> None:
        cell, unit = column.cells[at], f" in {notation.unit}" if notation.unit else ""
        others = "as the others are" if column.options else "as in the table that the model was fitted to"
        what = "a finite number" if np.isinf(numbers[at]) else f"a number{unit}, {others}"
        self._refuse(name, int((column.codes == at).argmax()), cell, what)

    def _refuse(self, name: str, row: int, cell: str, what: str) -> None:
        total = "; the line may be a total of others: remove it" if is_total(cell) else ""
        raise ValueError(
            f"{self.cells.name}, {self.cells.places.name} {self.cells.places[row]}, column {name!r}: {cell!r} is "
            f"not {what}; correct it, leave the column out, or let the cell count as missing (na){total}"
        )


def is_total(cell: str) -> bool:
    """Whether a cell says that its row sums up others."""
    return cell.strip(" :").casefold() in TOTALS


def _on_total(frame: pd.DataFrame, places: pd.Index) -> list[str]:
    """Point out a last row that is the total of those above it."""
    numbers = frame.select_dtypes([np.int64, np.float64])
    words = frame.drop(columns=numbers.columns).select_dtypes(exclude="bool")
    label = next(map(str, words.iloc[-1].dropna()), "")
    last, sums = numbers.iloc[-1].dropna(), numbers.iloc[:-1].sum()
    sums = sums[last.index]
    added = len(frame) > LEAST and len(last) and np.isclose(last, sums, rtol=1e-6, atol=0).all() and sums.any()
    if not (is_total(label) or added):
        return []
    why = repr(label) if is_total(label) else "its numbers are the sums of theirs"
    place = f"{places.name} {places[-1]}"
    return [
        f"{place} looks like a total of the rows above ({why}), but is used like them: to leave it out, remove it"
    ]
