"""Counterfactuals of clusters with curved boundaries, by sequential quadratic programming."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from neonxc.common.memory import at_once
from neonxc.counterfactuals.polyhedra import COPIES, most_pieces, normalised, pairs
from neonxc.counterfactuals.projection import shortest
from neonxc.counterfactuals.search import Found, Nodes, roots, search
from neonxc.counterfactuals.task import Task
from neonxc.head import Head, Noise

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
"""Computes the contrasts [m, L] of some nodes [m] after changes [m, d]."""


class Curved:
    """The clusters of any differentiable head.

    Parameters
    ----------
    head : Head
    noise : Noise or None
        If given, points of the target may not be noise either.
    """

    first_margin = 1e-9

    def __init__(self, head: Head, noise: Noise | None) -> None:
        self.head, self.noise, self.pieces = head, noise, head.pieces()
        points = head.detection.references.double()
        outside = torch.zeros(len(points), dtype=torch.bool, device=points.device)
        if noise is not None and len(points):
            outside = noise(head, points)
        self.known = points[~outside]
        self.cluster = head.assign(self.known) if len(self.known) else self.known.new_zeros(0, dtype=torch.int64)

    @property
    def room(self) -> int:
        """Number of points that fit into memory at once."""
        width = (self.pieces.signs.shape[1] + KNOWN) * self.head.n_features
        width += (4 + LINEARIZED) * self.head.detection.width
        return at_once(8 * COPIES * width, self.head.detection.device)

    def nearest(self, task: Task, margin: Tensor) -> Found:
        """Find points inside their targets by a margin [n], at a local minimum of the distance."""

        def solve(nodes: Nodes) -> tuple[Tensor, Tensor, Tensor]:
            known = self._known_points(task, nodes)
            best = BestChanges(task, self, nodes, margin)
            every = torch.arange(len(nodes.point), device=margin.device)
            inner = best.inside(known)
            best.descend(every, torch.zeros_like(inner), inner)
            best.descend(every, inner, inner)
            for start in known.unbind(dim=1):  # for nodes without a solution so far
                left = every[best.length.isinf()]
                best.descend(left, start[left], inner[left])
            return best.u, best.length.isfinite(), best.sure

        starts = pairs(self.pieces, task.wanted)
        nodes = roots(task, *starts, torch.zeros_like(task.x[:, 0])[starts[0]])
        # curved pieces have no lower bounds, so all of them are tried
        found = search(task, nodes, solve, self.room, MOST_NODES + most_pieces(starts[0]), False)
        return replace(found, exact=torch.zeros_like(found.exact))

    def contrasts(self, task: Task, point: Tensor, piece: Tensor, u: Tensor) -> Tensor:
        """Contrasts [m, L] of points after changes [m, d]: positive inside their pieces and not noise."""
        y = task.x[point] + u * task.spread
        found = self.pieces.contrasts(self.head.compared(y), piece)
        if self.noise is None:
            return found
        cluster = self.pieces.cluster[piece]
        return torch.cat([found, self.noise.margin(self.head, y).gather(1, cluster[:, None])], dim=1)

    def _known_points(self, task: Task, nodes: Nodes) -> Tensor:
        """Changes [m, k, d] to the nearest known points of the target, clamped to the box; else zeros."""
        here = task.x[nodes.point]
        unit = torch.where(task.fixed, torch.inf, task.spread)
        distance = torch.cdist(here / unit, self.known / unit)
        distance = distance.masked_fill(self.cluster != self.pieces.cluster[nodes.piece][:, None], torch.inf)
        least, which = distance.topk(min(KNOWN, len(self.known)), dim=1, largest=False)
        way = (self.known[which] - here[:, None]) / task.spread
        return torch.where(least.isfinite()[:, :, None], way, 0.0).clamp(nodes.low[:, None], nodes.high[:, None])


class BestChanges:
    """The smallest changes found so far for some nodes.

    Attributes
    ----------
    u : Tensor [m, d]
        The changes in units of `spread`.
    length : Tensor [m]
        Their lengths; infinite if no point of the target was found.
    sure : Tensor [m] of bool
        Whether the descent converged.
    """

    def __init__(self, task: Task, curved: Curved, nodes: Nodes, margin: Tensor) -> None:
        self.task, self.curved, self.nodes, self.margin = task, curved, nodes, margin
        self.u = torch.zeros_like(nodes.low)
        self.length = torch.full_like(self.u[:, 0], torch.inf)
        self.sure = torch.zeros_like(self.length, dtype=torch.bool)

    def contrasts(self, u: Tensor, subset: Tensor) -> Tensor:
        """The contrasts [l, L] of some nodes [l] after changes [l, d]."""
        return self.curved.contrasts(self.task, self.nodes.point[subset], self.nodes.piece[subset], u)

    def inside(self, known: Tensor) -> Tensor:
        """The first of each node's known points [m, k, d] that is inside the target; zeros if none is."""
        result = torch.zeros_like(self.u)
        live = torch.arange(len(result), device=result.device)
        for u in known.unbind(dim=1):
            inside = self.contrasts(u[live], live).amin(dim=1) >= 0
            result[live[inside]] = u[live[inside]]
            live = live[~inside]
        return result

    def descend(self, subset: Tensor, start: Tensor, inner: Tensor) -> None:
        """Descend from starting points [l, d] of some nodes [l], and keep the results that are better."""
        if not len(subset):
            return
        nodes = self.nodes.take(subset)

        def contrasts(u: Tensor, part: Tensor) -> Tensor:
            return self.contrasts(u, subset[part])

        start = start.clamp(nodes.low, nodes.high)
        u, converged = _descend(contrasts, start, nodes, self.margin[nodes.point])
        u = _moved_inside(contrasts, u, inner)
        length = torch.linalg.vector_norm(u, dim=1)
        better = (self.contrasts(u, subset).amin(dim=1) >= 0) & (length < self.length[subset])
        won = subset[better]
        self.u[won], self.length[won], self.sure[won] = u[better], length[better], converged[better]


