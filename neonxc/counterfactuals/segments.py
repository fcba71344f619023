"""Answers of any clustering whose rows are known: segments from a point to rows of its target.

A point y is *inside* if the network assigns it to a target, at a depth of at least the margin. For every point x, the
`ANCHORS` nearest rows are searched that are inside and no outliers of their cluster, with distances in the columns
that may change. From each of them:

1. The end of the segment is the row, but for fixed columns, bounds and whole numbers. If only some columns may
   change, the end takes the row's values one by one, each time the one that leads deepest.
2. Bisection shortens the segment to its last crossing of the border, seen from x: the end remains inside.
3. Columns go back to their values in x, the least useful first, where the end remains inside.
4. Steps 2 and 3 are repeated, `ROUNDS` times in all, and bisection shortens what is left.

Whole numbers are rounded towards the end, and a category is the row's as soon as the point leaves x. All points are
judged after their rounding to the dtype in which they are returned.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from neonxc.counterfactuals.branch_and_bound import UNCHANGED
from neonxc.counterfactuals.rows import ClusterRows
from neonxc.counterfactuals.task import Task

ANCHORS = 16
ROUNDS = 2
STEPS = 12
"""Number of halvings of a bisection."""

Depth = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Computes how deep points [m, d] are inside their targets [m, K], and whether they are assigned to one [m]."""


class Lines(NamedTuple):
    """Segments from points x to their ends."""

    point: Tensor  # [L], the positions of the points
    start: Tensor  # [L, d], x with whole numbers where these are needed
    end: Tensor  # [L, d]

    def take(self, subset: Tensor) -> Lines:
        """Select segments."""
        return Lines(*(values[subset] for values in self))


class Segments:
    """Segments to the rows of a task's targets.

    Parameters
    ----------
    depth : callable
    rows : ClusterRows
    task : Task
    margin : Tensor [n]
    """

    def __init__(self, depth: Depth, rows: ClusterRows, task: Task, margin: Tensor) -> None:
        self.depth = depth
        self.rows = rows
        self.task = task
        self.margin = margin

    def candidates(self) -> tuple[Tensor, Tensor]:
        """Find points [n, A, d] inside the targets, and which of them exist [n, A]."""
        task = self.task
        anchors, exists = self._anchors()
        n, A, d = anchors.shape
        point = torch.arange(n, device=anchors.device).repeat_interleave(A)
        x = task.x[point]
        start = torch.where(task.integer, x.round().clamp(task.low, task.high), x)
        end = anchors.flatten(0, 1).clamp(task.low, task.high)
        end = torch.where(task.integer, end.round(), end)
        end = torch.where(task.fixed, start, end).to(task.dtype).double()

        index = exists.flatten().nonzero()[:, 0]
        lines = Lines(point, start, end).take(index)
        if task.max_columns is not None:
            lines = self._with_few_columns(lines, task.max_columns)
        is_inside = self._is_inside(lines.end, lines.point)
        index = index[is_inside]
        lines = lines.take(is_inside)
        for _ in range(ROUNDS):
            lines = self._reverted(self._shortened(lines))
        lines = self._shortened(lines)

        points = start.index_copy(0, index, lines.end).view(n, A, d)
        found = torch.zeros_like(exists).flatten().index_fill(0, index, True)
        return points, found.view(n, A)

    def _anchors(self) -> tuple[Tensor, Tensor]:
        """Find the nearest rows [n, A, d] inside the targets, and which of them exist [n, A]."""
        task = self.task
        rows = self.rows
        depth, _ = self.depth(rows.points, rows.targets)
        usable = task.targets[:, rows.cluster] & ~rows.is_outlier & (depth >= self.margin[:, None])
        scale = torch.where(task.fixed, torch.inf, task.spread)
        distances = torch.cdist(task.x / scale, rows.points / scale).masked_fill(~usable, torch.inf)
        nearest, index = distances.topk(min(ANCHORS, len(rows.points)), dim=1, largest=False)
        return rows.points[index], nearest.isfinite()

    def _is_inside(self, y: Tensor, point: Tensor) -> Tensor:
        """Whether points y [l, d] are inside the targets of some points [l]."""
        depth, is_target = self.depth(y, self.task.targets[point])
        return is_target & (depth >= self.margin[point])

    def _at(self, lines: Lines, t: Tensor) -> Tensor:
        """The points [L, d] at a fraction t [L, 1] of the segments."""
        task = self.task
        y = lines.start + t * (lines.end - lines.start)
        up = (y - UNCHANGED).ceil()
        down = (y + UNCHANGED).floor()
        y = torch.where(task.integer, torch.where(lines.end > lines.start, up, down), y)
        y = torch.where(task.is_category & (t > 0), lines.end, y)
        return torch.where(lines.end == lines.start, lines.start, y).to(task.dtype).double()

    def _shortened(self, lines: Lines) -> Lines:
        """Move the ends to the last crossings of the border."""
        outside = torch.zeros_like(lines.start[:, :1])
        inside = torch.ones_like(outside)
        for _ in range(STEPS):
            middle = (outside + inside) / 2
            is_inside = self._is_inside(self._at(lines, middle), lines.point)[:, None]
            inside = torch.where(is_inside, middle, inside)
            outside = torch.where(is_inside, outside, middle)
        return lines._replace(end=self._at(lines, inside))

    def _reverted(self, lines: Lines) -> Lines:
        """Return columns to their values in x where the ends remain inside."""
        column = self.task.column
        end = lines.end.clone()
        for units in self._by_use(lines).unbind(dim=1):
            is_unit = column == units[:, None]
            changed = (is_unit & (end != lines.start)).any(dim=1).nonzero()[:, 0]
            trial = torch.where(is_unit, lines.start, end)[changed]
            is_inside = self._is_inside(trial, lines.point[changed])
            end[changed[is_inside]] = trial[is_inside]
        return lines._replace(end=end)

    def _by_use(self, lines: Lines) -> Tensor:
        """The columns [L, U], by the depth of the end without them, the greatest first."""
        task = self.task
        depths = []
        for unit in range(int(task.column.max()) + 1):
            trial = torch.where(task.column == unit, lines.start, lines.end)
            depth, _ = self.depth(trial, task.targets[lines.point])
            depths.append(depth)
        return torch.stack(depths, dim=1).argsort(dim=1, descending=True)

    def _with_few_columns(self, lines: Lines, n_columns: int) -> Lines:
        """Let ends have the values of x in all but a few columns."""
        task = self.task
        units = torch.arange(int(task.column.max()) + 1, device=task.column.device)
        end = lines.start.clone()
        for _ in range(n_columns):
            targets = task.targets[lines.point]
            outside = (~self._is_inside(end, lines.point)).nonzero()[:, 0]
            depths = []
            for unit in units:
                trial = torch.where(task.column == unit, lines.end, end)[outside]
                depth, _ = self.depth(trial, targets[outside])
                depths.append(depth)
            best = torch.stack(depths, dim=1).argmax(dim=1)
            end[outside] = torch.where(task.column == best[:, None], lines.end[outside], end[outside])
        return lines._replace(end=end)
