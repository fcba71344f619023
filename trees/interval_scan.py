"""The best test ``low < x <= high`` of a node: a maximum-subarray scan for pairs of labels.

What the points of a node cost under label p within an interval and under label q outside of it is what all of them
cost under q, plus the sum of the differences of the two over the interval. The least of it over all intervals is
thus that of a minimum-subarray problem over the codes of a column, and takes one pass where trying all pairs of
thresholds takes as many as there are codes.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

CACHED = 1 << 16  # entries of a temporary that stay in a core's cache while several passes are made over them
BUDGET = 1 << 24  # the same where there is no such cache


class BestInterval(NamedTuple):
    """An interval of codes, and the labels on its two sides.

    Attributes
    ----------
    cost : float
        Of the node's points, under `p` inside and under `q` outside.
    column : int
    a, b : int
        Codes ``a < code <= b`` are inside. `a` is -1 where the first code is, and so it is wherever one threshold
        says the test.
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
    """Find the interval of a column, and the two labels, at which a node's points cost least.

    Kernel ExKMC and Kernel Expand [1]_ split nodes by such tests: in the one a point costs ``‖Φ(x) − μ_label‖²``,
    in the other it costs its weight under all labels but its own.

    Parameters
    ----------
    left : Tensor [m, f, bins] of float64
        What the points whose code in a column is at most b cost under each of m labels; the last is the sum over
        all points.
    total : Tensor [m] of float64
        What all points of the node cost under each label.
    codes_present : Tensor [f, bins] of bool
        Codes that the points of the node have. Intervals begin and end with these, so that tests which part the
        points in the same way are one test.
    slack : float, default=0
        Costs up to `slack` above the least are ties.
    floors : Tensor [m, m] of float64, optional
        What no test with two given labels costs less than, with an error of at most `slack`, such as
        :func:`pair_floors`. The answer is the same, but pairs of labels that cannot win take no time; most cannot.

    Returns
    -------
    BestInterval or None
        Of ties the one with the lowest column, then with the lowest a, b, p and q in this order. None where no
        interval of any column holds some of the points but not all, or there are fewer than two labels.

    Raises
    ------
    ValueError
        Shapes that do not match.

    Notes
    -----
    Time grows with ``f bins`` for every pair of labels that is looked at; temporaries are bounded.

    References
    ----------
    .. [1] M. Fleissner, L. C. Vankadara, D. Ghoshdastidar, "Explaining kernel clustering via decision trees", ICLR
       2024.

    Examples
    --------
    Points with codes 0, 0, 1, 2, 3 have labels 0, 0, 1, 1, 0, and cost 1 under the label that is not theirs:

    >>> import torch
    >>> from neonxc.trees.interval_scan import best_interval
    >>> left = torch.tensor([[[0, 1, 2, 2]], [[2, 2, 2, 3]]], dtype=torch.float64)
    >>> best_interval(left, left[:, 0, -1], torch.ones(1, 4, dtype=torch.bool))
    BestInterval(cost=0.0, column=0, a=0, b=2, p=1, q=0)
    """
    m, f, bins = _checked(left, total, codes_present, floors)
    if m < 2 or f == 0 or bins < 2:
        return None
    # An interval up to the last code is the one before it, with the labels exchanged
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
    """What points cost where each of them has the better of two labels, for all pairs of labels.

    No test whose two sides have these labels costs less. Where a point costs its weight under all labels but its
    own, it is the weight of the points that have neither.

    Parameters
    ----------
    costs : Tensor [points, m] of float64
        What every point costs under every label.

    Returns
    -------
    Tensor [m, m] of float64
        Symmetric; the diagonal is what all points cost under one label.
    """
    m = costs.shape[1]
    total = costs.sum(0)
    apart = costs.new_zeros(m, m)
    first, second = torch.triu_indices(m, m, 1, device=costs.device)
    apart[first, second] = apart[second, first] = torch.pdist(costs.T.contiguous(), p=1)
    return (total[:, None] + total - apart) / 2  # min(s, t) = (s + t - |s - t|) / 2


