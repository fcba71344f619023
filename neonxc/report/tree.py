"""The tree of a report, whose size is chosen by its fidelity on held-out points, and its outline.

The tree is chosen for k clusters:

    1. Hold out a fifth of the points, stratified by cluster, if there are enough.
    2. Grow ExShallow and CART trees with k, 1.5 k, 2 k and 3 k leaves on the others.
    3. With f, the largest fidelity on the m held-out points, and its standard error s = sqrt(f (1 - f) / m), the
       smallest tree with a fidelity of min(ENOUGH, f - max(WORTH, s)) or more is chosen; before any other, one in
       which every cluster has a leaf.
    4. Grow a tree of this kind and size on all points.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from sklearn.model_selection import train_test_split

from neonxc.common.progress import progress_bar
from neonxc.common.types import TableLike
from neonxc.data.weights import as_count
from neonxc.evaluation import cost_ratio
from neonxc.evaluation.clustering import cost_ratios
from neonxc.report.clustered import ClusteredData
from neonxc.report.description import Curve, TreeNode

if TYPE_CHECKING:
    from neonxc.trees.cuts.codes import SharedCodes
    from neonxc.trees.estimator import TreeExplainer
    from neonxc.trees.tree import ThresholdTree

ENOUGH = 0.95  # fidelity that is sufficient for any tree
WORTH = 0.02  # a larger tree must gain this much fidelity, or one standard error if that is more
FEWEST = 50  # minimum number of points for a held-out part
BINS = 512  # columns with more different values are cut between so many quantiles
SAMPLE = 20_000  # maximum number of points on which the trees are compared


@dataclass
class FittedTree:
    """A fitted tree and its quality.

    Attributes
    ----------
    explainer : TreeExplainer
        The fitted tree explainer.
    mistaken : ndarray of int
        Row numbers of the points that the tree assigns to another cluster than their own.
    held_out : float
        Share of the held-out points that get their own cluster, by number or by weight, 0 to 1.
    unseen : bool
        Whether points were held out; if there are few points, none are.
    price : float
        K-means cost of the tree divided by that of the clustering.
    curves : list of Curve
        Cost of trees of several sizes.
    leaf : ndarray [n]
        Leaf of every point; -1 for noise.
    """

    explainer: TreeExplainer
    mistaken: np.ndarray
    held_out: float
    unseen: bool
    price: float
    curves: list[Curve]
    leaf: np.ndarray

    @property
    def tree(self) -> ThresholdTree:
        """The threshold tree."""
        return self.explainer.tree_


@dataclass
class GrownTree:
    """A tree grown on four fifths of the points; `complete` tells whether every cluster has a leaf."""

    name: str
    size: int
    leaves: int
    held_out: float
    complete: bool
    price: float = np.nan  # k-means cost divided by that of the clustering


def grow(clustering: ClusteredData) -> FittedTree:
    """Grow the smallest of several trees whose fidelity is close to that of the best."""
    from neonxc.trees.rules import with_noise  # depends on this package

    clustered = clustering.clustered
    train = clustered
    if len(clustered) > SAMPLE:
        train = np.intersect1d(clustering.sample, clustered)
    test = train
    unseen = len(train) >= FEWEST
    if unseen:
        positions = clustering.positions[train]
        stratify = None if 1 in np.bincount(positions) else positions  # a single point can't be in both parts
        train, test = train_test_split(train, test_size=0.2, random_state=0, stratify=stratify)
    candidates = _candidates(clustering, train, test)
    best = max(candidate.held_out for candidate in candidates)
    enough = min(ENOUGH, best - max(WORTH, (best * (1 - best) / len(test)) ** 0.5))
    good = [candidate for candidate in candidates if candidate.held_out >= enough]
    chosen = next((candidate for candidate in good if candidate.complete), good[0])
    every = np.arange(clustering.n)
    columns = clustering.split_columns(every).for_sklearn
    (fitted,) = _fitted(clustering, chosen.name, [chosen.size], clustered, every, columns)
    if len(clustered) < clustering.n:
        noise = np.flatnonzero(clustering.positions < 0)
        of_noise = clustering.split_columns(noise).for_sklearn
        fitted.tree_ = with_noise(fitted.tree_, of_noise, clustering.weights_at(noise))
    predicted = np.asarray(fitted.labels_)[clustered]
    labels = clustering.labels[clustered]
    leaf = np.full(clustering.n, -1)
    leaf[clustered] = fitted.tree_.apply(clustering.split_columns(clustered).for_sklearn)
    price = cost_ratio(clustering.space(clustered), predicted, labels, clustering.weights_at(clustered))
    mistaken = clustered[predicted != labels]
    return FittedTree(fitted, mistaken, chosen.held_out, unseen, price, _curves(candidates), leaf)


def _candidates(clustering: ClusteredData, train: np.ndarray, test: np.ndarray) -> list[GrownTree]:
    """Grow trees of several kinds and sizes, and sort them by their size."""
    from neonxc.trees.cuts.codes import SharedCodes  # depends on this package

    k = len(np.unique(clustering.positions[train]))
    sizes = sorted({k, max(k + 1, round(1.5 * k)), 2 * k, 3 * k})
    labels = clustering.labels[test]
    every = np.union1d(train, test)
    columns = clustering.split_columns(every).for_sklearn
    position = np.searchsorted(every, train)
    position_of_test = np.searchsorted(every, test)
    of_test = clustering.weights_at(test)
    shared = SharedCodes()
    candidates = list[GrownTree]()
    predictions = list[np.ndarray]()  # of the points on which the trees were grown
    for kind in clustering.trees:
        grown = zip(sizes, _fitted(clustering, kind, sizes, train, every, columns, shared), strict=True)
        for size, fitted in progress_bar(grown, desc=f"{kind} trees", total=len(sizes)):
            predicted = np.asarray(fitted.labels_)  # of all points of `columns`
            fidelity = float(np.average(predicted[position_of_test] == labels, weights=of_test))
            tree = fitted.tree_
            complete = len(tree.label[tree.leaves].unique()) == k
            candidates.append(GrownTree(kind, size, tree.n_leaves, fidelity, complete))
            predictions.append(predicted[position])
    prices = cost_ratios(
        clustering.space(train), predictions, clustering.labels[train], clustering.weights_at(train)
    )
    for candidate, price in zip(candidates, prices, strict=True):
        candidate.price = price
    return sorted(candidates, key=lambda candidate: candidate.size)


def _fitted(
    clustering: ClusteredData,
    kind: str,
    sizes: list[int],
    index: np.ndarray,
    every: np.ndarray,
    columns: TableLike,
    shared: SharedCodes | None = None,
) -> Iterator[TreeExplainer]:
    """Fit trees of one kind and of several numbers of leaves to the points `index`, a part of `every` (sorted).

    `columns` are those of `every`. The points beyond `index` weigh nothing, but trees know their categories and
    missing values. Trees of several kinds have `shared` codes.
    """
    from neonxc.trees import CART, ExShallow  # depends on this package
    from neonxc.trees.estimator import grown_to

    k = len(np.unique(clustering.positions[index]))
    sizes = [max(size, k) for size in sizes]
    is_fitted = np.isin(every, index)
    weight = None
    if clustering.weight is not None:
        weight = is_fitted * clustering.weight[every]
    elif not is_fitted.all():
        weight = is_fitted.astype(float)
    if kind == "CART":  # does not use the costs
        labels = clustering.net.classes_[clustering.positions[every].clip(0)]  # of noise any, as its weight is 0
        return grown_to(CART(k, max_bins=BINS), sizes, columns, labels, weight, shared)
    reference = clustering.reference(np.sort(index))
    return grown_to(ExShallow(k, reference=reference, max_bins=BINS), sizes, columns, weight=weight, shared=shared)


def _curves(candidates: list[GrownTree]) -> list[Curve]:
    prices: dict[str, dict[float, float]] = defaultdict(dict)  # by kind of tree and number of leaves
    for candidate in candidates:
        prices[candidate.name][float(candidate.leaves)] = float(candidate.price)
    curves = []
    for name, points in prices.items():
        leaves = sorted(points)
        curves.append(Curve(name, leaves, [points[number] for number in leaves]))
    return curves


def nodes(part: FittedTree, clustering: ClusteredData) -> list[TreeNode]:
    """Convert the nodes of the tree for the page."""
    from neonxc.trees.rules import node_words  # depends on this package

    tree = part.tree
    clustered = clustering.clustered
    weight = clustering.weights_at(clustered)
    counts = np.zeros((tree.n_nodes, clustering.k))
    leaf_and_cluster = part.leaf[clustered], clustering.positions[clustered]
    np.add.at(counts, leaf_and_cluster, 1 if weight is None else weight)
    for node in range(tree.n_nodes - 1, 0, -1):  # children come after their parents
        counts[tree.parents[node]] += counts[node]
    of_leaf = clustering.net.positions(tree.classes)[tree.label].numpy()
    clusters = np.where((tree.left < 0).numpy(), of_leaf, counts.argmax(1)).tolist()
    tree_nodes = []
    words = node_words(tree, clustering.rule_names, None, None, clustering.has_terms)
    for text, parent, cluster in zip(words, tree.parents.tolist(), clusters, strict=True):
        # Ask "is it a?" rather than "is it not a?", so that no answer is a double negation
        order = -1 if text.is_negated else 1
        left, right = text.children[::order] or (-1, -1)
        question = text.branches[::order][0] if text.branches else ""
        numbers = as_count(text.samples), as_count(text.mistakes)
        tree_nodes.append(TreeNode(parent, left, right, question, cluster, *numbers))
    return tree_nodes


OPEN_NODES = 16  # the largest nodes are unfolded at first, all others folded


@dataclass
class Row:
    """A node of the tree, with its place in the nested lists.

    Attributes
    ----------
    at, end : int
        Number of the node, and the end of its branch, which consists of the nodes ``at`` to ``end - 1``.
    node : TreeNode
        The node itself.
    answer : {"", "yes", "no"}
        Answer to the test of the parent node that leads here; empty for the root.
    unfolded : bool
        Whether the children are visible when the page is opened.
    closing : int
        Number of lists that end after this row.
    """

    at: int
    end: int
    node: TreeNode
    answer: str
    unfolded: bool
    closing: int


def outline(tree: list[TreeNode]) -> list[Row]:
    """Return one row per node in preorder, so that the template needs no recursion, however deep the tree is."""
    ends = list(range(1, len(tree) + 1))
    for at in reversed(range(1, len(tree))):
        ends[tree[at].parent] = max(ends[tree[at].parent], ends[at])
    inner = [at for at, node in enumerate(tree) if node.left >= 0]
    unfolded = set(sorted(inner, key=lambda at: -tree[at].samples)[:OPEN_NODES])
    closing = [0] * len(tree)
    answers = [""] * len(tree)
    for at in inner:
        closing[ends[at] - 1] += 1
        answers[tree[at].left] = "yes"
        answers[tree[at].right] = "no"
    return [Row(at, ends[at], node, answers[at], at in unfolded, closing[at]) for at, node in enumerate(tree)]
