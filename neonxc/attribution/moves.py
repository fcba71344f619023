"""Who changed cluster between two versions of the same rows, and which columns moved them.

1. Rows are matched by their identifiers. Those that are in one version only have entered or left.
2. The same network assigns both versions to clusters, and the rows that are in both are counted by pairs of
   clusters.
3. The rows that moved from cluster a to cluster b are explained by the contrast h between these two, which is
   positive for points that are nearer to b, and by the relevance R_j of the columns for b and against a:

       change         mean of h(after) - h(before)
       relevance      mean of R_j(after) - R_j(before), whose sum is the change
       order          by min(h(after), -h(before)), the distance to the boundary on both sides, farthest first
       usual          rows with h(after) - h(before) <= 3 s, where s is the standard deviation of this difference
                      among the rows that stayed in a, estimated from their median absolute deviation

4. A rule on the columns before the move finds, among the rows of a, those that moved to b
   (:mod:`neonxc.attribution.held_out_rule`).

5. Rows of the second version that are far outside of the range that their cluster had in the first one are counted
   (:mod:`neonxc.attribution.ranges`).
"""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from scipy.stats import median_abs_deviation, norm

from neonxc.attribution.cluster_values import ClusterValues, values_of
from neonxc.attribution.contrasts import contrasts_of, mean_relevance
from neonxc.attribution.held_out_rule import MIN_ROWS, are_enough, held_out_rule
from neonxc.attribution.moved_rows import N_SHOWN, Move, Moves
from neonxc.attribution.ranges import count_outside
from neonxc.common.sizes import STAYED_ROWS
from neonxc.common.types import ArrayLike, Label, TableLike
from neonxc.data.files.frame import read_with_ids
from neonxc.data.frames import as_pandas, is_path
from neonxc.data.identifiers import Match, as_index, match_rows
from neonxc.data.inputs import as_array
from neonxc.data.table import Table, is_texts
from neonxc.data.weights import drawn, weighted_median, weights_of
from neonxc.network import NeuralizedClustering, check_network

MAX_EXPLAINED = (
    50  # moves from one cluster to another whose columns and rules are computed, the most frequent ones
)
TOO_FEW = (
    f"There are too few rows to find a rule: at least {MIN_ROWS} need to move there, and {MIN_ROWS} others not."
)
NOT_FOUND = "No rule finds them: what their columns had in common before the move is no better than chance."


