"""Projection of many points to polyhedra at once: quadratic programs, solved by a dual active-set method."""

from __future__ import annotations

from dataclasses import dataclass, fields

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
    found : Tensor [n] of bool
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
    low, high = low.expand(n, d), high.expand(n, d)
    multipliers, found = _first(normals, limits, low, high)
    goal = -torch.einsum("nhd,nh->nd", normals, multipliers)
    u = goal.clamp(low, high)
    side = torch.where(low == high, 0, (goal - u).sign()).to(u)  # the bounds that are active
    state = _State(
        torch.arange(n, device=u.device), normals, limits, low, high, (low == high), u, multipliers.clone(),
        multipliers > 0, (goal - u).abs() * (side != 0), side,
        torch.full((n,), -1, device=u.device), u.new_zeros(n),
    )  # fmt: skip
    u = u.clone()
    state = state.take(found)
    for _ in range(10 * (H + d) + 100):
        if not len(state.point):
            break
        feasible, finished = _step(state)
        found[state.point[~feasible]] = False
        ended = state.point[finished]
        u[ended], multipliers[ended] = state.u[finished], state.multiplier[finished]
        if bool((finished | ~feasible).any()):
            state = state.take(feasible & ~finished)
    found[state.point] = False
    return u, found, multipliers


def _first(normals: Tensor, limits: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """The multipliers [n, H] of the most violated half-space alone, and whether each problem may have a solution.

    The solution for a multiplier t is ``clamp(t way)`` with way = -normal, so that its way along the normal grows
    piecewise linearly in t, from t = 0 with slopes that change where a column leaves one bound or reaches another.
    """
    H, d = normals.shape[1:]
    found, multipliers = (low <= high).all(dim=1), torch.zeros_like(limits)
    if not H or not d:
        return multipliers, found
    start = torch.zeros_like(low).clamp(low, high)
    excess, worst = (torch.einsum("nhd,nd->nh", normals, start) - limits).max(dim=1, keepdim=True)
    way = -normals.gather(1, worst[:, :, None].expand(-1, -1, d))[:, 0]
    way = torch.where(low < high, way, 0.0)
    near = torch.where(way > 0, low.clamp(min=0), high.clamp(max=0))
    far = torch.where(way > 0, high.clamp(min=0), low.clamp(max=0))
    t, order = (torch.cat([near, far], dim=1) / torch.where(way == 0, 1.0, way).repeat(1, 2)).sort(dim=1)
    bend = way.square()
    slope = torch.cat([bend, -bend], dim=1).gather(1, order).cumsum(dim=1)
    slope = torch.where(slope > ROUNDING, slope, 0.0)
    gained = (slope[:, :-1] * t.diff(dim=1)).nan_to_num(0.0, posinf=torch.inf).cumsum(dim=1)
    gained = torch.cat([torch.zeros_like(excess), gained], dim=1)
    found &= ((excess - gained[:, -1:]) <= ROUNDING * (1 + excess.abs()))[:, 0]
    at = ((gained < excess).sum(dim=1, keepdim=True) - 1).clamp(min=0)
    best = t.gather(1, at) + (excess - gained.gather(1, at)) / slope.gather(1, at)
    return multipliers.scatter(1, worst, torch.where((excess > 0) & best.isfinite(), best, 0.0)), found


@dataclass
class _State:
    """The state of the points that are not solved yet; modified in place."""

    point: Tensor
    normals: Tensor
    limits: Tensor
    low: Tensor
    high: Tensor
    fixed: Tensor
    u: Tensor
    multiplier: Tensor  # [n, H], multipliers of the half-spaces
    active: Tensor  # [n, H]
    pull: Tensor  # [n, d], multipliers of the bounds
    side: Tensor  # [n, d]: 1 at the upper bound, -1 at the lower one, 0 at neither
    entering: Tensor  # [n]: half-space, or H + column for a lower bound, H + d + column for an upper one; or -1
    weight: Tensor  # [n], multiplier of the entering constraint

    def take(self, subset: Tensor) -> _State:
        return self if bool(subset.all()) else _State(*(getattr(self, f.name)[subset] for f in fields(self)))


def _step(s: _State) -> tuple[Tensor, Tensor]:
    """Add or drop one constraint per point; return which points may have a solution, and which are solved."""
    H, d, rows = s.limits.shape[1], s.u.shape[1], torch.arange(len(s.u), device=s.u.device)
    beyond = torch.einsum("nhd,nd->nh", s.normals, s.u) - s.limits
    beyond = torch.cat([beyond.masked_fill(s.active, -torch.inf), s.low - s.u, s.u - s.high], dim=1)
    worst = beyond.argmax(dim=1)
    entering = torch.where(s.entering < 0, worst, s.entering)
    excess = beyond[rows, entering]
    finished = (s.entering < 0) & (excess <= ROUNDING * (1 + s.u.abs().amax(dim=1)))
    bound = (entering - H).clamp(min=0)
    column, sign = bound % d, torch.where(bound < d, -1.0, 1.0)
    normal = torch.zeros_like(s.u).scatter(1, column[:, None], sign.to(s.u)[:, None])
    normal = (
        torch.where((entering < H)[:, None], s.normals[rows, entering.clamp(max=H - 1)], normal) if H else normal
    )
    free = ((s.side == 0) & ~s.fixed).to(s.u)
    change = _change(s, normal, free)
    along = torch.where((change > 0) & s.active, s.multiplier / change, torch.inf)  # step until a multiplier is 0
    rest = normal - torch.einsum("nhd,nh->nd", s.normals, change)
    loss = s.side * rest
    until = torch.where((loss > 0) & (s.side != 0), s.pull / loss, torch.inf)
    least, leaving = torch.cat([along, until], dim=1).min(dim=1)
    length = (rest * free).square().sum(dim=1)
    depends = length <= ROUNDING
    full = torch.where(depends, torch.inf, excess.clamp(min=0) / length.clamp(min=ROUNDING))
    t = torch.minimum(full, least)
    feasible = t.isfinite() | finished
    t = torch.where(t.isfinite() & ~finished, t, 0.0)[:, None]
    s.u -= torch.where(depends[:, None], 0.0, t) * rest * free
    s.multiplier = ((s.multiplier - t * change).clamp(min=0)) * s.active
    s.pull = ((s.pull - t * loss).clamp(min=0)) * (s.side != 0)
    s.weight = torch.where(s.entering < 0, 0.0, s.weight) + t[:, 0]
    moving = feasible & ~finished
    _add_constraint(s, rows, entering, moving & (full <= least), column, sign)
    dropped = moving & (full > least)
    _drop_constraint(s, rows, leaving, dropped)
    s.entering = torch.where(dropped, entering, -1)
    return feasible, finished


def _change(s: _State, normal: Tensor, free: Tensor) -> Tensor:
    """The rate [n, H] at which the multipliers of active half-spaces decrease while a constraint enters."""
    width = int(s.active.sum(dim=1).max()) if s.active.numel() else 0
    change = torch.zeros_like(s.multiplier)
    if width == 0:
        return change
    used, index = s.active.to(torch.uint8).topk(width, dim=1)
    subset = s.normals.gather(1, index[:, :, None].expand(-1, -1, s.u.shape[1])) * free[:, None] * used[:, :, None]
    gram = subset @ subset.mT + torch.diag_embed(1.0 - used.to(subset))
    solved = torch.linalg.solve_ex(gram, subset @ normal[:, :, None])[0][:, :, 0]
    return change.scatter(1, index, solved * used)


def _add_constraint(
    s: _State, rows: Tensor, entering: Tensor, subset: Tensor, column: Tensor, sign: Tensor
) -> None:
    H = s.limits.shape[1]
    half, bound = subset & (entering < H), subset & (entering >= H)
    s.active[rows[half], entering[half]] = True
    s.multiplier[rows[half], entering[half]] = s.weight[half]
    r, c, side = rows[bound], column[bound], sign[bound].to(s.u)
    s.side[r, c], s.pull[r, c] = side, s.weight[bound]
    s.u[r, c] = torch.where(side < 0, s.low[r, c], s.high[r, c])


def _drop_constraint(s: _State, rows: Tensor, leaving: Tensor, subset: Tensor) -> None:
    H = s.limits.shape[1]
    half, bound = subset & (leaving < H), subset & (leaving >= H)
    s.active[rows[half], leaving[half]] = False
    s.multiplier[rows[half], leaving[half]] = 0.0
    s.side[rows[bound], leaving[bound] - H] = 0.0
    s.pull[rows[bound], leaving[bound] - H] = 0.0
