"""Measures of trees and clusterings: size of explanations, homogeneity, agreement, costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import adjusted_mutual_info_score, adjusted_rand_score, normalized_mutual_info_score
from sklearn.metrics.cluster import contingency_matrix
from torch import Tensor

from neonxc.common.result import Result
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
    """Weighted average depth: the mean number of tests on the path of a training point.

    Laber, Murtinho and Oliveira, "Shallow decision trees for explainable k-means clustering", 2023, Eq. 2.

    Parameters
    ----------
    tree : ThresholdTree
    """
    return _average(tree, tree.depths)


def waes(tree: ThresholdTree) -> float:
    """Weighted average explanation size: the mean number of tests that no later test makes redundant.

    Two tests of the same column in the same direction are one condition (the paper cited in :func:`wad`, Eq. 3).

    Parameters
    ----------
    tree : ThresholdTree
    """
    return _average(tree, tree.explanation_sizes)


def label_agreement(labels: Any, reference: Any) -> dict[str, float]:
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
    pair = _codes(in_order_of(reference, labels, "reference", "labels")), _codes(labels)
    return {
        "ari": float(adjusted_rand_score(*pair)),
        "ami": float(adjusted_mutual_info_score(*pair)),
        "nmi": float(normalized_mutual_info_score(*pair)),
    }


def clustering_accuracy(labels: Any, truth: Any) -> float:
    """Accuracy of a clustering under the best one-to-one matching of clusters with classes.

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
    return float(counts[linear_sum_assignment(counts, maximize=True)].sum() / len(clusters))


def _average(tree: ThresholdTree, values: Tensor) -> float:
    """Return the mean over all points of the values [nodes] of their leaves."""
    samples = tree.samples[tree.leaves]
    return float((values[tree.leaves] * samples).sum() / samples.sum())


def interpretability(labels: Any, foi: Any) -> float:
    """Interpretability of a clustering: the least share that the main value of interest has in a cluster.

    Saisubramanian, Galhotra and Zilberstein, "Balancing the tradeoff between clustering value and
    interpretability", 2020, Definition 1.

    Parameters
    ----------
    labels : array-like [n]
        Clusters; points of label -1 (noise) are left out.
    foi : array-like [n]
        Value of interest of every point: numbers or names. A missing one is a value of its own.

    Returns
    -------
    float
        In (0, 1]; 1 where all points of each cluster have one value.

    Raises
    ------
    ValueError
        Not one label and one value for each point.

    Examples
    --------
    >>> from neonxc.evaluation import interpretability
    >>> interpretability([0, 0, 0, 1, 1], ["cook", "cook", "nurse", "nurse", "nurse"])
    0.6666666666666666
    """
    return float(interpretabilities(labels, foi).min())


def interpretabilities(labels: Any, foi: Any) -> np.ndarray:
    """Share of the most frequent value of interest in each cluster, [K], in the order of the sorted labels.

    Parameters and errors are those of :func:`interpretability`, which is the least of them.
    """
    values = as_array(in_order_of(foi, labels, "foi", "labels"))
    codes, _ = pd.factorize(pd.Series(values), use_na_sentinel=False)
    positions, _, clustered = as_labels(labels, len(codes), torch.device("cpu"))
    counts = contingency_matrix(positions[clustered], codes[clustered])
    return np.asarray(counts.max(1) / counts.sum(1))


