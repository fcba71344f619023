"""Points that a cut separates from their centers, and their cost: criteria of IMM, EMN, ExGreedy and ExShallow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from neonxc.trees.criteria.criterion import Criterion
from neonxc.trees.criteria.depth import estimated_depth
from neonxc.trees.criteria.sums import Separated, Sum, of_centers, parted_from, points
from neonxc.trees.cuts.cuts import Cuts
from neonxc.trees.cuts.histograms import gathered
from neonxc.trees.cuts.nodes import Cut, Node
from neonxc.trees.fit.problem import Problem


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
        self.separated = Separated(problem)

    def sums(self, node: Node) -> Sequence[Sum]:
        """Number of points that are separated from their centers."""
        return (self.separated.sum(node, node.state),)

    def open(self, node: Node) -> Tensor:
        """The points outside of the node whose centers are in it; none at the root."""
        lost: Tensor = node.rows[:0] if node.state is None else node.state
        return lost

    def split(self, node: Node, cut: Cut, children: tuple[Node, Node]) -> None:
        """Add the points of the other side to those that a child has lost."""
        for child, other in zip(children, reversed(children), strict=True):
            if len(child.centers) > 1:  # otherwise it is a leaf
                child.state = of_centers(self.problem, torch.cat([node.state, other.rows]), child.centers)
        node.state = None

    def score(self, node: Node, cuts: Cuts) -> Tensor:
        """Number of mistakes, or the ratio of EMN."""
        if not self.shared:
            return cuts.left[0]
        return cuts.left[0] / torch.minimum(cuts.centers_left, len(node.centers) - cuts.centers_left)

    def within(self, node: Node, least: Tensor, feature: Tensor) -> Tensor:
        """Least number of mistakes; for EMN, divided by the most centers that the smaller side can have."""
        return least[0] / (len(node.centers) // 2 if self.shared else 1)


ROWS = 1 << 18  # number of points that are processed at a time, which limits temporary copies


@dataclass
class NodeCosts:
    """Costs of the points of a node.

    Attributes
    ----------
    distances : Tensor [centers, points]
        Distances of the points to the node's centers.
    total : float
        Cost of the points at their nearest centers.
    extent : float
        Cost of the points at their farthest centers.
    parted : Sum
        Difference between the distances to the second nearest and the nearest center, summed over the points that
        a cut separates from their nearest center.
    scale : float
        Factor by which costs are multiplied in a score.
    used : Tensor [2, d] or None
        Whether the path to the node goes left (right) at a test of the column.
    """

    distances: Tensor
    total: float
    extent: float
    parted: Sum
    scale: float
    used: Tensor | None = None


class InducedCost(Criterion):
    """Cost of the points when each moves to the nearest center on its side of the cut (ExGreedy).

    Parameters
    ----------
    problem : Problem

    Notes
    -----
    Let ``D_1 <= D_2 <= ...`` be the sorted distances of a point to the node's centers. A cut that separates the
    point from its r nearest centers increases its cost by at least ``D_(r+1) - D_1``. For r = 1, the sum of these
    increases is a weighted count of the points separated from their nearest center. This bounds the costs of all
    cuts from below, and the exact cost is only computed for the few cuts whose bound does not exceed the lowest
    cost found so far.

    References
    ----------
    .. [1] E. Laber, L. Murtinho, "On the price of explainability for some clustering problems", ICML 2021.
    """

    coarse = True

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.by_center = problem.distances.T.contiguous()

    def open(self, node: Node) -> NodeCosts:
        """Distances of the node's points to its centers, and their current cost."""
        distances = self._distances(node)
        found = [_nearest(part) for part in distances.split(ROWS, dim=1)]
        current, nearest, gap, farthest = (torch.cat(parts) for parts in zip(*found, strict=True))
        if self.problem.weight is not None:
            gap, current, farthest = self.problem.weighted(torch.stack([gap, current, farthest]), node.rows)
        total, extent = self.problem.reduce(torch.stack([current.sum(), farthest.sum()])).tolist()
        return NodeCosts(distances, total, extent, parted_from(node, nearest, gap), 1.0)

    def sums(self, node: Node) -> Sequence[Sum]:
        """Additional cost of the points that are separated from their nearest center."""
        return (node.state.parted,)

    @property
    def stages(self) -> Sequence[Callable[[Node, Cuts], Tensor]]:
        """The lower bound, then the cost."""
        return self.least_cost, self.score

    def size(self, node: Node) -> float:
        """Cost of the points at their farthest centers."""
        return float(node.state.extent)

    def least_cost(self, node: Node, cuts: Cuts) -> Tensor:
        """Lower bound: points that are separated from their nearest center move to the second nearest."""
        return node.state.total + cuts.left[0]

    def within(self, node: Node, least: Tensor, feature: Tensor) -> Tensor:
        """The same bound with the points that all cuts inside a coarse code separate."""
        found: Tensor = node.state.total + least[0]
        return found

    def score(self, node: Node, cuts: Cuts) -> Tensor:
        """Cost with every point at the nearest center on its side."""
        state: NodeCosts = node.state
        parts, which = torch.unique(cuts.sides(), dim=0, return_inverse=True)
        on_left, on_right = _least(state.distances, torch.cat([parts, ~parts])).chunk(2)
        change = self.problem.weighted(on_left - on_right, node.rows, state.extent)
        everything = self.problem.reduce(self.problem.weighted(on_right, node.rows, state.extent).sum(1))
        return everything[which] + cuts.sum_left(change, which, True)

    def _distances(self, node: Node) -> Tensor:
        """Distances of the node's points to its centers, [centers, points]."""
        k, n = self.by_center.shape
        if len(node.centers) * n < k * len(node.rows):
            return gathered(self.by_center.index_select(0, node.centers), node.rows)
        every = gathered(self.by_center, node.rows)
        return every if len(node.centers) == k else every.index_select(0, node.centers)


