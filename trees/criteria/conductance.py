"""Conductance of the two sides of a cut in a graph: SpEx."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from neonxc.trees.criterion import Criterion, Cuts, at_least_one, floating
from neonxc.trees.exact import rounded
from neonxc.trees.graph import Graph
from neonxc.trees.problem import Node, Problem
from neonxc.trees.statistics import Pairs, Points


def conductance(inside: Tensor, volume: Tensor) -> Tensor:
    """The share of a side's edges that leave it: 1 less twice the weight inside, over the volume.

    1 for a side without edges.
    """
    return 1 - 2 * inside / at_least_one(volume)


class CliqueConductance(Criterion):
    """The least conductance of both sides in the graph that joins all points of a cluster: SpEx-Clique.

    The graph is never built: with L_c of the M_c points of cluster c on a side, ``L_c (L_c - 1) / 2`` of its edges
    are inside, and its volume is the sum of ``L_c (M_c - 1)``. A point of weight w counts as w points; weights are
    divided by the least one if that is less than 1.

    Parameters
    ----------
    problem : Problem
    by_size : bool
        Edges weigh ``1 / (M_c - 1)`` (Corollary A.5) in the place of 1.

    References
    ----------
    .. [1] T. Argov, T. Wagner, "SpEx: A spectral approach to explainable clustering", 2025, Algorithm 1 and
       section 2.4.
    """

    def __init__(self, problem: Problem, by_size: bool = False) -> None:
        super().__init__(problem)
        self.unit = 1.0 if problem.weight is None else min(1.0, problem.least(problem.weight))
        mass = problem.clusters(problem.root())
        self.degree = torch.zeros(problem.k, dtype=torch.float64, device=problem.device)
        self.degree[mass[0]] = mass[1] / self.unit - 1
        self.edge = 1 / at_least_one(self.degree) if by_size else torch.ones_like(self.degree)
        self.whole = problem.weight is None and not by_size

    def open(self, node: Node) -> tuple[Tensor, Tensor, float]:
        """The node's clusters, their points, and its conductance."""
        clusters, mass = self.problem.clusters(node)
        points = mass / self.unit
        return clusters, points, float(self._of_side(points, clusters))

    def score(self, node: Node, cuts: Cuts) -> Tensor:
        """Conductance of the left side plus that of the right one."""
        clusters, points, _ = node.state
        left = floating(cuts.left)
        if not self.whole:
            left = left.div_(self.unit)
            right = points.view(-1, *(1,) * (left.ndim - 1)) - left
            return self._of_side(left, clusters) + self._of_side(right, clusters)
        degree = self.degree[clusters]
        volume, edges, products = torch.tensordot(torch.stack([degree, torch.ones_like(degree), points]), left, 1)
        inside = (left.square_().sum(0) - edges) / 2  # L (L - 1) / 2 edges of each cluster
        # M - L points are on the right; no whole number is rounded
        inside_right = (points * (points - 1)).sum() / 2 + inside - products + edges
        volume_right = (degree * points).sum() - volume
        return conductance(inside, volume) + conductance(inside_right, volume_right)

    def _of_side(self, points: Tensor, clusters: Tensor) -> Tensor:
        """Of points by cluster, [clusters, ...]."""
        degree, edge = self.degree[clusters], self.edge[clusters]
        volume, edges = torch.tensordot(torch.stack([degree * edge, edge]), points, 1)
        return conductance((torch.tensordot(edge, points.square(), 1) - edges) / 2, volume)

    def size(self, node: Node) -> float:
        """Conductances are at most 1."""
        return 2.0

    def gain(self, node: Node, score: float) -> float:
        """How much conductance the tree loses by a cut, Eq. 4; less than 0 where it gains some."""
        return _without_rounding(node.state[2] - score)


class GraphConductance(Criterion):
    """The least conductance of both sides in a graph: SpEx.

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
        # Degrees of rounded weights are sums of these: no volume is 1e-16 where all edges are on the other side
        graph = replace(graph, weight=rounded(graph.weight, 2.01 * graph.weight.sum()))
        self.pairs, self.volume = Pairs(graph), Points(problem, graph.degree)

    def statistics(self, node: Node) -> tuple[Pairs, Points]:
        """Edges inside the node by the codes of their ends, and volumes."""
        return self.pairs, self.volume

    def open(self, node: Node) -> float:
        """The node's conductance."""
        assert self.volume.weight is not None
        inside = self.problem.reduce(self.pairs.weight.index_select(0, self.pairs.elements(node)).sum())
        volume = self.problem.reduce(self.volume.weight.index_select(0, node.rows).sum())
        return float(conductance(inside, volume))

    def score(self, node: Node, cuts: Cuts) -> Tensor:
        """Conductance of the left side plus that of the right one."""
        _, both_left, volume_left = cuts.left
        both_right, _, volume_right = cuts.right  # an edge is right of a cut if its lower end is
        return conductance(both_left, volume_left) + conductance(both_right, volume_right)

    def size(self, node: Node) -> float:
        """Conductances are at most 1."""
        return 2.0

    def gain(self, node: Node, score: float) -> float:
        """How much conductance the tree loses by a cut, Eq. 4; less than 0 where it gains some."""
        return _without_rounding(node.state - score)


def _without_rounding(gain: float) -> float:
    """Gains that are equal but for rounding as equal ones: of such leaves, the first one is split."""
    return round(float(gain), 12)
