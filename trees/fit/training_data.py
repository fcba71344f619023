"""Step 1 of a fit: what `fit` is given, read and checked.

X comes in one of three ways, which differ in what of it is kept:

=================  =======================================  ===================================================
X                  `points`, all of them                    `table`, those of the fit in the columns that are cut
=================  =======================================  ===================================================
in memory          tensor, sparse matrix or data frame      dense or sparse table
shard of a group   tensor with the rows of this process     dense table
in batches         a source that is read again              a sketch; codes follow when the batches are read again
=================  =======================================  ===================================================

Points are left out of the fit if their label is -1 (noise) or their weight is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, Union, cast

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from neonxc.common.numbers import plural
from neonxc.common.processes import Ranks
from neonxc.common.types import ArrayLike, TableLike
from neonxc.common.warnings import warn
from neonxc.data.distributed import common_type, readable
from neonxc.data.files.format import table_format
from neonxc.data.frames import as_pandas, in_order_of, is_path, keeping_names
from neonxc.data.inputs import as_weights
from neonxc.data.labels import are_labels, check_alike, label_array, warn_of_labels
from neonxc.data.table import Table
from neonxc.trees.fit.batches import MAX_BINS, Batches, BatchesLike, BatchSource, batch_source
from neonxc.trees.fit.group import agreed_source, check_group, check_same_fit
from neonxc.trees.fit.mixed import MixedTable, read_mixed
from neonxc.trees.fit.points import Dense, check_size, to_tensor
from neonxc.trees.fit.sparse_points import Points, Sparse
from neonxc.trees.tree import ThresholdTree

if TYPE_CHECKING:
    from scipy import sparse

    from neonxc.trees.estimator import TreeExplainer

InMemory: TypeAlias = Union[Tensor, "sparse.spmatrix", "sparse.sparray", pd.DataFrame]
"""All points of a table in memory; a data frame if it has categories or missing values."""


@dataclass(frozen=True)
class TrainingData:
    """The points to which a tree is fitted, with their labels and weights, and how results are given back.

    Attributes
    ----------
    points : Tensor, sparse matrix, data frame or BatchSource
        All points of X.
    rows : Tensor or None
        Indices of the points of the fit; None if these are all points.
    table : Points or Batches
        The points of the fit, in the columns that are cut.
    n_features : int
        Number of columns of X.
    names : sequence of str or None
        Names of the columns.
    give : callable
        Converts an array with one value per point to the type of X.
    X : table or None
        The points of the fit as a reference clustering is fitted to them; None if they are read in batches.
    mixed : MixedTable or None
        The encoded table, if X has categories or missing values.
    labels : ndarray or None
        Labels of the points of the fit, if `fit` was passed labels.
    passed_labels : array-like or None
        The labels as `fit` was passed them; those of a pandas categorical have an order.
    centers : array-like or None
        The reference centers, if `fit` was passed centers.
    weight : Tensor of float64 or None
        Weights of the points of the fit.
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

    points: InMemory | BatchSource
    rows: Tensor | None
    table: Points | Batches
    n_features: int
    names: Sequence[str] | None
    give: Callable[[np.ndarray], np.ndarray | Tensor]
    X: TableLike | None = None
    mixed: MixedTable | None = None
    labels: np.ndarray | None = None
    passed_labels: ArrayLike | None = None
    centers: TableLike | None = None
    weight: Tensor | None = None
    noise: Tensor | None = None
    n_noise: int = 0
    boolean: Tensor | None = None
    table_format: str | None = None
    is_tensor: bool = False

    @property
    def space(self) -> Points | Batches:
        """The points in the space of the costs, unless the reference has a space of its own."""
        if self.mixed is None:
            return self.table
        return self.mixed.space

    def leaf_of(self, tree: ThresholdTree) -> Tensor:
        """Return the leaf of every point, [n]."""
        if isinstance(self.points, BatchSource):
            return self.points.leaf_of(tree)
        if not self.points.shape[0]:
            return torch.empty(0, dtype=torch.int64)
        return tree.leaf_of(self.points)


