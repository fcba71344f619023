"""Compare two clusters: the columns that separate them, and a small tree that separates them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from sklearn.metrics import balanced_accuracy_score
from sklearn.utils.class_weight import compute_sample_weight
from torch import Tensor

from neonxc.attribution.cluster_values import values_of
from neonxc.common.arguments import check_number
from neonxc.common.numbers import percent, plural, text
from neonxc.common.result import Result
from neonxc.data.frames import reads_tables
from neonxc.data.inputs import as_array
from neonxc.data.kinds import plain
from neonxc.data.labels import name_of_noise
from neonxc.data.table import Table
from neonxc.data.weights import drawn, point_weights, weights_of
from neonxc.head.answer import Question
from neonxc.network import NeuralizedClustering, check_network, is_noise
from neonxc.pipelines.encoding import Encoding

if TYPE_CHECKING:
    from neonxc.rules.collection import Rules
    from neonxc.trees import ThresholdTree

MOST = 2000  # maximum number of points per cluster; larger clusters are sampled
LEAVES = 8  # maximum number of leaves of the tree
COLUMNS = 200  # maximum number of columns that the tree may test


@dataclass(frozen=True, repr=False)
class Contrast(Result):
    """Result of :func:`contrast`.

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
    """

    a: Any
    b: Any
    relevance: pd.DataFrame
    tree: ThresholdTree
    rules: Rules
    accuracy: float
    effects: pd.Series | None = None
    sizes: tuple[int, int] | None = None

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
        names = ", ".join(f"{name} {' / '.join(own)}" for name, own in self._printed().T.items())
        rules = "\n".join(f"    {rule.name}: {rule.text()}" for rule in self.rules)
        return f"{self.a} against {self.b}: {names}\n{self._told()} by\n{rules}"

    def _remarks(self) -> list[str]:
        rules = [f"{rule.name}: {rule.text()}" for rule in self.rules]
        return [f"{self.a} against {self.b}: {self._told()}", *rules]

    def _repr_html_(self) -> str:
        title = escape(f"{self.a} against {self.b}: {self._told()}")
        return f"<h4>{title}</h4>{self._printed().to_html()}{self.rules.to_html()}"

    def _told(self) -> str:
        every = len(self.relevance)
        some = f" (of the {COLUMNS} most relevant of {text(every)} columns)" if every > COLUMNS else ""
        points = "" if self.sizes is None else f" of {self.sizes[0]} and {plural(self.sizes[1], 'point')}"
        return f"{percent(self.accuracy)}{points} told apart{some}"

    def _printed(self) -> pd.DataFrame:
        found = self.top().map(partial(text, digits=3, signed=True))
        if self.effects is None:
            return found
        return found.assign(effect=[f"effect {text(float(self.effects[name]), 2)}" for name in found.index])


@reads_tables
def contrast(
    net: NeuralizedClustering, X: Any, a: Any, b: Any, *, accuracy: float = 0.95, sample_weight: Any = None
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
    >>> found = neonxc.contrast(net, X, 0, 1)
    >>> found.top(1).index[0]
    'petal length (cm)'
    >>> found.tree.n_leaves
    2
    """
    check_network(net, "contrast")
    check_number("accuracy", accuracy, most=1)
    pair = net.positions(a, "a"), net.positions(b, "b")
    if pair[0] == pair[1]:
        raise ValueError(f"a and b are the same cluster, {plain(a)!r}")
    table = net.inputs.given(X)
    weight = weights_of(sample_weight, table)
    X = table.data
    labels = as_array(net.predict(X))
    samples = [_members(labels, net.classes_[position], weight) for position in pair]
    members = [rows for rows, _ in samples]
    masses = [mass for _, mass in samples if mass is not None]
    weights = None if weight is None else masses
    between = contrasted(
        net, X, members, pair, accuracy, relevance_of_pair(net, X, members, pair, weights), weights
    )
    values = values_of(net.inputs, [Table.read(X).take(rows) for rows in members], weights)
    assert values.effects is not None
    sizes = len(members[0]), len(members[1])
    return replace(between, effects=pd.Series(values.effects[0], net.inputs.units), sizes=sizes)


def contrasted(
    net: NeuralizedClustering,
    X: Any,
    members: Sequence[np.ndarray],
    positions: tuple[int, int],
    enough: float,
    relevance: pd.DataFrame,
    weights: Sequence[np.ndarray] | None = None,
) -> Contrast:
    """Compare two clusters, given by their positions in `classes_` and by the row numbers of their points.

    The points may have `weights`, an array for each of the two clusters.
    """
    a, b = net.classes_[list(positions)].tolist()
    kept = np.sort(np.argsort(-relevance.sum(axis=1).abs().to_numpy(), kind="stable")[:COLUMNS])
    names = [a, b]
    if is_noise(a) or is_noise(b):
        of_noise = name_of_noise(label for label in names if not is_noise(label))
        names = [of_noise if is_noise(label) else str(label) for label in names]
    labels = np.repeat(names, list(map(len, members)))
    table = net.inputs.columns(Table.read(X).take(np.concatenate(members)).data)
    if len(kept) < len(relevance) and Table.read(table).is_mixed:
        # a tree reads categories and gaps in all of its columns only if it has seen some
        mixed = [i for i, name in enumerate(table) if table[name].dtype.kind not in "fiub" or table[name].hasnans]
        kept = np.union1d(kept, mixed).astype(np.int64)
    weight = None if weights is None else np.concatenate(weights)
    tree, share = _smallest_tree(table, kept, labels, enough, weight)
    if len(kept) < len(relevance):
        tree = _of_whole_table(tree, kept, net.inputs.units)
    units = net.inputs.units if tree.feature_names is None else None
    return Contrast(a, b, relevance, tree, tree.rules(feature_names=units, terms=net.inputs.in_texts), share)


