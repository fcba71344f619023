"""How deep the tree below a cut may become: the estimate of ExShallow."""

from __future__ import annotations

import torch
from torch import Tensor


def estimated_depth(points_left: Tensor, centers_left: Tensor, points: float, centers: int) -> Tensor:
    """Weighted average depth of the tree that splits points and centers in a cut's proportions all the way down.

    Parameters
    ----------
    points_left : Tensor [cuts] of float64
        Points (or weight) that a cut sends to the left, out of `points`.
    centers_left : Tensor [cuts] of int64
        Centers that it sends there, out of `centers`; at least one on either side.

    Returns
    -------
    Tensor [cuts] of float64

    Notes
    -----
    The average depth is the sum over inner nodes of their points, over all points. Of N points and K centers,
    ``ceil(N p)`` and ``ceil(K c)`` go left, so that the recursion ends: at least one point and one center on
    either side; a single point goes to the side with more centers.

    References
    ----------
    .. [1] E. S. Laber, L. Murtinho, F. Oliveira, "Shallow decision trees for explainable k-means clustering",
       Pattern Recognition, 2023, Algorithm 2.
    """
    if points == 0:
        return torch.zeros_like(points_left)
    total = torch.zeros_like(points_left)
    cut = torch.arange(len(points_left), device=points_left.device)
    N = torch.full_like(points_left, points)
    K = torch.full_like(centers_left, centers)
    while len(cut):
        total.index_add_(0, cut, N)
        n_left, k_left = _split(N, K, points_left[cut], centers_left[cut], points, centers)
        cut = torch.cat([cut, cut])
        N, K = torch.cat([n_left, N - n_left]), torch.cat([k_left, K - k_left])
        inner = (K > 1) & (N > 0)
        cut, N, K = cut[inner], N[inner], K[inner]
    return total / points


def _split(
    N: Tensor, K: Tensor, points_left: Tensor, centers_left: Tensor, points: float, centers: int
) -> tuple[Tensor, Tensor]:
    """Points and centers that go left, of N and K."""
    k_left = (K * centers_left + centers - 1).div(centers, rounding_mode="floor").clamp(min=1).minimum(K - 1)
    n_left = torch.minimum((N * points_left / points).ceil().clamp(min=1), N - 1)
    return torch.where(N <= 1, N * (2 * k_left > K), n_left), k_left
