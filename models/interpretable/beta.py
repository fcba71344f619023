"""Beta-interpretable clustering: in each cluster, a fraction beta of the points has the same value of interest.

1. Encode the points, so that a metric becomes a distance of rows of numbers   (metric.py)
2. Find the value of interest of every point                                   (values_of_interest.py)
3. Search for clusters that reach beta with a low objective                    (local_search.py)
4. Number them by their majority values, then by decreasing size
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from neonxc.common.types import RandomState, TableLike

from .kcenter import CenterClusterer
from .local_search import solve
from .problem import InterpretableProblem, max_interpretability, purities
from .strong import floor_digits
from .values_of_interest import FeaturesOfInterest


class BetaInterpretable(CenterClusterer):
    """Clustering in which at least a fraction beta of the points of each cluster has the same value of interest.

    Values of interest come from columns in terms of which people understand the clusters (for example, age in four
    bins), or are given for every point. Algorithm 1 of the paper starts from a clustering that ignores them, and
    repeatedly improves the least interpretable cluster: it exchanges points with the nearest cluster that has the
    same majority value, or moves points of other values to clusters that can take them. Afterwards, points move to
    nearer centers as long as all clusters stay interpretable. The best of several such clusterings is kept.

    Parameters
    ----------
    n_clusters : int
        Maximum number of clusters; the result may have fewer.
    beta : float in [0, 1]
        Minimum fraction of the points of each cluster that have its most frequent value of interest.
    objective : {"kcenter", "kmeans", "kmedian"}
        The objective to minimize. "kcenter": the largest distance of a point to the center of its cluster, which
        is a point of the cluster. "kmeans": the sum of squared distances to the means, for ``metric="euclidean"``
        only. "kmedian": the sum of distances to the medoids.
    metric, metric_params
        As for :class:`KCenter`.
    init : {"farthest", "random"}
        "farthest" starts from farthest-first traversals; the result then does not depend on the order of the
        points. "random" starts from a random first center; for "kmeans" and "kmedian", further centers are drawn
        by their distances (k-means++), which is often better for these objectives.
    n_init : int
        Number of starts. With ``init="farthest"``, all starts except the first one have random first centers.
    foi_bins : int or sequence of float
        Numeric columns with more distinct values than this are divided into this number of quantile bins. A
        sequence gives the inner edges of the bins.
    foi_in_distance : bool
        Whether columns of X that are features of interest are used in the distance.
    max_iter : int
        Maximum number of iterations of Algorithm 1 from each start.
    random_state : int, RandomState or None

    Attributes
    ----------
    labels_ : array or Tensor [n]
        Cluster of every training point. Clusters are sorted by their majority values, then by decreasing size.
        `predict` returns the nearest center, which may differ for training points.
    cluster_centers_ : array, data frame or Tensor [K, d]
        Centers, which are rows of X; for "kmeans", the means of the columns that are used in the distance.
    center_indices_ : ndarray [K]
        Indices of the centers in X; not set for "kmeans".
    objective_ : float
        Value of the objective. For "kcenter", the center of a cluster is the member with the smallest maximum
        distance to the others. For "kmedian", the medoid of a cluster of more than 2000 points is the best of 20
        candidates, which are selected by a sample of 200 points.
    interpretability_ : float
        Smallest fraction of a majority value over all clusters, at least `beta`.
    interpretabilities_ : ndarray [K]
        Fraction of the points of each cluster that have its majority value.
    majority_ : ndarray [K]
        Index in `foi_values_` of each cluster's most frequent value.
    beta_max_ : float
        Largest beta that any clustering can reach.
    converged_ : bool
        Whether Algorithm 1 reached beta from at least one start. If not, the result consists of clusters with a
        single value each, or has one cluster for each of the most frequent values.
    n_iter_ : int
        Total number of iterations of Algorithm 1.
    foi_values_ : list of str
        Descriptions of the values of interest.
    foi_codes_ : ndarray [n]
        Index in `foi_values_` of every point's value.
    classes_ : ndarray [K]

    Notes
    -----
    The computation runs on the device of X. For saved files, see :class:`KCenter`.
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
        random_state: RandomState = None,
    ) -> None:
        self.__dict__.update(locals())  # scikit-learn asks for every parameter as an attribute
        del self.self

    def fit(self, X: TableLike, y: object = None, *, foi: FeaturesOfInterest = None) -> BetaInterpretable:
        """Find the clusters.

        Parameters
        ----------
        X : array, data frame or tensor [n, d]
            For ``metric="precomputed"``, distances [n, n].
        y : ignored
        foi : str, int, list of these, or array [n], optional
            Features of interest: the name or number of a column of X, a list of columns, whose combinations of
            values are then the values of interest, or an array with the value of every point. A list of n items is
            an array of values, and a series goes by its index. In an array, integers are used as they are, and
            floats are binned like columns. A missing category is a value of its own. Default: all points have the
            same value.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If no clustering can reach `beta`, a column is unknown, or "kmeans" is used with a metric other than
            "euclidean"; and as in :meth:`KCenter.fit`.
        """
        del y
        if self.objective == "kmeans" and self.metric not in ("euclidean", "l2"):
            raise ValueError(f'objective="kmeans" needs metric="euclidean", got {self.metric!r}')
        table, points, on_device = self._prepare(X, foi)
        codes = on_device.cpu().numpy()
        self.foi_values_ = self._interest.values
        self.foi_codes_ = codes
        frequencies = np.bincount(codes)
        self.beta_max_ = max_interpretability(frequencies, self.n_clusters)
        if self.beta > self.beta_max_:
            n_values = len(frequencies)
            raise ValueError(
                f"beta={self.beta:g} cannot be reached: with n_clusters={self.n_clusters} and {n_values} "
                f"values of interest, the maximum is {floor_digits(self.beta_max_)}; use "
                f"n_clusters={n_values}, fewer values (foi_bins), or a smaller beta"
            )

        # Sort the points, so that the result does not depend on their order in X
        sorting = np.lexsort((codes, points.sort_key().cpu().numpy()))
        order = torch.from_numpy(sorting).to(on_device.device)
        points = points.take(order)
        on_device = on_device[order]
        problem = InterpretableProblem(points, on_device, self.objective, self.n_clusters, float(self.beta))
        best, self.converged_, self.n_iter_ = solve(problem, self._starts(), self.max_iter)

        # Number the clusters by their majority values, then by decreasing size, then by their first points
        counts = problem.counts(best.labels)
        _, first_points = np.unique(best.labels.cpu().numpy(), return_index=True)
        cluster_order = np.lexsort((first_points, -counts.sum(1).cpu(), counts.argmax(1).cpu()))
        new_numbers = torch.from_numpy(cluster_order.argsort()).to(best.labels.device)
        labels = torch.empty_like(best.labels)
        labels[order] = new_numbers[best.labels]
        counts = counts[cluster_order.tolist()]

        self.majority_ = counts.argmax(1).cpu().numpy()
        self.interpretabilities_ = purities(counts).cpu().numpy()
        self.interpretability_ = float(self.interpretabilities_.min())
        self.objective_ = best.value
        indices = None
        if self.objective != "kmeans":
            indices = sorting[np.array(best.points)[cluster_order]]
        self._publish(table, labels, best.rows[cluster_order.tolist()], indices)
        return self
