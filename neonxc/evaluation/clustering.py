"""Measures of trees and clusterings: size of explanations, homogeneity, agreement, costs.

With weights w_i of the points x_i, clusters C_k of mean mu_k, leaves l with n_l points, and reference centers c_k:

    wad               sum_l n_l depth(l) / sum_l n_l
    waes              the same of the number of conditions on the path to l, where the tests of a column in one
                      direction are one condition
    accuracy          fraction of the points whose cluster is matched with their class, of the best one-to-one
                      matching
    interpretability  min over k of the largest fraction of C_k that has one value of interest
    k-means cost      sum_k sum over i in C_k of w_i |x_i - mu_k|^2
    k-center cost     max_k min over c in C_k of max over i in C_k of dist(x_i, c)
    cost ratio        k-means cost of the clustering / k-means cost of the reference clustering
    surrogate cost    sum_l min_k sum over i in l of w_i |x_i - c_k|^2
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import adjusted_mutual_info_score, adjusted_rand_score, normalized_mutual_info_score
from sklearn.metrics.cluster import contingency_matrix
from torch import Tensor

from neonxc.common.memory import CACHE, blocks
from neonxc.common.numbers import plural
from neonxc.common.result import Result
from neonxc.common.types import ArrayLike, TableLike
from neonxc.common.warnings import deprecated
from neonxc.data.frames import in_order_of, reads_tables
from neonxc.data.inputs import as_array, as_weights
from neonxc.data.labels import as_labels, label_array
from neonxc.data.table import Table
from neonxc.data.weights import weights_of
from neonxc.network import NeuralizedClustering, check_network

if TYPE_CHECKING:
    from neonxc.trees import ThresholdTree


def wad(tree: ThresholdTree) -> float:
    """Compute the weighted average depth: the mean number of tests on the path of a training point.

    Laber, Murtinho and Oliveira, "Shallow decision trees for explainable k-means clustering", 2023, Eq. 2.

    Parameters
    ----------
    tree : ThresholdTree
    """
    return _average(tree, tree.depths)


def waes(tree: ThresholdTree) -> float:
    """Compute the weighted average explanation size: the mean number of tests that no later test makes redundant.

    Two tests of the same column in the same direction are one condition (the paper cited in :func:`wad`, Eq. 3).

    Parameters
    ----------
    tree : ThresholdTree
    """
    return _average(tree, tree.explanation_sizes)


def label_agreement(labels: ArrayLike, reference: ArrayLike) -> dict[str, float]:
    """Compute the adjusted Rand index and mutual information with a reference clustering.

    Parameters
    ----------
    labels, reference : array-like [n]

    Returns
    -------
    dict
        "ari" (adjusted Rand index), "ami" (adjusted mutual information) and "nmi" (normalized mutual information).
        All are 1 for equal clusterings, independently of the label values.
    """
    reference_clusters = _codes(in_order_of(reference, labels, "reference", "labels"))
    clusters = _codes(labels)
    return {
        "ari": float(adjusted_rand_score(reference_clusters, clusters)),
        "ami": float(adjusted_mutual_info_score(reference_clusters, clusters)),
        "nmi": float(normalized_mutual_info_score(reference_clusters, clusters)),
    }


def clustering_accuracy(labels: ArrayLike, truth: ArrayLike) -> float:
    """Compute the accuracy of a clustering under the best one-to-one matching of clusters with classes.

    Parameters
    ----------
    labels : array-like [n]
        Clusters.
    truth : array-like [n]
        Classes; their number may differ from the number of clusters.

    Returns
    -------
    float
        Accuracy, 0 to 1. The matching is found by the Hungarian method.

    Raises
    ------
    ValueError
        If there are no points, or the numbers of labels and classes differ.

    Examples
    --------
    >>> from neonxc.evaluation import clustering_accuracy
    >>> clustering_accuracy([1, 1, 0, 0, 0], ["a", "a", "a", "b", "b"])
    0.8
    """
    clusters = _codes(labels)
    classes = _codes(in_order_of(truth, labels, "truth", "labels"))
    if clusters.ndim != 1 or clusters.shape != classes.shape or not len(clusters):
        raise ValueError(
            f"labels and truth need one value per point, both shape (n,); got {clusters.shape} and {classes.shape}"
        )
    counts = contingency_matrix(classes, clusters)
    matching = linear_sum_assignment(counts, maximize=True)
    n_matched = counts[matching].sum()
    return float(n_matched / len(clusters))


def _average(tree: ThresholdTree, values: Tensor) -> float:
    """Return the mean over all points of the values [nodes] of their leaves."""
    samples = tree.samples[tree.leaves]
    return float((values[tree.leaves] * samples).sum() / samples.sum())


def interpretability(labels: ArrayLike, foi: ArrayLike) -> float:
    """Compute the smallest fraction that the main value of interest has in a cluster.

    Saisubramanian, Galhotra and Zilberstein, "Balancing the tradeoff between clustering value and
    interpretability", 2020, Definition 1.

    Parameters
    ----------
    labels : array-like [n]
        Clusters; points of label -1 (noise) are left out.
    foi : array-like [n]
        Value of interest of every point: numbers or names. Missing values count as one more value.

    Returns
    -------
    float
        In (0, 1]; 1 where all points of each cluster have one value.

    Raises
    ------
    ValueError
        If there is not one label and one value for each point.

    Examples
    --------
    >>> from neonxc.evaluation import interpretability
    >>> interpretability([0, 0, 0, 1, 1], ["cook", "cook", "nurse", "nurse", "nurse"])
    0.6666666666666666
    """
    return float(interpretabilities(labels, foi).min())


def interpretabilities(labels: ArrayLike, foi: ArrayLike) -> np.ndarray:
    """Compute the fraction of each cluster that has its most frequent value of interest, [K].

    Clusters are in the order of the sorted labels. Parameters and errors are those of :func:`interpretability`,
    which is the minimum.
    """
    values = as_array(in_order_of(foi, labels, "foi", "labels"))
    codes, _ = pd.factorize(pd.Series(values), use_na_sentinel=False)
    positions, _, clustered = as_labels(labels, len(codes), torch.device("cpu"))
    counts = contingency_matrix(positions[clustered], codes[clustered])  # [K, values]
    return np.asarray(counts.max(1) / counts.sum(1))


@dataclass(frozen=True, repr=False)
class Agreement(Result):
    """Result of :func:`agreement`.

    Attributes
    ----------
    classes : ndarray [K]
        Labels of the clusters.
    network, tree : DataFrame [K, columns]
        Fraction of each column in the positive relevance of a cluster, 0 to 1, by the network and by the tree.
    correlation : ndarray [K]
        Spearman's rank correlation of the two over the columns, -1 to 1; NaN if a cluster has no points or one of
        the two uses no column.
    same : ndarray [K]
        Fraction of a cluster's points, 0 to 1, that the tree assigns to the same cluster; NaN for an empty one.
    rows : ndarray
        The points that the two assign to different clusters.
    """

    classes: np.ndarray
    network: pd.DataFrame
    tree: pd.DataFrame
    correlation: np.ndarray
    same: np.ndarray
    rows: np.ndarray

    def to_frame(self) -> pd.DataFrame:
        """Return one row per cluster.

        Returns
        -------
        DataFrame
            Index: the cluster. Columns: "correlation" and "same", as in the attributes, "network" and "tree", the
            columns that have most of the positive relevance by the two.
        """
        values = {
            "correlation": self.correlation,
            "same": self.same,
            "network": _strongest(self.network),
            "tree": _strongest(self.tree),
        }
        return pd.DataFrame(values).rename_axis("cluster")

    @property
    def frame(self) -> pd.DataFrame:
        """The table; deprecated since 0.4.0, use :meth:`to_frame`."""
        deprecated("Agreement.frame", "to_frame()")
        return self.to_frame()


@reads_tables
def agreement(
    net: NeuralizedClustering, tree: object, X: TableLike, *, sample_weight: ArrayLike | None = None
) -> Agreement:
    """Compare the attribution of a clustering with a tree that explains it, cluster by cluster.

    The tree is converted to a network (:func:`neonxc.neuralize`), so that both compute relevance of the columns.

    Parameters
    ----------
    net : NeuralizedClustering
        Network of the clustering.
    tree : ThresholdTree or fitted tree explainer
        A tree with at least two leaves on the columns of X, or on the features of the network if it has a feature
        network.
    X : array, frame or tensor [N, ...], or path
        Inputs of `net`.
    sample_weight : array-like [N], optional
        Weights >= 0 of the inputs; a series is matched by its index. In the mean relevance and in the fractions of
        points, an input of weight 2 counts twice, and inputs of weight 0 are left out.

    Returns
    -------
    Agreement

    Raises
    ------
    TypeError
        If `net` is not a network.
    ValueError
        If weights are invalid, the tree has a single cluster, or its columns are not those of the network.

    Examples
    --------
    >>> import neonxc
    >>> from neonxc.evaluation import agreement
    >>> from neonxc.trees import IMM
    >>> from sklearn.cluster import KMeans
    >>> from sklearn.datasets import load_iris
    >>> X = load_iris(as_frame=True).data
    >>> model = KMeans(3, n_init=10, random_state=0).fit(X)
    >>> comparison = agreement(neonxc.neuralize(model, X), IMM(3).fit(X, labels=model.labels_), X)
    >>> bool(comparison.same.min() > 0.8)
    True
    """
    from neonxc.attribution.summary import relevance_by_cluster
    from neonxc.convert import neuralize

    check_network(net, "agreement", "; label_agreement(labels, reference) compares two clusterings")
    table = net.inputs.given(X)
    weight = weights_of(sample_weight, table)
    X = table.data
    columns = net.inputs.columns(X)
    features = net.inputs.units
    tree_net = neuralize(tree, columns)
    n_tree_features = len(tree_net.inputs.units)
    if n_tree_features != len(features):
        raise ValueError(f"the tree has {plural(n_tree_features, 'column')}, the network {len(features)}")

    # fractions of the positive relevance, with the clusters of the network as rows
    classes = net.classes_
    relevance = pd.DataFrame(relevance_by_cluster(net, table, weight), classes, features)
    of_tree = relevance_by_cluster(tree_net, tree_net.inputs.given(columns), weight)
    fractions = _positive_fractions(relevance)
    tree_relevance = pd.DataFrame(of_tree, tree_net.classes_, features)
    tree_fractions = _positive_fractions(tree_relevance.reindex(classes, fill_value=0.0))
    correlation = fractions.rank(axis=1).corrwith(tree_fractions.rank(axis=1), axis=1)  # Spearman's

    labels = as_array(net.predict(X)).ravel()
    tree_labels = as_array(tree_net.predict(columns)).ravel()
    same = _means(labels == tree_labels, labels, weight).reindex(classes)
    differs = labels != tree_labels
    if weight is not None:
        differs &= np.repeat(weight > 0, len(labels) // len(weight))  # an input may have several decisions
    rows = np.flatnonzero(differs)
    return Agreement(classes, fractions, tree_fractions, correlation.to_numpy(), same.to_numpy(), rows)


def _means(values: np.ndarray, labels: np.ndarray, weight: np.ndarray | None) -> pd.Series:
    """Average values [N] by label over points that may have weights; clusters of weight 0 are left out."""
    if weight is None:
        return pd.Series(values).groupby(labels).mean()
    weight = np.repeat(weight, len(labels) // len(weight))
    sums = pd.DataFrame({"values": values * weight, "weight": weight}).groupby(labels).sum()
    sums = sums[sums["weight"] > 0]
    return sums["values"] / sums["weight"]


def _positive_fractions(relevance: pd.DataFrame) -> pd.DataFrame:
    """Return the fraction of each feature in the positive relevance of the clusters, [K, features]."""
    positive = relevance.clip(lower=0)
    totals = positive.sum(axis=1)
    return positive.div(totals.where(totals > 0, 1), axis=0)


def _strongest(fractions: pd.DataFrame) -> pd.Series:
    """Return the column with the largest fraction of each cluster; "" where all fractions are 0."""
    has_relevance = fractions.max(axis=1) > 0
    return fractions.idxmax(axis=1).where(has_relevance, "")


def kmeans_cost(X: TableLike, labels: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
    """Compute the sum of squared distances of points to the mean of their cluster.

    Parameters
    ----------
    X : array-like, data frame or tensor [n, d]
    labels : array-like [n]
    sample_weight : array-like [n], optional

    Returns
    -------
    float
        The cost, in squared units of the columns.
    """
    points, weight = _read(X, sample_weight)
    return _kmeans_cost(points, weight, in_order_of(labels, X))


def _kmeans_cost(points: Tensor, weight: Tensor, labels: ArrayLike, name: str = "labels") -> float:
    """Compute the k-means cost of points [n, d] with weights [n]."""
    index, n_clusters = _numbered(labels, points, name)
    in_cache = blocks(len(points), 3 * points.element_size() * points.shape[1], points.device, CACHE)
    sums = points.new_zeros(n_clusters, points.shape[1])
    has_weights = bool((weight != 1).any())
    for rows in in_cache:
        values = points[rows]
        if has_weights:
            values = values * weight[rows, None]
        sums.index_add_(0, index[rows], values)
    weights = points.new_zeros(n_clusters).index_add_(0, index, weight)
    tiny = torch.finfo(points.dtype).tiny  # clusters of weight 0 have no mean
    means = sums / weights.clamp(min=tiny)[:, None]
    # the difference is squared in its place
    squared_distances = [means[index[rows]].sub_(points[rows]).square_().sum(1) for rows in in_cache]
    return float(weight @ torch.cat(squared_distances))


def kcenter_cost(
    X: TableLike,
    labels: ArrayLike,
    metric: str | Callable[..., float] = "euclidean",
    metric_params: dict[str, Any] | None = None,
) -> float:
    """Compute the largest distance of a point to the center of its cluster, the objective of k-center.

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
    index, _ = _numbered(in_order_of(labels, X), points.rows)
    solution, _ = InterpretableProblem(points, index).solution(index)
    return solution.value


