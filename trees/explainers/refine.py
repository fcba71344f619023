"""Refinement, which lowers the k-means cost of a tree with one leaf per cluster after it has been grown.

1. Every test is re-optimized, from the root downwards, with the other tests and the means of the leaves fixed:

       minimize over the tests of a node   sum of a(x) over its points that go left,
       a(x) = cost of x in the leaf that it reaches if sent left - cost in the leaf that it reaches if sent right

   The means are recomputed, and the step is repeated until the cost no longer decreases.
2. The tree is grown again with its own means as reference centers, and so on from 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from neonxc.trees.criteria.criterion import Criterion
from neonxc.trees.criteria.sums import Sum, channels
from neonxc.trees.cuts.codes import code_columns
from neonxc.trees.cuts.exact_sums import counts_by_label, relative_mass
from neonxc.trees.cuts.growth import Grown, Node, Part, Step, cut_above, grow_with_tests, make_nodes
from neonxc.trees.cuts.search import Cuts, Search
from neonxc.trees.fit.points import filled
from neonxc.trees.fit.problem import Problem
from neonxc.trees.fit.reference import cluster_centers
from neonxc.trees.fit.sparse_points import Points

ROUNDS = 50  # maximum number of rounds over all tests, which is hardly ever reached
Grow = Callable[[Problem], Grown]


@dataclass
class ScoredTree:
    """A tree with one leaf per cluster, and its k-means cost.

    Attributes
    ----------
    problem : Problem
        The problem with the tree's own clustering as reference: its labels, and the means of its leaves as
        centers.
    grown : Grown
        Its leaves have one center each.
    cost : float
        k-means cost of the tree's clusters.
    """

    problem: Problem
    grown: Grown
    cost: float


def refined(problem: Problem, grow: Grow, max_bins: int | None = None) -> Grown:
    """Grow a tree and refine it until its k-means cost no longer decreases.

    Parameters
    ----------
    problem : Problem
        The reference clustering to start from.
    grow : callable
        Function that grows the explainer's tree for a problem.
    max_bins : int, optional
        As for the explainer.

    Returns
    -------
    Grown
        Its leaves have one center each.

    Notes
    -----
    Two steps alternate:

    1. Every test is re-optimized, from the root downwards, with the other tests and the means of the leaves fixed.
       Let a(x) be the cost of x in the leaf that it reaches if sent left, minus that in the leaf that it reaches
       if sent right. The best test of a node minimizes the sum of a(x) over the points on its left, which is a
       prefix sum and is searched like any other criterion. Then the means are recomputed, and the step is
       repeated.
    2. The tree is grown again with its own means as reference centers.
    """
    best = improve_tests(score_tree(problem, grow(problem)))
    while True:
        current = best.problem  # whose reference is the tree's own clustering
        weight = current.weight
        ranks = current.ranks
        n = relative_mass(current.labels, current.k, weight, ranks)
        columns, centers = code_columns(current.table, current.centers, max_bins, weight, ranks, n)
        reference = replace(current.reference, centers=centers)
        current = replace(current, columns=columns, reference=reference)
        next_ = improve_tests(score_tree(current, grow(current)))
        if not next_.cost < best.cost * (1 - 1e-9):
            return best.grown
        best = next_


def score_tree(problem: Problem, grown: Grown) -> ScoredTree:
    """Compute the means of a tree's clusters and the k-means cost."""
    labels = problem.labels.clone()
    reference = problem.reference
    for leaf in grown.leaves:
        labels[leaf.rows] = leaf.centers[0]

    def means(points: Points, centers: Tensor) -> Tensor:
        """Compute the means of the clusters; `centers` of those without points."""
        of_labels = cluster_centers(points, labels, problem.k, problem.metric, problem.weight, problem.ranks)
        return filled(of_labels, centers)

    space_centers = means(reference.space, reference.space_centers)
    centers = space_centers
    if reference.space is not problem.table:
        centers = means(problem.filled, reference.centers)
    reference = replace(reference, labels=labels, centers=centers, space_centers=space_centers, distances=None)
    problem = replace(problem, reference=reference)
    return ScoredTree(problem, grown, problem.cost(labels))


def improve_tests(tree: ScoredTree) -> ScoredTree:
    """Re-optimize the tests one by one as long as this lowers the cost."""
    for _ in range(ROUNDS):
        tests = _MutableTests(tree)
        if not tests.improve():
            return tree
        next_ = score_tree(tree.problem, tests.rebuild())
        if not next_.cost < tree.cost:
            return tree
        tree = next_
    return tree


