"""Impurity of the reference clusters: CART."""

from __future__ import annotations

import torch
from torch import Tensor

from neonxc.trees.criterion import Criterion, Cuts, at_least_one, floating
from neonxc.trees.problem import Node


class Gini(Criterion):
    """The greatest decrease of Gini impurity, weighted by the points of a node, as scikit-learn's trees have it.

    References
    ----------
    .. [1] L. Breiman et al., "Classification and regression trees", 1984.
    """

    def open(self, node: Node) -> tuple[Tensor, float]:
        """The points of the node's clusters, and its impurity; 0 where it is but rounding."""
        points = self.problem.clusters(node)[1]
        impurity = float(points.sum() - points.square().sum() / node.mass) if len(points) else 0.0
        return points, impurity if impurity > 8 * torch.finfo(torch.float64).eps * node.mass else 0.0

    def score(self, node: Node, cuts: Cuts) -> Tensor:
        """Impurity of the two sides; of each ``n - sum_c n_c^2 / n``."""
        points, left = node.state[0], floating(cuts.left)
        on_left, products = torch.tensordot(torch.stack([torch.ones_like(points), points]), left, 1)
        squares = left.square_().sum(0)
        on_right = node.mass - on_left
        squares_right = (points.square().sum() - 2 * products).add_(squares)
        return node.mass - squares.div_(at_least_one(on_left)) - squares_right.div_(at_least_one(on_right))

    def bound(self, node: Node) -> float:
        """The node's impurity."""
        impurity: float = node.state[1]
        return impurity if impurity > 0 else -torch.inf

    def gain(self, node: Node, score: float) -> float:
        """The decrease of impurity."""
        return float(node.state[1] - score)
