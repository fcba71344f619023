"""Number of points that a cut separates from their reference centers: the criterion of IMM and EMN."""

from __future__ import annotations

import torch
from torch import Tensor

from neonxc.trees.columns.statistics import Parted
from neonxc.trees.criteria.criterion import Criterion, Cuts
from neonxc.trees.problem import Node, Problem


class Mistakes(Criterion):
    """Number of mistakes (IMM), or mistakes divided by the smaller number of centers on a side (EMN).

    A mistake is a point that a cut separates from its center. Every point is counted at most once: points that an
    earlier cut has separated from their center are ignored.

    Parameters
    ----------
    problem : Problem
    shared : bool
        Whether to divide by the smaller number of centers on a side (EMN).

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
        self.shared = shared

    def statistics(self, node: Node) -> tuple[Parted]:
        """Number of points that are separated from their centers."""
        return (Parted(self.problem, node),)

    def score(self, node: Node, cuts: Cuts) -> Tensor:
        """Number of mistakes, or the ratio of EMN."""
        if not self.shared:
            return cuts.left[0]
        return cuts.left[0] / torch.minimum(cuts.centers_left, len(node.centers) - cuts.centers_left)

    def within(self, node: Node, least: Tensor, feature: Tensor) -> Tensor:
        """Least number of mistakes; for EMN, divided by the most centers that the smaller side can have."""
        return least[0] / (len(node.centers) // 2 if self.shared else 1)
