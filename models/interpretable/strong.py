"""Strongly interpretable clusters: all points of a cluster have one value of interest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Context
from math import isfinite
from numbers import Real
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from .capacity import beta_max
from .distances import Metric, Points, metric_of
from .foi import Interest, interest
from .kcenter import COMMON, COUNT, CenterClusterer, warn_of_duplicates
from .table import Table
from .traversal import farthest_first, starts

FOI: dict[str, list[Any]] = {"foi_bins": [*COUNT, "array-like"], "foi_in_distance": ["boolean"]}


@dataclass(frozen=True)
class StrongCover:
    """Clusters of one value each, around centers of that value."""

    labels: Tensor  # [n]
    centers: list[int]
    values: list[int]  # of the clusters
    radius: float


def strong_cover(
    points: Points, codes: Tensor, k: int, init: str, n_init: int, random: np.random.RandomState
) -> StrongCover:
    """Up to k centers, shared out among the values of interest so that the radius is the least.

    Algorithm 4 of Saisubramanian et al. tries every way to share them out. As the radius of a value's traversal
    never grows with its number of centers, the best way is to give each next center to the value whose radius is
    the largest.
    """
    rows = [(codes == value).nonzero()[:, 0] for value in range(int(codes.amax()) + 1)]
    parts = [points.at(own) for own in rows]
    firsts = [starts(part, init, n_init, random) for part in parts]
    found = (_strong_cover(parts, rows, [own[i] for own in firsts], k) for i in range(n_init))
    return min(found, key=lambda cover: cover.radius)


def _strong_cover(parts: Sequence[Points], rows: Sequence[Tensor], first: Sequence[int], k: int) -> StrongCover:
    traversals = [farthest_first(part, k, start) for part, start in zip(parts, first, strict=True)]
    covers = [next(traversal) for traversal in traversals]
    for _ in range(k - len(covers)):
        worst = max(range(len(covers)), key=lambda value: covers[value].radius)
        if not covers[worst].radius > 0:
            break
        covers[worst] = next(traversals[worst])
    labels = torch.empty(sum(map(len, rows)), dtype=torch.int64, device=rows[0].device)
    centers: list[int] = []
    for own, cover in zip(rows, covers, strict=True):
        labels[own] = cover.labels + len(centers)
        centers += [int(own[center]) for center in cover.centers]
    values = [value for value, cover in enumerate(covers) for _ in cover.centers]
    return StrongCover(labels, centers, values, max(cover.radius for cover in covers))


class InterpretableClusterer(CenterClusterer):
    """What clusterers share that know features of interest."""

    foi_bins: Any
    foi_in_distance: bool
    metric_params: dict[str, Any] | None
    _interest: Interest

    def _prepare(self, X: Any, foi: Any) -> tuple[Table, Points, np.ndarray]:
        """The table, its points, and their values of interest [n]."""
        self._validate_params()
        check_bins(self.foi_bins)
        table = self._read(X, reset=True)
        self._interest, codes = interest(table, foi, self.foi_bins)
        if self.metric == "precomputed" and self._interest.columns:
            raise ValueError('metric="precomputed" needs foi as an array: the columns of X are distances')
        left_out = [] if self.foi_in_distance else self._interest.columns
        self._metric: Metric = metric_of(table, self.metric, self.metric_params, left_out)
        self.foi_values_, self.foi_codes_ = self._interest.values, codes
        return table, self._metric.points(table), codes


class StronglyInterpretable(InterpretableClusterer):
    """k-center clusters, each with a single value of interest.

    Every value has a farthest-first traversal of its own, and each next center goes to the value whose radius is
    the largest. In a metric space the radius is at most twice the least of all clusterings into `n_clusters` of
    this kind.

    Parameters
    ----------
    n_clusters : int
        At least the number of values of interest.
    metric, init, n_init, metric_params, random_state
        As for :class:`KCenter`; the first center of every value is chosen among its points.
    foi_bins, foi_in_distance
        As for :class:`BetaInterpretable`.

    Attributes
    ----------
    labels_ : array or Tensor [n]
    center_indices_ : ndarray [K]
    cluster_centers_ : array, frame or Tensor [K, d]
    radius_ : float
        The largest distance of a point to the nearest center of its own value.
    majority_ : ndarray [K]
        Position in `foi_values_` of the value that each cluster has.
    foi_values_ : list of str
        What the values of interest are called.
    foi_codes_ : ndarray [n]
        Position of every point's value in it.
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

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = COMMON | FOI

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
        random_state: Any = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.metric = metric
        self.init = init
        self.n_init = n_init
        self.foi_bins = foi_bins
        self.foi_in_distance = foi_in_distance
        self.metric_params = metric_params
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, *, foi: Any = None) -> StronglyInterpretable:
        """Choose the centers.

        Parameters
        ----------
        X : array, frame or tensor [n, d]
        y : ignored
        foi : column or columns of X, or array [n], optional
            As for :meth:`BetaInterpretable.fit`.

        Raises
        ------
        ValueError
            More values of interest than clusters, and whatever :meth:`KCenter.fit` refuses.

        Warns
        -----
        ConvergenceWarning
            There are fewer distinct points than `n_clusters`; there is one cluster for each.
        """
        del y
        table, points, codes = self._prepare(X, foi)
        needed = len(self.foi_values_)
        if needed > self.n_clusters:
            most = beta_max(np.bincount(codes).tolist(), self.n_clusters)
            raise ValueError(
                f"n_clusters={self.n_clusters} is less than the {needed} values of interest, each of which needs "
                f"a cluster of its own; use n_clusters={needed} or more, fewer values (foi_bins), or "
                f"BetaInterpretable with beta up to {floored(most)}"
            )
        on_device = torch.from_numpy(codes).to(points.rows.device)
        random = check_random_state(self.random_state)
        cover = strong_cover(points, on_device, self.n_clusters, self.init, self.n_init, random)
        if len(cover.centers) < self.n_clusters:
            warn_of_duplicates(len(cover.centers), self.n_clusters)
        self.radius_, self.majority_ = cover.radius, np.array(cover.values)
        self._publish(table, points, cover.labels, cover.centers)
        return self

    def predict(self, X: Any, foi: Any = None) -> Any:
        """Cluster of the nearest center that has a point's own value of interest, [N].

        Parameters
        ----------
        X : array, frame or tensor [N, d]
        foi : array-like [N], optional
            Values of interest, where they are not columns of X. Points of a value that no cluster has, and all
            points where nothing tells their values, go to the nearest of all centers.
        """
        check_is_fitted(self, "labels_")
        table = self._read(X, reset=False)
        points, codes = self._metric.points(table), self._interest.read(table, foi)
        _, labels = points.nearest(self._centers)
        for value in range(len(self.foi_values_)) if codes is not None else []:
            own = torch.from_numpy(np.flatnonzero(codes == value)).to(labels.device)
            clusters = torch.from_numpy(np.flatnonzero(self.majority_ == value)).to(labels.device)
            if len(own):
                _, nearest = points.at(own).nearest(self._centers.to(labels.device)[clusters])
                labels[own] = clusters[nearest]
        return table.labels(self.classes_[labels.cpu().numpy()])


def check_bins(foi_bins: Any) -> None:
    """Refuse edges that are no increasing numbers."""
    if isinstance(foi_bins, int | np.integer):
        return
    edges = list(foi_bins)
    increasing = all(isinstance(edge, Real) and isfinite(edge) for edge in edges) and edges == sorted(set(edges))
    if not edges or not increasing:
        raise ValueError(f"foi_bins needs a number of bins or their increasing inner edges, got {foi_bins!r}")


def floored(value: float) -> str:
    """A number in [0, 1] with three significant digits, never rounded up."""
    return f"{Context(prec=3, rounding=ROUND_FLOOR).create_decimal(repr(value)).normalize():f}"
