"""Choice of the number of clusters: measures of k-means for several k, their stability, and a suggestion."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score, pairwise_distances, silhouette_score
from sklearn.pipeline import make_pipeline
from sklearn.utils import check_random_state

from neonxc.clusterings.neuralize_arguments import fitted
from neonxc.common.progress import progress_bar
from neonxc.common.result import Result
from neonxc.common.warnings import deprecated
from neonxc.data.frames import reads_tables
from neonxc.data.table import Table
from neonxc.data.weights import counted_weights, weights_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, repr=False)
class Choice(Result):
    """Result of :func:`choose_k`.

    Attributes
    ----------
    k : int
        The suggested number of clusters.
    reason : str
        The reason for the suggestion.
    rows : int
        Number of rows that were measured.
    """

    _measures: pd.DataFrame
    k: int
    reason: str
    rows: int

    def to_frame(self) -> pd.DataFrame:
        """Return one row for every number of clusters.

        Returns
        -------
        DataFrame
            Index: k. Columns:

            - ``inertia``: sum of squared distances to the centers, which falls with k;
            - ``silhouette``: -1 to 1, compares the distance to the own cluster with that to the next cluster;
            - ``stability``: mean adjusted Rand index between the clusters and those that k-means with other seeds
              finds on five random halves of the rows, at most 1. :func:`neonxc.explain` reports it too;
            - ``cost_ratio``: k-means cost of a tree with one leaf per cluster, divided by the inertia, at least 1.
        """
        return self._measures.copy()

    @property
    def frame(self) -> pd.DataFrame:
        """The table; deprecated since 0.4.0, use :meth:`to_frame`."""
        deprecated("Choice.frame", "to_frame()")
        return self._measures

    def plot(self) -> Figure:
        """Draw a curve of every measure, and mark the suggested number."""
        from neonxc.plot.curves import choice_curves  # loads matplotlib

        return choice_curves(self)

    def _remarks(self) -> list[str]:
        return [self.reason]


@reads_tables
def choose_k(
    X: Any,
    clusters: Iterable[int] = range(2, 11),
    *,
    preprocessing: Any = None,
    max_rows: int = 5000,
    random_state: Any = 0,
    sample_weight: Any = None,
) -> Choice:
    """Compare numbers of clusters for k-means.

    The suggestion is the number with the largest silhouette among those whose clusters are found again on half of
    the rows (a stability of at least 0.8). If there is none, it is the number with the largest stability.

    Parameters
    ----------
    X : array-like, data frame or tensor [n, d]
        Finite numbers on comparable scales, or the inputs of `preprocessing`.
    clusters : iterable of int
        Numbers of clusters to compare, each at least 2.
    preprocessing : scikit-learn transformer, optional
        Converts X to the numbers that are clustered, such as :func:`neonxc.data.preparation.prepare` makes. It is
        cloned. Trees cut the columns of X itself.
    max_rows : int
        Maximum number of rows; if there are more, a random sample is used.
    random_state : int, RandomState or None
        Seed for the sample of rows and for k-means; the halves are always the same.
    sample_weight : array-like [n], optional
        Weights >= 0 of the rows; a series goes by its index. A weight of 2 is a row twice, and rows of weight 0
        are left out: in the preprocessing, k-means, the trees and all measures. The sample and the halves are
        drawn from the rows.

    Returns
    -------
    Choice

    Raises
    ------
    ValueError
        If `clusters` is empty or contains a number below 2, if there are fewer distinct points than clusters, or
        fewer than two points for each cluster; or for invalid weights.
    TypeError
        If `clusters` is a single number.

    References
    ----------
    P. Rousseeuw, "Silhouettes: a graphical aid to the interpretation and validation of cluster analysis", 1987;
    U. von Luxburg, "Clustering stability: an overview", 2010, for halves of the rows; M. Moshkovitz et al.,
    "Explainable k-means and k-medians clustering", 2020, for the price of a tree.

    Examples
    --------
    >>> from sklearn.datasets import make_blobs
    >>> from neonxc.evaluation import choose_k
    >>> X, _ = make_blobs(200, centers=3, random_state=3)
    >>> choice = choose_k(X, range(2, 6))
    >>> choice.k
    3
    >>> choice.reason
    'k = 3 has the greatest silhouette (0.72) of those that are found again on half of the rows'
    """
    from neonxc.trees import ExShallow  # depends on this package

    if not isinstance(clusters, Iterable) or isinstance(clusters, str):
        raise TypeError(f"clusters needs several numbers of clusters, such as range(2, 11), got {clusters!r}")
    numbers = sorted({int(k) for k in clusters})
    if not numbers or numbers[0] < 2:
        raise ValueError(f"clusters needs numbers of at least 2, got {numbers}")
    table = Table.read(X)
    weight = weights_of(sample_weight, table)
    if weight is not None:
        table = table.take(np.flatnonzero(weight))
        weight = weight[weight > 0]
    if len(table) > max_rows:
        rows = np.sort(check_random_state(random_state).choice(len(table), max_rows, replace=False))
        table = table.take(rows)
        weight = None if weight is None else weight[rows]
    X = table.for_sklearn
    if preprocessing is not None:
        preprocessing = fitted(clone(preprocessing), X, weight)
    points = np.asarray(Table.read(X if preprocessing is None else preprocessing.transform(X)).tensor)
    if (different := Table(points).distinct()) <= numbers[-1]:
        raise ValueError(
            f"comparing up to {numbers[-1]} clusters needs more than {numbers[-1]} different rows, got {different}"
        )
    if len(points) // 2 < numbers[-1]:
        raise ValueError(
            f"comparing up to {numbers[-1]} clusters needs at least {2 * numbers[-1]} rows, because stability is "
            f"measured on halves of the rows; got {len(points)}"
        )
    measures = []
    for k in progress_bar(numbers, desc="numbers of clusters"):
        model = KMeans(k, n_init=10, random_state=random_state).fit(points, sample_weight=weight)
        unfitted = make_pipeline(preprocessing or "passthrough", KMeans(k, n_init=10))
        halves = refits(unfitted, lambda rows: table.take(rows).for_sklearn, np.arange(len(points)), k, weight)
        reference = "kmeans" if preprocessing is None else make_pipeline(preprocessing, model)
        centers = model.cluster_centers_ if preprocessing is None else None
        tree = ExShallow(n_clusters=k, reference=reference)
        tree.fit(X, centers=centers, sample_weight=weight)
        measures.append(
            {
                "inertia": model.inertia_,
                "silhouette": _silhouette(points, model.labels_, weight, random_state),
                "stability": np.mean(rand_indices(model.labels_, halves, weight)),
                "cost_ratio": tree.inertia_ / model.inertia_,
            }
        )
    frame = pd.DataFrame(measures, index=pd.Index(numbers, name="k"))
    return Choice(frame, *suggested(frame), len(points))


def _silhouette(points: np.ndarray, labels: np.ndarray, weight: np.ndarray | None, random_state: Any) -> float:
    """Mean silhouette of points, which may have weights, or of a random sample of them."""
    if weight is None:
        return float(silhouette_score(points, labels, sample_size=SAMPLE, random_state=random_state))
    rows = check_random_state(random_state).permutation(len(points))[:SAMPLE]
    return weighted_silhouette(points[rows], labels[rows], weight[rows])


def suggested(frame: pd.DataFrame) -> tuple[int, str]:
    """Return the suggested number of clusters and the reason."""
    stable = frame[frame["stability"] >= STABLE]
    if not len(stable):
        k = int(frame["stability"].idxmax())
        stability = frame["stability"][k]
        return k, f"k = {k} is the most stable (adjusted Rand index {stability:.2f}); none is found again reliably"
    k = int(stable["silhouette"].idxmax())
    silhouette = f"k = {k} has the greatest silhouette ({stable['silhouette'][k]:.2f})"
    which = "" if len(stable) == len(frame) == 1 else " of those that are found again on half of the rows"
    return k, silhouette + which


STABLE = 0.8
"""Stability from which on clusters count as found again."""
REFITS = 5
SAMPLE = 2000  # number of points for the silhouette

Refit = tuple[np.ndarray, np.ndarray]
"""Row numbers of the points of a refit, and their new labels."""


def refits(
    model: Any,
    select: Callable[[np.ndarray], Any],
    index: np.ndarray,
    n_clusters: int,
    weight: np.ndarray | None = None,
) -> Iterator[Refit]:
    """Refit a clusterer with five seeds, each on a random half of the points.

    Parameters
    ----------
    model : estimator
        Clusterer with the method `fit_predict`. It is cloned.
    select : callable
        Returns the inputs of `model` for given row numbers.
    index : ndarray [n] of int
        Row numbers of the points to draw from.
    n_clusters : int
        Minimum number of points of a half.
    weight : ndarray [N], optional
        Weights of all points, with which those steps and clusterers are fitted that take weights. Halves are
        halves of the rows: the same row, repeated, would be in both.

    Yields
    ------
    Refit
    """
    for seed in range(REFITS):
        rows = np.sort(np.random.default_rng(seed).permutation(index)[: max(n_clusters, len(index) // 2)])
        copy = clone(model).set_params(**dict.fromkeys(seed_names(model), seed))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as convergence warnings
            if weight is None:
                labels = np.asarray(copy.fit_predict(select(rows)))
            else:
                labels = np.asarray(_fit_predict(copy, select(rows), weight[rows]))
        yield rows, labels


def seed_names(model: Any) -> list[str]:
    """Names of the parameters of an estimator, and of its steps, that hold seeds."""
    return [name for name in model.get_params() if name.split("__")[-1] == "random_state"]


def _fit_predict(model: Any, X: Any, weight: np.ndarray) -> Any:
    from neonxc.trees.fit.weighting import fit_predict  # depends on this package

    return fit_predict(model, X, weight)[0]


def rand_indices(labels: np.ndarray, refits: Iterable[Refit], weight: np.ndarray | None = None) -> list[float]:
    """Adjusted Rand index between labels [N] and each refit, on its points; their mean is the stability.

    The points may have weights [N].
    """
    if weight is None:
        return [float(adjusted_rand_score(labels[rows], new)) for rows, new in refits]
    return [weighted_rand_index(labels[rows], new, weight[rows]) for rows, new in refits]


def weighted_crosstab(one: np.ndarray, other: np.ndarray, weight: np.ndarray | None) -> pd.DataFrame:
    """Number of points, or the sum of their weights, in every pair of clusters of two clusterings."""
    if weight is None:
        return pd.crosstab(one, other)
    return pd.crosstab(one, other, values=weight, aggfunc="sum").fillna(0.0)


def weighted_rand_index(one: np.ndarray, other: np.ndarray, weight: np.ndarray) -> float:
    """Adjusted Rand index of two clusterings of points, each of which is there as often as its weight.

    With the sums of weights n_ij of the pairs of clusters, and ``c(n) = n (n - 1) / 2`` pairs of points,

        (sum c(n_ij) - expected) / (mean of sum c(n_i.) and sum c(n_.j) - expected),
        expected = sum c(n_i.) sum c(n_.j) / c(n)
    """
    both = weighted_crosstab(one, other, counted_weights(weight)).to_numpy()
    if both.shape == (1, 1):
        return 1.0

    def pairs(sums: np.ndarray) -> float:
        return float((sums * np.maximum(sums - 1, 0)).sum() / 2)

    of_one = pairs(both.sum(1))
    of_other = pairs(both.sum(0))
    expected = of_one * of_other / pairs(both.sum(keepdims=True))
    largest = (of_one + of_other) / 2
    return 1.0 if largest == expected else (pairs(both) - expected) / (largest - expected)


def weighted_silhouette(points: Any, labels: np.ndarray, weight: np.ndarray) -> float:
    """Mean silhouette of points [n, d], each of which is there as often as its weight [n].

    a_i  mean distance to the other points of the cluster, the repetitions of point i among them
    b_i  smallest mean distance to the points of another cluster
    s_i  (b_i - a_i) / max(a_i, b_i), 0 for a point that is alone in its cluster
    """
    weight = counted_weights(weight)
    clusters, positions = np.unique(labels, return_inverse=True)
    members = np.equal.outer(positions, np.arange(len(clusters))) * weight[:, None]  # [n, K]
    sizes = members.sum(0)
    sums = pairwise_distances(points) @ members
    every = np.arange(len(positions))
    others = sizes[positions] - 1
    inside = np.divide(sums[every, positions], others, out=np.zeros(len(every)), where=others > 0)
    to_clusters = sums / sizes
    to_clusters[every, positions] = np.inf
    outside = to_clusters.min(1)
    largest = np.maximum(inside, outside)
    is_defined = (largest > 0) & (others > 0)
    silhouettes = np.divide(outside - inside, largest, out=np.zeros(len(every)), where=is_defined)
    return float(np.average(silhouettes, weights=weight))
