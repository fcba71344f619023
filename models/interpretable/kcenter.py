"""k-center clustering: the largest distance of a point to its center is to be small."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from .distances import Metric, Points, metric_of
from .table import Table, read_table
from .traversal import best_cover

COUNT = [Interval(Integral, 1, None, closed="left")]
COMMON: dict[str, list[Any]] = {
    "n_clusters": COUNT,
    "metric": [str, callable],
    "init": [StrOptions({"farthest", "random"})],
    "n_init": COUNT,
    "metric_params": [dict, None],
    "random_state": ["random_state"],
}


class CenterClusterer(ClusterMixin, BaseEstimator):
    """What clusterers share whose points are predicted to be in the cluster of the nearest center."""

    n_clusters: int
    metric: Any
    _metric: Metric
    _centers: Tensor

    def predict(self, X: Any) -> Any:
        """Cluster of the nearest center for every point, [N].

        Parameters
        ----------
        X : array, frame or tensor [N, d]
            Distances [N, n] to the points of the fit for ``metric="precomputed"``.
        """
        check_is_fitted(self, "labels_")
        table = self._read(X, reset=False)
        _, nearest = self._metric.points(table).nearest(self._centers.to(table.device))
        return table.labels(self.classes_[nearest.cpu().numpy()])

    def score(self, X: Any, y: Any = None) -> float:
        """Minus the largest distance of a point of X to the nearest center.

        Parameters
        ----------
        X : array or data frame [N, d]
            Points.
        y : ignored

        Returns
        -------
        float
        """
        check_is_fitted(self, "labels_")
        table = self._read(X, reset=False)
        far, _ = self._metric.points(table).nearest(self._centers.to(table.device))
        return -float(far.amax())

    def __sklearn_tags__(self) -> Any:
        """Tell which data it takes."""
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.metric == "precomputed"
        tags.input_tags.allow_nan = self.metric == "gower"
        return tags

    def _read(self, X: Any, reset: bool) -> Table:
        table = read_table(self, X, reset=reset, gaps=self.metric == "gower")
        if reset and len(table) < self.n_clusters:
            raise ValueError(f"X has n_samples={len(table)} points, fewer than n_clusters={self.n_clusters}")
        return table

    def _publish(self, table: Table, points: Points, labels: Tensor, centers: list[int]) -> None:
        """Set the attributes that describe clusters around some points."""
        self.classes_ = np.arange(len(centers))
        self.labels_ = table.labels(labels.cpu().numpy())
        self.center_indices_ = np.array(centers)
        self.cluster_centers_ = table.rows(self.center_indices_)
        self._centers = points.rows[torch.tensor(centers, device=labels.device)]


class KCenter(CenterClusterer):
    """k-center clustering by farthest-first traversal.

    Each next center is the point farthest from those before (Gonzalez, 1985). In a metric space the radius is at
    most twice the least that so many centers can have.

    Parameters
    ----------
    n_clusters : int
    metric : str or callable
        "euclidean", "manhattan", "chebyshev" and "cosine" are computed where X is, a tensor's device included.
        "gower" takes frames of numbers and categories: the mean, over the columns that two points both have, of
        ``|x - y| / range`` for numbers (1 at most) and of 0 or 1 for categories (object, string, category, bool);
        values may be missing, and two points without a common column are at distance 1. "precomputed": X is the
        symmetric matrix of distances. Others are those of :func:`sklearn.metrics.pairwise_distances`, on the CPU.
    init : {"farthest", "random"}
        First center: the point farthest from the mean of all (for "gower" from means and most frequent categories,
        for "precomputed" the point with the greatest sum of distances), which does not depend on the order of the
        points; or a random point.
    n_init : int
        Number of starts, of which the one with the least radius is kept. All but the first one of "farthest" are
        random.
    metric_params : dict, optional
        For metrics of scikit-learn.
    random_state : int, RandomState or None

    Attributes
    ----------
    center_indices_ : ndarray [K]
        Rows of X that are centers, in the order of the traversal.
    cluster_centers_ : array, frame or Tensor [K, d]
        Those rows, as X has them.
    labels_ : array or Tensor [n]
        Position of the nearest center.
    radius_ : float
        The largest distance of a point to the nearest center.
    classes_ : ndarray [K]
        0 ... K-1, where K is less than `n_clusters` if X has fewer distinct points.

    Notes
    -----
    Memory grows with the number of points, not with its square. A file (:func:`neonxc.save`) holds the fit;
    `metric_params` and a RandomState are left out of the parameters, and a metric that is a function is refused.

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

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = COMMON

    def __init__(
        self,
        n_clusters: int = 8,
        metric: str | Callable[..., float] = "euclidean",
        init: str = "farthest",
        *,
        n_init: int = 1,
        metric_params: dict[str, Any] | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.metric = metric
        self.init = init
        self.n_init = n_init
        self.metric_params = metric_params
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> KCenter:
        """Choose the centers.

        Parameters
        ----------
        X : array, frame or tensor [n, d]
            Distances [n, n] for ``metric="precomputed"``.
        y : ignored

        Raises
        ------
        ValueError
            Unusable X or parameters, fewer points than clusters, categories with a metric other than "gower".

        Warns
        -----
        ConvergenceWarning
            X has fewer distinct points than `n_clusters`; there is one cluster for each.
        """
        del y
        self._validate_params()
        table = self._read(X, reset=True)
        self._metric = metric_of(table, self.metric, self.metric_params)
        points = self._metric.points(table)
        random = check_random_state(self.random_state)
        cover = best_cover(points, self.n_clusters, self.init, self.n_init, random)
        if len(cover.centers) < self.n_clusters:
            warn_of_duplicates(len(cover.centers), self.n_clusters)
        self.radius_ = cover.radius
        self._publish(table, points, cover.labels, cover.centers)
        return self


def warn_of_duplicates(distinct: int, k: int) -> None:
    """Warn that there are fewer distinct points than clusters."""
    warnings.warn(
        f"Number of distinct clusters ({distinct}) found smaller than n_clusters ({k}). Possibly due to "
        "duplicate points in X.",
        ConvergenceWarning,
        stacklevel=3,
    )
