"""Farthest-first traversal: centers are points, and each new one is the point farthest from the previous ones.

    u_1      = an outermost or a random point
    u_(j+1)  = argmax over the points x of min over i <= j of d(x, u_i)
    radius   = max over the points x of min over i <= k of d(x, u_i)

In a metric space, the radius is at most twice the smallest possible radius for k centers (T. Gonzalez, "Clustering
to minimize the maximum intercluster distance", 1985).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from .metric import EncodedPoints


@dataclass(frozen=True)
class Cover:
    """Centers, which are points, and the distances of all points to them."""

    centers: list[int]
    labels: Tensor  # [n], index of the nearest center
    distances: Tensor  # [n], distance to the nearest center

    @cached_property
    def radius(self) -> float:
        """Largest distance of a point to its nearest center."""
        return float(self.distances.amax())


def farthest_first(
    points: EncodedPoints, k: int, first: int, choose: Callable[[Tensor], Tensor | int] = torch.argmax
) -> Iterator[Cover]:
    """Yield covers with 1, 2, ... k centers, each of which adds a center; end early if the radius is 0.

    `choose` selects the next center from the distances to the previous ones; by default, the farthest point.
    """
    distances = points.distances_to(first)
    labels = torch.zeros(len(distances), dtype=torch.int64, device=distances.device)
    cover = Cover([first], labels, distances)
    yield cover
    for position in range(1, k):
        if not cover.radius > 0:
            return
        center = int(choose(cover.distances))
        distances = points.distances_to(center)
        labels = torch.where(distances < cover.distances, position, cover.labels)
        cover = Cover([*cover.centers, center], labels, torch.minimum(distances, cover.distances))
        yield cover


@dataclass(frozen=True)
class Starts:
    """How the centers of several runs are chosen."""

    init: str
    n_init: int
    random: np.random.RandomState

    def first_centers(self, points: EncodedPoints) -> list[int]:
        """Choose the first center of each run: an outermost point for the first of "farthest", else any point."""
        centers = []
        if self.init == "farthest":
            centers.append(points.outermost())
        while len(centers) < self.n_init:
            centers.append(int(self.random.randint(len(points))))
        return centers

    def draw(self, distances: Tensor, power: int) -> int:
        """Draw a further center with a probability that is proportional to a power of the distance."""
        weights = distances.double().cpu().numpy() ** power
        return int(self.random.choice(len(weights), p=weights / weights.sum()))


def best_cover(points: EncodedPoints, codes: Tensor, k: int, starts: Starts) -> Cover:
    """Find the cover of least radius over several runs, with up to k centers, each for points of one value alone.

    Algorithm 4 of Saisubramanian et al. tries all divisions of the centers among the values. Because the radius of
    a value's traversal never grows with its number of centers, it is optimal to give the next center to the value
    with the largest radius.
    """
    n_values = int(codes.amax()) + 1
    groups = [(codes == value).nonzero()[:, 0] for value in range(n_values)]
    points_of_groups = [points.take(rows) for rows in groups]
    runs = []
    for first_centers in zip(*map(starts.first_centers, points_of_groups), strict=True):
        starting = zip(points_of_groups, first_centers, strict=True)
        traversals = [farthest_first(group, k, first) for group, first in starting]
        covers = [*map(next, traversals)]
        for _ in range(k - len(covers)):
            worst = max(range(n_values), key=lambda value: covers[value].radius)
            if not covers[worst].radius > 0:
                break
            covers[worst] = next(traversals[worst])
        runs.append(covers)
    covers = min(runs, key=_radius)

    # One cover of all points: the centers of a value are numbered after those of the values before it
    centers: list[int] = []
    labels = torch.empty_like(codes)
    distances = covers[0].distances.new_empty(len(codes))
    for rows, cover in zip(groups, covers, strict=True):
        labels[rows] = cover.labels + len(centers)
        distances[rows] = cover.distances
        centers += rows[cover.centers].tolist()
    return Cover(centers, labels, distances)


def _radius(covers: list[Cover]) -> float:
    return max(cover.radius for cover in covers)
