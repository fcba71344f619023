"""Step 2 of a fit: the reference clustering, which the tree explains.

=====================  ====================  ==================================================================
`fit` is passed        labels of points      centers of clusters
=====================  ====================  ==================================================================
labels                 these                 means of the clusters; medians for metric "l1"
centers                the nearest center    these
neither: "kmeans"      of k-means            those of k-means; from there, Lloyd's algorithm with medians for "l1"
neither: a clusterer   of the clusterer      its own, if it has one per cluster and the metric is "l2"; or means
=====================  ====================  ==================================================================

Costs are measured in the `space` of the clusterer: the table itself, or what the steps of a pipeline make of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

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
from neonxc.clusterings.neuralize_arguments import fitted_names
from neonxc.common.processes import ALONE, Ranks
from neonxc.common.searches import awaits_search, unwrapped
from neonxc.common.types import ArrayLike, RandomState, TableLike
from neonxc.common.warnings import warn
from neonxc.data.distributed import common_classes, readable
from neonxc.data.inputs import check_names
from neonxc.data.labels import label_array
from neonxc.data.table import Table
from neonxc.pipelines.opened import opened
from neonxc.trees.fit.batches import Batches
from neonxc.trees.fit.points import Dense, check_finite, filled, to_tensor
from neonxc.trees.fit.sparse_points import Points, as_points
from neonxc.trees.fit.weighting import fit_predict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from neonxc.trees.estimator import TreeExplainer

ROUNDS = 50  # maximum number of rounds of Lloyd's algorithm with medians


@dataclass(frozen=True)
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
    is_passed : bool
        Whether it is that of the labels or centers that `fit` is passed.
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
    is_passed: bool = False

    def reordered(self, order: np.ndarray) -> Reference:
        """Return the same clustering with its clusters in another order [k]."""
        if (np.diff(order) > 0).all():
            return self
        index = torch.from_numpy(order).to(self.labels.device)
        distances = None if self.distances is None else self.distances[:, index]
        return replace(
            self,
            labels=index.argsort()[self.labels],
            classes=self.classes[order],
            centers=self.centers[index],
            space_centers=self.space_centers[index],
            distances=distances,
        )


# --- labels or centers that `fit` is passed ---


def from_centers(
    table: Points | Batches, centers: TableLike, metric: str, names: Sequence[str] | None = None
) -> Reference:
    """Make a reference of passed centers; every point belongs to the nearest one."""
    center_table = Table.read(centers, name="centers")
    if names is not None:
        center_table = center_table.by_name(names)
    if isinstance(table, Batches):
        points, _ = table.sample()
        reference = from_centers(Dense(points), centers, metric, names)
        return replace(reference, space=cast("Points", table), of_sample=True)
    values = center_table.tensor.to(table.device, torch.float64)
    if values.ndim != 2 or values.shape[1] != table.d:
        raise ValueError(f"centers needs shape [clusters, {table.d}], got {list(values.shape)}")
    distances = table.distances(values, metric)
    check_finite(distances)
    return Reference(
        labels=distances.min(1).indices,  # the first of the nearest; faster than argmin
        centers=values,
        classes=np.arange(len(values)),
        space=table,
        space_centers=values,
        distances=distances,
        by_means=False,
    )


def from_labels(
    table: Points | Batches, labels: ArrayLike, metric: str, weight: Tensor | None, ranks: Ranks = ALONE
) -> Reference:
    """Make a reference of passed labels; centers are the means (medians for "l1") over all processes."""
    if not ranks.alone and metric != "l2":
        raise ValueError('labels in a group need metric="l2": medians need all rows; pass centers')
    index, classes = classes_of(labels, ranks)
    index = index.to(table.device)
    centers = cluster_centers(table, index, len(classes), metric, weight, ranks)
    return Reference(index, centers, classes, cast("Points", table), centers)


def classes_of(labels: Any, ranks: Ranks) -> tuple[Tensor, np.ndarray]:
    """Return the positions of the labels [n] among the sorted distinct labels of all processes, and these."""
    with ranks.agreed():
        values = label_array(labels) if len(labels) else np.empty(0, dtype=np.int64)
    classes = common_classes(values, ranks)
    return torch.from_numpy(np.searchsorted(classes, values.astype(classes.dtype))), classes


# --- the explainer's `reference` ---


def from_estimator(
    explainer: TreeExplainer,
    table: Points | Batches,
    X: TableLike | None,
    weight: Tensor | None,
    ranks: Ranks,
) -> Reference:
    """Make the reference of a tree explainer's parameter `reference`, an estimator or its name.

    Estimators that are not fitted are fitted here, outside of a group; to a sample of the points if these are read
    in batches. Costs are measured to the clusterer's own centers, in the space behind the steps before it.

    Raises
    ------
    ValueError
        The reference is not a clusterer, or can't label the points of X. In a group, in all processes, if it needs
        all rows.
    """
    reference = explainer.reference
    k = explainer.n_clusters
    if not isinstance(reference, str):
        return _of_clusterer(reference, explainer.metric, table, X, weight, ranks)

    if isinstance(table, Batches):
        points, counts = table.sample()
        fitted = kmeans(Dense(points), k, counts, common_seed(explainer.random_state, ranks))
        return replace(fitted, space=cast("Points", table), of_sample=True)
    if not ranks.alone and (reference, explainer.metric) != ("kmeans", "l2"):
        raise ValueError(
            'reference in a group needs "kmeans" with metric="l2", or a fitted clusterer; or pass centers '
            f"or labels; got {reference!r} with metric={explainer.metric!r}"
        )
    if reference == "kmeans":
        fitted = kmeans(table, k, weight, explainer.random_state, ranks=ranks)
        if explainer.metric == "l1":
            return k_medians(fitted, weight)
        return fitted
    clusterer = _named_clusterer(reference, k, table.n, explainer.random_state)
    return _of_clusterer(clusterer, explainer.metric, table, table.data, weight, ranks)


def _named_clusterer(name: str, k: int, n: int, random_state: RandomState) -> object:
    """Make the clusterer of a name; return any other text as it is."""
    seed: Any = {"random_state": random_state}
    if name == "spectral":
        if n < k:
            raise ValueError(f"X has n_samples={n}, fewer than n_clusters={k}")
        return SpectralClustering(k, affinity="nearest_neighbors", **seed)
    if name == "kernel_kmeans":
        from neonxc.models import KernelKMeans  # other references do without it

        return KernelKMeans(k, objective="feature", **seed)
    return name


def _of_clusterer(
    model: object,
    metric: str,
    table: Points | Batches,
    X: TableLike | None,
    weight: Tensor | None,
    ranks: Ranks,
) -> Reference:
    """Make the reference of a clusterer, a pipeline that ends in one, or a search; fit it unless it is fitted."""
    # labels of the points
    with ranks.agreed():
        if not awaits_search(model):
            model = unwrapped(model)
        if not is_clusterer(model):
            raise ValueError(
                f'reference needs "kmeans", "kernel_kmeans", "spectral" or a clusterer, got {model!r}'
            )
        if isinstance(table, Batches):
            clusterer, labels = _labels_of_batches(_flat(model), table)
        else:
            not_empty, own_rows = readable(X, ranks)
            rows = Table.read(not_empty)
            if rows.variables is not None:  # scikit-learn checks the names of a data frame itself
                check_names(rows.variables, fitted_names(model))
            clusterer, labels = fitted_labels(model, rows.for_sklearn, weight, ranks)
            labels = labels[own_rows]
    reference = from_labels(table, labels, metric, weight, ranks)
    k = len(reference.classes)

    # the space behind the first steps of a pipeline
    steps, final = opened(clusterer)
    if steps:
        pipeline = clusterer[:-1]
        if isinstance(table, Batches):
            space = cast("Points", table.behind(pipeline))
        else:
            with ranks.agreed():
                space = as_points(to_tensor(pipeline.transform(rows.for_sklearn)[own_rows]).to(table.device))
        space_centers = cluster_centers(space, reference.labels, k, metric, weight, ranks)
        reference = replace(reference, steps=pipeline, space=space, space_centers=space_centers)

    # centers of the clusterer, if it has one for every cluster
    reference = replace(reference, gamma=getattr(final, "gamma_", None))
    own_centers = getattr(final, "cluster_centers_", None)
    shape = tuple(reference.space_centers.shape)
    if own_centers is None or np.shape(own_centers) != shape or metric != "l2":
        return reference
    space_centers = torch.as_tensor(np.asarray(own_centers, dtype=np.float64)).to(table.device)
    reference = replace(reference, space_centers=space_centers, by_means=False)
    if reference.space is table:
        reference = replace(reference, centers=space_centers)
    return reference


def kmeans(
    table: Points, k: int, weight: Tensor | None, random_state: RandomState, ranks: Ranks = ALONE
) -> Reference:
    """Fit k-means to the rows of all processes.

    Equal points are merged to one point with the sum of their weights, so that a point of weight 2 gives the same
    result as two equal points.
    """
    if not ranks.alone:
        from neonxc.models import KernelKMeans  # other references do without it

        # with one support per cluster, its steps are those of k-means
        model = KernelKMeans(k, n_support=1, n_init=10, random_state=common_seed(random_state, ranks))
        weights = None if weight is None else weight.cpu().numpy()
        model.fit(table.data.to(torch.float64), sample_weight=weights, group=ranks.group)
        return from_centers(table, model.support_vectors_, "l2")
    rows, inverse, counts = table.distinct()
    mass = counts if weight is None else np.bincount(inverse, weight.cpu().numpy())
    if table.n < k:
        raise ValueError(f"X has n_samples={table.n}, fewer than n_clusters={k}")
    if rows.shape[0] < k:
        warn(
            f"X has {rows.shape[0]} distinct points, fewer than n_clusters={k}: using {rows.shape[0]} clusters",
            ConvergenceWarning,
        )
        k = rows.shape[0]
    seed: Any = {"random_state": random_state}
    fitted = KMeans(k, n_init=10, **seed).fit(rows, sample_weight=mass.astype(np.float64))
    centers = torch.from_numpy(fitted.cluster_centers_.astype(np.float64)).to(table.device)
    labels = torch.from_numpy(fitted.labels_[inverse].astype(np.int64)).to(table.device)
    return Reference(labels, centers, np.arange(k), table, centers, by_means=False)


def common_seed(random_state: RandomState, ranks: Ranks) -> int:
    """Return a seed that is the same in all processes, even if `random_state` is None."""
    generator = check_random_state(random_state)
    return int(ranks.max(torch.tensor(generator.randint(1 << 31))))


def k_medians(reference: Reference, weight: Tensor | None) -> Reference:
    """Run Lloyd's algorithm with Manhattan distances and medians, starting from the k-means solution."""
    space = reference.space
    k = len(reference.classes)
    for _ in range(ROUNDS):
        labels = space.distances(reference.space_centers, "l1").argmin(1)
        medians_of_labels = cluster_centers(space, labels, k, "l1", weight)
        centers = filled(medians_of_labels, reference.space_centers)
        same_labels = torch.equal(labels, reference.labels)
        has_converged = same_labels and torch.equal(centers, reference.space_centers)
        reference = replace(reference, labels=labels, centers=centers, space_centers=centers)
        if has_converged:
            break
    return reference


