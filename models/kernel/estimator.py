"""Kernel k-means: clusters supported by a few points each, or by all of their members."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from neonxc.inputs import Batch, as_batch

from .batches import drawn, in_batches
from .checks import check_count, check_options, checked_weights, counted_labels
from .members import Members, feature_kmeans
from .seeding import kmeans, median_gamma, merged, seeded
from .supports import Fit, Supports, em, pruned, squared_distances

SAMPLE = 2000  # points whose distances the median heuristic looks at
SEEDS = 10  # points per support from which mini-batches start


class KernelKMeans(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, BaseEstimator):
    """k-means with a Gaussian kernel: clusters of any shape, from a few supports each.

    Parameters
    ----------
    n_clusters : int
    n_support : int
        Supports per cluster; with 1 it is k-means.
    gamma : float or "median"
        Of the kernel ``exp(-gamma |x - u|^2)``, in units of 1 / squared distance. "median": one over the median
        squared distance, of points to the nearest support of their cluster after the start (objective "lme", so
        that it follows how fine the supports are), or between points (the others).
    objective : {"lme", "feature", "spherical"}
        "lme": the sum of distances ``D = LME^{-gamma}`` to the supports, fitted by EM; a network with the same
        decisions exists (NEON paper, Prop. 5). "feature": classical kernel k-means, squared distances to means in
        the kernel's feature space, with all members as supports; "spherical": to means of unit length. Time and
        memory of these grow with the square of the number of points.
    init : {"kmeans", "random"} or array [n]
        Clusters to start from: of k-means, of random points, or given labels.
    n_init : int
        Starts; the one with the lowest objective is kept.
    max_iter : int
    tol : float
        EM ends when the objective falls by less than this share.
    weighted : bool
        Fit weights of the supports ("lme"); else they count alike.
    prune : float, optional
        Drop supports, those felt least first, that have a share of at most this in sum in any point's distance to
        its own or the nearest other cluster. These distances change by no more than ``-log(1 - prune) / gamma``.
    batch_size : int, optional
        Fit by mini-batches of so many points ("lme", without given labels), at most `max_iter` times through the
        data, shuffled. The start is that of a sample, then.
    random_state : int, RandomState or None

    Attributes
    ----------
    support_vectors_ : ndarray or Tensor [M, d]
        Sorted by cluster.
    support_labels_ : ndarray [M]
        Cluster of every support.
    support_weights_ : ndarray [M]
        As they enter the soft minimum. "lme": of a cluster's supports, summing to 1 before any were pruned.
    gamma_ : float
    labels_ : array or Tensor [n]
        Cluster of every point, by the model. Points with a given label -1 (noise) have one too.
    objective_ : float
        Sum of the distances; of the classical objectives in feature space.
    history_ : list of float
        The objective after each iteration of the best start, before pruning. On full batches it never rises.
    n_pruned_ : int
        Supports that were dropped.
    classes_ : ndarray [K]
        Labels of the clusters: 0 ... K-1, or those given to `fit`.

    Notes
    -----
    It computes where X is: on the CPU, or on the device of a tensor.

    A file (:func:`neonxc.save`) holds the fit; of parameters that are no numbers or strings (labels as `init`, a
    RandomState) it holds the default, and integer labels come back as int64.

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
        prune: float | None = None,
        batch_size: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.n_support = n_support
        self.gamma = gamma
        self.objective = objective
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.weighted = weighted
        self.prune = prune
        self.batch_size = batch_size
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, *, labels: Any = None, sample_weight: Any = None) -> KernelKMeans:
        """Find the supports.

        Parameters
        ----------
        X : array, frame or tensor [n, d]
        y : ignored
        labels : array-like [n], optional
            Keep these assignments, and fit their supports alone; `n_clusters` and `init` are of no account then.
            Points of label -1 (noise) are left out.
        sample_weight : array-like [n], optional
            Weights >= 0 of the points; those of weight 0 are left out, as points with a label -1 are.

        Raises
        ------
        ValueError
            Unusable X or parameters, options that don't apply, more clusters than different points, labels of
            another length.
        """
        del y
        check_options(self, labels is not None)
        batch = self._read(X, reset=True)
        x, weight = batch.tensor, checked_weights(sample_weight, batch.tensor)
        kept, given = weight > 0, None
        self.classes_ = np.arange(self.n_clusters)
        if labels is not None:
            given, self.classes_, kept = counted_labels(labels, kept, "labels")
        elif not isinstance(self.init, str):
            given, classes, kept = counted_labels(self.init, kept, "init")
            if len(classes) != self.n_clusters:
                raise ValueError(f"init has {len(classes)} different labels, n_clusters is {self.n_clusters}")
        inner, mass, first = merged(x[kept], weight[kept], given)
        check_count(int(kept.sum()), inner, len(self.classes_))
        unit = mass.mean()  # weights of any size do the same
        mass = (mass / unit).to(x)
        self._shift = (mass @ inner) / mass.sum()  # float32 distances are exact near the origin only
        generator = torch.Generator(x.device).manual_seed(self._seed())
        run = self._with_supports if self.objective == "lme" else self._with_members
        run(self._inner(inner), mass, first, labels is not None, generator)
        self.objective_ *= float(unit)
        self.history_: list[float] = [value * float(unit) for value in self.history_]
        self._publish(isinstance(X, Tensor))
        self.labels_ = batch.labels(self._predict(x))
        return self

    def predict(self, X: Any) -> Any:
        """Cluster of every point, [N].

        Parameters
        ----------
        X : array, frame or tensor [N, d]
        """
        check_is_fitted(self, "gamma_")
        batch = self._read(X, reset=False)
        return batch.labels(self._predict(batch.tensor))

    def transform(self, X: Any) -> Any:
        """Distance of every point to every cluster, [N, K], as the objective has it.

        Parameters
        ----------
        X : array, frame or tensor [N, d]
        """
        check_is_fitted(self, "gamma_")
        distances = self._distances(self._read(X, reset=False).tensor)
        return distances if isinstance(X, Tensor) else distances.cpu().numpy()

    def score(self, X: Any, y: Any = None) -> float:
        """Minus the objective on X."""
        check_is_fitted(self, "gamma_")
        return -float(self._distances(self._read(X, reset=False).tensor).amin(1).sum())

    @property
    def _n_features_out(self) -> int:
        return len(self.classes_)

    def _with_supports(
        self, x: Tensor, weight: Tensor, first: Tensor | None, fixed: bool, generator: torch.Generator
    ) -> None:
        """Objective "lme"."""
        fits = [self._fit_supports(x, weight, first, fixed, generator) for _ in range(self.n_init)]
        best = min(fits, key=lambda fit: fit.objective)
        self._model: Supports | Members = best.supports
        self.objective_, self.history_, self.n_pruned_ = best.objective, best.history, 0
        if self.prune is not None:
            self._model, self.n_pruned_ = pruned(x, best.supports, self.prune)
            self.objective_ = em(x, self._model, first if fixed else None, weight, max_iter=0).objective

    def _fit_supports(
        self, x: Tensor, weight: Tensor, first: Tensor | None, fixed: bool, generator: torch.Generator
    ) -> Fit:
        k, some, mass = len(self.classes_), x, weight
        if self.batch_size is not None and first is None:
            size = max(self.batch_size, SEEDS * k * self.n_support)
            if size < len(x):
                some, mass = x[drawn(weight, size, generator)], weight.new_ones(size)
        labels = self._start(some, mass, generator) if first is None else first
        supports = seeded(some, labels, k, self.n_support, self.gamma, generator, mass)
        tol, steps, weighted = float(self.tol), int(self.max_iter), bool(self.weighted)
        if self.batch_size is not None:
            return in_batches(x, supports, weight, generator, self.batch_size, weighted, max_iter=steps, tol=tol)
        keep = first if fixed else None
        return em(x, supports, keep, weight, weighted=weighted, max_iter=steps, tol=tol)

    def _with_members(
        self, x: Tensor, weight: Tensor, first: Tensor | None, fixed: bool, generator: torch.Generator
    ) -> None:
        """Objectives "feature" and "spherical"."""
        sample = x[torch.randperm(len(x), generator=generator, device=x.device)[:SAMPLE]]
        median = isinstance(self.gamma, str)
        gamma = median_gamma(squared_distances(sample, sample)) if median else float(self.gamma)
        runs = []
        for _ in range(self.n_init):
            labels = self._start(x, weight, generator) if first is None else first
            iterations = 0 if fixed else self.max_iter
            spherical = self.objective == "spherical"
            runs.append(feature_kmeans(x, labels, len(self.classes_), gamma, weight, spherical, iterations))
        self._model, self.history_ = min(runs, key=lambda run: run[1][-1])
        self.objective_, self.n_pruned_ = self.history_[-1], 0

    def _start(self, x: Tensor, weight: Tensor, generator: torch.Generator) -> Tensor:
        """Clusters to start from, [n]."""
        k = len(self.classes_)
        if self.init == "kmeans":
            return kmeans(x, k, generator, weight).labels
        chosen = x[torch.randperm(len(x), generator=generator, device=x.device)[:k]]
        return squared_distances(x, chosen).argmin(1)

    def _publish(self, as_tensor: bool) -> None:
        """Set the attributes that describe the model; supports out of use are left out."""
        model = self._model
        if isinstance(model, Supports):
            points, weights = model.points.flatten(0, 1), model.log_weights.flatten().exp()
        else:
            points, weights = model.points, model.weights
        order = model.groups.argsort(stable=True)
        order = order[weights[order] > 0]
        vectors = points[order] + self._shift
        self.support_vectors_ = vectors if as_tensor else vectors.cpu().numpy()
        self.support_labels_ = self.classes_[model.groups[order].cpu().numpy()]
        self.support_weights_ = weights[order].cpu().numpy()
        self.gamma_ = model.gamma
        self.n_iter_ = len(self.history_)

    def _predict(self, x: Tensor) -> np.ndarray:
        return self.classes_[self._distances(x).argmin(1).cpu().numpy()]

    def _distances(self, x: Tensor) -> Tensor:
        return self._model.distances(self._inner(x))

    def _inner(self, x: Tensor) -> Tensor:
        """Points as the model has them, near the origin; far from it float32 would round away what matters."""
        return (x.to(self._shift.device).double() - self._shift.double()).to(self._shift)

    def _read(self, X: Any, reset: bool) -> Batch:
        if isinstance(X, Tensor) or hasattr(X, "iloc"):
            batch = as_batch(X)
            if batch.tensor.ndim != 2:
                raise ValueError(f"X needs shape [points, features], got {list(batch.tensor.shape)}")
            validate_data(self, X=X, reset=reset, skip_check_array=True)
            return batch
        return as_batch(validate_data(self, X=X, reset=reset))

    def _seed(self) -> int:
        return int(check_random_state(self.random_state).randint(2**31 - 1))
