"""What `fit` is handed: a table in memory, the rows of one process of a group, or batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neonxc.common.processes import Ranks
from neonxc.common.registry import plain_parameters
from neonxc.common.warnings import warn
from neonxc.data.distributed import common_type, readable, without_rows
from neonxc.data.inputs import as_weights
from neonxc.data.labels import are_labels, check_alike, label_array, warn_of_labels
from neonxc.data.table import Table
from neonxc.trees.cuts.exact_sums import digest
from neonxc.trees.fit.batches import MAX_BINS, Batches, BatchSource
from neonxc.trees.fit.mixed import MixedTable, read_mixed
from neonxc.trees.fit.points import Dense
from neonxc.trees.fit.sparse_points import Points, as_points, check_size, to_tensor
from neonxc.trees.tree import ThresholdTree, tree_of


@dataclass(frozen=True)
class Given:
    """What `fit` was handed, as it is needed for the fit and for the fitted attributes.

    Attributes
    ----------
    points : Tensor, sparse matrix, data frame or BatchSource
        All points of X.
    rows : Tensor or None
        Indices of the points that are neither noise nor of weight 0; None if these are all points.
    table : Points or Batches
        These points, in the columns that are cut.
    n_features : int
        Number of columns of X.
    names : sequence of str or None
        Names of the columns.
    give : callable
        Converts an array with one value per point to the type of X.
    X : Any
        The points of the fit as a reference clustering is fitted to them; None if they are read in batches.
    mixed : MixedTable or None
        The encoded table, if X has categories or missing values.
    labels : ndarray or None
        Labels of the points of the fit.
    order : Any
        The labels as `fit` was handed them; those of a pandas categorical have an order.
    weight : Tensor of float64 or None
        Their weights.
    noise : Tensor [n] of float64, or None
        Weight of every point that is noise; 0 for other points. None if no process has noise.
    n_noise : int
        Number of points with label -1, over all processes.
    boolean : Tensor [d] of bool, or None
        Columns that hold truth values; None if no column does.
    table_format : str or None
        How X was read from a file, if it was.
    is_tensor : bool
        Whether X is a tensor.
    """

    points: Any
    rows: Tensor | None
    table: Any
    n_features: int
    names: Sequence[str] | None
    give: Callable[[np.ndarray], Any]
    X: Any = None
    mixed: MixedTable | None = None
    labels: np.ndarray | None = None
    order: Any = None
    weight: Tensor | None = None
    noise: Tensor | None = None
    n_noise: int = 0
    boolean: Tensor | None = None
    table_format: str | None = None
    is_tensor: bool = False

    @property
    def space(self) -> Any:
        """The points in the space of the costs, unless the reference has a space of its own."""
        return self.table if self.mixed is None else self.mixed.space

    def leaf_of(self, tree: ThresholdTree) -> Tensor:
        """Leaf of every point, [n]."""
        if isinstance(self.points, BatchSource):
            return self.points.leaf_of(tree)
        none = torch.empty(0, dtype=torch.int64)
        return tree.leaf_of(self.points) if self.points.shape[0] else none


def read_points(model: Any, X: Any, reset: bool) -> tuple[Any, Sequence[str] | None, Callable[[np.ndarray], Any]]:
    """Check X; return it as a tensor, its column names, and a function that converts results to its type.

    Sparse matrices, and data frames with categories or missing values, are returned unchanged.

    Parameters
    ----------
    model : TreeExplainer
    X : Any
    reset : bool
        Whether the model is fitted to X.
    """
    encoded = not reset and model.tree_.encoding is not None
    of_numbers: dict[str, Any] = {"accept_sparse": ["csc", "csr"]}
    given = Table.of_estimator(
        model, X, reset, **({"dtype": None, "ensure_all_finite": False} if encoded else of_numbers)
    )
    if encoded or (given.is_sparse and model._cuts_sparse) or (reset and given.is_mixed):
        return given.data, given.names, given.labels
    converted = given.names is not None or given.is_tensor
    return given.numbers if converted else to_tensor(given.data), given.names, given.labels


def given_table(model: Any, X: Any, labels: Any, sample_weight: Any, ranks: Ranks) -> Given:
    """Read a table in memory, or the rows of one process of a group.

    Parameters
    ----------
    model : TreeExplainer
    X, labels, sample_weight : Any
        As for `fit`.
    ranks : Ranks
    """
    order = labels
    with ranks.agreed():
        readable_X, own_rows = readable(X, ranks)
        points, names, give = read_points(model, readable_X, reset=True)
        mixed = Table(points).names is not None
        if not ranks.alone:
            if not isinstance(points, Tensor):
                raise ValueError("X in a group needs a dense table of numbers without missing values")
            points = points[own_rows]
        weight = check_sample_weight(sample_weight, points)
        labels = None if labels is None else label_array(labels) if points.shape[0] else np.empty(0)
        if labels is not None:
            check_alike(labels)
        noise, rows = _selected(points, labels, weight, ranks)
        own = weight
        if rows is not None:
            kept = rows.cpu().numpy()
            own = None if weight is None else weight[rows]
            labels = None if labels is None else labels[kept]
            X = Table.read(X).take(kept).data
        made = read_mixed(points, rows, own) if mixed else None
        table: Points = made.cut if made else as_points(points) if rows is None else as_points(points).take(rows)
        if made is None:
            check_size(table, names)
    if not ranks.alone:
        ranks.same(columns=table.d, **{"the names of columns": names})
        dtype = common_type(table.n, table.dtype, ranks)
        table = table if table.n else Dense(table.data.to(dtype))
    n_noise = 0 if noise is None else int(ranks.sum(noise.sum()))
    if n_noise and noise is not None:
        noise = noise.double() if weight is None else weight.cpu() * noise
    noise = noise if n_noise else None
    return Given(points, rows, table, points.shape[1], names, give, X, made, labels, order, own, noise, n_noise)


def warn_of_repeated(given: Given) -> None:
    """Warn of columns of a table in memory that repeat the labels of the points."""
    if given.labels is None or given.X is None:
        return
    table = Table.read(given.X)
    if not table.is_sparse:
        warn_of_labels(table.values_of_columns(), given.labels)


def _selected(
    points: Any, labels: np.ndarray | None, weight: Tensor | None, ranks: Ranks
) -> tuple[Tensor | None, Tensor | None]:
    """Mask of the points of noise, if there are labels, and indices of the points of the fit; None for all."""
    n = points.shape[0]
    noise = None
    counted = torch.ones(n, dtype=torch.bool, device=Table(points).device)
    if labels is not None:
        if labels.shape != (n,):
            raise ValueError(f"labels needs one label per point, shape ({n},), got {labels.shape}")
        noise = torch.from_numpy(~are_labels(labels))
        counted &= ~noise.to(counted.device)
    if weight is not None:
        counted &= weight > 0
    if bool(counted.all()):
        return noise, None
    rows = counted.nonzero()[:, 0]
    if ranks.alone and not len(rows):
        raise ValueError("no points are left: for every point, the label is -1 (noise) or the weight is zero")
    return noise, rows


def given_batches(source: BatchSource, labels: Any, max_bins: int | None, ranks: Ranks) -> Given:
    """Read a table batch by batch, for its bins."""
    values = None if labels is None else label_array(labels)
    if values is not None:
        check_alike(values)
    table = Batches(source, values, max_bins or MAX_BINS, ranks)
    for note in source.notes:
        warn(f"X: {note}")
    noise = None
    n_noise = 0
    if values is not None:
        noise = torch.from_numpy(~are_labels(values))
        n_noise = int(ranks.sum(noise.sum()))
        values = values if table.selected is None else values[table.selected.numpy()]
    return Given(
        source,
        table.selected,
        table,
        table.d,
        source.names,
        lambda given: given,
        labels=values,
        noise=noise.double() if noise is not None and n_noise else None,
        n_noise=n_noise,
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