def relevance_of_pair(
    net: NeuralizedClustering,
    X: Any,
    members: Sequence[np.ndarray],
    positions: tuple[int, int],
    weights: Sequence[np.ndarray] | None = None,
) -> pd.DataFrame:
    """Mean relevance of the columns for each of two clusters and against the other, [units, 2]."""
    means = [
        mean_relevance(net, Table.read(X).take(rows), *pair, weight)
        for rows, pair, weight in zip(members, (positions, positions[::-1]), weights or (None, None), strict=True)
    ]
    labels = net.classes_[list(positions)].astype(str)
    return pd.DataFrame(torch.stack(means, 1).numpy(), net.inputs.units, labels)


def mean_relevance(
    net: NeuralizedClustering, X: Table, target: int, competitor: int, weight: np.ndarray | None = None
) -> Tensor:
    """Mean relevance [units] of points for one cluster and against another, given by their positions."""
    answered = net.inputs.answered(X, Question(target, competitor), net.beta)
    total = torch.zeros(1, len(net.inputs.units), dtype=torch.float64)
    n = 0
    for x, answer in answered:
        mass = point_weights(weight, n, len(answer.cluster), answer.cluster.device)
        net.inputs.add(x, answer, torch.zeros_like(answer.cluster), total, mass)
        n += len(answer.cluster)
    return total[0] / (max(n, 1) if weight is None else weight.sum())


def _smallest_tree(
    table: Any, kept: np.ndarray, labels: np.ndarray, enough: float, mass: np.ndarray | None = None
) -> tuple[ThresholdTree, float]:
    """Grow the smallest tree of the `kept` columns that is accurate enough, with at most LEAVES leaves.

    It is returned with its accuracy. The points, each of which may have a weight of its own (`mass`), are weighted
    such that both clusters have the same total weight.
    """
    from neonxc.trees import CART  # depends on this package
    from neonxc.trees.estimator import grown_to

    weight = compute_sample_weight("balanced", labels)
    if mass is not None:
        sums = pd.Series(mass).groupby(labels).transform("sum").to_numpy()
        weight = mass * mass.sum() / (2 * sums)
    tree = None
    most = -1.0
    some = Table.read(table).select(kept).data
    for explainer in grown_to(CART(2), range(2, LEAVES + 1), some, labels, weight):
        share = float(balanced_accuracy_score(labels, as_array(explainer.labels_), sample_weight=mass))
        if share > most + 0.005:  # an additional leaf must improve the accuracy
            tree = explainer.tree_
            most = share
        if most >= enough or explainer.tree_.n_leaves < explainer.max_leaves:
            break
    assert tree is not None
    return tree, most


def _of_whole_table(tree: ThresholdTree, kept: np.ndarray, names: list[str]) -> ThresholdTree:
    """Convert a tree of some columns to one that takes the whole table."""
    if tree.feature_names is not None:
        tree = replace(tree, feature_names=tuple(names))
    if tree.encoding is not None:
        parts = tuple(replace(part, column=int(kept[part.column])) for part in tree.encoding.parts)
        return replace(tree, n_features=len(names), encoding=Encoding(tuple(names), parts))
    assert tree.spread is not None  # a fitted tree has both
    assert tree.bounds is not None
    place = torch.from_numpy(kept)
    spread = torch.ones(len(names)).double()
    bounds = tree.bounds.clone()
    spread[place] = tree.spread
    bounds[:, 0] = place[bounds[:, 0].long()].double()
    feature = torch.where(tree.feature < 0, -1, place[tree.feature])
    return replace(tree, n_features=len(names), feature=feature, spread=spread, bounds=bounds)


def some_of(index: np.ndarray, most: int) -> np.ndarray:
    """Return the rows, or a sorted random sample of `most` rows if there are more."""
    return index if len(index) <= most else np.sort(np.random.default_rng(0).permutation(index)[:most])


def _members(labels: np.ndarray, label: Any, weight: np.ndarray | None) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the points of a cluster, or a sample of them, with the weights with which they stand for all."""
    found = np.flatnonzero((labels == label) & (True if weight is None else weight > 0))
    if not len(found):
        raise ValueError(f"X has no points of cluster {plain(label)!r}")
    return drawn(found, MOST, None if weight is None else weight[found])