def read_training_data(
    explainer: TreeExplainer,
    X: TableLike | BatchesLike,
    labels: ArrayLike | None,
    centers: TableLike | None,
    sample_weight: ArrayLike | None,
    ranks: Ranks,
) -> TrainingData:
    """Check the arguments of `fit` and the parameters of the explainer, and read X."""
    with ranks.agreed():
        if labels is not None and centers is not None:
            raise ValueError("fit takes labels or centers, not both")
        explainer._check_parameters()

        # labels and weights in the order of the rows; tables of other libraries as those of pandas
        if labels is not None:
            labels = as_pandas(in_order_of(labels, X))
        if sample_weight is not None:
            sample_weight = as_pandas(in_order_of(sample_weight, X, "sample_weight"))
        if centers is not None:
            centers = as_pandas(centers)
        X = keeping_names(X)

        # X is read batch by batch, or at once
        source = _source(explainer, X, ranks)
        if source is None and is_path(X):
            file = Table.read(X)
            file.warn_of_suspects()
            X = file.data
    if not ranks.alone:
        source = agreed_source(X, source, ranks)
        check_same_fit(ranks, explainer, centers, labels, sample_weight)

    if source is not None:
        _check_batches(explainer, labels, centers, sample_weight, ranks)
        data = _read_batches(explainer, source, labels, ranks)
    else:
        if not ranks.alone:
            check_group(explainer, ranks)
        data = _read_in_memory(explainer, cast("TableLike", X), labels, sample_weight, ranks)
    data = replace(data, centers=centers, is_tensor=isinstance(X, Tensor))
    if isinstance(X, pd.DataFrame):
        data = replace(data, table_format=table_format(X))
        types = {dtype: "bool" in str(dtype).lower() for dtype in X.dtypes.unique()}
        is_boolean = torch.tensor([types[dtype] for dtype in X.dtypes])
        if ranks.alone and bool(is_boolean.any()):
            data = replace(data, boolean=is_boolean)
    if data.n_noise:
        warn(
            f"labels has {plural(data.n_noise, 'point')} of noise (-1): the tree is fitted without them, but "
            "labels_ and predict put them into its clusters"
        )
    return data


# --- in memory ---


class ReadPoints(NamedTuple):
    """X as it is computed with."""

    points: InMemory
    names: Sequence[str] | None  # of the columns
    give: Callable[[np.ndarray], np.ndarray | Tensor]  # converts one value per point to the type of X


def read_points(explainer: TreeExplainer, X: object, reset: bool) -> ReadPoints:
    """Check X, and convert it to a tensor; sparse matrices, and frames that are encoded, stay as they are.

    Parameters
    ----------
    explainer : TreeExplainer
    X : table
    reset : bool
        Whether the explainer is fitted to X.
    """
    if not reset and explainer.tree_.encoding is not None:
        table = Table.of_estimator(explainer, X, reset, dtype=None, ensure_all_finite=False)
        return ReadPoints(table.data, table.names, table.labels)
    table = Table.of_estimator(explainer, X, reset, accept_sparse=["csc", "csr"])
    stays_sparse = table.is_sparse and explainer._cuts_sparse
    if stays_sparse or (reset and table.is_mixed):
        points = table.data
    elif table.names is not None or table.is_tensor:
        points = table.numbers
    else:
        points = to_tensor(table.data)
    return ReadPoints(points, table.column_names, table.labels)


def _read_in_memory(
    explainer: TreeExplainer,
    X: TableLike,
    labels: ArrayLike | None,
    sample_weight: ArrayLike | None,
    ranks: Ranks,
) -> TrainingData:
    """Read a table in memory, or the rows of one process of a group."""
    with ranks.agreed():
        points, names, give = _read_rows(explainer, X, ranks)
        all_weights = check_sample_weight(sample_weight, points)
        values = None
        if labels is not None:
            values = label_array(labels) if points.shape[0] else np.empty(0)
            check_alike(values)

        # the points of the fit
        is_noise, rows = _selected(points, values, all_weights, ranks)
        weight = all_weights
        if rows is not None:
            if weight is not None:
                weight = weight[rows]
            indices = rows.cpu().numpy()
            if values is not None:
                values = values[indices]
            X = Table.read(X).take(indices).data

        # the columns that are cut
        table: Points
        mixed = None
        if isinstance(points, pd.DataFrame):
            mixed = read_mixed(points, rows, weight)
            table = mixed.cut
        else:
            table = Dense(points) if isinstance(points, Tensor) else Sparse(points)
            if rows is not None:
                table = table.take(rows)
            check_size(table, names)
    if not ranks.alone:
        ranks.same(columns=table.d, **{"the names of columns": names})
        dtype = common_type(table.n, table.dtype, ranks)
        if not table.n:
            table = Dense(table.data.to(dtype))

    n_noise = 0 if is_noise is None else int(ranks.sum(is_noise.sum()))
    noise = None
    if is_noise is not None and n_noise:
        noise = is_noise.double() if all_weights is None else all_weights.cpu() * is_noise
    return TrainingData(
        points=points,
        rows=rows,
        table=table,
        n_features=points.shape[1],
        names=names,
        give=give,
        X=X,
        mixed=mixed,
        labels=values,
        passed_labels=labels,
        weight=weight,
        noise=noise,
        n_noise=n_noise,
    )


