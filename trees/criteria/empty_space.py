"""Information gain about whether a point is data or uniformly distributed: the criterion of CLTree."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from neonxc.trees.columns.statistics import Points
from neonxc.trees.criteria.criterion import Criterion, Cuts
from neonxc.trees.problem import Cut, Node, Problem


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
        self.least = min_y * problem.root().mass
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

    def statistics(self, node: Node) -> tuple[Points]:
        """Number of points on the left."""
        return (Points(self.problem, node),)

    def score(self, node: Node, cuts: Cuts) -> Tensor:
        """Minus the information gain."""
        box: Box = node.state
        below, above = cuts.gap()
        low, high = box.low[cuts.feature], box.high[cuts.feature]
        up_to = ((below - low) / (high - low)).clamp(0, 1)
        beyond = ((high - above) / (high - low)).clamp(0, 1)
        left, right = cuts.left[0].to(torch.float64), cuts.right[0].to(torch.float64)
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
        rounding = 4 * (node.n + 1) * torch.finfo(torch.float64).eps * self._node_information(node)
        return -score if -score > rounding else -torch.inf

    def split(self, node: Node, cut: Cut, children: tuple[Node, Node]) -> None:
        """Divide the box into the parts on the two sides of the gap in which the cut lies."""
        box, feature = node.state, cut.feature
        low, high = float(box.low[feature]), float(box.high[feature])
        values = self.problem.table.column(feature, node.rows).to(torch.float64)
        last, first = float(values[cut.left].max()), float(values[~cut.left].min())
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
