"""What the tree's own cost changes by if a test is another one: refinement."""

from __future__ import annotations

import torch
from torch import Tensor

from neonxc.trees.criterion import Criterion, Cuts
from neonxc.trees.problem import Node, Problem
from neonxc.trees.statistics import Channels


class Change(Criterion):
    """The least sum of what points cost more in the leaf below the left branch than in that below the right one.

    Parameters
    ----------
    problem : Problem
    change : Tensor [points]
        Of the node that is cut; sums of them are exact.
    extent : float
        The sum of their sizes over all processes.
    to_left, to_right : Tensor [leaves, points] of bool, optional
        Whether a point reaches a leaf that must not lose all of its points, if it goes to the left, or right.
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
        self.channels = Channels(torch.cat([change[None], *reached]), exact=True)

    def statistics(self, node: Node) -> tuple[Channels]:
        """The change, and the points that reach each leaf."""
        return (self.channels,)

    def score(self, node: Node, cuts: Cuts) -> Tensor:
        """The change; infinite where a leaf is left without points."""
        lost = (cuts.left[1 : self.left] <= 0).any(0) | (cuts.right[self.left :] <= 0).any(0)
        return cuts.left[0].masked_fill(lost, torch.inf)

    def size(self, node: Node) -> float:
        """The sum of all changes."""
        return self.extent