def cost_ratio(
    X: TableLike, labels: ArrayLike, reference: ArrayLike, sample_weight: ArrayLike | None = None
) -> float:
    """Compute the price of explainability: the k-means cost of a clustering divided by that of its reference.

    Moshkovitz et al., "Explainable k-means and k-medians clustering", 2020.

    Parameters
    ----------
    X : array-like, data frame or tensor [n, d]
    labels : array-like [n]
        Labels of the tree's clustering. Its centers are the means of its clusters.
    reference : array-like [n] or [k, d]
        Labels of the reference clustering, or its centers, to the nearest of which every point is assigned. Its
        cost is that of this assignment: squared distances to the means of its clusters, and not to the centers,
        which differ from the means if k-means has not converged.
    sample_weight : array-like [n], optional

    Returns
    -------
    float
        At least 1 if the reference is a local optimum of k-means; infinite if the cost of the reference is 0.

    Raises
    ------
    ValueError
        If X, labels, centers or weights cannot be used.

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
    (ratio,) = cost_ratios(X, [labels], reference, sample_weight)
    return ratio


def cost_ratios(
    X: TableLike,
    clusterings: Sequence[ArrayLike],
    reference: ArrayLike,
    sample_weight: ArrayLike | None = None,
) -> list[float]:
    """Compute the :func:`cost_ratio` of the labels of each of several clusterings of the same points."""
    points, weight = _read(X, sample_weight)
    centers = as_array(reference)
    if centers.ndim == 2:
        reference = _squared_distances(points, centers).argmin(1)
    else:
        reference = in_order_of(reference, X, "reference")
    reference_cost = _kmeans_cost(points, weight, reference, "reference")
    costs = [_kmeans_cost(points, weight, in_order_of(labels, X)) for labels in clusterings]
    if reference_cost == 0:
        return [1.0 if cost == 0 else float("inf") for cost in costs]
    return [cost / reference_cost for cost in costs]


def surrogate_cost(
    X: TableLike, leaves: ArrayLike, centers: TableLike, sample_weight: ArrayLike | None = None
) -> float:
    """Compute the sum of squared distances of points to the best reference center of their leaf.

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
    index, n_leaves = _numbered(in_order_of(leaves, X, "leaves"), points)
    costs = _squared_distances(points, centers) * weight[:, None]  # [n, k]
    sums = points.new_zeros(n_leaves, costs.shape[1]).index_add_(0, index, costs)
    return float(sums.amin(1).sum())


