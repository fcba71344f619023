"""Beta-interpretable clustering: in each cluster a given share of the points have one value of interest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from .capacity import beta_max, scores
from .centers import Objective
from .kcenter import COMMON, COUNT
from .problem import Problem, counted
from .search import Found, solve
from .strong import FOI, InterpretableClusterer, floored
from .table import Table


class BetaInterpretable(InterpretableClusterer):
    """Clusters in each of which at least a share beta of the points have one value of interest.

    Values of interest are those of columns that people understand clusters by (age in four bins, say), or given
    ones. Algorithm 1 of the paper starts from a clustering that ignores them and improves the least interpretable
    cluster: by exchanging points with the nearest cluster that has its majority value, or by moving points of
    other values to clusters that may take them. Points then go to nearer centers as far as all clusters stay
    interpretable. The best of several such clusterings is kept.

    Parameters
    ----------
    n_clusters : int
        The maximum number of clusters; the result may have fewer.
    beta : float
        Share of the points of each cluster that must have its most frequent value of interest, 0 ... 1.
    objective : {"kcenter", "kmeans", "kmedian"}
        What is to be small: the largest distance of a point to the center of its cluster, which is a point; the
        sum of squared distances to the means, for ``metric="euclidean"`` alone; or that of distances to medoids.
    metric, metric_params
        As for :class:`KCenter`.
    init : {"farthest", "random"}
        "farthest" starts from farthest-first traversals, and then the order of the points makes no difference.
        "random": from a random first center, with further ones drawn by their distances for "kmeans" and
        "kmedian" (k-means++), which is often better for these.
    n_init : int
        Number of starts; all but the first one of "farthest" have random first centers.
    foi_bins : int or sequence of float
        Numeric columns with more different values than this are split into this many quantile bins; or the inner
        edges of the bins.
    foi_in_distance : bool
        Whether columns of X that are features of interest count in the distance.
    max_iter : int
        Maximum number of iterations of Algorithm 1 from each start.
    random_state : int, RandomState or None

    Attributes
    ----------
    labels_ : array or Tensor [n]
        Clusters, numbered by their majority values and then from large to small. `predict` gives the nearest
        center, which for points of the fit may be another one.
    cluster_centers_ : array, frame or Tensor [K, d]
        The centers, rows of X; for "kmeans" the means of the columns that count in the distance.
    center_indices_ : ndarray [K]
        Indices of the centers in X; not set for "kmeans".
    objective_ : float
        For "kcenter", each cluster's center is the member with the least largest distance. Medoids of more than
        2000 points are the best of 20 candidates, which a sample of 200 points chose.
    interpretability_ : float
        The least share of a majority value, at least `beta`.
    interpretabilities_ : ndarray [K]
        That of each cluster.
    majority_ : ndarray [K]
        Position in `foi_values_` of each cluster's most frequent value.
    beta_max_ : float
        The greatest beta that any clustering can reach.
    converged_ : bool
        Whether Algorithm 1 itself reached beta from one start at least. If not, the clustering goes back to
        clusters of single values, or to one cluster for each of the most frequent values.
    n_iter_ : int
        Iterations of Algorithm 1 over all starts.
    foi_values_ : list of str
        What the values of interest are called.
    foi_codes_ : ndarray [n]
        Position of every point's value in it.
    classes_ : ndarray [K]

    Notes
    -----
    It computes where X is: on the CPU, or on the device of a tensor. For files see :class:`KCenter`.
    ``neonxc.neuralize(labels=model.labels_, X=X)`` explains the clusters.

    References
    ----------
    .. [1] S. Saisubramanian, S. Galhotra, S. Zilberstein, "Balancing the tradeoff between clustering value and
       interpretability", AIES 2020.

    Examples
    --------
    >>> import pandas as pd
    >>> from neonxc.models import BetaInterpretable
    >>> X = pd.DataFrame(
    ...     {"age": [20, 21, 22, 60, 61, 23], "job": ["cook", "cook", "nurse", "cook", "nurse", "cook"]}
    ... )
    >>> model = BetaInterpretable(2, beta=0.75, metric="gower").fit(X, foi="job")
    >>> model.interpretability_ >= 0.75
    True
    >>> [model.foi_values_[value] for value in model.majority_]
    ['job is cook', 'job is nurse']
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **COMMON,
        **FOI,
        "beta": [Interval(Real, 0, 1, closed="both")],
        "objective": [StrOptions({"kcenter", "kmeans", "kmedian"})],
        "max_iter": COUNT,
    }

    def __init__(
        self,
        n_clusters: int = 8,
        beta: float = 0.8,
        objective: str = "kcenter",
        metric: str | Callable[..., float] = "euclidean",
        init: str = "farthest",
        *,
        n_init: int = 1,
        foi_bins: int | Sequence[float] = 4,
        foi_in_distance: bool = True,
        max_iter: int = 100,
        metric_params: dict[str, Any] | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.beta = beta
        self.objective = objective
        self.metric = metric
        self.init = init
        self.n_init = n_init
        self.foi_bins = foi_bins
        self.foi_in_distance = foi_in_distance
        self.max_iter = max_iter
        self.metric_params = metric_params
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, *, foi: Any = None) -> BetaInterpretable:
        """Find the clusters.

        Parameters
        ----------
        X : array, frame or tensor [n, d]
            Distances [n, n] for ``metric="precomputed"``.
        y : ignored
        foi : str, int, list of these, or array [n], optional
            Features of interest: a column of X by its name or number; several, whose combinations of values count;
            or the value of every point. A list of n items is read as values, not as columns. In an array, integers
            are values as they are, and floats are cut into bins as columns are. Missing categories are a
            value of their own. Default: all points have one value.

        Raises
        ------
        ValueError
            `beta` is more than any clustering can reach; unknown columns; "kmeans" with another metric; and
            whatever :meth:`KCenter.fit` refuses.
        """
        del y
        if self.objective == "kmeans" and self.metric not in ("euclidean", "l2"):
            raise ValueError(f'objective="kmeans" needs metric="euclidean", got {self.metric!r}')
        table, points, codes = self._prepare(X, foi)
        frequencies = np.bincount(codes)
        self.beta_max_ = beta_max(frequencies.tolist(), self.n_clusters)
        if self.beta > self.beta_max_:
            raise ValueError(
                f"beta={self.beta:g} cannot be reached: with n_clusters={self.n_clusters} and {len(frequencies)} "
                f"values of interest at most {floored(self.beta_max_)}; use n_clusters={len(frequencies)}, fewer "
                "values (foi_bins), or a smaller beta"
            )
        # the points in an order of their own, so that theirs makes no difference
        order = torch.from_numpy(np.lexsort((codes, points.space.key(points.rows).cpu().numpy())))
        order = order.to(points.rows.device)
        points, on_device = points.at(order), torch.from_numpy(codes).to(order.device)[order]
        problem = Problem(
            points, on_device, len(frequencies), self.n_clusters, float(self.beta), Objective(self.objective)
        )
        random = check_random_state(self.random_state)
        found, self.converged_, self.n_iter_ = solve(problem, self.init, self.n_init, self.max_iter, random)
        self._describe(table, problem, found, order)
        return self

    def score(self, X: Any, y: Any = None) -> float:
        """Minus the objective of the nearest centers on X.

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
        far, _ = self._metric.points(self._read(X, reset=False)).nearest(self._centers)
        objective = Objective(self.objective)
        return -objective.value(far.double() ** objective.power)

    def _describe(self, table: Table, problem: Problem, found: Found, order: Tensor) -> None:
        """Number the clusters and set the attributes."""
        k = len(found.centers.rows)
        counts = counted(found.labels, problem.codes, k, problem.n_values)
        first = [int((found.labels == cluster).nonzero()[0]) for cluster in range(k)]
        ranks = np.lexsort((first, -counts.sum(1), counts.argmax(1)))
        position = torch.empty(k, dtype=torch.int64)
        position[torch.from_numpy(ranks)] = torch.arange(k)
        labels = torch.empty_like(found.labels)
        labels[order] = position.to(labels.device)[found.labels]
        counts = counts[ranks]
        self.majority_, self.interpretabilities_ = counts.argmax(1), scores(counts)
        self.interpretability_, self.objective_ = float(self.interpretabilities_.min()), found.value
        self.classes_ = np.arange(k)
        self.labels_ = table.labels(labels.cpu().numpy())
        self._centers = found.centers.rows[torch.from_numpy(ranks).to(labels.device)]
        if found.centers.points is None:
            self.cluster_centers_ = self._centers if isinstance(table.X, Tensor) else self._centers.cpu().numpy()
        else:
            self.center_indices_ = order.cpu().numpy()[np.array(found.centers.points)[ranks]]
            self.cluster_centers_ = table.rows(self.center_indices_)
