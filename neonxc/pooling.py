"""Pooling: minima, soft minima, and how relevance is shared among what they are taken over."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def log_odds(energy: Tensor, threshold: float) -> Tensor:
    """Log odds [N, K] of ``p = softmax(-energy)`` over those of a threshold (NEON paper, Prop. 7).

    This is ``LME^{-1}`` of the contrasts ``E_k - E_c`` of each cluster c, and a bias.
    """
    best = energy.argmin(dim=1, keepdim=True)
    total = (-energy).logsumexp(dim=1, keepdim=True)
    # log(1 - p_c) from p_c is inexact where p_c is nearly 1: there the others are added up
    others = total + torch.log1p(-torch.exp((-energy - total).scatter(1, best, -torch.inf)))
    of_best = (-energy).scatter(1, best, -torch.inf).logsumexp(dim=1, keepdim=True)
    return -energy - others.scatter(1, best, of_best) + math.log((1 - threshold) / threshold)


def group_min(energy: Tensor, groups: Tensor, n_groups: int) -> tuple[Tensor, Tensor]:
    """Minimum [N, K] of each group's columns [N, M], and the share [N, M] each column has in it; ties share."""
    least = energy.new_full((energy.shape[0], n_groups), torch.inf)
    least = least.scatter_reduce(1, groups.expand_as(energy), energy, "amin")
    hit = (energy == least[:, groups]).to(energy.dtype)
    ties = torch.zeros_like(least).index_add(1, groups, hit)
    return least, hit / ties[:, groups]


def group_soft_min(energy: Tensor, sizes: list[int], gamma: float, log_weights: Tensor) -> tuple[Tensor, Tensor]:
    """Soft minimum ``LME^{-gamma}`` [N, K] of each group's columns, and the columns' shares (NEON paper, Eq. 7).

    Parameters
    ----------
    energy : Tensor [N, M]
    sizes : list of int
        Columns of every group; the first group has the first ones.
    gamma : float
    log_weights : Tensor [M]
        Best of float64: the logarithm of a group's sum of weights is divided by gamma.
    """
    minima, shares = [], []
    for part, logs in zip(energy.split(sizes, dim=1), log_weights.double().split(sizes), strict=True):
        total = logs.logsumexp(dim=0)
        least = part.amin(dim=1)
        minimum, share = _soft_min((part - least[:, None]).mul_(-gamma), (logs - total).to(energy))
        minima.append(least - (minimum + total.to(energy)) / gamma)
        shares.append(share)
    return torch.stack(minima, dim=1), torch.cat(shares, dim=1)


def _soft_min(logits: Tensor, log_weights: Tensor) -> tuple[Tensor, Tensor]:
    """``log sum_i w_i exp(l_i)`` [N] for weights that sum to 1 and logits <= 0, and the terms' shares [N, p].

    Where all logits are small, that is a small number: the logarithm of a sum near 1 would round it away.
    """
    change = (logits.expm1() * log_weights.exp()).sum(dim=1)  # autocast would round a matrix product
    logits = logits + log_weights
    shares = logits.softmax(dim=1)
    of_sum = logits.amax(dim=1) - shares.amax(dim=1).log()
    # clamped, as the slope of what is not taken counts as well, and 0 times infinity is no number
    return torch.where(change > -0.5, change.clamp(min=-0.5).log1p(), of_sum), shares


def min_over_competitors(energy: Tensor) -> Tensor:
    """Logits of all clusters from their energies: ``f_c = min_{k != c} E_k - E_c``.

    Parameters
    ----------
    energy : Tensor [N, K]
        Lower is closer; a term common to a row's clusters cancels. K >= 2.

    Returns
    -------
    Tensor [N, K]
        Positive for the cluster with the least energy alone (NEON paper, Prop. 1, layer 2).
    """
    best = energy.topk(2, dim=1, largest=False)
    first, second = best.values[:, :1], best.values[:, 1:]
    columns = torch.arange(energy.shape[1], device=energy.device)
    return torch.where(columns == best.indices[:, :1], second, first) - energy


def softmin(contrasts: Tensor, beta: float | Tensor) -> Tensor:
    """Weights ``softmax(-beta h)`` [N, L] of contrasts, 0 where they are infinite; a row without any gets NaN.

    `beta` goes from 0 (all alike) to inf (the least takes all; ties share).
    """
    least = contrasts.amin(dim=1, keepdim=True)
    logits = torch.where(contrasts == least, torch.zeros_like(contrasts), -beta * (contrasts - least))
    return logits.masked_fill(contrasts.isinf(), -torch.inf).softmax(dim=1)


def take_most(contrasts: Tensor, beta: float | Tensor, weights: Tensor | None = None) -> Tensor:
    """Share the minimum of the contrasts out among them: multipliers ``s_k = R_k / h_k``.

    Where the minimum f is not negative this is the min-take-most rule of the NEON paper (Eq. 2),
    ``R_k = w_k f`` with ``w = softmin(beta h)``. Where it is negative ("why not c?") some contrasts may cross
    zero, and Eq. 2 divided by h_k would have a pole: there f is shared among the clusters that beat c alone,
    ``s_k = w_k f / sum_j w_j h_j`` over those with h_k < 0. Both conserve: ``sum_k s_k h_k = f``.

    Parameters
    ----------
    contrasts : Tensor [N, L]
        h; ``inf`` where there is no competitor. A row without any competitor gets zeros.
    beta : float or scalar Tensor
        Stiffness, 0 (all competitors alike) to inf (the nearest takes all; ties share).
    weights : Tensor [N, L], optional
        w from elsewhere, in place of the :func:`softmin`; what does not compete here has no share. A negative
        minimum is shared by the softmin all the same: only with it are the shares bounded.

    Returns
    -------
    Tensor [N, L]
        s, finite and not negative.
    """
    lowest = contrasts.amin(dim=1, keepdim=True)
    absent = contrasts.isinf()
    here = softmin(contrasts, beta)
    if weights is None:
        weights = here
    else:
        weights = weights.masked_fill(absent, 0.0)
        total = weights.sum(dim=1, keepdim=True)
        weights = torch.where((lowest >= 0) & (total > 0), weights / total, here)
    nearest = (contrasts == lowest) | absent  # f / h is 1 for the nearest, also where both are 0
    won = weights * torch.where(nearest, torch.ones_like(contrasts), lowest / contrasts)
    negative = contrasts.clamp(max=0)
    beaten_by = weights * (negative < 0)
    lost = beaten_by * (lowest / (weights * negative).sum(dim=1, keepdim=True))
    shares = torch.where(lowest < 0, lost, won)
    return shares.masked_fill(absent, 0.0)


def slopes_of_most(contrasts: Tensor, beta: float | Tensor) -> Tensor:
    """Shares of :func:`take_most`, scaled to sum to 1: weights of slopes, which add up along a path."""
    shares = take_most(contrasts, beta)
    total = shares.sum(dim=1, keepdim=True)
    return torch.where(total > 0, shares / total, softmin(contrasts, beta).nan_to_num())
