"""Compare two clusters: the columns that separate them, and a small tree that separates them.

1. The relevance of the columns for "a, not b" is averaged over the points of a, and that for "b, not a" over the
   points of b: at most SAMPLED_ROWS of each cluster, drawn at random.
2. A CART tree tests the MAX_TESTED_COLUMNS columns with the largest sum of both relevances. The points are
   weighted such that both clusters have the same total weight.
3. The tree grows leaf by leaf, up to MAX_LEAVES. A larger tree replaces a smaller one if its balanced accuracy is
   higher by more than MIN_GAIN. Growth stops at the accuracy that is asked for, or if there is nothing to split.
4. The tree becomes rules, and every column has its effect size of a against b.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from html import escape
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import torch
from sklearn.metrics import balanced_accuracy_score
from sklearn.utils.class_weight import compute_sample_weight

from neonxc.attribution.cluster_values import ClusterValues, values_of
from neonxc.common.arguments import check_number
from neonxc.common.cluster_names import is_noise
from neonxc.common.locales import printed_like
from neonxc.common.numbers import percent, plural, text
from neonxc.common.result import Result
from neonxc.common.sizes import MAX_TESTED_COLUMNS, SAMPLED_ROWS
from neonxc.common.types import ArrayLike, Label, TableLike
from neonxc.data.files.format import marks_of_file
from neonxc.data.frames import reads_tables
from neonxc.data.inputs import as_array
from neonxc.data.kinds import plain
from neonxc.data.labels import name_of_noise
from neonxc.data.table import Table
from neonxc.data.weights import drawn, point_weights, weights_of
from neonxc.head.answer import Question
from neonxc.network import NeuralizedClustering, check_network
from neonxc.pipelines.encoding import Encoding

if TYPE_CHECKING:
    from neonxc.rules.collection import Rules
    from neonxc.trees import ThresholdTree

MAX_LEAVES = 8
MIN_GAIN = 0.005  # an additional leaf must improve the accuracy


@dataclass(frozen=True, repr=False)
class Contrast(Result):
    """The difference between two clusters, by columns and by a small tree: the result of :func:`contrast`.

    Attributes
    ----------
    a, b : label
        Labels of the two clusters.
    relevance : DataFrame [columns, 2]
        Mean relevance of every column, in units of the logit. The first column is the relevance for "a, not b",
        averaged over the points of a; the second is the relevance for "b, not a", averaged over the points of b.
    tree : ThresholdTree
        Small tree that separates the two clusters. It tests only the 200 columns that are most
        relevant to the pair.
    rules : Rules
        The tree as rules; the points are weighted such that both clusters have the same total weight.
    accuracy : float
        Balanced accuracy of the tree, 0 to 1.
    effects : Series [columns] or None
        Effect size of a against b: Cohen's d of numbers, Cramér's V of categories.
    sizes : tuple of int or None
        Number of points of a and of b from which all of this is computed, at most 2,000 each.
    values : ClusterValues or None
        Typical values of the columns in a and in b.
    """

    a: Label
    b: Label
    relevance: pd.DataFrame
    tree: ThresholdTree
    rules: Rules
    accuracy: float
    effects: pd.Series | None = None
    sizes: tuple[int, int] | None = None
    values: ClusterValues | None = None

    def top(self, n: int = 5) -> pd.DataFrame:
        """Return the `n` columns with the largest sum of both relevances.

        Parameters
        ----------
        n : int
            Number of columns.
        """
        return self.relevance.iloc[self._order()[:n]]

    def to_frame(self) -> pd.DataFrame:
        """Return one row per column, those with the largest sum of both relevances first.

        Returns
        -------
        DataFrame
            Index: the column. Columns: the two of `relevance`, and "effect", the effect size of a against b, if it
            is known.
        """
        frame = self.relevance
        if self.effects is not None:
            frame = pd.concat([frame, self.effects.rename("effect")], axis=1)
        return frame.iloc[self._order()].rename_axis("column")

    def _order(self) -> np.ndarray:
        """Return the positions of the columns, those with the largest sum of both relevances first."""
        order: np.ndarray = np.argsort(-self.relevance.sum(axis=1).to_numpy(), kind="stable")
        return order

    def __str__(self) -> str:
        with printed_like(marks_of_file(self.tree.table_format)):
            return self._text()

    def _text(self) -> str:
        """Write the most relevant columns, and the rules of the tree."""
        columns = []
        for name, numbers in self._printed().T.items():
            columns.append(f"{name} {' / '.join(filter(None, numbers))}".replace(" / (", " ("))
        rules = "\n".join(f"    {rule}" for rule in self._rules())
        return f"{self.a} against {self.b}: {', '.join(columns)}\n{self._accuracy_in_words()} by\n{rules}"

    def _remarks(self) -> list[str]:
        return [f"{self.a} against {self.b}: {self._accuracy_in_words()}", *self._rules()]

    def _repr_html_(self) -> str:
        with printed_like(marks_of_file(self.tree.table_format)):
            title = escape(f"{self.a} against {self.b}: {self._accuracy_in_words()}")
            return f"<h4>{title}</h4>{self._printed().to_html()}{self.rules.to_html()}"

    def _rules(self) -> list[str]:
        """Write the rules with their clusters."""
        return [f"{rule.name}: {rule.text()}" for rule in self.rules]

    def _accuracy_in_words(self) -> str:
        """Write the accuracy of the tree, of how many points, and of which columns."""
        points = ""
        if self.sizes is not None:
            points = f" of {self.sizes[0]} and {plural(self.sizes[1], 'point')}"
        columns = ""
        n_columns = len(self.relevance)
        if n_columns > MAX_TESTED_COLUMNS:
            columns = f" (of the {MAX_TESTED_COLUMNS} most relevant of {plural(n_columns, 'column')})"
        return f"{percent(self.accuracy)}{points} told apart{columns}"

    def _printed(self) -> pd.DataFrame:
        """Return the most relevant columns, with relevance and effect size in words."""
        frame = self.top().map(partial(text, digits=3, signed=True))
        if self.effects is None:
            return frame
        effects = [f"effect {text(float(self.effects[name]), 2)}" for name in frame.index]
        frame = frame.assign(effect=effects)
        if self.values is None:
            return frame
        positions = self._order()[: len(frame)].tolist()
        described = [self.values.described(0, position) for position in positions]
        comparisons = [f"({one.comparison()})" if one.is_reason else "" for one in described]
        return frame.assign(**{f"{self.a} vs {self.b}": comparisons})


@reads_tables
def contrast(
    net: NeuralizedClustering,
    X: TableLike,
    a: Label,
    b: Label,
    *,
    accuracy: float = 0.95,
    sample_weight: ArrayLike | None = None,
) -> Contrast:
    """Explain the difference between two clusters by the relevance of the columns and by a small tree.

    Parameters
    ----------
    net : NeuralizedClustering
        Network from :func:`neonxc.neuralize`.
    X : array, frame or tensor [N, ...], or path
        Inputs of the network, with points of both clusters. If the network contains a feature network, the columns
        are its features.
    a, b : label
        Two labels from ``net.classes_``.
    accuracy : float
        Balanced accuracy, 0 to 1, at which the tree stops growing.
    sample_weight : array-like [N], optional
        Weights >= 0 of the points; a series goes by its index. A weight of 2 is a point twice, and a point of
        weight 0 is left out, in the mean relevance, the effect sizes, the tree, its rules and its accuracy.

    Returns
    -------
    Contrast

    Raises
    ------
    TypeError
        If `net` is not a network from :func:`~neonxc.neuralize`.
    ValueError
        If the accuracy is out of range, if a label is unknown or has no points in X, or if a equals b; or for
        invalid weights.

    Examples
    --------
    >>> import neonxc
    >>> from sklearn.cluster import KMeans
    >>> from sklearn.datasets import load_iris
    >>> X = load_iris(as_frame=True).data
    >>> net = neonxc.neuralize(KMeans(3, n_init=10, random_state=0).fit(X), X)
    >>> comparison = neonxc.contrast(net, X, 0, 1)
    >>> comparison.top(1).index[0]
    'petal length (cm)'
    >>> comparison.tree.n_leaves
    2
    """
    check_network(net, "contrast")
    check_number("accuracy", accuracy, most=1)
    position_a = net.positions(a, "a")
    position_b = net.positions(b, "b")
    if position_a == position_b:
        raise ValueError(f"a and b are the same cluster, {plain(a)!r}")
    pair = (position_a, position_b)
    table = net.inputs.given(X)
    weight = weights_of(sample_weight, table)
    X = table.data

    labels = as_array(net.predict(X))
    rows_a, weight_a = _members(labels, net.classes_[position_a], weight)
    rows_b, weight_b = _members(labels, net.classes_[position_b], weight)
    members = [rows_a, rows_b]
    weights = None if weight_a is None or weight_b is None else [weight_a, weight_b]

    relevance = relevance_of_pair(net, X, members, pair, weights)
    comparison = contrasted(net, X, members, pair, accuracy, relevance, weights)
    values = values_of(net.inputs, [Table.read(X).take(rows) for rows in members], weights)
    assert values.effects is not None
    effects = pd.Series(values.effects[0], net.inputs.units)
    return replace(comparison, effects=effects, sizes=(len(rows_a), len(rows_b)), values=values)


def _members(labels: np.ndarray, label: Label, weight: np.ndarray | None) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the points of a cluster, or a sample of them, with the weights with which they stand for all."""
    is_member = labels == label
    if weight is not None:
        is_member &= weight > 0
    rows = np.flatnonzero(is_member)
    if not len(rows):
        raise ValueError(f"X has no points of cluster {plain(label)!r}")
    of_rows = None if weight is None else weight[rows]
    return drawn(rows, SAMPLED_ROWS, of_rows)


