"""Farthest-first traversal, in which each new center is the point farthest from the previous ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .distances import EncodedPoints


@dataclass(frozen=True)
class Cover:
    """Centers, which are points, and the distances of all points to them."""

    centers: list[int]
    labels: Tensor  # [n], index of the nearest center
    distances: Tensor  # [n], distance to the nearest center

    @property
    def radius(self) -> float:
        """Largest distance of a point to its nearest center."""
        return float(self.distances.amax())


def farthest_first(
    points: EncodedPoints, k: int, first: int, choose: Callable[[Tensor], int] | None = None
) -> Iterator[Cover]:
    """Yield covers with 1, 2, ... k centers, each of which adds a center; end early if the radius is 0.

    `choose` selects the next center from the distances to the previous ones; by default, the farthest point. Then,
    in a metric space, the radius is at most twice the smallest possible radius for the number of centers (T.
    Gonzalez, "Clustering to minimize the maximum intercluster distance", 1985).
    """
    far = points.distances_to_point(first)
    cover = Cover([first], torch.zeros(len(points), dtype=torch.int64, device=far.device), far)
    yield cover
    for position in range(1, k):
        if not cover.radius > 0:
            return
        center = int(cover.distances.argmax()) if choose is None else choose(cover.distances)
        far = points.distances_to_point(center)
        labels = torch.where(far < cover.distances, position, cover.labels)
        cover = Cover([*cover.centers, center], labels, torch.minimum(far, cover.distances))
        yield cover


def draw_by_distance(power: int, random: np.random.RandomState) -> Callable[[Tensor], int]:
    """Create a function that draws the next center with probability proportional to a power of the distance."""

    def draw(far: Tensor) -> int:
        chance = far.double().cpu().numpy() ** power
        return int(random.choice(len(chance), p=chance / chance.sum()))

    return draw


def first_centers(points: EncodedPoints, init: str, n_init: int, random: np.random.RandomState) -> list[int]:
    """First centers of `n_init` runs: an outermost point for the first run of "farthest", else random points."""
    fixed = [points.space.outermost(points.rows)] if init == "farthest" else []
    return fixed + [int(random.randint(len(points))) for _ in range(n_init - len(fixed))]


def best_cover(points: EncodedPoints, k: int, init: str, n_init: int, random: np.random.RandomState) -> Cover:
    """The cover with up to k centers that has the smallest radius over several runs."""
    found: list[Any] = [
        [*farthest_first(points, k, first)][-1] for first in first_centers(points, init, n_init, random)
    ]
    return min(found, key=lambda cover: cover.radius)
