"""Columns of text: which notation their numbers have, and their values."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np
import pandas as pd

from neonxc.data.files.notation import (
    AMONG_NUMBERS,
    BEHIND,
    ENCLOSED,
    EXACT,
    MARKS,
    MISSING,
    Notation,
    notations,
    numbers_in,
    part_of,
)

SAMPLE = 1000
"""Cells that tell whether most cells of a column are different."""
MOSTLY = 0.9
"""Share of numbers above which the other cells of a column count as mistakes, and the column not as text."""
PLAIN = b"0123456789.,+-eE\n"
FEW = 5
"""Units at most that a note lists; more are parts of names."""
CODE = re.compile(r"0[0-9]+|\+[0-9]{5,}")


def as_numbers(bodies: Sequence[str | None]) -> np.ndarray:
    """Return numbers with decimal points as int64, if all of them are whole, or float64 with NaN for others."""
    values = np.asarray(pd.to_numeric(np.array(bodies, dtype=object), errors="coerce"))
    return values if values.dtype == np.int64 else values.astype(float)


class TextColumn:
    """A column of text, and what its distinct cells are as numbers.

    Parameters
    ----------
    cells : sequence of str
        The cells, as they are written.
    missing : frozenset of str
        Cells that count as missing, in lower case.
    known : Notation, optional
        The notation of the column in the table to whose columns this one belongs.

    Attributes
    ----------
    codes : ndarray [n]
        Positions of the cells among the distinct ones.
    cells : list of str
        The distinct cells, without spaces around them.
    present, filled : ndarray of bool
        Which of them are not missing, as text and as numbers.
    bodies : list of str or None
        Their signs, digits and marks; None for what is no number of this column.
    units : Counter
        The units of the numbers, and in how many cells they are.
    ways : set of str
        The ways of writing negative numbers other than by a sign before them.
    marks : set of str
        The marks in `bodies`.
    """

    def __init__(self, cells: Sequence[str], missing: frozenset[str] = MISSING, known: Notation | None = None):
        self.known = known
        self.codes, self.cells = np.arange(len(cells)), [*cells]
        if len({*self.cells[:SAMPLE]}) < SAMPLE / 2:  # else most cells are, which is faster than to find out
            self.codes, distinct = pd.factorize(np.array(self.cells, dtype=object))
            self.cells = distinct.tolist()
        self.counts = np.bincount(self.codes, minlength=len(self.cells))
        text = "\n".join(self.cells) + "\n"
        self.is_plain = "-\n" not in text and not text.encode().translate(None, PLAIN)
        lower = self.cells
        if not self.is_plain:
            self.cells = [cell.strip() for cell in self.cells]
            lower = [cell.casefold() for cell in self.cells]
        self.present = self.filled = np.ones(len(lower), dtype=bool)
        if not (missing | AMONG_NUMBERS).isdisjoint(lower):
            self.present = np.array([cell not in missing for cell in lower])
            self.filled = self.present & [cell not in AMONG_NUMBERS for cell in lower]
        self.units, self.ways = Counter[str](), set[str]()
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
        return self.units.most_common(1)[0][0] if self.units else ""

    @property
    def words(self) -> list[str]:
        """The cells that are missing if the column has numbers."""
        return [self.cells[i] for i in np.flatnonzero(self.present & ~self.filled)]

    @property
    def code(self) -> str:
        """A whole number with leading zeros, or a long one with a plus sign; "" if there is none."""
        return "" if self.marks else next(filter(CODE.fullmatch, self.cells), "")

    @property
    def mixed(self) -> bool:
        """Whether all cells are numbers, but in a few different units."""
        return 1 < len(self.units) <= FEW and self.units.total() == self.counts[self.filled].sum()

    def truths(self, gaps: bool) -> np.ndarray | None:
        """Return the truth values of all rows, NaN for missing ones if there may be `gaps`; None for others."""
        known = {"true": True, "false": False}
        pairs = zip(self.cells, self.present, strict=True)
        if not all(cell.casefold() in known or (gaps and not present) for cell, present in pairs):
            return None
        values = [known.get(cell.casefold(), np.nan) for cell in self.cells]
        return np.array(values, dtype=bool if self.present.all() else object)[self.codes]

    def _bodies(self) -> list[str | None]:
        """The bodies, and on the way :attr:`units` and :attr:`ways`."""
        cells: list[str | None] = [*self.cells]
        for i in np.flatnonzero(~self.filled):
            cells[i] = None
        if self.is_plain:
            return cells
        parts = [None if cell is None else part_of(cell) for cell in cells]
        found = [part for part in parts if part]
        for part, count in zip(parts, self.counts.tolist(), strict=True):
            if part and (part.unit or part.body.strip("+-0.,")):  # zero needs no unit
                self.units[part.unit] += count
        ways, units = {part.negative for part in found}, {"", self.unit if self.known is None else self.known.unit}
        if self.known is None:
            if self.unit and len(self.units) > 1:
                units = set()
            if not self.unit and not any(mark in part.body for part in found for mark in MARKS):
                ways -= {BEHIND}  # grades such as 2-
            if ways == {ENCLOSED}:  # standard errors, for example
                ways = set()
        self.ways = ways - {""}
        return [part.body if part and part.unit in units and part.negative in ways else None for part in parts]

    @cached_property
    def options(self) -> list[Notation]:
        """The notations in which all numbers can be read, or else most; none if it is a column of text."""
        bodies = [*filter(None, self.bodies)]
        weights = self.counts if len(bodies) == len(self.bodies) else self.counts[[*map(bool, self.bodies)]]
        least = MOSTLY * self.counts[self.filled].sum()
        if weights.sum() <= least:
            return []
        found = notations(self.marks)
        if exact := [one for one in found if self._all_in(one, bodies)]:
            return exact
        fits = [weights[[*map(bool, map(numbers_in(one), bodies))]].sum() for one in found]
        return [one for one, fit in zip(found, fits, strict=True) if fit == max(fits) and fit > least]

    def _all_in(self, notation: Notation, bodies: list[str]) -> bool:
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
        return self.options[0].decimal if len(self.options) == 1 else ""

    def notation(self, decimal: str, comma: str) -> tuple[Notation, bool]:
        """Choose the notation of a column of numbers, and return whether nothing tells it.

        Parameters
        ----------
        decimal : str
            The decimal mark that other columns or tables have, "" if that is unknown.
        comma : str
            The decimal mark of columns with commas where nothing tells it.
        """
        options = self.options or [self.known or Notation()]
        mark = options[0].thousands or options[-1].thousands
        doubt = len(options) > 1 and not decimal and not self._groups(mark)
        if len(options) > 1:
            others = {".": ",", ",": "."}
            decimal = decimal or ((comma if mark == "," else ".") if doubt else others[mark])
            options = [one for one in options if one.decimal == decimal]
        chosen = options[0]
        unit = self.unit if self.known is None else self.known.unit
        return chosen._replace(decimal=chosen.decimal or decimal, unit=unit), doubt

    def _groups(self, mark: str) -> bool:
        """Whether a mark separates thousands, as the whole numbers without it are shorter than those with it."""
        lengths: dict[bool, list[int]] = {True: [], False: [0] * (self.known is not None)}
        for body in filter(None, self.bodies):
            digits = body.strip("+-").replace(mark, "")
            if not digits.isdigit():  # an exponent, which is written by programs
                return False
            lengths[mark in body].append(len(digits))
        longest = max(lengths[False], default=5)
        return longest < 4 or longest == 4 < min(lengths[True])

    def numbers(self, notation: Notation) -> np.ndarray | None:
        """Return the numbers in the distinct cells, NaN for others; None if float64 would round whole numbers.

        They are int64 if every cell is a whole number, and else float64.
        """
        bodies, values = self.bodies, self._pointed
        if notation.thousands or notation.decimal == ",":
            fits = numbers_in(notation)
            bodies = [
                body.replace(notation.thousands, "").replace(",", ".") if body and fits(body) else None
                for body in bodies
            ]
            values = as_numbers(bodies)
        if values.dtype == np.int64 or self.known or not (np.abs(values[np.isfinite(values)]) >= EXACT).any():
            return values
        return values if any(set(body) & set(".eE") for body in bodies if body) else None

    def told(self, notation: Notation, doubt: bool) -> Iterator[tuple[str, int]]:
        """Yield what was understood in a column of numbers, and the position of a cell that shows it."""
        hint, signs = "", dict[str, str]()
        if doubt:
            hint = f", which could {'be decimal marks' if notation.thousands else 'separate thousands'},"
        if notation.decimal == ",":
            signs["decimal commas"] = ","
        elif doubt and not notation.thousands:
            signs["decimal points"] = "."
        if notation.thousands:
            signs[f"{MARKS[notation.thousands]} between thousands"] = notation.thousands
        for what, sign in signs.items():
            at = next((i for i, body in enumerate(self.bodies) if body and sign in body), None)
            if at is not None:
                yield what + hint, at
                break
        for what in [*sorted(self.ways), *["units"] * bool(self.unit)]:
            parts = ((i, part_of(cell)) for i, cell in enumerate(self.cells) if self.bodies[i])
            yield (
                what,
                next(i for i, part in parts if part and what in (part.negative, "units" if part.unit else "")),
            )
