"""Projection of many points to polyhedra at once: quadratic programs, solved by a dual active-set method.

    min |u|^2 / 2   subject to   a_j u <= b_j for all j

The constraints are H half-spaces, d lower bounds ``-u_i <= -low_i`` and d upper bounds ``u_i <= high_i``, in this
order. The solution is ``u = - sum_j w_j a_j`` with multipliers w_j >= 0 of the constraints that hold with
equality; a constraint with w_j > 0 is called active. The method is that of Goldfarb and Idnani (Mathematical
Programming 27, 1983), for the identity as quadratic form:

1. Start with the solution for the most violated half-space and the bounds (`_first`).
2. Let the most violated constraint q enter. As its multiplier grows by t, those of the active constraints decrease
   by t r_j, with rates r_j such that ``z = a_q - sum_j r_j a_j`` is orthogonal to all active a_j, and u moves by
   - t z.
3. Step until q is satisfied, ``t = (a_q u - b_q) / |z|^2`` (infinite if z = 0), or until the first active
   multiplier is 0, ``t = min w_j / r_j`` over r_j > 0, whatever comes first. Without either the problem has no
   solution.
4. In the first case q is active from now on; in the second case j is dropped, and q still enters.
5. End if no constraint is violated. The distance never decreases, so this happens after finitely many steps.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

ROUNDING = 1e-12
"""Squared length up to which a unit normal counts as dependent on the active ones, and distances as zero."""


class ActiveSet(NamedTuple):
    """Problems that are not solved yet."""

    row: Tensor  # [m], their positions among all n problems
    normals: Tensor  # [m, H, d], a_j of the half-spaces
    limits: Tensor  # [m, H + 2 d], b_j
    u: Tensor  # [m, d]
    weight: Tensor  # [m, H + 2 d], w_j; 0 for the entering constraint
    entering: Tensor  # [m], q, or -1 if none is entering
    gained: Tensor  # [m], w_q so far

    def take(self, subset: Tensor) -> ActiveSet:
        """Select problems."""
        if bool(subset.all()):
            return self
        return ActiveSet(*(values[subset] for values in self))


def shortest(normals: Tensor, limits: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
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
    """
    n, H, d = normals.shape
    low = low.expand(n, d)
    high = high.expand(n, d)
    multipliers, solvable = _first(normals, limits, low, high)
    unbounded = -torch.einsum("nhd,nh->nd", normals, multipliers)
    first = unbounded.clamp(low, high)
    of_bounds = torch.cat([low - unbounded, unbounded - high], dim=1).clamp(min=0)
    of_bounds = of_bounds * (low < high).repeat(1, 2)  # fixed columns have none

    rows = torch.arange(n, device=low.device)
    state = ActiveSet(
        row=rows,
        normals=normals,
        limits=torch.cat([limits, -low, high], dim=1),
        u=first,
        weight=torch.cat([multipliers, of_bounds], dim=1),
        entering=torch.full_like(rows, -1),
        gained=low.new_zeros(n),
    )
    state = state.take(solvable)
    u = first.clone()
    for _ in range(10 * (H + d) + 100):
        if not len(state.row):
            break
        state, feasible, solved = _step(state)
        solvable[state.row[~feasible]] = False
        u[state.row[solved]] = state.u[solved]
        state = state.take(feasible & ~solved)
    solvable[state.row] = False
    return u, solvable


