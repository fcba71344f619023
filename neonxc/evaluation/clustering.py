"""Measures of a clustering by a tree: its cost, the size of its explanations, agreement with its reference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import adjusted_mutual_info_score, adjusted_rand_score, normalized_mutual_info_score
from sklearn.metrics.cluster import contingency_matrix
from torch import Tensor

from neonxc.inputs import as_array, as_batch

if TYPE_CHECKING:
    from neonxc.trees import ThresholdTree


def kmeans_cost(X: Any, labels: Any, sample_weight: Any = None) -> float:
    """Sum of squared distances of points to the mean of their cluster.

    Parameters
    ----------
    X : array-like, data frame or tensor [n, d]
    labels : array-like [n]
    sample_weight : array-like [n], optional

    Returns
    -------
    float
        In squared units of the columns.
    """
    points, weight = _read(X, sample_weight)
    index, k = _numbered(labels, points)
    member = torch.nn.functional.one_hot(index, k).to(points.dtype) * weight[:, None]
    means = (member.T @ points) / member.sum(0)[:, None].clamp(min=torch.finfo(points.dtype).tiny)
    return float(weight @ (points - means[index]).square().sum(1))


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
        In units of the metric. The center of a cluster is the member from which its farthest member is the least
        far, also where a fitted model had another one.

    Examples
    --------
    >>> from neonxc.evaluation import kcenter_cost
    >>> kcenter_cost([[0.0], [1], [3], [10]], [0, 0, 0, 1])
    2.0
    """
    from neonxc.models.interpretable.centers import Objective
    from neonxc.models.interpretable.distances import metric_of
    from neonxc.models.interpretable.table import as_table

    table = as_table(X)
    points = metric_of(table, metric, metric_params).points(table)
    index, k = _numbered(labels, points.rows)
    objective = Objective("kcenter")
    own = objective.far(points, objective.centers(points, index, k).rows).gather(1, index[:, None])
    return objective.value(own)


