"""Who changed cluster between two versions of the same rows, and which columns moved them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from scipy.stats import median_abs_deviation
from sklearn.model_selection import train_test_split

from neonxc.attribution.contrasts import mean_relevance, some_of
from neonxc.attribution.summary import ClusterValues, values_of
from neonxc.common.numbers import percent, plural, shares, text
from neonxc.data.frames import reads_tables
from neonxc.data.inputs import as_array, label_array, plain
from neonxc.data.table import Table, is_texts
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
        at, values = self.relevance.index.get_loc(column), self.values
        direction, after, before = values.direction(0, at)
        category = at in values.shares
        printed = (percent(x) if category or values.in_texts else text(x, 3) for x in (before, after))
        return f"{direction} " * category + "in " * values.in_texts + " → ".join(printed)

    def lines(self) -> Iterator[str]:
        """Yield the lines that describe the move."""
        number = plural(len(self.ids), "row")
        usual = f"; {text(int(self.usual.sum()))} changed no more than rows that stayed" * bool(self.usual.any())
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
class Moves:
    """Result of :func:`moves`.

    Attributes
    ----------
    table : DataFrame [K, K]
        Number of rows of every old cluster (index) that are in every new cluster (columns).
    moves : list of Move
        The moves, the most frequent first. Only the 50 most frequent ones are explained.
    entered, left : Series [K]
        Number of rows of every cluster that are in `after` only, and in `before` only.
    """

    table: pd.DataFrame
    moves: list[Move]
    entered: pd.Series
    left: pd.Series

    @property
    def n_moved(self) -> int:
        """Number of rows that changed cluster."""
        return int(self.table.to_numpy().sum() - np.trace(self.table))

    @property
    def headline(self) -> str:
        """Numbers of rows in one line."""
        n = int(self.table.to_numpy().sum())
        more = ((self.entered, "new"), (self.left, "gone"))
        counts = [f"{text(int(some.sum()))} {name}" for some, name in more if some.sum()]
        moved = f"{text(self.n_moved)} ({percent(self.n_moved / n)}) moved"
        return ", ".join([plural(n, "row"), *counts]) + f": {moved}"

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
        return "\n".join([self.headline, *(line for move in self.moves for line in move.lines())])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"{self.table.to_html()}<pre>{escape(str(self))}</pre>"


@reads_tables
def moves(net: NeuralizedClustering, before: Any, after: Any, *, ids: Any = None) -> Moves:
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
    before, after : table, texts or tensor [N, ...], [M, ...]
        Inputs of the network at two times.
    ids : str, or pair of sequences [N], [M], optional
        Identifiers by which rows are matched: a column of both tables, which is no input of the network, or the
        identifiers of both. Default: the index of two data frames, or the order of rows.

    Returns
    -------
    Moves

    Raises
    ------
    TypeError
        `net` is not a network from :func:`~neonxc.neuralize`.
    ValueError
        Identifiers are missing or repeated, no rows match, the numbers of rows differ and there are no
        identifiers, or the network clusters the locations of inputs.

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
        before, after, ids = _without(before, ids, "before"), _without(after, ids, "after"), None
    tables, keys = _identified(before, after, ids)
    places = pd.Index(keys[0]).get_indexer(pd.Index(keys[1]))
    there = np.flatnonzero(places >= 0)
    if not len(there):
        raise ValueError("no row of after has the identifier of a row of before")
    labels = [as_array(net.predict(table)) for table in tables]
    if labels[0].ndim > 1:
        raise ValueError("moves needs one cluster per row; this network clusters the locations of its inputs")
    classes = net.classes_.tolist()
    old, new = (pd.Categorical(own, classes) for own in (labels[0][places[there]], labels[1][there]))
    table = pd.crosstab(old, new, dropna=False).rename_axis(index="old", columns="new")
    gone = np.setdiff1d(np.arange(len(keys[0])), places)
    entered = pd.Series(pd.Categorical(np.delete(labels[1], there), classes)).value_counts(sort=False)
    left = pd.Series(pd.Categorical(labels[0][gone], classes)).value_counts(sort=False)
    versions = tables[0].take(places[there]), tables[1].take(there)
    counts = table.to_numpy() * (1 - np.eye(len(classes), dtype=int))
    order = np.argsort(-counts, axis=None, kind="stable")[: min(EXPLAINED, np.count_nonzero(counts))]
    pairs = zip(*np.unravel_index(order, counts.shape), strict=True)
    found = [
        _move(net, versions, keys[1][there], old.codes, new.codes, (int(a), int(b)), classes) for a, b in pairs
    ]
    return Moves(table, found, entered, left)


def _without(table: Any, column: str, name: str) -> Any:
    """A version of the table without its identifiers, which become its index."""
    if not isinstance(table, pd.DataFrame) or column not in table:
        raise ValueError(f"ids needs a column of both tables, and {name} has no column {column!r}")
    return table.set_index(column)


def _identified(before: Any, after: Any, ids: Any) -> tuple[list[Table], list[np.ndarray]]:
    """Both versions, and the identifiers of their rows."""
    tables = [Table.read(before, name="before"), Table.read(after, name="after")]
    sizes = [len(table) for table in tables]
    if ids is None:
        numbered = [pd.RangeIndex(size) for size in sizes]
        keys: list[Any] = [
            own if table.index is None else table.index for own, table in zip(numbered, tables, strict=True)
        ]
        if sizes[0] != sizes[1] and all(key.equals(own) for key, own in zip(keys, numbered, strict=True)):
            raise ValueError(
                f"before and after have {sizes[0]} and {sizes[1]} rows, and no index: pass ids, the column that "
                "identifies rows"
            )
    else:
        keys = [label_array(key, name="ids") for key in ids] if isinstance(ids, tuple | list) else []
        if [*map(len, keys)] != sizes:
            raise ValueError(
                f"ids needs a column, or a pair of {sizes[0]} and {sizes[1]} identifiers, got {[*map(len, keys)]}"
            )
    for table, key in zip(tables, map(pd.Index, keys), strict=True):
        if not key.is_unique:
            raise ValueError(
                f"{table.name} has several rows with the identifier {plain(key[key.duplicated()][0])!r}"
            )
    return tables, [np.asarray(key) for key in keys]


@torch.no_grad()
def _move(
    net: NeuralizedClustering,
    versions: tuple[Table, Table],
    ids: np.ndarray,
    old: np.ndarray,
    new: np.ndarray,
    pair: tuple[int, int],
    classes: list[Any],
) -> Move:
    """Explain the rows that moved between two clusters, given by their positions in `classes`."""
    inside = np.flatnonzero(old == pair[0])
    moved = new[inside] == pair[1]
    some, usual = inside[moved], np.zeros(int(moved.sum()), bool)
    start, end = (_contrasts(net, table.take(some), *pair[::-1]) for table in versions)
    far = np.argsort(-np.minimum(end, -start), kind="stable")
    change, some = float((end - start).mean()), some[far]
    stayed = some_of(inside[new[inside] == pair[0]], STAYED)
    if len(stayed):
        first, second = (_contrasts(net, table.take(stayed), *pair[::-1]) for table in versions)
        usual = (end - start)[far] <= 3 * median_abs_deviation(second - first, scale="normal")
    before, after = (mean_relevance(net, table.take(some), *pair[::-1]).numpy() for table in versions)
    found = pd.Series(after - before, net.inputs.units, name="relevance")
    typical = _typical(versions, some[:SHOWN], ids, found)
    values = _change(values_of(net.inputs, [table.take(some) for table in versions]))
    rule = _rule(net, versions[0].take(inside), moved)
    start_label, end_label = (classes[position] for position in pair)
    return Move(
        start_label, end_label, ids[some], len(some) / len(inside), change, usual, found, values, rule, typical
    )


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


def _rule(net: NeuralizedClustering, before: Table, moved: np.ndarray) -> Rule | None:
    """The rule with the best F1 score for the rows that will move, found on one half and measured on the other."""
    from neonxc.trees.one_rule import best_rule  # depends on this package

    if min(moved.sum(), (~moved).sum()) < FEW:
        return None
    table, labels = Table.read(net.inputs.columns(before.data)), np.where(moved, "moves", "stays")
    seen, other = train_test_split(np.arange(len(labels)), test_size=0.5, stratify=labels, random_state=0)
    part = table.take(seen).data
    found, _ = best_rule(part, moved[seen], names=net.inputs.units)
    rules = counted([("moves", found)] if found else [], part, labels[seen])
    return rules.measure(table.take(other).data, labels[other])[0] if found else None
