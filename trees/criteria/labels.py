"""How well a cut keeps the points of a cluster together: the criteria of CART and of the SpEx explainers.

With n_c points of cluster c among the n points of a side S of a cut, and a graph on all points, the scores are

===========  =================================================================================================
impurity     sum over both sides of  n - sum_c n_c^2 / n  (Gini impurity times n; Breiman et al., 1984)
conductance  sum over both sides of  psi(S) = 1 - 2 e(S) / vol(S)  (SpEx paper, Algorithm 1)
===========  =================================================================================================

where e(S) is the weight of the edges inside S, and vol(S) the sum of the degrees of its points in the whole
graph, which counts an edge inside S twice. psi(S) is therefore the fraction of the volume that belongs to edges
leaving S.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from neonxc.trees.criteria.criterion import Criterion, Pruning, combined, floating, positive
from neonxc.trees.criteria.sums import Sum, edges_inside, pairs, points
from neonxc.trees.cuts.exact_sums import rounded
from neonxc.trees.cuts.growth import Node, root
from neonxc.trees.cuts.search import Cuts
from neonxc.trees.fit.problem import Problem
from neonxc.trees.graph import Graph


class NodeImpurity(NamedTuple):
    """Clusters of a node."""

    factors: Tensor  # [2, clusters], a row of ones and the clusters' masses N_c
    squares: float  # sum of N_c^2
    impurity: float  # Gini impurity times mass


class GiniBound(Pruning):
    """Upper bound of the gain of a cut: the impurity of the node."""

    def gain_bound(self, node: Node) -> float:
        """Weighted impurity of the node; a node of one cluster is not cut."""
        impurity: float = node.state.impurity
        return impurity if impurity > 0 else -torch.inf


class Gini(Criterion):
    """Gini impurity of the two sides, weighted by their numbers of points as in scikit-learn's trees.

    References
    ----------
    .. [1] L. Breiman et al., "Classification and regression trees", 1984.
    """

    pruning: type[Pruning] = GiniBound

    def open(self, node: Node) -> NodeImpurity:
        """Masses of the node's clusters, and its impurity."""
        points = self.problem.clusters(node)[1]
        squares = sum(mass * mass for mass in points.tolist())
        impurity = node.mass - squares / node.mass if node.mass else 0.0
        if impurity <= 8 * torch.finfo(torch.float64).eps * node.mass:  # only a rounding error
            impurity = 0.0
        return NodeImpurity(torch.stack([torch.ones_like(points), points]), squares, impurity)

    def score(self, node: Node, cuts: Cuts) -> Tensor:
        """Weighted impurity of the two sides; each side adds ``n - sum_c n_c^2 / n``.

        With N_c points in the node, the right side has ``sum_c (N_c - n_c)^2``, which is the sum of the squares
        of N_c minus twice the products of N_c and n_c plus the squares of n_c: one pass over the sums instead
        of two.
        """
        state: NodeImpurity = node.state
        left = floating(cuts.left)
        on_left, products = combined(state.factors, left)
        squares = left.square_().sum(0)
        on_right = node.mass - on_left
        squares_right = (state.squares - 2 * products).add_(squares)
        return node.mass - squares.div_(positive(on_left)) - squares_right.div_(positive(on_right))

    def gain(self, node: Node, score: float) -> float:
        """Decrease of the weighted impurity; a node of one cluster stays a leaf."""
        impurity = node.state.impurity
        if impurity <= 0:
            return -torch.inf
        return float(impurity - score)


def conductance(inside: Tensor, volume: Tensor) -> Tensor:
    """Fraction of a side's volume that belongs to edges leaving it; 1 for a side without edges."""
    return 1 - 2 * inside / positive(volume)


class Conductance(Criterion):
    """Sum of the conductances of both sides of a cut. The state of a node has the node's own `conductance`."""

    def size(self, node: Node) -> float:
        """Maximum of the score: each of the two conductances is at most 1."""
        return 2.0

    def gain(self, node: Node, score: float) -> float:
        """Decrease of the tree's total conductance by a cut (Eq. 4); it may be negative.

        It is rounded to 12 decimals, so that gains that differ only by rounding errors are ties.
        """
        return round(float(node.state.conductance - score), 12)


class NodeClusters(NamedTuple):
    """Clusters of a node."""

    clusters: Tensor  # [clusters] of int64
    points: Tensor  # [clusters] of float64, their numbers of points
    conductance: float  # of the node


