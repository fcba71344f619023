"""Criteria that need no reference clustering: those of the KD-tree, CUBT and CLTree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from neonxc.trees.criteria.criterion import Criterion
from neonxc.trees.criteria.sums import Sum, channels, points
from neonxc.trees.cuts.cuts import Cuts
from neonxc.trees.cuts.exact_sums import rounded
from neonxc.trees.cuts.nodes import Cut, Node, root
from neonxc.trees.fit.problem import Problem


class Median(Criterion):
    """Distance of a cut from the median of the column with the largest variance; the largest node is cut first.

    Parameters
    ----------
    problem : Problem
    """

    def sums(self, node: Node) -> Sequence[Sum]:
        """Number of points on the left."""
        return (points(self.problem, node),)

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
        self.least = min_dev * self.open(root(problem)).deviance

    def open(self, node: Node) -> Differences:
        """Differences from the node's mean, and its deviance."""
        values = self.problem.points(node.rows).T
        weight = self.problem.weights(node.rows)
        weight = torch.ones_like(values[0]) if weight is None else weight
        values = values - (values @ weight / weight.sum())[:, None]
        deviance = float(values.square().sum(0) @ weight)
        return Differences(rounded(torch.cat([values * weight, weight[None]])), deviance)

    def sums(self, node: Node) -> Sequence[Sum]:
        """Differences from the mean, and weights."""
        return (channels(node, node.state.values),)

    def score(self, node: Node, cuts: Cuts) -> Tensor:
        """Minus the decrease of the deviance."""
        left = cuts.left[-1]
        right = cuts.right[-1]
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


@dataclass
class Box:
    """Bounds of a node in every column, [d] each, and its expected number of uniform points."""

    low: Tensor
    high: Tensor
    uniform: float


class EmptySpace(Criterion):
    """Minus the information gain about which points of a node are data and which are uniform.

    Parameters
    ----------
    problem : Problem
    min_y : float
        Minimum fraction of all points that a node needs to be cut.

    Attributes
    ----------
    around : dict of int to float
        For every node, the number of uniform points that it inherits from its parent plus those in the gap beside
        it.

    References
    ----------
    .. [1] B. Liu, Y. Xia, P. S. Yu, "Clustering through decision tree construction", CIKM 2000.
    """

    def __init__(self, problem: Problem, min_y: float) -> None:
        super().__init__(problem)
        self.least = min_y * root(problem).mass
        self.around: dict[int, float] = {}

    def open(self, node: Node) -> Box:
        """Bounding box of all points. The boxes of children are set when their parent is cut."""
        if node.state is not None:
            box: Box = node.state
            return box
        table = self.problem.table
        ends = [table.columns(*chunk).aminmax(dim=1) for chunk in table.chunks()]
        low, high = (torch.cat(parts).to(torch.float64) for parts in zip(*ends, strict=True))
        return Box(low, high, node.mass)

    def sums(self, node: Node) -> Sequence[Sum]:
        """Number of points on the left."""
        return (points(self.problem, node),)

    def score(self, node: Node, cuts: Cuts) -> Tensor:
        """Minus the information gain."""
        box: Box = node.state
        below, above = cuts.gap()
        low = box.low[cuts.feature]
        high = box.high[cuts.feature]
        up_to = ((below - low) / (high - low)).clamp(0, 1)
        beyond = ((high - above) / (high - low)).clamp(0, 1)
        left = cuts.left[0].to(torch.float64)
        right = cuts.right[0].to(torch.float64)
        rest = information(left, box.uniform * up_to) + information(right, box.uniform * beyond)
        return (rest - self._node_information(node)).nan_to_num(nan=torch.inf)

    def size(self, node: Node) -> float:
        """Information of the node."""
        return self._node_information(node)

    def bound(self, node: Node) -> float:
        """Information of the node, if it is large enough to be cut."""
        return self._node_information(node) if node.mass >= self.least and node.n > 1 else -torch.inf

    def gain(self, node: Node, score: float) -> float:
        """Information gain, if it exceeds rounding errors."""
        return -score if -score > node.rounding(self._node_information(node)) else -torch.inf

    def split(self, node: Node, cut: Cut, children: tuple[Node, Node]) -> None:
        """Divide the box into the parts on the two sides of the gap in which the cut lies."""
        box = node.state
        feature = cut.feature
        low = float(box.low[feature])
        high = float(box.high[feature])
        values = self.problem.table.column(feature, node.rows).to(torch.float64)
        last = float(values[cut.left].max())
        first = float(values[~cut.left].min())
        per_length = box.uniform / (high - low)
        for child, ends in zip(children, ((low, last), (first, high)), strict=True):
            uniform = per_length * (ends[1] - ends[0])
            self.around[child.id] = uniform + per_length * (first - last)
            part = Box(box.low.clone(), box.high.clone(), max(uniform, child.mass))
            part.low[feature], part.high[feature] = ends
            child.state = part

    def _node_information(self, node: Node) -> float:
        """Information of a node: its entropy times its number of points."""
        both = torch.tensor([node.mass, node.state.uniform], dtype=torch.float64)
        return float(information(both[0], both[1]))


def information(points: Tensor, uniform: Tensor) -> Tensor:
    """Entropy of the two classes in nats, times the number of points."""
    total = points + uniform
    return torch.xlogy(total, total) - torch.xlogy(points, points) - torch.xlogy(uniform, uniform)
