"""Lower the k-means cost of a tree with one leaf per cluster, beyond what the papers' explainers do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from neonxc.trees.builder import TreeBuilder
from neonxc.trees.codes import code
from neonxc.trees.criteria.cost_change import CostChange
from neonxc.trees.exact import tally
from neonxc.trees.growth import Step, grow_with_tests
from neonxc.trees.problem import Node, Problem
from neonxc.trees.reference import centers_of
from neonxc.trees.search import Search

ROUNDS = 50  # of re-optimised cuts; a bound that is hardly ever reached
Grow = Callable[[Problem], tuple[TreeBuilder, list[Node]]]


@dataclass
class Grown:
    """A tree with one leaf per cluster, and its k-means cost.

    Attributes
    ----------
    problem : Problem
        Its centers are the means of the leaves, its labels the clusters by the tree.
    builder : TreeBuilder
    leaves : list of Node
        With one center each.
    cost : float
    """

    problem: Problem
    builder: TreeBuilder
    leaves: list[Node]
    cost: float


def refined(problem: Problem, grow: Grow, max_bins: int | None = None) -> Grown:
    """Grow a tree and improve it until neither of two steps lowers its k-means cost.

    Parameters
    ----------
    problem : Problem
        The reference clustering to start from.
    grow : callable
        Problem -> tree builder and leaves: the explainer.
    max_bins : int, optional
        As for coding the problem's columns.

    Notes
    -----
    Step one: with the means of the leaves and all other tests fixed, the best test of a node minimises the sum
    over points on its left of a(x), what x costs in the leaf it would reach on the left minus that on the right:
    a prefix sum, swept like any other criterion. Nodes are visited from the top; then means are taken again. Step
    two: the tree is grown anew with its own means as reference centers.
    """
    best = improved(measured(problem, *grow(problem)))
    while True:
        again = replace(best.problem, columns=code(problem.table, best.problem.centers, max_bins, problem.ranks))
        next_ = improved(measured(again, *grow(again)))
        if not next_.cost < best.cost * (1 - 1e-9):
            return best
        best = next_


def measured(problem: Problem, builder: TreeBuilder, leaves: list[Node]) -> Grown:
    """A tree's cost, and the problem with its clusters' means as centers."""
    labels, k, ranks = problem.labels.clone(), problem.k, problem.ranks
    for leaf in leaves:
        labels[leaf.rows] = leaf.centers[0]
    space_centers = centers_of(problem.space, labels, k, problem.metric, problem.weight, ranks)
    space_centers = torch.where(space_centers.isnan(), problem.space_centers, space_centers)
    centers = space_centers
    if problem.space is not problem.table:
        centers = centers_of(problem.filled, labels, k, problem.metric, problem.weight, ranks)
        centers = torch.where(centers.isnan(), problem.centers, centers)
    moved = replace(problem, centers=centers, space_centers=space_centers, labels=labels, given_distances=None)
    return Grown(moved, builder, leaves, moved.cost(labels))


def improved(tree: Grown) -> Grown:
    """Re-optimise one test after the other while that lowers the cost."""
    for _ in range(ROUNDS):
        tests = _Tests(tree)
        if not tests.improve():
            return tree
        next_ = measured(tree.problem, *tests.rebuild())
        if not next_.cost < tree.cost:
            return tree
        tree = next_
    return tree


class _Tests:
    """The tests of a tree on codes, which may change."""

    def __init__(self, tree: Grown) -> None:
        self.problem, builder = tree.problem, tree.builder
        device = self.problem.device
        self.feature = torch.tensor(builder.feature, device=device)
        self.left, self.right = (torch.tensor(side, device=device) for side in (builder.left, builder.right))
        self.code = torch.tensor(builder.code, device=device)
        self.center = torch.full_like(self.feature, -1)
        for leaf in tree.leaves:
            self.center[leaf.id] = leaf.centers[0]

    def improve(self) -> bool:
        """Visit all nodes from the top; return whether a test has changed."""
        changed = False
        open_ = [(0, torch.arange(self.problem.table.n, device=self.problem.device))]
        while open_:
            node, rows = open_.pop()
            if self.feature[node] < 0:
                continue
            changed |= self._improve(node, rows)
            goes_left = self._goes_left(rows, int(self.feature[node]), int(self.code[node]))
            open_ += [(int(self.right[node]), rows[~goes_left]), (int(self.left[node]), rows[goes_left])]
        return changed

    def _improve(self, node: int, rows: Tensor) -> bool:
        """Give a node its best test, if that is better and leaves no leaf without points."""
        problem = self.problem
        node_ = problem.node(node, rows, self.center[:0])
        if node_.n < 2:
            return False
        distances = problem.distances.index_select(0, rows)
        reached = [self._leaves(int(side[node]), rows) for side in (self.left, self.right)]
        on_left, on_right = (distances.gather(1, self.center[leaf][:, None])[:, 0] for leaf in reached)
        change = problem.weighted((on_left - on_right)[None], rows)[0]
        goes_left = self._goes_left(rows, int(self.feature[node]), int(self.code[node]))
        now, extent = problem.reduce(torch.stack([change[goes_left].sum(), change.abs().sum()])).tolist()
        limit = now - 4 * node_.n * torch.finfo(torch.float64).eps * extent
        best = Search(problem, CostChange(problem, change, extent)).best(node_)
        if best is None or best.score >= limit:
            return False
        then = self._goes_left(rows, best.feature, best.code)
        leaves = [self._reached(torch.where(side, reached[0], reached[1])) for side in (goes_left, then)]
        if len(leaves[1]) < len(leaves[0]):
            left, right = (
                self._reached(leaf[side]) for leaf, side in zip(reached, (goes_left, ~goes_left), strict=True)
            )
            to_left, to_right = (leaf == own[:, None] for leaf, own in zip(reached, (left, right), strict=True))
            best = Search(problem, CostChange(problem, change, extent, to_left, to_right)).best(node_)
            if best is None or best.score >= limit:
                return False
        self.feature[node], self.code[node] = best.feature, best.code
        return True

    def _goes_left(self, rows: Tensor, feature: int, code: int) -> Tensor:
        return self.problem.columns.column(feature).index_select(0, rows) <= code

    def _leaves(self, node: int, rows: Tensor) -> Tensor:
        """The leaf below a node that every row reaches, if it comes to the node."""
        at = torch.full_like(rows, node)
        while True:
            feature = self.feature[at]
            inner = feature >= 0
            if not bool(inner.any()):
                return at
            codes = self.problem.columns.at(feature.clamp(min=0), rows)
            at = torch.where(inner, torch.where(codes <= self.code[at], self.left[at], self.right[at]), at)

    def _reached(self, leaf: Tensor) -> Tensor:
        """The leaves among those of points, over all processes."""
        return self.problem.reduce(tally(leaf, len(self.feature))).nonzero()[:, 0]

    def rebuild(self) -> tuple[TreeBuilder, list[Node]]:
        """The tree of the tests as they are now."""

        def test(place: int, node: Node) -> Step | None:
            if self.feature[place] < 0:
                return None
            cut = self.problem.cut(
                replace(node, centers=node.centers[:0]), int(self.feature[place]), int(self.code[place])
            )
            nobody = torch.zeros_like(node.centers, dtype=torch.bool)  # centers play no part here
            return replace(cut, centers_left=nobody), int(self.left[place]), int(self.right[place])

        builder, leaves = grow_with_tests(self.problem, 0, test)
        return builder, [replace(leaf, centers=self.center[place][None]) for place, leaf in leaves]
