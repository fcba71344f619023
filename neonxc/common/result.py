"""Base class of the results of this package: a table, its markdown, and a text.

    to_frame()     one row per case (a method, a move, a pair of inputs, ...), with the numbers as they are
    to_markdown()  the same rows, in which the numbers are rounded, and below them the remarks
    str, repr      the rows that are shown, aligned, and the remarks; or sentences, where these tell more
    _repr_html_    the same as HTML, for notebooks

The classes are frozen dataclasses, but for the list of candidates :class:`neonxc.trees.TradeOff`.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from functools import partial
from html import escape

import numpy as np
import pandas as pd

from neonxc.common.numbers import is_missing, text

DIGITS = 3
"""Significant digits of the numbers of a text, as in the sentences of :class:`neonxc.Moves` and of summaries."""
MOST_ROWS = 60
"""Largest number of rows that a text shows in full; it is that of pandas (``display.max_rows``)."""


class Result(ABC):
    """Base class of the results of functions: a table that prints itself.

    A subclass defines :meth:`to_frame`. It may also choose what is printed of the table (``_shown``), and add
    lines below it (``_remarks``).
    """

    @abstractmethod
    def to_frame(self) -> pd.DataFrame:
        """Return the result as a table with one row per case.

        Returns
        -------
        DataFrame
            A table of its own: a change of it does not change the result.
        """

    def to_markdown(self, precision: int | None = None) -> str:
        """Write the table of :meth:`to_frame` as markdown, and the remarks below it.

        Parameters
        ----------
        precision : int, optional
            Number of significant digits; default: 3.

        Returns
        -------
        str
        """
        frame = self.to_frame()
        digits = DIGITS if precision is None else precision
        names = (*frame.index.names, *frame.columns)
        header = ["" if name is None else _markdown_cell(name, digits) for name in names]
        keys = frame.index.to_frame().itertuples(index=False, name=None)
        rows = frame.itertuples(index=False, name=None)
        cells = []
        for key, row in zip(keys, rows, strict=True):
            cells.append([_markdown_cell(value, digits) for value in (*key, *row)])
        return "\n\n".join([markdown_table(header, cells), *self._remarks()])

    def _shown(self) -> pd.DataFrame:
        """Return the rows and columns that are printed and displayed."""
        return self.to_frame()

    def _remarks(self) -> list[str]:
        """Return the lines that belong below the table."""
        return []

    def __str__(self) -> str:
        table = _as_texts(self._shown()).to_string(max_rows=MOST_ROWS)
        return "\n".join([table, *self._remarks()])

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        with pd.option_context("display.max_colwidth", None):  # else rules are cut off after 50 letters
            table: str = _as_texts(self._shown()).to_html(max_rows=MOST_ROWS)
        remarks = "".join(f"<p>{escape(line)}</p>" for line in self._remarks())
        return table + remarks


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a markdown table.

    Parameters
    ----------
    header : sequence of str
        Titles of the columns.
    rows : iterable of sequences of str
        The cells of each row, which may contain markdown; ``escape_markdown`` escapes texts of users.

    Returns
    -------
    str
        The lines of the table, without a line break at its end.

    Examples
    --------
    >>> from neonxc.common.result import markdown_table
    >>> print(markdown_table(["method", "AUC"], [["NEON", "**94.1**"], ["random", "71.3"]]))
    | method | AUC |
    |---|---|
    | NEON | **94.1** |
    | random | 71.3 |
    """
    lines = [_line(header), "|" + "---|" * len(header)]
    lines += map(_line, rows)
    return "\n".join(lines)


def escape_markdown(name: str) -> str:
    """Escape characters that markdown would take for markup or for the border of a cell."""
    return re.sub(r"([\\`*_\[\]<>|~$&#])", r"\\\1", name)


def rounded_text(value: float, decimals: int, precision: int | None) -> str:
    """Write a number with `decimals` decimals, or with `precision` significant digits unless this is None."""
    if precision is None:
        return f"{value:.{decimals}f}"
    return text(value, precision)


def preformatted(lines: str) -> str:
    """Return lines of text as HTML that shows them as they are."""
    return f"<pre>{escape(lines)}</pre>"


def _line(cells: Sequence[str]) -> str:
    """Write a row of a markdown table."""
    return f"| {' | '.join(cells)} |"


def _markdown_cell(value: object, digits: int) -> str:
    """Write a value as a cell of a markdown table."""
    return escape_markdown(_cell(value, digits)).replace("\n", " ")


def _cell(value: object, digits: int = DIGITS) -> str:
    """Write a value of a table: a missing value is a dash, and the items of a list are joined by commas."""
    if isinstance(value, list | tuple | np.ndarray):
        return ", ".join(_cell(item, digits) for item in value)
    if is_missing(value):
        return "–"
    return text(value, digits)


def _as_texts(frame: pd.DataFrame) -> pd.DataFrame:
    """Write all values of a table."""
    return frame.map(partial(_cell, digits=DIGITS))