def contrasted(
    net: NeuralizedClustering,
    X: TableLike | Table,
    members: Sequence[np.ndarray],
    positions: tuple[int, int],
    enough: float,
    relevance: pd.DataFrame,
    weights: Sequence[np.ndarray] | None = None,
) -> Contrast:
    """Compare two clusters by a tree that separates them, and by the relevance [columns, 2] of the columns.

    The clusters are given by their positions in `classes_` and by the row numbers of their points, which may have
    `weights`, an array for each of the two clusters. `enough` is the accuracy at which the tree stops growing.
    """
    a, b = net.classes_[list(positions)].tolist()
    sizes = [len(rows) for rows in members]
    labels = np.repeat(np.array(_names(a, b)), sizes)
    weight = None if weights is None else np.concatenate(weights)
    rows = Table.read(X).take(np.concatenate(members))
    table = net.inputs.columns(rows.data)

    by_relevance = np.argsort(-relevance.sum(axis=1).abs().to_numpy(), kind="stable")
    tested = np.sort(by_relevance[:MAX_TESTED_COLUMNS])
    is_limited = len(tested) < len(relevance)
    if is_limited and Table.read(table).is_mixed:
        # a tree reads categories and missing values in all of its columns only if it has seen some
        tested = np.union1d(tested, _mixed_columns(table)).astype(np.int64)
        is_limited = len(tested) < len(relevance)

    tree, accuracy = _smallest_tree(table, tested, labels, enough, weight)
    if is_limited:
        tree = _of_whole_table(tree, tested, net.inputs.units)
    # the units of the network's table, which X may come without
    tree = replace(tree, table_format=net.table_format or tree.table_format)
    names = net.inputs.units if tree.feature_names is None else None
    rules = tree.rules(feature_names=names, terms=net.inputs.in_texts)
    return Contrast(a, b, relevance, tree, rules, accuracy)


