"""Candidates for the answers of a point, and the choice of several that differ.

Candidates are the nearest point, where clusters are unions of boxes or polyhedra; the nearest points without one
of its largest changes, if several answers are wanted; and the ends of segments (`segments.py`), which need rows.
An answer *differs* from another one of the same point if

    their distance is at least `apart` times that of the first answer from the point, or
    each of them changes a column that the other one does not change.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from neonxc.common.memory import at_once
from neonxc.counterfactuals.branch_and_bound import UNCHANGED, NearestPoints
from neonxc.counterfactuals.pieces import LeafBoxes, Polyhedra
from neonxc.counterfactuals.rows import ClusterRows
from neonxc.counterfactuals.segments import SEARCHED, Segments
from neonxc.counterfactuals.task import Task
from neonxc.head import Head
from neonxc.head.answer import answers

COPIES = 6  # copies of the ends of a point's segments in memory while these are searched


class Candidates(NamedTuple):
    """Points inside the targets."""

    points: Tensor  # [n, c, d]
    found: Tensor  # [n, c]
    exact: Tensor  # [n], whether the first one is the nearest point, or there is none

    def take(self, subset: Tensor) -> Candidates:
        """Select points that are changed."""
        return Candidates(*(values[subset] for values in self))


@dataclass(frozen=True)
class Finder:
    """The search for candidates.

    Parameters
    ----------
    head : Head
    region : LeafBoxes, Polyhedra or None
        The clusters, or None if their borders are curved.
    rows : ClusterRows or None
        What segments need.
    spread : Tensor [d]
    k : int
        Number of answers that are wanted.
    """

    head: Head
    region: LeafBoxes | Polyhedra | None
    rows: ClusterRows | None
    spread: Tensor
    k: int

    def candidates(self, task: Task, margin: Tensor) -> Candidates:
        """Find candidates that are inside their targets by a margin [n]."""
        kinds = []
        has_categories = bool((task.is_category & ~task.fixed).any())
        if self.region is not None:
            kinds = self._exact(replace(task, fixed=task.fixed | task.is_category), margin)
        if self.region is None or has_categories or self.k > 1:
            kinds.append(self._segments(task, margin))
        points = torch.cat([kind.points for kind in kinds], dim=1)
        found = torch.cat([kind.found for kind in kinds], dim=1)
        return Candidates(points, found, kinds[0].exact & (not has_categories))

    def _exact(self, task: Task, margin: Tensor) -> list[Candidates]:
        """Find the nearest points, and those without one of the k - 1 largest changes."""
        nearest = self._nearest(task, margin)
        kinds = [nearest]
        size = ((nearest.points[:, 0] - task.x) / task.spread).abs()
        for columns in size.topk(min(self.k - 1, size.shape[1]), dim=1).indices.unbind(dim=1):
            without = nearest._replace(points=nearest.points.clone(), found=torch.zeros_like(nearest.found))
            for column in columns.unique().tolist():
                rows = (columns == column).nonzero()[:, 0]
                fixed = task.fixed.clone()
                fixed[column] = True
                one = self._nearest(replace(task.take(rows), fixed=fixed), margin[rows])
                without.points[rows] = one.points
                without.found[rows] = one.found
            kinds.append(without)
        return kinds

    def _nearest(self, task: Task, margin: Tensor) -> Candidates:
        assert self.region is not None
        blocks = torch.arange(len(margin), device=margin.device).split(self.region.batch_size)  # by memory
        of_blocks = [self.region.nearest(task.take(rows), margin[rows]) for rows in blocks]
        nearest = NearestPoints(*map(torch.cat, zip(*of_blocks, strict=True)))
        return Candidates(nearest.points[:, None], nearest.found[:, None], nearest.exact)

    def _segments(self, task: Task, margin: Tensor) -> Candidates:
        assert self.rows is not None
        batch_size = at_once(8 * (len(self.rows.points) + COPIES * SEARCHED * task.x.shape[1]), margin.device)
        points = []
        found = []
        for rows in torch.arange(len(margin), device=margin.device).split(batch_size):
            segments = Segments(self.depth, self.rows, task.take(rows), margin[rows], self.k)
            ends, exists = segments.candidates()
            points.append(ends)
            found.append(exists)
        return Candidates(torch.cat(points), torch.cat(found), torch.zeros_like(margin, dtype=torch.bool))

    def depth(self, y: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Compute how deep points [m, d] are inside their targets [m, K], and whether they are assigned to one.

        Of boxes and polyhedra, this is the distance from the border, else the logit over the median logit of the
        rows of the cluster.
        """
        depths = [y.new_empty(0)]
        assigned = [torch.empty(0, dtype=torch.int64, device=y.device)]
        for answer in answers(self.head, y):
            assigned.append(answer.assigned)
            if self.region is None:
                relative = answer.logits / self._medians
                depths.append(relative.masked_fill(~targets[answer.block], -torch.inf).amax(dim=1))
        is_target = targets.gather(1, torch.cat(assigned)[:, None])[:, 0]
        if self.region is not None:
            return self.region.depth(y, targets, self.spread), is_target
        return torch.cat(depths), is_target

    @cached_property
    def _medians(self) -> Tensor:
        """The median logits [K] of the rows of the clusters."""
        assert self.rows is not None
        logits = self.head(self.rows.points)
        medians = torch.ones_like(logits[0])
        for cluster in self.rows.cluster.unique().tolist():
            medians[cluster] = logits[self.rows.cluster == cluster, cluster].quantile(0.5)
        return medians.clamp(min=torch.finfo(medians.dtype).tiny)


def differing(task: Task, candidates: Candidates, k: int, apart: float) -> Candidates:
    """Choose the nearest candidates [n, k, d] of which each differs from those before; x where there are fewer."""
    points, found, exact = candidates
    if points.shape[1] == 1 and k == 1:
        return candidates
    d = points.shape[2]
    chosen = task.x[:, None].repeat(1, k, 1)
    n_chosen = torch.zeros_like(exact, dtype=torch.int64)
    change = (points - task.x[:, None]) / task.spread
    distance = torch.linalg.vector_norm(change, dim=2).masked_fill(~found, torch.inf)
    order = distance.argsort(dim=1, stable=True)
    first = distance.amin(dim=1, keepdim=True)
    for candidate in order.unbind(dim=1):
        point = points.gather(1, candidate[:, None, None].expand(-1, 1, d))
        gap = torch.linalg.vector_norm((point - chosen) / task.spread, dim=2)
        changed = (point - task.x[:, None]).abs() > UNCHANGED * task.spread
        changed_before = (chosen - task.x[:, None]).abs() > UNCHANGED * task.spread
        has_others = (changed & ~changed_before).any(dim=2) & (changed_before & ~changed).any(dim=2)
        is_before = torch.arange(k, device=gap.device) < n_chosen[:, None]
        differs = (has_others | (gap >= apart * first) | ~is_before).all(dim=1)
        exists = distance.gather(1, candidate[:, None])[:, 0].isfinite()
        rows = (exists & differs & (n_chosen < k)).nonzero()[:, 0]
        chosen[rows, n_chosen[rows]] = point[rows, 0]
        n_chosen[rows] += 1
    return Candidates(chosen, torch.arange(k, device=n_chosen.device) < n_chosen[:, None], exact)
