"""Who changed cluster between two versions of the same rows, and which columns moved them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from scipy.stats import median_abs_deviation, norm
from sklearn.model_selection import train_test_split

from neonxc.attribution.cluster_values import ClusterValues, values_of
from neonxc.attribution.contrasts import mean_relevance
from neonxc.attribution.ranges import count_outside
from neonxc.common.numbers import percent, plural, shares, text
from neonxc.common.result import Result, preformatted
from neonxc.data.files.frame import read_with_ids
from neonxc.data.frames import as_pandas, is_path
from neonxc.data.identifiers import Match, as_index, match_rows
from neonxc.data.inputs import as_array
from neonxc.data.table import Table, is_texts
from neonxc.data.weights import as_count, drawn, weighted_median, weights_of
from neonxc.head.answer import Question
from neonxc.network import NeuralizedClustering, check_network
from neonxc.rules.collection import counted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from neonxc.rules.rule import Rule

EXPLAINED = 50  # moves from one cluster to another whose columns and rules are computed, the most frequent ones
FEW = 10  # rows that move and rows that stay, of which each half is needed for a rule and for its measures
STAYED = 500  # maximum number of rows that stayed, whose usual change is estimated
LEAST = 0.01  # share of a column that is named
SHOWN = 5  # columns and typical rows that are shown
DRAWN = 3  # moves whose columns are drawn


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
        Share of the old cluster's rows, 0 to 1.
    change : float
        Mean change of the contrast between the new and the old cluster, in units of the logit; positive.
    usual : ndarray [m] of bool
        Rows whose contrast changed no more than is usual among the rows that stayed in the old cluster: by at most
        three standard deviations, estimated from the median absolute deviation. They were close to the boundary,
        so that noise may have moved them.
    relevance : Series [units]
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

    old: Any
    new: Any
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
        return len(self.ids) if self.weight is None else as_count(self.weight.sum())

    @property
    def usual_size(self) -> int | float:
        """Number of the usual rows, or the sum of their weights."""
        return as_count(self.usual.sum() if self.weight is None else self.weight[self.usual].sum())

    def top(self, n: int = SHOWN) -> pd.Series:
        """Return the `n` columns that contributed most to the move, as shares of the changes of all columns."""
        share = pd.Series(shares(self.relevance.to_numpy()), self.relevance.index, name="relevance")
        return share.iloc[np.argsort(-share.to_numpy(), kind="stable")[:n]]

    @property
    def named(self) -> pd.Series:
        """The columns that are named in texts, with their shares of at least 1%."""
        return self.top()[lambda share: share >= LEAST]

    def step(self, column: str) -> str:
        """Describe the typical values of a column before and after: ``"52 → 12"``, ``"is Pro 10% → 80%"``."""
        at = self.relevance.index.get_loc(column)
        values = self.values
        direction, after, before = values.direction(0, at)
        category = at in values.shares
        printed = (percent(x) if category or values.in_texts else text(x, 3) for x in (before, after))
        return f"{direction} " * category + "in " * values.in_texts + " → ".join(printed)

    def lines(self) -> Iterator[str]:
        """Yield the lines that describe the move."""
        number = plural(self.size, "row")
        usual = f"; {text(self.usual_size)} changed no more than rows that stayed" * bool(self.usual.any())
        yield f"{self.old} → {self.new}: {number}, {percent(self.share)} of cluster {self.old}{usual}"
        columns = (f"{name} {percent(share)} ({self.step(name)})" for name, share in self.named.items())
        yield f"    why: the contrast rises by {text(self.change, 3)}, {', '.join(columns)}"
        if self.rule is not None and self.rule.held_out is not None:
            found = self.rule.held_out
            yield (
                f"    who: {self.rule.text()} before (held out: precision {percent(found.precision)}, "
                f"finds {percent(found.coverage)})"
            )
        yield f"    such as: {', '.join(map(str, self.typical.index))}"


@dataclass(frozen=True, repr=False)
class Moves(Result):
    """Result of :func:`moves`.

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
        moved = self.table.to_numpy().sum() - np.trace(self.table)
        return int(moved) if float(moved).is_integer() else float(moved)

    @property
    def headline(self) -> str:
        """Numbers of rows in one line."""
        n = self.table.to_numpy().sum()
        more = zip((self.entered, self.left), ("new", "gone"), self.unidentified[::-1], strict=True)
        counts = [
            f"{text(some.sum().item())} {name}" + f" ({text(unknown)} without an identifier)" * bool(unknown)
            for some, name, unknown in more
            if some.sum()
        ]
        moved = f"{text(self.n_moved)} ({percent(self.n_moved / n)}) moved"
        outside = f", {text(self.outside.sum().item())} outside the range of their cluster" * bool(
            self.outside.any()
        )
        rows = plural(int(n), "row") if float(n).is_integer() else f"{text(float(n))} rows by weight"
        return ", ".join([rows, *counts]) + f": {moved}{outside}"

    @property
    def unlike(self) -> str:
        """The rows outside the range of their cluster by cluster and column, in one line; "" if there are none."""
        if not self.outside.any():
            return ""
        clusters = (f"{label} {text(float(n))}" for label, n in self.outside.items() if n)
        columns = (f"{name} {text(float(n))}" for name, n in self.outside_columns[:SHOWN].items())
        return f"outside the range of their cluster: rows of {', '.join(clusters)}; by {', '.join(columns)}"

    @property
    def shares(self) -> pd.DataFrame:
        """Shares of every old cluster's rows, 0 to 1, that are in every new cluster."""
        return self.table.div(self.table.sum(axis=1), axis=0)

    def to_frame(self) -> pd.DataFrame:
        """Return one row per move and column, the most relevant columns first.

        Returns
        -------
        DataFrame
            Index levels ``old``, ``new`` and ``column``; columns ``rows``, ``share`` of the old cluster,
            ``relevance``, its share of the changes of all columns, and the ``values`` before and after in words.
        """
        rows = [
            (move.old, move.new, name, len(move.ids), move.share, move.relevance[name], share, move.step(name))
            for move in self.moves
            for name, share in move.top(len(move.relevance)).items()
        ]
        columns = ["old", "new", "column", "rows", "share", "relevance", "of change", "values"]
        return pd.DataFrame(rows, columns=columns).set_index(["old", "new", "column"])

    def plot(self) -> Figure:
        """Draw the flow of rows between the clusters, and beside it the columns of the most frequent moves."""
        from neonxc.plot.flow import flow_figure  # loads matplotlib

        explained = [
            (f"{move.old} → {move.new}: {plural(len(move.ids), 'row')}", move.top(len(move.relevance)), move.step)
            for move in self.moves
            if np.isfinite(move.change)
        ]
        return flow_figure(self.table, self.entered, self.left, explained[:DRAWN])

    def __str__(self) -> str:
        lines = (line for move in self.moves for line in move.lines())
        return "\n".join([*self._remarks(), *lines])

    def _repr_html_(self) -> str:
        return f"{self.table.to_html()}{preformatted(str(self))}"

    def _remarks(self) -> list[str]:
        return [self.headline, *filter(None, [self.unlike])]