class CliqueConductance(Conductance):
    """Sum of the conductances of both sides in the clique graph, which connects all points of a cluster.

    The graph is never built. If L_c of the M_c points of cluster c are on a side, ``L_c (L_c - 1) / 2`` edges of
    the cluster lie inside the side, and the side's volume is the sum of ``L_c (M_c - 1)``. A point of weight w
    counts as w points; if the smallest weight is below 1, all weights are divided by it.

    Parameters
    ----------
    problem : Problem
    by_size : bool
        Whether edges have weight ``1 / (M_c - 1)`` (Corollary A.5) instead of 1.

    References
    ----------
    .. [1] T. Argov, T. Wagner, "SpEx: A spectral approach to explainable clustering", 2025, Algorithm 1 and
       section 2.4.
    """

    def __init__(self, problem: Problem, by_size: bool = False) -> None:
        super().__init__(problem)
        self.unit = 1.0 if problem.weight is None else min(1.0, problem.least(problem.weight))
        present, mass = problem.clusters(root(problem))
        self.degree = torch.zeros(problem.k, dtype=torch.float64, device=problem.device)
        self.degree[present] = mass / self.unit - 1
        if by_size:
            self.edge = 1 / self.degree.where(self.degree > 0, 1)
        else:
            self.edge = torch.ones_like(self.degree)
        self.is_integer = problem.weight is None and not by_size

    def open(self, node: Node) -> NodeClusters:
        """The node's clusters, their numbers of points, and the node's conductance."""
        clusters, mass = self.problem.clusters(node)
        points = mass / self.unit
        return NodeClusters(clusters, points, float(self._side_conductance(points[:, None], clusters)))

    def score(self, node: Node, cuts: Cuts) -> Tensor:
        """Conductance of the left side plus that of the right side."""
        clusters, points, _ = node.state
        left = floating(cuts.left)  # L_c
        if not self.is_integer:
            left = left.div_(self.unit)
            each_cut = (1,) * (left.ndim - 1)
            right = points.view(-1, *each_cut) - left
            return self._side_conductance(left, clusters) + self._side_conductance(right, clusters)

        degree = self.degree[clusters]  # M_c - 1 in the whole table
        factors = torch.stack([degree, torch.ones_like(degree), points])
        volume, on_left, products = combined(factors, left)
        inside = (left.square_().sum(0) - on_left) / 2  # L (L - 1) / 2 edges per cluster
        # With N points of the cluster in the node, (N - L) (N - L - 1) / 2 edges are inside of the right side,
        # which is N (N - 1) / 2 + L (L - 1) / 2 - N L + L. All numbers are integers, so nothing is rounded.
        inside_right = (points * (points - 1)).sum() / 2 + inside - products + on_left
        volume_right = (degree * points).sum() - volume
        return conductance(inside, volume) + conductance(inside_right, volume_right)

    def _side_conductance(self, points: Tensor, clusters: Tensor) -> Tensor:
        """Conductance [...] of sides with the given numbers of points by cluster, [clusters, ...]."""
        degree = self.degree[clusters]
        edge = self.edge[clusters]  # weight of an edge
        volume, weighted_points = combined(torch.stack([degree * edge, edge]), points)
        weighted_squares = combined(edge[None], points.square())[0]
        inside = (weighted_squares - weighted_points) / 2
        return conductance(inside, volume)


class NodeGraph(NamedTuple):
    """The state of a node in a given graph."""

    conductance: float


class GraphConductance(Conductance):
    """Sum of the conductances of both sides in a given graph.

    Parameters
    ----------
    problem : Problem
    graph : Graph

    References
    ----------
    .. [1] T. Argov, T. Wagner, "SpEx: A spectral approach to explainable clustering", 2025, Algorithm 1.
    """

    def __init__(self, problem: Problem, graph: Graph) -> None:
        super().__init__(problem)
        # With rounded weights, degrees are exact sums: the volume of a side without edges is 0, and never 1e-16
        graph = replace(graph, weight=rounded(graph.weight, 2.01 * graph.weight.sum()))
        self.graph = graph
        self.degree = graph.degree

    def sums(self, node: Node) -> Sequence[Sum]:
        """Weight of the edges inside the node by the sides of their ends, and volumes."""
        return pairs(node, self.graph), points(self.problem, node, self.degree)

    def open(self, node: Node) -> NodeGraph:
        """Conductance of the node."""
        edges = edges_inside(node, self.graph)
        inside = self.problem.reduce(self.graph.weight.index_select(0, edges).sum())
        volume = self.problem.reduce(self.degree.index_select(0, node.rows).sum())
        return NodeGraph(float(conductance(inside, volume)))

    def score(self, node: Node, cuts: Cuts) -> Tensor:
        """Conductance of the left side plus that of the right side."""
        _, both_left, volume_left = cuts.left
        both_right, _, volume_right = cuts.right  # an edge lies right of a cut if its lower end does
        return conductance(both_left, volume_left) + conductance(both_right, volume_right)
