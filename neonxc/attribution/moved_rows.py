"""The result of :func:`neonxc.moves`: the rows that changed cluster, and what is known of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from neonxc.attribution.cluster_values import ClusterValues
from neonxc.attribution.direction import Direction
from neonxc.attribution.held_out_rule import held_out_in_words, rule_as_dict
from neonxc.common.cluster_names import cluster_text, label_text
from neonxc.common.locales import Marks, printed_like
from neonxc.common.numbers import in_words, percent, plural, shares, text
from neonxc.common.result import Result, preformatted
from neonxc.common.types import Label
from neonxc.data.kinds import plain
from neonxc.data.weights import as_count

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from neonxc.rules.rule import Rule

N_SHOWN = 5  # columns and typical rows that are shown
N_DRAWN = 3  # moves whose columns are drawn
MIN_NAMED = 0.01  # a column with a smaller fraction of the changes is not named


@dataclass(frozen=True, repr=False)
class Move:
    """The rows that moved from one cluster to another.

    Attributes
    ----------
    old, new : label
        The two clusters; -1 is noise.
    ids : ndarray [m]
        The rows, those that moved farthest first.
    share : float
        Fraction of the old cluster's rows, 0 to 1.
    change : float
        Mean change of the contrast between the new and the old cluster, in units of the logit; positive.
    usual : ndarray [m] of bool
        Rows whose contrast changed no more than is usual among the rows that stayed in the old cluster: by at most
        three standard deviations, estimated from the median absolute deviation. They were close to the boundary,
        so that noise may have moved them.
    relevance : Series [columns]
        Mean change of every column's relevance for the new cluster and against the old one. On raw columns it sums
        to `change`, up to what :meth:`neonxc.NEON.residual` describes.
    values : ClusterValues
        Typical values of the columns after the move; ``values.overall`` are those before it.
    rule : Rule or None
        Condition on the columns before the move that finds the rows that will move, among those of the old
        cluster. Its ``held_out`` counts are of the half of these rows that was not used to find it. None if there
        are too few rows, or if no rule is better than chance there.
    typical : DataFrame
        The rows that moved farthest: their most relevant columns before and after the move, their texts, or, for
        images, no columns.
    weight : ndarray [m] or None
        Weights of the rows.
    without_rule : str
        Sentence that tells why there is no rule; "" if there is one.
    """

    old: Label
    new: Label
    ids: np.ndarray
    share: float
    change: float
    usual: np.ndarray
    relevance: pd.Series
    values: ClusterValues
    rule: Rule | None
    typical: pd.DataFrame
    weight: np.ndarray | None = None
    without_rule: str = ""

    @property
    def size(self) -> int | float:
        """Number of rows, or the sum of their weights."""
        if self.weight is None:
            return len(self.ids)
        return as_count(self.weight.sum())

    @property
    def usual_size(self) -> int | float:
        """Number of the usual rows, or the sum of their weights."""
        if self.weight is None:
            return int(self.usual.sum())
        return as_count(self.weight[self.usual].sum())

    def top(self, n: int = N_SHOWN) -> pd.Series:
        """Return the `n` columns that contributed most to the move, as fractions of the changes of all columns."""
        fractions = shares(self.relevance.to_numpy())
        order = np.argsort(-fractions, kind="stable")[:n]
        return pd.Series(fractions, self.relevance.index, name="relevance").iloc[order]

    @property
    def named(self) -> pd.Series:
        """The columns that are named in texts: those with at least 1% of the changes of all columns.

        Columns whose values read alike before and after are left out.
        """
        top = self.top()
        differs = [self._described(name).differs for name in top.index]
        return top[(top >= MIN_NAMED) & np.array(differs, dtype=bool)]

    def step(self, column: str) -> str:
        """Describe the typical values of a column before and after: ``"52 → 12"``, ``"is Pro 10% → 80%"``."""
        return self._described(column).step()

    def _described(self, column: str) -> Direction:
        """Say how the values of a column after the move differ from those before it."""
        return self.values.described(0, self.relevance.index.get_loc(column))

    @property
    def title(self) -> str:
        """The two clusters: ``"1 → 2"``."""
        return f"{label_text(self.old)} → {label_text(self.new)}"

    @property
    def what(self) -> str:
        """Sentences on the number of the rows."""
        sentence = f"{plural(self.size, 'row')} moved, {percent(self.share)} of {cluster_text(self.old)}."
        if self.usual.any():
            sentence += f" {text(self.usual_size)} of them changed no more than rows that stayed."
        return sentence

    @property
    def why(self) -> str:
        """Sentence on the change of the contrast, and on the columns that contributed most to it."""
        if not np.isfinite(self.change):
            return "The change of the contrast is not finite."
        rise = f"The contrast rises by {text(self.change, 3)}."
        if not len(self.named):
            return rise
        columns = [f"to {name} ({self.step(name)})" for name in self.named.index]
        first, *others = map(percent, self.named)
        parts = [f"{first} are due {columns[0]}"]
        for fraction, column in zip(others, columns[1:], strict=True):
            parts.append(f"{fraction} {column}")
        return f"{rise} Of the changes of the columns, {in_words(parts)}."

    @property
    def who(self) -> str:
        """Sentences on the rule that finds the rows before they move, or on why there is none."""
        if self.rule is None or self.rule.held_out is None:
            return self.without_rule
        measured = held_out_in_words(self.rule, cluster_text(self.old), "moved")
        return f"Rows with {self.rule.text()} before the move. {measured}"

    def lines(self) -> Iterator[str]:
        """Yield the lines that describe the move."""
        yield f"{self.title}: {self.what}"
        yield f"    why: {self.why}"
        if self.who:
            yield f"    who: {self.who}"
        yield f"    such as: {', '.join(map(str, self.typical.index))}"

    def to_dict(self) -> dict[str, Any]:
        """Return the move as lists, dictionaries, strings and numbers, which JSON can hold.

        Returns
        -------
        dict
            ``old`` and ``new``, labels; ``rows`` and ``usual``, their numbers or sums of weights; ``share`` and
            ``change``; ``columns``, those that texts name, each with its ``name``, ``relevance``, ``share`` of the
            changes of all columns, and ``values`` before and after in words; ``rule``, None or its ``text``,
            ``precision``, ``coverage`` and the ``base_rate``, all on held-out rows; ``typical``, the identifiers
            of the rows that moved farthest; and the sentences ``what``, ``why`` and ``who``.
        """
        columns = []
        for name, fraction in self.named.items():
            column = {
                "name": str(name),
                "relevance": _number(self.relevance[name]),
                "share": _number(fraction),
                "values": self.step(name),
            }
            columns.append(column)
        return {
            "old": plain(self.old),
            "new": plain(self.new),
            "rows": self.size,
            "usual": self.usual_size,
            "share": _number(self.share),
            "change": _number(self.change),
            "columns": columns,
            "rule": rule_as_dict(self.rule),
            "typical": [plain(name) for name in self.typical.index],
            "what": self.what,
            "why": self.why,
            "who": self.who,
        }


@dataclass(frozen=True, repr=False)
class Moves(Result):
    """The rows that changed cluster between two versions of a table: the result of :func:`moves`.

    Attributes
    ----------
    table : DataFrame [K, K]
        Number of rows of every old cluster (index) that are in every new cluster (columns).
    moves : list of Move
        The moves, the most frequent first. Only the 50 most frequent ones are explained.
    entered, left : Series [K]
        Number of rows of every cluster that are in `after` only, and in `before` only.
    unidentified : tuple of int
        Numbers of rows of `before` and `after` without an identifier; they are among those that left and entered.
    outside : Series [K]
        Number of rows of `after` in every cluster that are unlike its rows in `before`: a value is outside of
        their range by more than half of this range, and by more than two standard deviations of the column. Texts
        have none.
    outside_columns : Series
        Number of these rows by column, the most frequent first.
    marks : Marks or None
        The marks with which numbers are printed: those of the file of the network's table; None for no file.
    """

    table: pd.DataFrame
    moves: list[Move]
    entered: pd.Series
    left: pd.Series
    unidentified: tuple[int, int]
    outside: pd.Series
    outside_columns: pd.Series
    marks: Marks | None = None

    @property
    def n_moved(self) -> float:
        """Number of rows that changed cluster; with weights, their sum."""
        return as_count(self.table.to_numpy().sum() - np.trace(self.table))

    @property
    def headline(self) -> str:
        """Numbers of rows in one line, without a full stop."""
        n = as_count(self.table.to_numpy().sum())
        rows = plural(n, "row")
        if not float(n).is_integer():
            rows += " by weight"
        sentences = [f"{text(self.n_moved)} of {rows} ({percent(self.n_moved / n)}) moved to another cluster"]
        unidentified_before, unidentified_after = self.unidentified
        if self.entered.sum():
            sentences.append(_count(self.entered, "new", unidentified_after))
        if self.left.sum():
            sentences.append(_count(self.left, "gone", unidentified_before))
        if self.outside.any():
            sentences.append(_count(self.outside, f"outside the range of {self._their} cluster"))
        return "; ".join(sentences)

    @property
    def unlike(self) -> str:
        """The rows outside the range of their cluster by cluster and column, in one line; "" if there are none.

        It has no full stop.
        """
        if not self.outside.any():
            return ""
        clusters = [
            f"{plural(float(n), 'row')} of {cluster_text(label)}" for label, n in self.outside.items() if n
        ]
        columns = [f"{name} ({plural(float(n), 'row')})" for name, n in self.outside_columns[:N_SHOWN].items()]
        verb = "has" if self._their == "its" else "have"
        values = f"values outside the range of {self._their} cluster, most often in {in_words(columns)}"
        return f"{in_words(clusters)} {verb} {values}"

    @property
    def _their(self) -> str:
        """The pronoun of the rows outside the range of their cluster."""
        return "its" if self.outside.sum() == 1 else "their"

    @property
    def shares(self) -> pd.DataFrame:
        """Fractions of every old cluster's rows, 0 to 1, that are in every new cluster."""
        return self.table.div(self.table.sum(axis=1), axis=0)

    def to_frame(self) -> pd.DataFrame:
        """Return one row per move and column, the most relevant columns first.

        Returns
        -------
        DataFrame
            Index levels ``old``, ``new`` and ``column``; columns ``rows``, ``share`` of the old cluster,
            ``relevance``, ``of change``, its fraction of the changes of all columns, and the ``values`` before and
            after in words.
        """
        rows = []
        for move in self.moves:
            of_move = (len(move.ids), move.share)
            for name, fraction in move.top(len(move.relevance)).items():
                of_column = (move.relevance[name], fraction, move.step(name))
                rows.append((move.old, move.new, name, *of_move, *of_column))
        columns = ["old", "new", "column", "rows", "share", "relevance", "of change", "values"]
        return pd.DataFrame(rows, columns=columns).set_index(["old", "new", "column"])

    def plot(self) -> Figure:
        """Draw the flow of rows between the clusters, and beside it the columns of the most frequent moves."""
        from neonxc.plot.flow import flow_figure  # loads matplotlib

        explained = []
        for move in self.moves:
            if np.isfinite(move.change):
                title = f"{move.title}: {plural(len(move.ids), 'row')}"
                explained.append((title, move.top(len(move.relevance)), move.step))
        return flow_figure(self.table, self.entered, self.left, explained[:N_DRAWN])

    def to_dict(self) -> dict[str, Any]:
        """Return the result as lists, dictionaries, strings and numbers, which JSON can hold.

        Returns
        -------
        dict
            ``clusters``, the labels [K] by which the next ones go; ``table`` [K][K], ``entered``, ``left`` and
            ``outside`` [K], numbers of rows; ``outside_columns``, these by column; ``unidentified``, two numbers;
            ``rows`` and ``moved``, numbers of rows in both versions; ``summary``, sentences on these numbers; and
            ``moves``, what :meth:`Move.to_dict` returns for each.
        """
        columns = [*map(str, self.outside_columns.index)]
        return {
            "summary": self._remarks(),
            "rows": as_count(self.table.to_numpy().sum()),
            "moved": self.n_moved,
            "clusters": [plain(label) for label in self.table.index],
            "table": self.table.to_numpy().tolist(),
            "entered": self.entered.tolist(),
            "left": self.left.tolist(),
            "unidentified": [int(n) for n in self.unidentified],
            "outside": self.outside.tolist(),
            "outside_columns": dict(zip(columns, self.outside_columns.tolist(), strict=True)),
            "moves": [move.to_dict() for move in self.moves],
        }

    def __str__(self) -> str:
        with printed_like(self.marks):
            lines = self._remarks()
            for move in self.moves:
                lines += move.lines()
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return f"{self.table.to_html()}{preformatted(str(self))}"

    def _remarks(self) -> list[str]:
        return [f"{line}." for line in (self.headline, self.unlike) if line]


def _count(by_cluster: pd.Series, state: str, n_unidentified: int = 0) -> str:
    """Write how many rows are in a state: ``"12 rows are new (2 without an identifier)"``."""
    n = by_cluster.sum().item()
    verb = "is" if n == 1 else "are"
    count = f"{plural(n, 'row')} {verb} {state}"
    if n_unidentified:
        count += f" ({text(n_unidentified)} without an identifier)"
    return count


def _number(value: float) -> float | None:
    """Convert a number to one that JSON can hold: None if it is not finite."""
    number = float(value)
    if np.isfinite(number):
        return number
    return None
