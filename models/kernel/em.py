"""Fits of kernel k-means: EM for supports, on all points or by mini-batches, and the means of members.

Objective "lme", for points x of weight m_x and clusters c of supports u with weights w_u (NEON paper, Eq. 7):

    distance        D_c(x) = -1/gamma log sum_(u of c) w_u exp(-gamma |x - u|^2)
    assignment      c(x)   = argmin_c D_c(x), or a given one
    objective       sum_x m_x D_c(x)(x)
    E step          r_xu   = softmax over the supports u of c(x) of (log w_u - gamma |x - u|^2)
    M step          M_u    = sum_x m_x r_xu,    u = sum_x m_x r_xu x / M_u,
                    w_u    = M_u / sum_(v of c) M_v        (if `weighted`, otherwise all are equal)

Objectives "feature" and "spherical", with K(x, z) = exp(-gamma |x - z|^2) = <Phi(x), Phi(z)>, so |Phi(x)| = 1:

    sums            S_c(x) = sum_(z of c) m_z K(x, z) = <Phi(x), s_c>,   s_c = sum_(z of c) m_z Phi(z)
    means           mu_c   = s_c / norm_c,   norm_c = sum_(z of c) m_z (feature) or |s_c| (spherical)
    distance        |Phi(x) - mu_c|^2 = 1 - 2 S_c(x) / norm_c + |mu_c|^2
    objective       sum_x m_x |Phi(x) - mu_c(x)|^2
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import torch
from torch import Tensor

from neonxc.clusterings.supports import Supports, by_cluster, squared_distances
from neonxc.common.memory import blocks
from neonxc.common.processes import ALONE, Ranks
from neonxc.common.progress import progress_bar
from neonxc.data.distributed import greatest

DEAD = 1e-12  # a support with less than this total responsibility has lost its points


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
        """Compute the squared distances |Phi(x) - mu_c|^2 [N, K] to the means in feature space."""
        mass = _masses(self.groups, self.mass, len(self.norms))
        return self.distances_from(_kernel_sums(x, self.points, mass, self.gamma))

    def distances_from(self, sums: Tensor) -> Tensor:
        """Compute the same distances from the sums of kernels S_c(x) [N, K]."""
        return 1 - 2 * sums / self.norms + self.lengths

    def flat(self) -> tuple[Tensor, Tensor, Tensor]:
        """List points [n, d], clusters [n] and log weights [n] in the soft minimum that stands for the distance.

        By Prop. 4 of the NEON paper the two decide alike as far as all means are of one length.
        """
        weights = self.mass / self.norms[self.groups]
        return self.points, self.groups, weights.log()


Clusters = TypeVar("Clusters", Supports, Members)


@dataclass(frozen=True)
class Fit(Generic[Clusters]):
    """Fitted clusters."""

    model: Clusters
    labels: Tensor  # [n], cluster of every point
    objective: float
    history: list[float]  # the objective before each iteration


@dataclass(frozen=True)
class Statistics:
    """Results of one pass over the points, for the M step and the caller.

    Sums are those over the points of all ranks; `labels` and `distances` are those of this rank's points.
    """

    mass: Tensor  # [K, p], M_u: weight of the points that a support is responsible for
    total: Tensor  # [K, p, d]: weighted sum of these points
    labels: Tensor  # [n]
    distances: Tensor  # [n]: distance of each point to its cluster
    objective: float  # weighted sum of these distances


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
) -> Fit[Supports]:
    """Alternate between assignments and supports until the objective falls by less than `tol` of it.

    For fixed assignments this is EM for a mixture, which does not lower the likelihood and so does not raise D;
    choosing the nearest cluster does not raise it either. Hence the objective never rises.

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
) -> Fit[Supports]:
    """Fit as :func:`em`, but by mini-batches, whose points are drawn in proportion to `weight`.

    There are up to `max_iter` passes over the points. A support is the running mean of the points for which it has
    been responsible.
    """
    seen_mass = torch.zeros_like(supports.points[..., 0])  # [K, p], sum of M_u over the batches
    history = []
    for _ in progress_bar(range(max_iter), desc="kernel k-means"):
        objective = 0.0
        for rows in drawn(weight, len(x), generator).split(batch_size):
            statistics = expectation(x[rows], supports, None, x.new_ones(len(rows)))
            objective += statistics.objective
            # u + (sum_x r_xu x - M_u u) / (all M_u so far) is the mean of all points so far
            seen_mass += statistics.mass
            shift = statistics.total - statistics.mass[..., None] * supports.points
            supports = replace(supports, points=supports.points + shift / seen_mass.clamp(min=1.0)[..., None])
            if weighted:
                mass = seen_mass.double() + 1
                supports = replace(supports, log_weights=(mass / mass.sum(1, keepdim=True)).log())
        history.append(objective)
        if _converged(history, tol):
            break
    final = em(x, supports, weight=weight, max_iter=0)
    return replace(final, history=history)


