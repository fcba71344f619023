"""What clusters cost, and the centers for which they cost the least."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from neonxc.blocks import blocks

from .distances import Points

EXACT = 2000  # points of a cluster up to which all are tried as its medoid
SAMPLE, CANDIDATES = 200, 20  # above: points that screen the others, and how many of these are then tried


@dataclass(frozen=True)
class Centers:
    """Encoded rows [K, m], and which points they are; None for means."""

    rows: Tensor
    points: list[int] | None


@dataclass(frozen=True)
class Objective:
    """What is to be small.

    The largest distance to a center ("kcenter"), the sum of squared distances to means ("kmeans"), or the sum of
    distances to medoids ("kmedian").
    """

    name: str

    @property
    def power(self) -> int:
        """Which power of a distance counts."""
        return 2 if self.name == "kmeans" else 1

    def center(self, points: Points) -> tuple[Tensor, int | None]:
        """The best center [1, m] of some points, and its position among them."""
        if self.name == "kmeans":
            return points.rows.mean(0, keepdim=True), None
        found = one_center(points) if self.name == "kcenter" else medoid(points)
        return points.rows[found : found + 1], found

    def centers(self, points: Points, labels: Tensor, k: int) -> Centers:
        """The best center of each of k clusters."""
        rows, positions = [], []
        for cluster in range(k):
            own = (labels == cluster).nonzero()[:, 0]
            row, position = self.center(points.at(own))
            rows.append(row)
            positions.append(-1 if position is None else int(own[position]))
        return Centers(torch.cat(rows), None if self.name == "kmeans" else positions)

    def far(self, points: Points, rows: Tensor) -> Tensor:
        """What a point would cost at each center, [n, K]."""
        far = points.space.between(points.rows, rows)
        return far.square() if self.power == 2 else far

    def value(self, own: Tensor) -> float:
        """The objective, from what every point costs at its own center."""
        return float(own.amax() if self.name == "kcenter" else own.sum(dtype=torch.float64))


def one_center(points: Points) -> int:
    """The point whose largest distance to the others is the least.

    The largest distance to some witnesses is a lower bound for every point. The point with the least bound is
    tried, and the point farthest from it becomes a witness, until a point is as good as the bound of all. That
    takes some ten columns of the matrix of distances.
    """
    best, least, witness = 0, torch.inf, 0
    bound = torch.zeros_like(points.column(0))
    witnesses: set[int] = set()
    while witness not in witnesses:  # where distances are not symmetric to rounding, one may come again
        witnesses.add(witness)
        bound = torch.maximum(bound, points.column(witness))
        candidate = int(bound.argmin())
        if float(bound[candidate]) >= least:
            break
        radius, witness = (value.item() for value in points.column(candidate).max(0))  # type: ignore[assignment]
        if radius < least:
            best, least = candidate, radius
    return best


def medoid(points: Points) -> int:
    """The point whose distances to the others have the least sum.

    It is exact up to 2000 points. Of more, those with the least sum of distances to a sample of 200 are tried: the
    sample is spread evenly over the distances from the point nearest to the middle of a first sample.
    """
    n = len(points)
    every = torch.arange(n, device=points.rows.device)
    if n > EXACT:
        sample = every[:: -(-n // SAMPLE)]
        around = points.column(int(_sums(points, sample, dim=1).argmin()))
        sample = around.argsort()[:: -(-n // SAMPLE)]
        every = _sums(points, sample, dim=1).argsort()[:CANDIDATES]
    return int(every[_sums(points, every, dim=0).argmin()])


def _sums(points: Points, index: Tensor, dim: int) -> Tensor:
    """Sums of the distances to some points: over these [n] for dim = 1, over all [len(index)] for dim = 0."""
    parts = blocks(len(index), 32 * len(points), points.rows.device)
    found = [points.to(index[part]).sum(dim) for part in parts]
    return torch.cat(found) if dim == 0 else torch.stack(found).sum(0)
