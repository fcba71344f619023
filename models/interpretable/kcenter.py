"""k-center clustering, which minimizes the largest distance of a point to its center.

    radius = max over the points x of min over the centers u of d(x, u)

All clusterers of this folder read X as a table, encode its rows as points with distances, and assign new points to
the nearest center; they differ in how the centers are chosen.
"""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral, Real
from typing import Any, ClassVar, TypeAlias, overload

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from neonxc.common.types import RandomState, TableLike
from neonxc.common.warnings import warn
from neonxc.data.frames import reads_tables
from neonxc.data.table import Table

from .metric import EncodedPoints, fit_metric
from .problem import total
from .traversal import Starts, best_cover
from .values_of_interest import FeaturesOfInterest, find_interest

MetricLike: TypeAlias = str | Callable[..., float]
"""The name of a metric, or a function of two points."""

AT_LEAST_ONE = Interval(Integral, 1, None, closed="left")
OBJECTIVES = StrOptions({"kcenter", "kmeans", "kmedian"})
STARTS = StrOptions({"farthest", "random"})


class CenterClusterer(ClusterMixin, BaseEstimator):
    """Base class of clusterers that assign points to the nearest center; each has some of the parameters."""

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_clusters": [AT_LEAST_ONE],
        "beta": [Interval(Real, 0, 1, closed="both")],
        "objective": [OBJECTIVES],
        "metric": [str, callable],
        "init": [STARTS],
        "n_init": [AT_LEAST_ONE],
        "foi_bins": [AT_LEAST_ONE, "array-like"],
        "foi_in_distance": ["boolean"],
        "max_iter": [AT_LEAST_ONE],
        "metric_params": [dict, None],
        "random_state": ["random_state"],
    }
    n_clusters: int
    metric: MetricLike
    init: str
    n_init: int
    metric_params: dict[str, Any] | None
    random_state: RandomState

    @overload
    def predict(self, X: Tensor) -> Tensor: ...
    @overload
    def predict(self, X: TableLike) -> np.ndarray: ...
    def predict(self, X: TableLike) -> np.ndarray | Tensor:
        """Assign every point to the cluster of the nearest center.

        Parameters
        ----------
        X : array, data frame or tensor [N, d]
            For ``metric="precomputed"``, distances [N, n] to the training points.

        Returns
        -------
        array or tensor [N]
            A tensor if X is one, otherwise an array.
        """
        table = self._read(X)
        _, nearest = self._metric.points(table).nearest(self._centers)
        return table.labels(nearest)

    def score(self, X: TableLike, y: object = None) -> float:
        """Compute minus the objective on X, from the distances of its points to the nearest centers.

        By default, the objective is the largest distance.

        Parameters
        ----------
        X : array or data frame [N, d]
            Points.
        y : ignored

        Returns
        -------
        float
        """
        points = self._metric.points(self._read(X))
        distances, _ = points.nearest(self._centers)
        costs = distances.double()
        objective = getattr(self, "objective", "kcenter")
        if objective == "kmeans":
            costs = costs.square()
        return -total(objective, costs)

    def __sklearn_tags__(self) -> Any:
        """Declare the accepted inputs to scikit-learn."""
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.metric == "precomputed"
        tags.input_tags.allow_nan = self.metric == "gower"
        return tags

    @reads_tables
    def _read(self, X: TableLike, reset: bool = False) -> Table:
        """Read X as a table: of the columns of the training points, or with `reset`, of the training points."""
        if not reset:
            check_is_fitted(self, "labels_")
        finite = "allow-nan" if self.metric == "gower" else True
        return Table.of_estimator(self, X, reset, ensure_all_finite=finite)

    def _prepare(self, X: TableLike, foi: FeaturesOfInterest = None) -> tuple[Table, EncodedPoints, Tensor]:
        """Read X, fit the metric, and return the table, its encoded points, and their values of interest [n]."""
        self._validate_params()
        table = self._read(X, reset=True)
        if len(table) < self.n_clusters:
            raise ValueError(f"X has n_samples={len(table)} points, fewer than n_clusters={self.n_clusters}")
        self._interest, codes = find_interest(table, foi, getattr(self, "foi_bins", 1))
        interest_columns = self._interest.columns
        if self.metric == "precomputed" and interest_columns:
            raise ValueError('metric="precomputed" needs foi as an array, because the columns of X are distances')
        left_out = [] if getattr(self, "foi_in_distance", True) else interest_columns
        self._metric = fit_metric(table, self.metric, self.metric_params, left_out)
        points = self._metric.points(table)
        return table, points, torch.from_numpy(codes).to(points.rows.device)

    def _starts(self) -> Starts:
        return Starts(self.init, self.n_init, check_random_state(self.random_state))

    def _cover(self, table: Table, points: EncodedPoints, codes: Tensor) -> None:
        """Choose centers, each for points with the same code, and set the attributes."""
        cover = best_cover(points, codes, self.n_clusters, self._starts())
        n_centers = len(cover.centers)
        if n_centers < self.n_clusters:
            warn(
                f"Number of distinct clusters ({n_centers}) found smaller than n_clusters "
                f"({self.n_clusters}). Possibly due to duplicate points in X.",
                ConvergenceWarning,
            )
        self.radius_ = cover.radius
        self._publish(table, cover.labels, points.rows[cover.centers], np.array(cover.centers))

    def _publish(self, table: Table, labels: Tensor, centers: Tensor, indices: np.ndarray | None) -> None:
        """Set the attributes of a clustering with encoded centers, and with their rows of X if they are points."""
        self.classes_ = np.arange(len(centers))
        self.labels_ = table.labels(labels)
        self._centers = centers
        if indices is None:
            self.cluster_centers_ = table.labels(centers)
        else:
            self.center_indices_ = indices
            self.cluster_centers_ = table.take(indices).data


