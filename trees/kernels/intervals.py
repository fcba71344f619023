"""Search for the best test ``low < x <= high`` of a node, used by Kernel ExKMC and Kernel Expand.

Let the points inside an interval have label p and those outside label q. Their total cost is the cost of all
points under q, plus the sum over the interval of the difference between the costs under p and q. Finding the best
interval is therefore a minimum-subarray problem over the codes of a column. It needs one pass over the codes,
while trying all pairs of thresholds would need as many passes as there are codes.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import NamedTuple

import torch
from torch import Tensor

import neonxc.trees.columns.sums as sums
from neonxc.rules.intervals import Intervals
from neonxc.trees.coding.exact import rounded
from neonxc.trees.coding.midpoints import between
from neonxc.trees.problem import Cut, Node, Problem

CACHED = 1 << 16  # entries of a temporary array on a CPU, so that it fits into a core's cache
BUDGET = 1 << 24  # entries of a temporary array on other devices


class BestInterval(NamedTuple):
    """An interval of codes, and the labels on its two sides.

    Attributes
    ----------
    cost : float
        Cost of the node's points under label `p` inside and label `q` outside.
    column : int
    a, b : int
        Codes with ``a < code <= b`` are inside. `a` is -1 if the interval has no lower bound, which is the form of
        every test that a single threshold can express.
    p, q : int
        Labels inside and outside.
    """

    cost: float
    column: int
    a: int
    b: int
    p: int
    q: int


def best_interval(
    left: Tensor, total: Tensor, codes_present: Tensor, slack: float = 0.0, floors: Tensor | None = None
) -> BestInterval | None:
    """Find the interval of a column, and the labels inside and outside of it, with the lowest cost.

    Kernel ExKMC and Kernel Expand [1]_ split nodes by such tests. In Kernel ExKMC, the cost of a point is
    ``‖Φ(x) − μ_label‖²``; in Kernel Expand, it is the point's weight for every label except its own.

    Parameters
    ----------
    left : Tensor [m, f, bins] of float64
        Cost under each of m labels of the points whose code is at most b; the last entry is the sum over all
        points.
    total : Tensor [m] of float64
        Cost of all points of the node under each label.
    codes_present : Tensor [f, bins] of bool
        Codes that occur among the points of the node. Intervals begin and end at these codes, so that every
        division of the points is tried only once.
    slack : float, default=0
        Costs up to `slack` above the lowest one are ties.
    floors : Tensor [m, m] of float64, optional
        Lower bounds of the costs of all tests with two given labels, with an error of at most `slack`, such as
        :func:`pair_floors`. They do not change the result, but pairs of labels that cannot win are skipped.

    Returns
    -------
    BestInterval or None
        Ties go to the lowest column, then to the lowest a, b, p and q in this order. None if no interval contains
        some but not all of the points, or if there are fewer than two labels.

    Notes
    -----
    The time is proportional to ``f bins`` for every pair of labels that is not skipped.

    References
    ----------
    .. [1] M. Fleissner, L. C. Vankadara, D. Ghoshdastidar, "Explaining kernel clustering via decision trees", ICLR
       2024.

    Examples
    --------
    Points with codes 0, 0, 1, 2, 3 have labels 0, 0, 1, 1, 0, and cost 1 under the other label:

    >>> import torch
    >>> from neonxc.trees.kernels.intervals import best_interval
    >>> left = torch.tensor([[[0, 1, 2, 2]], [[2, 2, 2, 3]]], dtype=torch.float64)
    >>> best_interval(left, left[:, 0, -1], torch.ones(1, 4, dtype=torch.bool))
    BestInterval(cost=0.0, column=0, a=0, b=2, p=1, q=0)
    """
    m, f, bins = left.shape
    if m < 2 or f == 0 or bins < 2:
        return None
    # An interval up to the last code is equivalent to the interval before it with exchanged labels
    places = codes_present.cumsum(1)
    ends = codes_present & (places < places[:, -1:])
    least = _least_costs(left, total, ends, slack, floors)
    bound = float(least.min()) + slack
    if bound == float("inf"):
        return None
    column = int((least <= bound).nonzero()[0])
    codes = ends[column].nonzero()[:, 0]
    return _first(left[:, column].index_select(1, codes).T, total, codes, column, bound)


def pair_floors(costs: Tensor) -> Tensor:
    """Lower bounds of the costs of tests, for all pairs of labels: every point gets the better of the two labels.

    Parameters
    ----------
    costs : Tensor [points, m] of float64
        Cost of every point under every label.

    Returns
    -------
    Tensor [m, m] of float64
        Symmetric. The diagonal has the cost of all points under one label.
    """
    m = costs.shape[1]
    total = costs.sum(0)
    apart = costs.new_zeros(m, m)
    first, second = torch.triu_indices(m, m, 1, device=costs.device)
    apart[first, second] = apart[second, first] = torch.pdist(costs.T.contiguous(), p=1)
    return (total[:, None] + total - apart) / 2  # min(s, t) = (s + t - |s - t|) / 2


def _least_costs(left: Tensor, total: Tensor, ends: Tensor, slack: float, floors: Tensor | None) -> Tensor:
    """Lowest cost of the tests of every column, [f]; infinite for columns without a test that can win."""
    m, f, bins = left.shape
    first, second = torch.triu_indices(m, m, 1, device=left.device)
    floor = left.new_full((m, m), -torch.inf) if floors is None else floors
    floor, order = floor[first, second].sort(stable=True)
    first, second = first[order], second[order]
    least = left.new_full((f,), torch.inf)
    budget = CACHED if left.device.type == "cpu" else BUDGET
    width = max(1, min(f, budget // bins))
    several = max(1, budget // (width * bins))
    at, stop = 0, len(first)
    while at < stop:
        # The most promising pair is evaluated first, because its cost excludes many others
        pairs = slice(at, min(stop, at + several) if at else 1)
        for start in range(0, f, width):
            part = slice(start, start + width)
            cost = _least(left[:, part], total, ~ends[part], first[pairs], second[pairs])
            torch.minimum(least[part], cost, out=least[part])
        at = pairs.stop
        stop = int((floor <= float(least.min()) + 2 * slack).sum())
    return least


def _least(left: Tensor, total: Tensor, never: Tensor, p: Tensor, q: Tensor) -> Tensor:
    """Lowest cost [f] of the tests with the given pairs of labels, with either label inside.

    With prefix sums S of the cost differences, the lowest cost is the minimum over ``a < b`` of ``S_b - S_a``, and
    with exchanged labels that of ``-S``.
    """
    sums = left.index_select(0, p) - left.index_select(0, q)  # [pairs, f, bins]
    low, high = sums.masked_fill(never, torch.inf), sums.masked_fill(never, -torch.inf)
    fall = (low[..., 1:] - high.cummax(-1).values[..., :-1]).amin(-1)
    rise = (high[..., 1:] - low.cummin(-1).values[..., :-1]).amax(-1)
    # The prefix sum before the first code is 0
    fall, rise = torch.minimum(fall, low.amin(-1)), torch.maximum(rise, high.amax(-1))
    return torch.minimum(total[q][:, None] + fall, total[p][:, None] - rise).amin(0)


def _first(sums: Tensor, total: Tensor, codes: Tensor, column: int, bound: float) -> BestInterval:
    """The first test of a column with a cost of at most `bound`, in the order of a, b, p and q.

    Parameters
    ----------
    sums : Tensor [count, m]
        Prefix sums of the column's costs at the codes where a test may end.
    codes : Tensor [count] of int64
        These codes.
    """
    sums = torch.cat([sums.new_zeros(1, sums.shape[1]), sums])  # position 0 is before the first code
    places, m = sums.shape
    found = []
    for inside in torch.arange(m, device=sums.device).split(max(1, BUDGET // (places * m))):
        difference = sums[:, inside, None] - sums[:, None]  # [places, p, q]
        outside = total.repeat(len(inside), 1)
        outside[torch.arange(len(inside)), inside] = torch.inf  # the two labels must differ
        later = difference[1:].flip(0).cummin(0).values.flip(0)
        begins = (outside + (later - difference[:-1]) <= bound).flatten(1).any(1).nonzero()[:1, 0].tolist()
        for a in begins:
            cost = outside + (difference[a + 1 :] - difference[a])
            b, p, q = (cost <= bound).nonzero()[0].tolist()
            found.append((a, a + 1 + b, int(inside[p]), q, float(cost[b, p, q])))
    a, b, p, q, least = min(found)
    return BestInterval(least, column, int(codes[a - 1]) if a else -1, int(codes[b - 1]), p, q)


@dataclass(frozen=True)
class LabelCosts:
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

    def _state(self, node: Node) -> LabelCosts:
        if not node.opened:
            costs = self.costs.index_select(0, node.rows)
            total = costs.sum(0)
            slack = 4 * (node.n + 1) * torch.finfo(torch.float64).eps * float(costs.amax(1).sum() if node.n else 0)
            node.state, node.opened = LabelCosts(costs, total, slack), True
        state: LabelCosts = node.state
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


def intervals_of(left: Tensor, values: Tensor) -> tuple[Intervals, bool]:
    """Express a division of points as intervals ``low < x <= high`` of a raw column.

    Parameters
    ----------
    left : Tensor [n] of bool
        Which points go left.
    values : Tensor [n]
        The raw column.

    Returns
    -------
    intervals : tuple of (float, float)
        One or two intervals in ascending order. They contain the side that needs fewer intervals or, if both need
        equally many, the side with the smallest value. A threshold is therefore one interval that begins at -inf.
        Finite bounds are midway between adjacent values.
    swapped : bool
        Whether the intervals contain the points that go right.

    Raises
    ------
    ValueError
        If both sides need more than two intervals.

    Examples
    --------
    >>> import torch
    >>> from neonxc.trees.kernels.intervals import intervals_of
    >>> intervals_of(torch.tensor([True, False, False, True]), torch.tensor([1, 2, 4, 8]))
    (((1.5, 6.0),), True)
    """
    if len(values) == 0:
        return ((-inf, 0.0),), False
    ordered, order = values.sort()
    side = left[order]
    before = (side[1:] != side[:-1]).nonzero()[:, 0]  # where a run of points on one side ends
    lows, highs = ordered[before].tolist(), ordered[before + 1].tolist()
    bounds = [between(float(low), float(high), values.dtype) for low, high in zip(lows, highs, strict=True)]
    if not bounds:  # all points are on one side: place a threshold beyond them
        end, sign = (ordered[-1], 1) if side[0] else (ordered[0], -1)
        return ((-inf, float(end) + sign * max(1.0, abs(float(end)))),), False
    runs = list(pairwise([-inf, *bounds, inf]))
    least, other = tuple(runs[::2]), tuple(runs[1::2])
    swapped, intervals = (not bool(side[0]), least) if len(least) <= len(other) else (bool(side[0]), other)
    if len(intervals) > 2:
        raise ValueError(f"left needs a side with at most two intervals, got {len(least)} and {len(other)}")
    return intervals, swapped
