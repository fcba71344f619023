"""The search for answers that the network confirms, and the choice of several that differ.

1. Points in their target, with integers where these are needed, stay as they are.
2. Candidates are inside the target by the margin and a little more, the slack: the nearest point, where clusters
   are unions of boxes or polyhedra, and the ends of segments (`segments.py`) where borders are curved, where
   categories may change, and if several answers are wanted. They are rounded to the dtype of the points. The slack
   starts at the size of this rounding, or at zero for boxes of leaves, whose points may be on their edges.
3. The answers are the nearest candidates that the network assigns to the target and that differ from each other.
4. Points of which candidates are lost are searched again, with a slack that is `GROWTH` times as large.

Two answers of a point *differ* if

    their distance is at least `apart` times that of the first answer from the point, or
    each of them changes a column that the other one does not change.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from neonxc.common.memory import at_once
from neonxc.counterfactuals.branch_and_bound import UNCHANGED
from neonxc.counterfactuals.pieces import LeafBoxes, Region
from neonxc.counterfactuals.rows import ClusterRows
from neonxc.counterfactuals.segments import ANCHORS, SEARCHED, Segments
from neonxc.counterfactuals.task import Candidates, Task

GROWTH = 8.0
TRIES = 14
"""Growth factor of the slack, and number of searches."""
COPIES = 6
"""Copies of the ends of a point's segments in memory while these are searched."""

Reached = Callable[[Tensor, Tensor], Tensor]
"""Computes the positions [m] of the clusters of changed points [m, d], given the positions [m] of the points that
they are changes of, after they are rounded and decoded."""


@dataclass(frozen=True)
class Finder:
    """The search for candidates.

    Parameters
    ----------
    region : LeafBoxes, Polyhedra or None
        The clusters, or None if their borders are curved.
    rows : ClusterRows or None
        What segments need.
    k : int
        Number of answers that are wanted.
    apart : float
        How far they are apart.
    """

    region: Region | None
    rows: ClusterRows | None
    k: int
    apart: float

    def candidates(self, task: Task) -> Candidates:
        """Find candidates that are inside their targets by the margin."""
        has_categories = bool((task.is_category & ~task.fixed).any())
        kinds = []
        if self.region is not None:
            numbers = replace(task, fixed=task.fixed | task.is_category)
            kinds.append(_in_batches(numbers, self.region.batch_size, self.region.nearest))
        if self.region is None or has_categories or self.k > 1:
            assert self.rows is not None
            n_ends = SEARCHED + ANCHORS * COPIES
            batch_size = at_once(8 * (len(self.rows.points) + n_ends * task.x.shape[1]), task.x.device)
            kinds.append(_in_batches(task, batch_size, self._on_segments))
        points = torch.cat([kind.points for kind in kinds], dim=1)
        found = torch.cat([kind.found for kind in kinds], dim=1)
        return Candidates(points, found, kinds[0].exact & (not has_categories))

    def _on_segments(self, task: Task) -> Candidates:
        assert self.rows is not None
        return Segments(self.rows, task, self.k).candidates()

    def answers(self, task: Task, cluster: Tensor, outside: Tensor, reached: Reached) -> Candidates:
        """Find the nearest points that the network confirms, several if they differ.

        Parameters
        ----------
        task : Task
        cluster : Tensor [n]
            Positions of the points' clusters.
        outside : Tensor [n] of bool
            Points outside the bounds, for which nothing is found.
        reached : callable

        Returns
        -------
        Candidates
            The answers, [n, k, d].
        """
        is_allowed = ((task.x == task.x.round()) | ~task.integer).all(dim=1)
        is_in_target = task.targets.gather(1, cluster[:, None])[:, 0]
        settled = is_in_target & is_allowed & ~outside
        found = torch.zeros_like(settled)[:, None].repeat(1, self.k)
        found[:, 0] = settled
        result = Candidates(task.x[:, None].repeat(1, self.k, 1), found, torch.ones_like(settled))
        remaining = (~settled & ~outside).nonzero()[:, 0]

        # the rounding of the points, in units of `spread`
        size = 4 * torch.finfo(task.dtype).eps * (task.x.abs() / task.spread).amax(dim=1).clamp(min=1)
        slack = 1e-9 + size
        if isinstance(self.region, LeafBoxes):  # whose points may be on their edges
            slack = torch.zeros_like(slack)
        for attempt in range(TRIES):
            if not len(remaining):
                break
            subset = replace(task, margin=task.margin + slack).take(remaining)
            candidates = self.candidates(subset)
            row, column = candidates.found.nonzero(as_tuple=True)
            confirmed = torch.zeros_like(candidates.found)
            if len(row):
                assigned = reached(candidates.points[row, column], remaining[row])
                confirmed[row, column] = subset.targets[row].gather(1, assigned[:, None])[:, 0]
            chosen = self._differing(subset, candidates._replace(found=confirmed))

            is_lost = (candidates.found & ~confirmed).any(dim=1) & ~chosen.found.all(dim=1)
            none_exists = ~candidates.found[:, 0] & (attempt == 0)
            points = torch.where(chosen.found[:, :, None], chosen.points, subset.x[:, None])
            result.points[remaining] = points.to(task.dtype).double()
            result.found[remaining] = chosen.found
            result.exact[remaining] = candidates.exact & (confirmed[:, 0] | none_exists)
            remaining = remaining[is_lost]
            slack = (slack * GROWTH).clamp(min=size)
        return result

    def _differing(self, task: Task, candidates: Candidates) -> Candidates:
        """Choose the nearest candidates [n, k, d] of which each differs from those before."""
        points, found, exact = candidates
        if points.shape[1] == 1 and self.k == 1:
            return candidates
        x = task.x[:, None]
        chosen = x.repeat(1, self.k, 1)
        n_chosen = torch.zeros_like(exact, dtype=torch.int64)
        answer = torch.arange(self.k, device=n_chosen.device)
        distance = torch.linalg.vector_norm((points - x) / task.spread, dim=2).masked_fill(~found, torch.inf)
        first = distance.amin(dim=1, keepdim=True)
        distance, order = distance.sort(dim=1, stable=True)
        for rank in range(points.shape[1]):
            point = points.take_along_dim(order[:, rank, None, None], dim=1)
            gap = torch.linalg.vector_norm((point - chosen) / task.spread, dim=2)
            changed = (point - x).abs() > UNCHANGED * task.spread
            changed_before = (chosen - x).abs() > UNCHANGED * task.spread
            has_others = (changed & ~changed_before).any(dim=2) & (changed_before & ~changed).any(dim=2)
            is_before = answer < n_chosen[:, None]
            differs = (has_others | (gap >= self.apart * first) | ~is_before).all(dim=1)
            rows = (distance[:, rank].isfinite() & differs & (n_chosen < self.k)).nonzero()[:, 0]
            chosen[rows, n_chosen[rows]] = point[rows, 0]
            n_chosen[rows] += 1
        return Candidates(chosen, answer < n_chosen[:, None], exact)


def _in_batches(task: Task, batch_size: int, search: Callable[[Task], Candidates]) -> Candidates:
    """Search as many points at once as fit into memory."""
    batches = torch.arange(len(task.x), device=task.x.device).split(batch_size)
    of_batches = [search(task.take(rows)) for rows in batches]
    return Candidates(*map(torch.cat, zip(*of_batches, strict=True)))
