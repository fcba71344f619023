"""The kernel's one-column features as a table, which is computed a few columns at a time."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from neonxc.common.processes import ALONE, Ranks
from neonxc.trees.kernel_features import anchors_of, surrogate_columns
from neonxc.trees.problem import Problem


class KernelTable:
    """Table of the kernel features on which Kernel IMM makes its cuts.

    It has the same methods as :class:`~neonxc.trees.table.Table`, but computes columns when they are asked for,
    because all of them together may not fit into memory.

    Parameters
    ----------
    points : Tensor [n, d] of float64
        The raw columns, which have mean 0 for Taylor features.
    kind : {"anchors", "taylor"}
    kernel : {"gaussian", "laplace"}
    gamma : float
    size : int
        Maximum number of features per raw column.
    """

    dtype = torch.float64
    few_entries = False

    def __init__(self, points: Tensor, kind: str, kernel: str, gamma: float, size: int) -> None:
        self.points, self.kind, self.kernel, self.gamma = points, kind, kernel, gamma
        self.anchors = anchors_of(points, size) if kind == "anchors" else None
        self.size = size if self.anchors is None else self.anchors.shape[1]
        self.n, self.d = len(points), points.shape[1] * self.size

    @property
    def device(self) -> torch.device:
        """Device of the points."""
        return self.points.device

    def chunks(self, ranks: Ranks = ALONE) -> Any:
        """Ranges of features that belong to the same raw column."""
        return ((first, first + self.size) for first in range(0, self.d, self.size))

    def columns(self, first: int, last: int) -> Tensor:
        """Features `first` to `last` (exclusive), [last - first, n]."""
        raw = slice(first // self.size, (last - 1) // self.size + 1)
        features = surrogate_columns(
            self.points,
            self.kind,
            self.gamma,
            terms=self.size,
            anchors=self.anchors,
            kernel=self.kernel,
            columns=raw,
        )
        return features.T[first - raw.start * self.size : last - raw.start * self.size].contiguous()

    def column(self, feature: int) -> Tensor:
        """One feature, [n]."""
        return self.columns(feature, feature + 1)[0]

    def rows(self, part: slice) -> Tensor:
        """All features of a slice of the points, [points, d]."""
        return torch.cat([self.columns(*chunk)[:, part] for chunk in self.chunks()]).T

    def means(self, labels: Tensor, k: int, weight: Tensor | None) -> Tensor:
        """Weighted means of the features of every cluster, [k, d]."""
        member = torch.nn.functional.one_hot(labels, k).to(torch.float64)
        member = member if weight is None else member * weight[:, None]
        sums = torch.cat([self.columns(*chunk) @ member for chunk in self.chunks()])
        return (sums / member.sum(0)).T.contiguous()


def kernel_points(problem: Problem, features: str) -> Tensor:
    """Raw columns in the units in which the kernel measures distances, [n, d] of float64.

    If costs are measured behind a scaler, the columns are divided by their standard deviations. For Taylor
    features they are also shifted to mean 0. Anchor features must not be shifted: the rounding error would
    distinguish values at equal distance from an anchor.
    """
    points = problem.table.columns(0, problem.table.d).T.to(torch.float64)
    weight = torch.ones_like(points[:, 0]) if problem.weight is None else problem.weight
    share = weight / weight.sum()
    centred = points - share @ points
    points = centred if features == "taylor" else points
    if problem.space is problem.table:
        return points
    spread = (share @ centred.square()).sqrt()
    return points / torch.where(spread > 0, spread, 1)
