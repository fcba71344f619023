"""The clustering that a report explains, and its inputs, in a common form for all kinds of arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from neonxc.clusterings.mistaken import check_is_model
from neonxc.clusterings.neuralize_arguments import first_map, fitted, points_of, steps_of
from neonxc.clusterings.readers import GivenLabels, reads_exactly
from neonxc.common.numbers import plural
from neonxc.common.searches import unwrapped
from neonxc.convert import neuralize
from neonxc.data.frames import as_pandas, in_order_of, is_path
from neonxc.data.inputs import as_array
from neonxc.data.labels import NOISE, as_labels, label_array, name_of_noise
from neonxc.data.preparation import prepare
from neonxc.data.table import Table, is_texts
from neonxc.data.weights import as_count, weights_of
from neonxc.network import NeuralizedClustering
from neonxc.pipelines.opened import opened
from neonxc.report.clusters import noise_as_cluster
from neonxc.report.contents import Kind

LARGEST = 20_000  # maximum number of points whose relevance is computed
ENTRIES = 40_000_000  # maximum number of relevance values
MANY = 12  # number of clusters above which the report shows fewer details of each


@dataclass
class Clustering:
    """A clustering and its points.

    Attributes
    ----------
    kind : {"table", "images", "locations", "texts"}
    X : Any
        Inputs as given by the user.
    whole : NeuralizedClustering
        Network from the inputs to the clusters.
    net : NeuralizedClustering
        Network from the points to the clusters. It differs from `whole` for images: there, points are features.
    points : Any
        Inputs of `net`, one per point; for images, a data frame of the features.
    model : estimator or None
        The clusterer, which can be fitted again; None if only labels or a network were given.
    preparation : transformer or None
        Fitted preprocessing steps of the clusterer up to a map, or steps fitted for a table with given labels.
    own_features : bool
        Whether the clusterer contains a feature network.
    positions : ndarray [n] of int
        Position of the cluster of every point; -1 for noise.
    cluster_names : dict
        Names of clusters given by the user, by label.
    row_names : list of str or None
        Names of the inputs; None if they only have row numbers.
    notes : list of str
        Remarks on how the data were prepared.
    noise : str or None
        The label of noise that is explained like a cluster, beside a single other one.
    weight : ndarray [n] or None
        Weights > 0 of the points.
    rows : ndarray [n] or None
        Numbers of the points in the inputs as given, if some had a weight of 0 and are left out.
    is_scaled_here : bool
        Whether `preparation` was fitted for the report, as the clustering tells none.
    """

    kind: Kind
    X: Any
    whole: NeuralizedClustering
    net: NeuralizedClustering
    points: Any
    model: Any
    preparation: Any
    own_features: bool
    positions: np.ndarray
    cluster_names: dict[str, str]
    row_names: list[str] | None
    notes: list[str]
    noise: str | None = None
    weight: np.ndarray | None = None
    rows: np.ndarray | None = None
    is_scaled_here: bool = False

    def of_rows(self, weight: np.ndarray) -> Clustering:
        """Return the clustering of the inputs with a weight > 0, with weights of all inputs.

        The weight of a photo is that of each of its locations.
        """
        inputs = np.flatnonzero(weight)
        names = None if self.row_names is None else [self.row_names[row] for row in inputs]
        if names is None and self.kind == "locations":
            names = [*map(str, inputs)]  # photos have the numbers that they have in X
        n_locations = self.n // len(weight)
        rows = (inputs[:, None] * n_locations + np.arange(n_locations)).ravel()
        weight = np.repeat(weight, n_locations)
        X = Table.read(self.X).take(inputs).data
        points = Table.read(self.points).take(rows).data
        preparation = _scaler(X, weight[rows]) if self.is_scaled_here else self.preparation
        positions = self.positions[rows]
        weight = weight[rows]
        return replace(
            self,
            X=X,
            points=points,
            positions=positions,
            row_names=names,
            weight=weight,
            rows=rows,
            preparation=preparation,
        )

    def counted_rows(self, members: np.ndarray) -> int | float:
        """Return the number of points, or the sum of their weights, that are `members`, a mask [n]."""
        return as_count(members.sum() if self.weight is None else self.weight[members].sum())

    def weights_at(self, index: np.ndarray) -> np.ndarray | None:
        """Return the weights of some points; None without weights."""
        return None if self.weight is None else self.weight[index]

    def share(self, members: np.ndarray) -> float:
        """Return the share of the points, by number or by weight, that are `members`, a mask [n]."""
        return float(np.average(members, weights=self.weight))

    @property
    def n(self) -> int:
        """Number of points, without regard to their weights."""
        return len(self.positions)

    @property
    def total(self) -> int | float:
        """Number of points, or the sum of their weights."""
        return self.counted_rows(np.ones(self.n, bool))

    @property
    def noise_total(self) -> int | float:
        """Number of points of noise, or the sum of their weights."""
        return self.counted_rows(self.positions < 0)

    @property
    def k(self) -> int:
        """Number of clusters."""
        return self.net.n_clusters

    @property
    def cluster_labels(self) -> list[str]:
        """Labels of the clusters, without noise."""
        return [str(label) for label in self.net.classes_[: self.k].tolist()]

    @property
    def final(self) -> Any:
        """The clusterer behind its preprocessing."""
        _, final = opened(self.model)
        return final

    @property
    def counted(self) -> str:
        """The number of clusters in words."""
        return "1 cluster and noise" if self.noise is not None else plural(self.k, "cluster")

    @property
    def units(self) -> list[str]:
        """Names of the columns, channels or terms."""
        return self.net.inputs.units

    @property
    def has_terms(self) -> bool:
        """Whether the columns are terms or words of texts."""
        return self.net.inputs.in_texts

    @property
    def point_names(self) -> list[str] | None:
        """Names of the points; None for locations of photos, which share the name of their photo."""
        return None if self.kind == "locations" else self.row_names

    def shortened(self, usual: int) -> int:
        """Halve the number of items shown per cluster or pair if there are many clusters."""
        return usual if self.k <= MANY else max(1, usual // 2)

    @cached_property
    def clustered(self) -> np.ndarray:
        """Sorted indices of the points that are not noise."""
        return np.flatnonzero(self.positions >= 0)

    @cached_property
    def sizes(self) -> np.ndarray:
        """Number of points of each cluster, or the sum of their weights, [k]."""
        weight = self.weights_at(self.clustered)
        return np.bincount(self.positions[self.clustered], weight, minlength=self.k)

    @cached_property
    def sample(self) -> np.ndarray:
        """Sorted indices of a stratified sample of the points, for which relevance is computed."""
        return stratified(self.positions, min(LARGEST, max(1000, ENTRIES // len(self.units))))

    def clustered_sample(self, most: int, least: int = 50) -> np.ndarray:
        """Sorted indices of a stratified sample of the points that are not noise."""
        return self.clustered[stratified(self.positions[self.clustered], most, least)]

    @cached_property
    def labels(self) -> np.ndarray:
        """Label of every point, [n]."""
        labels = self.net.classes_[self.positions]
        noise = self.positions < 0
        if noise.any():
            labels[noise] = NOISE
        return labels

    def inputs(self, index: np.ndarray) -> Any:
        """Select points."""
        return Table.read(self.points).take(index).data

    def columns(self, index: np.ndarray) -> Any:
        """Columns of the selected points, on which trees split: a data frame, an array or a sparse matrix."""
        return Table.read(self.net.inputs.columns(self.inputs(index))).for_sklearn

    def values(self, index: np.ndarray, units: np.ndarray) -> pd.DataFrame:
        """Data frame of the selected columns of the selected points."""
        return Table.read(self.columns(index)).select(units).frame([self.units[i] for i in units])

    @cached_property
    def names(self) -> list[str] | None:
        """Names of the columns for rules; None if the columns already have names."""
        return None if Table.read(self.columns(np.arange(1))).names else self.units

    def reference(self, index: np.ndarray) -> Any:
        """Reference for trees: the clustering of the selected points, behind its preprocessing."""
        given = GivenLabels(self.labels[index]).fit(index)
        return given if self.preparation is None else make_pipeline(self.preparation, given)

    def clusterer_inputs(self, index: np.ndarray) -> Any:
        """Return the selected points in the form that the clusterer takes."""
        points = self.inputs(index)
        if self.net.features is not None:
            points = torch.cat([*self.net.inputs.points(points)])
        return Table.read(points).for_sklearn

    def space(self, index: np.ndarray) -> Any:
        """Return the selected points after preprocessing, [m, p]: an array or a sparse matrix."""
        if self.preparation is None:
            space = self.columns(index)
        else:
            space = self.preparation.transform(self.clusterer_inputs(index))
        return space if Table.read(space).is_sparse else np.asarray(space, dtype=np.float64)


def stratified(clusters: np.ndarray, most: int, least: int = 50) -> np.ndarray:
    """Draw a sorted, stratified sample of about `most` rows, with `least` rows per cluster if possible."""
    if len(clusters) <= most:
        return np.arange(len(clusters))
    draw = np.random.default_rng(0)
    share = most / len(clusters)
    members = [draw.permutation(np.flatnonzero(clusters == cluster)) for cluster in np.unique(clusters)]
    return np.sort(np.concatenate([rows[: max(round(share * len(rows)), least)] for rows in members]))


def read(
    model: Any,
    X: Any,
    labels: Any,
    features: nn.Module | None,
    names: Sequence[str] | None,
    cluster_names: Mapping[Any, str] | None,
    row_names: Sequence[str] | None = None,
    sample_weight: Any = None,
) -> Clustering:
    """Convert the arguments of :func:`neonxc.explain` to a clustering.

    Weights are those with which a surrogate is fitted, and measured.
    """
    if labels is not None and X is None:
        model, X = None, model
    model = unwrapped(model)
    X = points_of(model, X, features).data if is_path(X) else X
    if labels is None and _are_pairs(model):
        model, labels = None, model
    if X is not None:
        check_is_model(model, Table.read(X))
    if labels is None and _are_labels(model, X):
        model, labels = None, model
    if X is None:
        raise TypeError("explain needs the inputs: neonxc.explain(model, X), or neonxc.explain(X, labels=...)")
    if labels is not None and model is not None:
        raise TypeError("explain takes a model or labels, not both")
    if hasattr(X, "fit") and not hasattr(X, "shape"):
        raise TypeError(f"X needs the data, got {type(X).__name__}: explain(model, X), or explain(X, labels=...)")
    labels = in_order_of(labels, X)
    names = getattr(X, "var_names", None) if names is None else names
    X = as_pandas(with_names(X if hasattr(X, "iloc") else as_pandas(X), names))
    if isinstance(X, pd.DataFrame):
        X = points_of(model, X, features).data  # columns in the order of those that the model was fitted on
    weight = weights_of(sample_weight, Table.read(X))
    preparation = None
    notes = list[str]()
    _, final = opened(model)
    noise = final.noise if isinstance(final, GivenLabels) else None
    if labels is None and features is None and hasattr(final, "labels_") and not reads_exactly(final):
        of_two, name = noise_as_cluster(final.labels_)
        if name is not None:
            model = None
            labels = of_two
            noise = name
    elif labels is not None:
        labels, noise = noise_as_cluster(labels)
    if labels is not None and features is None and is_table(X):
        prepared = prepare(Table.read(X).frame(), labels=labels)
        X = prepared.frame
        notes = prepared.notes
        model = make_pipeline(fitted(prepared.pipeline, X, weight), GivenLabels(labels, noise).fit(X))
        labels = None
    if isinstance(model, NeuralizedClustering):
        net = model
    else:
        net = neuralize(model, X, features, labels=labels, sample_weight=weight)
        steps, _ = steps_of(model)
        steps = steps[: first_map(steps)]  # what a map leads to has no columns
        preparation = Pipeline(steps) if steps else None
    if net.n_clusters == 1 and net.noise_position >= 0:
        net = copy(net)
        noise = name_of_noise(net.classes_[:1])
        net.classes_ = np.array([str(net.classes_[0]), noise])
    if noise is not None:
        notes = [*notes, "Rows outside the only cluster are noise, which is explained like a second cluster."]
    table = Table.read(X)
    if names is not None and table.is_sparse:
        net.feature_names_ = names
    kind = _kind(net, X)
    is_scaled_here = kind == "table" and _is_known_alone(model)
    if is_scaled_here:
        X = X.rename(columns=str) if isinstance(X, pd.DataFrame) else X  # as `prepare` calls them
        preparation = _scaler(X)
    points, head = (X, net) if kind in ("table", "texts") else _of_features(net, X)
    named = {str(label): name for label, name in (cluster_names or {}).items()}
    if unknown := named.keys() - {*map(str, net.classes_.tolist())}:
        raise ValueError(f"cluster_names has {sorted(unknown)}, but the labels are {net.classes_.tolist()}")
    positions = _positions(net, X, model, labels, weight)
    if len(np.unique(positions[positions >= 0])) < 2:
        if weight is not None and not weight.all():
            raise ValueError("sample_weight needs rows of at least two clusters with a weight > 0")
        raise ValueError(
            "X has points of a single cluster; explain needs at least two clusters, or one and noise (label -1)"
        )
    if row_names is not None and len(row_names) != len(table):
        raise ValueError(f"row_names needs one name per input, got {len(row_names)}")
    index = table.index if row_names is None else row_names
    _, final = opened(model)  # of labels there is another model by now
    refittable = None if isinstance(final, NeuralizedClustering | GivenLabels) else model
    return Clustering(
        kind,
        X,
        net,
        head,
        points,
        refittable,
        preparation,
        features is None and net.features is not None,
        positions,
        named,
        None if index is None or isinstance(index, pd.RangeIndex) else [*map(str, index)],
        notes,
        noise,
        is_scaled_here=is_scaled_here,
    )


def row_weights(clustering: Clustering, sample_weight: Any) -> np.ndarray:
    """Return the weights of the inputs of a clustering."""
    weight = weights_of(sample_weight, Table.read(clustering.X))
    assert weight is not None
    positions = clustering.positions[np.repeat(weight, clustering.n // len(weight)) > 0]
    if len(np.unique(positions[positions >= 0])) < 2:
        raise ValueError("sample_weight needs rows of at least two clusters with a weight > 0")
    return weight


def _is_known_alone(model: Any) -> bool:
    """Whether a network or a tree was given, which do not contain the preprocessing of the clustering."""
    from neonxc.trees import ThresholdTree  # depends on this package

    return isinstance(model, NeuralizedClustering | ThresholdTree) or hasattr(model, "tree_")


def _scaler(X: Any, weight: np.ndarray | None = None) -> Any:
    """Fit preprocessing steps that bring the columns to a common scale, to rows that may have weights."""
    table = Table.read(X)
    if table.names is not None:
        prepared = prepare(X)
        steps = prepared.pipeline
        rows = prepared.frame
    else:
        steps = StandardScaler(with_mean=not table.is_sparse)
        rows = table.for_sklearn
    return fitted(steps, rows, weight)


def _of_features(net: NeuralizedClustering, X: Any) -> tuple[pd.DataFrame, NeuralizedClustering]:
    """Return the features of images, one row per point, and the clustering of these features."""
    names = [f"channel {i}" for i in range(net.head.n_features)]
    head = NeuralizedClustering(net.head, None, net.classes_, names)
    head.beta = net.beta
    return net.inputs.columns(X).set_axis(names, axis=1), head


def _are_labels(model: Any, X: Any) -> bool:
    """Whether the first argument contains one label per input."""
    if X is None or hasattr(model, "fit") or isinstance(model, nn.Module):
        return False
    return np.ndim(model) == 1 and len(model) == len(Table.read(X))


def _are_pairs(model: Any) -> bool:
    """Whether the first argument is a list of labels that are tuples with names, and no rows of centers."""
    if not isinstance(model, list | tuple) or not all(isinstance(label, tuple) for label in model):
        return False
    return any(isinstance(part, str) for label in model for part in label)


def is_table(X: Any) -> bool:
    """Whether X is a dense table."""
    table = Table.read(X)
    return len(table.shape) == 2 and not table.is_sparse


def with_names(X: Any, names: Sequence[str] | None) -> Any:
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


def _kind(net: NeuralizedClustering, X: Any) -> Kind:
    if net.inputs.absent == "word" or is_texts(X):
        return "texts"
    if net.features is None or np.ndim(X) == 2:
        return "table"
    first = next(iter(net.inputs.parts(Table.read(X).take([0]).data)))
    if first.ndim != 4:
        shape = list(np.shape(X))
        raise ValueError(f"explain needs points, texts or images [N, C, H, W], got X of shape {shape}")
    return "images" if net.inputs.features(first).ndim == 2 else "locations"


def _positions(
    net: NeuralizedClustering, X: Any, model: Any, labels: Any, weight: np.ndarray | None
) -> np.ndarray:
    """Position of the cluster of every point, [n]; -1 for noise, and for labels of points of weight 0 alone."""
    if labels is None and net.fidelity_ is not None:  # a surrogate of a clusterer that knows its labels
        _, final = opened(model)
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
    return positions
