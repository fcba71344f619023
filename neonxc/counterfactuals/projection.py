"""Projection of many points to polyhedra at once: quadratic programs, solved by a dual active-set method."""

from __future__ import annotations

import torch
from torch import Tensor

ROUNDING = 1e-12
"""Squared length up to which a unit normal counts as dependent on the active ones, and distances as zero."""


def shortest(normals: Tensor, limits: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Solve ``min |u|^2 / 2`` subject to ``normals u <= limits`` and ``low <= u <= high`` for n points at once.

    Parameters
    ----------
    normals : Tensor [n, H, d] of float64
        Normals of length 1; zeros where there is no half-space.
    limits : Tensor [n, H]
        Infinite where there is no half-space.
    low, high : Tensor [n, d]
        Bounds, which may be infinite. Columns with ``low == high`` are fixed.

    Returns
    -------
    u : Tensor [n, d]
        The solutions.
    solvable : Tensor [n] of bool
        False if the constraints have no solution.
    multipliers : Tensor [n, H]
        Lagrange multipliers of the half-spaces, not negative.

    Notes
    -----
    This is the method of Goldfarb and Idnani (Mathematical Programming 27, 1983) for the identity as quadratic
    form. It starts at the solution with one half-space and the bounds, and adds the most violated constraint in
    every step, while active constraints with a multiplier of zero are dropped. The distance never decreases, so
    the method ends at the nearest point or proves that there is none.
    """
    n, H, d = normals.shape
    low = low.expand(n, d)
    high = high.expand(n, d)
    multipliers, solvable = _first(normals, limits, low, high)
    goal = -torch.einsum("nhd,nh->nd", normals, multipliers)
    answer = goal.clamp(low, high)
    beyond = torch.cat([low - goal, goal - high], dim=1).clamp(min=0) * (low < high).repeat(1, 2)
    # constraints: the half-spaces, the lower bounds, the upper bounds; those with a positive multiplier are active
    weight = torch.cat([multipliers, beyond], dim=1)
    rows = torch.arange(n, device=low.device)
    constraints = normals, torch.cat([limits, -low, high], dim=1)
    state = [rows, *constraints, answer, weight, torch.full_like(rows, -1), low.new_zeros(n)]
    state = _take(state, solvable)
    answer = answer.clone()
    for _ in range(10 * (H + d) + 100):
        if not len(state[0]):
            break
        state, feasible, solved = _step(*state)
        row = state[0]
        solvable[row[~feasible]] = False
        answer[row[solved]] = state[3][solved]
        multipliers[row[solved]] = state[4][solved, :H]
        state = _take(state, feasible & ~solved)
    solvable[state[0]] = False
    return answer, solvable, multipliers


def _first(normals: Tensor, limits: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """The multipliers [n, H] of the most violated half-space alone, and whether each problem may have a solution.

    The solution for a multiplier t is ``clamp(t way)`` with way = -normal, so that its way along the normal grows
    piecewise linearly in t, from t = 0 with slopes that change where a column leaves one bound or reaches another.
    """
    start = torch.zeros_like(low).clamp(low, high)
    excess, worst = (torch.einsum("nhd,nd->nh", normals, start) - limits).max(dim=1, keepdim=True)
    way = -normals.gather(1, worst[:, :, None].expand(-1, -1, low.shape[1]))[:, 0]
    way = torch.where(low < high, way, 0.0)
    near = torch.where(way > 0, low.clamp(min=0), high.clamp(max=0))
    far = torch.where(way > 0, high.clamp(min=0), low.clamp(max=0))
    t, order = (torch.cat([near, far], dim=1) / torch.where(way == 0, 1.0, way).repeat(1, 2)).sort(dim=1)
    bend = way.square()
    slope = torch.cat([bend, -bend], dim=1).gather(1, order).cumsum(dim=1)
    slope = torch.where(slope > ROUNDING, slope, 0.0)
    gained = (slope[:, :-1] * t.diff(dim=1)).nan_to_num(0.0, posinf=torch.inf).cumsum(dim=1)
    gained = torch.cat([torch.zeros_like(excess), gained], dim=1)
    solvable = (low <= high).all(dim=1) & (excess - gained[:, -1:] <= ROUNDING * (1 + excess.abs()))[:, 0]
    at = ((gained < excess).sum(dim=1, keepdim=True) - 1).clamp(min=0)
    best = t.gather(1, at) + (excess - gained.gather(1, at)) / slope.gather(1, at)
    best = torch.where((excess > 0) & best.isfinite(), best, 0.0)
    return torch.zeros_like(limits).scatter(1, worst, best), solvable


def _take(state: list[Tensor], subset: Tensor) -> list[Tensor]:
    return state if bool(subset.all()) else [part[subset] for part in state]


def _step(
    row: Tensor, normals: Tensor, limits: Tensor, u: Tensor, weight: Tensor, entering: Tensor, gained: Tensor
) -> tuple[list[Tensor], Tensor, Tensor]:
    """Add or drop one constraint; return the new state, which problems may have a solution, and which are solved.

    Parameters
    ----------
    weight : Tensor [n, H + 2 d]
        Multipliers of the constraints.
    entering : Tensor [n]
        The constraint that is being added, or -1.
    gained : Tensor [n]
        Its multiplier so far.
    """
    H, d, rows = *normals.shape[1:], torch.arange(len(u), device=u.device)
    active = weight > 0
    half, below, above = active.split([H, d, d], dim=1)
    low = -limits[:, H : H + d]
    high = limits[:, H + d :]
    free = ~below & ~above & (low != high)
    beyond = torch.cat([torch.einsum("nhd,nd->nh", normals, u), -u, u], dim=1) - limits
    worst, which = beyond.masked_fill(active, -torch.inf).max(dim=1)
    solved = (entering < 0) & (worst <= ROUNDING * (1 + u.abs().amax(dim=1)))
    entering = torch.where(entering < 0, which, entering)
    unit = torch.zeros_like(weight).scatter(1, entering[:, None], 1.0)
    rest = unit[:, H + d :] - unit[:, H : H + d]
    rest = torch.where((entering < H)[:, None], normals[rows, entering.clamp(max=H - 1)], rest)
    change = _change(normals, half, rest, free.to(u))
    rest = rest - torch.einsum("nhd,nh->nd", normals, change)
    change = torch.cat([change, -rest, rest], dim=1)
    # the step until the multiplier of an active constraint is 0, and until the entering one is satisfied
    least, leaving = torch.where(active & (change > 0), weight / change, torch.inf).min(dim=1)
    rest = rest * free
    length = rest.square().sum(dim=1)
    independent = length > ROUNDING
    full = torch.where(independent, beyond[rows, entering].clamp(min=0) / length, torch.inf)
    t = torch.minimum(full, least).masked_fill(solved, 0.0)
    feasible = t.isfinite()
    t = torch.where(feasible, t, 0.0)
    u = u - (t * independent)[:, None] * rest
    weight = (weight - t[:, None] * change).clamp(min=0) * active
    gained = gained + t
    drops = (full > least) & ~solved
    enters = (full <= least) & ~solved
    weight[rows[drops], leaving[drops]] = 0.0
    weight[rows[enters], entering[enters]] = gained[enters]
    _, below, above = (weight > 0).split([H, d, d], dim=1)
    u = torch.where(below, low, torch.where(above, high, u))
    entering = entering.masked_fill(~drops, -1)
    gained = gained.masked_fill(~drops, 0.0)
    return [row, normals, limits, u, weight, entering, gained], feasible, solved


def _change(normals: Tensor, active: Tensor, normal: Tensor, free: Tensor) -> Tensor:
    """The rate [n, H] at which the multipliers of active half-spaces decrease while a constraint enters."""
    width = int(active.sum(dim=1).max())
    used, index = active.to(normals).topk(width, dim=1)
    subset = normals.gather(1, index[:, :, None].expand(-1, -1, normals.shape[2]))
    subset = subset * free[:, None] * used[:, :, None]
    gram = subset @ subset.mT + torch.diag_embed(1.0 - used)
    solved = torch.linalg.solve_ex(gram, subset @ normal[:, :, None])[0][:, :, 0]
    return torch.zeros_like(active, dtype=normals.dtype).scatter(1, index, solved * used)
