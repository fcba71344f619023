"""Trees that find the clusters themselves, CUBT and CLTree: they are grown completely and then pruned.

1. The tree is grown until no cut has a gain: the *full* tree, whose nodes are numbered in the order of the cuts.
2. From the bottom up, two leaves of the same parent that are alike are merged.
3. If there are too many leaves, the tests that were made first are kept.
4. The leaves are clusters, or are joined into clusters. A test below which there is only one cluster is removed.
5. If `fit` is passed labels or centers, 4 is left out, and the leaves get the clusters of these.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import KW_ONLY
from typing import Generic, TypeVar

import torch
from torch import Tensor

from neonxc.common.types import RandomState
from neonxc.trees.criteria.criterion import Criterion
from neonxc.trees.criteria.unsupervised import Deviance, EmptySpace
from neonxc.trees.cuts.growth import Grown, Node, Step, best_first, cut_at, grow_with_tests, label_leaves, root
from neonxc.trees.cuts.histograms import BUDGET
from neonxc.trees.cuts.search import Search
from neonxc.trees.explainers.expanding import OwnClusters
from neonxc.trees.fit.problem import Problem
from neonxc.trees.parameters import Fraction, PositiveFraction, explainer
from neonxc.trees.saving import register_explainer

C = TypeVar("C", bound=Criterion)


class UnsupervisedTree(OwnClusters, Generic[C]):
    """Base class of trees that are grown completely and then pruned."""

    max_leaves: int | None

    @abstractmethod
    def _criterion(self, problem: Problem) -> C:
        """Return the criterion by which cuts are chosen."""

    @abstractmethod
    def _are_alike(self, problem: Problem, criterion: C, left: Node, right: Node) -> bool:
        """Whether two leaves of the same parent should be merged."""

    def _clusters_of(self, problem: Problem, leaves: list[Tensor]) -> list[int]:
        """Return the cluster of every leaf, given by its points; by default, every leaf is a cluster."""
        return list(range(len(leaves)))

    def _most_leaves(self) -> int | None:
        """Return the maximum number of leaves after pruning."""
        return self.max_leaves

    def _grow(self, problem: Problem) -> Grown:
        criterion = self._criterion(problem)
        full = best_first(Search(problem, criterion), Grown([root(problem)]), problem.n)
        nodes = _all_nodes(full)

        def are_alike(left: int, right: int) -> bool:
            return self._are_alike(problem, criterion, nodes[left], nodes[right])

        kept = _pruned(full, _tests(full), are_alike)
        max_leaves = self._most_leaves()
        if max_leaves is not None:
            # the first cuts gain most; children are numbered in the order of the cuts
            kept = sorted(kept, key=lambda node: full.left[node])
            kept = kept[: max_leaves - 1]
        if problem.reference.is_passed:
            return label_leaves(problem, _regrown(problem, full, kept), "surrogate")
        return self._with_clusters(problem, full, nodes, kept)

    def _with_clusters(self, problem: Problem, full: Grown, nodes: dict[int, Node], kept: list[int]) -> Grown:
        """Give the leaves of the kept tests their clusters, and remove tests below which there is only one."""
        leaves = [nodes[leaf].rows for leaf in _leaves_below(full, kept)]
        clusters = self._clusters_of(problem, leaves)
        cluster_of_point = torch.zeros_like(problem.labels)
        for rows, cluster in zip(leaves, clusters, strict=True):
            cluster_of_point[rows] = cluster

        # a node without a kept test below it has points of one cluster, that of its first point
        first_points = [int(nodes[node].rows[0]) for node in range(len(nodes))]
        cluster_of_node = cluster_of_point[first_points].tolist()

        def are_joined(left: int, right: int) -> bool:
            return bool(cluster_of_node[left] == cluster_of_node[right])

        kept = _pruned(full, sorted(kept, reverse=True), are_joined)
        grown = _regrown(problem, full, kept)
        grown.clusters = {leaf.id: int(cluster_of_point[leaf.rows[0]]) for leaf in grown.leaves}
        return grown


def _tests(grown: Grown) -> list[int]:
    """Return the inner nodes in descending order: children, which have higher numbers, before their parents."""
    tests = [node for node, feature in enumerate(grown.feature) if feature >= 0]
    return tests[::-1]


def _all_nodes(grown: Grown) -> dict[int, Node]:
    """Return all nodes of a tree by number, the inner ones made of their children."""
    nodes = {leaf.id: leaf for leaf in grown.leaves}
    for node in _tests(grown):
        left = nodes[grown.left[node]]
        right = nodes[grown.right[node]]
        rows = torch.cat([left.rows, right.rows]).sort().values
        nodes[node] = Node(node, rows, left.centers, left.n + right.n, left.mass + right.mass)
    return nodes


def _pruned(grown: Grown, tests: list[int], are_alike: Callable[[int, int], bool]) -> list[int]:
    """Merge leaves of the same parent that are alike; return the tests that remain, in descending order."""
    kept: set[int] = set()
    for node in tests:
        left = grown.left[node]
        right = grown.right[node]
        has_test_below = left in kept or right in kept
        if has_test_below or not are_alike(left, right):
            kept.add(node)
    return sorted(kept, reverse=True)


def _leaves_below(grown: Grown, tests: list[int]) -> list[int]:
    """Return the leaves, from left to right, of the tree with only these of the tests."""
    ends = {0}
    for node in tests:
        ends |= {grown.left[node], grown.right[node]}
    ends -= set(tests)
    return [node for node in grown.preorder() if node in ends]


def _regrown(problem: Problem, grown: Grown, tests: list[int]) -> Grown:
    """Grow the tree again, with only these of its tests."""
    kept = frozenset(tests)

    def test(number: int, node: Node) -> Step | None:
        if number not in kept:
            return None
        cut = cut_at(problem, node, grown.feature[number], grown.threshold[number])
        return cut, grown.left[number], grown.right[number]

    return grow_with_tests(problem, 0, test)


@register_explainer
@explainer(
    n_clusters="""
    Leaves are joined until this number of clusters is reached. With None, leaves are not joined. There are fewer
    clusters if the tree has fewer leaves.""",
    max_leaves="""
    Maximum number of leaves after pruning; the cuts made first, which gain most, are kept. Default: no limit.""",
    min_size="""Nodes with fewer points (or less weight) are not cut.""",
    min_dev="""Minimum decrease of the deviance by a cut, as a fraction of the deviance of all points.""",
    min_dist="""
    Two leaves of the same parent are merged if their dissimilarity is below this value, which is in the units of
    the columns.""",
    delta="""
    Fraction of points used for the dissimilarity of two leaves A and B: the mean distance to the nearest point of
    B over the `delta` closest points of A, or the same with A and B exchanged, whichever is greater.""",
    random_state="ignored",
)
class CUBT(UnsupervisedTree[Deviance]):
    """Clustering using unsupervised binary trees (CUBT).

    The tree grows by cuts that reduce the deviance of the points from their mean. It is then pruned, and leaves
    that are close to each other are joined into clusters. It is a baseline that needs no reference clustering. If
    labels or centers are passed to `fit`, the same tree is grown and pruned, but instead of being joined, each
    leaf is assigned to the reference cluster for which the cost of its points is lowest.

    Attributes
    ----------
    tree_, labels_, cluster_centers_, inertia_
        As for :class:`IMM`.

    Notes
    -----
    The deviance of n points is n times the trace of their covariance. A cut into L and R lowers it by
    ``|S|^2 n / (n_L n_R)``, where S is the sum over the points of L of their differences from the mean of all n
    points. Prefix sums give S for all cuts of a column in O(n d).

    References
    ----------
    .. [1] R. Fraiman, B. Ghattas, M. Svarc, "Interpretable clustering using unsupervised binary trees", Advances
       in Data Analysis and Classification, 2013.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from neonxc.trees import CUBT
    >>> CUBT(n_clusters=3).fit(load_iris().data).tree_
    ThresholdTree(3 leaves, depth 2, 4 features)
    """

    n_clusters: int | None = 8  # type: ignore[assignment]
    _: KW_ONLY
    max_leaves: int | None = None
    min_size: float = 10
    min_dev: Fraction = 0.001
    min_dist: float = 0.3
    delta: PositiveFraction = 0.2
    random_state: RandomState = None

    def _criterion(self, problem: Problem) -> Deviance:
        return Deviance(problem, self.min_size, self.min_dev)

    def _are_alike(self, problem: Problem, criterion: Deviance, left: Node, right: Node) -> bool:
        for leaf, sibling in ((left, right), (right, left)):
            distances = nearest_distances(problem.points(leaf.rows), problem.points(sibling.rows))
            dissimilarity = mean_of_smallest(distances[:, None], problem.weights(leaf.rows), self.delta)
            if dissimilarity >= self.min_dist:
                return False
        return True

    def _clusters_of(self, problem: Problem, leaves: list[Tensor]) -> list[int]:
        return join_leaves(problem, leaves, self.n_clusters or len(leaves), self.delta)


@register_explainer
@explainer(
    n_clusters="""Maximum number of clusters. Default: every leaf is a cluster.""",
    max_leaves="""Maximum number of leaves after pruning; the cuts made first, which gain most, are kept. Default:
    `n_clusters`.""",
    min_y="""Nodes with a smaller fraction of the points are not cut.""",
    min_rd="""
    Minimum relative density of a dense region. Two leaves of the same parent are merged if both have more than
    this number of data points per uniform point; uniform points in the gap between the leaves count for both.
    Greater values keep more leaves.""",
    random_state="ignored",
)
class CLTree(UnsupervisedTree[EmptySpace]):
    """Clustering through decision tree construction (CLTree).

    The tree separates dense regions from empty ones: it is a classification tree for the data points against a
    second class of points that are distributed uniformly. It is a baseline that needs no reference clustering; its
    leaves are the clusters. If labels or centers are passed to `fit`, the same tree is grown, and each leaf is
    assigned to the reference cluster for which the cost of its points is lowest.

    Attributes
    ----------
    tree_, labels_, cluster_centers_, inertia_
        As for :class:`IMM`.

    Notes
    -----
    The uniform points are not drawn. Their expected number in a part of a node is proportional to the part's
    length along the column that is cut. A node has the uniform points that it inherits from its parent, or as many
    as it has data points if that is more. The published tree needs two cuts, found by looking ahead, for the two
    ends of an empty gap. This tree makes one cut in the middle of the gap and scores it by the information in the
    two regions beside the gap.

    References
    ----------
    .. [1] B. Liu, Y. Xia, P. S. Yu, "Clustering through decision tree construction", CIKM 2000.

    Examples
    --------
    >>> import numpy as np
    >>> from neonxc.trees import CLTree
    >>> X = np.concatenate([np.linspace(0, 1, 50), np.linspace(9, 10, 50)])[:, None]
    >>> tree = CLTree().fit(X).tree_
    >>> tree, tree.threshold[0].item()
    (ThresholdTree(2 leaves, depth 1, 1 features), 5.0)
    """

    n_clusters: int | None = None  # type: ignore[assignment]
    _: KW_ONLY
    max_leaves: int | None = None
    min_y: Fraction = 0.05
    min_rd: float = 0.6
    random_state: RandomState = None

    def _most_leaves(self) -> int | None:
        return self.n_clusters if self.max_leaves is None else self.max_leaves

    def _criterion(self, problem: Problem) -> EmptySpace:
        return EmptySpace(problem, self.min_y)

    def _are_alike(self, problem: Problem, criterion: EmptySpace, left: Node, right: Node) -> bool:
        is_left_dense = left.mass > self.min_rd * criterion.around[left.id]
        is_right_dense = right.mass > self.min_rd * criterion.around[right.id]
        return is_left_dense and is_right_dense


def join_leaves(problem: Problem, rows: list[Tensor], n_clusters: int, delta: float) -> list[int]:
    """Join the two most similar clusters until `n_clusters` are left; return the cluster of every leaf.

    The dissimilarity of clusters A and B is max(s(A, B), s(B, A)), where s(A, B) is the mean distance to the
    nearest point of B over the fraction `delta` of A that is closest to B.
    """
    points = problem.points(torch.arange(problem.n, device=problem.device))
    rows = list(rows)
    distances = torch.stack([nearest_distances(points, points[leaf]) for leaf in rows], 1)  # [points, clusters]
    cluster = torch.arange(len(rows))
    remaining = list(range(len(rows)))

    def one_sided(a: int, to: list[int]) -> Tensor:
        """Compute s(a, b) for the clusters b in `to`."""
        distances_to = distances[rows[a]][:, to]
        return mean_of_smallest(distances_to, problem.weights(rows[a]), delta)

    dissimilarity = torch.stack([one_sided(a, remaining) for a in remaining])  # [a, b], s(a, b)
    while len(remaining) > n_clusters:
        greater = torch.maximum(dissimilarity, dissimilarity.T)
        greater = greater.fill_diagonal_(torch.inf).flatten()
        # the first of equally similar pairs, equal up to rounding
        is_lowest = greater <= greater.min() * (1 + 1e-9)
        first_pair = int(is_lowest.to(torch.uint8).argmax())
        a, b = divmod(first_pair, len(dissimilarity))  # a < b
        remaining.remove(b)
        cluster[cluster == b] = a
        rows[a] = torch.cat([rows[a], rows[b]])
        distances[:, a] = torch.minimum(distances[:, a], distances[:, b])
        dissimilarity[b] = torch.inf  # the maximum with its column is infinite, too
        dissimilarity[a, remaining] = one_sided(a, remaining)
        dissimilarity[remaining, a] = torch.cat([one_sided(c, [a]) for c in remaining])
    _, consecutive = cluster.unique(return_inverse=True)
    return consecutive.tolist()


def nearest_distances(points: Tensor, others: Tensor) -> Tensor:
    """Compute the distance of every point [n, d] to the nearest of the others [m, d], [n]."""
    mode = "donot_use_mm_for_euclid_dist"  # so that the distance of equal points is exactly 0
    chunks = points.split(max(1, BUDGET // len(others)))
    return torch.cat([torch.cdist(chunk, others, compute_mode=mode).amin(1) for chunk in chunks])


def mean_of_smallest(values: Tensor, weight: Tensor | None, fraction: float) -> Tensor:
    """Average the smallest values, which make up a fraction of the weight, of every column of [n, m]; return [m].

    Of the value at which the fraction is reached, only the missing part of its weight counts.
    """
    ordered, order = values.sort(dim=0)
    mass = torch.ones_like(values) if weight is None else weight[order]
    total = fraction * mass.sum(0)
    missing = (total - mass.cumsum(0) + mass).clamp_(min=0)  # before the value itself is counted
    counted = torch.minimum(missing, mass)
    return (counted * ordered).sum(0) / total
