"""Heads: a cluster decision as one linear detection layer and a minimum over competitors.

A head turns detected evidence into one logit per cluster, and a decision back into coefficients of what was
detected. Two shapes cover every nearest-center model: a flat set of centroids (several of which may stand for
one cluster) and a hierarchy of two-way splits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from neonxc.detection import Detection, prototypes
from neonxc.pooling import min_over_competitors, take_most
from neonxc.preprocessing import Preprocessing


class Head(nn.Module, ABC):
    """Base of all heads: logits forward, relevance backward. Subclasses say what competes with what."""

    def __init__(self, detection: Detection, n_clusters: int) -> None:
        super().__init__()
        if n_clusters < 2:
            raise ValueError("explaining a clustering needs at least 2 clusters: with one there is no competitor")
        self.detection = detection
        self.n_clusters = n_clusters

    def forward(self, x: Tensor) -> Tensor:
        """Logits f [N, K] of points [N, d]; positive for the assigned cluster alone."""
        return self.pool(self.detection(x))

    def assign(self, x: Tensor) -> Tensor:
        """Column [N] of the cluster each point belongs to."""
        return self(x).argmax(dim=1)

    def relevance(
        self, x: Tensor, target: Tensor, beta: float | Tensor, competitor: Tensor | None = None
    ) -> Tensor:
        """Relevance [N, d] of f_target (or of the contrast to a competitor) by the mid-point rule.

        NEON paper, Eqs. 2 and 4, in closed form: no pair of clusters is ever laid out over the features.
        """
        detected = self.detection(x)
        return self.detection.relevance(x, *self.coefficients(detected, target, beta, competitor))

    def multiplier(
        self, x: Tensor, target: Tensor, beta: float | Tensor, competitor: Tensor | None = None
    ) -> Tensor:
        """Multipliers [N, d] of the standard linear rule, the bias absorbing its share."""
        coefficients, _ = self.coefficients(self.detection(x), target, beta, competitor)
        return self.detection.multiplier(x, coefficients)

    @abstractmethod
    def pool(self, detected: Tensor) -> Tensor:
        """Logits [N, K] from the detection layer's output [N, M]."""

    @abstractmethod
    def coefficients(
        self, detected: Tensor, target: Tensor, beta: float | Tensor, competitor: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Coefficients [N, M] with which a decision weighs the detected evidence, and the target's own part."""


class CentroidHead(Head):
    """Nearest centroid; with `groups`, the nearest of each cluster's own centroids.

    Parameters
    ----------
    centers : Tensor [M, p]
        In the space the clusterer saw.
    groups : Tensor [M], optional
        Column of the cluster that each centroid stands for; default: its own.
    preprocessing : Preprocessing, optional
        From raw columns to that space.
    """

    groups: Tensor | None

    def __init__(
        self, centers: Tensor, groups: Tensor | None = None, preprocessing: Preprocessing | None = None
    ) -> None:
        preprocessing = preprocessing or Preprocessing.identity(centers.shape[1])
        n_clusters = len(centers) if groups is None else int(groups.max()) + 1
        super().__init__(Detection(*prototypes(centers, preprocessing)), n_clusters)
        self.register_buffer("groups", groups)

    def assign(self, x: Tensor) -> Tensor:
        """Column [N] of the cluster with the nearest centroid."""
        return self._energy(self.detection(x)).argmin(dim=1)

    def pool(self, detected: Tensor) -> Tensor:
        """Logits [N, K]: by how much the nearest other cluster is farther away than this one."""
        return min_over_competitors(self._energy(detected))

    def coefficients(
        self, detected: Tensor, target: Tensor, beta: float | Tensor, competitor: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Weights of the prototypes: the competitors' shares, and minus their sum at the target's own."""
        energy = self._energy(detected)
        column = target[:, None]
        contrasts = (energy - energy.gather(1, column)).scatter(1, column, torch.inf)
        if competitor is not None:
            rival = competitor[:, None]
            contrasts = torch.full_like(contrasts, torch.inf).scatter(1, rival, contrasts.gather(1, rival))
        shares = take_most(contrasts, beta)
        weights = shares.scatter(1, column, -shares.sum(dim=1, keepdim=True))
        own = torch.zeros_like(weights).scatter_(1, column, 1.0)
        if self.groups is None:
            return weights, own
        nearest = self._nearest(detected, energy)
        return weights[:, self.groups] * nearest, own[:, self.groups] * nearest

    def _energy(self, detected: Tensor) -> Tensor:
        """Energies [N, K]: the least of each cluster's prototypes."""
        if self.groups is None:
            return detected
        empty = detected.new_full((detected.shape[0], self.n_clusters), torch.inf)
        return empty.scatter_reduce(1, self.groups.expand_as(detected), detected, "amin")

    def _nearest(self, detected: Tensor, energy: Tensor) -> Tensor:
        """Indicator [N, M] of each cluster's nearest prototype; ties share."""
        assert self.groups is not None
        hit = (detected == energy[:, self.groups]).to(detected.dtype)
        ties = torch.zeros_like(energy).index_add(1, self.groups, hit)
        return hit / ties[:, self.groups]


class HierarchyHead(Head):
    """Two-way splits down a tree: a leaf's logit is the minimum over its path.

    Parameters
    ----------
    children : sequence of (left, right)
        Splits, parents first. A child ``>= 0`` is the leaf of that column, ``-s`` the split number s.
    left, right : Tensor [S, p]
        Centers of each split's two children.
    preprocessing : Preprocessing, optional
        From raw columns to the space of the centers.
    """

    signs: Tensor

    def __init__(
        self,
        children: Sequence[tuple[int, int]],
        left: Tensor,
        right: Tensor,
        preprocessing: Preprocessing | None = None,
    ) -> None:
        preprocessing = preprocessing or Preprocessing.identity(left.shape[1])
        directions, anchors, frame = prototypes(torch.cat([left, right]), preprocessing)
        # a split's neuron is its right child's minus its left one's: positive on the left
        (d_left, d_right), (a_left, a_right) = directions.chunk(2), anchors.chunk(2)
        super().__init__(Detection(d_right - d_left, a_left + a_right, frame), len(children) + 1)
        self.children_ = [(int(a), int(b)) for a, b in children]
        self.register_buffer("signs", path_signs(self.children_))

    def pool(self, detected: Tensor) -> Tensor:
        """Logits [N, K]: the weakest evidence on each leaf's path."""
        reach = {0: torch.full_like(detected[:, 0], torch.inf)}  # minimum over the path so far
        logits = [reach[0]] * self.n_clusters
        for split, children in enumerate(self.children_):
            for child, evidence in zip(children, (detected[:, split], -detected[:, split]), strict=True):
                value = torch.minimum(reach[split], evidence)
                if child >= 0:
                    logits[child] = value
                else:
                    reach[-child] = value
        return torch.stack(logits, dim=1)

    def coefficients(
        self, detected: Tensor, target: Tensor, beta: float | Tensor, competitor: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Weights of the splits: shares of those on the target's path, with its side as their sign."""
        signs = self.signs.to(detected)[target]
        on_path = signs != 0
        if competitor is not None:  # the two part at one split, the only one whose sides they are on
            on_path &= signs * self.signs.to(detected)[competitor] < 0
        contrasts = torch.where(on_path, signs * detected, torch.inf)
        return take_most(contrasts, beta) * signs, None


def path_signs(children: Sequence[tuple[int, int]]) -> Tensor:
    """Sides [K, S] on which each leaf lies of each split: 1 left, -1 right, 0 not on its path."""
    signs = torch.zeros(len(children) + 1, len(children), dtype=torch.int8)
    below: dict[int, list[int]] = {}
    for split in range(len(children) - 1, -1, -1):  # children come after their parents
        sides = [[child] if child >= 0 else below[-child] for child in children[split]]
        below[split] = sides[0] + sides[1]
        for side, leaves in zip((1, -1), sides, strict=True):
            signs[leaves, split] = side
    return signs