def moves(
    net: NeuralizedClustering, before: Any, after: Any, *, ids: Any = None, sample_weight: Any = None
) -> Moves:
    """Explain which rows changed cluster between two versions of the data, and by which columns.

    Both versions are assigned by the same network. A clustering that is fitted again to the new data would move
    the clusters themselves, so that rows change cluster by the choice of the seed alone
    (:func:`neonxc.compare_clusterings` measures this), and the difference between the relevance of two networks
    does not belong to the rows.

    Every row that moved is explained by its relevance for the new cluster, as opposed to the old one, after minus
    before. These differences sum to the change of the contrast between the two clusters.

    Parameters
    ----------
    net : NeuralizedClustering
        Network from :func:`neonxc.neuralize`; one cluster per row.
    before, after : table, texts or tensor [N, ...], [M, ...], or path
        Inputs of the network at two times.
    ids : str, or pair of sequences [N], [M], optional
        Identifiers by which rows are matched: a column of both tables, which is no input of the network, or the
        identifiers of both. Default: the index if both versions are data frames with one, or else the order of
        rows, whose numbers need to be equal. Rows with a missing identifier are never matched.
    sample_weight : array-like [M], or pair of array-like [N], [M], optional
        Weights >= 0 of the rows, such as those of a survey: of `after`, or of both versions; a series goes by its
        index. Rows that are in both have the weight in `after`, and those that left count by that in `before`, or
        as 1. A weight of 2 is a row twice, and a row of weight 0 is left out: so do the numbers of rows, shares,
        mean changes, relevance, values and rules count. The rows of a move (``ids``, ``usual``) are listed once,
        and what is usual is estimated from the rows that stayed, without weights.

    Returns
    -------
    Moves

    Raises
    ------
    TypeError
        `net` is not a network from :func:`~neonxc.neuralize`.
    ValueError
        Identifiers are repeated or of different types, no rows match, the numbers of rows differ and there are no
        identifiers, weights are invalid, or the network clusters the locations of inputs.

    Examples
    --------
    >>> import neonxc
    >>> from sklearn.cluster import KMeans
    >>> from sklearn.datasets import load_iris
    >>> before = load_iris(as_frame=True).data
    >>> net = neonxc.neuralize(KMeans(3, n_init=10, random_state=0).fit(before), before)
    >>> after = before.copy()
    >>> after.loc[60:79, "petal length (cm)"] += 2
    >>> found = neonxc.moves(net, before, after)
    >>> found.moves[0].top(1).index[0]
    'petal length (cm)'
    """
    check_network(net, "moves", "; pass neonxc.neuralize(model)")
    if isinstance(ids, str):
        if ids in (net.inputs.needed or ()):
            raise ValueError(f"ids needs a column that is no input of the network, which was fitted on {ids!r}")
        tables = [_without(net, before, ids, "before"), _without(net, after, ids, "after")]
        ids = None
    else:
        tables = [net.inputs.given(before, "before"), net.inputs.given(after, "after")]
    match = match_rows(tables[0], tables[1], ids)
    weights = None
    if sample_weight is not None:
        match, tables, weights = _with_weights(match, tables, sample_weight)
    labels = [as_array(net.predict(table)) for table in tables]
    if labels[0].ndim > 1:
        raise ValueError("moves needs one cluster per row; this network clusters the locations of its inputs")
    classes = net.classes_.tolist()
    old, new = (pd.Categorical(own, classes) for own in (labels[0][match.before], labels[1][match.after]))
    mass = None if weights is None else weights[1][match.after]
    table = _crossed(old, new, mass).rename_axis(index="old", columns="new")
    entered = _counts(labels[1], match.after, classes, weights and weights[1])
    left = _counts(labels[0], match.before, classes, weights and weights[0])
    versions = tables[0].take(match.before), tables[1].take(match.after)
    counts = table.to_numpy() * (1 - np.eye(len(classes), dtype=int))
    order = np.argsort(-counts, axis=None, kind="stable")[: min(EXPLAINED, np.count_nonzero(counts))]
    pairs = zip(*np.unravel_index(order, counts.shape), strict=True)
    found = [
        _move(net, versions, match.ids, old.codes, new.codes, (int(a), int(b)), classes, mass) for a, b in pairs
    ]
    codes = [pd.Categorical(own, classes).codes for own in labels]
    outside, columns = count_outside(
        net.inputs, (tables[0], tables[1]), (codes[0], codes[1]), len(classes), weights
    )
    by_cluster = pd.Series(outside, pd.Index(classes))
    return Moves(table, found, entered, left, match.unidentified, by_cluster, columns)


