"""The starts of KernelKMeans, of which the one with the lowest objective is kept."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from neonxc.data.distributed import greatest

from .em import drawn, em, mini_batch_em
from .members import feature_kmeans
from .seeding import Sample, median_gamma, plus_plus, seeded
from .supports import squared_distances, uniform

SAMPLE = 2000  # points whose distances the median heuristic looks at
SEEDS = 10  # points per support from which mini-batches start


def best_run(
    model: Any, k: int, sample: Sample, labels: Tensor | None, fixed: bool
) -> tuple[Any, float, list[float]]:
    """Clusters, objective and history of the best of `n_init` starts of a KernelKMeans.

    `labels` [n] are those to start from, or to keep where `fixed`.
    """
    gamma = model.gamma
    if model.objective != "lme":  # for supports the median heuristic follows the start
        x = sample.x[drawn(torch.ones_like(sample.weight), SAMPLE, sample.generator)]
        gamma = median_gamma(squared_distances(x, x)) if gamma == "median" else float(gamma)
    runs = [_run(model, k, sample, labels, fixed, gamma) for _ in range(model.n_init)]
    return min(runs, key=lambda run: run[1])


def _run(
    model: Any, k: int, sample: Sample, labels: Tensor | None, fixed: bool, gamma: float | str
) -> tuple[Any, float, list[float]]:
    x, weight, generator, keep = sample.x, sample.weight, sample.generator, labels if fixed else None
    size = len(x) if model.batch_size is None else max(model.batch_size, SEEDS * k * model.n_support)
    if labels is None and size < len(x):
        sample = replace(sample, x=x[drawn(weight, size, generator)], weight=weight.new_ones(size))
    if labels is None:
        labels = _start(model.init, k, sample)
    if model.objective != "lme":
        max_iter = 0 if fixed else model.max_iter
        return feature_kmeans(x, labels, k, float(gamma), weight, model.objective == "spherical", max_iter)
    supports = seeded(sample, labels, k, model.n_support, gamma)
    options: dict[str, Any] = {"weighted": model.weighted, "max_iter": model.max_iter, "tol": model.tol}
    if model.batch_size is None:
        fit = em(x, supports, keep, weight, ranks=sample.ranks, **options)
    else:
        fit = mini_batch_em(x, supports, weight, generator, model.batch_size, **options)
    return fit.supports, fit.objective, fit.history


def _start(init: Any, k: int, sample: Sample) -> Tensor:
    """Clusters to start from, [n]: those of k-means, or of random points, which are its start."""
    x, ranks = sample.x, sample.ranks
    random = isinstance(init, str) and init == "random"  # labels may have more clusters than there are points
    if not random:
        centers = plus_plus(sample, k)
    elif ranks.alone:
        centers = x[drawn(torch.ones_like(sample.weight), k, sample.generator)]
    else:
        centers = greatest(x, torch.rand(len(x), generator=sample.own_stream(), device=x.device), k, ranks)
    start = uniform(centers[:, None], math.inf)
    return em(x, start, weight=sample.weight, max_iter=0 if random else 100, ranks=ranks).labels
