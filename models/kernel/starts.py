"""The starts of KernelKMeans, of which the one with the lowest objective is kept."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from neonxc.common.processes import Ranks
from neonxc.data.distributed import greatest

from .em import drawn, em, mini_batch_em
from .members import feature_kmeans
from .seeding import kmeans, median_gamma, own_stream, seeded
from .supports import squared_distances

SAMPLE = 2000  # points whose distances the median heuristic looks at
SEEDS = 10  # points per support from which mini-batches start


def best_run(
    model: Any,
    k: int,
    x: Tensor,
    weight: Tensor,
    first: Tensor | None,
    keep: Tensor | None,
    generator: torch.Generator,
    ranks: Ranks,
) -> tuple[Any, float, list[float]]:
    """Clusters, objective and history of the best of `n_init` starts of a KernelKMeans.

    `first` [n] are labels to start from, `keep` [n] labels to keep.
    """
    gamma = _gamma(model, x, generator)
    runs = [_run(model, k, x, weight, first, keep, gamma, generator, ranks) for _ in range(model.n_init)]
    return min(runs, key=lambda run: run[1])


def _gamma(model: Any, x: Tensor, generator: torch.Generator) -> float | str:
    """The parameter as it is for supports, whose median heuristic follows the start; a number for members."""
    if model.objective == "lme":
        return model.gamma
    sample = x[torch.randperm(len(x), generator=generator, device=x.device)[:SAMPLE]]
    return median_gamma(squared_distances(sample, sample)) if model.gamma == "median" else float(model.gamma)


def _run(
    model: Any,
    k: int,
    x: Tensor,
    weight: Tensor,
    first: Tensor | None,
    keep: Tensor | None,
    gamma: float | str,
    generator: torch.Generator,
    ranks: Ranks,
) -> tuple[Any, float, list[float]]:
    some, mass = x, weight
    size = len(x) if model.batch_size is None else max(model.batch_size, SEEDS * k * model.n_support)
    if first is None and size < len(x):
        some, mass = x[drawn(weight, size, generator)], weight.new_ones(size)
    labels = _start(model.init, k, some, mass, generator, ranks) if first is None else first
    if model.objective != "lme":
        max_iter = model.max_iter if keep is None else 0
        return feature_kmeans(x, labels, k, float(gamma), weight, model.objective == "spherical", max_iter)
    supports = seeded(some, labels, k, model.n_support, gamma, generator, mass, ranks)
    options: dict[str, Any] = {"weighted": model.weighted, "max_iter": model.max_iter, "tol": model.tol}
    if model.batch_size is None:
        fit = em(x, supports, keep, weight, ranks=ranks, **options)
    else:
        fit = mini_batch_em(x, supports, weight, generator, model.batch_size, **options)
    return fit.supports, fit.objective, fit.history


def _start(init: Any, k: int, x: Tensor, weight: Tensor, generator: torch.Generator, ranks: Ranks) -> Tensor:
    """Clusters to start from, [n]."""
    if not isinstance(init, str) or init == "kmeans":  # labels were given, of more clusters than there are points
        return kmeans(x, k, generator, weight, ranks)
    if ranks.alone:
        chosen = x[torch.randperm(len(x), generator=generator, device=x.device)[:k]]
    else:
        own = own_stream(generator, ranks)
        chosen = greatest(x, torch.rand(len(x), generator=own, device=x.device), k, ranks)
    return squared_distances(x, chosen).argmin(1)