def _descend(contrasts: Contrasts, u: Tensor, nodes: Nodes, margin: Tensor) -> tuple[Tensor, Tensor]:
    """Solve a sequence of quadratic programs; return the last changes [m, d], and whether they converged.

    A step goes to the nearest point of the linearized problem. A line search reduces a merit function: the squared
    distance plus the violations of the contrasts, times penalties above their multipliers (Nocedal and Wright,
    Numerical Optimization, 2006, section 18.4). The Hessian of the Lagrangian is approximated by a multiple of the
    identity, its slope along the last step (Barzilai and Borwein, IMA Journal of Numerical Analysis 8, 1988).
    """
    u = u.clone()
    converged = torch.zeros(len(u), dtype=torch.bool, device=u.device)
    live = (nodes.low <= nodes.high).all(dim=1).nonzero()[:, 0]
    state: tuple[Tensor, ...] = ()
    for _ in range(STEPS):
        if not len(live):
            break
        here, live_contrasts = u[live], partial(_contrasts_of, contrasts, live)
        h, slopes = _linearized(live_contrasts, here)
        length = torch.linalg.vector_norm(slopes, dim=2)
        curvature, penalty = torch.ones_like(h[:, :1]), torch.zeros_like(h)
        if state:
            step, pull, multipliers, penalty = state
            bend = ((step - _pull(slopes, multipliers) + pull) * step).sum(dim=1, keepdim=True)
            curvature = (bend.abs() / step.square().sum(dim=1, keepdim=True).clamp(min=1e-300)).clamp(*CURVATURES)
        normals, limits = normalised(h, slopes, margin[live])
        limits = limits + torch.einsum("nhd,nd->nh", normals, here)
        low, high = nodes.low[live], nodes.high[live]
        goal, solvable, multipliers = _nearest_to((1 - 1 / curvature) * here, normals, limits, low, high)
        if not bool(solvable.all()):
            back = _nearest_to(here, normals, _worst(normals, limits, here), low, high)
            goal = torch.where(solvable[:, None], goal, torch.where(back[1][:, None], back[0], here))
        step = goal - here
        slope = torch.where(length > 0, length, 1.0)
        multipliers = curvature * multipliers / slope * solvable[:, None]
        penalty = torch.maximum(penalty, 2 * multipliers)
        merit = partial(
            _merit, solvable, torch.where(solvable[:, None], penalty, 1 / slope), margin[live, None] * length
        )
        enough = 1e-4 * curvature[:, 0] * step.square().sum(dim=1)
        # if the linearized problem has no solution, the step needs to reduce the violation substantially
        enough = torch.where(solvable, enough, 0.1 * merit(here, h))
        t = _step_length(partial(_merit_at, merit, live_contrasts), here, step, enough)
        u[live] = here + t[:, None] * step
        size = curvature[:, 0].clamp(min=1) * torch.linalg.vector_norm(step, dim=1)
        ended = solvable & (size <= TOLERANCE * (1 + torch.linalg.vector_norm(here, dim=1)))
        converged[live[ended]] = True
        going = ~ended & (t > 0)
        live = live[going]
        new = (t[:, None] * step, _pull(slopes, multipliers), multipliers, penalty)
        state = tuple(part[going] for part in new)
    return u, converged


