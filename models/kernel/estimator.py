"""Kernel k-means: clusters supported by a few points each, or by all of their members."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
from torch import Tensor

from neonxc.heads import CentroidHead
from neonxc.inputs import Batch, as_batch, as_labels
from neonxc.parameters import check_number, check_whole
from neonxc.preprocessing import Preprocessing
from neonxc.readers import ClusterModel, read

from .members import Members, feature_kmeans
from .seeding import kmeans, merged, within_clusters
from .supports import Fit, Supports, em, online, pruned, squared_distances, uniform

SAMPLE = 2000  # points whose distances the median heuristic looks at


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
        Drop supports that have a share above this in no point's distance to its own or the nearest other cluster.
        What that can change of a decision is of the order of ``prune / gamma``.
    batch_size : int, optional
        Fit by mini-batches of so many points ("lme"), `max_iter` times through the data, shuffled.
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
        The objective after each iteration of the best start. On full batches it never rises.
    n_pruned_ : int
        Supports that were dropped.
    classes_ : ndarray [K]
        Labels of the clusters: 0 ... K-1, or those given to `fit`.

    Notes
    -----
    It computes where X is: on the CPU, or on the device of a tensor.

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
            Weights >= 0 of the points.

        Raises
        ------
        ValueError
            Unusable X or parameters, more clusters than points, labels of another length.
        """
        del y
        self._check_parameters()
        batch = self._read(X, reset=True)
        x, weight = batch.tensor, self._weights(sample_weight, batch.tensor)
        kept = weight > 0
        given, self.classes_ = None, np.arange(self.n_clusters)
        if labels is not None:
            given, self.classes_, there = as_labels(labels, len(x), x.device)
            kept &= there
        elif not isinstance(self.init, str):
            given, classes, there = as_labels(self.init, len(x), x.device, name="init")
            kept &= there
            if len(classes) != self.n_clusters:
                raise ValueError(f"init has {len(classes)} different labels, n_clusters is {self.n_clusters}")
        if int(kept.sum()) < len(self.classes_):
            raise ValueError(
                f"X has n_samples={int(kept.sum())} points that count, fewer than n_clusters={len(self.classes_)}"
            )
        inner, mass, first = merged(x[kept], weight[kept], None if given is None else given[kept])
        self._shift = (mass @ inner) / mass.sum()  # float32 distances are exact near the origin only
        generator = torch.Generator(x.device).manual_seed(self._seed())
        run = self._with_supports if self.objective == "lme" else self._with_members
        run(inner - self._shift, mass, first, labels is not None, generator)
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
        supports, self.n_pruned_ = best.supports, 0
        if self.prune is not None:
            supports, self.n_pruned_ = pruned(x, supports, self.prune)
        self._model: Supports | Members = supports
        self.objective_, self.history_ = best.objective, best.history

    def _fit_supports(
        self, x: Tensor, weight: Tensor, first: Tensor | None, fixed: bool, generator: torch.Generator
    ) -> Fit:
        k = len(self.classes_)
        labels = self._start(x, weight, generator) if first is None else first
        supports = within_clusters(x, labels, k, self.n_support, generator, weight)
        far = supports.distances(x).gather(1, labels[:, None])
        supports = uniform(supports.points, self._gamma(far))
        if self.batch_size is not None and not fixed:
            return self._in_batches(x, weight, supports, generator)
        keep = labels if fixed else None
        return em(x, supports, keep, weight, weighted=self.weighted, max_iter=self.max_iter, tol=self.tol)

    def _in_batches(self, x: Tensor, weight: Tensor, supports: Supports, generator: torch.Generator) -> Fit:
        assert self.batch_size is not None
        seen, history = torch.zeros_like(supports.log_weights), []
        for _ in range(self.max_iter):
            total = 0.0
            order = torch.multinomial(weight, len(x), replacement=bool((weight != 1).any()), generator=generator)
            for rows in order.split(self.batch_size):
                supports, objective = online(x[rows], supports, seen, self.weighted)
                total += objective
            history.append(total)
            if len(history) > 1 and history[-2] - total <= self.tol * abs(history[-2]):
                break
        final = em(x, supports, weight=weight, max_iter=0)
        return Fit(supports, final.labels, final.objective, history)

    def _with_members(
        self, x: Tensor, weight: Tensor, first: Tensor | None, fixed: bool, generator: torch.Generator
    ) -> None:
        """Objectives "feature" and "spherical"."""
        sample = x[torch.randperm(len(x), generator=generator, device=x.device)[:SAMPLE]]
        gamma = self._gamma(squared_distances(sample, sample))
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

    def _gamma(self, squared: Tensor) -> float:
        if not isinstance(self.gamma, str):
            return float(self.gamma)
        apart = squared[squared > 0]
        return 1 / float(apart.median()) if len(apart) else 1.0

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
        return self._model.distances(x.to(self._shift) - self._shift)

    def _read(self, X: Any, reset: bool) -> Batch:
        if isinstance(X, Tensor) or hasattr(X, "iloc"):
            batch = as_batch(X)
            if batch.tensor.ndim != 2:
                raise ValueError(f"X needs shape [points, features], got {list(batch.tensor.shape)}")
            validate_data(self, X=X, reset=reset, skip_check_array=True)
            return batch
        return as_batch(validate_data(self, X=X, reset=reset))

    def _weights(self, sample_weight: Any, x: Tensor) -> Tensor:
        if sample_weight is None:
            return x.new_ones(len(x))
        given = sample_weight.cpu().numpy() if isinstance(sample_weight, Tensor) else sample_weight
        weight = torch.as_tensor(_check_sample_weight(given, np.empty((len(x), 1)), dtype=np.float64)).to(x)
        if bool((weight < 0).any()) or not bool((weight > 0).any()):
            raise ValueError("sample_weight needs weights >= 0 that are not all 0")
        return weight

    def _seed(self) -> int:
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _check_parameters(self) -> None:
        for name in ("n_clusters", "n_support", "n_init", "max_iter"):
            check_whole(name, getattr(self, name))
        check_whole("batch_size", self.batch_size, optional=True)
        if self.objective not in ("lme", "feature", "spherical"):
            raise ValueError(f'objective needs "lme", "feature" or "spherical", got {self.objective!r}')
        if isinstance(self.init, str) and self.init not in ("kmeans", "random"):
            raise ValueError(f'init needs "kmeans", "random" or labels, got {self.init!r}')
        if (isinstance(self.gamma, str) and self.gamma != "median") or self.gamma == 0:
            raise ValueError(f'gamma needs a number > 0 or "median", got {self.gamma!r}')
        if not isinstance(self.gamma, str):
            check_number("gamma", self.gamma)
        if self.prune is not None:
            check_number("prune", self.prune, most=1)


@read.register
def _(model: KernelKMeans) -> ClusterModel:
    check_is_fitted(model, "gamma_")
    _, groups = np.unique(model.support_labels_, return_inverse=True)
    centers, columns = torch.as_tensor(model.support_vectors_).double().cpu(), torch.from_numpy(groups)
    log_weights = torch.as_tensor(model.support_weights_).double().log()

    def head(chain: Preprocessing | None) -> CentroidHead:
        return CentroidHead(centers, columns, chain, gamma=model.gamma_, log_weights=log_weights)

    if model.objective != "feature":
        return ClusterModel(head, centers, model.classes_)
    # the soft minimum leaves out the lengths of the means (Prop. 4): how far do they decide alike?
    own = model._distances(torch.as_tensor(model.support_vectors_)).argmin(1).cpu()
    agree = (head(None).assign(centers) == own).double().mean()
    return ClusterModel(head, centers, model.classes_, fidelity=(float(agree), None))