def moves(
    net: NeuralizedClustering,
    before: TableLike,
    after: TableLike,
    *,
    ids: str | Sequence[ArrayLike] | None = None,
    sample_weight: ArrayLike | tuple[ArrayLike | None, ArrayLike | None] | None = None,
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
        Identifiers by which rows are matched: a column of both tables, which is not an input of the network, or
        the identifiers of both. Default: the index if both versions are data frames with one, or else the order of
        rows, whose numbers need to be equal. Rows with a missing identifier are never matched.
    sample_weight : array-like [M], or pair of array-like [N], [M], optional
        Weights >= 0 of the rows, such as those of a survey: of `after`, or of both versions; a series goes by its
        index. Rows that are in both have the weight in `after`, and those that left count by that in `before`, or
        as 1. A weight of 2 is a row twice, and a row of weight 0 is left out: so do the numbers of rows,
        fractions, mean changes, relevance, values and rules count. The rows of a move (``ids``, ``usual``) are
        listed once, and what is usual is estimated from the rows that stayed, with their weights.

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
    >>> result = neonxc.moves(net, before, after)
    >>> result.moves[0].top(1).index[0]
    'petal length (cm)'
    """
    check_network(net, "moves", "; pass neonxc.neuralize(model)")
    if isinstance(ids, str):
        if ids in (net.inputs.needed or ()):
            raise ValueError(
                f"ids needs a column that is not an input of the network, which was fitted on {ids!r}"
            )
        tables = (_without_ids(net, before, ids, "before"), _without_ids(net, after, ids, "after"))
        match = match_rows(*tables)
    else:
        tables = (net.inputs.given(before, "before"), net.inputs.given(after, "after"))
        match = match_rows(*tables, ids)
    weights = None
    weight_before = None
    weight_after = None
    if sample_weight is not None:
        match, tables, weights = _with_weights(match, tables, sample_weight)
        weight_before, weight_after = weights

    labels_before = as_array(net.predict(tables[0]))
    labels_after = as_array(net.predict(tables[1]))
    if labels_before.ndim > 1:
        raise ValueError("moves needs one cluster per row; this network clusters the locations of its inputs")
    classes: list[Label] = list(net.classes_.tolist())
    k = len(classes)
    old = pd.Categorical(labels_before[match.before], classes)
    new = pd.Categorical(labels_after[match.after], classes)
    weight = None if weight_after is None else weight_after[match.after]
    table = _crossed(old, new, weight).rename_axis(index="old", columns="new")
    entered = _counts(labels_after, match.after, classes, weight_after)
    left = _counts(labels_before, match.before, classes, weight_before)

    rows = _MatchedRows(
        before=tables[0].take(match.before),
        after=tables[1].take(match.after),
        ids=match.ids,
        old=old.codes,
        new=new.codes,
        weight=weight,
    )
    counts = table.to_numpy() * (1 - np.eye(k, dtype=int))  # without the rows that stayed
    n_explained = min(MAX_EXPLAINED, np.count_nonzero(counts))
    most_frequent = np.argsort(-counts, axis=None, kind="stable")[:n_explained]
    explained = []
    for pair in zip(*np.unravel_index(most_frequent, counts.shape), strict=True):
        a, b = map(int, pair)
        explained.append(_explained_move(net, rows, a, b))

    codes = (pd.Categorical(labels_before, classes).codes, pd.Categorical(labels_after, classes).codes)
    outside, outside_columns = count_outside(net.inputs, tables, codes, k, weights)
    outside_clusters = pd.Series(outside, pd.Index(classes))
    return Moves(
        table,
        explained,
        entered,
        left,
        match.unidentified,
        outside_clusters,
        outside_columns,
        net.inputs.marks,
    )


def _without_ids(net: NeuralizedClustering, X: TableLike, column: str, name: str) -> Table:
    """Return a version of the table without its identifiers, which become its index."""
    if isinstance(X, str | PathLike) and is_path(X):
        frame = read_with_ids(X, column, needed=net.inputs.needed, format=net.table_format)
        return Table.read(frame, name=name)
    frame = as_pandas(X, name)
    if not isinstance(frame, pd.DataFrame) or column not in frame:
        raise ValueError(f"ids needs a column of both tables, and {name} has no column {column!r}")
    table = net.inputs.given(frame.drop(columns=column), name)
    if isinstance(X, pd.DataFrame) and column in X:
        table.index = as_index(X[column])
    else:
        table.index = as_index(frame[column])
    return table


def _with_weights(
    match: Match,
    tables: tuple[Table, Table],
    sample_weight: ArrayLike | tuple[ArrayLike | None, ArrayLike | None],
) -> tuple[Match, tuple[Table, Table], tuple[np.ndarray, np.ndarray]]:
    """Read the weights of both versions, and leave out rows of weight 0."""
    if isinstance(sample_weight, tuple):
        of_before, of_after = sample_weight
    else:
        of_before = None
        of_after = sample_weight
    before = weights_of(of_before, tables[0])
    after = weights_of(of_after, tables[1])
    if before is None:
        before = np.ones(len(tables[0]))
    if after is None:
        after = np.ones(len(tables[1]))
    before[match.before] = after[match.after]

    # rows with a weight > 0, among which the matched rows have other positions
    rows_before = np.flatnonzero(before)
    rows_after = np.flatnonzero(after)
    has_weight = after[match.after] > 0
    match = match._replace(
        before=np.searchsorted(rows_before, match.before[has_weight]),
        after=np.searchsorted(rows_after, match.after[has_weight]),
        ids=match.ids[has_weight],
    )
    tables = (tables[0].take(rows_before), tables[1].take(rows_after))
    return match, tables, (before[rows_before], after[rows_after])


def _crossed(old: pd.Categorical, new: pd.Categorical, weight: np.ndarray | None) -> pd.DataFrame:
    """Count the rows, or sum their weights, in every pair of an old and a new cluster."""
    table = pd.crosstab(old, new, dropna=False)
    if weight is None:
        return table
    sums = np.zeros(table.shape)
    np.add.at(sums, (old.codes, new.codes), weight)
    return pd.DataFrame(sums, table.index, table.columns)


def _counts(labels: np.ndarray, matched: np.ndarray, classes: list[Label], weight: np.ndarray | None) -> pd.Series:
    """Count the rows of every cluster that are not matched, or sum their weights."""
    unmatched = pd.Categorical(np.delete(labels, matched), classes)
    counts = pd.Series(unmatched).value_counts(sort=False)
    if weight is None:
        return counts
    sums = np.bincount(unmatched.codes, np.delete(weight, matched), minlength=len(classes))
    return pd.Series(sums, counts.index, name="count")


class _MatchedRows(NamedTuple):
    """The m rows that are in both versions, and their clusters as positions in ``classes_``."""

    before: Table
    after: Table
    ids: np.ndarray  # [m]
    old: np.ndarray  # [m]
    new: np.ndarray  # [m]
    weight: np.ndarray | None  # [m]

    def weight_of(self, rows: np.ndarray) -> np.ndarray | None:
        """Return the weights of some rows; None without weights."""
        return None if self.weight is None else self.weight[rows]


@torch.no_grad()
def _explained_move(net: NeuralizedClustering, rows: _MatchedRows, a: int, b: int) -> Move:
    """Explain the rows that moved from cluster a to cluster b, two positions in ``classes_``."""
    inside = np.flatnonzero(rows.old == a)
    is_moved = rows.new[inside] == b
    moved = inside[is_moved]
    stayed = inside[rows.new[inside] == a]

    # h before and after
    start = contrasts_of(net, rows.before.take(moved), b, a)
    end = contrasts_of(net, rows.after.take(moved), b, a)
    change = float(np.average(end - start, weights=rows.weight_of(moved)))
    farthest_first = np.argsort(-np.minimum(end, -start), kind="stable")
    is_usual = np.zeros(len(moved), bool)
    if len(stayed):
        is_usual = (end - start)[farthest_first] <= 3 * _usual_deviation(net, rows, stayed, a, b)

    moved = moved[farthest_first]
    weight = rows.weight_of(moved)
    versions = [rows.before.take(moved), rows.after.take(moved)]
    relevance_before, relevance_after = (mean_relevance(net, X, b, a, weight) for X in versions)
    relevance = (relevance_after - relevance_before).rename("relevance")
    weights = None if weight is None else [weight, weight]
    values = _of_second(values_of(net.inputs, versions, weights))

    weight_inside = rows.weight_of(inside)
    if weight is None or weight_inside is None:
        fraction = len(moved) / len(inside)
    else:
        fraction = float(weight.sum() / weight_inside.sum())
    classes = net.classes_.tolist()
    rule = None
    without_rule = ""
    if are_enough(is_moved):
        before = rows.before.take(inside)
        rule = held_out_rule(net, before, is_moved, ("moves", "stays"), MAX_EXPLAINED, weight_inside)
        if rule is None:
            without_rule = NOT_FOUND
    else:
        without_rule = TOO_FEW
    return Move(
        old=classes[a],
        new=classes[b],
        ids=rows.ids[moved],
        share=fraction,
        change=change,
        usual=is_usual,
        relevance=relevance,
        values=values,
        rule=rule,
        typical=_typical(rows, moved[:N_SHOWN], relevance),
        weight=weight,
        without_rule=without_rule,
    )


def _usual_deviation(net: NeuralizedClustering, rows: _MatchedRows, stayed: np.ndarray, a: int, b: int) -> float:
    """Estimate the standard deviation of h(after) - h(before) among the rows that stayed in cluster a."""
    sample, weight = drawn(stayed, STAYED_ROWS, rows.weight_of(stayed))
    start = contrasts_of(net, rows.before.take(sample), b, a)
    end = contrasts_of(net, rows.after.take(sample), b, a)
    return _deviation(end - start, weight)


def _deviation(values: np.ndarray, weight: np.ndarray | None) -> float:
    """Estimate the standard deviation of values, which may have weights, from their median absolute deviation.

    Half of the values of a normal distribution are within 0.67 standard deviations of the median: its quantile
    0.75.
    """
    if weight is None:
        return float(median_abs_deviation(values, scale="normal"))
    distances = np.abs(values - weighted_median(values, weight))
    return weighted_median(distances, weight) / float(norm.ppf(0.75))


def _of_second(values: ClusterValues) -> ClusterValues:
    """Convert the typical values of two versions to those of the second one, compared with the first one.

    `values` are those of two groups, which are compared with both together.
    """
    fractions = {feature: of_versions.iloc[[1, 0]] for feature, of_versions in values.shares.items()}
    assert values.effects is not None
    return ClusterValues(
        means=values.means[1:],
        overall=values.means[0],
        shares=fractions,
        in_texts=values.in_texts,
        effects=values.effects[1:],
        formats=values.formats,
    )


def _typical(matched: _MatchedRows, rows: np.ndarray, relevance: pd.Series) -> pd.DataFrame:
    """Return rows before and after: their most relevant columns, their texts, or no columns for images."""
    order = np.argsort(-np.nan_to_num(relevance.to_numpy()), kind="stable")
    strongest = order[:N_SHOWN]
    versions = []
    for version in (matched.before, matched.after):
        table = version.take(rows)
        if is_texts(table):
            frame = pd.DataFrame({"text": [*table.data]})
        elif table.shape[1:] == relevance.shape and not table.is_sparse:
            frame = table.frame([*relevance.index]).iloc[:, strongest].reset_index(drop=True)
        else:
            frame = pd.DataFrame(index=range(len(rows)))
        versions.append(frame)
    columns = [*versions[0].columns]
    beside = pd.concat(versions, axis=1, keys=["before", "after"]).swaplevel(axis=1)
    return beside[columns].set_axis(pd.Index(matched.ids[rows]), axis=0)
