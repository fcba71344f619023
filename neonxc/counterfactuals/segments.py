"""Answers of any clustering whose rows are known: segments from a point to rows of its target.

A point y is *inside* if its depth in a target is at least the margin (`rows.py`). For every point x, the `ANCHORS`
nearest rows are taken that are inside and no outliers of their cluster, with distances in the columns that may
change. From each of them:

1. The end of the segment is the row, but for fixed columns, bounds and whole numbers. Another end is where the
   gradient of the depth at x leads. If only some columns may change, the end takes the values one by one, each
   time the one that leads deepest. If the end is outside, the segment is lengthened.
2. Bisection shortens the segment to its last crossing of the border, seen from x: the end remains inside. Of every
   point, the `KEPT` shortest segments are followed, or all if several answers are wanted.
3. Where borders are curved, the end moves along them (`_descended`): x is projected to the tangent at the end
   (Hasofer and Lind, Journal of the Engineering Mechanics Division 100, 1974), and bisection leads to the border.
4. Columns go back to their values in x, the least useful first, where the end remains inside. Bisection shortens
   what is left, and step 3 follows again.
5. If several answers are wanted, points deeper inside are candidates, too.

Whole numbers are rounded towards the end, and a category is the row's as soon as the point leaves x. All points
are judged after their rounding to the dtype in which they are returned. With a margin of more than `STRAIGHT`,
steps 3 and 4 are left out across curved borders: answers between rows hold in further fits.

The constants were chosen on six tables, with one half of the rows. Without step 3, changes into mixtures are 23%
longer, and those into other clusters 2%. To follow 8 segments makes changes into mixtures 0.5% shorter, and
takes 30% more time. With steps 3 and 4 and a margin of 0.5, changes into mixtures are 42% shorter, but 52% of
them in place of 74% hold in fits to bootstrap samples.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

from neonxc.counterfactuals.branch_and_bound import UNCHANGED, ranks
from neonxc.counterfactuals.rows import ClusterRows
from neonxc.counterfactuals.task import Candidates, Task

ANCHORS = 16
SEARCHED = 256
"""Number of nearest rows among which the anchors are searched if columns are fixed, and many ends are outside."""
KEPT = 4
PROJECTIONS = 3
DEEPER = (0.5, 1.0)
"""How far points go on from the border to the row, if several answers are wanted, and these need to differ."""
FACTORS = (1.5, 2.0, 4.0)
"""Lengths of segments whose ends are outside, because columns are fixed or few, or the depth is not linear."""
STRAIGHT = 0.25
"""Largest margin at which answers leave the segments to rows."""
ROUGH = 5
FINE = 12
"""Numbers of halvings of a bisection."""


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
    rows : ClusterRows
    task : Task
    k : int
        Number of answers that are wanted.
    """

    def __init__(self, rows: ClusterRows, task: Task, k: int) -> None:
        self.rows = rows
        self.task = task
        self.k = k
        self.n_columns = int(task.column.max()) + 1
        self.start = torch.where(task.integer, task.x.round().clamp(task.low, task.high), task.x)
        self.is_straight = (task.margin > STRAIGHT) & (rows.region is None)

    def candidates(self) -> Candidates:
        """Find points inside the targets, the nearest first."""
        lines = self._lines()
        if self.task.max_columns is not None:
            lines = self._with_few_columns(lines, self.task.max_columns)
        lines = self._lengthened(lines)
        whole = lines.take(self._is_inside(lines.end, lines.point))
        lines = self._shortened(whole, ROUGH)
        if self.k == 1:
            lines = lines.take(ranks(lines.point, self._lengths(lines)) < KEPT)
        lines = self._shortened(lines, FINE)
        leaving = (~self.is_straight[lines.point]).nonzero()[:, 0]
        reverted = self._reverted(self._descended(lines.take(leaving)))
        lines.end[leaving] = self._descended(self._shortened(reverted, FINE)).end

        ends = [lines]
        if self.k > 1:
            row = torch.where(lines.end == lines.start, lines.start, whole.end)
            for t in DEEPER:
                end = self._at(lines._replace(start=lines.end, end=row), torch.full_like(row[:, :1], t))
                ends.append(lines._replace(end=end).take(self._is_inside(end, lines.point)))
        return self._collected(Lines(*map(torch.cat, zip(*ends, strict=True))))

    def _collected(self, lines: Lines) -> Candidates:
        """Arrange the ends of segments by point."""
        n_candidates = KEPT if self.k == 1 else (ANCHORS + 1) * (1 + len(DEEPER))
        points = self.task.x[:, None].repeat(1, n_candidates, 1)
        rank = ranks(lines.point, self._lengths(lines))
        points[lines.point, rank] = lines.end
        found = torch.zeros_like(points[:, :, 0], dtype=torch.bool)
        found[lines.point, rank] = True
        return Candidates(points, found, torch.zeros_like(found[:, 0]))

    def _lengths(self, lines: Lines) -> Tensor:
        return self.task.take(lines.point).distance(lines.end)

    def _lines(self) -> Lines:
        """The segments from every point to its anchors, and along the gradient."""
        task = self.task
        rows = self.rows
        is_outlier = rows.is_outlier(task.targets.any(dim=0).nonzero()[:, 0])
        usable = task.targets[:, rows.cluster] & ~is_outlier & (rows.depths >= task.margin[:, None])
        scale = torch.where(task.fixed, torch.inf, task.spread)
        distances = torch.cdist(task.x / scale, rows.points / scale).masked_fill(~usable, torch.inf)
        n_searched = SEARCHED if bool(task.fixed.any()) else ANCHORS
        nearest, index = distances.topk(min(n_searched, len(rows.points)), dim=1, largest=False)
        point, rank = nearest.isfinite().nonzero(as_tuple=True)
        lines = self._towards(rows.points[index[point, rank]], point)

        # ends that are inside come first
        order = rank + n_searched * ~self._is_inside(lines.end, point)
        lines = lines.take(ranks(point, order) < ANCHORS)
        if rows.region is not None:
            return lines
        along_gradient = self._along_gradient((~self.is_straight).nonzero()[:, 0])
        return Lines(*map(torch.cat, zip(lines, along_gradient, strict=True)))

    def _along_gradient(self, point: Tensor) -> Lines:
        """The segments from some points [l] to where the margin would be reached if the depth was linear."""
        task = self.task.take(point)
        is_number = ~task.fixed & ~task.is_category
        gradient = self.rows.gradient(task.x, task.targets) * task.spread * is_number
        missing = task.margin - self.rows.depth(task.x, task.targets)
        step = (missing / gradient.square().sum(dim=1)).nan_to_num(0.0, 0.0, 0.0)
        return self._towards(task.x + step[:, None] * gradient * task.spread, point)

    def _towards(self, end: Tensor, point: Tensor) -> Lines:
        """The segments from some points [l] to ends, within the limits."""
        start = self.start[point]
        return Lines(point, start, self._within_limits(start, end))

    def _within_limits(self, start: Tensor, end: Tensor) -> Tensor:
        """Let fixed columns of ends have their old values, and others be within the bounds, and whole numbers."""
        task = self.task
        end = end.clamp(task.low, task.high)
        end = torch.where(task.integer, end.round(), end)
        return torch.where(task.fixed, start, end).to(task.dtype).double()

    def _is_inside(self, y: Tensor, point: Tensor) -> Tensor:
        """Whether points y [l, d] are inside the targets of some points [l]."""
        return self._depth(y, point) >= self.task.margin[point]

    def _depth(self, y: Tensor, point: Tensor) -> Tensor:
        return self.rows.depth(y, self.task.targets[point])

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
        """Move ends that are outside beyond their rows."""
        end = lines.end.clone()
        for factor in FACTORS:
            outside = (~self._is_inside(end, lines.point)).nonzero()[:, 0]
            _, start, row = lines.take(outside)
            stays = self.task.is_category | (row == start)
            longer = torch.where(stays, row, start + factor * (row - start))
            end[outside] = self._within_limits(start, longer)
        return lines._replace(end=end)

    def _shortened(self, lines: Lines, n_halvings: int) -> Lines:
        """Move the ends to the last crossings of the border."""
        outside = torch.zeros_like(lines.start[:, :1])
        inside = torch.ones_like(outside)
        for _ in range(n_halvings):
            middle = (outside + inside) / 2
            is_inside = self._is_inside(self._at(lines, middle), lines.point)[:, None]
            inside = torch.where(is_inside, middle, inside)
            outside = torch.where(is_inside, outside, middle)
        return lines._replace(end=self._at(lines, inside))

    def _descended(self, lines: Lines) -> Lines:
        """Move the ends along curved borders towards x, in the numbers that change."""
        if self.rows.region is not None:
            return lines
        task = self.task
        end = lines.end
        movable = (end != lines.start) & ~task.is_category & ~task.integer
        start = torch.where(movable, lines.start, end)
        for _ in range(PROJECTIONS):
            gradient = self.rows.gradient(end, task.targets[lines.point])
            normal = normalize(gradient * task.spread * movable, dim=1, eps=1e-300)
            change = (end - start) / task.spread
            projected = (normal * change).sum(dim=1, keepdim=True) * normal
            foot = torch.where(movable, start + projected * task.spread, end)
            foot = self._within_limits(lines.start, foot)

            # the border is before the foot, or between the foot and the end
            is_before = self._is_inside(foot, lines.point)[:, None]
            first = torch.where(is_before, start, foot)
            last = torch.where(is_before, foot, end)
            end = self._shortened(Lines(lines.point, first, last), FINE).end
        return lines._replace(end=end)

    def _reverted(self, lines: Lines) -> Lines:
        """Return columns to their values in x where the ends remain inside."""
        end = lines.end.clone()
        for column in self._without_each(lines.start, lines).argsort(dim=1, descending=True).unbind(dim=1):
            is_column = self.task.column == column[:, None]
            changed = (is_column & (end != lines.start)).any(dim=1).nonzero()[:, 0]
            trial = torch.where(is_column, lines.start, end)[changed]
            is_inside = self._is_inside(trial, lines.point[changed])
            end[changed[is_inside]] = trial[is_inside]
        return lines._replace(end=end)

    def _without_each(self, start: Tensor, lines: Lines) -> Tensor:
        """Compute the depths [L, U] of the ends with one column of other points; -inf where this is the same."""
        depths = torch.full((len(start), self.n_columns), -torch.inf).to(start)
        for column in range(self.n_columns):
            is_column = self.task.column == column
            changed = (is_column & (lines.end != start)).any(dim=1).nonzero()[:, 0]
            trial = torch.where(is_column, start[changed], lines.end[changed])
            depths[changed, column] = self._depth(trial, lines.point[changed])
        return depths

    def _with_few_columns(self, lines: Lines, max_columns: int) -> Lines:
        """Let ends have the values of x in all but a few columns; drop segments where whole numbers need more."""
        lines = lines.take(self._changed(lines.start, lines.point).sum(dim=1) <= max_columns)
        end = lines.start.clone()
        for _ in range(max_columns):
            outside = (~self._is_inside(end, lines.point)).nonzero()[:, 0]
            point, _, row = lines.take(outside)
            depths = self._without_each(row, Lines(point, row, end[outside]))
            changed = self._changed(end[outside], point)
            is_full = changed.sum(dim=1, keepdim=True) >= max_columns
            deepest, best = depths.masked_fill(is_full & ~changed, -torch.inf).max(dim=1)
            is_taken = (self.task.column == best[:, None]) & deepest.isfinite()[:, None]
            end[outside] = torch.where(is_taken, row, end[outside])
        return lines._replace(end=end)

    def _changed(self, y: Tensor, point: Tensor) -> Tensor:
        """Whether points y [l, d] differ from x in each of the user's columns [l, U]."""
        changed = (y != self.task.x[point]).double()
        by_column = changed.new_zeros(len(y), self.n_columns).index_add_(1, self.task.column, changed)
        return by_column > 0
