"""Change in a tree's own k-means cost when one of its tests is replaced; used by refinement."""

from __future__ import annotations

import torch
from torch import Tensor

from neonxc.trees.columns.statistics import Channels
from neonxc.trees.criteria.criterion import Criterion, Cuts
from neonxc.trees.problem import Node, Problem


class CostChange(Criterion):
    """Sum over the points on the left of their cost if sent left minus their cost if sent right.

    Parameters
    ----------
    problem : Problem
    change : Tensor [points]
        The difference between the two costs for every point of the node, rounded so that sums are exact.
    extent : float
        Sum of the absolute differences over all processes.
    to_left, to_right : Tensor [leaves, points] of bool, optional
        Whether a point reaches a leaf if it is sent to the left (right). Cuts that leave one of these leaves
        without points are forbidden.
    """

    def __init__(
        self,
        problem: Problem,
        change: Tensor,
        extent: float,
        to_left: Tensor | None = None,
        to_right: Tensor | None = None,
    ) -> None:
        super().__init__(problem)
        self.extent = extent
        self.left = 1 if to_left is None else 1 + len(to_left)
        reached = [own.to(torch.float64) for own in (to_left, to_right) if own is not None]
        self.values = torch.cat([change[None], *reached])

    def statistics(self, node: Node) -> tuple[Channels]:
        """The difference in cost, and the points that reach each leaf."""
        return (Channels(self.problem, node, self.values),)

    def score(self, node: Node, cuts: Cuts) -> Tensor:
        """Change in cost; infinite if a leaf would have no points."""
        lost = (cuts.left[1 : self.left] <= 0).any(0) | (cuts.right[self.left :] <= 0).any(0)
        return cuts.left[0].masked_fill(lost, torch.inf)

    def size(self, node: Node) -> float:
        """Sum of the absolute differences."""
        return self.extent
