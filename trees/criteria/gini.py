"""Gini impurity of the reference clusters: the criterion of CART."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from neonxc.trees.criteria.criterion import Criterion, Cuts, floating, positive
from neonxc.trees.problem import Node


@dataclass(frozen=True)
class Impurity:
    """Sums over a node's clusters.

    Attributes
    ----------
    weights : Tensor [2, clusters]
        A row of ones, and the number of points of every cluster.
    squares : float
        Sum of the squared numbers of points.
    impurity : float
        Gini impurity times the number of points.
    """

    weights: Tensor
    squares: float
    impurity: float


class Gini(Criterion):
    """Gini impurity of the two sides, weighted by their numbers of points as in scikit-learn's trees.

    References
    ----------
    .. [1] L. Breiman et al., "Classification and regression trees", 1984.
    """

    def open(self, node: Node) -> Impurity:
        """Sums over the node's clusters."""
        points = self.problem.clusters(node)[1]
        squares = sum(mass * mass for mass in points.tolist())
        impurity = node.mass - squares / node.mass if node.mass else 0.0
        if impurity <= 8 * torch.finfo(torch.float64).eps * node.mass:  # only a rounding error
            impurity = 0.0
        return Impurity(torch.stack([torch.ones_like(points), points]), squares, impurity)

    def score(self, node: Node, cuts: Cuts) -> Tensor:
        """Weighted impurity of the two sides; each side adds ``n - sum_c n_c^2 / n``."""
        state, left = node.state, floating(cuts.left)
        on_left, products = torch.tensordot(state.weights, left, 1)
        squares = left.square_().sum(0)
        on_right = node.mass - on_left
        squares_right = (state.squares - 2 * products).add_(squares)
        return node.mass - squares.div_(positive(on_left)) - squares_right.div_(positive(on_right))

    def bound(self, node: Node) -> float:
        """Weighted impurity of the node."""
        impurity: float = node.state.impurity
        return impurity if impurity > 0 else -torch.inf

    def gain(self, node: Node, score: float) -> float:
        """Decrease of the weighted impurity."""
        return float(node.state.impurity - score)
