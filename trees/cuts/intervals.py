"""Search for the best test ``low < x <= high`` of a node, used by Kernel ExKMC and Kernel Expand.

Let the points inside an interval have label p and those outside label q. With the cost C(x, p) of a point x
under label p, and the codes a and b with ``a < code <= b`` inside, the total cost is

    sum over all points of C(x, q)  +  S_b - S_a,     S_b = sum over the points with code <= b of C(x, p) - C(x,
    q).

Finding the best interval is therefore a minimum-subarray problem over the codes of a column,

    min over a < b of S_b - S_a  =  min over b of (S_b - max over a < b of S_a).

It needs one pass over the codes, while trying all pairs of thresholds would need as many passes as there are
codes. Costs are rounded such that all sums are exact, and so are ties.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import inf, nan
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from neonxc.rules.intervals import Intervals
from neonxc.trees.cuts.growth import Cut, Node, between

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
    m, f, _ = left.shape
    # An interval up to the last code is equivalent to the interval before it with exchanged labels
    rank = present.cumsum(1)
    ends = present & (rank < rank[:, -1:])

    # Costs of all pairs of labels, those of the lowest floors first, until no pair can be better
    p, q = torch.triu_indices(m, m, 1, device=left.device)
    floor, order = floors[p, q].sort(stable=True)
    p = p[order]
    q = q[order]
    costs = left.new_full((len(order), f), inf)
    lowest = inf
    for part in _pair_blocks(len(order), left[0].numel()):
        if floor[part.start] > lowest:
            break
        costs[part] = _lowest_costs(left, total, ~ends, p[part], q[part])
        lowest = float(costs.min())
    if lowest == inf:
        return None

    # The first column, and the pairs of labels, in either order, that reach the lowest cost there
    is_lowest = costs == lowest
    column = int(is_lowest.any(0).to(torch.uint8).argmax())
    tied = is_lowest[:, column]
    inside = torch.cat([p[tied], q[tied]])
    outside = torch.cat([q[tied], p[tied]])
    codes = ends[column].nonzero()[:, 0]
    column_left = left[:, column].index_select(1, codes)
    sums = pad(column_left[inside] - column_left[outside], (1, 0))  # S, [pairs, 1 + codes]; 0 before all codes

    # The lowest a, then the lowest b, p and q of the intervals of that cost
    lowest_later = sums[:, 1:].flip(1).cummin(1).values.flip(1)
    total_outside = total[outside][:, None]
    is_start = (total_outside + (lowest_later - sums[:, :-1]) == lowest).any(0)
    start = int(is_start.to(torch.uint8).argmax())
    is_end = total_outside + (sums[:, start + 1 :] - sums[:, start : start + 1]) == lowest
    pair, end = is_end.nonzero().T
    choices = torch.stack([start + end, inside[pair], outside[pair]], 1).tolist()
    best_end, best_inside, best_outside = min(choices)
    a = int(codes[start - 1]) if start else -1
    return BestInterval(lowest, column, a, int(codes[best_end]), best_inside, best_outside)


def _pair_blocks(n_pairs: int, n_sums: int) -> Iterator[slice]:
    """Blocks of pairs of labels, of which the first is the most promising pair: its cost excludes many others."""
    if not n_pairs:
        return
    yield slice(0, 1)
    step = max(1, CACHED // n_sums)
    for first in range(1, n_pairs, step):
        yield slice(first, first + step)


def _lowest_costs(left: Tensor, total: Tensor, never: Tensor, p: Tensor, q: Tensor) -> Tensor:
    """Lowest cost [pairs, f] of the tests with the given pairs of labels, with either label inside.

    With exchanged labels, the prefix sums are minus S, so that the lowest cost is ``total_p - max (S_b -
    S_a)``. The prefix sum before the first code is 0.

    Parameters
    ----------
    left, total : Tensor
        As for :func:`best_interval`.
    never : Tensor [f, bins] of bool
        Codes at which no interval begins or ends.
    p, q : Tensor [pairs] of int64
    """
    sums = left.index_select(0, p) - left.index_select(0, q)  # S, [pairs, f, bins]
    low = sums.masked_fill(never, inf)
    high = sums.masked_fill(never, -inf)
    highest_before = pad(high.cummax(-1).values[..., :-1], (1, 0), value=-inf).clamp_(min=0)
    lowest_before = pad(low.cummin(-1).values[..., :-1], (1, 0), value=inf).clamp_(max=0)
    fall = (low - highest_before).amin(-1)
    rise = (high - lowest_before).amax(-1)
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
    # min(s, t) = (s + t - |s - t|) / 2, summed over the points
    return (total[:, None] + total - torch.cdist(costs, costs, p=1)) / 2


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
        total = costs.sum(1)
        floors = pair_floors(costs)
        candidates = []
        for columns_of_chunk in self.problem.columns.chunks(self.problem, node, self.problem.k):
            columns = columns_of_chunk()
            left = columns.channels(node.rows, costs).movedim(1, 0).cumsum(2)
            present = columns.counts(node.rows)[:, 0] > 0
            best = best_interval(left, total, present, floors)
            if best is None:
                continue
            feature = int(columns.features[best.column])
            a = -1 if best.a < 0 else columns.code(best.column, best.a)
            b = columns.code(best.column, best.b)
            candidates.append(best._replace(column=feature, a=a, b=b))
        return min(candidates, default=None)

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
    if swapped:
        left = ~left
        centers_left = ~centers_left
    low, high = intervals[0]
    if low == -inf and len(intervals) == 1:
        return Cut(feature, -1, high, left, centers_left), swapped
    return Cut(feature, -1, nan, left, centers_left, intervals), swapped


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
    last = (side[1:] != side[:-1]).nonzero()[:, 0]  # where a run of points on one side ends
    if not len(last):  # all points are on one side: place a threshold beyond them
        outside = 1 + 2 * max(values.double().abs().tolist(), default=0.0)
        threshold = outside if bool(left.all()) else -outside
        return ((-inf, threshold),), False
    ends = zip(ordered[last].tolist(), ordered[last + 1].tolist(), strict=True)
    bounds = [between(float(low), float(high), values.dtype) for low, high in ends]
    runs = tuple(pairwise([-inf, *bounds, inf]))  # their sides alternate
    is_odd = len(runs) % 2 == 1  # then the runs that the second one begins are fewer
    return runs[is_odd::2], bool(side[0]) == is_odd
