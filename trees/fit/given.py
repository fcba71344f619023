"""Prepares the arguments of `fit` for growth: tables in memory, rows of one process of a group, and streams."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from neonxc.common.processes import Ranks
from neonxc.common.registry import plain_parameters
from neonxc.common.warnings import warn
from neonxc.data.distributed import common_type, readable, without_rows
from neonxc.data.inputs import as_weights
from neonxc.data.labels import are_labels, class_order, label_array
from neonxc.data.table import Table
from neonxc.trees.cuts.codes import code_columns
from neonxc.trees.cuts.exact_sums import counts_by_label, digest
from neonxc.trees.cuts.snapping import EPS, relative_mass
from neonxc.trees.fit.batches import MAX_BINS, BatchSource, Stream, batch_source
from neonxc.trees.fit.mixed import centers_in_columns, read_mixed
from neonxc.trees.fit.points import DataMatrix
from neonxc.trees.fit.problem import Problem
from neonxc.trees.fit.reference import (
    Reference,
    common_seed,
    filled,
    from_centers,
    from_labels,
    inertia,
    kmeans,
)
from neonxc.trees.tree import tree_of

if TYPE_CHECKING:
    from neonxc.trees.estimator import TreeExplainer


@dataclass
class PreparedData:
    """The arguments of `fit`, ready for a tree to grow.

    Attributes
    ----------
    problem : Problem
        The selected points and the reference clustering.
    reference : Reference
    points : Tensor, sparse matrix, data frame or BatchSource
        All points of X.
    selected : Tensor or None
        Indices of the points that are neither noise nor of weight 0; None if all are selected.
    names : sequence of str or None
        Names of the columns.
    give : callable
        Converts an array with one value per point to the type of X.
    n_noise : int
        Number of points with label -1, over all processes.
    noise : Tensor [n] of float64, or None
        Weight of every point that is noise; 0 for other points.
    boolean : Tensor [d] of bool, or None
        Columns that hold truth values; None if no column does.
    table_format : str or None
        How X was read from a file, if it was.
    """

    problem: Problem
    reference: Reference
    points: Any
    selected: Tensor | None
    names: Sequence[str] | None
    give: Callable[[np.ndarray], Any]
    n_noise: int = 0
    noise: Tensor | None = None
    boolean: Tensor | None = None
    table_format: str | None = None

    @cached_property
    def reference_cost(self) -> float | None:
        """The k-means cost of the reference clustering, to the means of its clusters; None for streams."""
        problem, found = self.problem, self.reference
        if problem.metric != "l2" or isinstance(self.points, BatchSource):
            return None
        means, clusters = found.space_centers, (found.labels, problem.k, problem.weight)
        if not found.by_means:
            means = filled(found.space.means(*clusters, problem.ranks), means)
        cost = inertia(found, found.labels, means, problem)
        low, high = found.space.ends(problem.ranks)
        off = EPS * (relative_mass(*clusters, problem.ranks)[:, None] * (high - low) + 2 * means.abs())
        mass = problem.reduce(counts_by_label(*clusters))
        return cost if cost > float(mass @ off.square().sum(1)) else 0.0  # else only the means' rounding


def prepare_table(
    model: TreeExplainer, X: Any, labels: Any, centers: Any, sample_weight: Any, ranks: Ranks
) -> PreparedData:
    """Prepare a table in memory, or the rows of one process of a group."""
    given = labels
    with ranks.agreed():
        if not ranks.alone and model._no_group_reason is not None:
            raise ValueError(f"{type(model).__name__} takes no group: {model._no_group_reason}")
        readable_X, rows = readable(X, ranks)
        points, names, give = model._read(readable_X, reset=True)
        mixed = Table(points).names is not None
        if not ranks.alone:
            if not isinstance(points, Tensor):
                raise ValueError("X in a group needs a dense table of numbers without missing values")
            points = points[rows]
        if mixed and centers is not None:
            raise ValueError("centers needs an X without categories and missing values; pass labels instead")
        weight = own = check_sample_weight(sample_weight, points)
        labels = None if labels is None else label_array(labels) if points.shape[0] else np.empty(0)
        counted = torch.ones(points.shape[0], dtype=torch.bool, device=Table(points).device)
        if labels is not None:
            if labels.shape != counted.shape:
                needed = f"shape ({len(counted)},)"
                raise ValueError(f"labels needs one label per point, {needed}, got {labels.shape}")
            counted &= torch.from_numpy(are_labels(labels)).to(counted.device)
        if weight is not None:
            counted &= weight > 0
        selected = None if bool(counted.all()) else counted.nonzero()[:, 0]
        if selected is not None:
            if ranks.alone and not len(selected):
                raise ValueError(
                    "no points are left: for every point, the label is -1 (noise) or the weight is zero"
                )
            kept = selected.cpu().numpy()
            own = None if weight is None else weight[selected]
            labels = None if labels is None else labels[kept]
            X = Table.read(X).take(kept).data
        made = read_mixed(points, selected, own) if mixed else None
        table = made.cut if made else DataMatrix(points) if selected is None else DataMatrix(points).take(selected)
        if made is None:
            table.check_size(names)
    if not ranks.alone:
        check_fit(ranks, model, centers=centers, labels=labels, sample_weight=sample_weight)
        ranks.same(columns=table.d, **{"the names of columns": names})
        dtype = common_type(table.n, table.dtype, ranks)
        table = table if table.n else DataMatrix(table.data.to(dtype))
    space = made.space if made else table
    if centers is not None:
        with ranks.agreed():
            found = from_centers(space, centers, model.metric, getattr(model, "feature_names_in_", None))
    elif labels is not None:
        found = from_labels(space, labels, model.metric, own, ranks)
    else:
        found = model._own_reference(space, X, own, ranks)
    found = found if made is None else centers_in_columns(found, made, model.metric, own)
    if ranks.alone:
        found.reorder(class_order(given, found.classes))
    n = relative_mass(found.labels, len(found.classes), own, ranks)
    columns, found.centers = code_columns(table, found.centers, model.max_bins, own, ranks, n)
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
        ranks,
    )
    return PreparedData(problem, found, points, selected, names, give)


def prepare_stream(
    model: TreeExplainer, source: BatchSource, labels: Any, centers: Any, sample_weight: Any, ranks: Ranks
) -> PreparedData:
    """Prepare a table that is read batch by batch: for its bins, for the means of the labels, and for its codes.

    With neither labels nor centers, k-means or a clusterer that is not fitted is fitted to a sample.
    """
    with ranks.agreed():
        if sample_weight is not None:
            raise ValueError("sample_weight needs X in memory; leave it out, or repeat points in the batches")
        estimator = not model._given and not isinstance(model.reference, str)
        if not model._given and not estimator and model.reference != "kmeans":
            raise ValueError(
                'reference needs "kmeans" or a clusterer for an X that is read batch by batch, got '
                f"{model.reference!r}; or pass labels or centers, such as those of a clustering of a sample"
            )
    if not ranks.alone:
        check_fit(ranks, model, centers=centers, labels=labels)
    values = None if labels is None else label_array(labels)
    if (values is not None or estimator) and model.metric != "l2":
        raise ValueError(f'labels of a stream need metric="l2", got {model.metric!r}; pass centers')
    table: Any = Stream(source, values, model.max_bins or MAX_BINS, ranks)
    for note in source.notes:
        warn(f"X: {note}")
    own: Tensor | None = None  # found together with the codes, if there are centers
    if values is not None or estimator:
        if values is None:
            found = model._own_reference(table, None, None, ranks)
        else:
            clustered = values if table.selected is None else values[table.selected.numpy()]
            found = from_labels(table, clustered, "l2", None, ranks)
        own = found.labels
    else:
        points, count = table.sample()
        if centers is None:
            seed = common_seed(model.random_state, ranks)
            found = kmeans(DataMatrix(points), model.n_clusters, count, seed)
        else:
            found = from_centers(DataMatrix(points), centers, model.metric, source.names)
        found.space = table
    space: Any = found.space
    measured = bool(model._streams())
    near = measured and space is table
    columns, found.centers, found.labels, far = table.code(found.centers, own, model.metric, near)
    if measured and space is not table:
        *_, far = space.code(found.space_centers, found.labels, model.metric, True)
    found.distances = far
    model.n_features_in_ = table.d
    model.__dict__.pop("feature_names_in_", None)  # set by an earlier fit
    if source.names is not None:
        model.feature_names_in_ = np.array(source.names, dtype=object)
    problem = Problem(
        table,
        columns,
        found.centers,
        found.labels,
        None,
        space,
        found.space_centers,
        model.metric,
        far,
        ranks=ranks,
    )
    return PreparedData(problem, found, source, table.selected, source.names, lambda values: values)


def stream_source(model: TreeExplainer, X: Any, ranks: Ranks) -> BatchSource | None:
    """The source of batches, if X is to be read batch by batch; otherwise None."""
    source = batch_source(X, shard=not ranks.alone)
    if source is None or model._streams() is not None:
        return source
    if isinstance(X, np.memmap):
        return None
    raise ValueError(
        f"X needs to be in memory: {type(model).__name__} with these parameters can't read it batch by batch; "
        "CART, EMN, ExGreedy, ExKMC, ExShallow, IMM and SpExClique can, without refine"
    )


def agree_on_source(X: Any, source: BatchSource | None, ranks: Ranks) -> BatchSource | None:
    """Make all processes of a group read batches, or none; processes without rows follow the others.

    Raises
    ------
    ValueError
        In all processes, if some have a table in memory and others read batches.
    """
    empty = source is None and without_rows(X, ranks)
    kinds = ranks.texts("" if empty else "in memory" if source is None else "in batches")
    if len(set(kinds) - {""}) > 1:
        raise ValueError(f"X is read in batches by some processes and in memory by others: {', '.join(kinds)}")
    return BatchSource(lambda: iter(())) if empty and "in batches" in kinds else source


def check_sample_weight(sample_weight: Any, data: Any) -> Tensor | None:
    """Check the weights of the points; return them as [n] of float64 on the device of the points.

    Raises
    ------
    ValueError
        If the number of weights is wrong, or a weight is negative or not finite.
    """
    if sample_weight is None:
        return None
    return as_weights(sample_weight, data.shape[0], Table(data).device)


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
        centers = Table.read(given["centers"], name="centers").tensor
    ranks.same(centers=f"{list(centers.shape)} with digest {digest(centers)}")
