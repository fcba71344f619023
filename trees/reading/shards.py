"""Fits with rows that are distributed over processes: consistency checks and a common reference clustering."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import Pipeline
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from neonxc.common.estimators import plain_parameters
from neonxc.common.processes import Ranks
from neonxc.data.distributed import common_classes, common_type, readable
from neonxc.data.inputs import NOISE, label_array
from neonxc.data.table import Table as Given
from neonxc.trees.coding.exact import digest
from neonxc.trees.coding.table import Table
from neonxc.trees.fitted.tree import tree_of
from neonxc.trees.reading.reference import Reference, cluster_centers, from_centers, in_own_space


def check_fit(ranks: Ranks, model: Any, **given: Any) -> None:
    """Check that all processes fit the same model with the same kinds of arguments and the same centers.

    Raises
    ------
    ValueError
        In all processes, naming what differs.
    """
    ranks.same(model=f"{type(model).__name__}({plain_parameters(model)})")
    ranks.same(**{name: "missing" if value is None else "given" for name, value in given.items()})
    base = tree_of(getattr(model, "base", None))
    if base is not None:
        ranks.same(base=f"a tree of {base.n_leaves} leaves with digest {digest(base.feature, base.threshold)}")
    if given["centers"] is None:
        return
    with ranks.agreed():
        centers = Given.read(given["centers"], name="centers").tensor
    ranks.same(centers=f"{list(centers.shape)} with digest {digest(centers)}")


def check_columns(ranks: Ranks, n: int, d: int, dtype: torch.dtype, names: Any) -> torch.dtype:
    """Check that all processes have the same columns; return the common data type of those with rows.

    Raises
    ------
    ValueError
        In all processes, naming what differs, or if no process has rows.
    """
    ranks.same(columns=d, **{"the names of columns": names})
    return common_type(n, dtype, ranks)


def common_seed(random_state: Any, ranks: Ranks) -> int:
    """A seed that is the same in all processes, even if `random_state` is None."""
    return int(ranks.max(torch.tensor(check_random_state(random_state).randint(1 << 31))))


def reference_of_shards(
    table: Table,
    X: Any,
    *,
    labels: Any,
    centers: Any,
    reference: Any,
    n_clusters: int,
    metric: str,
    weight: Tensor | None,
    random_state: Any,
    ranks: Ranks,
    names: Any,
) -> Reference:
    """Find the reference clustering of the rows of all processes.

    Raises
    ------
    ValueError
        In all processes, if the reference is not fitted and not "kmeans", if medians of labels are needed, or if
        one process gets an error from :func:`neonxc.trees.reading.reference.from_centers`.
    """
    if centers is None and labels is None and isinstance(reference, str):
        if reference != "kmeans" or metric != "l2":
            raise ValueError(
                'reference in a group needs "kmeans" with metric="l2", or a fitted clusterer; or pass centers or '
                f"labels; got {reference!r} with metric={metric!r}"
            )
        centers = kmeans_of_shards(table, n_clusters, weight, common_seed(random_state, ranks), ranks)
    predicted, rows = labels is None, slice(None)
    with ranks.agreed():
        if centers is not None:
            return from_centers(table, centers, metric, names)
        if metric != "l2":
            raise ValueError('labels in a group need metric="l2": medians need all rows; pass centers')
        if predicted:
            X, rows = readable(X, ranks)
            X = Given.read(X).for_sklearn
            labels = _predicted(reference, X)[rows]
    found = labels_of_shards(table, labels, weight, ranks)
    if not predicted:
        return found
    if found.classes[0] == NOISE and found.classes.dtype.kind in "iu":
        raise ValueError("reference labels some points as noise (-1); pass its labels instead")
    return in_own_space(found, reference, X, metric, weight, ranks, rows)


def kmeans_of_shards(table: Table, k: int, weight: Tensor | None, seed: int, ranks: Ranks) -> Tensor:
    """Fit k-means to the rows of all processes; return its centers [k, d]."""
    from neonxc.models import KernelKMeans

    model = KernelKMeans(k, n_support=1, n_init=10, random_state=seed % (1 << 31))
    weights = None if weight is None else weight.cpu().numpy()
    model.fit(table.data.to(torch.float64), sample_weight=weights, group=ranks.group)
    return torch.as_tensor(model.support_vectors_).to(table.device, torch.float64)


def labels_of_shards(table: Table, labels: Any, weight: Tensor | None, ranks: Ranks) -> Reference:
    """Reference with given labels, whose centers are the clusters' means over all processes."""
    values, classes = classes_of_shards(labels, ranks)
    index = torch.from_numpy(np.searchsorted(classes, values)).to(table.device)
    centers = cluster_centers(table, index, len(classes), "l2", weight, ranks)
    return Reference(index, centers, classes, table, centers)


def classes_of_shards(labels: Any, ranks: Ranks) -> tuple[np.ndarray, np.ndarray]:
    """The labels of this process [n], and the sorted distinct labels of all processes, with a common data type."""
    with ranks.agreed():
        values = label_array(labels) if len(labels) else np.empty(0, dtype=np.int64)
    classes = common_classes(values, ranks)
    return values.astype(classes.dtype), classes


def _predicted(reference: Any, X: Any) -> Any:
    """Labels predicted by a fitted clusterer."""
    final = reference[-1] if isinstance(reference, Pipeline) else reference
    try:
        check_is_fitted(final)
    except (NotFittedError, TypeError):
        raise ValueError("reference in a group needs to be fitted; otherwise pass centers or labels") from None
    if not hasattr(reference, "predict"):
        raise ValueError(
            f"reference in a group needs the method predict, which {type(final).__name__} lacks; pass labels"
        )
    return reference.predict(X)
