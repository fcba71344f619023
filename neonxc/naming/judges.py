"""Judges: callables ``judge(names, rows) -> scores [rows, names]``, the larger the better a name fits a row.

    rows        judge by default
    a table     StatementJudge: statements about columns against quantiles
    texts       TextJudge: a space of the texts themselves

Judges of this package read names as lists of statements; those of users get them as one text each, and the rows in
the type that they were passed in. A judge may have a method ``space(rows) -> [rows, d]``: the points that it sees
rows as, in which the ceiling is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np

from neonxc.common.types import ArrayLike
from neonxc.data.inputs import as_array, as_texts
from neonxc.data.table import Table, is_texts
from neonxc.naming.statement_judge import Name, StatementJudge, words_of

UserJudge: TypeAlias = Callable[[list[str], Any], ArrayLike]
"""A judge of a user: names and rows -> scores [rows, names]."""


class Judge(Protocol):
    """What sorts the rows of a table by names."""

    has_space: bool

    def scores(self, names: Sequence[Name], rows: Table) -> np.ndarray:
        """Return the scores [rows, names]; NaN where a name says nothing about a row."""

    def space(self, rows: Table) -> np.ndarray:
        """Return the points [rows, d] that the judge sees rows as."""


class OfTable:
    """A judge of tables."""

    has_space = True

    def __init__(self, judge: StatementJudge) -> None:
        self.judge = judge

    def scores(self, names: Sequence[Name], rows: Table) -> np.ndarray:
        """Score rows by statements."""
        return self.judge(names, rows)

    def space(self, rows: Table) -> np.ndarray:
        """Return ranks and categories."""
        return self.judge.space(rows)


class OfUser:
    """A judge that a user passes."""

    def __init__(self, judge: UserJudge) -> None:
        self.judge = judge
        self.has_space = callable(getattr(judge, "space", None))

    def scores(self, names: Sequence[Name], rows: Table) -> np.ndarray:
        """Score rows by names in one text each."""
        printed = [words_of(name) for name in names]
        scores = as_array(self.judge(printed, rows.data))
        if scores.shape != (len(rows), len(names)) or scores.dtype.kind not in "fiub":
            raise ValueError(
                f"judge needs to return numbers of shape [rows, names], here {[len(rows), len(names)]}, got "
                f"{scores.dtype} of shape {list(scores.shape)}"
            )
        return scores.astype(np.float64)

    def space(self, rows: Table) -> np.ndarray:
        """Return the points of the judge's own space."""
        judge: Any = self.judge
        return as_array(judge.space(rows.data)).astype(np.float64)


def as_judge(
    judge: UserJudge | None,
    rows: Table,
    n_names: int,
    columns: Sequence[str] | None = None,
    weight: np.ndarray | None = None,
) -> Judge:
    """Return the judge that is passed, or the default one for rows.

    Parameters
    ----------
    judge : callable, optional
    rows : Table
        All rows, without labels.
    n_names : int
        Number of names that are told apart.
    columns : sequence of str, optional
        Names of the columns if the table has none.
    weight : ndarray [N], optional
        Weights of the rows.
    """
    if isinstance(judge, StatementJudge):
        return OfTable(judge)
    if judge is not None or is_texts(rows):
        from neonxc.naming.text_judge import DIMENSIONS, OfTexts, TextJudge, WordJudge  # which tables do without

        if judge is None:
            return OfTexts(TextJudge(as_texts(rows.data), dimensions=max(DIMENSIONS, 2 * n_names)))
        if isinstance(judge, TextJudge | WordJudge):
            return OfTexts(judge)
        if not callable(judge):
            raise TypeError(f"judge needs a callable judge(names, rows), got {type(judge).__name__}")
        return OfUser(judge)
    if len(rows.shape) != 2:
        raise ValueError(
            f"names are judged by the columns of a table or by texts, got inputs of shape {list(rows.shape)}: "
            "pass judge=, a function of names and rows that returns scores [rows, names]"
        )
    return OfTable(StatementJudge(rows, columns, weight))
