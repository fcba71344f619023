"""The starts of kernel k-means, by k-means++ for clusters and for the supports within them; the best one is kept.

A generator is in the same state on all ranks, so that what is drawn from it is known to all of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor

from neonxc.clusterings.supports import Supports, squared_distances, uniform
from neonxc.common.processes import ALONE, Ranks
from neonxc.data.distributed import greatest

from .em import Fit, drawn, em, expectation, feature_kmeans, mini_batch_em

SAMPLE = 2000  # points whose distances the median heuristic looks at
SEEDS = 10  # points per support from which mini-batches start


@dataclass(frozen=True)
class Sample:
    """Points of this rank to start from, and a generator that is in the same state on all ranks."""

    x: Tensor  # [n, d]
    weight: Tensor  # [n]
    generator: torch.Generator
    ranks: Ranks = ALONE

    def own_stream(self) -> torch.Generator:
        """A generator whose numbers differ from rank to rank; a process alone goes on with its own."""
        if self.ranks.alone:
            return self.generator
        seed = int(torch.randint(1 << 62, (), generator=self.generator, device=self.generator.device))
        return torch.Generator(self.generator.device).manual_seed(seed + self.ranks.rank)


def plus_plus(sample: Sample, k: int) -> Tensor:
    """Greedy k-means++ (Arthur, Vassilvitskii, 2007): centers [k, d] among the points of all ranks.

    Each next center is the best of ``2 + log k`` draws with probabilities proportional to squared distances. Ranks
    add up candidates, and how far the points are from them.
    """
    x = sample.x
    weight = sample.weight
    chosen = x[:0]
    far = torch.full_like(weight, torch.inf)
    chance = weight
    for number in [1] + [2 + int(math.log(k))] * (k - 1):
        candidates = _drawn(sample, chance, number)
        distances = torch.minimum(far[:, None], squared_distances(x, candidates))
        best = int(sample.ranks.sum((distances * weight[:, None]).sum(0, dtype=torch.float64)).argmin())
        chosen = torch.cat([chosen, candidates[[best]]])
        far = distances[:, best]
        chance = far * weight
    return chosen


def _drawn(sample: Sample, chance: Tensor, number: int) -> Tensor:
    """Points [number, d] of all ranks, drawn in proportion to `chance` [n], or to the weights if it is zero.

    On a line on which every point has a piece as long as its chance, rank after rank, draws are places; the rank
    that a place belongs to tells the others which point is there.
    """
    x = sample.x
    rank = sample.ranks.rank
    masses = _of_ranks(chance.sum(dtype=torch.float64), sample.ranks)
    if not masses.sum() > 0:
        return _drawn(sample, sample.weight, number)
    ends = masses.cumsum(0)
    places = torch.rand(number, generator=sample.generator, device=x.device, dtype=torch.float64) * ends[-1]
    here = torch.searchsorted(ends, places, right=True) == rank
    inner = places[here] - (ends - masses)[rank]
    points = x.new_zeros(number, x.shape[1])
    points[here] = x[torch.searchsorted(chance.double().cumsum(0), inner, right=True).clamp(max=len(x) - 1)]
    return sample.ranks.sum(points)


def _of_ranks(values: Tensor, ranks: Ranks) -> Tensor:
    """The values of all ranks, [ranks, ...]."""
    table = values.new_zeros(ranks.size, *values.shape)
    table[ranks.rank] = values
    return ranks.sum(table)


def seeded(sample: Sample, labels: Tensor, k: int, n_support: int, gamma: float | str) -> Supports:
    """Supports of every cluster by k-means++ among its points, then k-means; few points are taken repeatedly.

    Their weights are equal; gamma is the given one, or that of the median heuristic.
    """
    x = sample.x
    weight = sample.weight
    ranks = sample.ranks
    far = torch.full_like(weight, torch.inf)
    chance = weight
    seeds = []
    tiny = torch.finfo(x.dtype).tiny
    generator = sample.own_stream()
    for _ in range(n_support):
        noise = torch.rand(len(x), generator=generator, device=x.device, dtype=torch.float64)
        noise = -(-noise.clamp(min=1e-300).log()).log()  # Gumbel: the greatest of a cluster is a draw
        seeds.append(_greatest(x, chance.clamp(min=tiny).log() + noise.to(x), labels, k, ranks))
        far = torch.minimum(far, (x - seeds[-1][labels]).square().sum(1))
        chance = far * weight
    start = uniform(torch.stack(seeds, dim=1), math.inf)
    supports = em(x, start, labels, weight, max_iter=10, ranks=ranks).model
    if isinstance(gamma, str):
        near = supports.pooled(supports.own_logits(x, labels))
        means = _from_means(x, labels, k, ranks), _from_means(x, torch.zeros_like(labels), 1, ranks)
        gamma = median_gamma(near, *means, ranks=ranks)
    return uniform(supports.points, float(gamma))


def _from_means(x: Tensor, labels: Tensor, k: int, ranks: Ranks) -> Tensor:
    """Squared distances [n] of points to the mean of their cluster."""
    zeros = uniform(x.new_zeros(k, 1, x.shape[1]), math.inf)
    sums = expectation(x, zeros, labels, torch.ones_like(x[:, 0]), ranks)
    return (x - (sums.total / sums.mass[..., None])[labels, 0]).square().sum(1)


def median_gamma(*squared: Tensor, ranks: Ranks = ALONE) -> float:
    """One over the median of those squared distances that are more than rounding errors.

    They are given from the finest to the coarsest kind. Where most of one kind are zero (because most points are
    supports themselves, say), the next kind counts. The result is 1 where most of every kind are zero.
    """
    kinds = [torch.cat(ranks.gather(far)).flatten() for far in squared]
    zero = float(kinds[-1].double().mean()) * (1e-10 if kinds[-1].dtype == torch.float64 else 1e-5)
    for far in kinds:
        apart = far[far > zero]
        if 2 * len(apart) >= max(1, len(far)):
            return 1 / float(apart.median())
    return 1.0


def _greatest(x: Tensor, score: Tensor, labels: Tensor, k: int, ranks: Ranks) -> Tensor:
    """Of every cluster the point [k, d] with the greatest score on any rank; zeros for one without points."""
    most = score.new_full((k,), -torch.inf).scatter_reduce_(0, labels, score, "amax")
    hits = (score == most[labels]).nonzero()[:, 0]
    points = x.new_zeros(k, x.shape[1]).index_copy_(0, labels[hits], x[hits])
    if ranks.alone:
        return points
    table = _of_ranks(torch.cat([most[:, None], points], 1), ranks)
    return table[table[..., 0].argmax(0), torch.arange(k, device=x.device), 1:]


def best_run(model: Any, k: int, sample: Sample, labels: Tensor | None, fixed: bool) -> Fit:
    """The best of `n_init` starts of a KernelKMeans.

    `labels` [n] are those to start from, or to keep where `fixed`.
    """
    x = sample.x
    weight = sample.weight
    generator = sample.generator
    gamma = model.gamma
    if model.objective != "lme":  # for supports the median heuristic follows the start
        points = x[drawn(torch.ones_like(weight), SAMPLE, generator)]
        gamma = median_gamma(squared_distances(points, points)) if gamma == "median" else float(gamma)
    size = len(x) if model.batch_size is None else max(model.batch_size, SEEDS * k * model.n_support)
    options: dict[str, Any] = {"weighted": model.weighted, "max_iter": model.max_iter, "tol": model.tol}
    runs = []
    for _ in range(model.n_init):
        drawn_sample = sample
        start = labels
        if start is None:
            if size < len(x):
                drawn_sample = replace(sample, x=x[drawn(weight, size, generator)], weight=weight.new_ones(size))
            start = _start(model.init, k, drawn_sample)
        if model.objective != "lme":
            max_iter = 0 if fixed else model.max_iter
            spherical = model.objective == "spherical"
            runs.append(feature_kmeans(x, start, k, gamma, weight, spherical, max_iter))
            continue
        supports = seeded(drawn_sample, start, k, model.n_support, gamma)
        if model.batch_size is None:
            runs.append(em(x, supports, start if fixed else None, weight, ranks=sample.ranks, **options))
        else:
            runs.append(mini_batch_em(x, supports, weight, generator, model.batch_size, **options))
    return min(runs, key=attrgetter("objective"))


def _start(init: Any, k: int, sample: Sample) -> Tensor:
    """Clusters to start from, [n]: those of k-means, or of random points, which are its start."""
    x = sample.x
    ranks = sample.ranks
    random = isinstance(init, str) and init == "random"  # labels may have more clusters than there are points
    if not random:
        centers = plus_plus(sample, k)
    elif ranks.alone:
        centers = x[drawn(torch.ones_like(sample.weight), k, sample.generator)]
    else:
        centers = greatest(x, torch.rand(len(x), generator=sample.own_stream(), device=x.device), k, ranks)
    start = uniform(centers[:, None], math.inf)
    return em(x, start, weight=sample.weight, max_iter=0 if random else 100, ranks=ranks).labels
