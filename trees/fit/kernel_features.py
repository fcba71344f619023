"""Features of a kernel for Kernel IMM, each a function of one raw column, and distances in its feature space.

    anchor feature       exp(-gamma (x_j - a)^2) or exp(-gamma |x_j - a|), for an anchor a of the column
    Taylor feature m     sqrt((2 gamma)^m / m!) x_j^m exp(-gamma x_j^2)
    squared distance     |Phi(x) - mu_c|^2 = k(x, x) - 2/|c| sum_{y in c} k(x, y) + 1/|c|^2 sum_{y, z in c} k(y, z)

A threshold on a feature corresponds to at most two intervals of its raw column.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from neonxc.common.processes import ALONE, Ranks
from neonxc.trees.fit.problem import Problem
from neonxc.trees.fit.sparse_points import Points

BLOCK = 1 << 18  # entries of a block of the kernel matrix on a CPU
BUDGET = 1 << 26  # the same on other devices
SAMPLE = 1000  # number of distinct points from whose distances a default gamma is computed
POWER = {"gaussian": 2.0, "laplace": 1.0}  # of the distance, which is Euclidean or the sum over the columns


def kernel_of(distances: Tensor, kernel: str, gamma: float) -> Tensor:
    """Compute the kernel of two points at the given distances, which are overwritten."""
    return distances.pow_(POWER[kernel]).mul_(-gamma).exp_()


class KernelFeatures:
    """Matrix of the kernel features on which Kernel IMM [1]_ makes its cuts.

    The features are the kernel between a column's values and its anchors, or the first terms
    ``sqrt((2γ)^m / m!) x^m exp(-γx²)`` of the Gaussian kernel's Taylor expansion. They are corrected for rounding
    errors: equal raw values have equal features, and the absolute value of a feature is unimodal in the raw
    values. The values above a threshold therefore form at most two intervals of the raw column.

    The class has the methods of :class:`~neonxc.trees.fit.points.Dense`, but computes columns when they
    are asked for, because all of them together may not fit into memory.

    Parameters
    ----------
    points : Tensor [n, d] of float64
        The raw columns. Taylor features need columns of mean 0, which make ``2γx²`` smallest, and a `size` that
        exceeds the largest ``2γx²`` by a few times its square root. Points far beyond cannot be distinguished.
    kind : {"anchors", "taylor"}
    kernel : {"gaussian", "laplace"}
        Kernel of the anchor features. Taylor features need the Gaussian kernel.
    gamma : float
    size : int
        Maximum number of features per raw column.

    References
    ----------
    .. [1] M. Fleissner, L. C. Vankadara, D. Ghoshdastidar, "Explaining kernel clustering via decision trees", ICLR
       2024.

    Examples
    --------
    >>> import torch
    >>> from neonxc.trees.fit.kernel_features import KernelFeatures
    >>> KernelFeatures(torch.tensor([[0.0], [2.0]]).double(), "anchors", "laplace", 0.5, 2).columns(0, 2)
    tensor([[1.0000, 0.3679],
            [0.3679, 1.0000]], dtype=torch.float64)
    """

    dtype = torch.float64
    few_entries = False

    def __init__(self, points: Tensor, kind: str, kernel: str, gamma: float, size: int) -> None:
        self.points = points
        self.kernel = kernel
        self.gamma = gamma
        self.device = points.device
        self.anchors = anchors_of(points, size) if kind == "anchors" else None
        self.size = size if self.anchors is None else self.anchors.shape[1]
        self.n = len(points)
        self.d = points.shape[1] * self.size

    def chunks(self, ranks: Ranks = ALONE) -> Iterator[tuple[int, int]]:
        """Return the ranges of features that belong to the same raw column."""
        return ((first, first + self.size) for first in range(0, self.d, self.size))

    def columns(self, first: int, last: int) -> Tensor:
        """Compute features `first` to `last` (exclusive), [last - first, n]; raw column i begins at `i * size`."""
        raw = range(first // self.size, (last - 1) // self.size + 1)
        features = torch.cat([self._features(column) for column in raw])
        return features[first - raw.start * self.size : last - raw.start * self.size]

    def column(self, feature: int) -> Tensor:
        """Return one feature, [n]."""
        return self.columns(feature, feature + 1)[0]

    def rows(self, rows: slice) -> Tensor:
        """Return all features of a slice of the points, [points, d]."""
        return torch.cat([self.columns(*chunk)[:, rows] for chunk in self.chunks()]).T

    def means(self, labels: Tensor, k: int, weight: Tensor | None) -> Tensor:
        """Compute the weighted means of the features of every cluster, [k, d]."""
        mass = torch.nn.functional.one_hot(labels, k).to(torch.float64)
        if weight is not None:
            mass = mass * weight[:, None]
        sums = torch.cat([self.columns(*chunk) @ mass for chunk in self.chunks()])
        return (sums / mass.sum(0)).T.contiguous()

    def _features(self, column: int) -> Tensor:
        """Compute the features of a raw column, [size, n]."""
        values = self.points[:, column]
        if self.anchors is None:
            distinct, index = values.abs().unique(return_inverse=True)
            m = torch.arange(self.size, dtype=torch.float64, device=self.device)[:, None]
            sizes = _taylor(distinct, self.gamma, m)
            top = (m / (2 * self.gamma)).sqrt()  # where the feature is largest
        else:
            distinct, index = values.unique(return_inverse=True)
            top = self.anchors[column][:, None]
            sizes = kernel_of((distinct - top).abs(), self.kernel, self.gamma)

        # rounding must not break that the size rises up to the top and falls after it
        is_rising = distinct <= top
        up = sizes.masked_fill(~is_rising, 0).cummax(1).values
        down = sizes.masked_fill(is_rising, 0).flip(1).cummax(1).values.flip(1)
        features = torch.where(is_rising, up, down).index_select(1, index)
        if self.anchors is None:
            features[1::2] *= values.sign()  # odd powers
        return features


def anchors_of(points: Tensor, max_anchors: int) -> Tensor:
    """Choose anchors of every column of points [n, d]: its distinct values, or `max_anchors` quantiles of them.

    With all distinct values, the features are those of the paper, in which all points are anchors.

    Returns
    -------
    Tensor [d, A]
        Anchors in ascending order. A is the largest number of anchors of a column; a column with fewer anchors
        repeats its last one.
    """
    distinct = [column.unique() for column in points.T]
    n_anchors = min(max_anchors, max(map(len, distinct)))
    number = torch.arange(n_anchors, device=points.device)
    anchors = []
    for values in distinct:
        if len(values) <= max_anchors:
            index = number.clamp(max=len(values) - 1)
        else:  # the middle of each of `max_anchors` equal parts
            index = (2 * number + 1) * len(values) // (2 * max_anchors)
        anchors.append(values[index])
    return torch.stack(anchors)


def _taylor(size: Tensor, gamma: float, m: Tensor) -> Tensor:
    """Compute the size of Taylor feature m of numbers with the given absolute values; the two are broadcast."""
    scaled = size * math.sqrt(2 * gamma)
    return (torch.xlogy(m, scaled) - torch.lgamma(m + 1) / 2 - scaled.square() / 2).exp_()


def kernel_points(problem: Problem, features: str) -> Tensor:
    """Return the raw columns in the units in which the kernel measures distances, [n, d] of float64.

    If costs are measured behind a scaler, the columns are divided by their standard deviations. For Taylor
    features they are also shifted to mean 0. Anchor features must not be shifted: the rounding error would
    distinguish values at equal distance from an anchor.
    """
    points = problem.table.columns(0, problem.table.d).T.to(torch.float64)
    weight = torch.ones_like(points[:, 0]) if problem.weight is None else problem.weight
    fraction = weight / weight.sum()
    centred = points - fraction @ points
    if features == "taylor":
        points = centred
    if problem.reference.space is problem.table:
        return points
    scale = (fraction @ centred.square()).sqrt()
    return points / torch.where(scale > 0, scale, 1)


def feature_space_distances(
    X: Tensor, labels: Tensor, k: int, kernel: str, gamma: float, weight: Tensor | None = None
) -> Tensor:
    """Compute the squared distance of every point to the mean of every cluster in the feature space of a kernel.

    ``‖Φ(x) − μ_c‖² = κ(x, x) − 2/|c| Σ_{y∈c} κ(x, y) + 1/|c|² Σ_{y,z∈c} κ(y, z)`` is the cost that kernel k-means
    minimizes, and that Kernel ExKMC minimizes over interval cuts. With weights, sums and sizes are weighted.

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

    Notes
    -----
    The time is proportional to ``n² d / 2``, because the kernel is computed once for each pair of points. Memory
    is needed for about ``n (d + 2k)`` numbers and one block of the kernel matrix.

    Examples
    --------
    >>> import torch
    >>> from neonxc.trees.fit.kernel_features import feature_space_distances
    >>> X = torch.tensor([[0.0], [0.0], [9.0]])
    >>> feature_space_distances(X, torch.tensor([0, 0, 1]), 2, "gaussian", 1.0)
    tensor([[0., 2.],
            [0., 2.],
            [2., 0.]], dtype=torch.float64)
    """
    points = X.to(torch.float64)
    points = points - points.mean(0)  # reduces the rounding errors of distances
    fraction = torch.nn.functional.one_hot(labels, k).to(torch.float64)  # [n, k], of the weight of cluster c
    if weight is not None:
        fraction = fraction * weight[:, None]
    fraction = fraction / fraction.sum(0)
    means = torch.zeros_like(fraction)  # of the kernel between a point and the points of a cluster
    n_entries = BLOCK if points.device.type == "cpu" else BUDGET
    side = max(1, int(n_entries**0.5))
    blocks = [slice(first, first + side) for first in range(0, len(points), side)]
    for number, rows in enumerate(blocks):
        for columns in blocks[number:]:  # the kernel matrix is symmetric
            distances = torch.cdist(points[rows], points[columns], p=POWER[kernel])
            block = kernel_of(distances, kernel, gamma)
            means[rows] += block @ fraction[columns]
            if columns != rows:
                means[columns] += block.T @ fraction[rows]
    # k(x, x) = 1
    return means.mul(-2).add_(1).add_((means * fraction).sum(0)).clamp_(min=0)


def median_gamma(table: Points, kernel: str, weight: Tensor | None = None) -> float:
    """Compute 1 / median distance between distinct points of a sample (squared for the Gaussian kernel)."""
    all_points = table.columns(0, table.d).T
    points, index = torch.unique(all_points, dim=0, return_inverse=True)
    sample = slice(None, None, max(1, len(points) // SAMPLE))
    points = points[sample].to(torch.float64)
    mass = torch.bincount(index, weight)[sample].to(torch.float64)

    # the distance up to which pairs (i, j) have half of the weight of all pairs
    distances, order = torch.pdist(points, POWER[kernel]).sort()
    i, j = torch.triu_indices(len(points), len(points), 1, device=table.device)
    pair_mass = (mass[i] * mass[j])[order].masked_fill(distances == 0, 0).cumsum(0)
    if not len(distances) or not distances[-1] > 0:
        return 1.0
    median = torch.searchsorted(pair_mass, pair_mass[-1:] / 2)
    return 1 / float(distances[median]) ** POWER[kernel]
