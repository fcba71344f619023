"""Decrease of the deviance, the sum of squared distances to the mean: the criterion of CUBT."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from neonxc.trees.coding.exact_sums import rounded
from neonxc.trees.columns.statistics import Channels
from neonxc.trees.criteria.criterion import Criterion, Cuts
from neonxc.trees.problem import Node, Problem


@dataclass
class Differences:
    """Differences of a node's points from their mean [d, points], with the weights [points] as the last row."""

    values: Tensor
    deviance: float


class Deviance(Criterion):
    """Minus the decrease of the deviance by a cut.

    Parameters
    ----------
    problem : Problem
    min_size, min_dev : float
        As for :class:`neonxc.trees.CUBT`.

    Notes
    -----
    The deviance of n points is n times the trace of their covariance. A cut into L and R lowers it by
    ``|S|^2 n / (n_L n_R)``, where S is the sum over the points of L of their differences from the mean of all n.

    References
    ----------
    .. [1] R. Fraiman, B. Ghattas, M. Svarc, "Interpretable clustering using unsupervised binary trees", Advances
       in Data Analysis and Classification, 2013.
    """

    def __init__(self, problem: Problem, min_size: float, min_dev: float) -> None:
        super().__init__(problem)
        self.min_size = min_size
        self.least = min_dev * self.open(problem.root()).deviance

    def open(self, node: Node) -> Differences:
        """Differences from the node's mean, and its deviance."""
        values, weight = self.problem.points(node.rows).T, self.problem.weights(node.rows)
        weight = torch.ones_like(values[0]) if weight is None else weight
        values = values - (values @ weight / weight.sum())[:, None]
        deviance = float(values.square().sum(0) @ weight)
        return Differences(rounded(torch.cat([values * weight, weight[None]])), deviance)

    def statistics(self, node: Node) -> tuple[Channels]:
        """Differences from the mean, and weights."""
        return (Channels(self.problem, node, node.state.values),)

    def score(self, node: Node, cuts: Cuts) -> Tensor:
        """Minus the decrease of the deviance."""
        left, right = cuts.left[-1], cuts.right[-1]
        return -cuts.left[:-1].square().sum(0) * (1 / left + 1 / right)

    def size(self, node: Node) -> float:
        """Deviance of the node."""
        deviance: float = node.state.deviance
        return deviance

    def bound(self, node: Node) -> float:
        """Deviance of the node, if it is large enough to be cut."""
        deviance = self.size(node)
        may = node.mass >= self.min_size and deviance >= self.least and deviance > 0
        return deviance if may else -torch.inf

    def gain(self, node: Node, score: float) -> float:
        """Decrease of the deviance, if it reaches `min_dev`."""
        rounding = 4 * (node.n + 1) * torch.finfo(torch.float64).eps * self.size(node)
        return -score if -score > max(self.least, rounding) else -torch.inf
