"""The reference clustering: from labels, from centers, from an estimator, or fitted here."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import torch
from sklearn.base import clone
from sklearn.cluster import KMeans, SpectralClustering
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.pipeline import Pipeline
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from neonxc.clusterings.agreement import predicts_otherwise
from neonxc.clusterings.labels import predicts
from neonxc.common.processes import ALONE, Ranks
from neonxc.common.searches import awaits_search, unwrapped
from neonxc.common.warnings import warn
from neonxc.data.distributed import common_classes, readable
from neonxc.data.labels import label_array
from neonxc.data.table import Table
from neonxc.pipelines.opened import opened
from neonxc.trees.fit.batches import Batches
from neonxc.trees.fit.points import Dense
from neonxc.trees.fit.sparse_points import Points, as_points, to_tensor
from neonxc.trees.fit.weighting import fit_predict


@dataclass
class Reference:
    """A reference clustering of a table.

    Attributes
    ----------
    labels : Tensor [n] of int64
        Positions in `classes`.
    centers : Tensor [k, d] of float64
        Centers in the units of the columns.
    classes : ndarray [k]
        Original labels of the clusters.
    space : Points
        Points in the space of the costs: the table itself, or its image under the first steps of a pipeline.
    space_centers : Tensor [k, p] of float64
        Centers in that space.
    steps : Pipeline or None
        The first steps of the pipeline.
    distances : Tensor [n, k] or None
        Distances between `space` and `space_centers`, if they have been computed.
    gamma : float or None
        Scale of the kernel, if the reference is a Gaussian kernel k-means.
    by_means : bool
        Whether `space_centers` are the means of the clusters.
    of_sample : bool
        Whether the labels are those of a sample of a table in batches; those of all points are not yet known.
    """

    labels: Tensor
    centers: Tensor
    classes: np.ndarray
    space: Points
    space_centers: Tensor
    steps: Pipeline | None = None
    distances: Tensor | None = None
    gamma: float | None = None
    by_means: bool = True
    of_sample: bool = False

    def reorder(self, order: np.ndarray) -> None:
        """Put the clusters into another order [k]."""
        if (np.diff(order) > 0).all():
            return
        place = torch.from_numpy(order).to(self.labels.device)
        self.labels = place.argsort()[self.labels]
        self.classes = self.classes[order]
        self.centers = self.centers[place]
        self.space_centers = self.space_centers[place]
        self.distances = None if self.distances is None else self.distances[:, place]


def from_centers(table: Points, centers: Any, metric: str, names: Any = None) -> Reference:
    """Reference with given centers; every point belongs to the nearest one."""
    given = Table.read(centers, name="centers")
    given = given if names is None else given.by_name(names)
    if isinstance(table, Batches):
        found = from_centers(Dense(table.sample()[0]), centers, metric, names)
        return replace(found, space=table, of_sample=True)
    centers = given.tensor.to(table.device, torch.float64)
    if centers.ndim != 2 or centers.shape[1] != table.d:
        raise ValueError(f"centers needs shape [clusters, {table.d}], got {list(centers.shape)}")
    distances = table.distances(centers, metric)
    if not bool(distances.isfinite().all()):
        raise ValueError("centers are too far from X for squared distances in float64; scale both")
    classes = np.arange(len(centers))
    return Reference(distances.argmin(1), centers, classes, table, centers, distances=distances, by_means=False)


def from_labels(table: Points, labels: Any, metric: str, weight: Tensor | None, ranks: Ranks = ALONE) -> Reference:
    """Reference with given labels; centers are the clusters' means (medians for "l1") over all processes."""
    if not ranks.alone and metric != "l2":
        raise ValueError('labels in a group need metric="l2": medians need all rows; pass centers')
    index, classes = classes_of(labels, ranks)
    index = index.to(table.device)
    centers = cluster_centers(table, index, len(classes), metric, weight, ranks)
    return Reference(index, centers, classes, table, centers)


def classes_of(labels: Any, ranks: Ranks) -> tuple[Tensor, np.ndarray]:
    """Positions of the labels [n] among the sorted distinct labels of all processes, and these."""
    with ranks.agreed():
        values = label_array(labels) if len(labels) else np.empty(0, dtype=np.int64)
    classes = common_classes(values, ranks)
    return torch.from_numpy(np.searchsorted(classes, values.astype(classes.dtype))), classes