def _with_weights(
    match: Match, tables: list[Table], sample_weight: Any
) -> tuple[Match, list[Table], tuple[np.ndarray, np.ndarray]]:
    """Read the weights of both versions, and leave out rows of weight 0."""
    if isinstance(sample_weight, tuple):
        first, second = (weights_of(given, table) for given, table in zip(sample_weight, tables, strict=True))
    else:
        first = None
        second = weights_of(sample_weight, tables[1])
    before = np.ones(len(tables[0])) if first is None else first
    after = np.ones(len(tables[1])) if second is None else second
    before[match.before] = after[match.after]

    there = [np.flatnonzero(weight) for weight in (before, after)]
    both = after[match.after] > 0
    places = [np.searchsorted(*pair) for pair in ((there[0], match.before[both]), (there[1], match.after[both]))]
    match = match._replace(before=places[0], after=places[1], ids=match.ids[both])
    tables = [table.take(rows) for table, rows in zip(tables, there, strict=True)]
    return match, tables, (before[there[0]], after[there[1]])


def _crossed(old: pd.Categorical, new: pd.Categorical, mass: np.ndarray | None) -> pd.DataFrame:
    """Numbers of rows, or sums of their weights, in every pair of an old and a new cluster."""
    table = pd.crosstab(old, new, dropna=False)
    if mass is not None:
        sums = np.zeros(table.shape)
        np.add.at(sums, (old.codes, new.codes), mass)
        table = pd.DataFrame(sums, table.index, table.columns)
    return table


