"""Costs of clusterings: k-means, k-center, the surrogate cost of a tree, and the price of explainability."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from neonxc.common.processes import ALONE, Ranks
from neonxc.data.distributed import common_classes, common_type, readable
from neonxc.data.inputs import as_array, as_weights
from neonxc.data.table import Table


def kmeans_cost(X: Any, labels: Any, sample_weight: Any = None, *, group: Any = None) -> float:
    """Sum of squared distances of points to the mean of their cluster.

    Parameters
    ----------
    X : array-like, data frame or tensor [n, d]
    labels : array-like [n]
    sample_weight : array-like [n], optional
    group : torch.distributed.ProcessGroup, optional
        As for :func:`cost_ratio`.

    Returns
    -------
    float
        The cost, in squared units of the columns.
    """
    ranks = Ranks(group)
    points, weight = _read(X, sample_weight, ranks)
    return _kmeans_cost(points, weight, labels, "labels", ranks)


def _kmeans_cost(points: Tensor, weight: Tensor, labels: Any, name: str, ranks: Ranks) -> float:
    index, number = _numbered(labels, points, name, ranks)
    sums = points.new_zeros(number, points.shape[1] + 1)
    weighted = torch.cat([points * weight[:, None], weight[:, None]], 1)
    sums = ranks.sum(sums.index_add_(0, index, weighted))
    means = sums[:, :-1] / sums[:, -1:].clamp(min=torch.finfo(points.dtype).tiny)
    return float(ranks.sum(weight @ (points - means[index]).square().sum(1)))


def kcenter_cost(
    X: Any, labels: Any, metric: Any = "euclidean", metric_params: dict[str, Any] | None = None
) -> float:
    """Largest distance of a point to the center of its cluster: the objective of k-center.

    Parameters
    ----------
    X : array-like, data frame or tensor [n, d]
        As for :class:`neonxc.models.KCenter`.
    labels : array-like [n]
    metric : str or callable
    metric_params : dict, optional

    Returns
    -------
    float
        The distance, in units of the metric. The center of a cluster is the member with the smallest maximum
        distance to the other members, even if a fitted model used another center.

    Examples
    --------
    >>> from neonxc.evaluation import kcenter_cost
    >>> kcenter_cost([[0.0], [1], [3], [10]], [0, 0, 0, 1])
    2.0
    """
    from neonxc.models.interpretable.metric import fit_metric  # depends on this package
    from neonxc.models.interpretable.problem import InterpretableProblem

    table = Table.read(X)
    points = fit_metric(table, metric, metric_params).points(table)
    index, _ = _numbered(labels, points.rows)
    found, _ = InterpretableProblem(points, index).solution(index)
    return found.value


def cost_ratio(X: Any, labels: Any, reference: Any, sample_weight: Any = None, *, group: Any = None) -> float:
    """Price of explainability: the k-means cost of a clustering divided by that of its reference clustering.

    Moshkovitz et al., "Explainable k-means and k-medians clustering", 2020.

    Parameters
    ----------
    X : array-like, data frame or tensor [n, d]
    labels : array-like [n]
        Labels of the tree's clustering. Its centers are the means of its clusters.
    reference : array-like [n] or [k, d]
        Labels of the reference clustering, or its centers, to the nearest of which every point belongs. Its cost
        is that of this assignment: squared distances to the means of its clusters, not to the centers given, which
        differ from the means if k-means has not converged.
    sample_weight : array-like [n], optional
    group : torch.distributed.ProcessGroup, optional
        Sum the costs over the processes of the group. X, `labels`, `sample_weight` and `reference` labels are
        those of this process, which may have no rows. All processes must call the function, and all get the same
        ratio.

    Returns
    -------
    float
        At least 1 if the reference is a local optimum of k-means; infinite if the cost of the reference is 0.

    Raises
    ------
    ValueError
        If X, labels, centers or weights cannot be used. In a group, all processes raise the error of one process,
        and an error if their columns, types or centers differ.

    Examples
    --------
    >>> import numpy as np
    >>> from neonxc.evaluation import cost_ratio
    >>> X = np.array([[0.0], [1], [5], [6]])
    >>> cost_ratio(X, [0, 0, 1, 1], [0, 0, 1, 1])
    1.0
    >>> cost_ratio(X, [0, 1, 1, 1], [0, 0, 1, 1])
    14.0
    """
    ranks = Ranks(group)
    points, weight = _read(X, sample_weight, ranks)
    reference = as_array(reference)
    ranks.same(reference="centers" if reference.ndim == 2 else "labels")
    if reference.ndim == 2:
        with ranks.agreed():
            nearest = _distances(points, reference).argmin(1)
        ranks.same(centers=reference.shape)
        centers = torch.tensor(reference, dtype=torch.float64)
        if bool((ranks.max(centers) != ranks.min(centers)).any()):
            raise ValueError("the centers in reference differ between processes")
        reference = nearest
    base = _kmeans_cost(points, weight, reference, "reference", ranks)
    cost = _kmeans_cost(points, weight, labels, "labels", ranks)
    return cost / base if base > 0 else (1.0 if cost == 0 else float("inf"))


def surrogate_cost(X: Any, leaves: Any, centers: Any, sample_weight: Any = None) -> float:
    """Sum of squared distances of points to the best reference center of their leaf.

    Frost, Moshkovitz and Rashtchian, "ExKMC: Expanding explainable k-means clustering", 2020, Definition 1.

    Parameters
    ----------
    X : array-like, data frame or tensor [n, d]
    leaves : array-like [n]
        The leaf of every point, from ``tree.apply(X)``.
    centers : array-like [k, d]
        Reference centers.
    sample_weight : array-like [n], optional

    Returns
    -------
    float
        The cost. It is at least the k-means cost of the clustering that assigns every leaf to its best center.
    """
    points, weight = _read(X, sample_weight)
    index, number = _numbered(leaves, points)
    sums = points.new_zeros(number, len(centers))
    sums.index_add_(0, index, _distances(points, centers) * weight[:, None])
    return float(sums.amin(1).sum())


def _read(X: Any, sample_weight: Any, ranks: Ranks = ALONE) -> tuple[Tensor, Tensor]:
    """Points and their weights, in float64."""
    with ranks.agreed():
        X, rows = readable(X, ranks)
        table = Table(Table.read(X).dense())
        given = table.tensor[rows]
        points = given.to(torch.float64)
        weight = as_weights(sample_weight, len(points), points.device)
    ranks.same(columns=table.names or points.shape[1])
    common_type(len(given), given.dtype, ranks)
    if not float(ranks.sum(weight.sum())) > 0:
        raise ValueError("sample_weight needs weights >= 0, and not all of them 0")
    return points, weight


def _numbered(labels: Any, points: Tensor, name: str = "labels", ranks: Ranks = ALONE) -> tuple[Tensor, int]:
    """The numbers of the points' clusters, and the number of clusters of all ranks."""
    with ranks.agreed():
        values = as_array(labels)
        if values.shape != (len(points),):
            raise ValueError(f"{name} needs one label per point, shape ({len(points)},), got {values.shape}")
    classes = common_classes(values, ranks, name=name)
    return torch.from_numpy(np.searchsorted(classes, values)).to(points.device), len(classes)


def _distances(points: Tensor, centers: Any) -> Tensor:
    """Squared distances to the centers, [n, k]."""
    to = Table.read(centers, name="centers").tensor.to(points)
    if to.shape[1] != points.shape[1]:
        raise ValueError(f"centers have {to.shape[1]} columns, X has {points.shape[1]}")
    return torch.cdist(points, to, compute_mode="donot_use_mm_for_euclid_dist").square()
