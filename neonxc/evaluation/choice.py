"""Choice of the number of clusters: measures of k-means for several k, their stability, and a suggestion.

For every k, the labels of k-means on all points are compared with REFITS refits:

    inertia      sum of squared distances to the centers
    silhouette   mean over points of s_i = (b_i - a_i) / max(a_i, b_i), with the mean distance a_i to the other
                 points of the cluster and the smallest mean distance b_i to the points of another one
    stability    mean adjusted Rand index of the labels and those of a refit, on the points of the refit: a random
                 half, with another seed
    cost ratio   k-means cost of a tree with k leaves (ExShallow) / inertia

The suggested k has the largest silhouette among those with a stability of at least STABLE; if there are none, it
is the most stable k. Points may have weights w_i: a point then counts like w_i points at the same location.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score, pairwise_distances, silhouette_score
from sklearn.pipeline import make_pipeline
from sklearn.utils import check_random_state

from neonxc.clusterings.neuralize_arguments import fitted
from neonxc.clusterings.number_of_rows import depends_on_number, parameters_for_half
from neonxc.common.progress import progress_bar
from neonxc.common.result import Result
from neonxc.common.sizes import SAMPLED_ROWS
from neonxc.common.types import ArrayLike, RandomState, TableLike
from neonxc.common.warnings import deprecated
from neonxc.data.frames import reads_tables
from neonxc.data.table import Table
from neonxc.data.weights import counted_weights, weights_of
from neonxc.pipelines.opened import opened

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STABLE = 0.8
"""Stability from which on the clusters of a refit count as the same."""
REFITS = 5
"""Number of refits."""

Refit: TypeAlias = tuple[np.ndarray, np.ndarray]
"""Row numbers of the points of a refit, and their new labels."""


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
    trust : list of str
        Whether the suggested clusters are more than a table without clusters would have, which of them are slices
        of one cloud, and whether their names hold, in sentences; see :func:`null_reference`, :func:`separation`
        and :func:`neonxc.name_clusters`. Clusters are numbered as by ``KMeans(k, n_init=10, random_state=0)``.
    """

    _measures: pd.DataFrame
    k: int
    reason: str
    rows: int
    trust: list[str] = field(default_factory=list)

    def to_frame(self) -> pd.DataFrame:
        """Return one row for every number of clusters.

        Returns
        -------
        DataFrame
            Index: k. Columns:

            - ``inertia``: sum of squared distances to the centers, which falls with k;
            - ``silhouette``: -1 to 1, compares the distance to a point's cluster with that to the next cluster;
            - ``stability``: mean adjusted Rand index between the clusters and those of k-means with other seeds on
              five random halves of the rows, at most 1. :func:`neonxc.explain` reports it too;
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
        return [self.reason, *self.trust]


@reads_tables
def choose_k(
    X: TableLike,
    clusters: Iterable[int] = range(2, 11),
    *,
    preprocessing: object = None,
    max_rows: int = 5000,
    random_state: RandomState = 0,
    sample_weight: ArrayLike | None = None,
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
        Converts X to the numbers that are clustered, and is cloned; :func:`neonxc.data.preparation.prepare` makes
        one. Trees cut the columns of X itself.
    max_rows : int
        Maximum number of rows; if there are more, a random sample is used.
    random_state : int, RandomState or None
        Seed for the sample of rows and for k-means; the halves are always the same.
    sample_weight : array-like [n], optional
        Weights >= 0 of the rows; a series is matched by its index. In the preprocessing, k-means, the trees and
        all measures, a row of weight 2 counts twice, and rows of weight 0 are left out. The sample and the halves
        are drawn from the rows.

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
    choice, sample = compared(X, clusters, preprocessing, max_rows, random_state, sample_weight)
    from neonxc.evaluation.real import of_kmeans  # takes half a second to load

    kmeans = KMeans(choice.k, n_init=10, random_state=random_state)
    model = fitted(make_pipeline(sample.steps or "passthrough", kmeans), sample.table.for_sklearn, sample.weight)
    return replace(choice, trust=of_kmeans(model, sample.table.for_sklearn, sample.weight))


class Sample(NamedTuple):
    """The rows on which numbers of clusters are compared."""

    table: Table
    weight: np.ndarray | None  # [n]
    steps: Any  # the fitted preprocessing; None without one


def compared(
    X: TableLike,
    clusters: Iterable[int],
    preprocessing: object = None,
    max_rows: int = 5000,
    random_state: RandomState = 0,
    sample_weight: ArrayLike | None = None,
) -> tuple[Choice, Sample]:
    """Compare numbers of clusters, as :func:`choose_k` does, but without the sentences on the suggested one."""
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
        rows = check_random_state(random_state).choice(len(table), max_rows, replace=False)
        rows = np.sort(rows)
        table = table.take(rows)
        if weight is not None:
            weight = weight[rows]

    data = table.for_sklearn
    converted = data
    steps = None
    if preprocessing is not None:
        steps = fitted(clone(preprocessing), data, weight)
        converted = steps.transform(data)
    points = np.asarray(Table.read(converted).tensor)
    _check_points(points, numbers[-1])

    measures = []
    for k in progress_bar(numbers, desc="numbers of clusters"):
        measures.append(_measures(k, table, data, points, steps, weight, random_state))
    frame = pd.DataFrame(measures, index=pd.Index(numbers, name="k"))
    k, reason = suggested(frame)
    return Choice(frame, k, reason, len(points)), Sample(table, weight, steps)


def _measures(
    k: int,
    table: Table,
    data: object,
    points: np.ndarray,
    steps: Any,
    weight: np.ndarray | None,
    random_state: RandomState,
) -> dict[str, float]:
    """Compute the measures of k clusters of points, which fitted steps have made of the data."""
    from neonxc.trees import ExShallow  # depends on this package

    model = KMeans(k, n_init=10, random_state=random_state).fit(points, sample_weight=weight)

    if steps is None:
        tree = ExShallow(n_clusters=k, reference="kmeans")
        tree.fit(data, centers=model.cluster_centers_, sample_weight=weight)
    else:
        tree = ExShallow(n_clusters=k, reference=make_pipeline(steps, model))
        tree.fit(data, sample_weight=weight)

    silhouette = _silhouette(points, model.labels_, weight, random_state)
    unfitted = make_pipeline(steps or "passthrough", KMeans(k, n_init=10))
    halves = refits(unfitted, lambda rows: table.take(rows).for_sklearn, np.arange(len(points)), k, weight)
    return {
        "inertia": model.inertia_,
        "silhouette": silhouette,
        "stability": np.mean(rand_indices(model.labels_, halves, weight)),
        "cost_ratio": tree.inertia_ / model.inertia_,
    }


def _check_points(points: np.ndarray, k: int) -> None:
    """Raise ValueError unless there are more distinct points than k, and k points in each half."""
    n_distinct = Table(points).distinct()
    if n_distinct <= k:
        raise ValueError(f"comparing up to {k} clusters needs more than {k} different rows, got {n_distinct}")
    if len(points) // 2 < k:
        raise ValueError(
            f"comparing up to {k} clusters needs at least {2 * k} rows, because stability is "
            f"measured on halves of the rows; got {len(points)}"
        )


def _silhouette(
    points: np.ndarray, labels: np.ndarray, weight: np.ndarray | None, random_state: RandomState
) -> float:
    """Compute the mean silhouette of points, which may have weights, or of a random sample of them."""
    if weight is None:
        return float(silhouette_score(points, labels, sample_size=SAMPLED_ROWS, random_state=random_state))
    rows = check_random_state(random_state).permutation(len(points))[:SAMPLED_ROWS]
    return weighted_silhouette(points[rows], labels[rows], weight[rows])


def suggested(frame: pd.DataFrame) -> tuple[int, str]:
    """Return the suggested number of clusters and the reason."""
    stable = frame[frame["stability"] >= STABLE]
    if not len(stable):
        k = int(frame["stability"].idxmax())
        stability = frame["stability"][k]
        return k, f"k = {k} is the most stable (adjusted Rand index {stability:.2f}); none is found again reliably"
    k = int(stable["silhouette"].idxmax())
    silhouette = stable["silhouette"][k]
    reason = f"k = {k} has the greatest silhouette ({silhouette:.2f})"
    is_compared = len(frame) > 1
    if is_compared:
        reason += " of those that are found again on half of the rows"
    return k, reason


def refits(
    model: Any,
    select: Callable[[np.ndarray], object],
    index: np.ndarray,
    n_clusters: int,
    weight: np.ndarray | None = None,
) -> Iterator[Refit]:
    """Refit a clusterer with five seeds, each on a random half of the points.

    Clusterers that depend on the number of points are refitted with their parameters for half of them
    (:mod:`neonxc.clusterings.number_of_rows`).

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
        Weights of all points, for the steps and clusterers that can be fitted with weights. Halves are halves of
        the rows: the same row, repeated, would be in both.

    Yields
    ------
    Refit
    """
    from neonxc.trees.fit.weighting import fit_predict  # depends on this package

    _, final = opened(model)
    changed = parameters_for_half(final, model.get_params()) if depends_on_number(final) else {}
    for seed in range(REFITS):
        n_half = max(n_clusters, len(index) // 2)
        rows = np.random.default_rng(seed).permutation(index)[:n_half]
        rows = np.sort(rows)
        seeds = dict.fromkeys(seed_names(model), seed)
        refit = clone(model).set_params(**seeds, **changed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as convergence warnings
            if weight is None:
                labels = refit.fit_predict(select(rows))
            else:
                labels, *_ = fit_predict(refit, select(rows), weight[rows])
        yield rows, np.asarray(labels)


def seed_names(model: Any) -> list[str]:
    """Return the names of the parameters of an estimator, and of its steps, that hold seeds."""
    return [name for name in model.get_params() if name.split("__")[-1] == "random_state"]


def rand_indices(labels: np.ndarray, refits: Iterable[Refit], weight: np.ndarray | None = None) -> list[float]:
    """Compute the adjusted Rand index of labels [N] and each refit, on its points, which may have weights [N].

    Their mean is the stability.
    """
    indices = []
    for rows, new_labels in refits:
        if weight is None:
            index = float(adjusted_rand_score(labels[rows], new_labels))
        else:
            index = weighted_rand_index(labels[rows], new_labels, weight[rows])
        indices.append(index)
    return indices


def weighted_crosstab(labels: np.ndarray, new_labels: np.ndarray, weight: np.ndarray | None) -> pd.DataFrame:
    """Return the number of points, or the sum of their weights, in every pair of clusters of two clusterings."""
    if weight is None:
        return pd.crosstab(labels, new_labels)
    return pd.crosstab(labels, new_labels, values=weight, aggfunc="sum").fillna(0.0)


def weighted_rand_index(labels: np.ndarray, new_labels: np.ndarray, weight: np.ndarray) -> float:
    """Compute the adjusted Rand index of two clusterings of points, each of which counts as often as its weight.

    With the sums of weights n_ij of the pairs of clusters, and ``c(n) = n (n - 1) / 2`` pairs of points,

        (sum c(n_ij) - expected) / (mean of sum c(n_i.) and sum c(n_.j) - expected),
        expected = sum c(n_i.) sum c(n_.j) / c(n)
    """
    counts = weighted_crosstab(labels, new_labels, counted_weights(weight)).to_numpy()  # n_ij
    if counts.shape == (1, 1):
        return 1.0

    def pairs(sums: np.ndarray) -> float:
        """Return the sum of c(n)."""
        return float((sums * np.maximum(sums - 1, 0)).sum() / 2)

    row_pairs = pairs(counts.sum(1))
    column_pairs = pairs(counts.sum(0))
    expected = row_pairs * column_pairs / pairs(counts.sum(keepdims=True))
    maximum = (row_pairs + column_pairs) / 2
    if maximum == expected:
        return 1.0
    return (pairs(counts) - expected) / (maximum - expected)


def weighted_silhouette(points: Any, labels: np.ndarray, weight: np.ndarray) -> float:
    """Compute the mean silhouette of points [n, d], each of which counts as often as its weight [n].

    a_i  mean distance to the other points of the cluster, the repetitions of point i among them
    b_i  smallest mean distance to the points of another cluster
    s_i  (b_i - a_i) / max(a_i, b_i), 0 for a point that is alone in its cluster
    """
    weight = counted_weights(weight)
    clusters, positions = np.unique(labels, return_inverse=True)
    members = np.equal.outer(positions, np.arange(len(clusters))) * weight[:, None]  # [n, K]
    sizes = members.sum(0)
    sums = pairwise_distances(points) @ members  # [n, K], of the distances to the points of each cluster
    rows = np.arange(len(positions))

    n_others = sizes[positions] - 1
    inside = np.divide(sums[rows, positions], n_others, out=np.zeros(len(rows)), where=n_others > 0)  # a_i
    to_clusters = sums / sizes
    to_clusters[rows, positions] = np.inf
    outside = to_clusters.min(1)  # b_i

    largest = np.maximum(inside, outside)
    is_defined = (largest > 0) & (n_others > 0)
    silhouettes = np.divide(outside - inside, largest, out=np.zeros(len(rows)), where=is_defined)
    return float(np.average(silhouettes, weights=weight))