def _read(X: TableLike, sample_weight: ArrayLike | None) -> tuple[Tensor, Tensor]:
    """Return the points and their weights in float64."""
    points = Table(Table.read(X).dense()).tensor.to(torch.float64)
    weight = as_weights(in_order_of(sample_weight, X, "sample_weight"), len(points), points.device)
    if not float(weight.sum()) > 0:
        raise ValueError("sample_weight needs weights >= 0, and not all of them 0")
    return points, weight


def _numbered(labels: ArrayLike, points: Tensor, name: str = "labels") -> tuple[Tensor, int]:
    """Return the number of each point's cluster, [n], and the number of clusters."""
    index = _codes(labels)
    if index.shape != (len(points),):
        raise ValueError(f"{name} needs one label per point, shape ({len(points)},), got {index.shape}")
    n_clusters = len({*index.tolist()})
    return torch.from_numpy(index).to(points.device), n_clusters


def _codes(labels: ArrayLike) -> np.ndarray:
    """Return labels [n] as numbers of clusters, of which noise is one; arrays of other shapes stay as they are."""
    values = label_array(labels)
    if values.ndim != 1:
        return values
    codes, _ = pd.factorize(values)
    return codes


def _squared_distances(points: Tensor, centers: TableLike) -> Tensor:
    """Return the squared distances to the centers, [n, k]."""
    centers = Table.read(centers, name="centers").tensor.to(points)
    if centers.shape[1] != points.shape[1]:
        raise ValueError(f"centers have {plural(centers.shape[1], 'column')}, X has {points.shape[1]}")
    return torch.cdist(points, centers, compute_mode="donot_use_mm_for_euclid_dist").square()
