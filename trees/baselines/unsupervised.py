"""Base classes of explainers that find clusters themselves, some of which grow a full tree and then prune it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import torch

from neonxc.trees.criteria.criterion import Criterion
from neonxc.trees.explainers.own_clusters import OwnClusters
from neonxc.trees.fitted.builder import TreeBuilder
from neonxc.trees.growth import Grown, Leaves, Step, best_first, grow_with_tests, label_leaves
from neonxc.trees.problem import Node, Problem
from neonxc.trees.search import Search


class UnsupervisedTree(OwnClusters):
    """Base class of trees that are grown completely and then pruned."""

    max_leaves: int | None

    @abstractmethod
    def _criterion(self, problem: Problem) -> Criterion:
        """Criterion by which cuts are chosen."""

    @abstractmethod
    def _should_merge(self, problem: Problem, criterion: Any, left: Node, right: Node) -> bool:
        """Whether two leaves of the same parent should be merged."""

    def _own_clusters(self, problem: Problem, leaves: list[Node]) -> list[int]:
        """Cluster of every leaf; by default, every leaf is a cluster."""
        return list(range(len(leaves)))

    def _most_leaves(self) -> int | None:
        """Maximum number of leaves after pruning."""
        return self.max_leaves

    def _grow(self, problem: Problem) -> Grown:
        builder, criterion = TreeBuilder(), self._criterion(problem)
        leaves = best_first(
            Search(problem, criterion), builder, [problem.root().without_centers()], problem.table.n
        )
        nodes = _nodes(builder, leaves)
        inner = _pruned(builder, nodes, lambda left, right: self._should_merge(problem, criterion, left, right))
        most = self._most_leaves()
        if most is not None:  # the first cuts gain most; children are numbered in the order of the cuts
            inner = set(sorted(inner, key=lambda node: builder.left[node])[: most - 1])
        builder, leaves = _copied(problem, builder, inner)
        if self._given:
            return builder, leaves, label_leaves(problem, leaves, "surrogate")
        label = torch.empty_like(problem.labels)
        for leaf, cluster in zip(leaves, self._own_clusters(problem, leaves), strict=True):
            label[leaf.rows] = cluster
        nodes = _nodes(builder, leaves)
        inner = _pruned(builder, nodes, lambda *two: bool(label[two[0].rows[0]] == label[two[1].rows[0]]))
        builder, leaves = _copied(problem, builder, inner)
        return builder, leaves, {leaf.id: int(label[leaf.rows[0]]) for leaf in leaves}


def _nodes(builder: TreeBuilder, leaves: list[Node]) -> dict[int, Node]:
    """All nodes of a tree by number, with the points that reach them."""
    nodes = {leaf.id: leaf for leaf in leaves}
    for node in reversed(range(len(builder.feature))):  # children have higher numbers than their parents
        if node not in nodes:
            left, right = nodes[builder.left[node]], nodes[builder.right[node]]
            rows = torch.cat([left.rows, right.rows])
            nodes[node] = Node(node, rows, left.centers, left.n + right.n, left.mass + right.mass)
    return nodes


def _pruned(builder: TreeBuilder, nodes: dict[int, Node], alike: Callable[[Node, Node], bool]) -> set[int]:
    """The inner nodes that remain after similar leaves of the same parent have been merged from the bottom up."""
    inner: set[int] = set()
    for node in reversed(range(len(builder.feature))):
        if builder.feature[node] >= 0:
            left, right = builder.left[node], builder.right[node]
            if left in inner or right in inner or not alike(nodes[left], nodes[right]):
                inner.add(node)
    return inner


def _copied(problem: Problem, builder: TreeBuilder, inner: set[int]) -> Leaves:
    """Copy the part of a tree with the given inner nodes; its leaves are returned from left to right."""

    def test(place: int, node: Node) -> Step | None:
        if place not in inner:
            return None
        cut = problem.cut_at(node, builder.feature[place], builder.threshold[place])
        return cut, builder.left[place], builder.right[place]

    part, leaves = grow_with_tests(problem, 0, test)
    return part, [leaf for _, leaf in leaves]