# --- centers of clusters ---


def cluster_centers(
    table: Points | Batches,
    labels: Tensor,
    k: int,
    metric: str,
    weight: Tensor | None,
    ranks: Ranks = ALONE,
) -> Tensor:
    """Compute the clusters' means over all processes, [k, d]; medians for "l1", which needs a single process."""
    if isinstance(table, Batches):
        return table.means(labels, k)
    if metric == "l2":
        return table.means(labels, k, weight, ranks)
    centers = torch.full((k, table.d), torch.nan, dtype=torch.float64, device=table.device)
    for first, last in table.chunks():
        values = table.columns(first, last).to(torch.float64)
        for cluster in range(k):
            is_member = labels == cluster
            if bool(is_member.any()):
                member_weight = None if weight is None else weight[is_member]
                centers[cluster, first:last] = medians(values[:, is_member], member_weight)
    return centers


def medians(values: Tensor, weight: Tensor | None) -> Tensor:
    """Compute the weighted median of every row; midway between the two middle values if there are two.

    The lower middle value is the first at which the sum of the weights reaches half of the total, and the upper
    middle value the first at which it exceeds half.
    """
    ordered, order = values.sort(dim=1)
    mass = torch.ones_like(ordered) if weight is None else weight[order]
    cumulative = mass.cumsum(1)
    half = mass.sum(1, keepdim=True) / 2
    last = values.shape[1] - 1
    lower = (cumulative < half).sum(1, keepdim=True).clamp(max=last)
    upper = (cumulative <= half).sum(1, keepdim=True).clamp(max=last)
    return (ordered.gather(1, lower) + ordered.gather(1, upper))[:, 0] / 2


