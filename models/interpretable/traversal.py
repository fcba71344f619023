"""Farthest-first traversal, in which each new center is the point farthest from the previous ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

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
    points: EncodedPoints, k: int, first: int, choose: Callable[[Tensor], Any] = torch.argmax
) -> Iterator[Cover]:
    """Yield covers with 1, 2, ... k centers, each of which adds a center; end early if the radius is 0.

    `choose` selects the next center from the distances to the previous ones; by default, the farthest point. Then,
    in a metric space, the radius is at most twice the smallest possible radius for the number of centers (T.
    Gonzalez, "Clustering to minimize the maximum intercluster distance", 1985).
    """
    far = points.distances_to(first)
    cover = Cover([first], far.new_zeros(len(far), dtype=torch.int64), far)
    yield cover
    for position in range(1, k):
        if not cover.radius > 0:
            return
        center = int(choose(cover.distances))
        far = points.distances_to(center)
        labels = torch.where(far < cover.distances, position, cover.labels)
        cover = Cover([*cover.centers, center], labels, torch.minimum(far, cover.distances))
        yield cover


@dataclass(frozen=True)
class Starts:
    """How the centers of several runs are chosen."""

    init: str
    n_init: int
    random: np.random.RandomState

    def first_centers(self, points: EncodedPoints) -> list[int]:
        """First center of each run: an outermost point for the first run of "farthest", else random points."""
        fixed = [points.outermost()] if self.init == "farthest" else []
        return fixed + [int(self.random.randint(len(points))) for _ in range(self.n_init - len(fixed))]

    def draw(self, far: Tensor, power: int) -> int:
        """Draw a further center with probability proportional to a power of the distance."""
        chance = far.double().cpu().numpy() ** power
        return int(self.random.choice(len(chance), p=chance / chance.sum()))


def best_cover(points: EncodedPoints, codes: Tensor, k: int, starts: Starts) -> Cover:
    """The cover of least radius over several runs, with up to k centers, each for points of its own value alone.

    Algorithm 4 of Saisubramanian et al. tries all divisions of the centers among the values. Because the radius of
    a value's traversal never grows with its number of centers, it is optimal to give the next center to the value
    with the largest radius.
    """
    groups = [(codes == value).nonzero()[:, 0] for value in range(int(codes.amax()) + 1)]
    points_of = [points.take(rows) for rows in groups]
    runs = []
    for firsts in zip(*map(starts.first_centers, points_of), strict=True):
        traversals = [farthest_first(group, k, first) for group, first in zip(points_of, firsts, strict=True)]
        covers = [*map(next, traversals)]
        for _ in range(k - len(covers)):
            worst = max(range(len(covers)), key=lambda value: covers[value].radius)
            if not covers[worst].radius > 0:
                break
            covers[worst] = next(traversals[worst])
        runs.append(covers)
    covers = min(runs, key=lambda covers: max(cover.radius for cover in covers))
    centers: list[int] = []
    labels = torch.empty_like(codes)
    distances = covers[0].distances.new_empty(len(codes))
    for rows, cover in zip(groups, covers, strict=True):
        labels[rows] = cover.labels + len(centers)
        distances[rows] = cover.distances
        centers += rows[cover.centers].tolist()
    return Cover(centers, labels, distances)
