"""Pooling over competitors: the minimum, and the take-most rule that shares its value out.

One pair of functions serves every head: contrasts go in, one logit comes out, and its relevance
goes back to the contrasts.
"""

from __future__ import annotations

import torch
from torch import Tensor


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


def take_most(contrasts: Tensor, beta: float | Tensor) -> Tensor:
    """Share the minimum of the contrasts out among them: multipliers ``s_k = R_k / h_k``.

    Where the minimum f is not negative this is the min-take-most rule of the NEON paper (Eq. 2),
    ``R_k = softmin(beta h)_k f``. Where it is negative ("why not c?") some contrasts may cross zero, and
    Eq. 2 divided by h_k would have a pole: there f is shared among the clusters that beat c alone,
    ``s_k = w_k f / sum_j w_j h_j`` with ``w_k = softmin(beta h)_k [h_k < 0]``. Both conserve:
    ``sum_k s_k h_k = f``.

    Parameters
    ----------
    contrasts : Tensor [N, L]
        h; ``inf`` where there is no competitor. A row without any competitor gets zeros.
    beta : float or scalar Tensor
        Stiffness, 0 (all competitors alike) to inf (the nearest takes all; ties share).

    Returns
    -------
    Tensor [N, L]
        s, finite and not negative.
    """
    lowest = contrasts.amin(dim=1, keepdim=True)
    absent = contrasts.isinf()
    logits = torch.where(contrasts == lowest, torch.zeros_like(contrasts), -beta * (contrasts - lowest))
    weights = logits.masked_fill(absent, -torch.inf).softmax(dim=1)
    nearest = (contrasts == lowest) | absent  # f / h is 1 for the nearest, also where both are 0
    won = weights * torch.where(nearest, torch.ones_like(contrasts), lowest / contrasts)
    negative = contrasts.clamp(max=0)
    beaten_by = weights * (negative < 0)
    lost = beaten_by * (lowest / (weights * negative).sum(dim=1, keepdim=True))
    shares = torch.where(lowest < 0, lost, won)
    return shares.masked_fill(absent, 0.0)