def _names(a: Label, b: Label) -> list[Label]:
    """Return the labels of two clusters, or names if one of them is noise, whose label is a number."""
    if is_noise(a):
        return [name_of_noise([b]), str(b)]
    if is_noise(b):
        return [str(a), name_of_noise([a])]
    return [a, b]


def _mixed_columns(table: pd.DataFrame) -> list[int]:
    """Return the positions of the columns with values that are not numbers, or that are missing."""
    mixed = []
    for i, name in enumerate(table):
        column = table[name]
        if column.dtype.kind not in "fiub" or column.hasnans:
            mixed.append(i)
    return mixed


def relevance_of_pair(
    net: NeuralizedClustering,
    X: TableLike | Table,
    members: Sequence[np.ndarray],
    positions: tuple[int, int],
    weights: Sequence[np.ndarray] | None = None,
) -> pd.DataFrame:
    """Compute the mean relevance [columns, 2] for "a, not b" over the points of a, and vice versa."""
    a, b = positions
    weight_a, weight_b = weights or (None, None)
    of_a = mean_relevance(net, Table.read(X).take(members[0]), a, b, weight_a)
    of_b = mean_relevance(net, Table.read(X).take(members[1]), b, a, weight_b)
    labels = net.classes_[list(positions)].astype(str)
    return pd.concat([of_a, of_b], axis=1, keys=labels)


