"""Reading of the arguments of :func:`neonxc.describe` and :func:`neonxc.explain`: what is clustered, and how.

The first argument is a clustering, labels, a table or an AnnData. It is read in steps, each of which leaves one
form for the next:

    AnnData          -> a table of expression, and labels
    a table alone    -> the prepared table, and k-means on it
    labels           -> a model that gives them (tables), or labels for a surrogate
    a model          -> a network, the points that it divides, and their clusters
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from sklearn.pipeline import Pipeline, make_pipeline
from torch import Tensor, nn

from neonxc.clusterings.mistaken import check_is_model
from neonxc.clusterings.neuralize_arguments import first_map, fitted, points_of, read_arguments, steps_of
from neonxc.clusterings.readers import GivenLabels, reads_exactly
from neonxc.common.numbers import text
from neonxc.common.searches import unwrapped
from neonxc.common.types import ArrayLike, Label, TableLike
from neonxc.convert import neuralized
from neonxc.data.frames import as_pandas, in_memory, in_order_of, is_path
from neonxc.data.inputs import as_array
from neonxc.data.labels import as_labels, label_array, name_of_noise
from neonxc.data.preparation import prepare
from neonxc.data.table import Table, is_texts
from neonxc.data.weights import weights_of
from neonxc.network import NeuralizedClustering
from neonxc.pipelines.opened import opened
from neonxc.report.clustered import ClusteredData, scaler
from neonxc.report.clusters import noise_as_cluster, of_data

ONE_CLUSTER = "X has points of a single cluster; explain needs at least two clusters, or one and noise (label -1)"
ONE_CLUSTER_WITH_WEIGHT = "sample_weight needs rows of at least two clusters with a weight > 0"


@dataclass(frozen=True)
class Arguments:
    """Arguments of :func:`neonxc.describe`, as far as they have been read.

    The title and the notes tell what reading found out.
    """

    model: Any  # the clustering, or the data if they are the first argument
    X: Any = None
    labels: Any = None
    features: nn.Module | None = None
    names: Sequence[str] | None = None
    clusters: int | str | range | None = None
    cluster_names: Mapping[Label, str] | None = None
    row_names: Sequence[str] | None = None
    layer: str | None = None
    use_raw: bool | None = None
    sample_weight: ArrayLike | None = None
    images: ArrayLike | Sequence[int] | None = None
    title: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def later(self) -> Any:
        """The data as the user gave them: the later version, if there is an earlier one."""
        return self.model if self.X is None or isinstance(self.X, str) else self.X


def read(arguments: Arguments) -> Arguments:
    """Tell a model or labels and the data apart, whatever the first argument is, and read the data."""
    if hasattr(arguments.model, "obs"):
        arguments = _of_cells(arguments)
    elif arguments.layer is not None or arguments.use_raw is not None:
        raise TypeError("layer= and use_raw= are for an AnnData as first argument")
    arguments = replace(arguments, model=as_pandas(arguments.model))
    if _is_data_alone(arguments):
        arguments = _clustered_here(arguments)
    elif arguments.clusters is not None:
        raise TypeError("clusters= is for a table alone, which is clustered here; got a clustering as well")
    return _in_roles(arguments)


# --- who is who ------------------------------------------------------------------------------------------------


def _of_cells(arguments: Arguments) -> Arguments:
    """Read an AnnData: a matrix of expression, and the groups of cells that `X` names."""
    from neonxc.data.expression import expression_of, groups_of  # which other tables do without

    cells = arguments.model
    if arguments.X is not None:
        labels, groups = groups_of(cells, arguments.X)
        title = f"{text(len(cells.obs))} cells by {groups}"
        arguments = replace(arguments, X=None, labels=labels, title=title)
    expression, genes, matrix = expression_of(cells, arguments.layer, arguments.use_raw)
    expression = in_memory(expression)
    arguments = _in_order_of_rows(arguments, cells)
    row_names = cells.obs.index if arguments.row_names is None else arguments.row_names
    note = f"Expression is that of {matrix}."
    return replace(
        arguments,
        model=expression,
        names=arguments.names or genes,
        row_names=row_names,
        notes=(*arguments.notes, note),
    )


def _in_order_of_rows(arguments: Arguments, rows: object) -> Arguments:
    """Put labels and weights, if they are series, in the order of the rows, whose index is not kept."""
    labels = in_order_of(arguments.labels, rows)
    sample_weight = in_order_of(arguments.sample_weight, rows, "sample_weight")
    return replace(arguments, labels=labels, sample_weight=sample_weight)


def _is_data_alone(arguments: Arguments) -> bool:
    """Whether a table, or the path of one, is given and nothing else."""
    if arguments.X is not None or arguments.labels is not None or arguments.features is not None:
        return False
    if isinstance(arguments.model, str | PathLike):
        return True
    if isinstance(arguments.model, list | tuple):
        return is_table(arguments.model)
    return len(getattr(arguments.model, "shape", ())) == 2 and is_table(arguments.model)


def _clustered_here(arguments: Arguments) -> Arguments:
    """Cluster a table that is given alone."""
    check_is_model(arguments.model, None)
    name = "the table"
    if isinstance(arguments.model, str | PathLike):
        name = Path(arguments.model).name
    table = with_names(arguments.model, arguments.names)
    prepared, clustered = of_data(table, arguments.clusters, name, arguments.sample_weight)
    return replace(
        arguments,
        model=clustered.model,
        X=prepared.frame,
        names=None,
        title=clustered.what,
        notes=(*prepared.notes, *clustered.notes),
    )


def _in_roles(arguments: Arguments) -> Arguments:
    """Tell the model, the data and the labels apart, and read the data and the names of their columns."""
    model = arguments.model
    X = arguments.X
    labels = arguments.labels
    if labels is not None and X is None:
        X = model
        model = None
    model = unwrapped(model)
    if is_path(X):
        X = points_of(model, X, arguments.features).data
    if labels is None and _are_pairs(model):
        labels = model
        model = None
    if X is not None:
        check_is_model(model, Table.read(X))
    if labels is None and _are_labels(model, X):
        labels = model
        model = None

    if X is None:
        raise TypeError("explain needs the inputs: neonxc.explain(model, X), or neonxc.explain(X, labels=...)")
    if labels is not None and model is not None:
        raise TypeError("explain takes a model or labels, not both")
    if hasattr(X, "fit") and not hasattr(X, "shape"):
        raise TypeError(f"X needs the data, got {type(X).__name__}: explain(model, X), or explain(X, labels=...)")
    arguments = _in_order_of_rows(replace(arguments, labels=labels), X)
    labels = arguments.labels
    names = arguments.names
    if names is None and hasattr(X, "var_names"):  # the variables that the model was fitted on, in their order
        cells = points_of(model, X, arguments.features)
        names = cells.column_names
        X = cells.data
    X = X if hasattr(X, "iloc") else as_pandas(X)
    X = as_pandas(with_names(X, names))
    if isinstance(X, pd.DataFrame):
        X = points_of(
            model, X, arguments.features
        ).data  # columns in the order of those that the model was fitted on
    return replace(arguments, model=model, X=X, labels=labels, names=names)


def _are_labels(model: Any, X: TableLike | None) -> bool:
    """Whether the first argument contains one label per input."""
    if X is None or hasattr(model, "fit") or isinstance(model, nn.Module):
        return False
    return np.ndim(model) == 1 and len(model) == len(Table.read(X))


def _are_pairs(model: object) -> bool:
    """Whether the first argument is a list of labels that are tuples with names, and no rows of centers."""
    if not isinstance(model, list | tuple) or not all(isinstance(label, tuple) for label in model):
        return False
    return any(isinstance(part, str) for label in model for part in label)


def is_table(X: TableLike) -> bool:
    """Whether X is a dense table."""
    table = Table.read(X)
    return len(table.shape) == 2 and not table.is_sparse


def with_names(X: TableLike, names: Sequence[str] | None) -> TableLike:
    """Return a table with the given column names."""
    if names is None:
        return X
    names = [str(name) for name in names]
    table = Table.read(X)
    if table.shape[1:] != (len(names),):
        raise ValueError(f"names needs one name per column of X, got {len(names)} for shape {list(table.shape)}")
    if table.is_sparse:  # a sparse matrix has no column names; the network stores them
        return X
    return table.frame(names).set_axis(names, axis=1)


# --- from labels to a model, and from a model to a network -----------------------------------------------------


class _Model(NamedTuple):
    """A model or labels, and the data that it divides."""

    model: Any
    labels: Any  # None if the model knows them
    X: Any
    noise: str | None  # the name of noise that is explained like a cluster
    notes: list[str]


def _with_labels(arguments: Arguments, weight: np.ndarray | None) -> _Model:
    """Make a model of the labels of a table; other labels are those of a surrogate.

    A clusterer that is not written exactly as a network counts as its labels if they are one cluster and noise.
    """
    model = arguments.model
    labels = arguments.labels
    X = arguments.X
    notes = list[str]()
    _, final = opened(model)
    noise = final.noise if isinstance(final, GivenLabels) else None
    if labels is None and arguments.features is None and hasattr(final, "labels_") and not reads_exactly(final):
        of_two, name = noise_as_cluster(final.labels_)
        if name is not None:
            model = None
            labels = of_two
            noise = name
    elif labels is not None:
        labels, noise = noise_as_cluster(labels)
    if labels is not None and arguments.features is None and is_table(X):
        prepared = prepare(Table.read(X).frame(), labels=labels)
        X = prepared.frame
        notes = prepared.notes
        steps = fitted(prepared.pipeline, X, weight)
        model = make_pipeline(steps, GivenLabels(labels, noise).fit(X))
        labels = None
    return _Model(model, labels, X, noise, notes)


def clustered_data(arguments: Arguments) -> ClusteredData:
    """Write the model as a network, and divide the points by it; `given` has been read.

    Weights are those with which a surrogate is fitted, and measured; the clustering is that of all rows.
    """
    weight = weights_of(arguments.sample_weight, Table.read(arguments.X))
    of = _with_labels(arguments, weight)
    model = of.model
    X = of.X
    noise = of.noise
    preparation = None
    features: list[Tensor] = []
    if isinstance(model, NeuralizedClustering):
        net = model
    else:
        of_clusterer = read_arguments(model, X, arguments.features, of.labels, weight)
        net, _, features = neuralized(of_clusterer, keeps_points=arguments.features is not None)
        steps, _ = steps_of(model)
        steps = steps[: first_map(steps)]  # what a map leads to has no columns
        if steps:
            preparation = Pipeline(steps)
    if net.n_clusters == 1 and net.noise_position >= 0:
        net = copy(net)
        noise = name_of_noise(net.classes_[:1])
        net.classes_ = np.array([str(net.classes_[0]), noise])
    notes = [*arguments.notes, *of.notes]
    if noise is not None:
        notes.append("Rows outside the only cluster are noise, which is explained like a second cluster.")

    kind = _kind(net, X)
    is_scaled_here = kind.kind == "table" and _is_known_alone(model)
    if is_scaled_here and isinstance(X, pd.DataFrame):
        X = X.rename(columns=str)  # as `prepare` calls them
    table = Table.read(X)
    if arguments.names is not None and table.is_sparse:
        net.feature_names_ = arguments.names
    if is_scaled_here:
        preparation = scaler(table)
    points = table
    rows = of.X
    of_points = net
    shown: dict[str, Any] = {}
    if kind.kind in ("images", "locations"):
        from neonxc.report.photos import shown_photos

        points, of_points = _of_features(net, X, features)
        rows = points.data
        pictures, bands, remarks = shown_photos(arguments.images, torch.as_tensor(as_array(table.data)))
        shown = {"shown": pictures, "bands": bands}
        notes += remarks
    elif arguments.images is not None:
        raise TypeError("images= is for clusters of images")
    elif kind.kind == "texts" and net.features is None:
        points = Table.read(net.inputs.columns(X))  # terms are counted once for all parts of a report
        rows = points.data
    _, final = opened(model)
    return kind(
        table=table,
        whole=net,
        net=of_points,
        points=points,
        positions=_positions(of_points, of, rows, weight),
        model=None if isinstance(final, NeuralizedClustering | GivenLabels) else model,
        preparation=preparation,
        is_network=isinstance(final, NeuralizedClustering),
        has_own_features=arguments.features is None and net.features is not None,
        cluster_names=_cluster_names(arguments.cluster_names, net),
        row_names=_row_names(arguments.row_names, table),
        title=arguments.title,
        notes=notes,
        noise=noise,
        is_scaled_here=is_scaled_here,
        **shown,
    )


def _kind(net: NeuralizedClustering, X: Any) -> type[ClusteredData]:
    """Tell whether rows of a table, texts, photos or the locations in photos are clustered."""
    if net.inputs.absent == "word" or is_texts(X):
        from neonxc.report.texts import ClusteredTexts  # loads Matplotlib, as photos do

        return ClusteredTexts
    if net.features is None or np.ndim(X) == 2:
        from neonxc.report.rows import ClusteredRows

        return ClusteredRows
    first = next(iter(net.inputs.parts(Table.read(X).take([0]).data)))
    if first.ndim != 4:
        shape = list(np.shape(X))
        raise ValueError(f"explain needs points, texts or images [N, C, H, W], got X of shape {shape}")
    from neonxc.report.photos import ClusteredLocations, ClusteredPhotos

    return ClusteredPhotos if net.inputs.features(first).ndim == 2 else ClusteredLocations


def _is_known_alone(model: object) -> bool:
    """Whether a network or a tree was given, which do not contain the preprocessing of the clustering."""
    from neonxc.trees import ThresholdTree  # depends on this package

    return isinstance(model, NeuralizedClustering | ThresholdTree) or hasattr(model, "tree_")


def _of_features(
    net: NeuralizedClustering, X: TableLike, features: Sequence[Tensor]
) -> tuple[Table, NeuralizedClustering]:
    """Return the features of images, one row per point, and the clustering of these features.

    They are computed here unless there are `features` [n, d] already.
    """
    names = [f"channel {i}" for i in range(net.head.n_features)]
    head = NeuralizedClustering(net.head, None, net.classes_, names)
    head.beta = net.beta
    head.fidelity_ = net.fidelity_
    points = torch.cat([*(features or net.inputs.points(X))])
    return Table.read(pd.DataFrame(as_array(points), columns=names)), head


def _cluster_names(names: Mapping[Label, str] | None, net: NeuralizedClustering) -> dict[str, str]:
    """Return the names that the user gave to clusters, by label as text."""
    named = {str(label): name for label, name in (names or {}).items()}
    classes = net.classes_.tolist()
    unknown = named.keys() - {*map(str, classes)}
    if unknown:
        raise ValueError(f"cluster_names has {sorted(unknown)}, but the labels are {classes}")
    return named


def _row_names(names: Sequence[str] | None, table: Table) -> list[str] | None:
    """Return the names of the inputs: as given, or the index of a data frame; None for row numbers."""
    if names is not None and len(names) != len(table):
        raise ValueError(f"row_names needs one name per input, got {len(names)}")
    index = table.index if names is None else names
    if index is None or isinstance(index, pd.RangeIndex):
        return None
    return [*map(str, index)]


def _positions(net: NeuralizedClustering, of: _Model, X: Any, weight: np.ndarray | None) -> np.ndarray:
    """Position of the cluster of every point [n] of inputs X of a network; -1 for noise.

    Labels of weight 0 alone are -1, too.
    """
    labels = of.labels
    if labels is None and net.fidelity_ is not None:  # a surrogate of a clusterer that knows its labels
        _, final = opened(of.model)
        labels = getattr(final, "labels_", None)  # others are those of the network, which predicts below
    if labels is None:
        labels = as_array(net.predict(X)).reshape(-1)
    labels = label_array(labels)
    rows = np.arange(len(labels))
    if weight is not None:
        rows = np.flatnonzero(np.repeat(weight, len(labels) // len(weight)))
    columns, classes, clustered = as_labels(labels[rows], len(rows), torch.device("cpu"))
    positions = np.full(len(labels), -1)
    positions[rows] = torch.where(clustered, net.positions(classes)[columns], -1).numpy()
    if len(np.unique(positions[positions >= 0])) < 2:
        if weight is not None and not weight.all():
            raise ValueError(ONE_CLUSTER_WITH_WEIGHT)
        raise ValueError(ONE_CLUSTER)
    return positions


def row_weights(clustering: ClusteredData, sample_weight: ArrayLike) -> np.ndarray:
    """Return the weights of the inputs of a clustering."""
    weight = weights_of(sample_weight, clustering.table)
    assert weight is not None
    n_locations = clustering.n // len(weight)
    positions = clustering.positions[np.repeat(weight, n_locations) > 0]
    if len(np.unique(positions[positions >= 0])) < 2:
        raise ValueError(ONE_CLUSTER_WITH_WEIGHT)
    return weight
