"""Why no point is found: which of the limits is in the way.

The search is repeated without one kind of limits at a time, bounds first, and at last without any. The reason is
what the point that is then found needs: values beyond a bound, changes of fixed columns, more columns, fractions,
or to be nearer to the border.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from neonxc.common.numbers import in_words, plural, text
from neonxc.counterfactuals.branch_and_bound import UNCHANGED
from neonxc.counterfactuals.search import Finder
from neonxc.counterfactuals.task import Task

MOST = 3  # columns that a reason names


@dataclass(frozen=True, eq=False)
class Unreached:
    """Tasks of which some have no solution.

    Attributes
    ----------
    finder : Finder
    task : Task
    immovable : Tensor [d] of bool
        Columns that can't change in any case.
    names : sequence of str
        Names of the user's columns.
    limits : dict
        The bounds of the user's columns, by position.
    """

    finder: Finder
    task: Task
    immovable: Tensor
    names: list[str]
    limits: Mapping[int, tuple[float, float]]

    @torch.no_grad()
    def reasons(self, rows: np.ndarray) -> list[str]:
        """Say for some of the points why no answer was found."""
        task = self.task.take(torch.as_tensor(rows, dtype=torch.int64, device=self.task.x.device))
        reasons = [self._of_row(x) for x in task.x]
        for relaxed in self._relaxed(task):
            missing = [i for i, reason in enumerate(reasons) if not reason]
            if not missing:
                break
            candidates = self.finder.candidates(relaxed.take(torch.tensor(missing, device=task.x.device)))
            for i, points, found in zip(missing, candidates.points, candidates.found, strict=True):
                if bool(found.any()):
                    reasons[i] = f"it needs {in_words(self._needs(task.x[i], points[found][0]))}"
        return [reason or "the network knows no point of this cluster" for reason in reasons]

    def _of_row(self, x: Tensor) -> str:
        """Say why no answer is searched: the point is out of bounds, or these have no whole number."""
        outside = ((x < self.task.low) | (x > self.task.high)) & ~self.task.integer
        if bool(outside.any()):
            return f"the row is outside the bounds of {self._listed(outside)}"
        empty = self.task.low > self.task.high
        if bool(empty.any()):
            return f"no whole number is within the bounds of {self._listed(empty)}"
        return ""

    def _relaxed(self, task: Task) -> list[Task]:
        """Return the tasks without one kind of limits, and at last without any."""
        unlimited = torch.full_like(task.low, torch.inf)
        fractional = torch.zeros_like(task.integer)
        on_border = torch.zeros_like(task.margin)
        unbounded = replace(task, low=-unlimited, high=unlimited)
        return [
            unbounded,
            replace(task, fixed=self.immovable),
            replace(task, max_columns=None),
            replace(task, integer=fractional),
            replace(task, margin=on_border),
            replace(unbounded, fixed=self.immovable, max_columns=None, integer=fractional, margin=on_border),
        ]

    def _needs(self, x: Tensor, y: Tensor) -> list[str]:
        """Tell by what a point y leaves the limits."""
        task = self.task
        changed = (y - x).abs() > UNCHANGED * task.spread
        needs = []
        for beyond, sign, side in ((y < task.low, "<", 0), (y > task.high, ">", 1)):
            columns = task.column[beyond & changed].unique().tolist()
            needs += [f"{self.names[i]} {sign} {text(self.limits[i][side])}" for i in columns[:MOST]]
        fixed = changed & task.fixed
        if bool(fixed.any()):
            columns = "columns" if len(task.column[fixed].unique()) > 1 else "column"
            needs.append(f"a change of the fixed {columns} {self._listed(fixed)}")
        n_changed = len(task.column[changed].unique())
        if task.max_columns is not None and n_changed > task.max_columns:
            needs.append(f"changes of {plural(n_changed, 'column')}")
        fractions = task.integer & (y != y.round())
        if bool(fractions.any()):
            needs.append(f"fractions in {self._listed(fractions)}")
        return needs or ["a smaller margin"]

    def _listed(self, columns: Tensor) -> str:
        """The names of some of the user's columns, given those of the head [d]."""
        return in_words([self.names[i] for i in self.task.column[columns].unique().tolist()[:MOST]])
