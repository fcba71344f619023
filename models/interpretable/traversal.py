"""Farthest-first traversal: centers, each of which is the point farthest from those before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .distances import Points


@dataclass(frozen=True)
class Cover:
    """Some points as centers, and where the others are."""

    centers: list[int]
    labels: Tensor  # [n]: position of the nearest center
    far: Tensor  # [n]: distance to it

    @property
    def radius(self) -> float:
        """The largest distance to the nearest center."""
        return float(self.far.amax())


def farthest_first(
    points: Points, k: int, first: int, choose: Callable[[Tensor], int] | None = None
) -> Iterator[Cover]:
    """Covers by 1, 2, ... k centers, each with those before it; it ends early where every point is a center.

    `choose` picks the next center by the distances to those before; default: the farthest. Then, in a metric
    space, the radius is at most twice the least that so many centers can have (T. Gonzalez, "Clustering to
    minimize the maximum intercluster distance", 1985).
    """
    far = points.column(first)
    cover = Cover([first], torch.zeros(len(points), dtype=torch.int64, device=far.device), far)
    yield cover
    for position in range(1, k):
        if not cover.radius > 0:
            return
        center = int(cover.far.argmax()) if choose is None else choose(cover.far)
        far = points.column(center)
        labels = torch.where(far < cover.far, position, cover.labels)
        cover = Cover([*cover.centers, center], labels, torch.minimum(far, cover.far))
        yield cover


def draw_far(power: int, random: np.random.RandomState) -> Callable[[Tensor], int]:
    """Draws the next center with probabilities proportional to a power of the distances (k-means++)."""

    def draw(far: Tensor) -> int:
        chance = far.double().cpu().numpy() ** power
        return int(random.choice(len(chance), p=chance / chance.sum()))

    return draw


def starts(points: Points, init: str, n_init: int, random: np.random.RandomState) -> list[int]:
    """First centers: for "farthest" one that does not depend on the order of the points, the others at random."""
    fixed = [points.space.outermost(points.rows)] if init == "farthest" else []
    return fixed + [int(random.randint(len(points))) for _ in range(n_init - len(fixed))]


def best_cover(points: Points, k: int, init: str, n_init: int, random: np.random.RandomState) -> Cover:
    """The cover by up to k centers with the least radius of several starts."""
    found: list[Any] = [[*farthest_first(points, k, first)][-1] for first in starts(points, init, n_init, random)]
    return min(found, key=lambda cover: cover.radius)
