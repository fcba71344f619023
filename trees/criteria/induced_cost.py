"""What a cut costs if every point goes to the nearest center left on its side: ExGreedy and ExShallow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from neonxc.trees.criterion import Criterion, Cuts
from neonxc.trees.depth import estimated_depth
from neonxc.trees.problem import Node, Problem
from neonxc.trees.statistics import PartedFrom, Points, Statistic

ROWS = 1 << 18  # points that copies are made of at once


@dataclass
class State:
    """What the points of a node cost.

    Attributes
    ----------
    distances : Tensor [centers, points]
    total : float
        Their cost at their nearest centers.
    extent : float
        Their cost at their farthest centers.
    parted : PartedFrom
        What each point costs more at its second nearest center than at its nearest, where these are parted.
    scale : float
        What a cost is multiplied by in a score.
    used : Tensor [2, d] or None
        Whether tests before go to the left, or to the right, in a column.
    """

    distances: Tensor
    total: float
    extent: float
    parted: PartedFrom
    scale: float
    used: Tensor | None = None


class InducedCost(Criterion):
    """The least induced cost: ExGreedy.

    Parameters
    ----------
    problem : Problem

    Notes
    -----
    With a point's distances to the node's centers sorted, ``D_1 <= D_2 <= ...``, a cut that leaves it none of its
    r nearest centers costs it at least ``D_(r+1) - D_1``. For r = 1 that is a weighted count of points cut from
    their nearest center: one sweep bounds the cost of all cuts from below, and the few cuts whose bound is not
    above the best cost found are computed in full.

    References
    ----------
    .. [1] E. Laber, L. Murtinho, "On the price of explainability for some clustering problems", ICML 2021.
    """

    coarse = True

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.by_center = problem.distances.T.contiguous()

    def open(self, node: Node) -> State:
        """Distances of the node's points to its centers, and what they cost now."""
        distances = self._distances(node)
        found = [_nearest(part) for part in distances.split(ROWS, dim=1)]
        current, nearest, gap, farthest = (torch.cat(parts) for parts in zip(*found, strict=True))
        if self.problem.weight is not None:
            gap, current, farthest = self.problem.weighted(torch.stack([gap, current, farthest]), node.rows)
        total, extent = self.problem.reduce(torch.stack([current.sum(), farthest.sum()])).tolist()
        return State(distances, total, extent, PartedFrom(node.centers, nearest, gap), 1.0)

    def statistics(self, node: Node) -> Sequence[Statistic]:
        """The cost of the points that are parted from their nearest center."""
        return (node.state.parted,)

    @property
    def stages(self) -> Sequence[Callable[[Node, Cuts], Tensor]]:
        """The bound, and the cost."""
        return self.least_cost, self.score

    def size(self, node: Node) -> float:
        """The greatest cost there is."""
        extent: float = node.state.extent
        return extent

    def least_cost(self, node: Node, cuts: Cuts) -> Tensor:
        """Every point that is parted from its nearest center at the second nearest."""
        return node.state.total + cuts.left[0]

    def within(self, node: Node, least: Tensor, feature: Tensor) -> Tensor:
        """The same, of the points that every cut of a bin parts."""
        total: float = node.state.total
        return total + least[0]

    def score(self, node: Node, cuts: Cuts) -> Tensor:
        """Every point at the nearest center on its side."""
        state: State = node.state
        parts, which = torch.unique(cuts.sides(), dim=0, return_inverse=True)
        on_left, on_right = _least(state.distances, torch.cat([parts, ~parts])).chunk(2)
        change = self.problem.weighted(on_left - on_right, node.rows, state.extent)
        everything = self.problem.reduce(self.problem.weighted(on_right, node.rows, state.extent).sum(1))
        return everything[which] + cuts.sum_left(change, which, True)

    def _distances(self, node: Node) -> Tensor:
        """Distances of the node's points to its centers, [centers, points]."""
        k, n = self.by_center.shape
        if len(node.rows) == n and len(node.centers) == k:
            return self.by_center
        if len(node.centers) * n < k * len(node.rows):
            return self.by_center.index_select(0, node.centers).index_select(1, node.rows)
        return self.by_center.index_select(1, node.rows).index_select(0, node.centers)


