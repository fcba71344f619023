"""Classical kernel k-means: all members of a cluster support it, and costs are distances in feature space."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from neonxc.clusterings.supports import squared_distances
from neonxc.common.memory import blocks
from neonxc.common.progress import progress_bar

from .em import Fit


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
        mass = _masses(self.groups, self.mass, len(self.norms))
        return self.far(_kernel_sums(x, self.points, mass, self.gamma))

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
) -> Fit:
    """Reassign points to the nearest mean in feature space, from given labels, until none moves.

    The objective is the sum of squared distances in feature space. Means
    have unit length where `spherical`; with ``max_iter=0`` the labels stay as they are.
    """
    history: list[float] = []
    for iteration in progress_bar(range(max_iter + 1), desc="kernel k-means"):
        masses = _masses(labels, mass, k)
        sums = _kernel_sums(x, x, masses, gamma)
        squares = (sums * masses).sum(0)  # squared lengths of the sums in feature space
        norms = squares.sqrt() if spherical else masses.sum(0)
        members = Members(x, labels, mass, gamma, norms, squares / norms.square())
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
    return Fit(members, labels, history[-1], history)


def _masses(groups: Tensor, mass: Tensor, k: int) -> Tensor:
    """Weights [n, k] of points in each cluster; zero in all but their own."""
    return mass.new_zeros(len(groups), k).scatter_(1, groups[:, None], mass[:, None])


def _kernel_sums(x: Tensor, points: Tensor, masses: Tensor, gamma: float) -> Tensor:
    """Weighted sums [N, K] of the kernel ``exp(-gamma |x - u|^2)`` over the points of each cluster."""
    row = x.element_size() * len(points)
    parts = (squared_distances(x[rows], points) for rows in blocks(len(x), row, x.device))
    return torch.cat([far.mul_(-gamma).exp_() @ masses.to(x) for far in parts])
