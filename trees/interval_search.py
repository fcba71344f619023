"""Search for the best interval test of a node, used by Kernel ExKMC and Kernel Expand."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import torch
from torch import Tensor

import neonxc.trees.sums as sums
from neonxc.trees.exact import rounded
from neonxc.trees.interval_scan import BestInterval, best_interval, pair_floors
from neonxc.trees.kernel_features import intervals_of
from neonxc.trees.node import Cut, Node
from neonxc.trees.problem import Problem


@dataclass(frozen=True)
class State:
    """Costs of a node's points under each label [points, k], their sum [k], and the rounding error of sums."""

    costs: Tensor
    total: Tensor
    slack: float


class IntervalSearch:
    """Finds the interval of lowest cost when the points inside it get one label and the points outside another.

    It has the interface :class:`~neonxc.trees.growth.Splits` for best-first growth.

    Parameters
    ----------
    problem : Problem
    costs : Tensor [n, k] of float64
        Cost of every point under each label.

    References
    ----------
    .. [1] M. Fleissner, L. C. Vankadara, D. Ghoshdastidar, "Explaining kernel clustering via decision trees", ICLR
       2024.
    """

    def __init__(self, problem: Problem, costs: Tensor) -> None:
        self.problem = problem
        self.costs = costs if problem.weight is None else costs * problem.weight[:, None]

    def bound(self, node: Node) -> float:
        """Gain if every point got its best label, an upper bound."""
        state = self._state(node)
        gain = float(state.total.min() - state.costs.amin(1).sum())
        return gain + state.slack if gain > state.slack else -inf

    def best(self, node: Node) -> BestInterval | None:
        """The interval of lowest cost; ties go to the lowest column, then to the lowest bounds."""
        state, columns = self._state(node), self.problem.dense
        floors, found = pair_floors(state.costs), None
        values = rounded(state.costs.T.contiguous())
        for codes, block in zip(columns.codes, columns.blocks, strict=True):
            step = max(1, sums.BUDGET // max(1, self.problem.k * int(columns.size[block.features].max())))
            for first in range(0, len(codes), step):
                part = slice(first, first + step)
                features = block.features[part]
                own = codes[part].index_select(1, node.rows)
                own, _, original = sums.renumber_codes(own, columns.centers[features][:, :0])
                left = sums.channels(own, original.shape[1], values).movedim(1, 0).cumsum(2)
                present = sums.histogram(own, original.shape[1], None, 1)[:, 0] > 0
                best = best_interval(left, state.total, present, state.slack, floors)
                if best is not None:
                    ends = [-1 if end < 0 else int(original[best.column, end]) for end in (best.a, best.b)]
                    best = best._replace(column=int(features[best.column]), a=ends[0], b=ends[1])
                found = self._better(found, best, state.slack)
        return found

    def gain(self, node: Node, best: BestInterval) -> float:
        """Decrease of the node's cost."""
        state = self._state(node)
        gain = float(state.total.min()) - best.cost
        return gain if gain > state.slack else -inf

    def cut(self, node: Node, best: BestInterval) -> Cut:
        """The cut of an interval; it is a threshold if the interval has no lower bound."""
        codes = self.problem.columns.column(best.column).index_select(0, node.rows).to(torch.int64)  # signed
        return cut_from_sides(self.problem, node, best.column, (codes > best.a) & (codes <= best.b))[0]

    def split(self, node: Node, cut: Cut, children: tuple[Node, Node]) -> None:
        """Drop the node's state; nothing is passed on to the children."""
        node.state = None

    def _state(self, node: Node) -> State:
        if not node.opened:
            costs = self.costs.index_select(0, node.rows)
            total = costs.sum(0)
            slack = 4 * (node.n + 1) * torch.finfo(torch.float64).eps * float(costs.amax(1).sum() if node.n else 0)
            node.state, node.opened = State(costs, total, slack), True
        state: State = node.state
        return state

    def _better(self, one: BestInterval | None, other: BestInterval | None, slack: float) -> BestInterval | None:
        if one is None or other is None:
            return other if one is None else one
        if abs(one.cost - other.cost) <= slack:
            return min(one, other, key=lambda best: best[1:])
        return min(one, other, key=lambda best: best.cost)


def cut_from_sides(
    problem: Problem, node: Node, feature: int, left: Tensor, centers_left: Tensor | None = None
) -> tuple[Cut, bool]:
    """Express a division of a node's points as a threshold or as intervals of a column.

    Parameters
    ----------
    problem : Problem
    node : Node
    feature : int
    left : Tensor [points] of bool
        Which points go left. Points with equal values go the same way.
    centers_left : Tensor [centers] of bool, optional
        Which of the node's centers go left. Default: none.

    Returns
    -------
    cut : Cut
    swapped : bool
        Whether left and right were exchanged, because the points on the right are in fewer intervals.
    """
    if centers_left is None:
        centers_left = torch.zeros_like(node.centers, dtype=torch.bool)
    intervals, swapped = intervals_of(left, problem.table.column(feature, node.rows))
    if swapped:
        left, centers_left = ~left, ~centers_left
    if len(intervals) == 1 and intervals[0][0] == -inf:
        return Cut(feature, -1, intervals[0][1], left, centers_left), swapped
    return Cut(feature, -1, float("nan"), left, centers_left, intervals), swapped
