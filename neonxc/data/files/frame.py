"""Read tables of numbers, truth values and text from CSV files, in their many variants, and Parquet files.

A column is read as the first of these that it can be::

    typed    the column of a Parquet file that has a type
    truth    all cells are true or false
    numbers  nearly all cells are numbers in one notation; the others are missing, or an error in a needed column
    text     anything else

A column whose cells do not tell its decimal mark has that of the table a model was fitted to, or else the one that
the other columns of the file agree on.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import compress
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from neonxc.common.arguments import check_columns, listed, remedy
from neonxc.data.files.cells import UNNAMED, Cells, read_cells
from neonxc.data.files.column import TextColumn
from neonxc.data.files.format import TEXT, TRUTH, Format
from neonxc.data.files.notation import MARKS, MISSING, Notation

TYPED = "iufbmM"
"""Kinds of the columns of a Parquet file that hold no text."""
_WORDS = (
    "total|totals|grand total|subtotal|sum|sums|summe|summen|gesamt|gesamtsumme|gesamtergebnis|insgesamt|totale"
    "|somma|total general|total général|suma|totaal|average|mean|mittelwert|durchschnitt|moyenne|media|promedio"
    "|sub-total|sub total|zwischensumme|teilsumme|teilergebnis|sous-total|subtotale|subtotaal|summa|totalt"
    "|delsumma|medelvärde"
)
TOTALS = frozenset(_WORDS.split("|"))
"""Words at the start of a row that sums up those above it, in lower case."""
_LAST_WORDS = (" total", " ergebnis", " summe")
"""Ends of what Excel writes into the rows that sum up a group: "North Total"."""
MAX_CATEGORIES = 100
"""Different texts of a column, at most, that are kept: of more, one has less than 1% of the rows, and is rare."""
MIN_ADDENDS = 3
"""Smallest number of rows of which another one is recognised as the sum."""


def read_table(
    path: str | os.PathLike[str],
    *,
    ignore: Sequence[str] = (),
    needed: Sequence[str] | None = None,
    na: Sequence[str] = (),
    numbers: Sequence[str] = (),
    header: int | None = None,
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
    numbers : sequence of str
        Columns of numbers that are read as numbers although they look like codes.
    header : int, optional
        Number of the line with the names of the columns, from 1 on; lines above it are left out. Default: the
        first line that is no title, as lines above a table are that fill few of its columns.
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

        Codes keep their text: whole numbers with leading zeros, and columns whose name says that they are codes,
        such as ``PLZ``, ``zip``, ``store_id`` or ``ICD``, unless every number is another one.

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
    return as_table(read_cells(path, header), ignore=ignore, needed=needed, na=na, numbers=numbers, format=format)


def read_with_ids(
    path: str | os.PathLike[str],
    ids: str,
    *,
    needed: Sequence[str] | None = None,
    na: Sequence[str] = (),
    header: int | None = None,
    format: str | None = None,
) -> pd.DataFrame:
    """Read a table whose index are the identifiers in a column, as they are written; see :func:`read_table`."""
    cells = read_cells(path, header)
    check_columns(cells.name, [ids], cells.columns)
    table = as_table(cells, needed=needed, na=na, format=format)
    if needed is None:
        table = table.drop(columns=ids, errors="ignore")
    else:
        table = table[needed]
    return table.set_axis(cells.ids(ids, na), axis=0)


def as_table(
    cells: Cells,
    *,
    ignore: Sequence[str] = (),
    needed: Sequence[str] | None = None,
    na: Sequence[str] = (),
    numbers: Sequence[str] = (),
    labels: Sequence[str] = (),
    format: str | None = None,
) -> pd.DataFrame:
    """Return the table in the cells of a file; see :func:`read_table`.

    Columns of `labels` name clusters. They stay text if their numbers are written as codes or with a unit, as a
    cluster that is called 007 or 10 % keeps its name.

    ``frame.attrs["decimal"]`` is the decimal mark of its columns if they tell a single one, or else a point, and
    ``frame.attrs["separator"]`` what separates the cells of the file.
    """
    check_columns(cells.name, [*ignore, *numbers, *(needed or ())], cells.columns)
    fitted = _with_missing_words(Format.read(format), na)
    names = [name for name in cells.columns if name not in ignore]
    required = frozenset(names if needed is None else needed)
    reader = Reader(cells, required, fitted, frozenset(numbers), frozenset(labels))
    values = {name: reader.read(name) for name in names}
    reader.check()
    if not values:
        raise ValueError(f"{cells.name} has no column left")

    notes = [*cells.notes]
    for what, examples in reader.remarks.items():
        notes.append(f"{what} {listed(examples)}")
    notes += _on_codes(reader)
    if _numbers_the_rows(values, needed):
        notes.append("the first column has no name and numbers the rows: it was dropped")
        del values[next(iter(values))]
    frame = pd.DataFrame(values)
    notes += _on_total(frame, cells.places)

    frame.attrs["separator"] = cells.separator
    frame.attrs["decimal"] = reader.common_decimal or "."
    frame.attrs["notes"] = notes
    text = fitted._replace(columns=reader.kinds, units=reader.units, categories=reader.categories).text()
    if text is not None:
        frame.attrs["format"] = text
    return frame


def _on_codes(reader: Reader) -> list[str]:
    """Describe the columns that are, or look like codes, and how they are read as numbers, or left out."""
    notes = []
    if reader.lookalikes:
        examples = [f"{name} ({cell})" for name, cell in reader.lookalikes.items()]
        notes.append(
            f"numbers that look like codes, as postal codes do, are in {listed(examples)}; to leave out: "
            f"{remedy('ignore', reader.lookalikes)}"
        )
    if reader.codes:
        examples = [f"{name} ({cell})" for name, cell in reader.codes.items()]
        stay = "are codes, and stay" if len(examples) > 1 else "is a code, and stays"
        as_numbers = f"as numbers: {remedy('numbers', reader.codes)}"
        notes.append(
            f"{listed(examples)} {stay} text; {as_numbers}; to leave out: {remedy('ignore', reader.codes)}"
        )
    return notes


def _with_missing_words(fitted: Format, na: Sequence[str]) -> Format:
    """Add words that count as missing to those of the table that a model was fitted to."""
    words = [na] if np.isscalar(na) else na
    lower = {str(word).strip().casefold() for word in words}
    return fitted._replace(missing=sorted({*fitted.missing, *lower}))


def _numbers_the_rows(values: Mapping[str, np.ndarray | pd.Series], needed: Sequence[str] | None) -> bool:
    """Whether the first of several columns has no name and distinct whole numbers, as pandas writes its index."""
    first = next(iter(values))
    if first != f"{UNNAMED}0" or first in (needed or ()) or len(values) == 1:
        return False
    return values[first].dtype.kind == "i" and pd.Series(values[first]).is_unique


class Mistake(NamedTuple):
    """A cell that is not a number of its column: the row where it occurs first, and what is needed."""

    row: int
    column: str
    cell: str
    needed: str


class Reader:
    """Reads the columns of a file one by one.

    Parameters
    ----------
    cells : Cells
        The file.
    needed : frozenset of str
        Columns that have to be valid.
    fitted : Format
        How the columns of the table were read that a model was fitted to, and further words that are missing.
    as_numbers : frozenset of str
        Columns that are no codes.
    labels : frozenset of str
        Columns of labels, which are no codes by their name.

    Attributes
    ----------
    kinds : dict
        What the columns hold that were read, by name: "text", "truth", or the notation of numbers as a list.
    units : dict
        The unit of columns that have one, and their least and greatest number.
    categories : dict
        The different texts of columns that have a few.
    mistakes : list of Mistake
        Distinct cells of needed columns that are not numbers of their columns, about which :meth:`check` raises.
    codes, lookalikes : dict of str to str
        The needed columns of codes, and those of numbers some of which look like codes, and a cell of each.
    remarks : dict of str to list of str
        What was understood, and the columns with an example each.
    common_decimal : str
        The decimal mark of all columns that tell one; "" if they tell none, or several.
    """

    def __init__(
        self,
        cells: Cells,
        needed: frozenset[str],
        fitted: Format,
        as_numbers: frozenset[str] = frozenset(),
        labels: frozenset[str] = frozenset(),
    ) -> None:
        self.cells = cells
        self.needed = needed
        self.fitted = fitted
        self.as_numbers = as_numbers | labels
        self.labels = labels
        words = pd.to_numeric(pd.Series(fitted.missing, dtype=object), errors="coerce")
        self.missing_numbers = words.dropna().to_numpy()
        self.kinds = dict[str, str | list[str]]()
        self.units = dict[str, list[Any]]()
        self.categories = dict[str, list[str]]()
        self.codes = dict[str, str]()
        self.lookalikes = dict[str, str]()
        self.mistakes = list[Mistake]()
        self.remarks = defaultdict[str, list[str]](list)
        self.columns = {name: self._column(name) for name in cells.columns}

        decimals = {}
        for name, column in self.columns.items():
            is_text = not isinstance(column, TextColumn) or fitted.columns.get(name) in (TEXT, TRUTH)
            if not is_text and column.decimal:
                decimals[name] = column.decimal
        self.common_decimal = next(iter(decimals.values())) if len({*decimals.values()}) == 1 else ""

        fitted_decimals = {}
        for name in self.columns:
            notation = fitted.notation(name)
            if notation is not None:
                fitted_decimals[name] = notation.decimal
        self.contradicting = [
            name for name, mark in decimals.items() if fitted_decimals.get(name) not in (None, "", mark)
        ]
        # A file that contradicts the table of the fit in one column is written in another way
        self.fitted_decimals = {} if self.contradicting else fitted_decimals

    def _column(self, name: str) -> TextColumn | pd.Series:
        """Return the distinct cells of a column of text, or a column with a type as it is."""
        column = self.cells.columns[name]
        if isinstance(column, pd.Series):
            if column.dtype.kind in TYPED and self.fitted.columns.get(name) != TEXT:
                return column
            column = ["" if missing else str(cell) for cell, missing in zip(column, column.isna(), strict=True)]
        return TextColumn(column, MISSING.union(self.fitted.missing), self.fitted.notation(name))

    def read(self, name: str) -> np.ndarray | pd.Series:
        """Return the values of a column."""
        column = self.columns[name]
        if not isinstance(column, TextColumn):
            return self._typed(name, column)

        if name in self.labels and (column.unit or column.is_written_as_code):
            self.kinds[name] = TEXT
            return column.text

        fitted_kind = self.fitted.columns.get(name)
        if fitted_kind != TEXT:
            truths = column.truths(allow_missing=fitted_kind == TRUTH)
            if truths is not None:
                self.kinds[name] = TRUTH
                return truths

        if fitted_kind is None and self._is_code(name, column):
            self._note_categories(name, column)
            if name in self.needed:
                self.codes[name] = column.code or next(compress(column.cells, column.present), "")
            return column.text

        if fitted_kind not in (TEXT, TRUTH) and (column.fitted or column.options or not column.present.any()):
            numbers = self._numbers(name, column)
            if numbers is not None:
                return numbers

        self._note_categories(name, column)
        if fitted_kind is None and name in self.needed and column.words:
            is_kept = f"is text, with {', '.join(map(repr, column.words))} among numbers; as numbers"
            self.remarks[f"{name} {is_kept}:"].append(remedy("na", column.words))
        elif fitted_kind is None and name in self.needed and column.strays:
            strays = listed([*map(repr, column.strays)])
            self.remarks["most cells are numbers, but the column stays text:"].append(f"{name} (with {strays})")
        if fitted_kind is None and column.has_several_units:
            units = ", ".join(unit or "none" for unit in column.units)
            self.remarks["numbers in several units stay text:"].append(f"{name} ({units})")
        return column.text

    def _note_categories(self, name: str, column: TextColumn) -> None:
        """Keep the different texts of a column, and note those that the table of the fit did not have."""
        self.kinds[name] = TEXT
        texts = [*dict.fromkeys(compress(column.cells, column.present))]
        if len(texts) <= MAX_CATEGORIES:
            self.categories[name] = texts
        known = self.fitted.categories.get(name)
        if known is None or name not in self.needed:
            return
        unknown = [repr(text) for text in texts if text not in known]
        if unknown:
            new = "values that the table of the model did not have are in"
            self.remarks[new].append(f"{name} ({listed(unknown)})")

    def _is_code(self, name: str, column: TextColumn) -> bool:
        """Whether a column of numbers holds codes, and no user wants them as numbers."""
        return name not in self.as_numbers and bool(column.options) and column.is_code(name)

    def _typed(self, name: str, values: pd.Series) -> pd.Series:
        """Return a column of a Parquet file that is not text; words for missing values may be numbers."""
        if values.dtype.kind not in "iuf":
            return values
        if len(self.missing_numbers):
            values = values.mask(values.isin(self.missing_numbers))
        values = values.astype(np.result_type(values.dtype, np.int64))
        if name in self.needed:
            infinite = np.isinf(values)
            if infinite.any():
                row = int(infinite.argmax())
                self.mistakes.append(Mistake(row, name, str(values[row]), "a finite number"))
        return values

    def _numbers(self, name: str, column: TextColumn) -> np.ndarray | None:
        """Return the numbers in a column of text.

        None if it stays text, as float64 would round its numbers, or as not all are valid and it is not needed.
        """
        comma = "." if self.cells.separator == "," else ","  # CSV files with commas use decimal points
        notation, is_guess = column.notation(self.fitted_decimals.get(name) or self.common_decimal, comma)
        numbers = column.numbers(notation)
        if numbers is None:
            if name in self.needed:
                too_long = "whole numbers beyond 2**53 stay text, as some are missing or too large:"
                self.remarks[too_long].append(name)
            return None

        mistakes = column.is_filled & ~np.isfinite(numbers)
        if mistakes.any():
            if name not in self.needed:
                return None
            for position in np.flatnonzero(mistakes):
                self.mistakes.append(self._mistake(name, column, notation, numbers, int(position)))
            return None

        if column.is_filled.any():
            self.kinds[name] = [*notation]
            if name in self.needed:
                self._remark(name, column, notation, numbers, is_guess)

        missing = np.isin(numbers, self.missing_numbers)
        if missing.any():
            numbers = np.where(missing, np.nan, numbers)  # -999.0, where -999 is missing
        present = numbers[~np.isnan(numbers)]
        if notation.unit and len(present):
            self.units[name] = [notation.unit, float(present.min()), float(present.max())]
        return numbers[column.codes]

    def _remark(
        self, name: str, column: TextColumn, notation: Notation, numbers: np.ndarray, is_guess: bool
    ) -> None:
        """Note what was understood in a column of numbers."""
        for remark in column.remarks(notation, is_guess):
            example = f"{name} ({column.cells[remark.position]} is {numbers[remark.position]:.15g})"
            self.remarks[f"{remark.text} were understood in"].append(example)
        if name in self.contradicting:
            mark = MARKS[column.decimal]
            self.remarks[f"decimal {mark}, unlike in the table that the model was fitted to, are in"].append(name)
        if column.missing_words:
            words = ", ".join(column.missing_words[:3])
            self.remarks["words for missing values were understood in"].append(f"{name} ({words})")
        if column.fitted is None and column.code and name not in self.as_numbers:
            self.lookalikes[name] = column.code
        if column.fitted and column.fitted.unit and not column.unit:
            unit = column.fitted.unit
            self.remarks[f"no unit, but {unit} in the table that the model was fitted to, is in"].append(name)

    def _mistake(
        self, name: str, column: TextColumn, notation: Notation, numbers: np.ndarray, position: int
    ) -> Mistake:
        """Describe a distinct cell that is not a number of a column, where it occurs first."""
        unit = f" in {notation.unit}" if notation.unit else ""
        others = "as the others are" if column.options else "as in the table that the model was fitted to"
        needed = f"a number{unit}, {others}"
        if np.isinf(numbers[position]):
            needed = "a finite number"
        row = int((column.codes == position).argmax())
        return Mistake(row, name, column.cells[position], needed)

    def check(self) -> None:
        """Raise a ValueError about all cells that were read and are not numbers of their columns."""
        if not self.mistakes:
            return
        first, *others = sorted(self.mistakes, key=lambda mistake: mistake.row)
        place = self.cells.places.name
        places = self.cells.places
        message = (
            f"{self.cells.name}, {place} {places[first.row]}, column {first.column!r}: {first.cell!r} is not "
        )
        message += first.needed
        if others:
            further = [f"{cell!r} ({place} {places[row]}, column {name!r})" for row, name, cell, _ in others]
            message += f"; nor are {listed(further)}"

        several = len(others) > 0
        columns = dict.fromkeys(mistake.column for mistake in self.mistakes)
        words = dict.fromkeys(mistake.cell.casefold() for mistake in self.mistakes)
        spelled = {mistake.cell.casefold(): mistake.cell for mistake in reversed(self.mistakes)}
        correct = "correct them" if several else "correct it"
        leave_out = "leave the columns out" if len(columns) > 1 else "leave the column out"
        count = "let the cells count as missing" if several else "let the cell count as missing"
        message += (
            f"; {correct}, {leave_out} ({remedy('ignore', columns)}), or {count} "
            f"({remedy('na', [spelled[word] for word in words])})"
        )
        if any(is_total(mistake.cell) for mistake in self.mistakes):
            message += "; the line may be a total of others: remove it"
        elif self._has_second_header():
            line = places[0]
            message += f"; if {place} {line} belongs to the header, as units do, remove it"
        raise ValueError(message)

    def _has_second_header(self) -> bool:
        """Whether the first row has no number in any column of numbers, and only that row has mistakes."""
        has_later_mistakes = any(mistake.row > 0 for mistake in self.mistakes)
        has_numbers = any(isinstance(self.kinds.get(name), list) for name in self.needed)
        return not has_later_mistakes and not has_numbers


def is_total(cell: str) -> bool:
    """Whether a cell says that its row sums up others."""
    return cell.strip(" :").casefold() in TOTALS


def _is_group_total(cell: object) -> bool:
    """Whether a cell may say that its row sums up a group of rows."""
    if not isinstance(cell, str):
        return False
    return is_total(cell) or cell.strip(" :").casefold().endswith(_LAST_WORDS)


def _on_total(frame: pd.DataFrame, places: pd.Index) -> list[str]:
    """Point out a last row that is the total of those above it, and totals of groups of rows."""
    numbers = frame.select_dtypes([np.int64, np.float64])
    words = frame.drop(columns=numbers.columns).select_dtypes(exclude="bool")
    totals = _group_totals(numbers, words)
    last = len(frame) - 1
    label = next(map(str, words.iloc[-1].dropna()), "")
    is_category = words.iloc[:-1].isin([label]).to_numpy().any()
    if is_total(label) and not is_category:
        totals[last] = repr(label)
    elif last not in totals and _is_sum_of_rows(numbers):
        totals[last] = "its numbers are the sums of theirs"
    if not totals:
        return []

    if len(totals) == 1:
        ((row, why),) = totals.items()
        used = "but is used like them: to leave it out, remove it"
        return [f"{places.name} {places[row]} looks like a total of the rows above ({why}), {used}"]
    rows = listed([f"{places[row]} ({totals[row]})" for row in sorted(totals)])
    used = "but are used like them: to leave them out, remove them"
    return [f"{places.name}s {rows} look like totals of the rows above, {used}"]


def _group_totals(numbers: pd.DataFrame, words: pd.DataFrame) -> dict[int, str]:
    """Find the rows that are called totals and are: a number is the sum of those above, or all are their means.

    Returns
    -------
    dict of int to str
        The words by the positions of the rows.
    """
    called: dict[int, str] = {}
    for _, column in words.items():
        values = column.drop_duplicates()
        for name in values[[*map(_is_group_total, values)]]:
            positions = np.flatnonzero(column == name)
            if (1 + MIN_ADDENDS) * len(positions) <= len(column):  # else it is a category
                called |= {int(row): repr(name) for row in positions}

    values = numbers.to_numpy(dtype=float, na_value=np.nan)
    is_row = np.ones(len(values), dtype=bool)
    is_row[[*called]] = False
    totals = {}
    first = 0  # of the group
    for row in sorted(called):
        groups = [values[first:row][is_row[first:row]], values[:row][is_row[:row]]]
        if any(len(group) >= MIN_ADDENDS and _sums_up(values[row], group) for group in groups):
            totals[row] = called[row]
        first = row + 1
    return totals


def _sums_up(total: np.ndarray, group: np.ndarray) -> bool:
    """Whether a number of a row is the sum of those of a group, and no zero, or all are nearly the means."""
    sums = np.nansum(group, axis=0)
    n_present = np.maximum(1, (~np.isnan(group)).sum(axis=0))
    is_sum = np.isclose(total, sums, rtol=1e-6, atol=0) & (sums != 0)
    # Means are often rounded. One of them alone may be met by chance, as by a category that is called "average".
    is_mean = np.isclose(total, sums / n_present, rtol=0.01, atol=0)[~np.isnan(total)]
    return bool(is_sum.any() or (len(is_mean) > 1 and is_mean.all()))


def _is_sum_of_rows(numbers: pd.DataFrame) -> bool:
    """Whether the last row holds the sums of the rows above it, and these are not all zero."""
    last = numbers.iloc[-1].dropna()
    if len(numbers) <= MIN_ADDENDS or not len(last):
        return False
    sums = numbers.iloc[:-1].sum()[last.index]
    return bool(np.isclose(last, sums, rtol=1e-6, atol=0).all() and sums.any())
