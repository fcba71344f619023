"""Distances between encoded points, computed for a few columns of the distance matrix at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from math import inf
from typing import Any

import numpy as np
import torch
from sklearn.metrics import pairwise_distances
from sklearn.metrics.pairwise import PAIRWISE_BOOLEAN_FUNCTIONS
from torch import Tensor

from neonxc.common.memory import blocks

NORMS = {"euclidean": 2.0, "l2": 2.0, "manhattan": 1.0, "cityblock": 1.0, "l1": 1.0, "chebyshev": inf}
# Number of values that Gower's distance processes at a time. 2,000 rows of 125 columns then take a third of the
# time that they take column by column. With more values, torch starts several threads, which costs more than it
# gains.
TOGETHER = 1 << 15


class DistanceSpace(ABC):
    """Distances between encoded rows."""

    @abstractmethod
    def between(self, rows: Tensor, others: Tensor) -> Tensor:
        """Distances [n, k] between two tables of rows."""

    def middle(self, rows: Tensor) -> Tensor:
        """The center [1, m] of all rows, their mean."""
        return rows.mean(0, keepdim=True)

    def outermost(self, rows: Tensor) -> int:
        """Index of the row farthest from the center of all rows; it does not depend on their order."""
        return int(self.between(rows, self.middle(rows)).argmax())

    def sort_key(self, rows: Tensor) -> Tensor:
        """A number for each row, [n], that defines an order of the rows: a random projection."""
        weights = torch.randn(rows.shape[1], generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        return (rows.double() * weights.to(rows.device)).sum(1)


@dataclass(frozen=True)
class EncodedPoints:
    """Points that are encoded as rows of numbers, with their distances."""

    rows: Tensor  # [n, m]
    space: DistanceSpace

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, index: Tensor) -> EncodedPoints:
        """Select a subset of the points."""
        if self.rows.is_contiguous():
            return EncodedPoints(self.rows[index], self.space)
        return EncodedPoints(self.rows.T[:, index].T, self.space)  # keeps columns contiguous in memory

    def distances_to(self, index: Tensor) -> Tensor:
        """Distances [n, k] of all points to a subset of them."""
        return self.space.between(self.rows, self.rows[index])

    def distances_to_point(self, point: int) -> Tensor:
        """Distances [n] of all points to one of them."""
        return self.space.between(self.rows, self.rows[point : point + 1])[:, 0]

    def nearest(self, centers: Tensor) -> tuple[Tensor, Tensor]:
        """Distance to the nearest of the encoded centers, and its index, [n] each."""
        centers = centers.to(self.rows)
        parts = blocks(len(self), 16 * len(centers), self.rows.device)
        found = [self.space.between(self.rows[part], centers).min(1) for part in parts]
        return torch.cat([one.values for one in found]), torch.cat([one.indices for one in found])


@dataclass(frozen=True)
class NormDistance(DistanceSpace):
    """Norm of the difference of two rows, or half its square, which is the cosine distance of unit vectors."""

    p: float
    half_square: bool = False

    def between(self, rows: Tensor, others: Tensor) -> Tensor:
        """Distances [n, k], computed from differences, which keeps float32 accurate far from the origin."""
        far = torch.cdist(rows, others, p=self.p, compute_mode="donot_use_mm_for_euclid_dist")
        return far.square() / 2 if self.half_square else far


@dataclass(frozen=True)
class SklearnDistance(DistanceSpace):
    """A metric of scikit-learn."""

    metric: str | Callable[..., float]
    params: dict[str, Any]

    def between(self, rows: Tensor, others: Tensor) -> Tensor:
        """Distances [n, k], computed on the CPU."""
        if not len(rows):
            return rows.new_empty(0, len(others))
        one, two = rows.cpu().numpy(), others.cpu().numpy()
        if self.metric in PAIRWISE_BOOLEAN_FUNCTIONS:
            one, two = one != 0, two != 0
        far = pairwise_distances(one, two, metric=self.metric, **self.params)
        return torch.from_numpy(np.asarray(far)).to(rows)


@dataclass(frozen=True)
class GowerDistance(DistanceSpace):
    """Gower's distance: the mean difference, at most 1 each, over the columns in which both rows have values.

    Gower, "A general coefficient of similarity and some of its properties", Biometrics, 1971. Numbers are scaled
    to ranges of 1; codes of different categories differ by at least 1.
    """

    numbers: list[int]  # columns that hold numbers and not codes
    gaps: list[bool]  # for each column, whether values may be missing (NaN)

    def between(self, rows: Tensor, others: Tensor) -> Tensor:
        """Distances [n, k]; 1 for two rows without a common column."""
        return torch.stack([self._column(rows.T, other[:, None]) for other in others], dim=1)

    def _column(self, columns: Tensor, other: Tensor) -> Tensor:
        """Distances [n] of all rows, given as columns [m, n], to one row [m, 1]."""
        total, common = torch.zeros_like(columns[0]), torch.full_like(columns[0], len(columns))
        size = max(1, TOGETHER // max(1, len(total)))
        for first, one, two in zip(count(0, size), columns.split(size), other.split(size), strict=False):
            far = (one - two).abs_().clamp_(max=1)
            if any(self.gaps[first : first + size]):
                gone = far.isnan()
                far, common = far.masked_fill_(gone, 0), common - gone.sum(0)
            total += far.sum(0) if len(far) > 1 else far[0]
        return torch.where(common > 0, total / common.clamp(min=1), 1.0) if any(self.gaps) else total / common

    def middle(self, rows: Tensor) -> Tensor:
        """The means of numbers, and the most frequent codes."""
        middle = rows[:1].clone()
        for j in range(rows.shape[1]):
            values = rows[:, j][~rows[:, j].isnan()]
            if len(values):
                middle[0, j] = values.mean() if j in self.numbers else values.mode().values
        return middle

    def sort_key(self, rows: Tensor) -> Tensor:
        """A random projection, in which missing values are a number."""
        return super().sort_key(rows.nan_to_num(nan=-1.5))


@dataclass(frozen=True)
class PrecomputedDistance(DistanceSpace):
    """Distances from a given matrix [n, m]; encoded rows are positions in the matrix."""

    far: Tensor

    def between(self, rows: Tensor, others: Tensor) -> Tensor:
        """Select distances [n, k] from the matrix."""
        return self.far.index_select(1, others[:, 0]).index_select(0, rows[:, 0])

    def outermost(self, rows: Tensor) -> int:
        """Index of the point with the largest sum of distances."""
        return int(self.sort_key(rows).argmax())

    def sort_key(self, rows: Tensor) -> Tensor:
        """Sums of distances."""
        parts = blocks(len(rows), 16 * len(rows), rows.device)
        return torch.cat([self.between(rows[part], rows).sum(1) for part in parts])
