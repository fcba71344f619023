"""Clusters with curved boundaries: sequential quadratic programs on linearised contrasts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from neonxc.blocks import at_once
from neonxc.counterfactuals.polyhedra import COPIES, normalised, pairs
from neonxc.counterfactuals.projection import shortest
from neonxc.counterfactuals.search import Found, Nodes, roots, search
from neonxc.counterfactuals.task import Task
from neonxc.head import Head, Noise

STEPS = 200
TOLERANCE = 1e-6
"""Of the last step, relative to the distance."""
HALVINGS = 30
CURVATURES = (0.1, 1e6)
KNOWN = 16
"""Known points of a cluster that are tried as places to start from."""
MOST_NODES = 16
"""What search comes upon then is good, and never certain to be the best."""

Contrasts = Callable[[Tensor, Tensor], Tensor]
"""Contrasts [m, L] after changes [m, d], of some of the nodes [m]."""


class Curved:
    """The clusters of any head that can be differentiated.

    Parameters
    ----------
    head : Head
    noise : Noise or None
        Points of clusters are not noise.
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
        """How many points are worked on at once."""
        width = (self.pieces.signs.shape[1] + COPIES) * self.head.n_features + 4 * self.head.detection.width
        return at_once(8 * COPIES * width, self.head.detection.device)

    def nearest(self, task: Task, margin: Tensor) -> Found:
        """Points that are by a margin [n], in spreads, inside, and near: none that differs a little is nearer."""

        def solve(nodes: Nodes) -> tuple[Tensor, Tensor, Tensor]:
            def contrasts(u: Tensor, some: Tensor) -> Tensor:
                return self._contrasts(task, nodes.point[some], nodes.piece[some], u)

            inner = self._known_inside(task, nodes, contrasts)
            best, length = torch.zeros_like(nodes.low), task.x.new_full((len(nodes.point),), torch.inf)
            sure = length.isfinite()
            for start in (torch.zeros_like(best), inner):
                u, converged = _descend(contrasts, start.clamp(nodes.low, nodes.high), nodes, margin[nodes.point])
                u = _pulled_in(contrasts, u, inner)
                distance = torch.linalg.vector_norm(u, dim=1)
                everything = torch.arange(len(u), device=u.device)
                better = (contrasts(u, everything).amin(dim=1) >= 0) & (distance < length)
                best[better], length[better], sure[better] = u[better], distance[better], converged[better]
            return best, length.isfinite(), sure

        starts = pairs(self.pieces, task.target)
        nodes = roots(task, *starts, torch.zeros_like(task.x[:, 0])[starts[0]])
        # pieces have no bounds here: all of them are tried
        pieces = max(1, int(torch.bincount(starts[0], minlength=1).max())) if len(starts[0]) else 1
        found = search(task, nodes, solve, self.room, MOST_NODES + pieces)
        return replace(found, exact=torch.zeros_like(found.exact))

    def _contrasts(self, task: Task, point: Tensor, piece: Tensor, u: Tensor) -> Tensor:
        y = task.x[point] + u * task.spread
        found = self.pieces.contrasts(self.head.compared(y), piece)
        if self.noise is None:
            return found
        cluster = self.pieces.cluster[piece]
        return torch.cat([found, self.noise.margin(self.head, y).gather(1, cluster[:, None])], dim=1)

    def _known_inside(self, task: Task, nodes: Nodes, contrasts: Contrasts) -> Tensor:
        """Changes [m, d] to the nearest of a few known points of the target that the box leaves inside of it.

        Where there is none it is the nearest of them; without any, no change.
        """
        here = (task.x / task.spread)[nodes.point]
        way = (
            (self.known / task.spread)[None] - here[:, None]
            if len(self.known)
            else here.new_zeros(len(here), 1, 1)
        )
        way = way.expand(-1, -1, here.shape[1]).clamp(nodes.low[:, None], nodes.high[:, None])
        other = torch.ones_like(way[:, :, 0], dtype=torch.bool)
        if len(self.known):
            other = self.cluster != self.pieces.cluster[nodes.piece][:, None]
        length = torch.linalg.vector_norm(way, dim=2).masked_fill(other, torch.inf)
        order = length.sort(dim=1)
        rows = torch.arange(len(here), device=here.device)
        result = torch.where(order.values[:, :1].isfinite(), way[rows, order.indices[:, 0]], 0.0)
        live = rows
        for value, index in zip(order.values.T[:KNOWN], order.indices.T[:KNOWN], strict=True):
            live = live[value[live].isfinite()]
            inside = contrasts(way[live, index[live]], live).amin(dim=1) >= 0
            result[live[inside]] = way[live, index[live]][inside]
            live = live[~inside]
        return result


