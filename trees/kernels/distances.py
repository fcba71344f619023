"""Distances to cluster means in a kernel's feature space, computed without storing the kernel matrix."""

from __future__ import annotations

import torch
from torch import Tensor

from neonxc.trees.coding.table import Table

BLOCK = 1 << 18  # entries of a block of the kernel matrix on a CPU
BUDGET = 1 << 26  # the same on other devices
SAMPLE = 1000  # number of distinct points from whose distances a default gamma is computed
KERNELS = ("gaussian", "laplace")


def feature_space_distances(
    X: Tensor, labels: Tensor, k: int, kernel: str, gamma: float, weight: Tensor | None = None
) -> Tensor:
    """Squared distance of every point to the mean of every cluster in the feature space of a kernel.

    ``‖Φ(x) − μ_c‖² = κ(x, x) − 2/|c| Σ_{y∈c} κ(x, y) + 1/|c|² Σ_{y,z∈c} κ(y, z)`` is the cost that kernel k-means
    minimizes, and that Kernel ExKMC [1]_ minimizes over interval cuts. With weights, sums and sizes are weighted.

    Parameters
    ----------
    X : Tensor [n, d]
        Converted to float64; the computation runs on the device of X.
    labels : Tensor [n] of int64
        Cluster of every point, 0 ... k-1.
    k : int
        Number of clusters. Each needs at least one point of positive weight.
    kernel : {"gaussian", "laplace"}
        ``exp(-gamma ‖x − y‖²)``, or ``exp(-gamma ‖x − y‖_1)``.
    gamma : float
        Positive, in units of 1 / squared distance (Gaussian) or 1 / distance (Laplace).
    weight : Tensor [n], optional
        Non-negative weights of the points.

    Returns
    -------
    Tensor [n, k] of float64
        Between 0 and 2.

    Raises
    ------
    ValueError
        If a cluster has no weight.

    Notes
    -----
    The time is proportional to ``n² d / 2``, because the kernel is computed once for each pair of points. Memory
    is needed for about ``n (d + 2k)`` numbers and one block of the kernel matrix.

    References
    ----------
    .. [1] M. Fleissner, L. C. Vankadara, D. Ghoshdastidar, "Explaining kernel clustering via decision trees", ICLR
       2024.

    Examples
    --------
    >>> import torch
    >>> from neonxc.trees.kernels.distances import feature_space_distances
    >>> X = torch.tensor([[0.0], [0.0], [9.0]])
    >>> feature_space_distances(X, torch.tensor([0, 0, 1]), 2, "gaussian", 1.0)
    tensor([[0., 2.],
            [0., 2.],
            [2., 0.]], dtype=torch.float64)
    """
    points = X.to(torch.float64)
    points = points - points.mean(0)  # reduces the rounding errors of distances
    mass = points.new_ones(len(points)) if weight is None else weight.to(torch.float64)
    sizes = mass.new_zeros(k).index_add_(0, labels, mass)
    if bool((sizes <= 0).any()):
        raise ValueError(f"labels: cluster {int((sizes <= 0).nonzero()[0])} has no points of positive weight")
    member = mass.new_zeros(len(points), k).scatter_(1, labels[:, None], (mass / sizes[labels])[:, None])
    means = _kernel_means(points, member, kernel, gamma)
    lengths = (means * member).sum(0)
    return means.mul_(-2).add_(1).add_(lengths).clamp_(min=0)


def _kernel_means(points: Tensor, member: Tensor, kernel: str, gamma: float) -> Tensor:
    """``K @ member``, [n, k], for the kernel matrix K; only the blocks on and above its diagonal are computed."""
    n = len(points)
    means = torch.zeros_like(member)
    side = max(1, int((BLOCK if points.device.type == "cpu" else BUDGET) ** 0.5))
    blocks = [slice(first, first + side) for first in range(0, n, side)]
    for number, rows in enumerate(blocks):
        for columns in blocks[number:]:
            block = _kernels(points[rows], points[columns], kernel, gamma)
            means[rows] += block @ member[columns]
            if columns != rows:
                means[columns] += block.T @ member[rows]
    return means


def _kernels(x: Tensor, y: Tensor, kernel: str, gamma: float) -> Tensor:
    """Block of the kernel matrix, [len(x), len(y)]."""
    if kernel == "laplace":
        return torch.cdist(x, y, p=1).mul_(-gamma).exp_()
    far = torch.addmm(y.square().sum(1), x, y.T, alpha=-2).add_(x.square().sum(1, keepdim=True))
    return far.clamp_(min=0).mul_(-gamma).exp_()


def median_gamma(table: Table, kernel: str, weight: Tensor | None = None) -> float:
    """Default gamma: 1 / median distance between distinct points of a sample (squared for the Gaussian kernel)."""
    points, place = torch.unique(table.columns(0, table.d).T, dim=0, return_inverse=True)
    sample = slice(None, None, max(1, len(points) // SAMPLE))
    points, mass = points[sample].to(torch.float64), torch.bincount(place, weight)[sample].to(torch.float64)
    far = torch.pdist(points, 1.0) if kernel == "laplace" else torch.pdist(points).square()
    one, other = torch.triu_indices(len(points), len(points), 1, device=table.device)
    far, order = far.sort()
    pairs = (mass[one] * mass[other])[order].masked_fill(far == 0, 0).cumsum(0)
    if not len(far) or not far[-1] > 0:
        return 1.0
    return 1 / float(far[torch.searchsorted(pairs, pairs[-1:] / 2)])
