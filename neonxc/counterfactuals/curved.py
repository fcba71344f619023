"""Counterfactuals of clusters with curved boundaries, by sequential quadratic programming."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from neonxc.common.memory import at_once
from neonxc.counterfactuals.branch_and_bound import Found, Nodes, search
from neonxc.counterfactuals.geometry import compared, pieces_of
from neonxc.counterfactuals.pieces import COPIES, half_spaces
from neonxc.counterfactuals.projection import shortest
from neonxc.counterfactuals.task import Task
from neonxc.head import Head

STEPS = 100
TOLERANCE = 1e-6
"""Length of the last step, relative to the distance, at which a descent has converged."""
HALVINGS = 30
CURVATURES = (0.1, 1e6)
LINEARIZED = 12
"""Number of contrasts that bound a step: the least ones, which are nearest to the boundary or beyond it."""
KNOWN = 8
"""Number of known points of a cluster that are tried as starting points."""
MOST_NODES = 8
"""Number of nodes that the branch and bound solves; its result is a local minimum in any case."""

Contrasts = Callable[[Tensor, Tensor], Tensor]
"""Computes the contrasts [m, L] of some nodes [m] after changes [m, d]: positive inside their pieces."""


class Curved:
    """The clusters of any differentiable head.

    Parameters
    ----------
    head : Head
    """

    def __init__(self, head: Head) -> None:
        self.head = head
        self.pieces = pieces_of(head)
        self.known = head.detection.references.double()
        self.cluster = head.assign(self.known)
        width = (self.pieces.signs.shape[1] + KNOWN) * head.n_features + (4 + LINEARIZED) * head.detection.width
        self.room = at_once(8 * COPIES * width, self.known.device)

    def nearest(self, task: Task, margin: Tensor) -> Found:
        """Find points inside their targets by a margin [n], at a local minimum of the distance."""

        def solve(nodes: Nodes) -> tuple[Tensor, Tensor, Tensor]:
            def contrasts(u: Tensor, rows: Tensor) -> Tensor:
                y = task.x[nodes.point[rows]] + u * task.spread
                return self.pieces.contrasts(compared(self.head, y), nodes.piece[rows])

            known = self._known_points(task, nodes)
            return _least(contrasts, known, nodes.low, nodes.high, margin[nodes.point, None])

        point, piece = task.wanted[:, self.pieces.cluster].nonzero(as_tuple=True)
        bound = torch.zeros_like(task.x[point, 0])  # curved pieces have none, so all of them are tried
        nearest = search(task, point, piece, bound, solve, self.room, MOST_NODES, False)
        return nearest._replace(exact=torch.zeros_like(nearest.exact))

    def _known_points(self, task: Task, nodes: Nodes) -> Tensor:
        """Changes [m, k, d] to the nearest known points of the target, clamped to the box; else zeros."""
        x = task.x[nodes.point]
        unit = torch.where(task.fixed, torch.inf, task.spread)
        distance = torch.cdist(x / unit, self.known / unit)
        distance = distance.masked_fill(self.cluster != self.pieces.cluster[nodes.piece][:, None], torch.inf)
        least, which = distance.topk(min(KNOWN, len(self.known)), dim=1, largest=False)
        way = (self.known[which] - x[:, None]) / task.spread
        return torch.where(least.isfinite()[:, :, None], way, 0.0).clamp(nodes.low[:, None], nodes.high[:, None])


def _least(
    contrasts: Contrasts, known: Tensor, low: Tensor, high: Tensor, margin: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The smallest changes [m, d] of descents from zero and from known points [m, k, d] of the target.

    Returns also whether there are any, and whether the descents that led to them converged.
    """
    nodes = torch.arange(len(known), device=known.device)
    starts = known.unbind(dim=1)

    def inside(u: Tensor, rows: Tensor) -> Tensor:
        return contrasts(u, rows).amin(dim=1) >= 0

    best = inner = torch.zeros_like(low)
    for start in reversed(starts):
        inner = torch.where(inside(start, nodes)[:, None], start, inner)
    least = torch.full_like(low[:, 0], torch.inf)
    possible = (low <= high).all(dim=1)
    sure = torch.zeros_like(possible)
    for count, start in enumerate((best, inner, *starts)):
        live = nodes[possible & (least.isinf() | (count < 2))]  # known points where there is no solution so far
        if not len(live):
            continue
        u, converged = _descend(contrasts, start.clamp(low, high), live, low, high, margin)
        outside = live[~inside(u[live], live) & inside(inner[live], live)]
        way = inner[outside] - u[outside]
        share = torch.ones_like(margin[outside])
        for power in range(1, 51 * bool(len(outside))):  # bisection: the least share of the way that leads inside
            closer = share - 0.5**power
            share = torch.where(inside(u[outside] + closer * way, outside)[:, None], closer, share)
        u[outside] += share * way
        length = torch.linalg.vector_norm(u, dim=1)
        better = live[inside(u[live], live) & (length < least)[live]]
        best, least, sure = (
            old.index_copy(0, better, new[better]) for old, new in ((best, u), (least, length), (sure, converged))
        )
    return best, least.isfinite(), sure


