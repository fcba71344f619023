"""Search for the best test ``low < x <= high`` of a node, used by Kernel ExKMC and Kernel Expand.

Let the points inside an interval have label p and those outside label q. Their total cost is the cost of all
points under q, plus the sum over the interval of the difference between the costs under p and q. Finding the best
interval is therefore a minimum-subarray problem over the codes of a column. It needs one pass over the codes,
while trying all pairs of thresholds would need as many passes as there are codes. Costs are rounded such that all
sums are exact, and so are ties.
"""

from __future__ import annotations

from itertools import pairwise
from math import inf, nan
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from neonxc.rules.intervals import Intervals
from neonxc.trees.cuts.nodes import Cut, Node, between

if TYPE_CHECKING:
    from neonxc.trees.fit.problem import Problem

CACHED = 1 << 16  # entries of a temporary array, so that it fits into a core's cache


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


def best_interval(left: Tensor, total: Tensor, present: Tensor, floors: Tensor) -> BestInterval | None:
    """Find the interval of a column, and the labels inside and outside of it, with the lowest cost.

    Parameters
    ----------
    left : Tensor [m, f, bins] of float64
        Cost under each of m labels of the points whose code is at most b; the last entry is the sum over all
        points.
    total : Tensor [m] of float64
        Cost of all points of the node under each label.
    present : Tensor [f, bins] of bool
        Codes that occur among the points of the node. Intervals begin and end at these codes, so that every
        division of the points is tried only once.
    floors : Tensor [m, m] of float64
        Lower bounds of the costs of all tests with two given labels; pairs that cannot win are skipped.

    Returns
    -------
    BestInterval or None
        Ties go to the lowest column, then to the lowest a, b, p and q in this order. None if no interval contains
        some but not all of the points, or if there are fewer than two labels.

    Examples
    --------
    Points with codes 0, 0, 1, 2, 3 have labels 0, 0, 1, 1, 0, and cost 1 under the other label:

    >>> import torch
    >>> from neonxc.trees.cuts.intervals import best_interval
    >>> left = torch.tensor([[[0, 1, 2, 2]], [[2, 2, 2, 3]]], dtype=torch.float64)
    >>> best_interval(left, left[:, 0, -1], torch.ones(1, 4, dtype=torch.bool), torch.zeros(2, 2))
    BestInterval(cost=0.0, column=0, a=0, b=2, p=1, q=0)
    """
    m, f, bins = left.shape
    # An interval up to the last code is equivalent to the interval before it with exchanged labels
    places = present.cumsum(1)
    ends = present & (places < places[:, -1:])
    pairs = torch.triu_indices(m, m, 1, device=left.device)
    floor, order = floors[tuple(pairs)].sort(stable=True)
    pairs = pairs[:, order]
    costs = left.new_full((len(order), f), inf)
    least = inf
    several = max(1, CACHED // (f * bins))
    for at in (0, *range(1, len(order), several)) if m > 1 else ():
        if floor[at] > least:
            break
        part = slice(at, at + several if at else 1)  # the cost of the most promising pair excludes many others
        costs[part] = _least(left, total, ~ends, *pairs[:, part])
        least = float(costs.min())
    if least == inf:
        return None
    tied = costs == least
    column = int(tied.any(0).to(torch.uint8).argmax())
    tied_pairs = pairs[:, tied[:, column]]
    p, q = torch.cat([tied_pairs, tied_pairs.flip(0)], 1)
    codes = ends[column].nonzero()[:, 0]
    own = left[:, column].index_select(1, codes)
    difference = pad(own[p] - own[q], (1, 0))  # [pairs, places]; place 0 is before the first code
    later = difference[:, 1:].flip(1).cummin(1).values.flip(1)
    found = (total[q][:, None] + (later - difference[:, :-1]) == least).any(0)
    a = int(found.to(torch.uint8).argmax())
    hits = total[q][:, None] + (difference[:, a + 1 :] - difference[:, a : a + 1]) == least
    pair, ends_at = hits.nonzero().T
    b, inside, outside = min(torch.stack([a + ends_at, p[pair], q[pair]], 1).tolist())
    return BestInterval(least, column, int(codes[a - 1]) if a else -1, int(codes[b]), inside, outside)


def _least(left: Tensor, total: Tensor, never: Tensor, p: Tensor, q: Tensor) -> Tensor:
    """Lowest cost [pairs, f] of the tests with the given pairs of labels, with either label inside.

    With prefix sums S of the cost differences, the lowest cost is the minimum over ``a < b`` of ``S_b - S_a``, and
    with exchanged labels that of ``-S``. The prefix sum before the first code is 0.
    """
    sums = left.index_select(0, p) - left.index_select(0, q)  # [pairs, f, bins]
    low = sums.masked_fill(never, inf)
    high = sums.masked_fill(never, -inf)
    fall = (low - pad(high.cummax(-1).values[..., :-1], (1, 0), value=-inf).clamp_(min=0)).amin(-1)
    rise = (high - pad(low.cummin(-1).values[..., :-1], (1, 0), value=inf).clamp_(max=0)).amax(-1)
    return torch.minimum(total[q][:, None] + fall, total[p][:, None] - rise)


def pair_floors(costs: Tensor) -> Tensor:
    """Lower bounds of the costs of tests, for all pairs of labels: every point gets the better of the two labels.

    Parameters
    ----------
    costs : Tensor [m, points] of float64
        Cost of every point under every label.

    Returns
    -------
    Tensor [m, m] of float64
    """
    total = costs.sum(1)
    return (total[:, None] + total - torch.cdist(costs, costs, p=1)) / 2  # min(s, t) = (s + t - |s - t|) / 2


class IntervalSearch:
    """Finds the interval of lowest cost when the points inside it get one label and the points outside another.

    It has the interface :class:`~neonxc.trees.cuts.growth.Splits` for best-first growth. The costs are the
    problem's distances.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def _costs(self, node: Node) -> Tensor:
        """Cost of every point of a node under each label, [k, points]."""
        if node.state is None:
            distances = self.problem.distances.index_select(0, node.rows).T.contiguous()
            node.state = self.problem.weighted(distances, node.rows)
        costs: Tensor = node.state
        return costs

    def bound(self, node: Node) -> float:
        """Gain if every point got its best label, an upper bound."""
        return self._gain(node, float(self._costs(node).amin(0).sum()))

    def gain(self, node: Node, best: BestInterval) -> float:
        """Decrease of the node's cost."""
        return self._gain(node, best.cost)

    def _gain(self, node: Node, cost: float) -> float:
        gain = float(self._costs(node).sum(1).min()) - cost
        return gain if gain > 0 else -inf

    def best(self, node: Node) -> BestInterval | None:
        """The interval of lowest cost; ties go to the lowest column, then to the lowest bounds."""
        costs = self._costs(node)
        found = []
        total = costs.sum(1)
        floors = pair_floors(costs)
        for part in self.problem.columns.chunks(self.problem, node, self.problem.k):
            left = part.channels(node.rows, costs).movedim(1, 0).cumsum(2)
            best = best_interval(left, total, part.counts(node.rows)[:, 0] > 0, floors)
            if best is not None:
                a, b = (-1 if end < 0 else part.code(best.column, end) for end in (best.a, best.b))
                found.append(best._replace(column=int(part.features[best.column]), a=a, b=b))
        return min(found, default=None)

    def cut(self, node: Node, best: BestInterval) -> Cut:
        """The cut of an interval; it is a threshold if the interval has no lower bound."""
        codes = self.problem.columns.column(best.column).index_select(0, node.rows).to(torch.int64)  # signed
        inside = (codes > best.a) & (codes <= best.b)
        return cut_from_sides(self.problem, node, best.column, inside, node.centers.bool())[0]

    def split(self, node: Node, cut: Cut, children: tuple[Node, Node]) -> None:
        """Drop the node's costs; nothing is passed on to the children."""
        node.state = None


def cut_from_sides(
    problem: Problem, node: Node, feature: int, left: Tensor, centers_left: Tensor
) -> tuple[Cut, bool]:
    """Express a division of a node's points and centers as a threshold or as intervals of a column.

    Returns
    -------
    cut : Cut
    swapped : bool
        Whether left and right were exchanged, because the points on the right are in fewer intervals.
    """
    intervals, swapped = intervals_of(left, problem.table.column(feature, node.rows))
    sides = (~left, ~centers_left) if swapped else (left, centers_left)
    if intervals[0][0] == -inf and len(intervals) == 1:
        return Cut(feature, -1, intervals[0][1], *sides), swapped
    return Cut(feature, -1, nan, *sides, intervals), swapped


def intervals_of(left: Tensor, values: Tensor) -> tuple[Intervals, bool]:
    """Express a division of points as intervals ``low < x <= high`` of a raw column.

    Parameters
    ----------
    left : Tensor [n] of bool
        Which points go left; points with equal values go the same way.
    values : Tensor [n]
        The raw column.

    Returns
    -------
    intervals : tuple of (float, float)
        Intervals in ascending order. They contain the side that needs fewer intervals or, if both need equally
        many, the side with the smallest value. A threshold is therefore one interval that begins at -inf. Finite
        bounds are midway between adjacent values.
    swapped : bool
        Whether the intervals contain the points that go right.

    Examples
    --------
    >>> import torch
    >>> from neonxc.trees.cuts.intervals import intervals_of
    >>> intervals_of(torch.tensor([True, False, False, True]), torch.tensor([1, 2, 4, 8]))
    (((1.5, 6.0),), True)
    """
    ordered, order = values.sort()
    side = left[order]
    before = (side[1:] != side[:-1]).nonzero()[:, 0]  # where a run of points on one side ends
    if not len(before):  # all points are on one side: place a threshold beyond them
        beyond = 1 + 2 * max(values.double().abs().tolist(), default=0.0)
        return ((-inf, beyond if bool(left.all()) else -beyond),), False
    ends = zip(ordered[before].tolist(), ordered[before + 1].tolist(), strict=True)
    bounds = [between(float(low), float(high), values.dtype) for low, high in ends]
    runs = tuple(pairwise([-inf, *bounds, inf]))
    odd = len(runs) % 2 == 1  # then the runs that the second one begins are fewer
    return runs[odd::2], bool(side[0]) == odd