def _counts(labels: np.ndarray, matched: np.ndarray, classes: list[Any], weight: np.ndarray | None) -> pd.Series:
    """Numbers of the rows of every cluster that are not matched, or sums of their weights."""
    rest = pd.Categorical(np.delete(labels, matched), classes)
    counts = pd.Series(rest).value_counts(sort=False)
    if weight is not None:
        sums = np.bincount(rest.codes, np.delete(weight, matched), minlength=len(classes))
        counts = pd.Series(sums, counts.index, name="count")
    return counts


def _without(net: NeuralizedClustering, X: Any, column: str, name: str) -> Table:
    """A version of the table without its identifiers, which become its index."""
    if is_path(X):
        return Table.read(read_with_ids(X, column, needed=net.inputs.needed, format=net.table_format), name=name)
    frame = as_pandas(X, name)
    if not isinstance(frame, pd.DataFrame) or column not in frame:
        raise ValueError(f"ids needs a column of both tables, and {name} has no column {column!r}")
    table = Table.read(frame.drop(columns=column), name=name)
    table.index = as_index((X if isinstance(X, pd.DataFrame) and column in X else frame)[column])
    return table


@torch.no_grad()
def _move(
    net: NeuralizedClustering,
    versions: tuple[Table, Table],
    ids: np.ndarray,
    old: np.ndarray,
    new: np.ndarray,
    pair: tuple[int, int],
    classes: list[Any],
    mass: np.ndarray | None = None,
) -> Move:
    """Explain the rows that moved between two clusters, given by their positions in `classes`.

    The rows may have weights (`mass`).
    """
    inside = np.flatnonzero(old == pair[0])
    moved = new[inside] == pair[1]
    some = inside[moved]
    usual = np.zeros(int(moved.sum()), bool)
    start, end = (_contrasts(net, table.take(some), *pair[::-1]) for table in versions)
    far = np.argsort(-np.minimum(end, -start), kind="stable")
    weight = None if mass is None else mass[some]
    change = float(np.average(end - start, weights=weight))
    some = some[far]
    stayed = inside[new[inside] == pair[0]]
    stayed, of_stayed = drawn(stayed, STAYED, None if mass is None else mass[stayed])
    if len(stayed):
        first, second = (_contrasts(net, table.take(stayed), *pair[::-1]) for table in versions)
        usual = (end - start)[far] <= 3 * _deviation(second - first, of_stayed)
    weight = None if mass is None else mass[some]
    before, after = (mean_relevance(net, table.take(some), *pair[::-1], weight).numpy() for table in versions)
    found = pd.Series(after - before, net.inputs.units, name="relevance")
    typical = _typical(versions, some[:SHOWN], ids, found)
    weights = None if weight is None else [weight, weight]
    values = _change(values_of(net.inputs, [table.take(some) for table in versions], weights))
    rule = _rule(net, versions[0].take(inside), moved, None if mass is None else mass[inside])
    start_label, end_label = (classes[position] for position in pair)
    share = len(some) / len(inside)
    if mass is not None:
        share = float(mass[some].sum() / mass[inside].sum())
    return Move(start_label, end_label, ids[some], share, change, usual, found, values, rule, typical, weight)