def _descend(contrasts: Contrasts, u: Tensor, nodes: Nodes, margin: Tensor) -> tuple[Tensor, Tensor]:
    """Solve one quadratic program after another: where that ends, [m, d], and whether it converged.

    A step goes to the nearest point of the linearised problem, as far as that lessens the squared distance plus
    what contrasts are negative by, times penalties above their multipliers (Nocedal and Wright, Numerical
    Optimization, 2006, section 18.4). The Hessian of the Lagrangian is a multiple of the identity: its slope along
    the last step (Barzilai and Borwein, IMA Journal of Numerical Analysis 8, 1988).
    """
    u = u.clone()
    converged = torch.zeros(len(u), dtype=torch.bool, device=u.device)
    live = (nodes.low <= nodes.high).all(dim=1).nonzero()[:, 0]
    state: tuple[Tensor, ...] = ()
    for _ in range(STEPS):
        if not len(live):
            break
        here, of_live = u[live], partial(_of_some, contrasts, live)
        h, slopes = _linearised(of_live, here)
        length = torch.linalg.vector_norm(slopes, dim=2)
        curvature, penalty = torch.ones_like(h[:, :1]), torch.zeros_like(h)
        if state:
            step, pull, multipliers, penalty = state
            bend = ((step - _pull(slopes, multipliers) + pull) * step).sum(dim=1, keepdim=True)
            curvature = (bend.abs() / step.square().sum(dim=1, keepdim=True).clamp(min=1e-300)).clamp(*CURVATURES)
        center = (1 - 1 / curvature) * here
        normals, limits = normalised(h, slopes, margin[live])
        limits = limits + torch.einsum("nhd,nd->nh", normals, here - center)
        goal, there, multipliers = shortest(normals, limits, nodes.low[live] - center, nodes.high[live] - center)
        step = torch.where(there[:, None], goal + center - here, 0.0)
        multipliers = curvature * multipliers / torch.where(length > 0, length, 1.0)
        penalty = torch.maximum(penalty, 2 * multipliers)
        enough = 1e-4 * curvature[:, 0] * step.square().sum(dim=1)
        t = _step_length(of_live, here, step, penalty, margin[live, None] * length, h, enough)
        u[live] = here + t[:, None] * step
        size = curvature[:, 0].clamp(min=1) * torch.linalg.vector_norm(step, dim=1)
        ended = there & (size <= TOLERANCE * (1 + torch.linalg.vector_norm(here, dim=1)))
        converged[live[ended]] = True
        going = there & ~ended & (t > 0)
        live = live[going]
        new = (t[:, None] * step, _pull(slopes, multipliers), multipliers, penalty)
        state = tuple(part[going] for part in new)
    return u, converged


def _pull(slopes: Tensor, multipliers: Tensor) -> Tensor:
    """Sum [m, d] of the contrasts' slopes [m, L, d] times their multipliers [m, L]."""
    return torch.einsum("nhd,nh->nd", slopes, multipliers)


def _of_some(contrasts: Contrasts, some: Tensor, u: Tensor) -> Tensor:
    return contrasts(u, some)


def _step_length(
    contrasts: Callable[[Tensor], Tensor],
    u: Tensor,
    step: Tensor,
    penalty: Tensor,
    margin: Tensor,
    h: Tensor,
    enough: Tensor,
) -> Tensor:
    """The first of 1, 1/2, 1/4 ... at which the merit falls as it should; 0 where none does."""

    def merit(v: Tensor, h: Tensor) -> Tensor:
        short = torch.where(h.isfinite(), (margin - h).clamp(min=0), 0.0)
        return v.square().sum(dim=1) / 2 + (penalty * short).sum(dim=1)

    before = merit(u, h)
    t, open_ = torch.ones_like(before), torch.ones_like(before, dtype=torch.bool)
    for _ in range(HALVINGS):
        v = u + t[:, None] * step
        open_ &= ~(merit(v, contrasts(v)) <= before - t * enough)
        if not bool(open_.any()):
            break
        t = torch.where(open_, t / 2, t)
    return torch.where(open_, 0.0, t)


def _pulled_in(contrasts: Contrasts, u: Tensor, inner: Tensor) -> Tensor:
    """Points that are outside, moved towards one inside until they are there."""
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


def _linearised(contrasts: Callable[[Tensor], Tensor], u: Tensor) -> tuple[Tensor, Tensor]:
    """Contrasts [m, L] and their slopes [m, L, d]."""
    with torch.enable_grad():
        leaf = u.clone().requires_grad_()
        found = contrasts(leaf)
        columns = found.unbind(dim=1)
        slopes = [
            torch.autograd.grad(column.masked_fill(column.isinf(), 0.0).sum(), leaf, retain_graph=True)[0]
            for column in columns
        ]
    return found.detach(), torch.stack(slopes, dim=1)
