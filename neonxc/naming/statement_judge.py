"""A judge of tables, who reads statements about columns against the quantiles of all rows.

With the mid-rank r of a value among all N rows, r = (number below + half of the number equal) / N, which has the
mean 1/2, a statement gives a row the score

    high x            r                         low x           1 - r
    rather high x     1 - 8/5 abs(r - 3/4)      rather low x    1 - 8/5 abs(r - 1/4)
    extreme x         abs(2 r - 1)              medium x        1 - abs(2 r - 1)
    x is Private      the mid-rank of being in this category among the rows
    x is missing      the mid-rank of having no value

and 1/2, what it gives the mean row, if x is missing. "x is high" is read as "high x"; capitals of names and
categories need not be right if that leaves one. So all statements have the same mean, and a category scores
the more the rarer it is. A name scores the mean of its statements. The judge knows the names and the unlabelled
rows, and nothing of the clusters.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np
import pandas as pd

from neonxc.common.numbers import is_missing, text
from neonxc.common.types import ArrayLike, TableLike
from neonxc.data.frames import reads_tables
from neonxc.data.table import Table
from neonxc.data.weights import weights_of

Name: TypeAlias = str | Sequence[str]
"""A name in one text, or as a list of statements."""

WORDS = ("high", "rather high", "medium", "rather low", "low", "extreme")
MISSING = "missing"
SEPARATORS = re.compile(r"(,|;| and )")
"""What separates the statements of a name."""
MAX_COLUMNS = 200
"""Largest number of columns of the space in which rows are compared: those whose ranks vary most."""
MAX_CATEGORIES = 20
"""Largest number of categories of a column in that space, the most frequent ones."""


def words_of(name: Name) -> str:
    """Return a name as one text."""
    return name if isinstance(name, str) else ", ".join(name)


class Statement(NamedTuple):
    """A statement about a column, as it was read."""

    position: int  # of the column
    word: str  # one of WORDS, MISSING, or "is"
    category: str = ""  # for "is"


class StatementJudge:
    """Sorts rows of a table by statements such as ``"high proline"``, ``"work is Private"``, ``"age is missing"``.

    Parameters
    ----------
    X : table [N, d]
        All rows, without labels: what is high or low is told by them.
    columns : sequence of str, optional
        Names of the columns of a table that has none; default: ``x0``, ``x1`` and so on.
    sample_weight : array-like [N], optional
        Weights >= 0 of the rows.

    Examples
    --------
    >>> import pandas as pd
    >>> from neonxc.evaluation import StatementJudge
    >>> table = pd.DataFrame({"age": [20, 30, 40, 50], "work": ["a", "b", "b", "b"]})
    >>> judge = StatementJudge(table)
    >>> judge(["high age", "low age, work is a"], table)
    array([[0.125, 0.875],
           [0.375, 0.5  ],
           [0.625, 0.375],
           [0.875, 0.25 ]])
    """

    @reads_tables
    def __init__(
        self, X: TableLike, columns: Sequence[str] | None = None, sample_weight: ArrayLike | None = None
    ) -> None:
        self._table = Table.read(X)
        self._table.check_filled()
        self.columns = column_names(self._table, columns)
        weight = weights_of(sample_weight, self._table)
        self._mass = np.ones(len(self._table)) if weight is None else weight
        self._positions = _by_spelling(self.columns)
        self._numbers: dict[int, _Numbers] = {}
        self._categories: dict[int, _Categories] = {}

    def __call__(self, names: Sequence[Name], rows: TableLike) -> np.ndarray:
        """Score rows by names.

        Parameters
        ----------
        names : sequence of str, or of sequences of str
            Statements in one text, separated by commas, or as a list.
        rows : table [n, d]
            Rows with the columns of X.

        Returns
        -------
        ndarray [n, names]
            Mean of the scores of the statements, at most 1; NaN for a name without statements about the columns.
        """
        table = Table.read(rows, self.columns if self._table.column_names else len(self.columns), name="rows")
        read = [self._read(name) for name in names]
        positions: dict[Statement, int] = {}
        for statements in read:
            for statement in statements:
                positions.setdefault(statement, len(positions))
        of_statements = np.empty((len(table), len(positions)))
        for statement, position in positions.items():
            of_statements[:, position] = self._score(statement, table)

        scores = np.full((len(table), len(read)), np.nan)
        for position, statements in enumerate(read):
            if statements:
                chosen = [positions[statement] for statement in statements]
                scores[:, position] = of_statements[:, chosen].mean(axis=1)
        return scores

    def space(self, rows: TableLike) -> np.ndarray:
        """Return the ranks of numbers and the categories of rows as points [n, D]: all that the judge can see."""
        table = Table.read(rows)
        return np.concatenate([self._coordinates(i, table) for i in self._compared], axis=1)

    def _read(self, name: Name) -> list[Statement]:
        """Read the statements of a name, as far as they are about columns of the table."""
        parts = [name] if isinstance(name, str) else name
        return [statement for part in parts for statement in self._read_text(part)]

    def _read_text(self, name: str) -> list[Statement]:
        """Read statements between separators, which columns and categories may have themselves."""
        pieces = SEPARATORS.split(name)  # every second one is a separator
        statements = []
        first = 0
        while first < len(pieces):
            # the longest run of pieces that is a statement; a piece that begins none is passed over
            for last in range(len(pieces), first, -2):
                statement = self._read_one("".join(pieces[first:last]).strip())
                if statement is not None:
                    statements.append(statement)
                    first = last + 1
                    break
            else:
                first += 2
        return statements

    def _read_one(self, words: str) -> Statement | None:
        """Read one statement; None if it is none."""
        for word in WORDS:
            if not words.casefold().startswith(f"{word} "):
                continue
            position = _find(self._positions, words[len(word) + 1 :])
            if position is not None and self._is_number(position):
                return Statement(position, word)
        before = 0
        while (cut := words.find(" is ", before)) >= 0:
            column = words[:cut]
            category = words[cut + len(" is ") :]
            before = cut + 1
            position = _find(self._positions, column)
            if position is None:
                continue
            names = self._of_categories(position).names
            if category in self._of_categories(position).ranks:
                return Statement(position, "is", category)
            if category.casefold() == MISSING:
                return Statement(position, MISSING)
            if category.casefold() in WORDS and self._is_number(position):
                return Statement(position, category.casefold())
            known = _find(_by_spelling(names), category)
            if known is not None:
                return Statement(position, "is", names[known])
        return None

    def _score(self, statement: Statement, table: Table) -> np.ndarray:
        """Score rows by one statement, [n]."""
        position = statement.position
        if statement.word not in WORDS:
            categories = self._of_categories(position)
            category = MISSING if statement.word == MISSING else statement.category
            return categories.score(_texts(column_of(table, position)), category)
        rank = self._of_numbers(position).rank(_values(column_of(table, position)))
        score = _score_of_rank(statement.word, rank)
        return np.where(np.isnan(score), 0.5, score)

    @cached_property
    def _compared(self) -> list[int]:
        """Positions of the columns of the space."""
        n = len(self.columns)
        if n <= MAX_COLUMNS:
            return list(range(n))
        variance = [self._coordinates(i, self._table).var(axis=0).sum() for i in range(n)]
        return np.sort(np.argsort(-np.array(variance), kind="stable")[:MAX_COLUMNS]).tolist()

    def _coordinates(self, position: int, table: Table) -> np.ndarray:
        """Return the rank of a number, or the ranks of being in the categories of a column, [n, 1] or [n, c]."""
        column = column_of(table, position)
        if self._is_number(position):
            rank = self._of_numbers(position).rank(_values(column))
            return np.where(np.isnan(rank), 0.5, rank)[:, None]
        categories = self._of_categories(position)
        texts = _texts(column)
        most_frequent = categories.names[:MAX_CATEGORIES]
        return np.stack([categories.score(texts, category) for category in most_frequent], axis=1)

    @cached_property
    def _are_numbers(self) -> list[bool]:
        return [is_number(column_of(self._table, position)) for position in range(len(self.columns))]

    def _is_number(self, position: int) -> bool:
        return self._are_numbers[position]

    def _of_numbers(self, position: int) -> _Numbers:
        if position not in self._numbers:
            self._numbers[position] = _Numbers.of(_values(column_of(self._table, position)), self._mass)
        return self._numbers[position]

    def _of_categories(self, position: int) -> _Categories:
        if position not in self._categories:
            self._categories[position] = _Categories.of(_texts(column_of(self._table, position)), self._mass)
        return self._categories[position]


class _Numbers(NamedTuple):
    """The distribution of a column of numbers."""

    values: np.ndarray  # [N], sorted
    up_to: np.ndarray  # [N + 1], sum of the weights of the first values, as a fraction of all

    @classmethod
    def of(cls, values: np.ndarray, mass: np.ndarray) -> _Numbers:
        known = ~np.isnan(values)
        order = np.argsort(values[known], kind="stable")
        sums = np.concatenate([[0.0], mass[known][order].cumsum()])
        total = sums[-1]
        return cls(values[known][order], sums / total if total > 0 else sums)

    def rank(self, values: np.ndarray) -> np.ndarray:
        """Compute the mid-ranks of values, [n]; NaN if they are missing, or if all of the column are."""
        if not len(self.values):
            return np.full(len(values), np.nan)
        below = self.up_to[np.searchsorted(self.values, values, "left")]
        not_above = self.up_to[np.searchsorted(self.values, values, "right")]
        return np.where(np.isnan(values), np.nan, (below + not_above) / 2)


class _Categories(NamedTuple):
    """The categories of a column, by their text."""

    ranks: dict[str, tuple[float, float]]  # the mid-rank of rows that are in it, and of those that are not
    names: list[str]  # the most frequent first

    @classmethod
    def of(cls, texts: np.ndarray, mass: np.ndarray) -> _Categories:
        codes, names = pd.factorize(texts)
        fractions = np.bincount(codes, mass, minlength=len(names)) / mass.sum()
        ranks = {}
        for name, fraction in zip(names, fractions.tolist(), strict=True):
            ranks[str(name)] = (1 - fraction / 2, (1 - fraction) / 2)
        most_frequent = np.argsort(-fractions, kind="stable")
        return cls(ranks, [str(names[i]) for i in most_frequent])

    def score(self, texts: np.ndarray, category: str) -> np.ndarray:
        """Score rows by whether they are in a category, [n]; a category that no row has says nothing."""
        if category not in self.ranks:
            return np.full(len(texts), 0.5)
        inside, outside = self.ranks[category]
        score = np.where(texts == category, inside, outside)
        if category == MISSING:
            return score
        return np.where(texts == MISSING, 0.5, score)


def _by_spelling(names: Sequence[str]) -> dict[str, int]:
    """Return the positions of names, and of names in lower case that only one name has."""
    lower = [name.casefold() for name in names]
    counts = Counter(lower)
    positions = {name: i for i, name in enumerate(lower) if counts[name] == 1}
    return positions | {name: i for i, name in enumerate(names)}


def _find(positions: dict[str, int], name: str) -> int | None:
    """Return the position of a name as it is written, or in lower case; None if there is none."""
    return positions.get(name, positions.get(name.casefold()))


def _score_of_rank(word: str, rank: np.ndarray) -> np.ndarray:
    """Score mid-ranks by one of WORDS."""
    match word:
        case "high":
            return rank
        case "low":
            return 1 - rank
        case "rather high":
            return 1 - 1.6 * np.abs(rank - 0.75)
        case "rather low":
            return 1 - 1.6 * np.abs(rank - 0.25)
        case "extreme":
            return np.abs(2 * rank - 1)
        case _:
            return 1 - np.abs(2 * rank - 1)


def column_names(table: Table, columns: Sequence[str] | None = None) -> list[str]:
    """Return the names of the columns of a table: its own, those that are given, or numbers."""
    if table.column_names is not None:
        return table.column_names
    if columns is not None and len(columns) == table.width:
        return [*columns]
    return [f"x{i}" for i in range(table.width)]


def column_of(table: Table, position: int) -> pd.Series:
    """Return a column of a table."""
    column = table.column(position)
    if isinstance(column, pd.Series):
        return column
    if not isinstance(column, np.ndarray):
        column = column.detach().cpu().numpy()
    return pd.Series(column)


def is_number(column: pd.Series) -> bool:
    """Whether a column holds numbers, and neither truth values nor categories."""
    is_truth = str(column.dtype) in ("bool", "boolean")
    return not is_truth and pd.api.types.is_numeric_dtype(column)


def _values(column: pd.Series) -> np.ndarray:
    """Return the numbers of a column; NaN where they are missing."""
    return column.to_numpy(dtype=np.float64, na_value=np.nan)


def _texts(column: pd.Series) -> np.ndarray:
    """Return the categories of a column as statements print them."""
    codes, levels = pd.factorize(column.astype(object), use_na_sentinel=False)
    names = [MISSING if is_missing(level) else text(level, separators=False) for level in levels]
    return np.array(names, dtype=object)[codes]
