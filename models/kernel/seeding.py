"""Where EM starts: k-means++ for clusters, and for the supports within clusters.

A generator is in the same state on all ranks, so that what is drawn from it is known to all of them.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from neonxc.common.processes import ALONE, Ranks

from .em import em
from .supports import Supports, squared_distances, uniform


def kmeans(x: Tensor, k: int, generator: torch.Generator, weight: Tensor, ranks: Ranks = ALONE) -> Tensor:
    """Labels [n] of k-means, which is EM with one support per cluster and the hard minimum."""
    centers = plus_plus(x, k, generator, weight, ranks)
    return em(x, uniform(centers[:, None], math.inf), weight=weight, ranks=ranks).labels


def plus_plus(x: Tensor, k: int, generator: torch.Generator, weight: Tensor, ranks: Ranks = ALONE) -> Tensor:
    """Greedy k-means++ (Arthur, Vassilvitskii, 2007): centers [k, d] among the points of all ranks.

    Each next center is the best of ``2 + log k`` draws with probabilities proportional to squared distances. Ranks
    add up candidates, and how far the points are from them: two sums for each center.
    """
    first = _drawn(x, weight, _of_ranks(weight.sum(dtype=torch.float64), ranks), 1, generator, ranks)
    chosen, far = [first], squared_distances(x, first)[:, 0]
    left = _of_ranks((far * weight).sum(dtype=torch.float64), ranks)
    for _ in range(k - 1):
        chance = far * weight
        if not bool(left.sum() > 0):  # all points are centers already
            chance, left = weight, _of_ranks(weight.sum(dtype=torch.float64), ranks)
        candidates = _drawn(x, chance, left, 2 + int(math.log(k)), generator, ranks)
        distances = torch.minimum(far[:, None], squared_distances(x, candidates))
        sums = _of_ranks((distances * weight[:, None]).sum(0, dtype=torch.float64), ranks)
        best = int(sums.sum(0).argmin())
        chosen.append(candidates[best : best + 1])
        far, left = distances[:, best], sums[:, best]
    return torch.cat(chosen)


def _drawn(
    x: Tensor, chance: Tensor, masses: Tensor, number: int, generator: torch.Generator, ranks: Ranks
) -> Tensor:
    """Points [number, d] of all ranks, drawn in proportion to `chance` [n], whose sums on the ranks are `masses`.

    On a line on which every point has a piece as long as its chance, rank after rank, draws are places; the rank
    that a place belongs to tells the others which point is there.
    """
    ends = masses.cumsum(0)
    places = torch.rand(number, generator=generator, device=x.device, dtype=torch.float64) * ends[-1]
    own = torch.searchsorted(ends, places, right=True) == ranks.rank
    inner = places[own] - (ends - masses)[ranks.rank]
    points = x.new_zeros(number, x.shape[1])
    points[own] = x[torch.searchsorted(chance.double().cumsum(0), inner, right=True).clamp(max=len(x) - 1)]
    return ranks.sum(points)


def _of_ranks(values: Tensor, ranks: Ranks) -> Tensor:
    """What each rank has, [ranks, ...]."""
    every = values.new_zeros(ranks.size, *values.shape)
    every[ranks.rank] = values
    return ranks.sum(every)


def seeded(
    x: Tensor,
    labels: Tensor,
    k: int,
    n_support: int,
    gamma: float | str,
    generator: torch.Generator,
    weight: Tensor | None = None,
    ranks: Ranks = ALONE,
) -> Supports:
    """Supports within given clusters, with equal weights and the given gamma or that of the median heuristic."""
    supports = _within_clusters(x, labels, k, n_support, generator, weight, ranks)
    if isinstance(gamma, str):
        sums = torch.zeros(k, x.shape[1] + 1, dtype=torch.float64, device=x.device)
        sums = ranks.sum(sums.index_add_(0, labels, torch.cat([x, torch.ones_like(x[:, :1])], 1).double()))
        means, mean = ((part[..., :-1] / part[..., -1:]).to(x) for part in (sums, sums.sum(0)))
        gamma = median_gamma(
            supports.pooled(supports.own_logits(x, labels)),
            (x - means[labels]).square().sum(1),
            (x - mean).square().sum(1),
            ranks=ranks,
        )
    return uniform(supports.points, float(gamma))


def median_gamma(*squared: Tensor, ranks: Ranks = ALONE) -> float:
    """One over the median of those squared distances that are more than rounding errors.

    They are given from the finest to the coarsest kind. Where most of one kind are zero (because most points are
    supports themselves, say), the next kind counts. The result is 1 where most of every kind are zero.
    """
    coarsest = squared[-1].double()
    total, n = ranks.sum(torch.stack([coarsest.sum(), coarsest.new_tensor(coarsest.numel())])).tolist()
    zero = total / n * (1e-10 if squared[-1].dtype == torch.float64 else 1e-5)
    for far in squared:
        apart = far[far > zero]
        number, of = ranks.sum(torch.tensor([len(apart), len(far)])).tolist()
        if 2 * number >= max(1, of):
            return 1 / _median(apart, number, ranks)
    return 1.0


def _median(values: Tensor, number: int, ranks: Ranks) -> float:
    """The median of `number` positive values, these and those of other ranks; the lower one of two."""
    if ranks.alone:
        return float(values.median())
    bits = values.double().view(torch.int64)  # positive numbers are in the order of their bits
    low, high = 0, (1 << 63) - 1
    while low < high:
        middle = (low + high) // 2
        if int(ranks.sum((bits <= middle).sum())) > (number - 1) // 2:
            high = middle
        else:
            low = middle + 1
    return float(torch.tensor(low).view(torch.float64))


def _within_clusters(
    x: Tensor,
    labels: Tensor,
    k: int,
    n_support: int,
    generator: torch.Generator,
    weight: Tensor | None,
    ranks: Ranks,
) -> Supports:
    """Supports of every cluster by k-means++ among its points, then k-means; few points are taken repeatedly."""
    mass = x.new_ones(len(x)) if weight is None else weight
    far, chance = torch.full_like(mass, torch.inf), mass
    parts, tiny, own = [], torch.finfo(x.dtype).tiny, own_stream(generator, ranks)
    for _ in range(n_support):
        noise = torch.rand(len(x), generator=own, device=x.device, dtype=torch.float64)
        noise = -(-noise.clamp(min=1e-300).log()).log()  # Gumbel: the greatest of a cluster is a draw
        chosen = _greatest(x, chance.clamp(min=tiny).log() + noise.to(x), labels, k, ranks)
        parts.append(chosen)
        far = torch.minimum(far, (x - chosen[labels]).square().sum(1))
        chance = far * mass
    start = uniform(torch.stack(parts, dim=1), math.inf)
    return em(x, start, labels=labels, weight=weight, max_iter=10, ranks=ranks).supports


def own_stream(generator: torch.Generator, ranks: Ranks) -> torch.Generator:
    """A generator whose numbers differ from rank to rank; a process alone goes on with its own."""
    if ranks.alone:
        return generator
    seed = int(torch.randint(1 << 62, (), generator=generator, device=generator.device))
    return torch.Generator(generator.device).manual_seed(seed + ranks.rank)


def _greatest(x: Tensor, score: Tensor, labels: Tensor, k: int, ranks: Ranks) -> Tensor:
    """Of every cluster the point [k, d] with the greatest score on any rank; zeros for one without points."""
    most = score.new_full((k,), -torch.inf).scatter_reduce_(0, labels, score, "amax")
    hits = (score == most[labels]).nonzero()[:, 0]
    points = x.new_zeros(k, x.shape[1]).index_copy_(0, labels[hits], x[hits])
    if ranks.alone:
        return points
    every = _of_ranks(torch.cat([most[:, None], points], 1), ranks)
    return every[every[..., 0].argmax(0), torch.arange(k, device=x.device), 1:]
