"""Criteria that need no reference clustering: those of the KD-tree, CUBT and CLTree.

With n points in a node, of which n_L go left and n_R right, the scores are

============  ================================================================================================
balance       |n_L - n_R|, in the column of the largest variance (KD-tree)
deviance      minus |S|^2 n / (n_L n_R), where S is the sum over the left of the differences from the mean (CUBT)
information   H(n_L, u_L) + H(n_R, u_R) - H(n, u), where u is a number of uniform points (CLTree)
============  ================================================================================================

H(a, b) is the entropy of two classes of a and b points, times their number. CLTree fills the bounding box of a
node with as many uniform points as it has points (or more, if it inherits more), and a cut divides these by
length; those in the gap between the values on its two sides are on neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from neonxc.trees.criteria.criterion import Criterion, Pruning
from neonxc.trees.criteria.sums import Sum, channels, points
from neonxc.trees.cuts.exact_sums import rounded
from neonxc.trees.cuts.growth import Cut, Node, root
from neonxc.trees.cuts.search import Cuts
from neonxc.trees.fit.problem import Problem


class MassBound(Pruning):
    """The gain of any cut of a node with several points: their mass."""

    def gain_bound(self, node: Node) -> float:
        """Mass of the node."""
        return node.mass if node.n > 1 else -torch.inf


class Median(Criterion):
    """Distance of a cut from the median of the column with the largest variance; the largest node is cut first.

    Parameters
    ----------
    problem : Problem
    """

    pruning = MassBound

    def sums(self, node: Node) -> Sequence[Sum]:
        """Number of points on the left."""
        return (points(self.problem, node),)

    def features(self, node: Node) -> Tensor:
        """The column with the largest variance; ties (up to rounding) go to the first one."""
        problem = self.problem
        points_of_node = problem.table.take(node.rows)
        variances = points_of_node.variances(problem.weights(node.rows), problem.ranks)
        variances = (variances / problem.variances).nan_to_num(nan=0.0)
        equal = variances >= variances.max() * (1 - 1e-12)
        return equal.to(torch.uint8).argmax()[None]

    def score(self, node: Node, cuts: Cuts) -> Tensor:
        """Absolute difference between the numbers of points on the two sides."""
        return (2 * cuts.left[0] - node.mass).abs()

    def gain(self, node: Node, score: float) -> float:
        """Number of points of the node."""
        return node.mass


@dataclass
class Differences:
    """Differences of a node's points from their mean [d, points], with the weights [points] as the last row."""

    values: Tensor
    deviance: float


class DevianceBound(Pruning):
    """Upper bound of the gain of a cut: the deviance of the node."""

    criterion: Deviance

    def gain_bound(self, node: Node) -> float:
        """Deviance of the node, if it is large enough to be cut."""
        if not self.criterion.may_be_cut(node):
            return -torch.inf
        return self.criterion.size(node)


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

    pruning = DevianceBound

    def __init__(self, problem: Problem, min_size: float, min_dev: float) -> None:
        super().__init__(problem)
        self.min_size = min_size
        self.min_gain = min_dev * self.open(root(problem)).deviance

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
        n_left = cuts.left[-1]
        n_right = cuts.right[-1]
        squared_sum = cuts.left[:-1].square().sum(0)  # |S|^2
        return -squared_sum * (1 / n_left + 1 / n_right)

    def size(self, node: Node) -> float:
        """Deviance of the node."""
        deviance: float = node.state.deviance
        return deviance

    def may_be_cut(self, node: Node) -> bool:
        """Whether a node has enough points and deviance."""
        deviance = self.size(node)
        return node.mass >= self.min_size and deviance >= self.min_gain and deviance > 0

    def gain(self, node: Node, score: float) -> float:
        """Decrease of the deviance, if it reaches `min_dev`."""
        limit = max(self.min_gain, node.rounding(self.size(node)))
        if not self.may_be_cut(node) or -score <= limit:
            return -torch.inf
        return -score


@dataclass
class Box:
    """Bounds of a node in every column, [d] each, and its expected number of uniform points."""

    low: Tensor
    high: Tensor
    uniform: float


class InformationBound(Pruning):
    """Upper bound of the gain of a cut: the information of the node."""

    criterion: EmptySpace

    def gain_bound(self, node: Node) -> float:
        """Information of the node, if it is large enough to be cut."""
        if not self.criterion.may_be_cut(node):
            return -torch.inf
        return self.criterion.size(node)


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

    pruning = InformationBound

    def __init__(self, problem: Problem, min_y: float) -> None:
        super().__init__(problem)
        self.min_mass = min_y * root(problem).mass
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
        # fractions of the box up to the last value on the left, and from the first value on the right
        left_fraction = ((below - low) / (high - low)).clamp(0, 1)
        right_fraction = ((high - above) / (high - low)).clamp(0, 1)

        left = information(cuts.left[0].to(torch.float64), box.uniform * left_fraction)
        right = information(cuts.right[0].to(torch.float64), box.uniform * right_fraction)
        return (left + right - self.size(node)).nan_to_num(nan=torch.inf)

    def size(self, node: Node) -> float:
        """Information of a node: its entropy times its number of points."""
        n_points, n_uniform = torch.tensor([node.mass, node.state.uniform], dtype=torch.float64)
        return float(information(n_points, n_uniform))

    def may_be_cut(self, node: Node) -> bool:
        """Whether a node has enough points."""
        return node.mass >= self.min_mass and node.n > 1

    def gain(self, node: Node, score: float) -> float:
        """Information gain, if it exceeds rounding errors."""
        if not self.may_be_cut(node) or -score <= node.rounding(self.size(node)):
            return -torch.inf
        return -score

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


def information(points: Tensor, uniform: Tensor) -> Tensor:
    """Entropy of the two classes in nats, times the number of points."""
    total = points + uniform
    return torch.xlogy(total, total) - torch.xlogy(points, points) - torch.xlogy(uniform, uniform)