def _descend(
    contrasts: Contrasts, u: Tensor, live: Tensor, low: Tensor, high: Tensor, margin: Tensor
) -> tuple[Tensor, Tensor]:
    """Solve a sequence of quadratic programs for some rows; return the changes [m, d], and whether they converged.

    A step goes to the nearest point of the linearized problem. A line search reduces a merit function: the squared
    distance plus the violations of the contrasts, times penalties above their multipliers (Nocedal and Wright,
    Numerical Optimization, 2006, section 18.4). The Hessian of the Lagrangian is approximated by a multiple of the
    identity, its slope along the last step (Barzilai and Borwein, IMA Journal of Numerical Analysis 8, 1988).
    """
    u, converged = u.clone(), torch.zeros_like(u[:, 0], dtype=torch.bool)
    step = torch.zeros_like(u[live])
    memory = [step, step, step[:, :1], step[:, :1]]
    for _ in range(STEPS):
        if not len(live):
            break
        ended, memory = _step(contrasts, u[live], live, low[live], high[live], margin[live], *memory)
        u[live] += memory[0]
        converged[live[ended]] = True
        going = ~ended & memory[0].any(dim=1)
        live = live[going]
        memory = [part[going] for part in memory]
    return u, converged


def _step(
    contrasts: Contrasts, here: Tensor, live: Tensor, low: Tensor, high: Tensor, margin: Tensor,
    step: Tensor, pull: Tensor, multipliers: Tensor, penalty: Tensor,
) -> tuple[Tensor, list[Tensor]]:  # fmt: skip
    """Whether changes [l, d] have converged, and the next step, the gradients' pull, multipliers and penalties."""
    h, slopes = _linearized(contrasts, here, live)
    length = torch.linalg.vector_norm(slopes, dim=2)
    size = step.square().sum(dim=1, keepdim=True)
    bend = ((step - torch.einsum("nhd,nh->nd", slopes, multipliers) + pull) * step).sum(dim=1, keepdim=True)
    curvature = torch.where(size > 0, bend.abs() / size, 1.0).clamp(*CURVATURES)
    normals, limits = half_spaces(h, slopes, margin[:, 0])

    def nearest(back: Tensor, limits: Tensor) -> tuple[Tensor, ...]:
        """The step to the solution that is nearest to ``here - back``."""
        shifted = limits + torch.einsum("nhd,nd->nh", normals, back)
        end, solvable, multipliers = shortest(normals, shifted, low - here + back, high - here + back)
        return end - back, solvable[:, None], multipliers

    step, solvable, multipliers = nearest(here / curvature, limits)
    if not bool(solvable.all()):  # only the most violated half-space
        worst, which = limits.min(dim=1, keepdim=True)
        alone = torch.full_like(limits, torch.inf).scatter(1, which, worst)
        towards, exists, _ = nearest(torch.zeros_like(here), alone)
        step = torch.where(solvable, step, towards * exists)
    slope = torch.where(length > 0, length, 1.0)
    multipliers = curvature * multipliers / slope * solvable
    penalty = torch.maximum(penalty, 2 * multipliers)
    weight = torch.where(solvable, penalty, 1 / slope)

    def merit(u: Tensor) -> Tensor:
        """Half the squared distance, if the problem is solvable, plus penalized violations."""
        h = contrasts(u, live)
        short = torch.where(h.isfinite(), (margin * length - h).clamp(min=0), 0.0)
        return solvable * u.square().sum(dim=1, keepdim=True) / 2 + (weight * short).sum(dim=1, keepdim=True)

    before = merit(here)
    size = torch.linalg.vector_norm(step, dim=1, keepdim=True)
    # if the linearized problem has no solution, the step needs to reduce the violation substantially
    enough = torch.where(solvable, 1e-4 * curvature * size.square(), 0.1 * before)
    t = torch.ones_like(before)
    for _ in range(HALVINGS):
        refused = ~(merit(here + t * step) <= before - t * enough)
        if not bool(refused.any()):
            break
        t = torch.where(refused, t / 2, t)
    else:
        t = torch.where(refused, 0.0, t)
    limit = TOLERANCE * (1 + torch.linalg.vector_norm(here, dim=1, keepdim=True))
    ended = (solvable & (curvature.clamp(min=1) * size <= limit))[:, 0]
    return ended, [t * step, torch.einsum("nhd,nh->nd", slopes, multipliers), multipliers, penalty]


def _linearized(contrasts: Contrasts, u: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """The contrasts [m, L] and their gradients [m, L, d]: the least ones; the others are infinite."""
    with torch.enable_grad():
        leaf = u.clone().requires_grad_()
        h = contrasts(leaf, rows)
        least, which = h.topk(min(LINEARIZED, h.shape[1]), dim=1, largest=False)
        sums = least.masked_fill(least.isinf(), 0.0).sum(dim=0)
        (gradients,) = torch.autograd.grad(sums, leaf, torch.eye(len(sums)).to(sums), is_grads_batched=True)
    slopes = u.new_zeros(*h.shape, u.shape[1])
    slopes.scatter_(1, which[:, :, None].expand(-1, -1, u.shape[1]), gradients.transpose(0, 1))
    return torch.full_like(h, torch.inf).scatter(1, which, least.detach()), slopes
