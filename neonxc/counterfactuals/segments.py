"""Answers of any clustering whose rows are known: segments from a point to rows of its target.

A point y is *inside* if the network assigns it to a target, at a depth of at least the margin. For every point x,
the `ANCHORS` nearest rows are searched that are inside and no outliers of their cluster, with distances in the
columns that may change. From each of them:

1. The end of the segment is the row, but for fixed columns, bounds and whole numbers. If only some columns may
   change, the end takes the row's values one by one, each time the one that leads deepest. If the end is outside,
   the segment is lengthened.
2. Bisection shortens the segment to its last crossing of the border, seen from x: the end remains inside.
3. Of every point, the `KEPT` shortest segments are followed. Columns go back to their values in x, the least
   useful first, where the end remains inside, and bisection shortens what is left; `ROUNDS` times.
4. If several answers are wanted, all segments are followed, and points deeper inside are candidates, too.

Whole numbers are rounded towards the end, and a category is the row's as soon as the point leaves x. All points
are judged after their rounding to the dtype in which they are returned.

The constants were chosen on six tables, with one half of the rows. With 16 anchors, changes are up to 5% longer
for mixtures, and as long for HDBSCAN and surrogates. To follow 8 segments of 16 takes 10 to 40% less time than to
follow all. With one round, the changes of rows beside the border are many times as long.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from neonxc.counterfactuals.branch_and_bound import UNCHANGED
from neonxc.counterfactuals.rows import ClusterRows
from neonxc.counterfactuals.task import Task

ANCHORS = 32
KEPT = 8
ROUNDS = 2
DEEPER = (0.5, 1.0)
"""How far points go on from the border to the row, if several answers are wanted, and these need to differ."""
SPREAD = 16
"""Number of further anchors if several answers are wanted, among the nearest `SEARCHED` rows."""
SEARCHED = 256
"""Number of nearest rows among which the anchors are searched then, and if columns are fixed."""
FACTORS = (1.5, 2.0, 4.0)
"""Lengths of segments whose ends are outside, because columns are fixed or few."""
STEPS = 12
"""Number of halvings of a bisection."""

Depth = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Computes how deep points [m, d] are inside their targets [m, K], and whether they are assigned to one [m]."""