class _MutableTests:
    """The tests of a tree on codes, which are changed one by one."""

    def __init__(self, tree: ScoredTree) -> None:
        self.problem = tree.problem
        grown = tree.grown
        nodes = (grown.feature, grown.code, grown.left, grown.right)
        self.feature, self.code, self.left, self.right = torch.tensor(nodes, device=self.problem.device)
        self.center = torch.full_like(self.feature, -1)
        for leaf in grown.leaves:
            self.center[leaf.id] = leaf.centers[0]

    def improve(self) -> bool:
        """Re-optimize the tests of all nodes from the root downwards; return whether one has changed."""
        changed = False
        open_ = [(0, torch.arange(self.problem.table.n, device=self.problem.device))]
        while open_:
            node, rows = open_.pop()
            if self.feature[node] < 0:
                continue
            changed |= self._improve(node, rows)
            goes_left = self._goes_left(rows, int(self.feature[node]), int(self.code[node]))
            open_.append((int(self.right[node]), rows[~goes_left]))
            open_.append((int(self.left[node]), rows[goes_left]))
        return changed

    def _improve(self, node: int, rows: Tensor) -> bool:
        """Replace the test of a node by its best one, if that lowers the cost and empties no leaf."""
        problem = self.problem
        node_ = make_nodes(problem, [Part(node, rows, self.center[:0], frozenset())])[0]
        if node_.n < 2:
            return False

        # a(x): the cost of every point if sent left, minus that if sent right
        distances = problem.distances.index_select(0, rows)
        leaf_if_left = self._leaves(int(self.left[node]), rows)
        leaf_if_right = self._leaves(int(self.right[node]), rows)
        cost_if_left = distances.gather(1, self.center[leaf_if_left][:, None])[:, 0]
        cost_if_right = distances.gather(1, self.center[leaf_if_right][:, None])[:, 0]
        change = problem.weighted((cost_if_left - cost_if_right)[None], rows)[0]

        # the best test, if it is better than the present one by more than rounding
        goes_left = self._goes_left(rows, int(self.feature[node]), int(self.code[node]))
        sums = torch.stack([change[goes_left].sum(), change.abs().sum()])
        score, extent = problem.reduce(sums).tolist()
        limit = score - 4 * node_.n * torch.finfo(torch.float64).eps * extent
        best = Search(problem, CostChange(problem, change, extent)).best(node_)
        if best is None or best.score >= limit:
            return False

        # the best one that keeps all leaves that have points, if this one does not
        would_go_left = self._goes_left(rows, best.feature, best.code)
        occupied = self._reached(torch.where(goes_left, leaf_if_left, leaf_if_right))
        would_be_occupied = self._reached(torch.where(would_go_left, leaf_if_left, leaf_if_right))
        if len(would_be_occupied) < len(occupied):
            reach_if_left = leaf_if_left == self._reached(leaf_if_left[goes_left])[:, None]
            reach_if_right = leaf_if_right == self._reached(leaf_if_right[~goes_left])[:, None]
            criterion = CostChange(problem, change, extent, reach_if_left, reach_if_right)
            best = Search(problem, criterion).best(node_)
            if best is None or best.score >= limit:
                return False
        self.feature[node] = best.feature
        self.code[node] = best.code
        return True

    def _goes_left(self, rows: Tensor, feature: int, code: int) -> Tensor:
        return self.problem.columns.column(feature).index_select(0, rows) <= code

    def _leaves(self, node: int, rows: Tensor) -> Tensor:
        """Return the leaf that every row reaches when it starts at a node."""
        reached = torch.full_like(rows, node)
        for test in (self.feature >= 0).nonzero()[:, 0].tolist():  # children have greater numbers
            positions = (reached == test).nonzero()[:, 0]
            if len(positions):
                goes_left = self._goes_left(rows[positions], int(self.feature[test]), int(self.code[test]))
                reached[positions] = torch.where(goes_left, self.left[test], self.right[test])
        return reached

    def _reached(self, leaf: Tensor) -> Tensor:
        """Return the distinct leaves that points of any process reach."""
        return counts_by_label(leaf, len(self.feature), None, self.problem.ranks).nonzero()[:, 0]

    def rebuild(self) -> Grown:
        """Build the tree with the current tests."""
        center: dict[int, Tensor] = {}

        def test(number: int, node: Node) -> Step | None:
            if self.feature[number] < 0:
                center[node.id] = self.center[number][None]
                return None
            # the threshold is midway between points: the centers do not matter
            without_centers = replace(node, centers=node.centers[:0])
            cut = cut_above(self.problem, without_centers, int(self.feature[number]), int(self.code[number]))
            none_left = torch.zeros_like(node.centers, dtype=torch.bool)
            return replace(cut, centers_left=none_left), int(self.left[number]), int(self.right[number])

        grown = grow_with_tests(self.problem, 0, test)
        grown.leaves = [replace(leaf, centers=center[leaf.id]) for leaf in grown.leaves]
        return grown


class CostChange(Criterion):
    """Sum over the points on the left of their cost if sent left minus their cost if sent right.

    Parameters
    ----------
    problem : Problem
    change : Tensor [points]
        The difference between the two costs for every point of the node, rounded so that sums are exact.
    extent : float
        Sum of the absolute differences over all processes.
    *reached : two Tensors [leaves, points] of bool, optional
        Whether a point reaches a leaf if it is sent to the left, and if it is sent to the right. Cuts that leave
        one of these leaves without points are forbidden.
    """

    def __init__(self, problem: Problem, change: Tensor, extent: float, *reached: Tensor) -> None:
        super().__init__(problem)
        self.extent = extent
        self.left = 1 + sum(map(len, reached[:1]))  # the first channel after those of leaves on the left
        self.values = torch.cat([change[None], *reached])

    def sums(self, node: Node) -> tuple[Sum]:
        """Return the difference in cost, and the points that reach each leaf."""
        return (channels(node, self.values),)

    def score(self, node: Node, cuts: Cuts) -> Tensor:
        """Compute the change in cost; infinite if a leaf would have no points."""
        lost = (cuts.left[1 : self.left] <= 0).any(0) | (cuts.right[self.left :] <= 0).any(0)
        return cuts.left[0].masked_fill(lost, torch.inf)

    def size(self, node: Node) -> float:
        """Compute the sum of the absolute differences."""
        return self.extent