def _read_rows(explainer: TreeExplainer, X: TableLike, ranks: Ranks) -> ReadPoints:
    """Read the rows of this process, which may have none if it is in a group."""
    if ranks.alone:
        return read_points(explainer, X, reset=True)
    not_empty, own_rows = readable(X, ranks)
    points, names, give = read_points(explainer, not_empty, reset=True)
    if not isinstance(points, Tensor):
        raise ValueError("X in a group needs a dense table of numbers without missing values")
    return ReadPoints(points[own_rows], names, give)


def _selected(
    points: InMemory, labels: np.ndarray | None, weight: Tensor | None, ranks: Ranks
) -> tuple[Tensor | None, Tensor | None]:
    """Return the mask of noise, if there are labels, and the indices of the points of the fit; None for all."""
    if labels is None and weight is None:
        return None, None
    n = points.shape[0]
    is_noise = None
    is_selected = torch.ones(n, dtype=torch.bool, device=Table(points).device)
    if labels is not None:
        if labels.shape != (n,):
            raise ValueError(f"labels needs one label per point, shape ({n},), got {labels.shape}")
        is_noise = torch.from_numpy(~are_labels(labels))
        is_selected &= ~is_noise.to(is_selected.device)
    if weight is not None:
        is_selected &= weight > 0
    if bool(is_selected.all()):
        return is_noise, None
    rows = is_selected.nonzero()[:, 0]
    if ranks.alone and not len(rows):
        raise ValueError("no points are left: for every point, the label is -1 (noise) or the weight is zero")
    return is_noise, rows


def check_sample_weight(sample_weight: ArrayLike | None, data: object) -> Tensor | None:
    """Check the weights of the points; return them as [n] of float64 on the device of the points.

    Raises
    ------
    ValueError
        If the number of weights is wrong, or a weight is negative or not finite.
    """
    if sample_weight is None:
        return None
    table = Table(data)
    return as_weights(sample_weight, len(table), table.device)


def warn_of_repeated(data: TrainingData) -> None:
    """Warn of columns of a table in memory that repeat the labels of the points."""
    if data.labels is None or data.X is None:
        return
    table = Table.read(data.X)
    if not table.is_sparse:
        warn_of_labels(table, data.labels)


# --- in batches ---


def _source(explainer: TreeExplainer, X: object, ranks: Ranks) -> BatchSource | None:
    """Return the source of batches, if X is to be read batch by batch; otherwise None."""
    if type(X) is np.ndarray:  # in memory: one that is memory-mapped is of a class of its own
        return None
    source = batch_source(X, shard=not ranks.alone)
    if source is None or explainer._can_read_batches():
        return source
    if isinstance(X, np.memmap):
        return None
    raise ValueError(
        f"X needs to be in memory: {type(explainer).__name__} with these parameters can't read it batch by batch; "
        "CART, EMN, ExGreedy, ExKMC, ExShallow, IMM and SpExClique can, without refine"
    )


def _check_batches(
    explainer: TreeExplainer,
    labels: ArrayLike | None,
    centers: TableLike | None,
    sample_weight: ArrayLike | None,
    ranks: Ranks,
) -> None:
    """Refuse arguments that need all points in memory; k-means or a clusterer is fitted to a sample."""
    reference = explainer.reference
    is_name = isinstance(reference, str)
    with ranks.agreed():
        if sample_weight is not None:
            raise ValueError("sample_weight needs X in memory; leave it out, or repeat points in the batches")
        if labels is None and centers is None and is_name and reference != "kmeans":
            raise ValueError(
                'reference needs "kmeans" or a clusterer for an X that is read batch by batch, got '
                f"{reference!r}; or pass labels or centers, such as those of a clustering of a sample"
            )
        if explainer.metric != "l2" and centers is None and (labels is not None or not is_name):
            raise ValueError(f'labels of a stream need metric="l2", got {explainer.metric!r}; pass centers')


def _read_batches(
    explainer: TreeExplainer, source: BatchSource, labels: ArrayLike | None, ranks: Ranks
) -> TrainingData:
    """Read a table batch by batch, for a sketch of its columns."""
    values = None
    if labels is not None:
        values = label_array(labels)
        check_alike(values)
    table = Batches(source, values, explainer.max_bins or MAX_BINS, ranks)
    for note in source.notes:
        warn(f"X: {note}")
    noise = None
    n_noise = 0
    if values is not None:
        is_noise = torch.from_numpy(~are_labels(values))
        n_noise = int(ranks.sum(is_noise.sum()))
        noise = is_noise.double() if n_noise else None
        if table.selected is not None:
            values = values[table.selected.numpy()]
    explainer.n_features_in_ = table.d
    explainer.__dict__.pop("feature_names_in_", None)  # set by an earlier fit
    if source.names is not None:
        explainer.feature_names_in_ = np.array(source.names, dtype=object)
    return TrainingData(
        points=source,
        rows=table.selected,
        table=table,
        n_features=table.d,
        names=source.names,
        give=lambda values: values,
        labels=values,
        noise=noise,
        n_noise=n_noise,
    )
