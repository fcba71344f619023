"""Fits of kernel k-means: EM for supports, on all points or by mini-batches, and the means of members."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from neonxc.clusterings.supports import Supports, by_cluster, squared_distances
from neonxc.common.memory import blocks
from neonxc.common.processes import ALONE, Ranks
from neonxc.common.progress import progress_bar
from neonxc.data.distributed import greatest

DEAD = 1e-12  # a support with less than this total responsibility has lost its points


@dataclass(frozen=True)
class Fit:
    """Supports or members of clusters, the labels [n], the objective, and that before each iteration."""

    model: Any
    labels: Tensor
    objective: float
    history: list[float]


@dataclass(frozen=True)
class Statistics:
    """Results of one pass over the points, for the maximization and the caller.

    Sums are those over the points of all ranks; `labels` and `far` are those of this rank's points.
    """

    mass: Tensor  # [K, p]: weight of the points that a support is responsible for
    total: Tensor  # [K, p, d]: weighted sum of these points
    labels: Tensor  # [n]
    far: Tensor  # [n]: distance of each point to its cluster
    objective: float  # sum of these distances


def em(
    x: Tensor,
    supports: Supports,
    labels: Tensor | None = None,
    weight: Tensor | None = None,
    *,
    weighted: bool = False,
    max_iter: int = 100,
    tol: float = 1e-6,
    ranks: Ranks = ALONE,
) -> Fit:
    """Alternate between assignments and supports until the objective falls by less than `tol` of it.

    Each point goes to the cluster with the least distance ``D_c``. Within the cluster a support is responsible for
    the share ``softmax(log w - gamma |x - u|^2)`` of the point, and moves to the mean of what it is responsible
    for. For fixed assignments this is EM for a mixture, which does not lower the likelihood and so does not raise
    D; choosing the nearest cluster does not raise it either. Hence the objective never rises.

    Assignments `labels` [n] are kept. `weight` [n] is that of the points; those of the supports are fitted where
    `weighted`. Sums are those over the points of all `ranks`, which add them up in one call an iteration.
    """
    weight = x.new_ones(len(x)) if weight is None else weight
    history: list[float] = []
    for _ in progress_bar(range(max_iter), desc="kernel k-means", disable=ranks.rank > 0):
        statistics = expectation(x, supports, labels, weight, ranks)
        history.append(statistics.objective)
        if _converged(history, tol):
            break
        supports = _maximization(x, supports, statistics, weighted, ranks)
    final = expectation(x, supports, labels, weight, ranks)
    return Fit(supports, final.labels, final.objective, history)


def mini_batch_em(
    x: Tensor,
    supports: Supports,
    weight: Tensor,
    generator: torch.Generator,
    batch_size: int,
    *,
    weighted: bool,
    max_iter: int,
    tol: float,
) -> Fit:
    """:func:`em` in up to `max_iter` passes by mini-batches, whose points are drawn in proportion to `weight`.

    A support is the running mean of the points for which it has been responsible.
    """
    seen = torch.zeros_like(supports.points[..., 0])
    history = []
    for _ in progress_bar(range(max_iter), desc="kernel k-means"):
        objective = 0.0
        for rows in drawn(weight, len(x), generator).split(batch_size):
            statistics = expectation(x[rows], supports, None, x.new_ones(len(rows)))
            objective += statistics.objective
            seen += statistics.mass
            shift = statistics.total - statistics.mass[..., None] * supports.points
            supports = replace(supports, points=supports.points + shift / seen.clamp(min=1.0)[..., None])
            if weighted:
                mass = seen.double() + 1
                supports = replace(supports, log_weights=(mass / mass.sum(1, keepdim=True)).log())
        history.append(objective)
        if _converged(history, tol):
            break
    return replace(em(x, supports, weight=weight, max_iter=0), history=history)


def drawn(weight: Tensor, size: int, generator: torch.Generator) -> Tensor:
    """Draw indices [size] of points by weight, without replacement if all weights are equal."""
    if (weight == weight[0]).all():
        return torch.randperm(len(weight), generator=generator, device=weight.device)[:size]
    return torch.multinomial(weight, size, replacement=True, generator=generator)


def _converged(history: list[float], tol: float) -> bool:
    return len(history) > 1 and history[-2] - history[-1] <= tol * abs(history[-2])


def expectation(
    x: Tensor, supports: Supports, labels: Tensor | None, weight: Tensor, ranks: Ranks = ALONE
) -> Statistics:
    """Assign points, unless `labels` are given, and sum the responsibilities of the supports."""
    mass = torch.zeros_like(supports.points[..., 0])
    total = torch.zeros_like(supports.points)
    assigned = x.new_zeros(len(x), dtype=torch.int64) if labels is None else labels
    far = x.new_zeros(len(x))
    for rows in supports.parts(x, clusters=None if labels is None else 1):
        points = x[rows]
        if labels is None and mass.shape[1] == 1:  # the step of k-means
            centers = supports.points[:, 0]
            least, assigned[rows] = torch.addmm(centers.square().sum(1), points, centers.T, alpha=-2).min(1)
            far[rows] = (least + points.square().sum(1)).clamp(min=0)
            hits = x.new_zeros(len(points), len(mass)).scatter_(1, assigned[rows, None], weight[rows, None])
            mass += hits.sum(0)[:, None]
            total += (hits.T @ points)[:, None]
            continue
        if labels is None:
            logits = supports.logits(points)
            assigned[rows] = supports.pooled(logits).argmin(1)
            logits = logits.take_along_dim(assigned[rows, None, None], 1)[:, 0]
        else:  # distances to other clusters are not needed
            logits = supports.own_logits(points, labels[rows])
        far[rows] = supports.pooled(logits).to(x)
        shares = supports.shares(logits).to(x) * weight[rows, None]
        members = by_cluster(assigned[rows], len(mass))
        mass += torch.stack([shares[cluster].sum(0) for cluster in members])
        total += torch.stack([shares[cluster].T @ points[cluster] for cluster in members])
    objective = (far * weight).sum(dtype=torch.float64)
    sums = ranks.sum(torch.cat([values.double().flatten() for values in (mass, total, objective)]))
    mass, total = sums[: mass.numel()].view_as(mass).to(x), sums[mass.numel() : -1].view_as(total).to(x)
    return Statistics(mass, total, assigned, far, float(sums[-1]))


def _maximization(x: Tensor, supports: Supports, statistics: Statistics, weighted: bool, ranks: Ranks) -> Supports:
    mass = statistics.mass
    alive = mass > DEAD
    points = torch.where(alive[..., None], statistics.total / mass.clamp(min=DEAD)[..., None], supports.points)
    log_weights = supports.log_weights
    if weighted:
        of_cluster = mass.double().sum(1, keepdim=True)
        log_weights = torch.where(of_cluster > DEAD, (mass / of_cluster.clamp(min=DEAD)).log(), log_weights)
    supports = replace(supports, points=points, log_weights=log_weights)
    return supports if alive.all() else _reseeded(x, supports, statistics, alive, ranks)


def _reseeded(x: Tensor, supports: Supports, statistics: Statistics, alive: Tensor, ranks: Ranks) -> Supports:
    """Move supports without points to the points that are farthest from their cluster.

    No point's distance depends on these supports, so the objective can't rise. The supports of a cluster with
    points stay in it; where weights are fitted, theirs is zero and they stay as they are.
    """
    far = statistics.far
    points = supports.points.clone()
    log_weights = supports.log_weights.clone()
    farthest = greatest(x, far, len(alive), ranks)
    for cluster in (~alive).any(1).nonzero()[:, 0].tolist():
        if not alive[cluster].any():
            points[cluster] = farthest[cluster % len(farthest)]
            log_weights[cluster] = -math.log(log_weights.shape[1])
            continue
        places = (~alive[cluster] & log_weights[cluster].isfinite()).nonzero()[:, 0]
        members = statistics.labels == cluster
        seeds = greatest(x[members], far[members], log_weights.shape[1], ranks)
        points[cluster, places] = seeds[places % len(seeds)]
    return replace(supports, points=points, log_weights=log_weights)


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
        cost = far.gather(1, labels[:, None])[:, 0]
        history.append(float((cost * mass).sum(dtype=torch.float64)))
        if iteration == max_iter:
            break
        moved = far.argmin(1)
        for cluster in (torch.bincount(moved, minlength=k) == 0).nonzero()[:, 0].tolist():
            worst = cost.argmax()
            # an empty cluster starts again at the worst point
            moved[worst] = cluster
            cost[worst] = -math.inf
        if torch.equal(moved, labels):
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
