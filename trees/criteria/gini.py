"""Impurity of the reference clusters: CART."""

from __future__ import annotations

import torch
from torch import Tensor

from neonxc.trees.criterion import Criterion, Cuts, at_least_one
from neonxc.trees.problem import Node


class Gini(Criterion):
    """The greatest decrease of Gini impurity, weighted by the points of a node, as scikit-learn's trees have it.

    References
    ----------
    .. [1] L. Breiman et al., "Classification and regression trees", 1984.
    """

    def open(self, node: Node) -> float:
        """The node's impurity; 0 where it is but rounding."""
        impurity = float(_impurity(self.problem.clusters(node)[1]))
        return impurity if impurity > 8 * torch.finfo(torch.float64).eps * node.mass else 0.0

    def score(self, node: Node, cuts: Cuts) -> Tensor:
        """Impurity of the two sides."""
        return _impurity(cuts.left) + _impurity(cuts.right)

    def bound(self, node: Node) -> float:
        """The node's impurity."""
        impurity: float = node.state
        return impurity if impurity > 0 else -torch.inf

    def gain(self, node: Node, score: float) -> float:
        """The decrease of impurity."""
        return float(node.state - score)


def _impurity(points: Tensor) -> Tensor:
    """Gini impurity of points by cluster [clusters, ...], weighted by points, [...]."""
    points = points.to(torch.float64)
    total = points.sum(0)
    return total - points.square().sum(0) / at_least_one(total)
