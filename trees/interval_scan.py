"""The best test ``low < x <= high`` of a node: a maximum-subarray scan for every pair of labels.

What the points of a node cost under label p within an interval and under label q outside of it is the node's cost
under q, plus the sum over the interval of the differences of the two. Its least value over all intervals is thus
that of a minimum-subarray problem over the codes of a column, and takes one pass where trying all pairs of
thresholds takes as many as there are codes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

CACHED = 1 << 17  # entries of a temporary that stay in a core's cache while several passes are made over them
BUDGET = 1 << 24  # the same where there is no such cache


class BestInterval(NamedTuple):
    """An interval of codes, and the labels on its two sides.

    Attributes
    ----------
    cost : float
        Cost of the node's points: under `p` inside, under `q` outside.
    column : int
    a, b : int
        Codes ``a < code <= b`` are inside; `a` is -1 where the interval begins with the first code.
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
    """Find the interval of one column, and the two labels, at which a node's points cost least.

    Kernel ExKMC and Kernel Expand [1]_ split nodes by such tests. With costs ``‖Φ(x) − μ_label‖²`` it is the split
    of the first, with the weight of the points that are not of a label that of the second.

    Parameters
    ----------
    left : Tensor [m, f, bins] of float64
        What the points with a code of at most b in a column cost under each of m labels. Finite, and constant over
        codes that no point has.
    total : Tensor [m] of float64
        What all points of the node cost under each label.
    codes_present : Tensor [f, bins] of bool
        Which codes the points of the node have. An interval begins and ends with one of them.
    slack : float, default=0
        Costs within `slack` of the least are ties.
    floors : Tensor [m, m] of float64, optional
        What every test with two given labels costs at least, up to rounding below `slack`, as of
        :func:`pair_floors`. Pairs of labels that cannot win are left out then; the answer is the same.

    Returns
    -------
    BestInterval or None
        Of ties the one of the lowest column, then of the lowest a, b, p and q in this order. None where no interval
        of any column holds some of the points and not all of them, or where there are fewer than two labels.

    Raises
    ------
    ValueError
        Shapes that do not match.

    Notes
    -----
    Time grows with ``m² f bins``. Temporaries are bounded but for one copy of `left`.

    References
    ----------
    .. [1] M. Fleissner, L. C. Vankadara, D. Ghoshdastidar, "Explaining kernel clustering via decision trees", ICLR
       2024, section on Kernel ExKMC and Kernel Expand.

    Examples
    --------
    Points of codes 0, 0, 1, 2, 3 are of labels 0, 0, 1, 1, 0; a label costs 1 for every point of the other:

    >>> import torch
    >>> from neonxc.trees.interval_scan import best_interval
    >>> left = torch.tensor([[[0.0, 1, 2, 2]], [[2, 2, 2, 3]]], dtype=torch.float64)
    >>> best_interval(left, left[:, 0, -1], torch.ones(1, 4, dtype=torch.bool))
    BestInterval(cost=0.0, column=0, a=0, b=2, p=1, q=0)
    """
    m, f, _ = _checked(left, total, codes_present, floors)
    if m < 2 or f == 0:
        return None
    sums, codes, counts = _compact(left, codes_present)
    least = _least_costs(sums, total, counts, slack, floors)
    bound = float(least.min()) + slack
    if bound == float("inf"):
        return None
    column = int((least <= bound).nonzero()[0])
    return _first(sums[: int(counts[column]), :, column], total, codes[:, column], column, bound)