def mean_relevance(
    net: NeuralizedClustering,
    X: Table,
    target: int | None = None,
    competitor: int | None = None,
    weight: np.ndarray | None = None,
) -> pd.Series:
    """Compute the mean relevance [units] of points for one cluster and against another, given by positions.

    By default, points are explained for the clusters that they are assigned to, and against all others.
    """
    answered = net.inputs.answered(X, Question(target, competitor), net.beta)
    units = net.inputs.units  # after X is read, of which an encoder of texts learns the words
    total = torch.zeros(len(net.classes_), len(units), dtype=torch.float64)
    n = 0
    for x, answer in answered:
        n_points = len(answer.cluster)
        mass = point_weights(weight, n, n_points, answer.cluster.device)
        net.inputs.add(x, answer, answer.cluster, total, mass)
        n += n_points
    divisor = max(n, 1) if weight is None else weight.sum()
    return pd.Series(total.sum(dim=0).numpy() / divisor, units)


def contrasts_of(net: NeuralizedClustering, X: Table, target: int, competitor: int) -> np.ndarray:
    """Compute the contrasts [n] of points between two clusters: positive for those nearer to the target."""
    answers = net.inputs.answers(X, Question(target, competitor))
    # the contrasts of all clusters but the competitor, which do not compete, are infinite
    return torch.cat([answer.contrasts.amin(dim=1).double().cpu() for answer in answers]).numpy()


def _smallest_tree(
    table: TableLike, tested: np.ndarray, labels: np.ndarray, enough: float, mass: np.ndarray | None = None
) -> tuple[ThresholdTree, float]:
    """Grow the smallest tree on the columns `tested` that is accurate enough; return it with its accuracy.

    The points may have weights [n], the `mass`.
    """
    from neonxc.trees import CART  # depends on this package
    from neonxc.trees.estimator import grown_to

    if mass is None:
        weight = compute_sample_weight("balanced", labels)
    else:
        mass_of_cluster = pd.Series(mass).groupby(labels).transform("sum").to_numpy()
        weight = mass * mass.sum() / (2 * mass_of_cluster)
    columns = Table.read(table).select(tested).data

    best = None
    best_accuracy = -1.0
    for explainer in grown_to(CART(2), range(2, MAX_LEAVES + 1), columns, labels, weight):
        assigned = as_array(explainer.labels_)
        accuracy = float(balanced_accuracy_score(labels, assigned, sample_weight=mass))
        if accuracy > best_accuracy + MIN_GAIN:
            best = explainer.tree_
            best_accuracy = accuracy
        has_no_split = explainer.tree_.n_leaves < explainer.max_leaves
        if best_accuracy >= enough or has_no_split:
            break
    assert best is not None
    return best, best_accuracy


def _of_whole_table(tree: ThresholdTree, tested: np.ndarray, names: list[str]) -> ThresholdTree:
    """Convert a tree on the columns `tested` of a table to one that takes the whole table."""
    if tree.feature_names is not None:
        tree = replace(tree, feature_names=tuple(names))
    if tree.encoding is not None:
        parts = tuple(replace(part, column=int(tested[part.column])) for part in tree.encoding.parts)
        return replace(tree, n_features=len(names), encoding=Encoding(tuple(names), parts))
    assert tree.spread is not None  # a fitted tree has both
    assert tree.bounds is not None
    column = torch.from_numpy(tested)
    feature = torch.where(tree.feature < 0, -1, column[tree.feature])  # -1 in leaves
    spread = torch.ones(len(names)).double()
    spread[column] = tree.spread
    bounds = tree.bounds.clone()
    bounds[:, 0] = column[bounds[:, 0].long()].double()
    return replace(tree, n_features=len(names), feature=feature, spread=spread, bounds=bounds)


def some_of(index: np.ndarray, most: int) -> np.ndarray:
    """Return the rows, or a sorted random sample of `most` rows if there are more."""
    if len(index) <= most:
        return index
    return np.sort(np.random.default_rng(0).permutation(index)[:most])
