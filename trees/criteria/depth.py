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

    Notes ----- The average depth WAD(N, K) of a tree for N points and K centers, of whose nodes all divide
    points and centers in the fractions p and c of the cut, is

        WAD(N, 1)  =  0,
        WAD(N, K)  =  1 + (N_L WAD(N_L, K_L) + N_R WAD(N_R, K_R)) / N,
        K_L = min(max(ceil(K c), 1), K - 1),   N_L = min(max(ceil(N p), 1), N - 1),

    and the rest goes right. It is the number of points at each inner node, summed over the inner nodes, and
    divided by the number of all points; the nodes are visited level by level, those of all cuts at once. The
    paper's ``K c`` and ``N p`` are rounded up here, and limited so that each side keeps at least one point and
    one center: otherwise the recursion does not end. A single point goes to the side with more centers.

    References
    ----------
    .. [1] E. S. Laber, L. Murtinho, F. Oliveira, "Shallow decision trees for explainable k-means clustering",
       Pattern Recognition, 2023, Algorithm 2.
    """
    if points == 0:
        return torch.zeros_like(points_left)
    total = torch.zeros_like(points_left)  # points at the inner nodes
    cut = torch.arange(len(points_left), device=points_left.device)  # the cut whose tree a node is of
    left_of_cut = torch.stack([points_left, centers_left.to(torch.float64)])  # exact in float64
    # points N and centers K of each node of a level, [2, nodes]; the roots are inner nodes
    nodes = left_of_cut.new_tensor([[points], [centers]]).expand_as(left_of_cut)
    while len(cut):
        total.index_add_(0, cut, nodes[0])
        left = _left(nodes, left_of_cut.index_select(1, cut), points, centers)
        nodes = torch.cat([left, nodes - left], 1)
        inner = ((nodes[0] > 0) & (nodes[1] > 1)).nonzero()[:, 0]
        nodes = nodes.index_select(1, inner)
        cut = torch.cat([cut, cut]).index_select(0, inner)
    return total / points


def _left(nodes: Tensor, left_of_cut: Tensor, points: float, centers: int) -> Tensor:
    """Return the numbers of points and centers [2, nodes] that go left.

    Parameters
    ----------
    nodes : Tensor [2, nodes]
        Points and centers of every node.
    left_of_cut : Tensor [2, nodes]
        Points and centers that the node's cut sends to the left, of `points` and `centers`.
    """
    N, K = nodes
    points_left, centers_left = left_of_cut
    # ceil(K c) in integers, so that it does not depend on rounding
    k_left = (K * centers_left + (centers - 1)).div(centers, rounding_mode="floor")
    k_left = k_left.clamp(min=1).minimum(K - 1)
    n_left = (N * points_left / points).ceil()
    n_left = torch.minimum(n_left.clamp(min=1), N - 1)
    # 2 K_L > K: more centers are on the left
    n_left = torch.where(N <= 1, N * (2 * k_left > K), n_left)
    return torch.stack([n_left, k_left])
