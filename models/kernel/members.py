"""Classical kernel k-means: all members of a cluster support it, and costs are distances in feature space."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from neonxc.common.memory import blocks
from neonxc.common.progress import progress_bar

from .supports import squared_distances


@dataclass(frozen=True)
class Members:
    """Clusters as means of their members in the feature space of a Gaussian kernel."""

    points: Tensor  # [n, d]
    groups: Tensor  # [n]: cluster of every member
    mass: Tensor  # [n]: weights of the members
    gamma: float
    norms: Tensor  # [K]: what sums of kernels are divided by, a cluster's mass or the length of its sum
    lengths: Tensor  # [K]: squared lengths of the means

    def distances(self, x: Tensor) -> Tensor:
        """Squared distances [N, K] to the means in feature space: ``1 - 2 <Phi(x), mu> + |mu|^2``."""
        return self.far(_kernel_sums(x, self.points, self.groups, len(self.norms), self.mass, self.gamma))

    def far(self, sums: Tensor) -> Tensor:
        """The same from sums of kernels."""
        return 1 - 2 * sums / self.norms + self.lengths

    def flat(self) -> tuple[Tensor, Tensor, Tensor]:
        """Points [n, d], clusters [n] and log weights [n] in the soft minimum that stands for the distance.

        By Prop. 4 of the NEON paper the two decide alike as far as all means are of one length.
        """
        return self.points, self.groups, (self.mass / self.norms[self.groups]).log()


def feature_kmeans(
    x: Tensor, labels: Tensor, k: int, gamma: float, mass: Tensor, spherical: bool, max_iter: int
) -> tuple[Members, float, list[float]]:
    """Reassign points to the nearest mean in feature space, from given labels, until none moves.

    Returns the members, the sum of squared distances in feature space, and that sum after every iteration. Means
    have unit length where `spherical`; with ``max_iter=0`` the labels stay as they are.
    """
    history: list[float] = []
    for iteration in progress_bar(range(max_iter + 1), desc="kernel k-means"):
        sums = _kernel_sums(x, x, labels, k, mass, gamma)
        members = _means(x, labels, k, mass, gamma, spherical, sums)
        far = members.far(sums)
        own = far.gather(1, labels[:, None])[:, 0]
        history.append(float((own * mass).sum(dtype=torch.float64)))
        if iteration == max_iter:
            break
        moved = far.argmin(1)
        for cluster in (torch.bincount(moved, minlength=k) == 0).nonzero()[:, 0].tolist():
            moved[int(own.argmax())] = cluster  # an empty cluster starts again at the worst point
            own[int(own.argmax())] = -math.inf
        if bool((moved == labels).all()):
            break
        labels = moved
    return members, history[-1], history


def _kernel_sums(x: Tensor, points: Tensor, groups: Tensor, k: int, mass: Tensor, gamma: float) -> Tensor:
    """Weighted sums [N, K] of the kernel ``exp(-gamma |x - u|^2)`` over the points of each cluster."""
    member = x.new_zeros(len(points), k).scatter_(1, groups[:, None], mass[:, None].to(x))
    row = x.element_size() * len(points)
    parts = (squared_distances(x[rows], points) for rows in blocks(len(x), row, x.device))
    return torch.cat([far.mul_(-gamma).exp_() @ member for far in parts])


def _means(
    x: Tensor, labels: Tensor, k: int, mass: Tensor, gamma: float, spherical: bool, sums: Tensor
) -> Members:
    own = sums.gather(1, labels[:, None])[:, 0] * mass
    squares = x.new_zeros(k).index_add_(0, labels, own)  # squared lengths of the sums in feature space
    norms = squares.sqrt() if spherical else x.new_zeros(k).index_add_(0, labels, mass)
    return Members(x, labels, mass, gamma, norms, squares / norms.square())