def from_estimator(model: Any, table: Any, X: Any, weight: Tensor | None, ranks: Ranks) -> Reference:
    """Reference from a tree explainer's `reference`, an estimator or its name.

    Estimators that are not fitted are fitted here, outside of a group; to a sample of the points if these are read
    in batches. Costs are measured to the clusterer's own centers, in the space behind the steps before it.

    Raises
    ------
    ValueError
        The reference is no clusterer, or can't label the points of X. In a group, in all processes, if it needs
        all rows.
    """
    reference = model.reference
    k = model.n_clusters
    metric = model.metric
    seed: Any = {"random_state": model.random_state}
    if isinstance(reference, str):
        if isinstance(table, Batches):
            (points, count), space = table.sample(), cast(Any, table)
            found = kmeans(Dense(points), k, count, common_seed(model.random_state, ranks))
            return replace(found, space=space, of_sample=True)
        X = table.data
        if not ranks.alone and (reference, metric) != ("kmeans", "l2"):
            raise ValueError(
                'reference in a group needs "kmeans" with metric="l2", or a fitted clusterer; or pass centers '
                f"or labels; got {reference!r} with metric={metric!r}"
            )
        if reference == "kmeans":
            found = kmeans(table, k, weight, model.random_state, ranks=ranks)
            return k_medians(found, weight) if metric == "l1" else found
        if reference == "spectral":
            if table.n < k:
                raise ValueError(f"X has n_samples={table.n}, fewer than n_clusters={k}")
            reference = SpectralClustering(k, affinity="nearest_neighbors", **seed)
        elif reference == "kernel_kmeans":
            from neonxc.models import KernelKMeans  # other references do without it

            reference = KernelKMeans(k, objective="feature", **seed)
    with ranks.agreed():
        reference = reference if awaits_search(reference) else unwrapped(reference)
        if not is_clusterer(reference):
            raise ValueError(
                f'reference needs "kmeans", "kernel_kmeans", "spectral" or a clusterer, got {reference!r}'
            )
        if streamed := isinstance(table, Batches):
            clusterer, labels = _labels_of_stream(_flat(reference), table)
        else:
            X, rows = readable(X, ranks)
            X = Table.read(X).for_sklearn
            clusterer, labels = fitted_labels(reference, X, weight, ranks)
            labels = labels[rows]
    found = from_labels(table, labels, metric, weight, ranks)
    steps, final = opened(clusterer)
    if steps:
        found.steps = clusterer[:-1]
        if streamed:
            found.space = table.behind(found.steps)
        else:
            with ranks.agreed():
                found.space = as_points(to_tensor(found.steps.transform(X)[rows]).to(table.device))
        found.space_centers = cluster_centers(found.space, found.labels, len(found.classes), metric, weight, ranks)
    found.gamma = getattr(final, "gamma_", None)
    own = getattr(final, "cluster_centers_", None)
    if own is not None and np.shape(own) == tuple(found.space_centers.shape) and metric == "l2":
        found.space_centers = torch.as_tensor(np.asarray(own, dtype=np.float64)).to(table.device)
        found.by_means = False
        if found.space is table:
            found.centers = found.space_centers
    return found


def kmeans(table: Points, k: int, weight: Tensor | None, random_state: Any, ranks: Ranks = ALONE) -> Reference:
    """Fit k-means to the rows of all processes.

    Equal points are merged to one point with the sum of their weights, so that a point of weight 2 gives the same
    result as two equal points.
    """
    if not ranks.alone:
        from neonxc.models import KernelKMeans  # other references do without it

        model = KernelKMeans(k, n_support=1, n_init=10, random_state=common_seed(random_state, ranks))
        weights = None if weight is None else weight.cpu().numpy()
        model.fit(table.data.to(torch.float64), sample_weight=weights, group=ranks.group)
        return from_centers(table, model.support_vectors_, "l2")
    rows, inverse, count = table.distinct()
    mass = count if weight is None else np.bincount(inverse, weight.cpu().numpy())
    if table.n < k:
        raise ValueError(f"X has n_samples={table.n}, fewer than n_clusters={k}")
    if rows.shape[0] < k:
        warn(
            f"X has {rows.shape[0]} distinct points, fewer than n_clusters={k}: using {rows.shape[0]} clusters",
            ConvergenceWarning,
        )
        k = rows.shape[0]
    fitted = KMeans(k, n_init=10, random_state=random_state).fit(rows, sample_weight=mass.astype(np.float64))
    centers = torch.from_numpy(fitted.cluster_centers_.astype(np.float64)).to(table.device)
    labels = torch.from_numpy(fitted.labels_[inverse].astype(np.int64)).to(table.device)
    return Reference(labels, centers, np.arange(k), table, centers, by_means=False)


def common_seed(random_state: Any, ranks: Ranks) -> int:
    """A seed that is the same in all processes, even if `random_state` is None."""
    return int(ranks.max(torch.tensor(check_random_state(random_state).randint(1 << 31))))


def k_medians(found: Reference, weight: Tensor | None, steps: int = 50) -> Reference:
    """Lloyd's algorithm with Manhattan distances and medians, starting from the k-means solution."""
    for _ in range(steps):
        labels = found.space.distances(found.space_centers, "l1").argmin(1)
        own = cluster_centers(found.space, labels, len(found.classes), "l1", weight)
        centers = filled(own, found.space_centers)
        done = torch.equal(labels, found.labels) and torch.equal(centers, found.space_centers)
        found.labels = labels
        found.centers = centers
        found.space_centers = centers
        if done:
            break
    return found