class Lines(NamedTuple):
    """Segments from points x to their ends."""

    position: Tensor  # [L], among all segments of all points
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
    k : int
        Number of answers that are wanted. All segments are followed to the end if there are several.
    """

    def __init__(self, depth: Depth, rows: ClusterRows, task: Task, margin: Tensor, k: int) -> None:
        self.depth = depth
        self.rows = rows
        self.task = task
        self.margin = margin
        self.k = k
        self.n_columns = int(task.column.max()) + 1

    def candidates(self) -> tuple[Tensor, Tensor]:
        """Find points [n, A, d] inside the targets, and which of them exist [n, A]."""
        task = self.task
        start = torch.where(task.integer, task.x.round().clamp(task.low, task.high), task.x)
        ends, exists = self._ends(start)
        n, A, d = ends.shape
        start = start.repeat_interleave(A, dim=0)
        position = torch.arange(n * A, device=ends.device)
        lines = Lines(position, position // A, start, ends.flatten(0, 1)).take(exists.flatten())
        if task.max_columns is not None:
            lines = self._with_few_columns(lines, task.max_columns)
        lines = self._lengthened(lines)
        whole = lines.take(self._is_inside(lines.end, lines.point))
        lines = self._shortened(whole)
        if self.k == 1:
            lines = lines.take(self._is_near(lines))
        for _ in range(ROUNDS):
            lines = self._shortened(self._reverted(lines))

        candidates = [lines]
        if self.k > 1:
            row = torch.where(lines.end == lines.start, lines.start, whole.end)
            for t in DEEPER:
                end = self._at(lines._replace(start=lines.end, end=row), torch.full_like(row[:, :1], t))
                candidates.append(lines._replace(end=end).take(self._is_inside(end, lines.point)))
        points = [start.index_copy(0, one.position, one.end).view(n, A, d) for one in candidates]
        none = torch.zeros_like(position, dtype=torch.bool)
        found = [none.index_fill(0, one.position, True).view(n, A) for one in candidates]
        return torch.cat(points, dim=1), torch.cat(found, dim=1)

    def _ends(self, start: Tensor) -> tuple[Tensor, Tensor]:
        """Find the ends [n, A, d] of the segments, and which of them exist [n, A].

        Where columns are fixed, the ends at many rows may be outside: those that are inside come first.
        """
        task = self.task
        rows = self.rows
        depth, _ = self.depth(rows.points, rows.targets)
        usable = task.targets[:, rows.cluster] & ~rows.is_outlier & (depth >= self.margin[:, None])
        scale = torch.where(task.fixed, torch.inf, task.spread)
        distances = torch.cdist(task.x / scale, rows.points / scale).masked_fill(~usable, torch.inf)
        has_fixed = bool(task.fixed.any())
        n_searched = SEARCHED if has_fixed or self.k > 1 else ANCHORS
        nearest, index = distances.topk(min(n_searched, len(rows.points)), dim=1, largest=False)
        exists = nearest.isfinite()
        ends = rows.points[index].clamp(task.low, task.high)
        ends = torch.where(task.integer, ends.round(), ends)
        ends = torch.where(task.fixed, start[:, None], ends).to(task.dtype).double()
        order = torch.arange(ends.shape[1], device=ends.device).expand_as(exists)
        if has_fixed:
            point = torch.arange(len(ends), device=ends.device).repeat_interleave(ends.shape[1])
            is_inside = self._is_inside(ends.flatten(0, 1), point).view_as(exists)
            order = (2 - exists.int() - (exists & is_inside).int()).argsort(dim=1, stable=True)

        # the first ones, and if several answers are wanted, others that are evenly spaced among the rest
        chosen = [order[:, :ANCHORS]]
        is_chosen = [exists.gather(1, chosen[0])]
        if self.k > 1:
            n_more = exists.sum(dim=1, keepdim=True) - ANCHORS
            place = ANCHORS + torch.linspace(0, 1, SPREAD).to(ends) * (n_more - 1)
            chosen.append(order.gather(1, place.long().clamp(0, order.shape[1] - 1)))
            is_chosen.append((n_more > 0).expand(-1, SPREAD))
        position = torch.cat(chosen, dim=1)
        ends = ends.gather(1, position[:, :, None].expand(-1, -1, ends.shape[2]))
        return ends, torch.cat(is_chosen, dim=1)

    def _is_near(self, lines: Lines) -> Tensor:
        """Whether segments [L] are among the shortest of their point."""
        length = self.task.take(lines.point).distance(lines.end)
        order = length.argsort(stable=True)
        order = order[lines.point[order].argsort(stable=True)]  # by point, and by length within a point
        counts = lines.point.bincount()
        first = counts.cumsum(0) - counts
        rank = torch.arange(len(order), device=order.device) - first[lines.point[order]]
        return torch.zeros_like(rank, dtype=torch.bool).index_copy(0, order, rank < KEPT)

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

    def _lengthened(self, lines: Lines) -> Lines:
        """Move ends that are outside beyond their rows, within the bounds."""
        task = self.task
        end = lines.end.clone()
        for factor in FACTORS:
            outside = (~self._is_inside(end, lines.point)).nonzero()[:, 0]
            start, row = lines.start[outside], lines.end[outside]
            longer = (start + factor * (row - start)).clamp(task.low, task.high)
            longer = torch.where(task.is_category | (row == start), row, longer)
            end[outside] = torch.where(task.integer, longer.round(), longer).to(task.dtype).double()
        return lines._replace(end=end)

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
        depths = torch.full((len(lines.point), self.n_columns), -torch.inf).to(task.x)
        for column in range(self.n_columns):
            is_column = task.column == column
            changed = (is_column & (lines.end != lines.start)).any(dim=1).nonzero()[:, 0]
            trial = torch.where(is_column, lines.start[changed], lines.end[changed])
            depths[changed, column], _ = self.depth(trial, task.targets[lines.point[changed]])
        return depths.argsort(dim=1, descending=True)

    def _with_few_columns(self, lines: Lines, max_columns: int) -> Lines:
        """Let ends have the values of x in all but a few columns; drop segments where whole numbers need more."""
        task = self.task
        lines = lines.take(self._n_changed(lines.start, lines.point) <= max_columns)
        x = task.x[lines.point]
        end = lines.start.clone()
        for _ in range(max_columns):
            outside = (~self._is_inside(end, lines.point)).nonzero()[:, 0]
            is_full = self._n_changed(end, lines.point) >= max_columns
            depths = []
            for column in range(self.n_columns):
                is_column = task.column == column
                is_changed = (is_column & (end != x)).any(dim=1)
                trial = torch.where(is_column, lines.end, end)[outside]
                depth, _ = self.depth(trial, task.targets[lines.point[outside]])
                depths.append(depth.masked_fill((is_full & ~is_changed)[outside], -torch.inf))
            deepest, best = torch.stack(depths, dim=1).max(dim=1)
            is_taken = (task.column == best[:, None]) & deepest.isfinite()[:, None]
            end[outside] = torch.where(is_taken, lines.end[outside], end[outside])
        return lines._replace(end=end)

    def _n_changed(self, y: Tensor, point: Tensor) -> Tensor:
        """The number [l] of the user's columns in which points y [l, d] differ from x."""
        changed = (y != self.task.x[point]).double()
        by_column = changed.new_zeros(len(y), self.n_columns).index_add_(1, self.task.column, changed)
        return (by_column > 0).sum(dim=1)