def _nearest(distances: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Distance to the nearest center, that center, the gap to the second nearest, and the largest distance."""
    current, nearest = distances.min(0)
    gap = distances.scatter(0, nearest[None], torch.inf).amin(0) - current
    return current, nearest, gap, distances.amax(0)


class CostAndDepth(InducedCost):
    """Ratio of the cost after a cut to the cost before it, plus a penalty for depth (ExShallow).

    Parameters
    ----------
    problem : Problem
    depth_factor : float
        Weight of the estimated depth below the cut.

    References
    ----------
    .. [1] E. S. Laber, L. Murtinho, F. Oliveira, "Shallow decision trees for explainable k-means clustering",
       Pattern Recognition, 2023, Eqs. 4 to 7.
    """

    def __init__(self, problem: Problem, depth_factor: float) -> None:
        super().__init__(problem)
        self.depth_factor = depth_factor
        # The depth estimate needs a number of points: weights are divided by the smallest one
        self.unit = 1.0 if problem.weight is None else min(1.0, problem.least(problem.weight))

    def open(self, node: Node) -> NodeCosts:
        """As for the induced cost. If every point lies on a center, costs are used instead of ratios."""
        state = super().open(node)
        state.scale = 1 / state.total if state.total > node.rounding(state.extent) else 1.0
        state.used = self._used(node)
        return state

    def sums(self, node: Node) -> Sequence[Sum]:
        """Additional cost of the points that are separated from their nearest center, and number of points."""
        return node.state.parted, points(self.problem, node)

    @property
    def stages(self) -> Sequence[Callable[[Node, Cuts], Tensor]]:
        """Bounds of cost and depth; then the bound of the cost with the estimated depth; then the score."""
        return self.floor, self.least_cost_and_depth, self.score

    def size(self, node: Node) -> float:
        """Largest possible cost ratio plus the largest possible depth penalty."""
        return float(node.state.scale * node.state.extent + self.depth_factor * len(node.centers))

    def floor(self, node: Node, cuts: Cuts) -> Tensor:
        """Lower bound: the cut adds one level, and makes at most one earlier test redundant."""
        return self._least_ratio(node, cuts) + self.depth_factor * self._least_depth(node, cuts.feature)

    def least_cost_and_depth(self, node: Node, cuts: Cuts) -> Tensor:
        """Lower bound with the estimated depth."""
        return self._least_ratio(node, cuts) + self.depth_factor * self._depth(node, cuts)

    def within(self, node: Node, least: Tensor, feature: Tensor) -> Tensor:
        """The bound of :meth:`floor` for all cuts inside a coarse code."""
        ratio = super().within(node, least, feature) * node.state.scale
        return ratio + self.depth_factor * self._least_depth(node, feature)

    def score(self, node: Node, cuts: Cuts) -> Tensor:
        """Replace the bound of the cost ratio, which is part of the previous stage, by the ratio itself."""
        assert cuts.bound is not None
        return cuts.bound + super().score(node, cuts) * node.state.scale - self._least_ratio(node, cuts)

    def _least_ratio(self, node: Node, cuts: Cuts) -> Tensor:
        return self.least_cost(node, cuts) * node.state.scale

    def _least_depth(self, node: Node, feature: Tensor) -> Tensor:
        return min(node.n, 1) - node.state.used.amax(0)[feature]

    def _depth(self, node: Node, cuts: Cuts) -> Tensor:
        """Estimated depth below a cut, minus the share of points for which an earlier test becomes redundant."""
        assert cuts.mass_left is not None
        points_left = cuts.mass_left.to(torch.float64)
        share = points_left / max(node.mass, torch.finfo(torch.float64).tiny)
        used = node.state.used[:, cuts.feature]
        saved = used[0] * share + used[1] * (1 - share)
        whole = round(node.mass / self.unit, 9)
        points_left = (points_left / self.unit).round(decimals=9)
        return estimated_depth(points_left, cuts.centers_left, whole, len(node.centers)) - saved

    def _used(self, node: Node) -> Tensor:
        """Whether the path to the node goes left (row 0) or right (row 1) at a test of each column, [2, d]."""
        used = torch.zeros(2, self.problem.table.d, dtype=torch.float64)
        if node.sides:
            columns, left = zip(*node.sides, strict=True)
            used[[0 if side else 1 for side in left], list(columns)] = 1
        used = used.to(self.problem.device)
        return used if self.problem.mixed is None else used[:, list(self.problem.canonical_columns)]


def _least(distances: Tensor, parts: Tensor) -> Tensor:
    """Distances to the nearest center of each subset of centers [parts, centers]; [parts, points]."""
    centers = parts.nonzero()[:, 1].split(parts.sum(1).tolist())
    found = distances.new_empty(len(parts), distances.shape[1])
    for own, least in zip(centers, found, strict=True):
        torch.amin(distances.index_select(0, own), 0, out=least)
    return found