@dataclass(frozen=True, repr=False)
class Agreement(Result):
    """Result of :func:`agreement`.

    Attributes
    ----------
    classes : ndarray [K]
    network, tree : DataFrame [K, columns]
        Share of each column in the positive relevance of a cluster, 0 to 1, by the network and by the tree.
    correlation : ndarray [K]
        Spearman's rank correlation of the two over the columns, -1 to 1; NaN if a cluster has no points or one of
        the two uses no column.
    same : ndarray [K]
        Share of a cluster's points, 0 to 1, that the tree assigns to the same cluster; NaN for an empty cluster.
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
def agreement(net: NeuralizedClustering, tree: Any, X: Any, *, sample_weight: Any = None) -> Agreement:
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
        Weights >= 0 of the inputs; a series goes by its index. A weight of 2 is an input twice, in the mean
        relevance and in the shares of points; inputs of weight 0 are left out.

    Returns
    -------
    Agreement

    Raises
    ------
    TypeError
        If `net` is not a network.
    ValueError
        For invalid weights.
        If the tree has a single cluster, or its columns are not those of the network.

    Examples
    --------
    >>> import neonxc
    >>> from neonxc.evaluation import agreement
    >>> from neonxc.trees import IMM
    >>> from sklearn.cluster import KMeans
    >>> from sklearn.datasets import load_iris
    >>> X = load_iris(as_frame=True).data
    >>> model = KMeans(3, n_init=10, random_state=0).fit(X)
    >>> found = agreement(neonxc.neuralize(model, X), IMM(3).fit(X, labels=model.labels_), X)
    >>> bool(found.same.min() > 0.8)
    True
    """
    from neonxc.attribution.neon import NEON  # loads captum
    from neonxc.convert import neuralize

    check_network(net, "agreement", "; label_agreement(labels, reference) compares two clusterings")
    table = net.inputs.given(X)
    weight = weights_of(sample_weight, table)
    X = table.data
    columns = net.inputs.columns(X)
    units = net.inputs.units
    tree_net = neuralize(tree, columns)
    if len(tree_net.inputs.units) != len(units):
        raise ValueError(f"the tree has {len(tree_net.inputs.units)} columns, the network {len(units)}")
    summaries = (
        NEON(net).summary(X, 0, sample_weight=weight),
        NEON(tree_net).summary(columns, 0, sample_weight=weight),
    )
    classes = summaries[0].classes
    of_network, of_tree = (
        _shares(pd.DataFrame(summary.relevance, summary.classes, units).reindex(classes, fill_value=0.0))
        for summary in summaries
    )
    labels = as_array(net.predict(X)).ravel()
    tree_labels = as_array(tree_net.predict(columns)).ravel()
    same = _means(labels == tree_labels, labels, weight).reindex(classes).to_numpy()
    correlation = of_network.rank(axis=1).corrwith(of_tree.rank(axis=1), axis=1).to_numpy()  # Spearman's
    differs = labels != tree_labels
    if weight is not None:
        differs &= np.repeat(weight > 0, len(labels) // len(weight))
    return Agreement(classes, of_network, of_tree, correlation, same, np.flatnonzero(differs))


def _means(values: np.ndarray, labels: np.ndarray, weight: np.ndarray | None) -> pd.Series:
    """Mean of values [N] by label, of points that may have weights; without clusters whose weight is 0."""
    if weight is None:
        return pd.Series(values).groupby(labels).mean()
    weight = np.repeat(weight, len(labels) // len(weight))
    sums = pd.DataFrame({"values": values * weight, "weight": weight}).groupby(labels).sum()
    sums = sums[sums["weight"] > 0]
    return sums["values"] / sums["weight"]


def _shares(relevance: pd.DataFrame) -> pd.DataFrame:
    positive = relevance.clip(lower=0)
    total = positive.sum(axis=1)
    return positive.div(total.where(total > 0, 1), axis=0)


def _strongest(shares: pd.DataFrame) -> pd.Series:
    return shares.idxmax(axis=1).where(shares.max(axis=1) > 0, "")


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
        The cost, in squared units of the columns.
    """
    return _kmeans_cost(*_read(X, sample_weight), in_order_of(labels, X))


def _kmeans_cost(points: Tensor, weight: Tensor, labels: Any, name: str = "labels") -> float:
    index, number = _numbered(labels, points, name)
    weighted = torch.column_stack([points * weight[:, None], weight])
    sums = points.new_zeros(number, weighted.shape[1]).index_add_(0, index, weighted)
    means = sums[:, :-1] / sums[:, -1:].clamp(min=torch.finfo(points.dtype).tiny)
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


def cost_ratio(X: Any, labels: Any, reference: Any, sample_weight: Any = None) -> float:
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
    points, weight = _read(X, sample_weight)
    if (centers := as_array(reference)).ndim == 2:
        reference = _distances(points, centers).argmin(1)
    else:
        reference = in_order_of(reference, X, "reference")
    base = _kmeans_cost(points, weight, reference, "reference")
    cost = _kmeans_cost(points, weight, in_order_of(labels, X))
    if base == 0:
        return 1.0 if cost == 0 else float("inf")
    return cost / base


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
    index, number = _numbered(in_order_of(leaves, X, "leaves"), points)
    distances = _distances(points, centers) * weight[:, None]
    sums = points.new_zeros(number, distances.shape[1]).index_add_(0, index, distances)
    return float(sums.amin(1).sum())


def _read(X: Any, sample_weight: Any) -> tuple[Tensor, Tensor]:
    """Points and their weights, in float64."""
    points = Table(Table.read(X).dense()).tensor.to(torch.float64)
    weight = as_weights(in_order_of(sample_weight, X, "sample_weight"), len(points), points.device)
    if not float(weight.sum()) > 0:
        raise ValueError("sample_weight needs weights >= 0, and not all of them 0")
    return points, weight


def _numbered(labels: Any, points: Tensor, name: str = "labels") -> tuple[Tensor, int]:
    """The numbers of the points' clusters, and the number of clusters."""
    index = _codes(labels)
    if index.shape != (len(points),):
        raise ValueError(f"{name} needs one label per point, shape ({len(points)},), got {index.shape}")
    return torch.from_numpy(index).to(points.device), len({*index.tolist()})


def _codes(labels: Any) -> np.ndarray:
    """Labels as numbers of clusters; noise is one of them."""
    values = label_array(labels)
    return pd.factorize(values)[0] if values.ndim == 1 else values


def _distances(points: Tensor, centers: Any) -> Tensor:
    """Squared distances to the centers, [n, k]."""
    centers = Table.read(centers, name="centers").tensor.to(points)
    if centers.shape[1] != points.shape[1]:
        raise ValueError(f"centers have {centers.shape[1]} columns, X has {points.shape[1]}")
    return torch.cdist(points, centers, compute_mode="donot_use_mm_for_euclid_dist").square()
