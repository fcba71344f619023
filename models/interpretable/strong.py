"""Strongly interpretable clustering: all points of a cluster have the same value of interest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import ROUND_FLOOR, Context
from typing import Any, overload

import numpy as np
import torch
from torch import Tensor

from neonxc.common.types import RandomState, TableLike

from .kcenter import CenterClusterer
from .problem import max_interpretability
from .values_of_interest import FeaturesOfInterest


class StronglyInterpretable(CenterClusterer):
    """k-center clustering in which all points of a cluster have the same value of interest.

    Each value has its own farthest-first traversal, and the next center is given to the value with the largest
    radius. In a metric space, the radius is at most twice the smallest possible radius of such a clustering.

    Parameters
    ----------
    n_clusters : int
        Number of clusters, at least the number of values of interest.
    metric, init, n_init, metric_params, random_state
        As for :class:`KCenter`; the first center of every value is chosen among its points.
    foi_bins, foi_in_distance
        As for :class:`BetaInterpretable`.

    Attributes
    ----------
    labels_ : array or Tensor [n]
        Cluster of every training point.
    center_indices_ : ndarray [K]
        Rows of X that are centers.
    cluster_centers_ : array, data frame or Tensor [K, d]
        These rows, in the type of X.
    radius_ : float
        Largest distance of a point to the nearest center of its own value.
    majority_ : ndarray [K]
        Index in `foi_values_` of the value of each cluster.
    foi_values_ : list of str
        Descriptions of the values of interest.
    foi_codes_ : ndarray [n]
        Index in `foi_values_` of every point's value.
    classes_ : ndarray [K]

    References
    ----------
    .. [1] S. Saisubramanian, S. Galhotra, S. Zilberstein, "Balancing the tradeoff between clustering value and
       interpretability", AIES 2020, Algorithm 4 and Lemma 6.

    Examples
    --------
    >>> import pandas as pd
    >>> from neonxc.models import StronglyInterpretable
    >>> X = pd.DataFrame({"age": [20, 21, 60, 61, 23], "job": ["cook", "cook", "cook", "nurse", "nurse"]})
    >>> model = StronglyInterpretable(3, metric="gower").fit(X, foi="job")
    >>> model.labels_.tolist(), [model.foi_values_[value] for value in model.majority_]
    ([1, 1, 0, 2, 2], ['job is cook', 'job is cook', 'job is nurse'])
    """

    majority_: np.ndarray

    def __init__(
        self,
        n_clusters: int = 8,
        metric: str | Callable[..., float] = "euclidean",
        init: str = "farthest",
        *,
        n_init: int = 1,
        foi_bins: int | Sequence[float] = 4,
        foi_in_distance: bool = True,
        metric_params: dict[str, Any] | None = None,
        random_state: RandomState = None,
    ) -> None:
        self.__dict__.update(locals())  # scikit-learn asks for every parameter as an attribute
        del self.self

    def fit(self, X: TableLike, y: object = None, *, foi: FeaturesOfInterest = None) -> StronglyInterpretable:
        """Choose the centers.

        Parameters
        ----------
        X : array, data frame or tensor [n, d]
            For ``metric="precomputed"``, distances [n, n].
        y : ignored
        foi : column or columns of X, or array [n], optional
            As for :meth:`BetaInterpretable.fit`.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If there are more values of interest than clusters, and as in :meth:`KCenter.fit`.

        Warns
        -----
        ConvergenceWarning
            If there are fewer distinct points than `n_clusters`. Every distinct point is then a cluster.
        """
        del y
        table, points, codes = self._prepare(X, foi)
        self.foi_values_ = self._interest.values
        self.foi_codes_ = codes.cpu().numpy()
        n_values = len(self.foi_values_)
        if n_values > self.n_clusters:
            beta_max = max_interpretability(np.bincount(self.foi_codes_), self.n_clusters)
            raise ValueError(
                f"n_clusters={self.n_clusters} is less than the {n_values} values of interest, which all need a "
                f"cluster of their own; use n_clusters={n_values} or more, fewer values (foi_bins), or "
                f"BetaInterpretable with beta up to {floor_digits(beta_max)}"
            )
        self._cover(table, points, codes)
        self.majority_ = self.foi_codes_[self.center_indices_]
        return self

    @overload
    def predict(self, X: Tensor, foi: FeaturesOfInterest = None) -> Tensor: ...
    @overload
    def predict(self, X: TableLike, foi: FeaturesOfInterest = None) -> np.ndarray: ...
    def predict(self, X: TableLike, foi: FeaturesOfInterest = None) -> np.ndarray | Tensor:
        """Assign every point to the nearest center with the point's own value of interest.

        Parameters
        ----------
        X : array, data frame or tensor [N, d]
            For ``metric="precomputed"``, distances [N, n] to the training points.
        foi : array-like [N], optional
            Values of interest, if they are not columns of X. Points whose value is unknown, or is that of no
            cluster, are assigned to the nearest of all centers.

        Returns
        -------
        array or tensor [N]
            A tensor if X is one, otherwise an array.
        """
        table = self._read(X)
        points = self._metric.points(table)
        codes = self._interest.read(table, foi)
        allowed = None  # [N, K]
        if codes is not None:
            allowed = torch.from_numpy(codes[:, None] == self.majority_).to(points.rows.device)
            allowed |= ~allowed.any(1, keepdim=True)
        _, nearest = points.nearest(self._centers, allowed)
        return table.labels(nearest)


def floor_digits(value: float) -> str:
    """Format a number in [0, 1] with three significant digits, rounded down."""
    rounded = Context(prec=3, rounding=ROUND_FLOOR).create_decimal(repr(value))
    return f"{rounded.normalize():f}"
