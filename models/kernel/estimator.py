"""Kernel k-means: clusters with a few support vectors each, or with all of their members.

1. Points that count are merged and weighted                 (``checks.py``)
2. They are shifted to their mean, near which float32 distances are exact
3. The best of several starts is fitted                      (``seeding.py``)
by EM, or by reassignment to means in feature space       (``em.py``)
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, ClassVar, overload

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from neonxc.clusterings.supports import Supports, check_spread
from neonxc.common.precision import in_full_precision
from neonxc.common.processes import Ranks
from neonxc.common.types import ArrayLike, RandomState, TableLike
from neonxc.data.distributed import common_type, readable
from neonxc.data.frames import in_order_of, reads_tables
from neonxc.data.inputs import as_weights
from neonxc.data.table import Table

from .checks import check_options, counted
from .em import Members
from .seeding import Sample, best_run

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

AT_LEAST_ONE = Interval(Integral, 1, None, closed="left")
OBJECTIVES = StrOptions({"lme", "feature", "spherical"})
STARTS = StrOptions({"kmeans", "random"})


class KernelKMeans(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, BaseEstimator):
    """k-means with a Gaussian kernel: clusters of any shape, from a few supports each.

    Parameters
    ----------
    n_clusters : int
    n_support : int
        Supports per cluster; 1 gives k-means.
    gamma : float or "median"
        Stiffness of the kernel ``exp(-gamma |x - u|^2)``, in units of 1 / squared distance. "median" is one over
        the median squared distance: for the objective "lme" that of points to the nearest support of their cluster
        after the start, so that it follows how fine the supports are; for the others that between points.
    objective : {"lme", "feature", "spherical"}
        "lme" is the sum of distances ``D = LME^{-gamma}`` to the supports, fitted by EM; a network with the same
        decisions exists (NEON paper, Prop. 5). "feature" is classical kernel k-means: squared distances to means
        in the kernel's feature space, with all members as supports; "spherical" takes means of unit length. Time
        and memory of these two grow with the square of the number of points.
    init : {"kmeans", "random"} or array [n]
        Clusters to start from: those of k-means, of random points, or given labels.
    n_init : int
        Number of starts; the one with the lowest objective is kept.
    max_iter : int
    tol : float
        EM ends when the objective falls by less than this fraction of it.
    weighted : bool
        Whether the weights of the supports are fitted ("lme"), or are equal.
    batch_size : int, optional
        Fit by mini-batches of this size ("lme", without given labels), in at most `max_iter` passes over the
        shuffled data. The start is then found on a sample.
    random_state : int, RandomState or None

    Attributes
    ----------
    support_vectors_ : ndarray or Tensor [M, d]
        Sorted by cluster.
    support_labels_ : ndarray [M]
        Cluster of every support.
    support_weights_ : ndarray [M]
        Weights in the soft minimum. For "lme", those of a cluster sum to 1.
    gamma_ : float
    labels_ : array or Tensor [n]
        Cluster that the model assigns to every point, including points with a given label -1 (noise).
    objective_ : float
        Sum of the distances, which the classical objectives measure in feature space.
    history_ : list of float
        The objective after each iteration of the best start. On full batches it never rises.
    classes_ : ndarray [K]
        Labels of the clusters: 0 ... K-1, or those given to `fit`. There are fewer than `n_clusters` where X has
        fewer distinct points.

    Notes
    -----
    The computation is on the device of X if it is a tensor, and on the CPU otherwise.

    A file (:func:`neonxc.save`) holds the fit. Parameters that are neither numbers nor strings (labels as `init`,
    a RandomState) get their defaults when it is loaded.

    References
    ----------
    .. [1] J. Kauffmann et al., "From clustering to cluster explanations via neural networks", 2022, section III.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from neonxc.models import KernelKMeans
    >>> X, moon = make_moons(400, noise=0.05, random_state=0)
    >>> model = KernelKMeans(2, random_state=0).fit(X, labels=moon)
    >>> float((model.labels_ == moon).mean())
    1.0
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_clusters": [AT_LEAST_ONE],
        "n_support": [AT_LEAST_ONE],
        "gamma": [Interval(Real, 0, None, closed="neither"), StrOptions({"median"})],
        "objective": [OBJECTIVES],
        "init": [STARTS, "array-like"],
        "n_init": [AT_LEAST_ONE],
        "max_iter": [AT_LEAST_ONE],
        "tol": [Interval(Real, 0, None, closed="left")],
        "weighted": ["boolean"],
        "batch_size": [AT_LEAST_ONE, None],
        "random_state": ["random_state"],
    }

    support_vectors_: np.ndarray | Tensor
    support_labels_: np.ndarray
    n_clusters: int
    n_support: int
    gamma: float | str
    objective: str
    init: str | ArrayLike
    n_init: int
    max_iter: int
    tol: float
    weighted: bool
    batch_size: int | None
    random_state: RandomState

    def __init__(
        self,
        n_clusters: int = 8,
        n_support: int = 10,
        gamma: float | str = "median",
        objective: str = "lme",
        init: str | ArrayLike = "kmeans",
        *,
        n_init: int = 1,
        max_iter: int = 300,
        tol: float = 1e-5,
        weighted: bool = False,
        batch_size: int | None = None,
        random_state: RandomState = None,
    ) -> None:
        self.__dict__.update(locals())  # scikit-learn asks for every parameter as an attribute
        del self.self

    @in_full_precision
    def fit(
        self,
        X: TableLike,
        y: object = None,
        *,
        labels: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        group: ProcessGroup | None = None,
    ) -> KernelKMeans:
        """Fit the supports.

        Parameters
        ----------
        X : array, frame or tensor [n, d]
        y : ignored
        labels : array-like [n], optional
            Assignments to keep: only the supports are fitted, and `n_clusters` and `init` are not used. Points of
            label -1 (noise) are left out.
        sample_weight : array-like [n], optional
            Weights >= 0 of the points. Points of weight 0 are left out.
        group : torch.distributed.ProcessGroup, optional
            Fit to the rows of all processes of the group ("lme", without `batch_size`): X, `labels`,
            `sample_weight` and an array as `init` are those of this process, which may have no rows, shape
            [0, d]. All processes call `fit`; they end with the same model, and `labels_` are those of their own
            rows. From the same start the result is that of one process on all rows, up to rounding; the start is
            drawn from the rows of all, and depends on how these are spread over the processes. Random numbers are
            those of the process whose `random_state` gives the greatest seed.

        Raises
        ------
        ValueError
            If X or parameters cannot be used, options do not apply, there are fewer points than clusters, the
            number of labels is wrong, labels have more clusters than there are distinct points, or distances over-
            or underflow. In a group, all processes raise the error of one process, and an error if columns, types
            or parameters differ.

        Warns
        -----
        ConvergenceWarning
            If X has fewer distinct points than `n_clusters`; each then has a cluster.
        """
        del y
        ranks = Ranks(group)
        has_labels = labels is not None
        with ranks.agreed():
            check_options(self, has_labels, group)
            rows_of_rank, rows = readable(X, ranks)
            table = self._read(rows_of_rank, reset=True)
            x = table.tensor[rows]
            labels = in_order_of(labels, X)
            weight = as_weights(in_order_of(sample_weight, X, "sample_weight"), len(x), x.device)
        init = self.init if isinstance(self.init, str) else "labels"
        params = self.get_params(deep=False) | {"init": init, "random_state": None}
        labels_kind = "given" if has_labels else None
        ranks.same(
            model=type(self)(**params),
            labels=labels_kind,
            columns=table.names or x.shape[1],
            device=x.device.type,
        )
        x = x.to(common_type(len(x), x.dtype, ranks))
        if not ranks.sum(weight.sum()) > 0:
            raise ValueError("sample_weight is zero everywhere: some weights have to be > 0")

        points, self.classes_ = counted(self, x, weight, labels, ranks)
        n_points = points.mass.new_tensor(len(points.mass))
        total_mass, total_points = ranks.sum(torch.stack([points.mass.sum(), n_points]))
        mean_mass = float(total_mass / total_points)
        mass = (points.mass / mean_mass).to(points.x)  # only ratios of weights matter
        # float32 distances are exact near the origin only
        self._shift = ranks.sum(mass @ points.x) / total_points.to(points.x)
        shifted = self._shifted(points.x)
        check_spread(shifted, table.names, ranks=ranks)

        seed = ranks.max(torch.tensor(check_random_state(self.random_state).randint(2**31 - 1)))
        generator = torch.Generator(shifted.device).manual_seed(int(seed))
        sample = Sample(shifted, mass, generator, ranks)
        fit = best_run(self, len(self.classes_), sample, points.labels, has_labels)
        self._model: Supports | Members = fit.model
        self.objective_ = fit.objective * mean_mass
        self.history_ = [value * mean_mass for value in fit.history]
        self._publish(table.is_tensor)
        with ranks.agreed():
            self.labels_ = table.labels(self._predict(x))
        return self

    @overload
    def predict(self, X: Tensor) -> Tensor: ...
    @overload
    def predict(self, X: TableLike) -> np.ndarray: ...
    def predict(self, X: TableLike) -> np.ndarray | Tensor:
        """Find the cluster of every point, [N].

        Parameters
        ----------
        X : array, frame or tensor [N, d]
        """
        table = self._read(X)
        return table.labels(self._predict(table.tensor))

    @overload
    def transform(self, X: Tensor) -> Tensor: ...
    @overload
    def transform(self, X: TableLike) -> np.ndarray: ...
    def transform(self, X: TableLike) -> np.ndarray | Tensor:
        """Compute the distance of every point to every cluster, [N, K], as the objective measures it.

        Parameters
        ----------
        X : array, frame or tensor [N, d]
        """
        table = self._read(X)
        return table.labels(self._distances(table.tensor))

    def score(self, X: TableLike, y: object = None) -> float:
        """Compute minus the objective on X.

        Parameters
        ----------
        X : array, data frame or Tensor [N, d]
            Points.
        y : ignored

        Returns
        -------
        float
        """
        distances = self._distances(self._read(X).tensor)
        return -float(distances.amin(1).sum())

    @property
    def _n_features_out(self) -> int:
        return len(self.classes_)

    @reads_tables
    def _read(self, X: TableLike, reset: bool = False) -> Table:
        """Read X as a table: of the columns of the training points, or with `reset`, of the training points."""
        if not reset:
            check_is_fitted(self, "gamma_")
        return Table.of_estimator(self, X, reset)

    def _publish(self, as_tensor: bool) -> None:
        """Set the fitted attributes."""
        points, groups, log_weights = self._model.flat()
        order = groups.argsort(stable=True)
        vectors = points[order] + self._shift
        self.support_vectors_ = vectors if as_tensor else vectors.cpu().numpy()
        self.support_labels_ = self.classes_[groups[order].cpu().numpy()]
        self.support_weights_ = log_weights[order].exp().cpu().numpy()
        self.gamma_ = self._model.gamma
        self.n_iter_ = len(self.history_)

    def _predict(self, x: Tensor) -> np.ndarray:
        nearest = self._distances(x).argmin(1)
        return self.classes_[nearest.cpu().numpy()]

    def _distances(self, x: Tensor) -> Tensor:
        """Compute the distances [N, K] of points to the clusters."""
        shifted = self._shifted(x)
        check_spread(shifted, getattr(self, "feature_names_in_", None), fitting=False)
        return self._model.distances(shifted)

    def _shifted(self, x: Tensor) -> Tensor:
        """Shift points to near the origin, far from which float32 would round away what matters."""
        difference = x.to(self._shift.device).double() - self._shift.double()
        return difference.to(self._shift)
