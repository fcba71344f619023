"""Where EM starts: k-means++ for clusters, and for the supports within clusters."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .em import em
from .supports import Supports, by_cluster, squared_distances, uniform


def kmeans(x: Tensor, k: int, generator: torch.Generator, weight: Tensor) -> Tensor:
    """Labels [n] of k-means, which is EM with one support per cluster and the hard minimum."""
    centers = plus_plus(x, k, generator, weight)
    return em(x, uniform(centers[:, None], math.inf), weight=weight).labels


def plus_plus(x: Tensor, k: int, generator: torch.Generator, weight: Tensor) -> Tensor:
    """Greedy k-means++ (Arthur, Vassilvitskii, 2007): centers [k, d] among the points.

    Each next center is the best of ``2 + log k`` draws with probabilities proportional to squared distances.
    """
    chosen = [int(torch.multinomial(weight, 1, generator=generator))]
    far = squared_distances(x, x[chosen])[:, 0]
    for _ in range(k - 1):
        chance = far * weight
        if not bool(chance.sum() > 0):  # all points are centers already
            chance = weight
        candidates = torch.multinomial(chance, 2 + int(math.log(k)), replacement=True, generator=generator)
        left = torch.minimum(far[:, None], squared_distances(x, x[candidates]))
        best = int((left * weight[:, None]).sum(0).argmin())
        chosen.append(int(candidates[best]))
        far = left[:, best]
    return x[chosen]


def seeded(
    x: Tensor,
    labels: Tensor,
    k: int,
    n_support: int,
    gamma: float | str,
    generator: torch.Generator,
    weight: Tensor | None = None,
) -> Supports:
    """Supports within given clusters, with equal weights and the given gamma or that of the median heuristic."""
    supports = _within_clusters(x, labels, k, n_support, generator, weight)
    if isinstance(gamma, str):
        means = torch.stack([x[rows].mean(0) for rows in by_cluster(labels, k)])
        gamma = median_gamma(
            supports.pooled(supports.own_logits(x, labels)),
            (x - means[labels]).square().sum(1),
            (x - x.mean(0)).square().sum(1),
        )
    return uniform(supports.points, float(gamma))


def median_gamma(*squared: Tensor) -> float:
    """One over the median of those squared distances that are more than rounding errors.

    They are given from the finest to the coarsest kind. Where most of one kind are zero (because most points are
    supports themselves, say), the next kind counts. The result is 1 where most of every kind are zero.
    """
    zero = float(squared[-1].mean()) * (1e-10 if squared[-1].dtype == torch.float64 else 1e-5)
    for far in squared:
        apart = far[far > zero]
        if 2 * len(apart) >= max(1, len(far)):
            return 1 / float(apart.median())
    return 1.0


def _within_clusters(
    x: Tensor, labels: Tensor, k: int, n_support: int, generator: torch.Generator, weight: Tensor | None
) -> Supports:
    """Supports of every cluster by k-means++ among its points, then k-means; few points are taken repeatedly."""
    mass = x.new_ones(len(x)) if weight is None else weight
    far, chance = torch.full_like(mass, torch.inf), mass
    parts, tiny = [], torch.finfo(x.dtype).tiny
    for _ in range(n_support):
        noise = torch.rand(len(x), generator=generator, device=x.device, dtype=torch.float64)
        noise = -(-noise.clamp(min=1e-300).log()).log()  # Gumbel: the greatest of a cluster is a draw
        chosen = x[_greatest(chance.clamp(min=tiny).log() + noise.to(x), labels, k)]
        parts.append(chosen)
        far = torch.minimum(far, (x - chosen[labels]).square().sum(1))
        chance = far * mass
    start = uniform(torch.stack(parts, dim=1), math.inf)
    return em(x, start, labels=labels, weight=weight, max_iter=10).supports


def _greatest(score: Tensor, labels: Tensor, k: int) -> Tensor:
    """Index [k] of the point with the greatest score in every cluster; 0 for a cluster without points."""
    most = score.new_full((k,), -torch.inf).scatter_reduce_(0, labels, score, "amax")
    hits = (score == most[labels]).nonzero()[:, 0]
    return labels.new_zeros(k).index_copy(0, labels[hits], hits)