def _first(normals: Tensor, limits: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """Find the multiplier [n, H] of the most violated half-space alone, and whether there may be a solution [n].

    For a multiplier t the solution is ``u = clamp(- t a)``. Its violation of the half-space decreases piecewise
    linearly in t: column i adds ``a_i^2`` to the slope from the t at which it leaves one bound until the t at
    which it reaches the other.
    """
    start = torch.zeros_like(low).clamp(low, high)
    violations = torch.einsum("nhd,nd->nh", normals, start) - limits
    violation, worst = violations.max(dim=1, keepdim=True)
    normal = normals.gather(1, worst[:, :, None].expand(-1, -1, low.shape[1]))[:, 0]
    direction = -normal
    direction = torch.where(low < high, direction, 0.0)

    # the values of t at which a column leaves its near bound or reaches its far bound, in order
    near = torch.where(direction > 0, low.clamp(min=0), high.clamp(max=0))
    far = torch.where(direction > 0, high.clamp(min=0), low.clamp(max=0))
    speed = torch.where(direction == 0, 1.0, direction)
    t = torch.cat([near, far], dim=1) / speed.repeat(1, 2)
    t, order = t.sort(dim=1)

    # the slope after each of them, and by how much the violation has decreased until then
    squared = direction.square()
    slope_change = torch.cat([squared, -squared], dim=1).gather(1, order)
    slope = slope_change.cumsum(dim=1)
    slope = torch.where(slope > ROUNDING, slope, 0.0)
    decrease = slope[:, :-1] * t.diff(dim=1)
    decrease = decrease.nan_to_num(0.0, posinf=torch.inf).cumsum(dim=1)  # 0 times infinity is 0
    decrease = torch.cat([torch.zeros_like(violation), decrease], dim=1)
    is_reached = violation - decrease[:, -1:] <= ROUNDING * (1 + violation.abs())
    solvable = (low <= high).all(dim=1) & is_reached[:, 0]

    # the piece on which the violation becomes 0
    n_before = (decrease < violation).sum(dim=1, keepdim=True)
    index = (n_before - 1).clamp(min=0)
    remaining = violation - decrease.gather(1, index)
    best = t.gather(1, index) + remaining / slope.gather(1, index)
    best = torch.where((violation > 0) & best.isfinite(), best, 0.0)
    return torch.zeros_like(limits).scatter(1, worst, best), solvable


def _step(state: ActiveSet) -> tuple[ActiveSet, Tensor, Tensor]:
    """Add or drop one constraint; return the new state, which problems are feasible, and which are solved."""
    row, normals, limits, u, weight, entering, gained = state
    _, H, d = normals.shape
    rows = torch.arange(len(u), device=u.device)
    active = weight > 0
    low = -limits[:, H : H + d]
    high = limits[:, H + d :]

    # step 2: the constraint that enters, unless none is violated
    along_normals = torch.einsum("nhd,nd->nh", normals, u)
    violation = torch.cat([along_normals, -u, u], dim=1) - limits
    worst, index = violation.masked_fill(active, -torch.inf).max(dim=1)
    solved = (entering < 0) & (worst <= ROUNDING * (1 + u.abs().amax(dim=1)))
    if bool(solved.all()):
        return state, solved, solved
    entering = torch.where(entering < 0, index, entering)
    z, rates = _direction(normals, active, entering, low != high)

    # step 3: the length of the step until q is satisfied, and until the first active multiplier is 0
    squared_length = z.square().sum(dim=1)
    independent = squared_length > ROUNDING
    full = violation[rows, entering].clamp(min=0) / squared_length
    full = torch.where(independent, full, torch.inf)
    steps = torch.where(active & (rates > 0), weight / rates, torch.inf)
    partial, leaving = steps.min(dim=1)
    t = torch.minimum(full, partial).masked_fill(solved, 0.0)
    feasible = t.isfinite()
    t = torch.where(feasible, t, 0.0)
    u = u - (t * independent)[:, None] * z
    weight = (weight - t[:, None] * rates).clamp(min=0) * active
    gained = gained + t

    # step 4: drop the constraint of the multiplier 0, or add q
    drops = (full > partial) & ~solved
    adds = (full <= partial) & ~solved
    weight[rows[drops], leaving[drops]] = 0.0
    weight[rows[adds], entering[adds]] = gained[adds]
    entering = entering.masked_fill(~drops, -1)
    gained = gained.masked_fill(~drops, 0.0)

    _, below, above = (weight > 0).split([H, d, d], dim=1)
    u = torch.where(above, high, u)  # columns at a bound are at it exactly
    u = torch.where(below, low, u)
    return ActiveSet(row, normals, limits, u, weight, entering, gained), feasible, solved


def _direction(normals: Tensor, active: Tensor, entering: Tensor, movable: Tensor) -> tuple[Tensor, Tensor]:
    """Compute z [m, d] and the rates [m, H + 2 d] while a constraint [m] enters.

    Columns at an active bound, or with ``low == high``, do not move. The rates of the half-spaces follow from the
    other columns, those of the active bounds from the columns that do not move.
    """
    _, H, d = normals.shape
    half_space, below, above = active.split([H, d, d], dim=1)
    free = ~below & ~above & movable

    # a_q: a row of the normals, or minus or plus a unit vector
    one_hot = torch.zeros_like(active, dtype=normals.dtype).scatter(1, entering[:, None], 1.0)
    normal = one_hot[:, H + d :] - one_hot[:, H : H + d]
    rows = torch.arange(len(normals), device=normals.device)
    is_half_space = (entering < H)[:, None]
    normal = torch.where(is_half_space, normals[rows, entering.clamp(max=H - 1)], normal)

    rates = _half_space_rates(normals, half_space, normal, free.to(normals))
    rest = normal - torch.einsum("nhd,nh->nd", normals, rates)
    return rest * free, torch.cat([rates, -rest, rest], dim=1)


def _half_space_rates(normals: Tensor, active: Tensor, normal: Tensor, free: Tensor) -> Tensor:
    """Compute the rates r [m, H] of the active half-spaces, which solve ``A A' r = A a_q`` in the free columns."""
    width = int(active.sum(dim=1).max())
    is_used, index = active.to(normals).topk(width, dim=1)  # active ones first; the rest are rows of the identity
    A = normals.gather(1, index[:, :, None].expand(-1, -1, normals.shape[2]))
    A = A * free[:, None] * is_used[:, :, None]
    gram = A @ A.mT + torch.diag_embed(1.0 - is_used)
    solution, _ = torch.linalg.solve_ex(gram, A @ normal[:, :, None])
    rates = solution[:, :, 0] * is_used
    return torch.zeros_like(active, dtype=normals.dtype).scatter(1, index, rates)