def cluster_centers(
    table: Points, labels: Tensor, k: int, metric: str, weight: Tensor | None, ranks: Ranks = ALONE
) -> Tensor:
    """Means of the clusters over all processes, [k, d]; medians for "l1", which needs a single process."""
    if metric == "l2":
        return table.means(labels, k, weight, ranks)
    centers = torch.full((k, table.d), torch.nan, dtype=torch.float64, device=table.device)
    for first, last in table.chunks():
        values = table.columns(first, last).to(torch.float64)
        for cluster in range(k):
            own = labels == cluster
            if bool(own.any()):
                centers[cluster, first:last] = medians(values[:, own], None if weight is None else weight[own])
    return centers


def medians(values: Tensor, weight: Tensor | None) -> Tensor:
    """Weighted median of every row; midway between the two middle values if there are two."""
    ordered, order = values.sort(dim=1)
    share = torch.ones_like(ordered) if weight is None else weight[order]
    up_to = share.cumsum(1)
    half = share.sum(1, keepdim=True) / 2
    low = (up_to < half).sum(1, keepdim=True).clamp(max=values.shape[1] - 1)
    high = (up_to <= half).sum(1, keepdim=True).clamp(max=values.shape[1] - 1)
    return (ordered.gather(1, low) + ordered.gather(1, high))[:, 0] / 2


def filled(means: Tensor, centers: Tensor) -> Tensor:
    """Replace the means of clusters without points by their reference centers."""
    return torch.where(means.isnan(), centers, means) if means.shape == centers.shape else means


def _labels_of_stream(reference: Any, table: Batches) -> tuple[Any, Any]:
    """Fit a clusterer to a sample of the points unless it is fitted; return it and its labels of all points."""
    _, final = opened(reference)
    if not predicts(reference):
        labels = getattr(final, "labels_", None)
        if not table.ranks.alone or labels is None or len(labels) != table.n:
            raise ValueError(
                f"reference is a {type(final).__name__}, which can't predict, as an X that is read batch by batch "
                "needs; pass labels or centers, such as the means of the clusters of a sample"
            )
        return reference, labels
    points, counts = table.sample()
    weight = counts if bool((counts > 1).any()) else None
    clusterer, _ = fitted_labels(reference, table.source.as_given(points), weight, table.ranks)
    return clusterer, table.predict(clusterer)


def is_clusterer(model: Any) -> bool:
    """Whether a model is a clusterer, a pipeline that ends in one, or a search for one of them."""
    while awaits_search(model):
        model = model[-1] if isinstance(model, Pipeline) else model.estimator
    return not isinstance(model, type) and hasattr(model, "fit_predict")


def _fit_predict(model: Any, X: Any) -> Any:
    """Fit a clusterer or a search for one, in place, and return its labels of X."""
    if not awaits_search(model):
        return model.fit_predict(X)
    best = _flat(unwrapped(model.fit(X)))
    _, final = opened(best)
    labels = getattr(final, "labels_", None)
    return best.predict(X) if labels is None else labels


def _flat(model: Any) -> Any:
    """Flatten nested pipelines, so that all steps before the clusterer are a pipeline, which transforms points."""
    if not isinstance(model, Pipeline) or not isinstance(model[-1], Pipeline):
        return model
    steps, final = opened(model)
    flat = [step for _, step in steps] + [final]
    return Pipeline([(f"step{number}", step) for number, step in enumerate(flat)])


def fitted_labels(reference: Any, X: Any, weight: Tensor | None, ranks: Ranks = ALONE) -> tuple[Any, Any]:
    """Fit a clusterer, or a search for one, unless it is fitted; return it, or the best one, and its labels."""
    reference = _flat(reference)
    _, final = opened(reference)
    try:
        check_is_fitted(final)
    except NotFittedError:
        if not ranks.alone:
            raise ValueError("reference in a group needs to be fitted; otherwise pass centers or labels") from None
        model = clone(reference)
        if weight is None:
            labels = _fit_predict(model, X)
            return _flat(unwrapped(model)), labels
        labels, unweighted = fit_predict(model, X, weight.cpu().numpy())
        if unweighted:
            takes = "take" if len(unweighted) > 1 else "takes"
            names = " and ".join(unweighted)
            warn(f"{names} {takes} no sample_weight: this part of the reference is fitted without weights")
        return _flat(unwrapped(model)), labels
    if predicts(reference):
        labels = reference.predict(X)
        if ranks.alone and (difference := predicts_otherwise(reference, final, X, labels)):
            warn(f"reference: {difference}. The tree explains what it predicts; labels= explains other labels")
        return reference, labels
    labels = getattr(final, "labels_", None)
    if not ranks.alone or labels is None or len(labels) != np.shape(X)[0]:
        raise ValueError(
            f"reference is a fitted {type(final).__name__} that can't predict; pass labels= or an unfitted one"
        )
    return reference, labels
