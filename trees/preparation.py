"""From what `fit` was given to a problem: tables in memory, rows of one process of several, and streams."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import validate_data
from torch import Tensor

from neonxc.inputs import as_batch, label_array
from neonxc.ranks import Ranks
from neonxc.shards import readable, without_rows
from neonxc.trees.batches import Source, source_of
from neonxc.trees.codes import code
from neonxc.trees.counted import kept_points, weights_of
from neonxc.trees.mixed import in_columns, is_mixed, mixed
from neonxc.trees.problem import Problem
from neonxc.trees.reference import Reference, tensor_of
from neonxc.trees.rounds import Rounds
from neonxc.trees.shards import check_columns, check_fit, reference_of_shards
from neonxc.trees.streams import streamed
from neonxc.trees.table import Table
from neonxc.trees.tree import like

if TYPE_CHECKING:
    from neonxc.trees.estimator import TreeExplainer


@dataclass
class Data:
    """What `fit` was given, ready for a tree to grow.

    Attributes
    ----------
    problem : Problem
        Of the points that count.
    reference : Reference
    points : Tensor, sparse matrix, data frame or Source
        All points.
    kept : Tensor or None
        Which of them count; None for all.
    names : sequence of str or None
    give : callable
        Hands back one value per point as the caller's kind of array.
    n_noise : int
        Points of label -1, over all processes.
    """

    problem: Problem
    reference: Reference
    points: Any
    kept: Tensor | None
    names: Sequence[str] | None
    give: Callable[[np.ndarray], Any]
    n_noise: int = 0

    @cached_property
    def reference_cost(self) -> float | None:
        """The k-means cost of the reference clustering; None where another pass over a stream would be needed."""
        problem, found = self.problem, self.reference
        if problem.metric != "l2":
            return None
        if problem.given_distances is not None:
            return problem.cost(problem.labels)
        if isinstance(self.points, Source):
            return None
        return found.space.cost(found.space_centers, found.labels, problem.weight, problem.ranks)


def in_memory(model: TreeExplainer, X: Any, labels: Any, centers: Any, sample_weight: Any) -> Data:
    """The data and the reference clustering of a table in memory."""
    points, names, give = model._read(X, reset=True)
    model._is_tensor = isinstance(X, Tensor)
    if hasattr(points, "iloc") and centers is not None:
        raise ValueError("centers needs a table of numbers without gaps as X; pass labels instead")
    model._given = labels is not None or centers is not None
    weight = weights_of(sample_weight, points)
    labels = None if labels is None else label_array(labels)
    kept = kept_points(labels, weight, points)
    if kept is not None and not len(kept):
        raise ValueError(
            "no point counts: labels are -1 (noise), or weights 0, for every point; some need to be non-zero"
        )
    own = weight if weight is None or kept is None else weight[kept]
    made = mixed(points, kept, own) if hasattr(points, "iloc") else None
    if made is None:
        table = Table(points) if kept is None else Table(points).take(kept)
        table.check_size(names)
        found = model._reference(table, X, labels, centers, own, kept)
    else:
        table = made.cut
        found = in_columns(model._reference(made.space, X, labels, None, own, kept), made, model.metric, own)
    columns = code(table, found.centers, model.max_bins)
    problem = Problem(
        table,
        columns,
        found.centers,
        found.labels,
        own,
        found.space,
        found.space_centers,
        model.metric,
        found.distances,
        made,
    )
    return Data(problem, found, points, kept, names, give)


def of_shard(model: TreeExplainer, X: Any, labels: Any, centers: Any, sample_weight: Any, ranks: Ranks) -> Data:
    """The same for the rows of one process of several."""
    with ranks.agreed():
        if model._no_group_reason is not None:
            raise ValueError(f"{type(model).__name__} takes no group: {model._no_group_reason}")
        given, rows = readable(X, ranks)
        points, names, give = model._read(given, reset=True)
        if not isinstance(points, Tensor):
            raise ValueError("X in a group needs a dense table of numbers without gaps")
        points = points[rows]
        weight = None if sample_weight is None else weights_of(sample_weight, points)
        labels = None if labels is None else label_array(labels) if len(points) else np.empty(0)
        kept = kept_points(labels, weight, points)
        table = Table(points) if kept is None else Table(points).take(kept)
        table.check_size(names)
    check_fit(ranks, model, centers=centers, labels=labels, sample_weight=sample_weight)
    dtype = check_columns(ranks, table.n, table.d, table.dtype, names)
    table = table if table.n else Table(table.data.to(dtype))
    own = weight if weight is None or kept is None else weight[kept]
    model._is_tensor, model._given = isinstance(X, Tensor), labels is not None or centers is not None
    found = reference_of_shards(
        table,
        X if kept is None else rows_of(X, kept),
        labels=labels if labels is None or kept is None else labels[kept.cpu().numpy()],
        centers=centers,
        reference=model.reference,
        n_clusters=model.n_clusters,
        metric=model.metric,
        weight=own,
        random_state=model.random_state,
        ranks=ranks,
        names=getattr(model, "feature_names_in_", None),
    )
    problem = Problem(
        table,
        code(table, found.centers, model.max_bins, ranks),
        found.centers,
        found.labels,
        own,
        found.space,
        found.space_centers,
        model.metric,
        found.distances,
        ranks=Rounds(ranks),
    )
    return Data(problem, found, points, kept, names, give)


def of_stream(
    model: TreeExplainer, source: Source, labels: Any, centers: Any, sample_weight: Any, ranks: Ranks
) -> Data:
    """The same for a table that is read batch by batch."""
    model._given, model._is_tensor = labels is not None or centers is not None, False
    with ranks.agreed():
        if sample_weight is not None:
            raise ValueError("sample_weight needs X in memory; leave it out, or repeat points in the batches")
        if not model._given and model.reference != "kmeans":
            raise ValueError(
                'reference needs "kmeans" for an X that is read batch by batch; pass labels or centers, such '
                "as the cluster_centers_ of a clustering of a sample"
            )
    if not ranks.alone:
        check_fit(ranks, model, centers=centers, labels=labels)
    given = streamed(
        source,
        labels=labels,
        centers=centers,
        n_clusters=model.n_clusters,
        max_bins=model.max_bins,
        metric=model.metric,
        random_state=model.random_state,
        distances=bool(model._streams()),
        ranks=ranks,
    )
    model.n_features_in_ = given.table.d
    model.__dict__.pop("feature_names_in_", None)  # of an earlier table
    if source.names is not None:
        model.feature_names_in_ = np.array(source.names, dtype=object)
    table: Any = given.table
    found = given.found
    problem = Problem(
        table,
        table.columns,
        found.centers,
        found.labels,
        None,
        table,
        found.space_centers,
        model.metric,
        found.distances,
        ranks=ranks if ranks.alone else Rounds(ranks),
    )
    found = replace(found, distances=None)
    return Data(problem, found, source, given.kept, source.names, lambda values: values)


def stream_of(model: TreeExplainer, X: Any) -> Source | None:
    """What is read batch by batch, if X is."""
    source = source_of(X)
    if source is None or model._streams() is not None:
        return source
    if isinstance(X, np.memmap):
        return None
    raise ValueError(
        f"X needs to be in memory: {type(model).__name__} with these parameters does not read it batch by "
        "batch, as CART, EMN, ExGreedy, ExKMC, ExShallow, IMM and SpExClique do, without refine and n_init"
    )


def alike(X: Any, source: Source | None, ranks: Ranks) -> Source | None:
    """What this process reads batch by batch, if all do; those without rows do as the others.

    Raises
    ------
    ValueError
        In all processes: some have a table in memory, others read batches.
    """
    empty = source is None and without_rows(X, ranks)
    kinds = ranks.texts("" if empty else "in memory" if source is None else "in batches")
    if len(set(kinds) - {""}) > 1:
        raise ValueError(f"X is read in batches by some processes and in memory by others: {', '.join(kinds)}")
    return Source(lambda: iter(())) if empty and "in batches" in kinds else source


def read(model: TreeExplainer, X: Any, reset: bool) -> tuple[Any, Sequence[str] | None, Any]:
    """X as a tensor, its column names, and how to hand back one value per point.

    A sparse matrix stays one, and so does a data frame with categories or missing values.
    """
    if not reset and model.tree_.encoding is not None:
        return _mixed(model, X, reset)
    if isinstance(X, Tensor) or hasattr(X, "iloc"):
        try:
            batch = as_batch(X, integers=True)
        except ValueError:
            if reset and hasattr(X, "iloc") and is_mixed(X):
                return _mixed(model, X, reset)
            raise
        if batch.tensor.ndim != 2:
            raise ValueError(f"X needs shape [points, features], got {list(batch.tensor.shape)}")
        validate_data(model, X=X, reset=reset, skip_check_array=True)
        return batch.tensor, batch.names, batch.labels
    X = validate_data(model, X=X, reset=reset, accept_sparse=["csc", "csr"])
    return (X if hasattr(X, "tocsc") else tensor_of(X)), None, lambda values: values


def _mixed(model: TreeExplainer, X: Any, reset: bool) -> tuple[Any, Sequence[str] | None, Any]:
    """A table with categories or missing values, read."""
    validate_data(model, X=X, reset=reset, skip_check_array=True)
    return X, [str(name) for name in getattr(X, "columns", ())], partial(like, X)


def plain(X: Any) -> Any:
    """A tensor as an array, for scikit-learn; anything else as it is."""
    return as_batch(X, integers=True).tensor.cpu().numpy() if isinstance(X, Tensor) else X


def rows_of(X: Any, rows: Tensor) -> Any:
    """Some rows of a table of any kind."""
    index = rows.cpu().numpy()
    if hasattr(X, "iloc"):
        return X.iloc[index]
    return X[index] if hasattr(X, "tocsr") or isinstance(X, np.ndarray | Tensor) else np.asarray(X)[index]