# --- labels of a clusterer ---


class FittedLabels(NamedTuple):
    """A fitted clusterer, and its labels of the points."""

    clusterer: Any
    labels: Any


def _labels_of_batches(reference: object, table: Batches) -> FittedLabels:
    """Fit a clusterer to a sample of the points unless it is fitted; return it and its labels of all points."""
    _, final = opened(reference)
    if not predicts(reference):
        labels = getattr(final, "labels_", None)
        if not table.ranks.alone or labels is None or len(labels) != table.n:
            raise ValueError(
                f"reference is a {type(final).__name__}, which can't predict, as an X that is read batch by batch "
                "needs; pass labels or centers, such as the means of the clusters of a sample"
            )
        return FittedLabels(reference, labels)
    points, counts = table.sample()
    weight = counts if bool((counts > 1).any()) else None
    clusterer, _ = fitted_labels(reference, table.source.for_sklearn(points), weight, table.ranks)
    return FittedLabels(clusterer, table.predict(clusterer))


def is_clusterer(model: object) -> bool:
    """Whether a model is a clusterer, a pipeline that ends in one, or a search for one of them."""
    while awaits_search(model):
        model = model[-1] if isinstance(model, Pipeline) else model.estimator  # type: ignore[attr-defined]
    return not isinstance(model, type) and hasattr(model, "fit_predict")


