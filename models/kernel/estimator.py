"""Kernel k-means: clusters with a few support vectors each, or with all of their members."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from neonxc.clusterings.supports import check_spread
from neonxc.common.processes import Ranks
from neonxc.data.distributed import common_type, readable
from neonxc.data.frames import in_order_of, reads_tables
from neonxc.data.inputs import as_weights
from neonxc.data.table import Table

from .checks import check_options, counted
from .seeding import Sample, best_run

COUNT = [Interval(Integral, 1, None, closed="left")]


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
        EM ends when the objective falls by less than this share of it.
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
        "n_clusters": COUNT,
        "n_support": COUNT,
        "gamma": [Interval(Real, 0, None, closed="neither"), StrOptions({"median"})],
        "objective": [StrOptions({"lme", "feature", "spherical"})],
        "init": [StrOptions({"kmeans", "random"}), "array-like"],
        "n_init": COUNT,
        "max_iter": COUNT,
        "tol": [Interval(Real, 0, None, closed="left")],
        "weighted": ["boolean"],
        "batch_size": [*COUNT, None],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        n_clusters: int = 8,
        n_support: int = 10,
        gamma: float | str = "median",
        objective: str = "lme",
        init: Any = "kmeans",
        *,
        n_init: int = 1,
        max_iter: int = 300,
        tol: float = 1e-5,
        weighted: bool = False,
        batch_size: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.__dict__.update(locals())  # scikit-learn asks for every parameter as an attribute
        del self.self

    def fit(
        self, X: Any, y: Any = None, *, labels: Any = None, sample_weight: Any = None, group: Any = None
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
        fixed = labels is not None
        with ranks.agreed():
            check_options(self, fixed, group)
            given, rows = readable(X, ranks)
            batch = self._read(given, reset=True)
            x = batch.tensor[rows]
            labels = in_order_of(labels, X)
            weight = as_weights(in_order_of(sample_weight, X, "sample_weight"), len(x), x.device)
        init = self.init if isinstance(self.init, str) else "labels"
        ranks.same(
            model=type(self)(**self.get_params(deep=False) | {"init": init, "random_state": None}),
            labels="given" if fixed else None,
            columns=batch.names or x.shape[1],
            device=x.device.type,
        )
        x = x.to(common_type(len(x), x.dtype, ranks))
        if not ranks.sum(weight.sum()) > 0:
            raise ValueError("sample_weight is zero everywhere: some weights have to be > 0")
        points, mass, first, self.classes_ = counted(self, x, weight, labels, ranks)
        total, number = ranks.sum(torch.stack([mass.sum(), mass.new_tensor(len(mass))]))
        unit = float(total / number)  # only ratios of weights matter
        mass = (mass / unit).to(points)
        # float32 distances are exact near the origin only
        self._shift = ranks.sum(mass @ points) / number.to(points)
        points = self._inner(points)
        check_spread(points, batch.names, ranks=ranks)
        seed = ranks.max(torch.tensor(check_random_state(self.random_state).randint(2**31 - 1)))
        generator = torch.Generator(points.device).manual_seed(int(seed))
        sample = Sample(points, mass, generator, ranks)
        fit = best_run(self, len(self.classes_), sample, first, fixed)
        self._model = fit.model
        self.objective_ = fit.objective * unit
        self.history_ = [value * unit for value in fit.history]
        self._publish(batch.is_tensor)
        with ranks.agreed():
            self.labels_ = batch.labels(self._predict(x))
        return self

    def predict(self, X: Any) -> Any:
        """Cluster of every point, [N].

        Parameters
        ----------
        X : array, frame or tensor [N, d]
        """
        batch = self._read(X)
        return batch.labels(self._predict(batch.tensor))

    def transform(self, X: Any) -> Any:
        """Distance of every point to every cluster, [N, K], as the objective measures it.

        Parameters
        ----------
        X : array, frame or tensor [N, d]
        """
        table = self._read(X)
        return table.labels(self._distances(table.tensor))

    def score(self, X: Any, y: Any = None) -> float:
        """Minus the objective on X.

        Parameters
        ----------
        X : array, data frame or Tensor [N, d]
            Points.
        y : ignored

        Returns
        -------
        float
        """
        return -float(self._distances(self._read(X).tensor).amin(1).sum())

    @property
    def _n_features_out(self) -> int:
        return len(self.classes_)

    @reads_tables
    def _read(self, X: Any, reset: bool = False) -> Table:
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
        return self.classes_[self._distances(x).argmin(1).cpu().numpy()]

    def _distances(self, x: Tensor) -> Tensor:
        inner = self._inner(x)
        check_spread(inner, getattr(self, "feature_names_in_", None), fitting=False)
        return self._model.distances(inner)

    def _inner(self, x: Tensor) -> Tensor:
        """Points as the model has them, near the origin; far from it float32 would round away what matters."""
        return (x.to(self._shift.device).double() - self._shift.double()).to(self._shift)
