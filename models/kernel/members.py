"""Classical kernel k-means: every member of a cluster supports it, and costs are distances in feature space."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from tqdm import tqdm

from .supports import BUDGET, squared_distances


@dataclass(frozen=True)
class Members:
    """Clusters as means of their members in the feature space of a Gaussian kernel.

    Attributes
    ----------
    points : Tensor [n, d]
    groups : Tensor [n] of int64
        Cluster of every member.
    mass : Tensor [n]
        Weights of the members.
    gamma : float
    norms : Tensor [K]
        What sums of kernels are divided by: the mass of a cluster, or for means of unit length the length of its
        sum.
    lengths : Tensor [K]
        Squared lengths of the means.
    """

    points: Tensor
    groups: Tensor
    mass: Tensor
    gamma: float
    norms: Tensor
    lengths: Tensor

    def distances(self, x: Tensor) -> Tensor:
        """Squared distances [N, K] to the means in feature space: ``1 - 2 <Phi(x), mu> + |mu|^2``."""
        sums = kernel_sums(x, self.points, self.groups, len(self.norms), self.mass, self.gamma)
        return 1 - 2 * sums / self.norms + self.lengths

    @property
    def weights(self) -> Tensor:
        """Weights [n] with which members enter the soft minimum that stands for the distance (Prop. 4).

        For means of unit length the two decide alike; otherwise as far as the clusters' means are of one length.
        """
        return self.mass / self.norms[self.groups]


def kernel_sums(x: Tensor, points: Tensor, groups: Tensor, k: int, mass: Tensor, gamma: float) -> Tensor:
    """Weighted sums [N, K] of the kernel ``exp(-gamma |x - u|^2)`` over each cluster's points, block by block."""
    member = torch.zeros(len(points), k, dtype=x.dtype, device=x.device)
    member.scatter_(1, groups[:, None], mass[:, None].to(x))
    rows = max(1, BUDGET // max(1, len(points)))
    return torch.cat([squared_distances(part, points).mul_(-gamma).exp_() @ member for part in x.split(rows)])


def feature_kmeans(
    x: Tensor, labels: Tensor, k: int, gamma: float, mass: Tensor, spherical: bool, max_iter: int
) -> tuple[Members, list[float]]:
    """Reassign points to the nearest mean in feature space until none moves.

    Parameters
    ----------
    x : Tensor [n, d]
    labels : Tensor [n] of int64
        Where to start.
    mass : Tensor [n]
        Weights of the points.
    spherical : bool
        Means of unit length.
    max_iter : int
        0: the labels stay as they are.

    Returns
    -------
    members : Members
    history : list of float
        Sum of squared distances in feature space, after every iteration.
    """
    history: list[float] = []
    for iteration in tqdm(range(max_iter + 1), desc="kernel k-means", delay=2, leave=False):
        sums = kernel_sums(x, x, labels, k, mass, gamma)
        members = _means(x, labels, k, mass, gamma, spherical, sums)
        far = 1 - 2 * sums / members.norms + members.lengths
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
    return members, history


def _means(
    x: Tensor, labels: Tensor, k: int, mass: Tensor, gamma: float, spherical: bool, sums: Tensor
) -> Members:
    own = sums.gather(1, labels[:, None])[:, 0] * mass
    squares = torch.zeros(k, dtype=x.dtype, device=x.device).index_add_(0, labels, own)  # of the sums' lengths
    total = torch.zeros_like(squares).index_add_(0, labels, mass.to(x))
    norms = squares.sqrt() if spherical else total
    return Members(x, labels, mass, gamma, norms, squares / norms.square())