def _checked(left: Tensor, total: Tensor, codes_present: Tensor, floors: Tensor | None) -> tuple[int, int, int]:
    if left.ndim != 3:
        raise ValueError(f"left needs shape [labels, columns, bins], got {list(left.shape)}")
    m, f, bins = left.shape
    if list(total.shape) != [m]:
        raise ValueError(f"total needs shape [{m}] as left has {m} labels, got {list(total.shape)}")
    if list(codes_present.shape) != [f, bins]:
        raise ValueError(f"codes_present needs shape [{f}, {bins}] as left has, got {list(codes_present.shape)}")
    if floors is not None and list(floors.shape) != [m, m]:
        raise ValueError(f"floors needs shape [{m}, {m}] as left has {m} labels, got {list(floors.shape)}")
    return m, f, bins


def _least_costs(left: Tensor, total: Tensor, ends: Tensor, slack: float, floors: Tensor | None) -> Tensor:
    """The least cost of the tests of every column, [f]; infinite where it has none, or none that can win."""
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
        # The most promising pair goes alone: its cost shows which others can win
        pairs = slice(at, min(stop, at + several) if at else 1)
        for start in range(0, f, width):
            part = slice(start, start + width)
            cost = _least(left[:, part], total, ~ends[part], first[pairs], second[pairs])
            torch.minimum(least[part], cost, out=least[part])
        at = pairs.stop
        stop = int((floor <= float(least.min()) + 2 * slack).sum())
    return least


def _least(left: Tensor, total: Tensor, never: Tensor, p: Tensor, q: Tensor) -> Tensor:
    """The least cost [f] of the tests with some pairs of labels, either of the two inside.

    Sums up to a code, label by label, make the least over ``a < b`` of ``S_b - S_a`` what is looked for. With the
    labels exchanged it is that of -S.
    """
    sums = left.index_select(0, p) - left.index_select(0, q)  # [pairs, f, bins]
    low, high = sums.masked_fill(never, torch.inf), sums.masked_fill(never, -torch.inf)
    fall = (low[..., 1:] - high.cummax(-1).values[..., :-1]).amin(-1)
    rise = (high[..., 1:] - low.cummin(-1).values[..., :-1]).amax(-1)
    # Before the first code the sum is 0
    fall, rise = torch.minimum(fall, low.amin(-1)), torch.maximum(rise, high.amax(-1))
    return torch.minimum(total[q][:, None] + fall, total[p][:, None] - rise).amin(0)


def _first(sums: Tensor, total: Tensor, codes: Tensor, column: int, bound: float) -> BestInterval:
    """The first test of a column that costs at most `bound`: of the lowest a, then b, p and q.

    Parameters
    ----------
    sums : Tensor [count, m]
        Of the column, at the codes with which a test may end.
    codes : Tensor [count] of int64
    """
    sums = torch.cat([sums.new_zeros(1, sums.shape[1]), sums])  # place 0 is before the first code
    places, m = sums.shape
    found = []
    for inside in torch.arange(m, device=sums.device).split(max(1, BUDGET // (places * m))):
        difference = sums[:, inside, None] - sums[:, None]  # [places, p, q]
        outside = total.repeat(len(inside), 1)
        outside[torch.arange(len(inside)), inside] = torch.inf  # the two labels differ
        later = difference[1:].flip(0).cummin(0).values.flip(0)
        begins = (outside + (later - difference[:-1]) <= bound).flatten(1).any(1).nonzero()[:1, 0].tolist()
        for a in begins:
            cost = outside + (difference[a + 1 :] - difference[a])
            b, p, q = (cost <= bound).nonzero()[0].tolist()
            found.append((a, a + 1 + b, int(inside[p]), q, float(cost[b, p, q])))
    a, b, p, q, least = min(found)
    return BestInterval(least, column, int(codes[a - 1]) if a else -1, int(codes[b - 1]), p, q)
