"""The result of :func:`neonxc.moves`: the rows that changed cluster, and what is known of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from neonxc.attribution.cluster_values import ClusterValues
from neonxc.attribution.direction import Direction
from neonxc.common.numbers import percent, plural, shares, text
from neonxc.common.result import Result, preformatted
from neonxc.common.types import Label
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
        are too few rows.
    typical : DataFrame
        The rows that moved farthest: their most relevant columns before and after the move, their texts, or, for
        images, no columns.
    weight : ndarray [m] or None
        Weights of the rows.
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

    def lines(self) -> Iterator[str]:
        """Yield the lines that describe the move."""
        usual = ""
        if self.usual.any():
            usual = f"; {text(self.usual_size)} changed no more than rows that stayed"
        size = f"{plural(self.size, 'row')}, {percent(self.share)} of cluster {self.old}"
        yield f"{self.old} → {self.new}: {size}{usual}"
        columns = [f"{name} {percent(fraction)} ({self.step(name)})" for name, fraction in self.named.items()]
        yield f"    why: the contrast rises by {text(self.change, 3)}, {', '.join(columns)}"
        if self.rule is not None and self.rule.held_out is not None:
            counts = self.rule.held_out
            yield (
                f"    who: {self.rule.text()} before (held out: precision {percent(counts.precision)}, "
                f"finds {percent(counts.coverage)})"
            )
        yield f"    such as: {', '.join(map(str, self.typical.index))}"


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
    """

    table: pd.DataFrame
    moves: list[Move]
    entered: pd.Series
    left: pd.Series
    unidentified: tuple[int, int]
    outside: pd.Series
    outside_columns: pd.Series

    @property
    def n_moved(self) -> float:
        """Number of rows that changed cluster; with weights, their sum."""
        return as_count(self.table.to_numpy().sum() - np.trace(self.table))

    @property
    def headline(self) -> str:
        """Numbers of rows in one line."""
        n = float(self.table.to_numpy().sum())
        rows = plural(int(n), "row") if n.is_integer() else f"{text(n)} rows by weight"
        counts = [rows]
        unidentified_before, unidentified_after = self.unidentified
        if self.entered.sum():
            counts.append(_count(self.entered, "new", unidentified_after))
        if self.left.sum():
            counts.append(_count(self.left, "gone", unidentified_before))

        headline = f"{', '.join(counts)}: {text(self.n_moved)} ({percent(self.n_moved / n)}) moved"
        if self.outside.any():
            headline += f", {text(self.outside.sum().item())} outside the range of their cluster"
        return headline

    @property
    def unlike(self) -> str:
        """The rows outside the range of their cluster by cluster and column, in one line; "" if there are none."""
        if not self.outside.any():
            return ""
        clusters = [f"{label} {text(float(n))}" for label, n in self.outside.items() if n]
        columns = [f"{name} {text(float(n))}" for name, n in self.outside_columns[:N_SHOWN].items()]
        return f"outside the range of their cluster: rows of {', '.join(clusters)}; by {', '.join(columns)}"

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
                title = f"{move.old} → {move.new}: {plural(len(move.ids), 'row')}"
                explained.append((title, move.top(len(move.relevance)), move.step))
        return flow_figure(self.table, self.entered, self.left, explained[:N_DRAWN])

    def __str__(self) -> str:
        lines = self._remarks()
        for move in self.moves:
            lines += move.lines()
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return f"{self.table.to_html()}{preformatted(str(self))}"

    def _remarks(self) -> list[str]:
        return [line for line in (self.headline, self.unlike) if line]


def _count(by_cluster: pd.Series, word: str, n_unidentified: int) -> str:
    """Write a number of rows: ``"12 new (2 without an identifier)"``."""
    count = f"{text(by_cluster.sum().item())} {word}"
    if n_unidentified:
        count += f" ({text(n_unidentified)} without an identifier)"
    return count
