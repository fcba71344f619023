"""Compare two clusters: the columns that separate them, and a small tree that separates them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch

from neonxc.attribution import NEON
from neonxc.carriers import rows
from neonxc.frames import reads_tables
from neonxc.inputs import as_array, some_rows
from neonxc.network import NeuralizedClustering
from neonxc.numerals import percent, text
from neonxc.parameters import check_number

if TYPE_CHECKING:
    from neonxc.rules.collection import Rules
    from neonxc.trees import ThresholdTree

MOST = 2000  # maximum number of points per cluster; larger clusters are sampled
LEAVES = 8  # maximum number of leaves of the tree


@dataclass(frozen=True, repr=False)
class Contrast:
    """Result of :func:`contrast`.

    Attributes
    ----------
    a, b : label
        Labels of the two clusters.
    relevance : DataFrame [columns, 2]
        Mean relevance of every column, in units of the logit. The first column is the relevance for "a, not b",
        averaged over the points of a; the second is the relevance for "b, not a", averaged over the points of b.
    tree : ThresholdTree
        Small tree that separates the two clusters.
    rules : Rules
        The tree as rules; the points are weighted such that both clusters have the same total weight.
    accuracy : float
        Balanced accuracy of the tree, 0 to 1.
    """

    a: Any
    b: Any
    relevance: pd.DataFrame
    tree: ThresholdTree
    rules: Rules
    accuracy: float

    def top(self, n: int = 5) -> pd.DataFrame:
        """Return the `n` columns with the largest sum of both relevances.

        Parameters
        ----------
        n : int
            Number of columns.
        """
        order = np.argsort(-self.relevance.sum(axis=1).to_numpy(), kind="stable")
        return self.relevance.iloc[order[:n]]

    def __str__(self) -> str:
        names = ", ".join(f"{name} {a} / {b}" for name, (a, b) in self._printed().T.items())
        rules = "\n".join(f"    {rule.name}: {rule.text()}" for rule in self.rules)
        return f"{self.a} against {self.b}: {names}\n{percent(self.accuracy)} told apart by\n{rules}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        title = escape(f"{self.a} against {self.b}: {percent(self.accuracy)} told apart")
        return f"<h4>{title}</h4>{self._printed().to_html()}{self.rules.to_html()}"

    def _printed(self) -> pd.DataFrame:
        return self.top().map(partial(text, digits=3, signed=True))


@reads_tables
def contrast(net: NeuralizedClustering, X: Any, a: Any, b: Any, *, accuracy: float = 0.95) -> Contrast:
    """Explain the difference between two clusters by the relevance of the columns and by a small tree.

    Parameters
    ----------
    net : NeuralizedClustering
        Network from :func:`neonxc.neuralize`.
    X : array, frame or tensor [N, ...]
        Inputs of the network, with points of both clusters. If the network contains a feature network, the columns
        are its features.
    a, b : label
        Two labels from ``net.classes_``.
    accuracy : float
        Balanced accuracy, 0 to 1, at which the tree stops growing.

    Returns
    -------
    Contrast

    Raises
    ------
    TypeError
        If `net` is not a network from :func:`~neonxc.neuralize`.
    ValueError
        If the accuracy is out of range, if a label is unknown or has no points in X, or if a equals b.

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
    if not isinstance(net, NeuralizedClustering):
        raise TypeError(f"contrast needs a network from neonxc.neuralize, got {type(net).__name__}")
    check_number("accuracy", accuracy, most=1)
    first, second = _column(net, a, "a"), _column(net, b, "b")
    if first == second:
        raise ValueError(f"a and b are the same cluster, {a!r}")
    labels = as_array(net.predict(X))
    members = [_members(labels, net.classes_[column]) for column in (first, second)]
    return contrasted(net, X, members, (first, second), accuracy)


def contrasted(
    net: NeuralizedClustering, X: Any, members: Sequence[np.ndarray], columns: tuple[int, int], enough: float
) -> Contrast:
    """Compare two clusters, given by their positions in `classes_` and by the row numbers of their points."""
    a, b = net.classes_[list(columns)].tolist()
    means = [
        _mean_relevance(net, some_rows(X, own), *pair)
        for own, pair in zip(members, (columns, columns[::-1]), strict=True)
    ]
    relevance = pd.DataFrame(np.stack(means, 1), index=net.carrier.units, columns=[str(a), str(b)])
    labels = np.repeat(net.classes_[list(columns)], list(map(len, members)))
    tree, share = _smallest_tree(net, some_rows(X, np.concatenate(members)), labels, enough)
    names = net.carrier.units if tree.feature_names is None else None
    return Contrast(a, b, relevance, tree, tree.rules(feature_names=names), share)


def _mean_relevance(net: NeuralizedClustering, X: Any, target: int, competitor: int) -> np.ndarray:
    """Mean relevance [units] for the target and against the competitor."""
    carrier, neon = net.carrier, NEON(net)
    total = torch.zeros(net.head.n_clusters + 1, len(carrier.units), dtype=torch.float64)
    n = 0
    for x in carrier.parts(X):
        a = carrier.features(x)
        points = rows(a)
        columns = torch.full((len(points),), target, device=points.device)
        rivals = torch.full_like(columns, competitor)
        decide = neon.decisions.of_columns(points, columns, rivals)
        carrier.tally(x, points, decide, columns, total)
        n += len(points)
    return (total[target] / max(n, 1)).numpy()


def _smallest_tree(net: Any, X: Any, labels: np.ndarray, enough: float) -> tuple[Any, float]:
    """Grow the smallest tree that is accurate enough, with at most LEAVES leaves; return it with its accuracy."""
    from neonxc.trees import CART

    table = net.carrier.columns(X)
    weight = np.where(labels == labels[0], 1 / (labels == labels[0]).mean(), 1 / (labels != labels[0]).mean()) / 2
    best: tuple[Any, float] | None = None
    for leaves in range(2, LEAVES + 1):
        explainer = CART(2, max_leaves=leaves).fit(table, labels=labels, sample_weight=weight)
        share = float(weight[as_array(explainer.labels_) == labels].sum() / len(labels))
        if best is None or share > best[1] + 0.005:  # an additional leaf must improve the accuracy
            best = explainer.tree_, share
        if best[1] >= enough or explainer.tree_.n_leaves < leaves:
            break
    assert best is not None
    return best


def some_of(index: np.ndarray, most: int) -> np.ndarray:
    """Return the rows, or a sorted random sample of `most` rows if there are more."""
    return index if len(index) <= most else np.sort(np.random.default_rng(0).permutation(index)[:most])


def _members(labels: np.ndarray, label: Any) -> np.ndarray:
    found = np.flatnonzero(labels == label)
    if not len(found):
        raise ValueError(f"X has no points of cluster {label!r}")
    return some_of(found, MOST)


def _column(net: NeuralizedClustering, label: Any, name: str) -> int:
    found = np.flatnonzero(net.classes_ == label)
    if len(found) != 1:
        raise ValueError(f"{name} must be one of the clusters {net.classes_.tolist()}, got {label!r}")
    return int(found[0])
