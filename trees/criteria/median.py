"""Cuts at the median of the column with the largest variance: the criterion of the KD-tree."""

from __future__ import annotations

import torch
from torch import Tensor

from neonxc.trees.columns.statistics import Points
from neonxc.trees.criteria.criterion import Criterion, Cuts
from neonxc.trees.problem import Node


class Median(Criterion):
    """Distance of a cut from the median of the column with the largest variance; the largest node is cut first.

    Parameters
    ----------
    problem : Problem
    """

    def statistics(self, node: Node) -> tuple[Points]:
        """Number of points on the left."""
        return (Points(self.problem, node),)

    def features(self, node: Node) -> Tensor:
        """The column with the largest variance; ties (up to rounding) go to the first one."""
        problem = self.problem
        variances = problem.table.variances(node.rows, problem.weight, problem.ranks) / problem.variances
        variances = variances.nan_to_num(nan=0.0)
        equal = variances >= variances.max() * (1 - 1e-12)
        return equal.to(torch.uint8).argmax()[None]

    def score(self, node: Node, cuts: Cuts) -> Tensor:
        """Absolute difference between the numbers of points on the two sides."""
        return (2 * cuts.left[0] - node.mass).abs()

    def bound(self, node: Node) -> float:
        """Number of points of the node."""
        return node.mass if node.n > 1 else -torch.inf

    def gain(self, node: Node, score: float) -> float:
        """Number of points of the node."""
        return node.mass