def _pull(slopes: Tensor, multipliers: Tensor) -> Tensor:
    """The sum [m, d] of the contrasts' gradients [m, L, d] times their multipliers [m, L]."""
    return torch.einsum("nhd,nh->nd", slopes, multipliers)


def _contrasts_of(contrasts: Contrasts, nodes: Tensor, u: Tensor) -> Tensor:
    return contrasts(u, nodes)


def _nearest_to(center: Tensor, normals: Tensor, limits: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, ...]:
    """Solve the quadratic programs of :func:`shortest` with distances from a center [n, d]."""
    shifted = limits - torch.einsum("nhd,nd->nh", normals, center)
    u, found, multipliers = shortest(normals, shifted, low - center, high - center)
    return u + center, found, multipliers


def _worst(normals: Tensor, limits: Tensor, here: Tensor) -> Tensor:
    """Limits that keep only the most violated half-space, for problems without a solution."""
    beyond = torch.einsum("nhd,nd->nh", normals, here) - limits
    worst = beyond.argmax(dim=1, keepdim=True)
    return torch.full_like(limits, torch.inf).scatter(1, worst, limits.gather(1, worst))


def _merit(solvable: Tensor, penalty: Tensor, margin: Tensor, u: Tensor, h: Tensor) -> Tensor:
    """The merit function [n]: half the squared distance, if the problem is solvable, plus penalized violations."""
    short = torch.where(h.isfinite(), (margin - h).clamp(min=0), 0.0)
    return solvable * u.square().sum(dim=1) / 2 + (penalty * short).sum(dim=1)


def _merit_at(
    merit: Callable[[Tensor, Tensor], Tensor], contrasts: Callable[[Tensor], Tensor], u: Tensor
) -> Tensor:
    return merit(u, contrasts(u))


def _step_length(merit: Callable[[Tensor], Tensor], u: Tensor, step: Tensor, enough: Tensor) -> Tensor:
    """The first step length of 1, 1/2, 1/4 ... at which the merit decreases enough; 0 if there is none."""
    before = merit(u)
    t, remaining = torch.ones_like(before), torch.ones_like(before, dtype=torch.bool)
    for _ in range(HALVINGS):
        remaining &= ~(merit(u + t[:, None] * step) <= before - t * enough)
        if not bool(remaining.any()):
            break
        t = torch.where(remaining, t / 2, t)
    return torch.where(remaining, 0.0, t)


def _moved_inside(contrasts: Contrasts, u: Tensor, inner: Tensor) -> Tensor:
    """Move points that are outside towards points `inner` inside, by bisection, until they are inside."""
    every = torch.arange(len(u), device=u.device)
    outside = contrasts(u, every).amin(dim=1) < 0
    live = (outside & (contrasts(inner, every).amin(dim=1) >= 0)).nonzero()[:, 0]
    if not len(live):
        return u
    start, way = u[live], inner[live] - u[live]
    low, high = torch.zeros_like(way[:, :1]), torch.ones_like(way[:, :1])
    for _ in range(50):
        middle = (low + high) / 2
        inside = contrasts(start + middle * way, live).amin(dim=1, keepdim=True) >= 0
        low, high = torch.where(inside, low, middle), torch.where(inside, middle, high)
    return u.index_copy(0, live, start + high * way)


def _linearized(contrasts: Callable[[Tensor], Tensor], u: Tensor) -> tuple[Tensor, Tensor]:
    """The contrasts [m, L] and their gradients [m, L, d]: the least ones; the others are infinite."""
    with torch.enable_grad():
        leaf = u.clone().requires_grad_()
        found = contrasts(leaf)
        least, which = found.topk(min(LINEARIZED, found.shape[1]), dim=1, largest=False)
        sums = least.masked_fill(least.isinf(), 0.0).sum(dim=0)
        each = torch.eye(len(sums)).to(sums)
        (some,) = torch.autograd.grad(sums, leaf, each, is_grads_batched=True)
    slopes = some.new_zeros(*found.shape, u.shape[1])
    slopes.scatter_(1, which[:, :, None].expand(-1, -1, u.shape[1]), some.transpose(0, 1))
    return torch.full_like(slopes[:, :, 0], torch.inf).scatter(1, which, least.detach()), slopes