def _deviation(values: np.ndarray, weight: np.ndarray | None) -> float:
    """Standard deviation of values, which may have weights, estimated from their median absolute deviation."""
    if weight is None:
        return float(median_abs_deviation(values, scale="normal"))
    distances = np.abs(values - weighted_median(values, weight))
    return weighted_median(distances, weight) / float(norm.ppf(0.75))


def _contrasts(net: NeuralizedClustering, X: Table, target: int, competitor: int) -> np.ndarray:
    """Contrasts [m] of rows between two clusters: positive for those nearer to the target."""
    each = net.inputs.answers(X, Question(target, competitor))
    return torch.cat([answer.contrasts.amin(dim=1).double().cpu() for answer in each]).numpy()


def _change(both: ClusterValues) -> ClusterValues:
    """Typical values of the second version, compared with those of the first, from those of both."""
    shares = {column: found.iloc[[1, 0]] for column, found in both.shares.items()}
    return replace(both, means=both.means[1:], overall=both.means[0], shares=shares, effects=None)


def _typical(versions: tuple[Table, Table], rows: np.ndarray, ids: np.ndarray, found: pd.Series) -> pd.DataFrame:
    """Some rows before and after: their most relevant columns, texts, or nothing for images."""
    parts = []
    for table in versions:
        part = table.take(rows)
        if is_texts(part):
            parts.append(pd.DataFrame({"text": [*part.data]}))
        elif part.shape[1:] == found.shape and not part.is_sparse:
            strongest = np.argsort(-np.nan_to_num(found.to_numpy()), kind="stable")[:SHOWN]
            parts.append(part.frame([*found.index]).iloc[:, strongest].reset_index(drop=True))
        else:
            parts.append(pd.DataFrame(index=range(len(rows))))
    joined = pd.concat(parts, axis=1, keys=["before", "after"]).swaplevel(axis=1)
    return joined[[*parts[0].columns]].set_axis(pd.Index(ids[rows]), axis=0)


def _rule(net: NeuralizedClustering, before: Table, moved: np.ndarray, weight: np.ndarray | None) -> Rule | None:
    """The rule with the best F1 score for the rows that will move, found on one half and measured on the other."""
    from neonxc.trees.one_rule import best_rule  # depends on this package

    if min(moved.sum(), (~moved).sum()) < FEW:
        return None
    table = Table.read(net.inputs.columns(before.data))
    labels = np.where(moved, "moves", "stays")
    seen, other = train_test_split(np.arange(len(labels)), test_size=0.5, stratify=labels, random_state=0)
    part = table.take(seen).data
    of_seen, of_other = (None if weight is None else weight[rows] for rows in (seen, other))
    found, _ = best_rule(part, moved[seen], names=net.inputs.units, sample_weight=of_seen)
    rules = counted([("moves", found)] if found else [], part, labels[seen], sample_weight=of_seen)
    return rules.measure(table.take(other).data, labels[other], of_other)[0] if found else None
