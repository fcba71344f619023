"""The median of the column of greatest variance: the KD-tree."""

from __future__ import annotations

import torch
from torch import Tensor

from neonxc.trees.criterion import Criterion, Cuts
from neonxc.trees.problem import Node, Problem
from neonxc.trees.statistics import Points


class Median(Criterion):
    """Halve a node at the median of its column of greatest variance; the largest node comes first.

    Parameters
    ----------
    problem : Problem
    """

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.points = Points(problem)

    def statistics(self, node: Node) -> tuple[Points]:
        """Points on the left."""
        return (self.points,)

    def features(self, node: Node) -> Tensor:
        """The column of greatest variance; of equals, but for rounding, the first one."""
        problem = self.problem
        variances = problem.table.variances(node.rows, problem.weight, problem.ranks) / problem.variances
        variances = variances.nan_to_num(nan=0.0)
        equal = variances >= variances.max() * (1 - 1e-12)
        return equal.to(torch.uint8).argmax()[None]

    def score(self, node: Node, cuts: Cuts) -> Tensor:
        """How far from the median a cut is, in points."""
        return (2 * cuts.left[0] - node.mass).abs()

    def bound(self, node: Node) -> float:
        """The points of the node."""
        return node.mass if node.n > 1 else -torch.inf

    def gain(self, node: Node, score: float) -> float:
        """The points of the node."""
        return node.mass
