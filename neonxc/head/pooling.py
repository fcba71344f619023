"""Pooling functions: minima and soft minima, and the rules that share relevance among their arguments."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def log_odds(energy: Tensor, threshold: float) -> Tensor:
    """Compute the log odds [N, K] of ``p = softmax(-energy)`` minus those of a threshold (NEON paper, Prop. 7).

    For each cluster c this is ``LME^{-1}`` of the contrasts ``E_k - E_c``, plus a constant.
    """
    best = energy.argmin(dim=1, keepdim=True)
    total = (-energy).logsumexp(dim=1, keepdim=True)
    # log(1 - p_c) is inexact if p_c is nearly 1: for the best cluster, the other probabilities are summed instead
    others = total + torch.log1p(-torch.exp((-energy - total).scatter(1, best, -torch.inf)))
    others_of_best = (-energy).scatter(1, best, -torch.inf).logsumexp(dim=1, keepdim=True)
    return -energy - others.scatter(1, best, others_of_best) + math.log((1 - threshold) / threshold)


def group_min(energy: Tensor, groups: Tensor, n_groups: int) -> tuple[Tensor, Tensor]:
    """Compute the minimum [N, K] over each group of columns and the columns' shares [N, M]; ties are equal."""
    least = energy.new_full((energy.shape[0], n_groups), torch.inf)
    least = least.scatter_reduce(1, groups.expand_as(energy), energy, "amin")
    hit = (energy == least[:, groups]).to(energy.dtype)
    ties = torch.zeros_like(least).index_add(1, groups, hit)
    return least, hit / ties[:, groups]


def group_soft_min(energy: Tensor, sizes: list[int], gamma: float, log_weights: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the soft minimum ``LME^{-gamma}`` over each group of columns (NEON paper, Eq. 7).

    Parameters
    ----------
    energy : Tensor [N, M]
    sizes : list of int
        Number of columns of each group; groups are contiguous.
    gamma : float
        Stiffness > 0.
    log_weights : Tensor [M]
        Logarithms of the columns' weights, preferably in float64, as they are divided by gamma.

    Returns
    -------
    minima : Tensor [N, K]
    shares : Tensor [N, M]
        The gradients of the minima.
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
    """Compute ``log sum_i w_i exp(l_i)`` [N] for weights that sum to 1 and logits <= 0, and the shares [N, p].

    If all logits are close to 0, log1p avoids the rounding error of the logarithm of a sum near 1.
    """
    change = (logits.expm1() * log_weights.exp()).sum(dim=1)  # no matrix product, which autocast would round
    logits = logits + log_weights
    shares = logits.softmax(dim=1)
    log_sum = logits.amax(dim=1) - shares.amax(dim=1).log()
    # without the clamp, the gradient of the branch not taken would be 0 times infinity
    return torch.where(change > -0.5, change.clamp(min=-0.5).log1p(), log_sum), shares


def min_over_competitors(energy: Tensor) -> Tensor:
    """Compute the logits of all clusters from their energies: ``f_c = min_{k != c} E_k - E_c``.

    Parameters
    ----------
    energy : Tensor [N, K]
        Energies of at least 2 clusters; the least wins. Terms that all clusters share cancel.

    Returns
    -------
    Tensor [N, K]
        Positive only for the cluster with the least energy (NEON paper, Prop. 1, layer 2).
    """
    best = energy.topk(2, dim=1, largest=False)
    first, second = best.values.split(1, dim=1)
    return first.expand_as(energy).scatter(1, best.indices[:, :1], second) - energy


def softmin(contrasts: Tensor, beta: float | Tensor) -> Tensor:
    """Compute the weights ``softmax(-beta h)`` [N, L] of contrasts h.

    `beta` ranges from 0 (equal weights) to inf (the least contrast gets all; ties share equally). Infinite
    contrasts get 0; a row with infinite contrasts only gets NaN.
    """
    least = contrasts.amin(dim=1, keepdim=True)
    logits = torch.where(contrasts == least, 0.0, -beta * (contrasts - least))
    return logits.masked_fill(contrasts.isinf(), -torch.inf).softmax(dim=1)


def take_most(contrasts: Tensor, beta: float | Tensor, weights: Tensor | None = None) -> Tensor:
    """Share the minimum of the contrasts among the competitors: multipliers ``s_k = R_k / h_k``.

    If the minimum f is >= 0 this is the min-take-most rule of the NEON paper (Eq. 2), ``R_k = w_k f`` with ``w =
    softmin(beta h)``. If it is negative ("why not c?"), some contrasts may be close to zero, and ``R_k / h_k``
    would have a pole. In that case f is shared among the clusters that beat c, those with h_k < 0: ``s_k = w_k f /
    sum_j w_j h_j``. Both rules conserve: ``sum_k s_k h_k = f``.

    Parameters
    ----------
    contrasts : Tensor [N, L]
        The contrasts h; ``inf`` where there is no competitor. A row without any competitor gets zeros.
    beta : float or scalar Tensor
        Stiffness from 0 (equal weights) to inf (the least contrast gets all; ties share equally).
    weights : Tensor [N, L], optional
        The weights w, in place of the softmin; those of clusters that do not compete are ignored. A negative
        minimum is always shared by the softmin, as its shares are bounded.

    Returns
    -------
    Tensor [N, L]
        The multipliers s, finite and not negative.
    """
    lowest = contrasts.amin(dim=1, keepdim=True)
    absent = contrasts.isinf()
    found = softmin(contrasts, beta)
    if weights is not None:
        weights = weights.masked_fill(absent, 0.0)
        total = weights.sum(dim=1, keepdim=True)
        found = torch.where((lowest >= 0) & (total > 0), weights / total, found)
    nearest = (contrasts == lowest) | absent  # f / h is 1 for the nearest competitor, even if both are 0
    won = found * torch.where(nearest, 1.0, lowest / contrasts)
    beaten_by = found * (contrasts < 0)
    lost = beaten_by * (lowest / (found * contrasts.clamp(max=0)).sum(dim=1, keepdim=True))
    return torch.where(lowest < 0, lost, won).masked_fill(absent, 0.0)


def slopes_of_most(contrasts: Tensor, beta: float | Tensor) -> Tensor:
    """Shares of :func:`take_most`, scaled to sum to 1, to weight the competitors' gradients."""
    shares = take_most(contrasts, beta)
    total = shares.sum(dim=1, keepdim=True)
    return torch.where(total > 0, shares / total, softmin(contrasts, beta).nan_to_num())