def _nearest(distances: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The least distance of points, [centers, points], its center, how much more the next is, and the greatest."""
    current, nearest = distances.min(0)
    gap = distances.scatter(0, nearest[None], torch.inf).amin(0) - current
    return current, nearest, gap, distances.amax(0)


class PriceAndDepth(InducedCost):
    """The least ratio of induced to current cost, plus an estimate of the depth below a cut: ExShallow.

    Parameters
    ----------
    problem : Problem
    depth_factor : float
        Cost ratio that one test less is worth.

    References
    ----------
    .. [1] E. S. Laber, L. Murtinho, F. Oliveira, "Shallow decision trees for explainable k-means clustering",
       Pattern Recognition, 2023, Eqs. 4 to 7.
    """

    def __init__(self, problem: Problem, depth_factor: float) -> None:
        super().__init__(problem)
        self.depth_factor = depth_factor
        self.points = Points(problem)
        # The estimate of depth counts whole points: the lightest one is the unit
        self.unit = 1.0 if problem.weight is None else min(1.0, problem.least(problem.weight))

    def open(self, node: Node) -> State:
        """As for the induced cost; ratios are costs where every point lies on a center."""
        state = super().open(node)
        rounding = 4 * (node.n + 1) * torch.finfo(torch.float64).eps * state.extent
        state.scale = 1 / state.total if state.total > rounding else 1.0
        state.used = self._used(node)
        return state

    def statistics(self, node: Node) -> Sequence[Statistic]:
        """The cost of the points that are parted from their nearest center; points."""
        return node.state.parted, self.points

    @property
    def stages(self) -> Sequence[Callable[[Node, Cuts], Tensor]]:
        """The cost bounded, and the depth as well; then the depth in full; then the cost."""
        return self.floor, self.least_price, self.score

    def size(self, node: Node) -> float:
        """The greatest ratio of costs, and the greatest depth."""
        return float(node.state.scale * node.state.extent + self.depth_factor * len(node.centers))

    def floor(self, node: Node, cuts: Cuts) -> Tensor:
        """The depth is at least one, and an earlier test that becomes redundant saves at most one."""
        return self._price(node, cuts) + self.depth_factor * self._least_depth(node, cuts.feature)

    def least_price(self, node: Node, cuts: Cuts) -> Tensor:
        """The same with the estimate of depth."""
        return self._price(node, cuts) + self.depth_factor * self._depth(node, cuts)

    def within(self, node: Node, least: Tensor, feature: Tensor) -> Tensor:
        """As :meth:`floor`."""
        price = super().within(node, least, feature) * node.state.scale
        return price + self.depth_factor * self._least_depth(node, feature)

    def score(self, node: Node, cuts: Cuts) -> Tensor:
        """Price plus depth, which the bound of the stage before has: only the price was too low."""
        assert cuts.bound is not None
        return cuts.bound + super().score(node, cuts) * node.state.scale - self._price(node, cuts)

    def _price(self, node: Node, cuts: Cuts) -> Tensor:
        return self.least_cost(node, cuts) * node.state.scale

    def _least_depth(self, node: Node, feature: Tensor) -> Tensor:
        return min(node.n, 1) - node.state.used.amax(0)[feature]

    def _depth(self, node: Node, cuts: Cuts) -> Tensor:
        """Depth below a cut, less the share of points for which it makes an earlier test redundant."""
        assert cuts.mass_left is not None
        points_left = cuts.mass_left.to(torch.float64)
        share = points_left / max(node.mass, torch.finfo(torch.float64).tiny)
        used = node.state.used[:, cuts.feature]
        saved = used[0] * share + used[1] * (1 - share)
        whole = round(node.mass / self.unit, 9)
        points_left = (points_left / self.unit).round(decimals=9)
        return estimated_depth(points_left, cuts.centers_left, whole, len(node.centers)) - saved

    def _used(self, node: Node) -> Tensor:
        """Whether the tests before go to the left, or to the right, in a column, [2, d]."""
        used = torch.zeros(2, self.problem.table.d, dtype=torch.float64)
        if node.sides:
            columns, left = zip(*node.sides, strict=True)
            used[[0 if side else 1 for side in left], list(columns)] = 1
        used = used.to(self.problem.device)
        return used if self.problem.mixed is None else used[:, list(self.problem.same)]


def _least(distances: Tensor, parts: Tensor) -> Tensor:
    """Distances [centers, points] to the nearest center of some parts [parts, centers], [parts, points]."""
    centers = parts.nonzero()[:, 1].split(parts.sum(1).tolist())
    return torch.stack([distances.index_select(0, own).amin(0) for own in centers])
