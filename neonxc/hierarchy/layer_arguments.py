"""What users pass as layers, read as forks.

given                                         layers
labels [N, L] or [L, N]                       the columns or rows, whichever have as many entries as X has rows
data frame [N, L]                             its columns, by its index
list of labels, of models, or of both         each of them; objects with `cluster_labels` are labels
names of columns                              those of an AnnData's obs, or of X, which they are taken out of
object with `cluster_layers_`                 these: fitted Toponymy and EVoC
BisectingKMeans                               the splits of its hierarchy, in the order of their scores
AgglomerativeClustering, HDBSCAN              the merges of its tree
linkage=                                      the merges of a linkage matrix of SciPy
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from sklearn.cluster import BisectingKMeans
from sklearn.utils.validation import check_is_fitted

from neonxc.clusterings.labels import labels_of
from neonxc.clusterings.neuralize_arguments import points_of, steps_of
from neonxc.clusterings.readers import is_precomputed
from neonxc.common.arguments import kind_of, similar
from neonxc.common.searches import unwrapped
from neonxc.data.expression import groups_of
from neonxc.data.frames import as_pandas, in_order_of
from neonxc.data.inputs import as_array
from neonxc.data.labels import as_labels, label_array, repeating_columns, written_labels
from neonxc.data.table import Table
from neonxc.hierarchy.forks import ROOT, Fork, Hierarchy, Origin, part_name
from neonxc.hierarchy.label_layers import Layer, forks_of_layers
from neonxc.hierarchy.linkages import Dendrogram, linkage_of_children
from neonxc.hierarchy.origins import OfCenters, OfHDBSCAN, OfLinkage, OfModel, tree_of_hdbscan
from neonxc.network import NeuralizedClustering
from neonxc.pipelines.folding import transform

FORMS = (
    "labels [rows, layers], a list of labels or of fitted models, names of columns, a BisectingKMeans, "
    "AgglomerativeClustering or HDBSCAN, or linkage="
)
CHECKED_MERGES = 5
"""Number of the highest merges of a linkage by which single linkage is recognised."""
MAX_PAIRS = 4_000_000
"""Maximum number of pairs of rows whose distances are computed for that."""


class Reading(NamedTuple):
    """How layers are read."""

    X: Table  # [N, ...], the rows that explanations are about
    features: Table | None  # [N, p], the columns that were clustered, if they are others
    n_forks: int  # of dendrograms
    least: int  # rows of a side of a dendrogram

    @property
    def clustered(self) -> Table:
        """The rows as clusterers take them."""
        return self.X if self.features is None else self.features


def read_layers(given: Any, linkage: Any, reading: Reading) -> tuple[Hierarchy, list[str]]:
    """Read what is given, and return the forks, and the columns of X that repeat labels.

    Raises
    ------
    TypeError
        Nothing is given, or both layers and a linkage, or something that has no layers.
    ValueError
        What is given does not fit X, its shape is ambiguous, a linkage is not monotone, or nothing splits.
    """
    if (given is None) == (linkage is None):
        raise TypeError(f"layers needs one of two: {FORMS}")
    if linkage is not None:
        return _of_linkage(linkage, reading), []
    given = unwrapped(getattr(given, "cluster_layers_", given))
    if _is_model(given):
        return _of_model(given, reading), []
    layers = _layers(given, reading)
    forks = forks_of_layers(layers)
    return Hierarchy(forks, 0), _repeating(reading.X, layers)


def _is_model(given: object) -> bool:
    """Whether something is a fitted clusterer, and no labels."""
    return hasattr(given, "fit") or hasattr(given, "predict")


# --- trees -------------------------------------------------------------------------------------------------------


def _of_linkage(linkage: Any, reading: Reading) -> Hierarchy:
    """Read a linkage matrix."""
    if _is_model(linkage):
        raise TypeError(
            f"linkage needs a matrix of SciPy, got {kind_of(linkage)}; models come first: layers(model, X)"
        )
    Z = np.asarray(as_array(linkage), np.float64)
    if Z.ndim != 2 or Z.shape[1] != 4:
        raise ValueError(f"linkage needs a matrix [rows - 1, 4], got shape {[*Z.shape]}")
    _check_rows(len(Z) + 1, reading, "linkage")
    tree = Dendrogram(Z)
    points = _numbers(reading.clustered)
    origin = OfLinkage(_is_single(tree, points), reading.least)
    return tree.forks(reading.n_forks, reading.least, origin)


def _is_single(tree: Dendrogram, points: NDArray[np.float64] | None) -> bool:
    """Whether the highest merges are at the smallest distance of two rows of their sides: single linkage."""
    if points is None:
        return False
    n_equal = 0
    for merge in np.argsort(-tree.heights, kind="stable")[:CHECKED_MERGES].tolist():
        left, right = (tree.rows(side) for side in tree.sides[merge].tolist())
        if len(left) * len(right) > MAX_PAIRS:
            continue
        nearest = cdist(points[left], points[right]).min()
        if not np.isclose(nearest, tree.heights[merge], rtol=1e-5):
            return False
        n_equal += len(left) > 1 and len(right) > 1  # of two rows, all linkages are equal
    return n_equal > 0


def _of_model(model: Any, reading: Reading) -> Hierarchy:
    """Read a fitted hierarchical clusterer, which may be the last step of a pipeline."""
    _, final = steps_of(model)
    check_is_fitted(final)
    rows = reading.clustered if reading.features is not None else points_of(model, reading.X)
    is_of_X = reading.features is None
    if isinstance(final, BisectingKMeans):
        return _of_bisecting(model, final, rows, is_of_X, reading)
    if hasattr(final, "children_"):
        n = len(final.labels_)
        _check_rows(n, reading, kind_of(final))
        Z = linkage_of_children(final.children_, getattr(final, "distances_", None), n)
        points = None if is_precomputed(final) else OfModel(model, rows, is_of_X).space()
        return Dendrogram(Z).forks(
            reading.n_forks, reading.least, OfLinkage(final.linkage == "single", reading.least, points)
        )
    if type(final).__name__ == "HDBSCAN":
        _check_rows(len(final.labels_), reading, kind_of(final))
        origin = OfHDBSCAN(model, rows, is_of_X)
        return Dendrogram(tree_of_hdbscan(final)).forks(reading.n_forks, int(final.min_cluster_size), origin)
    raise TypeError(
        f"{kind_of(final)} has one layer of clusters, and no hierarchy: pass several of them in a list, or {FORMS}"
    )


def _of_bisecting(model: Any, final: BisectingKMeans, rows: Table, is_of_X: bool, reading: Reading) -> Hierarchy:
    """Read the splits of bisecting k-means, those of the largest scores first."""
    _check_rows(len(final.labels_), reading, kind_of(final))
    shift = getattr(final, "_X_mean", 0.0)
    centers: dict[str, NDArray[np.float64]] = {}
    origin = OfCenters(model, rows, is_of_X, centers)
    forks: list[Fork] = []
    n_further = 0
    waiting = [(final._bisecting_tree, ROOT)]  # scikit-learn stores its hierarchy only in this private attribute
    while waiting:
        waiting.sort(key=lambda entry: -_score(entry[0]))
        node, name = waiting.pop(0)
        if node.left is None:
            continue
        if len(forks) == reading.n_forks:
            n_further += 1
        else:
            sides = [np.isin(final.labels_, _leaves(side)) for side in (node.left, node.right)]
            parent_rows = np.flatnonzero(sides[0] | sides[1])
            codes = sides[1][parent_rows].astype(np.int64)
            centers[name] = np.array([node.left.center, node.right.center]) + shift
            children = [part_name(name, "0"), part_name(name, "1")]
            forks.append(Fork(name, children, parent_rows, codes, {}, origin, [0, 1]))
        for number, side in enumerate((node.left, node.right)):
            waiting.append((side, part_name(name, str(number))))
    return Hierarchy(forks, n_further)


def _score(node: Any) -> float:
    """Return the score by which bisecting k-means chooses the next cluster to split."""
    return float(node.score)


def _leaves(node: Any) -> list[int]:
    """Return the labels of the clusters below a node."""
    if node.left is None:
        return [int(node.label)]
    return _leaves(node.left) + _leaves(node.right)


# --- labels ------------------------------------------------------------------------------------------------------


def _layers(given: Any, reading: Reading) -> list[Layer]:
    """Read labels and models as layers."""
    n = len(reading.X)
    if not isinstance(given, pd.DataFrame | pd.Series):  # whose names beside the number of noise would become text
        given = as_pandas(given, "given")
    if isinstance(given, pd.DataFrame):
        ordered = in_order_of(given, reading.X, "given")
        _check_rows(len(ordered), reading, "given")
        return [_of_labels(ordered[name].reset_index(drop=True), str(name), n) for name in ordered]
    if isinstance(given, pd.Series):
        return [_of_labels(in_order_of(given, reading.X, "given"), "layer 1", n)]

    items = [*given] if isinstance(given, list | tuple) else None
    if items == []:
        raise ValueError("given is empty: it needs at least one layer")
    if items is None:
        return [_of_labels(labels, f"layer {i}", n) for i, labels in enumerate(_oriented(as_array(given), n), 1)]
    items = [unwrapped(getattr(item, "cluster_labels", item)) for item in items]
    if any(map(_is_model, items)):
        return [_of_item(item, f"layer {i}", reading) for i, item in enumerate(items, 1)]
    if all(np.ndim(item) == 1 for item in items):
        lengths = {len(item) for item in items}
        if lengths == {n} and len(items) != n:
            return [
                _of_labels(in_order_of(item, reading.X, "given"), f"layer {i}", n)
                for i, item in enumerate(items, 1)
            ]
        if len(lengths) > 1:
            raise ValueError(
                f"given needs layers of one label per row, {n}, got layers of {sorted(lengths)} labels"
            )
    return [_of_labels(labels, f"layer {i}", n) for i, labels in enumerate(_oriented(_array(items), n), 1)]


def _array(items: Sequence[Any]) -> NDArray[Any]:
    """Return labels in lists as an array, in which names stay beside numbers."""
    array = np.array([*map(as_array, items)] if np.ndim(items[0]) else items, dtype=object)
    return array


def _oriented(labels: NDArray[Any], n: int) -> list[NDArray[Any]]:
    """Return the layers of labels [N], [N, L] or [L, N]."""
    shape = labels.shape
    if shape == (n,):
        return [labels]
    if labels.ndim != 2 or n not in shape:
        raise ValueError(
            f"given needs labels of shape [{n}, layers] or [layers, {n}], as X has {n} rows, got {[*shape]}"
        )
    if shape == (n, n):
        raise ValueError(
            f"given of shape {[*shape]} may be [rows, layers] or [layers, rows]: pass a data frame with a column "
            "for each layer"
        )
    if shape[0] == n:
        labels = labels.T
    return [*labels]


def _of_item(item: Any, name: str, reading: Reading) -> Layer:
    """Read a model or labels as a layer."""
    n = len(reading.X)
    if not _is_model(item):
        return _of_labels(in_order_of(item, reading.X, "given"), name, n)
    is_of_X = reading.features is None
    rows = reading.clustered if not is_of_X else points_of(item, reading.X)
    origin = OfModel(item, rows, is_of_X)
    if isinstance(item, NeuralizedClustering):
        labels = item.predict(rows.data)
    else:
        entering = Table.read(transform(origin.steps, rows.for_sklearn))
        labels = labels_of(origin.final, entering)
    if labels is None:
        raise ValueError(f"{kind_of(item)} in {name} has no labels for the {n} rows of X; fit it to them")
    return _of_labels(labels, name, n, origin)


def _of_labels(labels: Any, name: str, n: int, origin: Origin | None = None) -> Layer:
    """Read the labels of a layer."""
    positions, classes, is_clustered = as_labels(labels, n, torch.device("cpu"), name=f"{name} of given")
    codes = np.where(is_clustered.numpy(), positions.numpy(), -1)
    return Layer(name, codes, classes.tolist(), origin or Origin())


def named_layers(names: Sequence[str], X: Any) -> tuple[pd.DataFrame, Any]:
    """Return columns of an AnnData's obs, or of a data frame, as layers, and the rows without them.

    Raises
    ------
    ValueError
        There are no such columns.
    """
    if hasattr(X, "obs"):
        layers = {name: groups_of(X, name)[0] for name in names}
        return pd.DataFrame({name: pd.Series(groups, X.obs_names) for name, groups in layers.items()}), X
    missing = [name for name in names if name not in X.columns]
    if missing:
        known = [*map(str, X.columns)]
        raise ValueError(f"X has no columns {missing} with layers{similar(missing, known)}")
    return X[[*names]].apply(written_labels), X.drop(columns=[*names])


def are_names(given: object, X: Any) -> bool:
    """Whether what is given are names of columns of rows that have some, and not their labels."""
    table = getattr(X, "obs", X)
    if not isinstance(given, list | tuple) or not isinstance(table, pd.DataFrame) or not given:
        return False
    if not all(isinstance(name, str) for name in given):
        return False
    return len(given) != len(table) or {*given} <= {*table.columns}


def _repeating(X: Table, layers: Sequence[Layer]) -> list[str]:
    """Return the columns of a data frame that repeat the labels of a layer."""
    if X.names is None:
        return []
    columns = X.values_of_columns()
    repeating: list[str] = []
    for layer in layers:
        names = np.array([*map(str, layer.labels)], dtype=object)
        labels = np.where(layer.codes < 0, -1, np.append(names, "")[layer.codes])
        repeating += repeating_columns(columns, label_array(labels))
    return [*dict.fromkeys(repeating)]


def _check_rows(n: int, reading: Reading, name: str) -> None:
    """Raise a ValueError unless there are as many rows as in X."""
    if n != len(reading.X):
        raise ValueError(f"{name} is of {n} rows, and X has {len(reading.X)}: pass the rows that were clustered")


def _numbers(table: Table) -> NDArray[np.float64] | None:
    """Return the columns of a table of numbers; None for others."""
    if len(table.shape) != 2 or table.is_sparse or table.is_mixed:
        return None
    points: NDArray[np.float64] = table.tensor.double().cpu().numpy()
    return points
