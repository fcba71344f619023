"""Points that a cut parts from their reference center: IMM and EMN."""

from __future__ import annotations

import torch
from torch import Tensor

from neonxc.trees.criterion import Criterion, Cuts
from neonxc.trees.problem import Node, Problem
from neonxc.trees.statistics import Parted


class Mistakes(Criterion):
    """The least mistakes (IMM), or mistakes over the lesser number of centers on a side (EMN).

    A mistake counts once: points that were cut from their center do not count any more.

    Parameters
    ----------
    problem : Problem
    shared : bool
        Divide by the lesser number of centers.

    References
    ----------
    .. [1] M. Moshkovitz, S. Dasgupta, C. Rashtchian, N. Frost, "Explainable k-means and k-medians clustering",
       ICML 2020, Algorithm 1.
    .. [2] H. Esfandiari, V. Mirrokni, S. Narayanan, "Almost tight approximation algorithms for explainable
       clustering", SODA 2022.
    """

    coarse = True

    def __init__(self, problem: Problem, shared: bool = False) -> None:
        super().__init__(problem)
        self.parted = Parted(problem)
        self.shared = shared

    def statistics(self, node: Node) -> tuple[Parted]:
        """Points that are parted from their centers."""
        return (self.parted,)

    def score(self, node: Node, cuts: Cuts) -> Tensor:
        """Mistakes, or EMN's ratio."""
        if not self.shared:
            return cuts.left[0]
        return cuts.left[0] / torch.minimum(cuts.centers_left, len(node.centers) - cuts.centers_left)

    def within(self, node: Node, least: Tensor, feature: Tensor) -> Tensor:
        """The least mistakes, over as many centers as a side may have."""
        return least[0] / (len(node.centers) // 2 if self.shared else 1)
