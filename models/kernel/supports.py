"""Clusters as sets of weighted supports, and the EM algorithm that finds them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from tqdm import tqdm

BUDGET = 1 << 24  # distances that are held at once
DEAD = 1e-12  # of a point: a support with less than this has no points


@dataclass(frozen=True)
class Supports:
    """Supports of every cluster; a cluster is as far as their soft minimum (NEON paper, Eqs. 6 and 7).

    Attributes
    ----------
    points : Tensor [K, p, d]
    log_weights : Tensor [K, p] of float64
        Of each cluster's supports; -inf: not in use.
    gamma : float
        Stiffness, in units of 1 / squared distance; inf: the hard minimum.
    """

    points: Tensor
    log_weights: Tensor
    gamma: float

    def logits(self, x: Tensor) -> Tensor:
        """``log w - gamma |x - u|^2``, [n, K, p]; negative squared distances where gamma is infinite."""
        far = squared_distances(x, self.points.flatten(0, 1)).view(len(x), *self.log_weights.shape)
        if math.isinf(self.gamma):
            return (-far).masked_fill(self.log_weights.isneginf(), -torch.inf)
        if self.gamma * float(far.mean()) < 1:  # `pooled` divides by gamma, rounding errors included
            far = far.double()
        return self.log_weights.to(far) - self.gamma * far

    def own_logits(self, x: Tensor, labels: Tensor) -> Tensor:
        """:meth:`logits` of the supports of each point's cluster alone, [n, p]."""
        parts = []
        blocks = by_cluster(labels, len(self.points))
        for points, log_weights, rows in zip(self.points, self.log_weights, blocks, strict=True):
            parts.append(Supports(points[None], log_weights[None], self.gamma).logits(x[rows])[:, 0])
        logits = torch.cat(parts)
        return torch.empty_like(logits).index_copy_(0, torch.cat(blocks), logits)

    def pooled(self, logits: Tensor) -> Tensor:
        """Distances D of every cluster, [n, K], or of one where `logits` are [n, p]."""
        return -logits.amax(-1) if math.isinf(self.gamma) else -logits.logsumexp(-1) / self.gamma

    def shares(self, logits: Tensor) -> Tensor:
        """Responsibilities of the supports of a cluster, from its logits [..., p]."""
        if math.isfinite(self.gamma):
            return logits.softmax(-1)
        return torch.zeros_like(logits).scatter_(-1, logits.argmax(-1, keepdim=True), 1.0)

    def distances(self, x: Tensor) -> Tensor:
        """Distances D of every cluster, [n, K], in chunks."""
        return torch.cat([self.pooled(self.logits(part)).to(x) for part in x.split(self.chunk)])

    @property
    def groups(self) -> Tensor:
        """Cluster of every support, [K p]."""
        k, p = self.log_weights.shape
        return torch.arange(k, device=self.points.device).repeat_interleave(p)

    @property
    def chunk(self) -> int:
        """Points that are looked at at once."""
        return max(1, BUDGET // max(1, self.log_weights.numel()))


def uniform(points: Tensor, gamma: float) -> Supports:
    """Supports [K, p, d] of equal weights."""
    k, p, _ = points.shape
    return Supports(points, points.new_full((k, p), -math.log(p), dtype=torch.float64), gamma)


@dataclass(frozen=True)
class Fit:
    """What EM ends with.

    Attributes
    ----------
    supports : Supports
    labels : Tensor [n] of int64
    objective : float
        Sum of every point's distance D to its cluster.
    history : list of float
        The objective after each iteration, as measured at its beginning.
    """

    supports: Supports
    labels: Tensor
    objective: float
    history: list[float]


def em(
    x: Tensor,
    supports: Supports,
    labels: Tensor | None = None,
    weight: Tensor | None = None,
    *,
    weighted: bool = False,
    max_iter: int = 100,
    tol: float = 1e-6,
) -> Fit:
    """Alternate assignments and supports until the objective falls no more; it never rises.

    Each point goes to the cluster with the least distance ``D_c``; within it a support is responsible for the
    share ``softmax(log w - gamma |x - u|^2)``, and moves to the mean of what it is responsible for. For fixed
    assignments that is EM for a mixture, whose likelihood falls no more than D rises; choosing the nearest cluster
    only helps.

    Parameters
    ----------
    x : Tensor [n, d]
    supports : Supports
        Where to start.
    labels : Tensor [n] of int64, optional
        Keep these assignments.
    weight : Tensor [n], optional
        Of the points.
    weighted : bool
        Fit the weights of the supports as well.
    """
    history: list[float] = []
    for _ in tqdm(range(max_iter), desc="kernel k-means", delay=2, leave=False):
        statistics = expectation(x, supports, labels, weight)
        history.append(statistics.objective)
        if len(history) > 1 and history[-2] - history[-1] <= tol * abs(history[-2]):
            break
        supports = _maximization(x, supports, statistics, weighted)
    final = expectation(x, supports, labels, weight)
    return Fit(supports, final.labels, final.objective, history)


@dataclass(frozen=True)
class Statistics:
    """What one pass over the points says of the supports."""

    mass: Tensor  # [K, p]
    total: Tensor  # [K, p, d]
    labels: Tensor  # [n]
    far: Tensor  # [n]: distance of each point to its cluster
    objective: float


def expectation(x: Tensor, supports: Supports, labels: Tensor | None, weight: Tensor | None) -> Statistics:
    """Assignments, unless they are given, and the shares of the supports in them."""
    k, p = supports.log_weights.shape
    mass, total = x.new_zeros(k, p), torch.zeros_like(supports.points)
    own, distances = [], []
    for part in _chunks(len(x), supports.chunk if labels is None else max(1, BUDGET // p)):
        points = x[part]
        if labels is None:
            every = supports.logits(points)
            label = supports.pooled(every).argmin(1)
            logits = every[torch.arange(len(label), device=x.device), label]
        else:  # the other clusters are of no account
            label = labels[part]
            logits = supports.own_logits(points, label)
        shares = supports.shares(logits).to(x)
        if weight is not None:
            shares = shares * weight[part, None]
        blocks = by_cluster(label, k)
        mass += torch.stack([shares[rows].sum(0) for rows in blocks])
        total += torch.stack([shares[rows].T @ points[rows] for rows in blocks])
        own.append(label)
        distances.append(supports.pooled(logits).to(x))
    far = torch.cat(distances)
    objective = float((far if weight is None else far * weight).sum(dtype=torch.float64))
    return Statistics(mass, total, torch.cat(own), far, objective)


def _maximization(x: Tensor, supports: Supports, statistics: Statistics, weighted: bool) -> Supports:
    mass = statistics.mass
    alive = mass > DEAD
    points = torch.where(alive[..., None], statistics.total / mass.clamp(min=DEAD)[..., None], supports.points)
    log_weights = supports.log_weights
    if weighted:
        of_cluster = mass.double().sum(1, keepdim=True)
        log_weights = torch.where(of_cluster > DEAD, (mass / of_cluster.clamp(min=DEAD)).log(), log_weights)
    return _reseeded(x, replace(supports, points=points, log_weights=log_weights), statistics, alive)


def _reseeded(x: Tensor, supports: Supports, statistics: Statistics, alive: Tensor) -> Supports:
    """Move supports without points to where the objective is worst; as nobody misses them, it can't rise.

    Those of a cluster with points stay in it; where weights are fitted, they have lost theirs and stay dead.
    """
    if bool(alive.all()):
        return supports
    empty = ~alive.any(1)
    order = statistics.far.argsort(descending=True)
    points, log_weights = supports.points.clone(), supports.log_weights.clone()
    for k in empty.nonzero()[:, 0].tolist():
        points[k] = x[order[k % len(order)]]
        log_weights[k] = -math.log(log_weights.shape[1])
    missing = ~alive & ~empty[:, None] & log_weights.isfinite()
    for k in missing.any(1).nonzero()[:, 0].tolist():
        own, places = order[statistics.labels[order] == k], missing[k].nonzero()[:, 0]
        points[k, places] = x[own[places % len(own)]]
    return replace(supports, points=points, log_weights=log_weights)


def pruned(x: Tensor, supports: Supports, least: float) -> tuple[Supports, int]:
    """Take out of use the supports that no point feels.

    Those that are felt least go first, as long as all that went have a share of at most `least` in sum in any
    point's distance to its own cluster or the nearest competitor: no other one reaches a logit.

    Returns
    -------
    supports : Supports
    number : int
        Of those taken out.
    """
    felt = torch.zeros_like(supports.log_weights)
    for label, share in _two_nearest(x, supports):
        felt.scatter_reduce_(0, label[:, None].expand_as(share), share, "amax")
    order = felt.argsort(1)
    lost = torch.zeros_like(felt)  # by a point, if the supports up to this one of the order go
    for label, share in _two_nearest(x, supports):
        sums = share.gather(1, order[label]).cumsum(1)
        lost.scatter_reduce_(0, label[:, None].expand_as(sums), sums, "amax")
    drop = torch.zeros_like(lost, dtype=torch.bool).scatter_(1, order, lost <= least)
    drop &= ~drop.all(1, keepdim=True)  # of a cluster that no point minds
    log_weights = supports.log_weights.masked_fill(drop, -torch.inf)
    return replace(supports, log_weights=log_weights), int((supports.log_weights.isfinite() & drop).sum())


def _two_nearest(x: Tensor, supports: Supports) -> Iterator[tuple[Tensor, Tensor]]:
    """Points' own clusters [n], then the nearest others, and the shares [n, p] of their supports; in chunks."""
    for part in x.split(supports.chunk):
        logits = supports.logits(part)
        two = supports.pooled(logits).topk(min(2, logits.shape[1]), dim=1, largest=False).indices
        for label in two.T:
            own = logits[torch.arange(len(part), device=x.device), label]
            yield label, supports.shares(own).to(supports.log_weights)


def squared_distances(x: Tensor, points: Tensor) -> Tensor:
    """Squared Euclidean distances [n, m]; exact to rounding where points are near the origin."""
    lengths = torch.addmm(points.square().sum(1), x, points.T, alpha=-2)
    return lengths.add_(x.square().sum(1, keepdim=True)).clamp_(min=0)


def by_cluster(labels: Tensor, k: int) -> tuple[Tensor, ...]:
    """Rows of each of k clusters."""
    return labels.argsort(stable=True).split(torch.bincount(labels, minlength=k).tolist())


def _chunks(n: int, size: int) -> Iterator[slice]:
    for first in range(0, n, size):
        yield slice(first, first + size)