def drawn(weight: Tensor, size: int, generator: torch.Generator) -> Tensor:
    """Draw indices [size] of points by weight, without replacement if all weights are equal."""
    if (weight == weight[0]).all():
        order = torch.randperm(len(weight), generator=generator, device=weight.device)
        return order[:size]
    return torch.multinomial(weight, size, replacement=True, generator=generator)


def _converged(history: list[float], tol: float) -> bool:
    return len(history) > 1 and history[-2] - history[-1] <= tol * abs(history[-2])


def expectation(
    x: Tensor, supports: Supports, labels: Tensor | None, weight: Tensor, ranks: Ranks = ALONE
) -> Statistics:
    """Assign points, unless they have `labels`, and sum the responsibilities of the supports (E step)."""
    mass = torch.zeros_like(supports.points[..., 0])
    total = torch.zeros_like(supports.points)
    distances = x.new_zeros(len(x))
    if labels is None:
        assigned = x.new_zeros(len(x), dtype=torch.int64)
        n_computed = None  # distances to all clusters
    else:
        assigned = labels
        n_computed = 1

    for rows in supports.parts(x, clusters=n_computed):
        points = x[rows]
        if labels is None and mass.shape[1] == 1:  # the step of k-means
            # |x - u|^2 - |x|^2 = |u|^2 - 2 x'u has its minimum at the same center
            centers = supports.points[:, 0]
            minima, assigned[rows] = torch.addmm(centers.square().sum(1), points, centers.T, alpha=-2).min(1)
            distances[rows] = (minima + points.square().sum(1)).clamp(min=0)
            one_hot = x.new_zeros(len(points), len(mass)).scatter_(1, assigned[rows, None], weight[rows, None])
            mass += one_hot.sum(0)[:, None]
            total += (one_hot.T @ points)[:, None]
            continue

        if labels is None:
            logits = supports.logits(points)
            assigned[rows] = supports.pooled(logits).argmin(1)
            logits = logits.take_along_dim(assigned[rows, None, None], 1)[:, 0]
        else:
            logits = supports.own_logits(points, labels[rows])
        distances[rows] = supports.pooled(logits).to(x)
        responsibility = supports.shares(logits).to(x) * weight[rows, None]  # [B, p], m_x r_xu
        members = by_cluster(assigned[rows], len(mass))
        mass += torch.stack([responsibility[cluster].sum(0) for cluster in members])
        total += torch.stack([responsibility[cluster].T @ points[cluster] for cluster in members])

    # One call adds up the sums of all ranks
    objective = (distances * weight).sum(dtype=torch.float64)
    sums = ranks.sum(torch.cat([values.double().flatten() for values in (mass, total, objective)]))
    n_mass = mass.numel()
    mass = sums[:n_mass].view_as(mass).to(x)
    total = sums[n_mass:-1].view_as(total).to(x)
    return Statistics(mass, total, assigned, distances, float(sums[-1]))


