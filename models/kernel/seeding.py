"""Where EM starts: k-means++ for clusters, and for the supports within clusters."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .supports import Fit, Supports, by_cluster, em, squared_distances, uniform


def kmeans(
    x: Tensor, k: int, generator: torch.Generator, weight: Tensor | None = None, max_iter: int = 100
) -> Fit:
    """k-means from a greedy k-means++ start: EM with one support per cluster and the hard minimum."""
    centers = plus_plus(x, k, generator, weight)
    return em(x, uniform(centers[:, None], math.inf), weight=weight, max_iter=max_iter)


def plus_plus(x: Tensor, k: int, generator: torch.Generator, weight: Tensor | None = None) -> Tensor:
    """Greedy k-means++ (Arthur, Vassilvitskii, 2007): centers [k, d] among the points.

    Each next center is the best of ``2 + log k`` draws with probabilities proportional to squared distances.
    """
    mass = torch.ones(len(x), dtype=x.dtype, device=x.device) if weight is None else weight.to(x)
    chosen = [int(torch.multinomial(mass, 1, generator=generator))]
    far = squared_distances(x, x[chosen])[:, 0]
    draws = 2 + int(math.log(k))
    for _ in range(k - 1):
        chance = far * mass
        if not bool(chance.sum() > 0):  # fewer distinct points than clusters
            chance = mass
        candidates = torch.multinomial(chance, draws, replacement=True, generator=generator)
        left = torch.minimum(far[:, None], squared_distances(x, x[candidates]))
        best = int((left * mass[:, None]).sum(0).argmin())
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
    """Supports within clusters, with equal weights and the gamma that is given, or "median"."""
    supports = within_clusters(x, labels, k, n_support, generator, weight)
    if isinstance(gamma, str):
        means = torch.stack([x[rows].mean(0) for rows in by_cluster(labels, k)])
        gamma = median_gamma(
            supports.pooled(supports.own_logits(x, labels)),
            (x - means[labels]).square().sum(1),
            (x - x.mean(0)).square().sum(1),
        )
    return uniform(supports.points, float(gamma))


def median_gamma(*squared: Tensor) -> float:
    """One over the median of those squared distances that are not zero but for rounding.

    Parameters
    ----------
    *squared : Tensor
        From the finest to the coarsest: where most of one are zero (most points are supports themselves, say),
        the next one counts. 1 where all are.
    """
    zero = float(squared[-1].mean()) * (1e-10 if squared[-1].dtype == torch.float64 else 1e-5)
    for far in squared:
        apart = far[far > zero]
        if 2 * len(apart) >= max(1, len(far)):
            return 1 / float(apart.median())
    return 1.0


def within_clusters(
    x: Tensor, labels: Tensor, k: int, n_support: int, generator: torch.Generator, weight: Tensor | None = None
) -> Supports:
    """Supports of every cluster: k-means++ among its points, then k-means within it.

    A cluster of fewer points than supports has some of them twice.
    """
    mass = torch.ones(len(x), dtype=x.dtype, device=x.device) if weight is None else weight.to(x)
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
    """The point with the greatest score of every cluster, [k]; point 0 for a cluster without points."""
    most = torch.full((k,), -torch.inf, dtype=score.dtype, device=score.device)
    most.scatter_reduce_(0, labels, score, "amax")
    place = torch.zeros(k, dtype=torch.int64, device=score.device)
    hits = (score == most[labels]).nonzero()[:, 0]
    return place.index_copy(0, labels[hits], hits)


def merged(x: Tensor, weight: Tensor, labels: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """Equal points of one label as one, with their weight in sum: a weight of two then is a point twice.

    The points come in the order of a random projection, so that draws do not depend on how often one was given.
    """
    direction = torch.randn(x.shape[1], generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    order = torch.arange(len(x), device=x.device) if labels is None else labels.argsort(stable=True)
    order = order[(x.double() @ direction.to(x.device))[order].argsort(stable=True)]
    x, labels = x[order], None if labels is None else labels[order]
    same = (x[1:] == x[:-1]).all(1)
    if labels is not None:
        same &= labels[1:] == labels[:-1]
    first = torch.cat([same.new_ones(1), ~same])
    mass = weight.new_zeros(int(first.sum())).index_add_(0, first.cumsum(0) - 1, weight[order])
    return x[first], mass, None if labels is None else labels[first]