def cost_ratio(X: Any, labels: Any, reference: Any, sample_weight: Any = None) -> float:
    """Price of explainability: the k-means cost of a clustering over that of its reference clustering.

    Moshkovitz et al., "Explainable k-means and k-medians clustering", 2020.

    Parameters
    ----------
    X : array-like, data frame or tensor [n, d]
    labels : array-like [n]
        The clustering by a tree. Its centers are the means of its clusters.
    reference : array-like [n] or [k, d]
        The labels of the reference clustering, or its centers: every point then belongs to the nearest one.
    sample_weight : array-like [n], optional

    Returns
    -------
    float
        1 and more where the reference is a local optimum of k-means; infinite if the reference costs nothing.

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
    if as_array(reference).ndim == 2:
        points, weight = _read(X, sample_weight)
        base = float(weight @ _distances(points, reference).amin(1))
    else:
        base = kmeans_cost(X, reference, sample_weight)
    cost = kmeans_cost(X, labels, sample_weight)
    return cost / base if base > 0 else (1.0 if cost == 0 else float("inf"))


def surrogate_cost(X: Any, leaves: Any, centers: Any, sample_weight: Any = None) -> float:
    """Sum of squared distances of points to the reference center that is best for their leaf.

    Frost, Moshkovitz and Rashtchian, "ExKMC: Expanding explainable k-means clustering", 2020, Definition 1.

    Parameters
    ----------
    X : array-like, data frame or tensor [n, d]
    leaves : array-like [n]
        The leaf of every point, as ``tree.apply(X)`` has it.
    centers : array-like [k, d]
        Reference centers.
    sample_weight : array-like [n], optional

    Returns
    -------
    float
        At least the k-means cost of the clustering in which every leaf belongs to its best center.
    """
    points, weight = _read(X, sample_weight)
    index, k = _numbered(leaves, points)
    sums = points.new_zeros(k, len(centers))
    sums.index_add_(0, index, _distances(points, centers) * weight[:, None])
    return float(sums.amin(1).sum())


def wad(tree: ThresholdTree) -> float:
    """Weighted average depth: the mean number of tests on the path of a training point.

    Laber, Murtinho and Oliveira, "Shallow decision trees for explainable k-means clustering", 2023, Eq. 2.
    """
    return _average(tree, tree.depths)


def waes(tree: ThresholdTree) -> float:
    """Weighted average explanation size: the mean number of tests that no later test makes redundant.

    Two tests of the same column in the same direction are one condition (the paper cited in :func:`wad`, Eq. 3).
    """
    return _average(tree, tree.explanation_sizes)


def label_agreement(labels: Any, reference: Any) -> dict[str, float]:
    """Adjusted Rand index, adjusted and normalized mutual information with a reference clustering.

    Parameters
    ----------
    labels, reference : array-like [n]

    Returns
    -------
    dict
        "ari", "ami", "nmi"; 1 for equal clusterings, whatever their numbers are.
    """
    ours, theirs = as_array(labels), as_array(reference)
    return {
        "ari": float(adjusted_rand_score(theirs, ours)),
        "ami": float(adjusted_mutual_info_score(theirs, ours)),
        "nmi": float(normalized_mutual_info_score(theirs, ours)),
    }


def clustering_accuracy(labels: Any, truth: Any) -> float:
    """Share of the points that are right under the best matching of clusters with classes, one to one.

    Parameters
    ----------
    labels : array-like [n]
        Clusters.
    truth : array-like [n]
        Classes; there may be more or fewer of them than clusters.

    Returns
    -------
    float
        0 ... 1; the matching is found by the Hungarian method.

    Raises
    ------
    ValueError
        No points, or not one label and one class for each.

    Examples
    --------
    >>> from neonxc.evaluation import clustering_accuracy
    >>> clustering_accuracy([1, 1, 0, 0, 0], ["a", "a", "a", "b", "b"])
    0.8
    """
    ours, theirs = as_array(labels), as_array(truth)
    if ours.ndim != 1 or ours.shape != theirs.shape or not len(ours):
        raise ValueError(
            f"labels and truth need one value per point, both shape (n,); got {ours.shape} and {theirs.shape}"
        )
    counts = contingency_matrix(theirs, ours)
    return float(counts[linear_sum_assignment(counts, maximize=True)].sum() / len(ours))


def _average(tree: ThresholdTree, values: Tensor) -> float:
    leaves = tree.leaves
    samples = tree.samples[leaves]
    return float((values[leaves] * samples).sum() / samples.sum())


def _read(X: Any, sample_weight: Any) -> tuple[Tensor, Tensor]:
    """Points and their weights, in float64."""
    points = as_batch(X.toarray() if hasattr(X, "toarray") else X).tensor.to(torch.float64)
    if sample_weight is None:
        return points, points.new_ones(len(points))
    weight = torch.from_numpy(as_array(sample_weight).astype(np.float64)).to(points.device)
    if weight.shape != (len(points),):
        raise ValueError(f"sample_weight needs one weight per point, got shape {tuple(weight.shape)}")
    if not bool((weight >= 0).all()) or not bool((weight > 0).any()):
        raise ValueError("sample_weight needs weights >= 0, and not all of them 0")
    return points, weight


def _numbered(labels: Any, points: Tensor) -> tuple[Tensor, int]:
    """The numbers of the points' clusters, and how many clusters there are."""
    values = as_array(labels)
    if values.shape != (len(points),):
        raise ValueError(f"labels needs one label per point, shape ({len(points)},), got {values.shape}")
    classes, index = np.unique(values, return_inverse=True)
    return torch.from_numpy(index).to(points.device), len(classes)


def _distances(points: Tensor, centers: Any) -> Tensor:
    """Squared distances to the centers, [n, k]."""
    to = as_batch(centers, name="centers", device=points.device).tensor.to(torch.float64)
    if to.shape[1] != points.shape[1]:
        raise ValueError(f"centers have {to.shape[1]} columns, X has {points.shape[1]}")
    return torch.cdist(points, to, compute_mode="donot_use_mm_for_euclid_dist").square()