def _fit_predict(model: Any, X: object) -> Any:
    """Fit a clusterer or a search for one, in place, and return its labels of X."""
    if not awaits_search(model):
        return model.fit_predict(X)
    best = _flat(unwrapped(model.fit(X)))
    _, final = opened(best)
    labels = getattr(final, "labels_", None)
    if labels is None:
        return best.predict(X)
    return labels


def _flat(model: object) -> Any:
    """Flatten nested pipelines, so that all steps before the clusterer are a pipeline, which transforms points."""
    if not isinstance(model, Pipeline) or not isinstance(model[-1], Pipeline):
        return model
    steps, final = opened(model)
    flat = [step for _, step in steps] + [final]
    return Pipeline([(f"step{number}", step) for number, step in enumerate(flat)])


def fitted_labels(reference: Any, X: Any, weight: Tensor | None, ranks: Ranks = ALONE) -> FittedLabels:
    """Fit a clusterer, or a search for one, unless it is fitted; return it, or the best one, and its labels."""
    reference = _flat(reference)
    _, final = opened(reference)
    try:
        check_is_fitted(final)
    except NotFittedError:
        if not ranks.alone:
            raise ValueError("reference in a group needs to be fitted; otherwise pass centers or labels") from None
        return _fit_clone(reference, X, weight)
    if predicts(reference):
        labels = reference.predict(X)
        difference = predicts_otherwise(reference, final, X, labels) if ranks.alone else ""
        if difference:
            warn(f"reference: {difference}. The tree explains what it predicts; labels= explains other labels")
        return FittedLabels(reference, labels)
    labels = getattr(final, "labels_", None)
    if not ranks.alone or labels is None or len(labels) != np.shape(X)[0]:
        raise ValueError(
            f"reference is a fitted {type(final).__name__} that can't predict; pass labels= or an unfitted one"
        )
    return FittedLabels(reference, labels)


def _fit_clone(reference: object, X: object, weight: Tensor | None) -> FittedLabels:
    """Fit a copy of a clusterer, or of a search for one, with weights if there are any."""
    model = clone(reference)
    if weight is None:
        labels = _fit_predict(model, X)
        return FittedLabels(_flat(unwrapped(model)), labels)
    labels, unweighted = fit_predict(model, X, weight.cpu().numpy())
    if unweighted:
        takes = "take" if len(unweighted) > 1 else "takes"
        names = " and ".join(unweighted)
        warn(f"{names} {takes} no sample_weight: this part of the reference is fitted without weights")
    return FittedLabels(_flat(unwrapped(model)), labels)
