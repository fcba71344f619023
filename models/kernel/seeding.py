"""The starts of kernel k-means, of which the best one is kept.

    1. Clusters: k-means from centers of k-means++, or points drawn at random, or given labels.
    2. Supports of every cluster: k-means++ among its points, then k-means within the cluster (objective "lme").
    3. gamma: a given one, or one over the median squared distance of points, for "lme" to the nearest support.
    4. The fit: EM for the supports, or reassignment to the means in feature space (``em.py``).

A generator is in the same state on all ranks, so that what is drawn from it is known to all of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from neonxc.clusterings.supports import Supports, squared_distances, uniform
from neonxc.common.processes import ALONE, Ranks
from neonxc.common.types import ArrayLike
from neonxc.data.distributed import greatest

from .em import Fit, Members, drawn, em, expectation, feature_kmeans, mini_batch_em

if TYPE_CHECKING:
    from .estimator import KernelKMeans

SAMPLE = 2000  # points whose distances the median heuristic looks at
SEEDS = 10  # points per support from which mini-batches start


@dataclass(frozen=True)
class Sample:
    """Points of this rank to start from, and a generator that is in the same state on all ranks."""

    x: Tensor  # [n, d]
    weight: Tensor  # [n]
    generator: torch.Generator
    ranks: Ranks = ALONE

    def generator_of_rank(self) -> torch.Generator:
        """Make a generator whose numbers differ from rank to rank; a process alone goes on with its own."""
        if self.ranks.alone:
            return self.generator
        seed = int(torch.randint(1 << 62, (), generator=self.generator, device=self.generator.device))
        return torch.Generator(self.generator.device).manual_seed(seed + self.ranks.rank)


def plus_plus(sample: Sample, k: int) -> Tensor:
    """Choose centers [k, d] among the points of all ranks by greedy k-means++ (Arthur, Vassilvitskii, 2007).

    Each next center is the best of ``2 + log k`` draws with probabilities proportional to squared distances. Ranks
    add up candidates, and how far the points are from them.
    """
    x = sample.x
    weight = sample.weight
    centers = x[:0]
    nearest = torch.full_like(weight, torch.inf)  # squared distance [n] of every point to the nearest center
    chance = weight
    n_trials = [1] + [2 + int(math.log(k))] * (k - 1)
    for number in n_trials:
        candidates = _drawn(sample, chance, number)
        distances = torch.minimum(nearest[:, None], squared_distances(x, candidates))
        costs = sample.ranks.sum((distances * weight[:, None]).sum(0, dtype=torch.float64))
        best = int(costs.argmin())
        centers = torch.cat([centers, candidates[[best]]])
        nearest = distances[:, best]
        chance = nearest * weight
    return centers


def _drawn(sample: Sample, chance: Tensor, number: int) -> Tensor:
    """Draw points [number, d] of all ranks in proportion to `chance` [n], or to the weights if it is zero.

    On a line on which every point has a segment as long as its chance, rank after rank, draws are positions; the
    rank that a position belongs to tells the others which point it is.
    """
    x = sample.x
    rank = sample.ranks.rank
    lengths = _of_ranks(chance.sum(dtype=torch.float64), sample.ranks)  # [ranks]
    if not lengths.sum() > 0:
        return _drawn(sample, sample.weight, number)
    ends = lengths.cumsum(0)
    uniforms = torch.rand(number, generator=sample.generator, device=x.device, dtype=torch.float64)
    positions = uniforms * ends[-1]

    is_mine = torch.searchsorted(ends, positions, right=True) == rank
    start = (ends - lengths)[rank]
    index = torch.searchsorted(chance.double().cumsum(0), positions[is_mine] - start, right=True)
    points = x.new_zeros(number, x.shape[1])
    points[is_mine] = x[index.clamp(max=len(x) - 1)]
    return sample.ranks.sum(points)


def _of_ranks(values: Tensor, ranks: Ranks) -> Tensor:
    """Collect the values of all ranks, [ranks, ...]."""
    table = values.new_zeros(ranks.size, *values.shape)
    table[ranks.rank] = values
    return ranks.sum(table)


def seeded(sample: Sample, labels: Tensor, k: int, n_support: int, gamma: float | str) -> Supports:
    """Choose supports of every cluster by k-means++ among its points, and move them by k-means.

    Their weights are equal; gamma is the given one, or that of the median heuristic. Clusters of few points have
    some supports at the same point.
    """
    x = sample.x
    weight = sample.weight
    ranks = sample.ranks
    nearest = torch.full_like(weight, torch.inf)  # squared distance [n] to the nearest support of the cluster
    chance = weight
    seeds = []  # [k, d] each, one support of every cluster
    tiny = torch.finfo(x.dtype).tiny
    generator = sample.generator_of_rank()
    for _ in range(n_support):
        # Gumbel noise: the point of greatest log chance + noise in a cluster is a draw
        uniforms = torch.rand(len(x), generator=generator, device=x.device, dtype=torch.float64)
        noise = -(-uniforms.clamp(min=1e-300).log()).log()
        score = chance.clamp(min=tiny).log() + noise.to(x)
        seeds.append(_greatest(x, score, labels, k, ranks))
        nearest = torch.minimum(nearest, (x - seeds[-1][labels]).square().sum(1))
        chance = nearest * weight
    start = uniform(torch.stack(seeds, dim=1), math.inf)
    supports = em(x, start, labels, weight, max_iter=10, ranks=ranks).model

    if isinstance(gamma, str):
        to_supports = supports.pooled(supports.own_logits(x, labels))
        to_cluster_means = _to_means(x, labels, k, ranks)
        to_mean = _to_means(x, torch.zeros_like(labels), 1, ranks)
        gamma = median_gamma(to_supports, to_cluster_means, to_mean, ranks=ranks)
    return uniform(supports.points, float(gamma))


def _to_means(x: Tensor, labels: Tensor, k: int, ranks: Ranks) -> Tensor:
    """Compute the squared distances [n] of points to the mean of their cluster."""
    zeros = uniform(x.new_zeros(k, 1, x.shape[1]), math.inf)
    sums = expectation(x, zeros, labels, torch.ones_like(x[:, 0]), ranks)
    means = sums.total / sums.mass[..., None]  # [k, 1, d]
    return (x - means[labels, 0]).square().sum(1)


def median_gamma(*squared: Tensor, ranks: Ranks = ALONE) -> float:
    """Compute one over the median of those squared distances that are more than rounding errors.

    They are given from the finest to the coarsest kind. Where most of one kind are zero (because most points are
    supports themselves, say), the next kind counts. The result is 1 where most of every kind are zero.
    """
    kinds = [torch.cat(ranks.gather(distances)).flatten() for distances in squared]
    coarsest = kinds[-1]
    precision = 1e-10 if coarsest.dtype == torch.float64 else 1e-5
    rounding_error = float(coarsest.double().mean()) * precision
    for distances in kinds:
        nonzero = distances[distances > rounding_error]
        if 2 * len(nonzero) >= max(1, len(distances)):
            return 1 / float(nonzero.median())
    return 1.0


def _greatest(x: Tensor, score: Tensor, labels: Tensor, k: int, ranks: Ranks) -> Tensor:
    """Find the point of greatest score in every cluster on any rank, [k, d]; zeros for one without points."""
    maxima = score.new_full((k,), -torch.inf).scatter_reduce_(0, labels, score, "amax")
    is_greatest = score == maxima[labels]
    rows = is_greatest.nonzero()[:, 0]
    points = x.new_zeros(k, x.shape[1]).index_copy_(0, labels[rows], x[rows])
    if ranks.alone:
        return points
    of_ranks = _of_ranks(torch.cat([maxima[:, None], points], 1), ranks)  # [ranks, k, 1 + d]
    best_rank = of_ranks[..., 0].argmax(0)
    return of_ranks[best_rank, torch.arange(k, device=x.device), 1:]


def best_run(
    model: KernelKMeans, k: int, sample: Sample, labels: Tensor | None, fixed: bool
) -> Fit[Supports] | Fit[Members]:
    """Find the best of `n_init` starts of a KernelKMeans.

    `labels` [n] are those to start from, or to keep where `fixed`.
    """
    x = sample.x
    weight = sample.weight
    generator = sample.generator
    gamma = model.gamma
    if model.objective != "lme":  # for supports the median heuristic follows the start
        points = x[drawn(torch.ones_like(weight), SAMPLE, generator)]
        if gamma == "median":
            gamma = median_gamma(squared_distances(points, points))
    n_start = len(x)  # points on which the start is found
    if model.batch_size is not None:
        n_start = max(model.batch_size, SEEDS * k * model.n_support)

    options: dict[str, Any] = {"weighted": model.weighted, "max_iter": model.max_iter, "tol": model.tol}
    runs: list[Fit[Supports] | Fit[Members]] = []
    for _ in range(model.n_init):
        start_sample = sample
        start = labels
        if start is None:
            if n_start < len(x):
                rows = drawn(weight, n_start, generator)
                start_sample = replace(sample, x=x[rows], weight=weight.new_ones(n_start))
            start = _start(model.init, k, start_sample)

        if model.objective != "lme":
            max_iter = 0 if fixed else model.max_iter
            is_spherical = model.objective == "spherical"
            runs.append(feature_kmeans(x, start, k, float(gamma), weight, is_spherical, max_iter))
            continue
        supports = seeded(start_sample, start, k, model.n_support, gamma)
        if model.batch_size is None:
            kept = start if fixed else None
            runs.append(em(x, supports, kept, weight, ranks=sample.ranks, **options))
        else:
            runs.append(mini_batch_em(x, supports, weight, generator, model.batch_size, **options))
    return min(runs, key=attrgetter("objective"))


def _start(init: str | ArrayLike, k: int, sample: Sample) -> Tensor:
    """Find the clusters to start from, [n]: those of k-means, or the nearest of k random points."""
    x = sample.x
    ranks = sample.ranks
    is_random = isinstance(init, str) and init == "random"  # labels may have more clusters than there are points
    if not is_random:
        centers = plus_plus(sample, k)
    elif ranks.alone:
        centers = x[drawn(torch.ones_like(sample.weight), k, sample.generator)]
    else:
        score = torch.rand(len(x), generator=sample.generator_of_rank(), device=x.device)
        centers = greatest(x, score, k, ranks)
    start = uniform(centers[:, None], math.inf)
    max_iter = 0 if is_random else 100
    return em(x, start, weight=sample.weight, max_iter=max_iter, ranks=ranks).labels
