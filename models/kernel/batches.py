"""EM by mini-batches, for more points than a pass is worth."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from tqdm import tqdm

from .supports import Fit, Supports, em, expectation


def in_batches(
    x: Tensor,
    supports: Supports,
    weight: Tensor,
    generator: torch.Generator,
    batch_size: int,
    weighted: bool,
    *,
    max_iter: int,
    tol: float,
) -> Fit:
    """Go through the points in mini-batches until a pass lowers their sum of distances by less than `tol` of it.

    Parameters
    ----------
    x : Tensor [n, d]
    supports : Supports
        Where to start.
    weight : Tensor [n]
        Of the points: chances of being drawn.
    """
    seen, history = x.new_zeros(supports.log_weights.shape), []
    for _ in tqdm(range(max_iter), desc="kernel k-means", delay=2, leave=False):
        total = 0.0
        for rows in drawn(weight, len(x), generator).split(batch_size):
            supports, objective = online(x[rows], supports, seen, weighted)
            total += objective
        history.append(total)
        if len(history) > 1 and history[-2] - total <= tol * abs(history[-2]):
            break
    final = em(x, supports, weight=weight, max_iter=0)
    return Fit(supports, final.labels, final.objective, history)


def drawn(weight: Tensor, size: int, generator: torch.Generator) -> Tensor:
    """Rows [size] drawn by weight, from equal ones without replacement."""
    if bool((weight == weight[0]).all()):
        return torch.randperm(len(weight), generator=generator, device=weight.device)[:size]
    return torch.multinomial(weight, size, replacement=True, generator=generator)


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
    statistics = expectation(x, supports, None, None)
    seen += statistics.mass
    shift = statistics.total - statistics.mass[..., None] * supports.points
    supports = replace(supports, points=supports.points + shift / seen.clamp(min=1.0)[..., None])
    if weighted:
        mass = seen.double() + 1
        supports = replace(supports, log_weights=(mass / mass.sum(1, keepdim=True)).log())
    return supports, statistics.objective
