"""Impurity of the reference clusters: CART."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from neonxc.trees.criterion import Criterion, Cuts, at_least_one, floating
from neonxc.trees.problem import Node


@dataclass(frozen=True)
class State:
    """Of a node's clusters.

    Attributes
    ----------
    weights : Tensor [2, clusters]
        Ones, and the points of every cluster.
    squares : float
        The sum of the squares of these.
    impurity : float
    """

    weights: Tensor
    squares: float
    impurity: float


class Gini(Criterion):
    """The greatest decrease of Gini impurity, weighted by the points of a node, as scikit-learn's trees have it.

    References
    ----------
    .. [1] L. Breiman et al., "Classification and regression trees", 1984.
    """

    def open(self, node: Node) -> State:
        """Sums over the node's clusters."""
        points = self.problem.clusters(node)[1]
        squares = sum(mass * mass for mass in points.tolist())
        impurity = node.mass - squares / node.mass if node.mass else 0.0
        if impurity <= 8 * torch.finfo(torch.float64).eps * node.mass:  # nothing but rounding
            impurity = 0.0
        return State(torch.stack([torch.ones_like(points), points]), squares, impurity)

    def score(self, node: Node, cuts: Cuts) -> Tensor:
        """Impurity of the two sides; of each ``n - sum_c n_c^2 / n``."""
        state, left = node.state, floating(cuts.left)
        on_left, products = torch.tensordot(state.weights, left, 1)
        squares = left.square_().sum(0)
        on_right = node.mass - on_left
        squares_right = (state.squares - 2 * products).add_(squares)
        return node.mass - squares.div_(at_least_one(on_left)) - squares_right.div_(at_least_one(on_right))

    def bound(self, node: Node) -> float:
        """The node's impurity."""
        impurity: float = node.state.impurity
        return impurity if impurity > 0 else -torch.inf

    def gain(self, node: Node, score: float) -> float:
        """The decrease of impurity."""
        return float(node.state.impurity - score)
