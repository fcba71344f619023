"""The tree of a report, whose size is chosen by its fidelity on held-out points, and its outline."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.model_selection import train_test_split

from neonxc.common.progress import progress_bar
from neonxc.evaluation import cost_ratio
from neonxc.report.clustering import Clustering
from neonxc.report.contents import Curve, TreeNode

ENOUGH = 0.95  # fidelity that is sufficient for any tree
WORTH = 0.02  # a larger tree must gain this much fidelity, or one standard error if that is more
FEWEST = 50  # minimum number of points for a held-out part
BINS = 512  # columns with more different values are cut between so many quantiles
SAMPLE = 20_000  # maximum number of points on which the trees are compared


@dataclass
class TreePart:
    """A fitted tree and its quality.

    Attributes
    ----------
    explainer : TreeExplainer
        The fitted tree explainer.
    mistaken : ndarray of int
        Row numbers of the points that the tree assigns to another cluster than their own.
    held_out : float
        Share of the held-out points that get their own cluster, 0 to 1.
    unseen : bool
        Whether points were held out; if there are few points, none are.
    price : float
        K-means cost of the tree divided by that of the clustering.
    curves : list of Curve
        Cost of trees of several sizes.
    leaf : ndarray [n]
        Leaf of every point; -1 for noise.
    """

    explainer: Any
    mistaken: np.ndarray
    held_out: float
    unseen: bool
    price: float
    curves: list[Curve]
    leaf: np.ndarray

    @property
    def tree(self) -> Any:
        """The threshold tree."""
        return self.explainer.tree_


@dataclass
class Tried:
    """A tree grown on four fifths of the points; `every` tells whether every cluster has a leaf."""

    name: str
    size: int
    leaves: int
    held_out: float
    price: float
    every: bool


def grow(clustering: Clustering) -> TreePart:
    """Grow the smallest of several trees whose fidelity is close to that of the best."""
    from neonxc.trees.rules import with_noise  # depends on this package

    clustered = np.flatnonzero(clustering.own >= 0)
    index = clustered if len(clustered) <= SAMPLE else np.intersect1d(clustering.sample, clustered)
    unseen = len(index) >= FEWEST
    train, test = _train_test(clustering, index) if unseen else (index, index)
    tried = _tried(clustering, train, test)
    best = max(one.held_out for one in tried)
    enough = min(ENOUGH, best - max(WORTH, (best * (1 - best) / len(test)) ** 0.5))
    good = [one for one in tried if one.held_out >= enough]
    chosen = next((one for one in good if one.every), good[0])  # prefers trees with a rule for every cluster
    (fitted,) = _fitted(clustering, chosen.name, [chosen.size], clustered)
    if len(clustered) < clustering.n:
        fitted.tree_ = with_noise(fitted.tree_, clustering.columns(np.flatnonzero(clustering.own < 0)))
    own, labels = np.asarray(fitted.labels_), clustering.labels[clustered]
    leaf = np.full(clustering.n, -1)
    columns = clustering.columns(clustered)
    leaf[clustered] = fitted.tree_.apply(columns)
    space = clustering.space(clustered)
    price = cost_ratio(space, own, labels)
    return TreePart(fitted, clustered[own != labels], chosen.held_out, unseen, price, _curves(tried), leaf)


def _tried(clustering: Clustering, train: np.ndarray, test: np.ndarray) -> list[Tried]:
    """Grow trees of several kinds and sizes, and sort them by their size."""
    k = len(np.unique(clustering.own[train]))
    sizes = sorted({k, max(k + 1, round(1.5 * k)), 2 * k, 3 * k})
    kinds = ["CART"] if clustering.kind == "texts" else ["ExShallow", "CART"]
    columns, labels, space = clustering.columns(test), clustering.labels[test], clustering.space(train)
    found = []
    for kind in kinds:
        grown = zip(sizes, _fitted(clustering, kind, sizes, train), strict=True)
        for size, fitted in progress_bar(grown, desc=f"{kind} trees", total=len(sizes)):
            right = float((np.asarray(fitted.predict(columns)) == labels).mean())
            price = cost_ratio(space, np.asarray(fitted.labels_), clustering.labels[train])
            tree = fitted.tree_
            every = len(tree.label[tree.leaves].unique()) == k
            found.append(Tried(kind, size, tree.n_leaves, right, price, every))
    return sorted(found, key=lambda one: one.size)


def _fitted(clustering: Clustering, kind: str, sizes: list[int], index: np.ndarray) -> Iterator[Any]:
    """Fit trees of one kind and of several numbers of leaves to the selected points."""
    from neonxc.trees import CART, ExShallow  # depends on this package

    k, columns = len(np.unique(clustering.own[index])), clustering.columns(index)
    sizes = [max(size, k) for size in sizes]
    if kind == "CART":  # does not use the costs
        return CART(k, max_bins=BINS)._grown_to(sizes, columns, clustering.labels[index])
    return ExShallow(k, reference=clustering.reference(index), max_bins=BINS)._grown_to(sizes, columns)


def _train_test(clustering: Clustering, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Split points into four fifths and one fifth, stratified if every cluster has at least two points."""
    few = np.bincount(clustering.own[index], minlength=clustering.k) < 2
    return train_test_split(
        index,
        test_size=0.2,
        random_state=0,
        stratify=None if few[clustering.own[index]].any() else clustering.own[index],
    )


def _curves(tried: list[Tried]) -> list[Curve]:
    found = []
    for name in dict.fromkeys(one.name for one in tried):
        points = sorted({one.leaves: one.price for one in tried if one.name == name}.items())
        found.append(Curve(name, [float(leaves) for leaves, _ in points], [float(ratio) for _, ratio in points]))
    return found


def nodes(part: TreePart, clustering: Clustering) -> list[TreeNode]:
    """Convert the nodes of the tree for the page."""
    from neonxc.trees.rules import node_words  # depends on this package

    tree = part.tree
    position = {label: i for i, label in enumerate(clustering.net.classes_.tolist())}
    of_class = [position[label] for label in tree.classes.tolist()]
    parents, left, right = (column.tolist() for column in (tree.parents, tree.left, tree.right))
    words = node_words(tree, clustering.names, None, None)
    counts = np.zeros((tree.n_nodes, clustering.k))
    np.add.at(counts, (part.leaf[part.leaf >= 0], clustering.own[part.leaf >= 0]), 1)
    for node in range(tree.n_nodes - 1, 0, -1):  # children come after their parents
        counts[parents[node]] += counts[node]
    found = []
    for node in range(tree.n_nodes):
        leaf = left[node] < 0
        cluster = of_class[int(tree.label[node])] if leaf else int(counts[node].argmax())
        samples = int(counts[node].sum())
        mistakes = samples - int(counts[node, cluster]) if leaf else int(tree.mistakes[node])
        # Ask "is it a?" rather than "is it not a?", so that no answer is a double negation
        asks_left = leaf or not words[node].sides[0].negated
        yes, no = (left[node], right[node])[:: 1 if asks_left else -1]
        text = "" if leaf else words[node].branches[not asks_left]
        found.append(TreeNode(parents[node], yes, no, text, cluster, samples, mistakes))
    return found


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
    for at in inner:
        closing[ends[at] - 1] += 1
    return [
        Row(at, ends[at], node, _answer(tree, at), at in unfolded, closing[at]) for at, node in enumerate(tree)
    ]


def _answer(tree: list[TreeNode], at: int) -> str:
    if tree[at].parent < 0:
        return ""
    return "yes" if tree[tree[at].parent].left == at else "no"