def pair_floors(costs: Tensor) -> Tensor:
    """What points cost at least where each of them may choose one of two labels, for all pairs of labels.

    No test that gives its two sides these labels costs less, whatever the column.

    Parameters
    ----------
    costs : Tensor [points, m] of float64
        What every point costs under every label.

    Returns
    -------
    Tensor [m, m] of float64
        Symmetric; the diagonal is what all points cost under one label.
    """
    points, m = costs.shape
    result = costs.new_zeros(m, m)
    budget = CACHED if costs.device.type == "cpu" else BUDGET
    for part in costs.split(max(1, budget // max(1, m * m))):
        result += torch.minimum(part[:, :, None], part[:, None, :]).sum(0)
    return result


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


def _compact(left: Tensor, present: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Prefix sums at the codes that are present.

    Returns
    -------
    sums : Tensor [most, m, f]
        In the order of the codes, and zero behind a column's last.
    codes : Tensor [most, f] of int64
    counts : Tensor [f] of int64
    """
    m, f, bins = left.shape
    counts = present.sum(1)
    most = int(counts.max()) if bins else 0
    if most == bins:
        codes = torch.arange(bins, device=left.device).expand(f, bins)
        sums = left
    else:
        codes = (~present).to(torch.uint8).sort(dim=1, stable=True).indices[:, :most]
        sums = left.gather(2, codes.expand(m, -1, -1))
    if most and int(counts.min()) < most:
        sums = sums.masked_fill(torch.arange(most, device=left.device) >= counts[:, None], 0)
    return sums.permute(2, 0, 1).contiguous(), codes.T, counts


def _least_costs(sums: Tensor, total: Tensor, counts: Tensor, slack: float, floors: Tensor | None) -> Tensor:
    """The least cost of the tests of every column, [f]; infinite where it has none, or none that can win."""
    most, m, f = sums.shape
    least = sums.new_full((f,), torch.inf)
    first, second = torch.triu_indices(m, m, 1, device=sums.device)
    if floors is not None:
        floor, order = floors[first, second].sort(stable=True)
        first, second = first[order], second[order]
    budget = CACHED if sums.device.type == "cpu" else BUDGET
    width = max(1, min(f, budget // max(1, most)))
    pairs = max(1, min(len(first), budget // max(1, most * width)))
    space = sums.new_empty(5, most * pairs * width)  # made once: fresh memory costs more than what is done with it
    at, stop = 0, len(first)
    while at < stop:
        # The most promising pair goes alone, as a bound for the others
        some = slice(at, min(stop, at + (1 if floors is not None and at == 0 else pairs)))
        for start in range(0, f, width):
            columns = slice(start, start + width)
            cost = _least(sums[:, :, columns], first[some], second[some], counts[columns], total, space)
            torch.minimum(least[columns], cost, out=least[columns])
        at = some.stop
        if floors is not None:
            stop = int((floor <= float(least.min()) + 2 * slack).sum())
    return least


def _least(sums: Tensor, p: Tensor, q: Tensor, counts: Tensor, total: Tensor, space: Tensor) -> Tensor:
    """The least cost [f] for some pairs of labels, with each of the two inside, in memory that is given."""
    most, _, f = sums.shape
    low, high, fall, rise, spare = space[:, : most * len(p) * f].view(5, most, len(p), f)
    torch.index_select(sums, 1, p, out=low)
    low -= torch.index_select(sums, 1, q, out=spare)
    whole = low.gather(0, (counts - 1).clamp(min=0).expand(1, len(p), -1))[0]
    # At first the tests that begin behind the first point and end before the last: none of them holds all points
    outside = torch.arange(most, device=sums.device)[:, None] >= counts - 1
    high.copy_(low)
    if int(counts.min()) == most:
        low[-1], high[-1] = torch.inf, -torch.inf
    else:
        low.masked_fill_(outside[:, None], torch.inf)
        high.masked_fill_(outside[:, None], -torch.inf)
    _scan(low, high, fall, rise, spare)
    down = torch.minimum(torch.minimum(fall[0], low[0]), whole - high[0])
    up = torch.maximum(torch.maximum(rise[0], high[0]), whole - low[0])
    return torch.minimum(total[q][:, None] + down, total[p][:, None] - up).amin(0)


def _scan(low: Tensor, high: Tensor, fall: Tensor, rise: Tensor, spare: Tensor) -> None:
    """Least and greatest value along the first axis, and least and greatest difference of a later and an earlier.

    Neighbouring stretches of the axis are joined until one is left: the least difference within the two is that
    within one of them, or the least value of the later less the greatest of the earlier.

    Parameters
    ----------
    low, high : Tensor [length, ...]
        The values; infinite where there is none. What was found is in the first row of `low` and `high` ...
    fall, rise : Tensor [length, ...]
        ... and of these: infinite where there are no two values.
    spare : Tensor [length, ...]
        Memory.
    """
    fall.fill_(torch.inf)
    rise.fill_(-torch.inf)
    step = 1
    while step < len(low):
        later = slice(step, None, 2 * step)
        joints = len(low[later])
        earlier = slice(0, (2 * joints - 1) * step, 2 * step)
        across = spare[:joints]
        torch.sub(low[later], high[earlier], out=across)
        for part in (fall[later], across):
            torch.minimum(fall[earlier], part, out=fall[earlier])
        torch.sub(high[later], low[earlier], out=across)
        for part in (rise[later], across):
            torch.maximum(rise[earlier], part, out=rise[earlier])
        torch.minimum(low[earlier], low[later], out=low[earlier])
        torch.maximum(high[earlier], high[later], out=high[earlier])
        step *= 2


def _first(sums: Tensor, total: Tensor, codes: Tensor, column: int, bound: float) -> BestInterval:
    """The first test of a column that costs at most `bound`: of the lowest a, then b, p and q.

    Parameters
    ----------
    sums : Tensor [count, m]
        Of the column.
    codes : Tensor [count or more] of int64
    """
    sums = torch.cat([sums.new_zeros(1, sums.shape[1]), sums])  # place 0 is before the first code
    places, m = sums.shape
    found = []
    for inside in torch.arange(m, device=sums.device).split(max(1, BUDGET // (places * m))):
        difference = sums[:, inside, None] - sums[:, None]  # [places, p, q]
        outside = total.repeat(len(inside), 1)
        outside[torch.arange(len(inside)), inside] = torch.inf  # the two labels differ
        later = difference[1:].flip(0).cummin(0).values.flip(0)
        later[0] = difference[1:-1].amin(0)  # from the first point to the last: all of them
        begins = (outside + (later - difference[:-1]) <= bound).flatten(1).any(1).nonzero()[:1, 0].tolist()
        for a in begins:
            cost = outside + (difference[a + 1 : places - (a == 0)] - difference[a])
            b, p, q = (cost <= bound).nonzero()[0].tolist()
            found.append((a, a + 1 + b, int(inside[p]), q, float(cost[b, p, q])))
    a, b, p, q, cost_found = min(found)
    return BestInterval(cost_found, column, int(codes[a - 1]) if a else -1, int(codes[b - 1]), p, q)
