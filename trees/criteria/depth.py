"""Estimated depth of the tree below a cut, of which ExShallow makes a penalty."""

from __future__ import annotations

import torch
from torch import Tensor


def estimated_depth(points_left: Tensor, centers_left: Tensor, points: float, centers: int) -> Tensor:
    """Weighted average depth of a tree all of whose cuts split points and centers in the proportions of one cut.

    Parameters
    ----------
    points_left : Tensor [cuts] of float64
        Number (or weight) of points that a cut sends to the left, out of `points`.
    centers_left : Tensor [cuts] of int64
        Number of centers that it sends to the left, out of `centers`; at least one on either side.

    Returns
    -------
    Tensor [cuts] of float64

    Notes
    -----
    The average depth is the number of points at each inner node, summed over the inner nodes and divided by the
    number of all points. At a node of N points and K centers, ``ceil(N p)`` points and ``ceil(K c)`` centers go
    left, where p and c are the cut's shares. Each side keeps at least one point and one center, so that the
    recursion ends; a single point goes to the side with more centers.

    References
    ----------
    .. [1] E. S. Laber, L. Murtinho, F. Oliveira, "Shallow decision trees for explainable k-means clustering",
       Pattern Recognition, 2023, Algorithm 2.
    """
    if points == 0:
        return torch.zeros_like(points_left)
    total = torch.zeros_like(points_left)
    cut = torch.arange(len(points_left), device=points_left.device)
    shares = torch.stack([points_left, centers_left.to(torch.float64)])  # exact in float64
    # points and centers of each node of a level
    nodes = shares.new_tensor([[points], [centers]]).expand_as(shares)
    while len(cut):
        total.index_add_(0, cut, nodes[0])
        left = _left(nodes, shares.index_select(1, cut), points, centers)
        nodes = torch.cat([left, nodes - left], 1)
        inner = ((nodes[0] > 0) & (nodes[1] > 1)).nonzero()[:, 0]
        nodes = nodes.index_select(1, inner)
        cut = torch.cat([cut, cut]).index_select(0, inner)
    return total / points


def _left(nodes: Tensor, shares: Tensor, points: float, centers: int) -> Tensor:
    """Return the numbers of points and centers [2, nodes] that go left."""
    (N, K), (points_left, centers_left) = nodes, shares
    k_left = (K * centers_left + (centers - 1)).div(centers, rounding_mode="floor").clamp(min=1).minimum(K - 1)
    n_left = torch.minimum((N * points_left / points).ceil().clamp(min=1), N - 1)
    return torch.stack([torch.where(N <= 1, N * (2 * k_left > K), n_left), k_left])