def _maximization(x: Tensor, supports: Supports, statistics: Statistics, weighted: bool, ranks: Ranks) -> Supports:
    """Move the supports to the means of what they are responsible for, and fit their weights (M step)."""
    mass = statistics.mass
    is_alive = mass > DEAD
    means = statistics.total / mass.clamp(min=DEAD)[..., None]
    points = torch.where(is_alive[..., None], means, supports.points)
    log_weights = supports.log_weights
    if weighted:
        cluster_mass = mass.double().sum(1, keepdim=True)
        fitted = (mass / cluster_mass.clamp(min=DEAD)).log()
        log_weights = torch.where(cluster_mass > DEAD, fitted, log_weights)
    supports = replace(supports, points=points, log_weights=log_weights)
    return supports if is_alive.all() else _reseeded(x, supports, statistics, is_alive, ranks)


def _reseeded(x: Tensor, supports: Supports, statistics: Statistics, is_alive: Tensor, ranks: Ranks) -> Supports:
    """Move supports without points to the points that are farthest from their cluster.

    No point's distance depends on these supports, so the objective can't rise. The supports of a cluster with
    points stay in it; where weights are fitted, theirs is zero and they stay as they are.
    """
    distances = statistics.distances
    points = supports.points.clone()
    log_weights = supports.log_weights.clone()
    k, p = log_weights.shape
    farthest = greatest(x, distances, k, ranks)
    for cluster in (~is_alive).any(1).nonzero()[:, 0].tolist():
        if not is_alive[cluster].any():
            points[cluster] = farthest[cluster % len(farthest)]
            log_weights[cluster] = -math.log(p)
            continue
        moved = (~is_alive[cluster] & log_weights[cluster].isfinite()).nonzero()[:, 0]
        members = statistics.labels == cluster
        seeds = greatest(x[members], distances[members], p, ranks)
        points[cluster, moved] = seeds[moved % len(seeds)]
    return replace(supports, points=points, log_weights=log_weights)


def feature_kmeans(
    x: Tensor, labels: Tensor, k: int, gamma: float, mass: Tensor, spherical: bool, max_iter: int
) -> Fit[Members]:
    """Reassign points to the nearest mean in feature space, from given labels, until none moves.

    Means have unit length where `spherical`; with ``max_iter=0`` the labels stay as they are.
    """
    history: list[float] = []
    for iteration in progress_bar(range(max_iter + 1), desc="kernel k-means"):
        masses = _masses(labels, mass, k)
        sums = _kernel_sums(x, x, masses, gamma)
        squared_lengths = (sums * masses).sum(0)  # |s_c|^2
        norms = squared_lengths.sqrt() if spherical else masses.sum(0)
        members = Members(x, labels, mass, gamma, norms, squared_lengths / norms.square())
        distances = members.distances_from(sums)
        cost = distances.gather(1, labels[:, None])[:, 0]
        history.append(float((cost * mass).sum(dtype=torch.float64)))
        if iteration == max_iter:
            break

        moved = distances.argmin(1)
        is_empty = torch.bincount(moved, minlength=k) == 0
        for cluster in is_empty.nonzero()[:, 0].tolist():
            # an empty cluster starts again at the worst point
            worst = cost.argmax()
            moved[worst] = cluster
            cost[worst] = -math.inf
        if torch.equal(moved, labels):
            break
        labels = moved
    return Fit(members, labels, history[-1], history)


def _masses(groups: Tensor, mass: Tensor, k: int) -> Tensor:
    """Write the weights of points into a table [n, k] of clusters, with zeros in all but their own."""
    return mass.new_zeros(len(groups), k).scatter_(1, groups[:, None], mass[:, None])


def _kernel_sums(x: Tensor, points: Tensor, masses: Tensor, gamma: float) -> Tensor:
    """Compute the weighted sums S_c(x) [N, K] of the kernel over the points of each cluster."""
    bytes_per_row = x.element_size() * len(points)
    sums = []
    for rows in blocks(len(x), bytes_per_row, x.device):
        kernel = squared_distances(x[rows], points).mul_(-gamma).exp_()
        sums.append(kernel @ masses.to(x))
    return torch.cat(sums)
