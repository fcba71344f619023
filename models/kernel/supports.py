"""Clusters as sets of weighted supports, and the EM algorithm that finds them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

BUDGET = 1 << 24  # distances that are held at once
DEAD = 1e-12  # of a point: a support with less than this has no points


@dataclass(frozen=True)
class Supports:
    """Supports of every cluster; a cluster is as far as their soft minimum (NEON paper, Eqs. 6 and 7).

    Attributes
    ----------
    points : Tensor [K, p, d]
    log_weights : Tensor [K, p]
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
        return self.log_weights - self.gamma * far

    def pooled(self, logits: Tensor) -> Tensor:
        """Distances D of every cluster, [n, K]."""
        return -logits.amax(-1) if math.isinf(self.gamma) else -logits.logsumexp(-1) / self.gamma

    def shares(self, logits: Tensor) -> Tensor:
        """Responsibilities of the supports of a cluster, from its logits [..., p]."""
        if math.isfinite(self.gamma):
            return logits.softmax(-1)
        return torch.zeros_like(logits).scatter_(-1, logits.argmax(-1, keepdim=True), 1.0)

    def distances(self, x: Tensor) -> Tensor:
        """Distances D of every cluster, [n, K], in chunks."""
        return torch.cat([self.pooled(self.logits(part)) for part in x.split(self.chunk)])

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
    return Supports(points, points.new_full((k, p), -math.log(p)), gamma)


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
    for _ in range(max_iter):
        statistics = _expectation(x, supports, labels, weight)
        history.append(statistics.objective)
        if len(history) > 1 and history[-2] - history[-1] <= tol * abs(history[-2]):
            break
        supports = _maximization(x, supports, statistics, weighted)
    final = _expectation(x, supports, labels, weight)
    return Fit(supports, final.labels, final.objective, history)


@dataclass(frozen=True)
class _Statistics:
    mass: Tensor  # [K, p]
    total: Tensor  # [K, p, d]
    labels: Tensor  # [n]
    far: Tensor  # [n]: distance of each point to its cluster
    objective: float


def _expectation(x: Tensor, supports: Supports, labels: Tensor | None, weight: Tensor | None) -> _Statistics:
    mass, total = torch.zeros_like(supports.log_weights), torch.zeros_like(supports.points)
    own, distances = [], []
    for part in _chunks(len(x), supports.chunk):
        logits = supports.logits(x[part])
        pooled = supports.pooled(logits)
        label = pooled.argmin(1) if labels is None else labels[part]
        own.append(label)
        distances.append(pooled.gather(1, label[:, None])[:, 0])
        shares = supports.shares(logits[torch.arange(len(label), device=x.device), label])
        if weight is not None:
            shares = shares * weight[part, None]
        of_cluster = torch.zeros_like(logits)
        of_cluster[torch.arange(len(label), device=x.device), label] = shares
        mass += of_cluster.sum(0)
        total += (of_cluster.flatten(1).T @ x[part]).view_as(total)
    far = torch.cat(distances)
    objective = float((far if weight is None else far * weight).sum(dtype=torch.float64))
    return _Statistics(mass, total, torch.cat(own), far, objective)


def _maximization(x: Tensor, supports: Supports, statistics: _Statistics, weighted: bool) -> Supports:
    mass = statistics.mass
    alive = mass > DEAD
    points = torch.where(alive[..., None], statistics.total / mass.clamp(min=DEAD)[..., None], supports.points)
    log_weights = supports.log_weights
    if weighted:
        share = mass / mass.sum(1, keepdim=True).clamp(min=DEAD)
        log_weights = torch.where(mass.sum(1, keepdim=True) > DEAD, share.log(), log_weights)
    return _reseeded(x, replace(supports, points=points, log_weights=log_weights), statistics, alive)


def _reseeded(x: Tensor, supports: Supports, statistics: _Statistics, alive: Tensor) -> Supports:
    """Move supports without points to where the objective is worst; as nobody misses them, it can't rise.

    Those of a cluster with points stay in it; where weights are fitted, they have lost theirs and stay dead.
    """
    empty = ~alive.any(1)
    order = statistics.far.argsort(descending=True)
    points, log_weights = supports.points.clone(), supports.log_weights.clone()
    for k in empty.nonzero()[:, 0].tolist():
        points[k] = x[order[k % len(order)]]
        log_weights[k] = -math.log(log_weights.shape[1])
    for k, i in (~alive & ~empty[:, None] & log_weights.isfinite()).nonzero().tolist():
        own = order[statistics.labels[order] == k]
        points[k, i] = x[own[i % len(own)]]
    return replace(supports, points=points, log_weights=log_weights)


def online(x: Tensor, supports: Supports, seen: Tensor, weighted: bool) -> tuple[Supports, float]:
    """One step on a mini-batch: supports are running means of all that they have been responsible for.

    Parameters
    ----------
    x : Tensor [b, d]
    supports : Supports
    seen : Tensor [K, p]
        Mass that every support has seen so far; updated in place.

    Returns
    -------
    supports : Supports
    objective : float
        Of the batch, before the step.
    """
    statistics = _expectation(x, supports, None, None)
    seen += statistics.mass
    shift = statistics.total - statistics.mass[..., None] * supports.points
    supports = replace(supports, points=supports.points + shift / seen.clamp(min=1.0)[..., None])
    if weighted:
        supports = replace(supports, log_weights=((seen + 1) / (seen + 1).sum(1, keepdim=True)).log())
    return supports, statistics.objective


def pruned(x: Tensor, supports: Supports, least: float) -> tuple[Supports, int]:
    """Take out of use the supports that no point feels.

    A support is felt by the points to whose distance to its cluster it has a share above `least`, if that cluster
    is their own or the nearest competitor: no other one reaches a logit.

    Returns
    -------
    supports : Supports
    number : int
        Of those taken out.
    """
    felt = torch.zeros_like(supports.log_weights, dtype=torch.bool)
    for part in x.split(supports.chunk):
        logits = supports.logits(part)
        two = supports.pooled(logits).topk(min(2, logits.shape[1]), dim=1, largest=False).indices
        rows = torch.arange(len(part), device=x.device)
        for label in two.T:
            share = supports.shares(logits[rows, label])
            most = torch.zeros_like(supports.log_weights)
            most.scatter_reduce_(0, label[:, None].expand_as(share), share, "amax")
            felt |= most > least
    used = supports.log_weights.isfinite()
    log_weights = supports.log_weights.masked_fill(~felt & felt.any(1, keepdim=True), -torch.inf)
    return replace(supports, log_weights=log_weights), int((used & log_weights.isneginf()).sum())


def squared_distances(x: Tensor, points: Tensor) -> Tensor:
    """Squared Euclidean distances [n, m]; exact to rounding where points are near the origin."""
    lengths = torch.addmm(points.square().sum(1), x, points.T, alpha=-2)
    return lengths.add_(x.square().sum(1, keepdim=True)).clamp_(min=0)


def _chunks(n: int, size: int) -> Iterator[slice]:
    for first in range(0, n, size):
        yield slice(first, first + size)
