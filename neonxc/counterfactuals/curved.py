"""Counterfactuals of clusters with curved boundaries, by sequential quadratic programming.

The change u of a point x, in units of `spread`, is a local minimum of

    min |u|^2 / 2   subject to   h_l(u) >= margin |grad h_l(u)| for all l   and   low <= u <= high,

where h_l are the contrasts that bound a piece of the target, at x + u spread.

A step s of a descent follows Nocedal and Wright, Numerical Optimization, 2006, chapter 18:

1. The contrasts are linearized: h_l(u) + s grad h_l >= margin |grad h_l|.
2. The Hessian of the Lagrangian L(u) = |u|^2 / 2 - sum_l lambda_l h_l(u) is approximated by c I, with its slope
   c = |s' y| / |s|^2 along the last step s, where y is the change of grad L (Barzilai and Borwein, IMA Journal of
   Numerical Analysis 8, 1988).
3. The quadratic program min u s + c |s|^2 / 2, or min |s + u / c|^2, gives s and the multipliers lambda_l. If it
   has no solution, s leads to the half-space that is violated most.
4. A line search halves t in u + t s until the merit function |u|^2 / 2 + sum_l w_l max(margin |grad h_l| - h_l, 0)
   decreases enough, with penalties w_l of at least 2 lambda_l (section 18.4).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from neonxc.common.memory import at_once
from neonxc.counterfactuals.branch_and_bound import NearestPoints, Nodes, search
from neonxc.counterfactuals.geometry import compared, pieces_of
from neonxc.counterfactuals.pieces import COPIES, half_spaces
from neonxc.counterfactuals.projection import shortest
from neonxc.counterfactuals.task import Task
from neonxc.head import Head

STEPS = 100
"""Number of steps after which a descent ends unconverged."""
TOLERANCE = 1e-6
"""Length of the last step, relative to the distance, at which a descent has converged."""
HALVINGS = 30
"""Number of times that a line search halves t before it refuses the step."""
BISECTIONS = 50
"""Number of times that the path from an end outside of the target to a point inside is halved."""
CURVATURES = (0.1, 1e6)
"""Range of c, which is cut off at both ends."""
LINEARIZED = 12
"""Number of contrasts that bound a step: the least ones, which are nearest to the boundary or outside of it."""
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
        n_rows = self.pieces.signs.shape[1] + KNOWN  # of d numbers: gradients and known points
        n_numbers = n_rows * head.n_features + (4 + LINEARIZED) * head.detection.width  # of a node
        self.batch_size = at_once(8 * COPIES * n_numbers, self.known.device)

    def nearest(self, task: Task, margin: Tensor) -> NearestPoints:
        """Find points inside their targets by a margin [n], at a local minimum of the distance."""

        def solve(nodes: Nodes) -> tuple[Tensor, Tensor, Tensor]:
            def contrasts(u: Tensor, rows: Tensor) -> Tensor:
                y = task.x[nodes.point[rows]] + u * task.spread
                return self.pieces.contrasts(compared(self.head, y), nodes.piece[rows])

            local = LocalSearch(contrasts, nodes.low, nodes.high, margin[nodes.point, None])
            return local.smallest(self._known_points(task, nodes))

        point, piece = task.targets[:, self.pieces.cluster].nonzero(as_tuple=True)
        bound = torch.zeros_like(task.x[point, 0])  # curved pieces have none, so all of them are tried
        nearest = search(task, point, piece, bound, solve, self.batch_size, MOST_NODES, False)
        return nearest._replace(exact=torch.zeros_like(nearest.exact))

    def _known_points(self, task: Task, nodes: Nodes) -> Tensor:
        """Changes [m, k, d] to the nearest known points of the target, clamped to the box; else zeros."""
        x = task.x[nodes.point]
        scale = torch.where(task.fixed, torch.inf, task.spread)  # fixed columns do not count
        distances = torch.cdist(x / scale, self.known / scale)
        is_other = self.cluster != self.pieces.cluster[nodes.piece][:, None]
        distances = distances.masked_fill(is_other, torch.inf)
        n_nearest = min(KNOWN, len(self.known))
        lowest, index = distances.topk(n_nearest, dim=1, largest=False)

        changes = (self.known[index] - x[:, None]) / task.spread
        changes = torch.where(lowest.isfinite()[:, :, None], changes, 0.0)
        return changes.clamp(nodes.low[:, None], nodes.high[:, None])


class LastStep(NamedTuple):
    """The last steps of l descents, from which the next ones follow."""

    step: Tensor  # [l, d], t s
    pull: Tensor  # [l, d], sum_l lambda_l grad h_l where the step began
    multipliers: Tensor  # [l, L], lambda_l; [l, 1] before the first step
    penalty: Tensor  # [l, L], w_l; [l, 1] before the first step

    def take(self, subset: Tensor) -> LastStep:
        """Select descents."""
        return LastStep(*(values[subset] for values in self))


class Linearized(NamedTuple):
    """The contrasts h_l of l descents at their changes u, linearized as half-spaces ``normals s <= limits``."""

    slopes: Tensor  # [l, L, d], grad h_l
    length: Tensor  # [l, L], |grad h_l|
    normals: Tensor  # [l, L, d], - grad h_l / |grad h_l|
    limits: Tensor  # [l, L], h_l / |grad h_l| - margin


class LocalSearch:
    """Descents to the smallest changes that lead m nodes into their pieces.

    Parameters
    ----------
    contrasts : callable
    low, high : Tensor [m, d]
        The boxes of the changes.
    margin : Tensor [m, 1]
        How far inside the changes shall lead.
    """

    def __init__(self, contrasts: Contrasts, low: Tensor, high: Tensor, margin: Tensor) -> None:
        self.contrasts = contrasts
        self.low = low
        self.high = high
        self.margin = margin
        self.changes = torch.zeros_like(low)  # the smallest ones so far
        self.length = torch.full_like(low[:, 0], torch.inf)
        self.converged = torch.zeros_like(self.length, dtype=torch.bool)

    def smallest(self, known: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Find the smallest changes [m, d] by descents from zero and from known points [m, k, d] of the target.

        Returns also whether there are any, and whether the descents that led to them converged.
        """
        nodes = torch.arange(len(known), device=known.device)
        starts = known.unbind(dim=1)
        possible = (self.low <= self.high).all(dim=1)

        # the first known point that is inside, of which the nearest ones come first; zero if there is none
        inner = torch.zeros_like(self.low)
        for start in reversed(starts):
            inner = torch.where(self._inside(start, nodes)[:, None], start, inner)

        self._try(torch.zeros_like(self.low), inner, nodes[possible])
        self._try(inner, inner, nodes[possible])
        for start in starts:
            self._try(start, inner, nodes[possible & self.length.isinf()])  # where there is no solution so far
        return self.changes, self.length.isfinite(), self.converged

    def _inside(self, u: Tensor, rows: Tensor) -> Tensor:
        """Whether changes [l, d] lead into the pieces of some nodes [l]."""
        return self.contrasts(u, rows).amin(dim=1) >= 0

    def _try(self, start: Tensor, inner: Tensor, rows: Tensor) -> None:
        """Descend from changes [m, d] for some nodes, and keep what is smaller and inside."""
        if not len(rows):
            return
        u, converged = self._descend(start.clamp(self.low, self.high), rows)

        is_outside = ~self._inside(u[rows], rows)
        outside = rows[is_outside & self._inside(inner[rows], rows)]
        if len(outside):
            u[outside] = self._moved_inside(u[outside], inner[outside], outside)

        length = torch.linalg.vector_norm(u, dim=1)
        is_shorter = (length < self.length)[rows]
        better = rows[self._inside(u[rows], rows) & is_shorter]
        self.changes[better] = u[better]
        self.length[better] = length[better]
        self.converged[better] = converged[better]

    def _moved_inside(self, u: Tensor, inner: Tensor, rows: Tensor) -> Tensor:
        """Move changes [l, d] from outside towards changes inside, no farther than necessary, by bisection."""
        path = inner - u
        t = torch.ones_like(self.margin[rows])  # the smallest fraction of the path that leads inside
        for power in range(1, BISECTIONS + 1):
            closer = t - 0.5**power
            is_inside = self._inside(u + closer * path, rows)
            t = torch.where(is_inside[:, None], closer, t)
        return u + t * path

    def _descend(self, start: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Take steps from changes [m, d] for some nodes; return the changes, and whether they converged [m]."""
        u = start.clone()
        converged = torch.zeros_like(u[:, 0], dtype=torch.bool)
        zeros = torch.zeros_like(u[rows])
        last = LastStep(zeros, zeros, zeros[:, :1], zeros[:, :1])
        for _ in range(STEPS):
            if not len(rows):
                break
            has_converged, last = self._step(u[rows], rows, last)
            u[rows] += last.step
            converged[rows[has_converged]] = True

            continues = ~has_converged & last.step.any(dim=1)
            rows = rows[continues]
            last = last.take(continues)
        return u, converged

    def _step(self, u: Tensor, rows: Tensor, last: LastStep) -> tuple[Tensor, LastStep]:
        """Find the step from changes u [l, d], and whether they have converged, by the definition on top."""
        margin = self.margin[rows]
        linear = self._linearized(u, rows)
        curvature = _curvature(linear.slopes, last)
        step, solvable, multipliers = self._solved(u, rows, linear, curvature)

        # lambda_l = c mu_l / |grad h_l|, as the mu_l are those of min |s + u / c|^2 / 2 with normals of length 1
        slope = torch.where(linear.length > 0, linear.length, 1.0)
        multipliers = curvature * multipliers / slope * solvable
        penalty = torch.maximum(last.penalty, 2 * multipliers)
        weight = torch.where(solvable, penalty, 1 / slope)

        def merit(u: Tensor) -> Tensor:
            """The merit function; without |u|^2 / 2 where the quadratic program has no solution."""
            h = self.contrasts(u, rows)
            violation = (margin * linear.length - h).clamp(min=0)
            violation = torch.where(h.isfinite(), violation, 0.0)
            distance = solvable * u.square().sum(dim=1, keepdim=True) / 2
            return distance + (weight * violation).sum(dim=1, keepdim=True)

        before = merit(u)
        size = torch.linalg.vector_norm(step, dim=1, keepdim=True)
        # if the quadratic program has no solution, the step needs to reduce the violation substantially
        sufficient = 1e-4 * curvature * size.square()
        enough = torch.where(solvable, sufficient, 0.1 * before)
        t = _line_search(merit, u, step, before, enough)

        limit = TOLERANCE * (1 + torch.linalg.vector_norm(u, dim=1, keepdim=True))
        converged = solvable & (curvature.clamp(min=1) * size <= limit)
        pull = torch.einsum("nhd,nh->nd", linear.slopes, multipliers)
        return converged[:, 0], LastStep(t * step, pull, multipliers, penalty)

    def _linearized(self, u: Tensor, rows: Tensor) -> Linearized:
        """Linearize the least contrasts at changes u [l, d]; the others are infinite, and their gradients zero."""
        with torch.enable_grad():
            leaf = u.clone().requires_grad_()
            h = self.contrasts(leaf, rows)
            n_least = min(LINEARIZED, h.shape[1])
            least, index = h.topk(n_least, dim=1, largest=False)
            # A node depends on its row of u only, so the gradient of the sum over nodes has that of each in a row.
            sums = least.masked_fill(least.isinf(), 0.0).sum(dim=0)
            one_each = torch.eye(len(sums)).to(sums)
            (gradients,) = torch.autograd.grad(sums, leaf, one_each, is_grads_batched=True)
        slopes = u.new_zeros(*h.shape, u.shape[1])
        slopes.scatter_(1, index[:, :, None].expand(-1, -1, u.shape[1]), gradients.transpose(0, 1))
        h = torch.full_like(h, torch.inf).scatter(1, index, least.detach())

        length = torch.linalg.vector_norm(slopes, dim=2)
        normals, limits = half_spaces(h, slopes, self.margin[rows, 0])
        return Linearized(slopes, length, normals, limits)

    def _solved(
        self, u: Tensor, rows: Tensor, linear: Linearized, curvature: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Solve the quadratic program: steps [l, d], whether there is a solution [l, 1], multipliers [l, L]."""
        low = self.low[rows] - u
        high = self.high[rows] - u

        def nearest(offset: Tensor, limits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            """Find the steps s [l, d] with the least |s + offset|."""
            shifted = limits + torch.einsum("nhd,nd->nh", linear.normals, offset)
            end, solvable, multipliers = shortest(linear.normals, shifted, low + offset, high + offset)
            return end - offset, solvable[:, None], multipliers

        step, solvable, multipliers = nearest(u / curvature, linear.limits)
        if not bool(solvable.all()):
            worst, index = linear.limits.min(dim=1, keepdim=True)
            only_worst = torch.full_like(linear.limits, torch.inf).scatter(1, index, worst)
            to_worst, exists, _ = nearest(torch.zeros_like(u), only_worst)
            step = torch.where(solvable, step, to_worst * exists)
        return step, solvable, multipliers


def _line_search(
    merit: Callable[[Tensor], Tensor], u: Tensor, step: Tensor, before: Tensor, enough: Tensor
) -> Tensor:
    """Find the largest t [l, 1] of 1, 1/2, 1/4 ... with ``merit(u + t step) <= before - t enough``; else 0."""
    t = torch.ones_like(before)
    for _ in range(HALVINGS):
        refused = ~(merit(u + t * step) <= before - t * enough)
        if not bool(refused.any()):
            return t
        t = torch.where(refused, t / 2, t)
    return torch.where(refused, 0.0, t)


def _curvature(slopes: Tensor, last: LastStep) -> Tensor:
    """Compute c [l, 1] from the last step and the gradients [l, L, d] of the contrasts at its end; 1 at first."""
    squared_size = last.step.square().sum(dim=1, keepdim=True)
    # s plus the change of - sum_l lambda_l grad h_l
    gradient_change = last.step - torch.einsum("nhd,nh->nd", slopes, last.multipliers) + last.pull
    product = (gradient_change * last.step).sum(dim=1, keepdim=True)
    curvature = torch.where(squared_size > 0, product.abs() / squared_size, 1.0)
    return curvature.clamp(*CURVATURES)
