"""Columns of text: which notation their numbers have, and their values.

A column is read in four steps, each for its distinct cells::

    body      sign, digits and marks of a cell that is a number: "1.106" of "1.106 kg", whose unit is "kg"
    options   notations in which all bodies can be read, or else most of them: in 1.106, the point is the decimal
              mark, or it separates thousands; 12.106,5 has one option
    notation  that of the options which other columns or tables share, or else a guess
    numbers   values of the bodies in this notation, NaN where there is no number

A column without options is text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pandas as pd

from neonxc.data.codes import WITH_MARKS, are_written_as_codes, is_called_code, looks_like_code
from neonxc.data.files.notation import (
    AMONG_NUMBERS,
    BEHIND,
    ENCLOSED,
    EXACT,
    MARKS,
    MISSING,
    Notation,
    NumberParts,
    notations,
    numbers_in,
    part_of,
)

SAMPLE = 1000
"""Cells that tell whether most cells of a column are different."""
MOSTLY = 0.9
"""Fraction of numbers above which the other cells of a column count as mistakes, and the column not as text."""
PLAIN = b"0123456789.,+-eE\n"
"""Characters of cells that are numbers without a unit and need no further cleaning."""
MAX_UNITS = 5
"""Units at most that a note lists; more are parts of names."""
MAX_WORDS = 5
"""Different words at most that may stand for missing numbers."""
OTHER_MARK = {".": ",", ",": "."}
"""The decimal mark of numbers whose thousands the key separates."""
MONTH = re.compile(r"(?:0?[1-9]|1[0-2])\.(?:19|20)[0-9]{2}")
"""A month of a year. Of numbers with four decimals up to 13, one in 50 is written so."""
DAY = re.compile(r"(?:0[1-9]|[12][0-9]|3[01])\.(?:0[1-9]|1[0-2])")
"""A day and a month, if some days have a leading zero, as no numbers have."""
MIN_DATES = 3
"""Minimum number of different cells to tell months and days from numbers."""
TRUTHS = {"true": True, "false": False}


class Remark(NamedTuple):
    """What was understood in a column of numbers, and the position of a distinct cell that shows it."""

    text: str
    position: int


def as_numbers(bodies: Sequence[str | None]) -> np.ndarray:
    """Return numbers with decimal points as int64, if all of them are whole, or float64 with NaN for others."""
    values = np.asarray(pd.to_numeric(np.array(bodies, dtype=object), errors="coerce"))
    if values.dtype == np.int64:
        return values
    return values.astype(float)


class TextColumn:
    """A column of text, and what its distinct cells are as numbers.

    Parameters
    ----------
    cells : sequence of str
        The cells, as they are written.
    missing : frozenset of str
        Cells that count as missing, in lower case.
    fitted : Notation, optional
        The notation of the column in the table that a model was fitted to.

    Attributes
    ----------
    codes : ndarray [n]
        Positions of the cells among the distinct ones.
    cells : list of str
        The distinct cells, without spaces around them.
    counts : ndarray of int
        How often each of them occurs.
    present, is_filled : ndarray of bool
        Which of them are not missing, as text and as numbers.
    bodies : list of str or None
        Their signs, digits and marks; None for what is not a number of this column.
    units : Counter
        The units of the numbers, and in how many cells they are.
    negatives : set of str
        The ways of writing negative numbers other than by a sign before them.
    marks : set of str
        The marks in `bodies`.
    """

    def __init__(self, cells: Sequence[str], missing: frozenset[str] = MISSING, fitted: Notation | None = None):
        self.fitted = fitted
        self.codes, self.cells = _distinct(cells)
        self.counts = np.bincount(self.codes, minlength=len(self.cells))

        joined = "\n".join(self.cells) + "\n"
        self.is_plain = "-\n" not in joined and not joined.encode().translate(None, PLAIN)
        lower = self.cells
        if not self.is_plain:
            self.cells = [cell.strip() for cell in self.cells]
            lower = [cell.casefold() for cell in self.cells]

        self.present = np.ones(len(lower), dtype=bool)
        self.is_filled = self.present
        if not (missing | AMONG_NUMBERS).isdisjoint(lower):
            self.present = np.array([cell not in missing for cell in lower])
            self.is_filled = self.present & [cell not in AMONG_NUMBERS for cell in lower]

        self.units = Counter[str]()
        self.negatives = set[str]()
        self.bodies = self._bodies()
        self.marks = {mark for mark in MARKS if any(body and mark in body for body in self.bodies)}

    @property
    def text(self) -> np.ndarray:
        """The cells of all rows without spaces around them, NaN for missing ones."""
        cells = np.array(self.cells, dtype=object)
        cells[~self.present] = np.nan
        return cells[self.codes]

    @property
    def unit(self) -> str:
        """The unit of most numbers."""
        if not self.units:
            return ""
        return self.units.most_common(1)[0][0]

    @property
    def fitted_unit(self) -> str:
        """The unit that the numbers need: that of the fit, or else that of most numbers."""
        if self.fitted is None:
            return self.unit
        return self.fitted.unit

    @property
    def missing_words(self) -> list[str]:
        """The cells that are missing if the column has numbers."""
        return [self.cells[i] for i in np.flatnonzero(self.present & ~self.is_filled)]

    @cached_property
    def _digits(self) -> list[str] | None:
        """The distinct cells that are not missing, if they are whole numbers without marks, units and signs."""
        cells = [cell for cell, is_filled in zip(self.cells, self.is_filled, strict=True) if is_filled]
        if self.marks or not cells or not all(cell.removeprefix("+").isdecimal() for cell in cells):
            return None
        return cells

    @property
    def code(self) -> str:
        """A cell that looks like a code, the first one; "" if there is none."""
        return next(filter(looks_like_code, self._digits or []), "")

    def is_code(self, name: str) -> bool:
        """Whether a column of numbers with this name holds codes, whose text is kept.

        One that is only called a code, and has another number in every row, may number the rows.
        """
        if WITH_MARKS.search(name):
            return not self.units
        if self._digits is None:
            return False
        if self.is_written_as_code:
            return True
        n_cells = self.counts[self.is_filled].sum()
        return is_called_code(name) and len(self._digits) < n_cells

    @property
    def is_written_as_code(self) -> bool:
        """Whether the column has whole numbers that are written as codes, such as 007."""
        return self._digits is not None and are_written_as_codes(self._digits)

    @property
    def words(self) -> list[str]:
        """The cells of text if most cells are numbers, and these cells are a few different words."""
        words = []
        n_numbers = 0
        for body, cell, is_filled, count in zip(self.bodies, self.cells, self.is_filled, self.counts, strict=True):
            if body and _is_readable(body):
                n_numbers += count
            elif is_filled:
                words.append(cell)
        n_cells = self.counts[self.is_filled].sum()
        if len(words) > MAX_WORDS or n_numbers <= n_cells / 2 or any(map(part_of, words)):
            return []
        return words

    @property
    def strays(self) -> list[str]:
        """The distinct cells of text if most cells are numbers, however many different ones there are."""
        is_number = np.array([body is not None and _is_readable(body) for body in self.bodies], dtype=bool)
        is_stray = self.is_filled & ~is_number
        n_strays = self.counts[is_stray].sum()
        if 2 * n_strays >= self.counts[self.is_filled].sum():
            return []
        return [self.cells[i] for i in np.flatnonzero(is_stray)]

    @property
    def has_several_units(self) -> bool:
        """Whether all cells are numbers, but in a few different units."""
        if not 1 < len(self.units) <= MAX_UNITS:
            return False
        return bool(self.units.total() == self.counts[self.is_filled].sum())

    def truths(self, allow_missing: bool) -> np.ndarray | None:
        """Return the truth values of all rows, NaN for missing ones if these are allowed; None for others."""
        for cell, present in zip(self.cells, self.present, strict=True):
            if cell.casefold() not in TRUTHS and (present or not allow_missing):
                return None

        dtype = bool if self.present.all() else object
        values = [TRUTHS.get(cell.casefold(), np.nan) for cell in self.cells]
        return np.array(values, dtype=dtype)[self.codes]

    def _bodies(self) -> list[str | None]:
        """Find the bodies, and on the way :attr:`units` and :attr:`negatives`."""
        cells: list[str | None] = [*self.cells]
        for i in np.flatnonzero(~self.is_filled):
            cells[i] = None
        if self.is_plain:
            return cells

        parts = [None if cell is None else part_of(cell) for cell in cells]
        for part, count in zip(parts, self.counts.tolist(), strict=True):
            if part and (part.unit or part.body.strip("+-0.,")):  # zero needs no unit
                self.units[part.unit] += count

        numbers = [part for part in parts if part]
        self.negatives = self._negatives(numbers)
        units = {"", self.fitted_unit}
        if self.fitted is None and self.unit and len(self.units) > 1:
            units = set()  # numbers in several units are text

        negatives = {"", *self.negatives}
        return [
            part.body if part and part.unit in units and part.negative in negatives else None for part in parts
        ]

    def _negatives(self, numbers: Sequence[NumberParts]) -> set[str]:
        """Find the ways in which numbers are written that are negative."""
        negatives = {part.negative for part in numbers}
        if self.fitted is None:
            has_marks = any(mark in part.body for part in numbers for mark in MARKS)
            if not self.unit and not has_marks:
                negatives -= {BEHIND}  # grades such as 2-
            if negatives == {ENCLOSED}:  # standard errors, for example
                negatives = set()
        return negatives - {""}

    @cached_property
    def options(self) -> list[Notation]:
        """The notations in which all numbers can be read, or else most; none if it is a column of text."""
        is_number = [*map(bool, self.bodies)]
        bodies = [body for body in self.bodies if body]
        if _are_dates(bodies):
            return []
        weights = self.counts if all(is_number) else self.counts[is_number]
        needed = MOSTLY * self.counts[self.is_filled].sum()
        if weights.sum() <= needed:
            return []

        candidates = notations(self.marks)
        exact = [notation for notation in candidates if self._reads_all(notation, bodies)]
        if exact:
            return exact

        n_read = []
        for notation in candidates:
            is_read = [*map(bool, map(numbers_in(notation), bodies))]
            n_read.append(weights[is_read].sum())
        most = max(n_read)
        return [notation for notation, n in zip(candidates, n_read, strict=True) if n == most and n > needed]

    def _reads_all(self, notation: Notation, bodies: list[str]) -> bool:
        if notation.thousands or notation.decimal == ",":
            return all(map(numbers_in(notation), bodies))
        return len(bodies) == np.count_nonzero(~np.isnan(self._pointed))

    @cached_property
    def _pointed(self) -> np.ndarray:
        """The numbers with at most a decimal point; NaN for others."""
        return as_numbers(self.bodies)

    @property
    def decimal(self) -> str:
        """The decimal mark, if the cells tell it."""
        if len(self.options) != 1:
            return ""
        return self.options[0].decimal

    def notation(self, decimal: str, comma: str) -> tuple[Notation, bool]:
        """Choose the notation of a column of numbers, and return whether it is a guess.

        Parameters
        ----------
        decimal : str
            The decimal mark that other columns or tables have, "" if that is unknown.
        comma : str
            The decimal mark of columns with commas where nothing tells it.
        """
        options = self.options or [self.fitted or Notation()]
        is_guess = False
        if len(options) > 1:
            # the column has one mark, which is the decimal one in one option and separates thousands in the other
            mark = options[0].thousands or options[-1].thousands
            if not decimal:
                is_guess = not self._separates_thousands(mark)
                decimal = comma if mark == "," else "."
                if not is_guess:
                    decimal = OTHER_MARK[mark]
            options = [notation for notation in options if notation.decimal == decimal]

        chosen = options[0]
        return chosen._replace(decimal=chosen.decimal or decimal, unit=self.fitted_unit), is_guess

    def _separates_thousands(self, mark: str) -> bool:
        """Whether a mark separates thousands, as the whole numbers without it are shorter than those with it."""
        lengths_with: list[int] = []
        lengths_without: list[int] = []
        if self.fitted is not None:
            lengths_without.append(0)  # numbers at the fit: no number without the mark is needed
        for body in filter(None, self.bodies):
            digits = body.strip("+-").replace(mark, "")
            if not digits.isdigit():  # an exponent, which is written by programs
                return False
            lengths = lengths_with if mark in body else lengths_without
            lengths.append(len(digits))

        longest = max(lengths_without, default=5)
        return longest < 4 or longest == 4 < min(lengths_with)

    def numbers(self, notation: Notation) -> np.ndarray | None:
        """Return the numbers in the distinct cells, NaN for others; None if float64 would round whole numbers.

        They are int64 if every cell is a whole number, and else float64.
        """
        bodies = self.bodies
        values = self._pointed
        if notation.thousands or notation.decimal == ",":
            matches = numbers_in(notation)
            bodies = [
                body.replace(notation.thousands, "").replace(",", ".") if body and matches(body) else None
                for body in bodies
            ]
            values = as_numbers(bodies)

        if values.dtype == np.int64 or self.fitted:
            return values
        is_exact = not (np.abs(values[np.isfinite(values)]) >= EXACT).any()
        has_fractions = any(set(body) & set(".eE") for body in bodies if body)
        if is_exact or has_fractions:
            return values
        return None

    def remarks(self, notation: Notation, is_guess: bool) -> Iterator[Remark]:
        """Yield what was understood in a column of numbers: its marks, negative numbers and units."""
        for text, mark in _marks_in_words(notation, is_guess).items():
            position = next((i for i, body in enumerate(self.bodies) if body and mark in body), None)
            if position is not None:
                yield Remark(text, position)
                break

        for negative in sorted(self.negatives):
            yield Remark(negative, self._first("negative", negative))
        if self.unit:
            yield Remark("units", self._first("unit"))

    def _first(self, field: str, value: str | None = None) -> int:
        """Return the position of the first number whose field has a value, by default any but ""."""
        numbers = (i for i, body in enumerate(self.bodies) if body)
        values = ((i, getattr(part_of(self.cells[i]), field)) for i in numbers)
        return next(i for i, written in values if (written if value is None else written == value))


def _is_readable(body: str) -> bool:
    """Whether some notation reads a body, as none reads 02.02.2024."""
    return any(numbers_in(notation)(body) for notation in notations({*MARKS} & {*body}))


def _are_dates(bodies: Sequence[str]) -> bool:
    """Whether different bodies that look like numbers are months, as 12.2024, or days, as 01.12."""
    if len(bodies) < MIN_DATES:
        return False
    if all(map(MONTH.fullmatch, bodies)):
        return True
    return all(map(DAY.fullmatch, bodies)) and any(body.startswith("0") for body in bodies)


def _distinct(cells: Sequence[str]) -> tuple[np.ndarray, list[str]]:
    """Return the position of every cell among the distinct cells, and these."""
    values = [*cells]
    if len({*values[:SAMPLE]}) >= SAMPLE / 2:  # most cells are different: taking them all is faster
        return np.arange(len(values)), values
    codes, distinct = pd.factorize(np.array(values, dtype=object))
    return codes, distinct.tolist()


def _marks_in_words(notation: Notation, is_guess: bool) -> dict[str, str]:
    """Return the marks of a notation by what to say of them, the most important one first."""
    hint = ""
    if is_guess:
        alternative = "be decimal marks" if notation.thousands else "separate thousands"
        hint = f", which could {alternative},"

    marks = {}
    if notation.decimal == ",":
        marks[f"decimal commas{hint}"] = ","
    elif is_guess and not notation.thousands:
        marks[f"decimal points{hint}"] = "."
    if notation.thousands:
        marks[f"{MARKS[notation.thousands]} between thousands{hint}"] = notation.thousands
    return marks