class KCenter(CenterClusterer):
    """k-center clustering by farthest-first traversal.

    Each new center is the point farthest from the previous centers (Gonzalez, 1985). In a metric space, the radius
    is at most twice the smallest possible radius for this number of centers.

    Parameters
    ----------
    n_clusters : int
    metric : str or callable
        "euclidean", "manhattan", "chebyshev" and "cosine" are computed on the device of X. "gower" is for data
        frames of numbers and categories: it is the mean, over the columns in which both points have values, of
        ``|x - y| / range`` for numbers (at most 1) and of 0 or 1 for categories (object, string, category, bool).
        Values may be missing; two points without a common column have distance 1. With "precomputed", X is the
        symmetric matrix of distances. Other metrics are those of :func:`sklearn.metrics.pairwise_distances`, which
        are computed on the CPU.
    init : {"farthest", "random"}
        How the first center is chosen. "farthest" chooses the point farthest from the mean of all points (for
        "gower", from the means and most frequent categories; for "precomputed", the point with the largest sum of
        distances). It does not depend on the order of the points. "random" chooses a random point.
    n_init : int
        Number of runs; the one with the smallest radius is kept. With ``init="farthest"``, all runs except the
        first one start from random points.
    metric_params : dict, optional
        Parameters of a metric of scikit-learn.
    random_state : int, RandomState or None

    Attributes
    ----------
    center_indices_ : ndarray [K]
        Rows of X that are centers, in the order in which they were chosen.
    cluster_centers_ : array, data frame or Tensor [K, d]
        These rows, in the type of X.
    labels_ : array or Tensor [n]
        Index of the nearest center.
    radius_ : float
        Largest distance of a point to its nearest center.
    classes_ : ndarray [K]
        0 ... K-1. K is smaller than `n_clusters` if X has fewer distinct points.

    Notes
    -----
    Memory is proportional to the number of points. :func:`neonxc.save` stores the fitted model without
    `metric_params` and without a RandomState; a model whose metric is a function can't be saved.

    References
    ----------
    .. [1] T. Gonzalez, "Clustering to minimize the maximum intercluster distance", 1985.

    Examples
    --------
    >>> import numpy as np
    >>> from neonxc.models import KCenter
    >>> model = KCenter(2).fit(np.array([[0.0], [1], [2], [7], [9]]))
    >>> model.labels_.tolist(), model.radius_
    ([1, 1, 1, 0, 0], 2.0)
    """

    def __init__(
        self,
        n_clusters: int = 8,
        metric: MetricLike = "euclidean",
        init: str = "farthest",
        *,
        n_init: int = 1,
        metric_params: dict[str, Any] | None = None,
        random_state: RandomState = None,
    ) -> None:
        self.__dict__.update(locals())  # scikit-learn asks for every parameter as an attribute
        del self.self

    def fit(self, X: TableLike, y: object = None) -> KCenter:
        """Choose the centers.

        Parameters
        ----------
        X : array, data frame or tensor [n, d]
            For ``metric="precomputed"``, distances [n, n].
        y : ignored

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If X or a parameter is invalid, there are fewer points than clusters, or X has categories and the
            metric is not "gower".

        Warns
        -----
        ConvergenceWarning
            If X has fewer distinct points than `n_clusters`. Every distinct point is then a cluster.
        """
        del y
        table, points, codes = self._prepare(X)
        self._cover(table, points, codes)
        return self
