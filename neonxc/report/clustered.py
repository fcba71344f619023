"""A clustering and the points that it divides: what all parts of a report need.

    rows      inputs as the user gave them: rows of a table, photos or texts
    points    what the clusters consist of: the rows, the terms of texts, the features of photos, or the features
              at their locations

Tables, texts and photos are subclasses, which know what a point is called and how examples of it are shown
(:mod:`~neonxc.report.rows`, :mod:`~neonxc.report.texts`, :mod:`~neonxc.report.photos`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import pandas as pd
import torch
from sklearn.base import BaseEstimator
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from neonxc.attribution.typical import clearest
from neonxc.clusterings.neuralize_arguments import fitted
from neonxc.clusterings.readers import GivenLabels
from neonxc.common.numbers import plural, rounded
from neonxc.common.types import Points
from neonxc.data.labels import NOISE
from neonxc.data.preparation import prepare
from neonxc.data.table import Table
from neonxc.data.weights import as_count
from neonxc.network import NeuralizedClustering
from neonxc.pipelines.opened import opened
from neonxc.report.description import Example

if TYPE_CHECKING:
    from neonxc.report.relevance import Relevance

LARGEST = 20_000  # maximum number of points whose relevance is computed
ENTRIES = 40_000_000  # maximum number of relevance values
MANY = 12  # number of clusters above which the report shows fewer details of each


@dataclass(frozen=True)
class ClusteredData:
    """A clustering and its points.

    Attributes
    ----------
    table : Table
        Inputs of the network `whole`, one per row.
    whole : NeuralizedClustering
        Network from the inputs to the clusters.
    net : NeuralizedClustering
        Network from the points to the clusters. It differs from `whole` for photos: there, points are features.
    points : Table
        Inputs of `net`, one per point; for photos, a data frame of the features.
    positions : ndarray [n] of int
        Position of the cluster of every point; -1 for noise.
    model : estimator or None
        The clusterer, which can be fitted again; None if only labels or a network were given.
    preparation : transformer or None
        Fitted preprocessing steps of the clusterer up to a map, or steps fitted for a table with given labels.
    is_network : bool
        Whether a network was given, which does not tell what it was made from.
    has_own_features : bool
        Whether the clusterer contains a feature network.
    cluster_names : dict
        Names of clusters given by the user, by label.
    row_names : list of str or None
        Names of the inputs; None if they only have row numbers.
    title : str or None
        What is explained, if the arguments tell more than the number of clusters.
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

    kind: ClassVar[str]
    thing: ClassVar[str]
    """What a point is called."""
    has_readable_columns: ClassVar[bool] = True
    """Whether names of columns tell a reader something; those of channels do not."""
    trees: ClassVar[tuple[str, ...]] = ("ExShallow", "CART")
    """Kinds of trees that are compared."""

    table: Table
    whole: NeuralizedClustering
    net: NeuralizedClustering
    points: Table
    positions: np.ndarray
    model: Any = None
    preparation: Any = None
    is_network: bool = False
    has_own_features: bool = False
    cluster_names: dict[str, str] = field(default_factory=dict)
    row_names: list[str] | None = None
    title: str | None = None
    notes: list[str] = field(default_factory=list)
    noise: str | None = None
    weight: np.ndarray | None = None
    rows: np.ndarray | None = None
    is_scaled_here: bool = False

    def weighted(self, weight: np.ndarray) -> Self:
        """Return the clustering of the inputs with a weight > 0, with weights of all inputs.

        The weight of a photo is that of each of its locations.
        """
        inputs = np.flatnonzero(weight)
        n_locations = self.n // len(weight)
        rows = (inputs[:, None] * n_locations + np.arange(n_locations)).ravel()
        of_points = np.repeat(weight, n_locations)[rows]

        names = self._input_names
        if names is not None:
            names = [names[row] for row in inputs]
        table = self.table.take(inputs)
        preparation = self.preparation
        if self.is_scaled_here:
            preparation = scaler(table, of_points)
        return replace(
            self,
            table=table,
            points=self.points.take(rows),
            positions=self.positions[rows],
            preparation=preparation,
            row_names=names,
            weight=of_points,
            rows=rows,
        )

    @property
    def _input_names(self) -> list[str] | None:
        """Names of all inputs, before some are left out."""
        return self.row_names

    # --- points and their numbers ---------------------------------------------------------------------------

    @property
    def n(self) -> int:
        """Number of points, without regard to their weights."""
        return len(self.positions)

    @property
    def has_columns_to_change(self) -> bool:
        """Whether points are rows of a table, of which single values can be changed."""
        return self.kind == "table" and not self.points.is_sparse

    @property
    def total(self) -> int | float:
        """Number of points, or the sum of their weights."""
        return self.count(np.ones(self.n, bool))

    @property
    def noise_total(self) -> int | float:
        """Number of points of noise, or the sum of their weights."""
        return self.count(self.positions < 0)

    @cached_property
    def sizes(self) -> np.ndarray:
        """Number of points of each cluster, or the sum of their weights, [k]."""
        weight = self.weights_at(self.clustered)
        return np.bincount(self.positions[self.clustered], weight, minlength=self.k)

    def count(self, members: np.ndarray) -> int | float:
        """Return the number of points, or the sum of their weights, that are `members`, a mask [n]."""
        if self.weight is None:
            return as_count(members.sum())
        return as_count(self.weight[members].sum())

    def share(self, members: np.ndarray) -> float:
        """Return the share of the points, by number or by weight, that are `members`, a mask [n]."""
        return float(np.average(members, weights=self.weight))

    def weights_at(self, index: np.ndarray) -> np.ndarray | None:
        """Return the weights of some points; None without weights."""
        return None if self.weight is None else self.weight[index]

    @cached_property
    def clustered(self) -> np.ndarray:
        """Sorted indices of the points that are not noise."""
        return np.flatnonzero(self.positions >= 0)

    @cached_property
    def sample(self) -> np.ndarray:
        """Sorted indices of a stratified sample of the points, for which relevance is computed."""
        most = max(1000, ENTRIES // len(self.columns))
        return stratified(self.positions, min(LARGEST, most))

    def clustered_sample(self, most: int, least: int = 50) -> np.ndarray:
        """Sorted indices of a stratified sample of the points that are not noise."""
        return self.clustered[stratified(self.positions[self.clustered], most, least)]

    # --- clusters -------------------------------------------------------------------------------------------

    @property
    def k(self) -> int:
        """Number of clusters."""
        return self.net.n_clusters

    @property
    def cluster_labels(self) -> list[str]:
        """Labels of the clusters, without noise."""
        return [str(label) for label in self.net.classes_[: self.k].tolist()]

    @cached_property
    def labels(self) -> np.ndarray:
        """Label of every point, [n]."""
        labels = self.net.classes_[self.positions]
        noise = self.positions < 0
        if noise.any():
            labels[noise] = NOISE
        return labels

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
    def counted_points(self) -> str:
        """The number of points in words."""
        return plural(self.n, self.thing)

    def shortened(self, usual: int) -> int:
        """Halve the number of items shown per cluster or pair if there are many clusters."""
        return usual if self.k <= MANY else max(1, usual // 2)

    # --- columns and values ---------------------------------------------------------------------------------

    @property
    def columns(self) -> list[str]:
        """Names of the columns, channels or terms."""
        return self.net.inputs.units

    @property
    def has_terms(self) -> bool:
        """Whether the columns are terms or words of texts."""
        return self.net.inputs.in_texts

    @property
    def is_slow_to_read(self) -> bool:
        """Whether a sentence encoder reads the texts."""
        return self.has_terms and self.net.inputs.propagates

    @cached_property
    def rule_names(self) -> list[str] | None:
        """Names of the columns for rules; None if the columns already have names."""
        return None if self.split_columns(np.arange(1)).names else self.columns

    def inputs(self, index: np.ndarray) -> Any:
        """Select points."""
        return self.points.take(index).data

    def read(self, index: np.ndarray) -> Table:
        """Select points in a form that the network reads, for results per column."""
        return self.points.take(index)

    def split_columns(self, index: np.ndarray) -> Table:
        """Columns of the selected points, on which trees split."""
        return Table.read(self.net.inputs.columns(self.inputs(index)))

    def values(self, index: np.ndarray, columns: np.ndarray) -> pd.DataFrame:
        """Data frame of the selected columns of the selected points."""
        names = [self.columns[column] for column in columns]
        if self.net.features is None and self.n * len(columns) < len(index) * len(self.columns):
            return self.points.select(columns).take(index).frame(names)  # few columns of many rows
        return self.split_columns(index).select(columns).frame(names)

    def reference(self, index: np.ndarray) -> BaseEstimator:
        """Reference for trees: the clustering of the selected points, behind its preprocessing."""
        clusterer = GivenLabels(self.labels[index]).fit(index)
        if self.preparation is None:
            return clusterer
        return make_pipeline(self.preparation, clusterer)

    def clusterer_inputs(self, index: np.ndarray) -> Any:
        """Return the selected points in the form that the clusterer takes."""
        points = self.inputs(index)
        if self.net.features is not None:
            points = torch.cat([*self.net.inputs.points(points)])
        return Table.read(points).for_sklearn

    def has_all(self, index: np.ndarray) -> bool:
        """Whether an index [m] selects all points in their order, so that they need no copy."""
        return len(index) == self.n and bool((index == np.arange(self.n)).all())

    def space(self, index: np.ndarray) -> Points:
        """Return the selected points after preprocessing, [m, p]: an array or a sparse matrix.

        Few enough points are preprocessed once for all parts of a report.
        """
        if self.n > LARGEST:
            return self._preprocessed(index)
        if self.has_all(index):
            return self._space
        return Table.read(self._space).take(index).data

    @cached_property
    def _space(self) -> Points:
        """All points after preprocessing."""
        return self._preprocessed(np.arange(self.n))

    def _preprocessed(self, index: np.ndarray) -> Points:
        """Preprocess the selected points, to an array or a sparse matrix."""
        if self.preparation is None:
            space = self.split_columns(index).for_sklearn
        else:
            space = self.preparation.transform(self.clusterer_inputs(index))
        if Table.read(space).is_sparse:
            return space
        return np.asarray(space, dtype=np.float64)

    def regions(self) -> tuple[Tensor | None, Tensor | None]:
        """Return the first photo and its clusters, for locations; otherwise None."""
        return None, None

    # --- examples -------------------------------------------------------------------------------------------

    @property
    def point_names(self) -> list[str] | None:
        """Names of the points; None if they have only numbers."""
        return self.row_names

    def examples(self, relevance: Relevance, points: np.ndarray) -> list[Example]:
        """Show points of the sample, given their positions [m] in the sample."""
        names = self.point_names
        rows = relevance.index[points].tolist()
        logits = rounded(relevance.logit[points])
        competitors = relevance.competitor[points].tolist()
        examples = []
        for row, logit, competitor in zip(rows, logits, competitors, strict=True):
            name = str(row) if names is None else names[row]
            examples.append(Example(row, name, logit, competitor))
        if examples:
            self._show(examples, relevance, points)
        return examples

    def _show(self, examples: list[Example], relevance: Relevance, points: np.ndarray) -> None:
        """Add what a reader sees of each example: values, a photo or a text."""
        raise NotImplementedError

    def members_shown(self, relevance: Relevance, cluster: int, n: int) -> tuple[list[Example], list[Example]]:
        """Show `n` typical points of a cluster, or the clearest of noise (-1), and those of small logits."""
        inside = np.flatnonzero(relevance.positions == cluster)
        by_logit = clearest(inside, relevance.logit, len(inside))
        n_largest = min(n, len(inside) // 2) or len(inside)
        if cluster < 0 or cluster == self.net.noise_position:
            chosen = by_logit[:n_largest]
        else:
            chosen = relevance.typical(cluster, n_largest)
        remaining = by_logit[~np.isin(by_logit, chosen)]
        n_smallest = min(n, len(inside) - n_largest)
        smallest = remaining[::-1][:n_smallest]
        return self.examples(relevance, chosen), self.examples(relevance, smallest)


def stratified(clusters: np.ndarray, most: int, least: int = 50) -> np.ndarray:
    """Draw a sorted, stratified sample of about `most` rows, with `least` rows per cluster if possible."""
    if len(clusters) <= most:
        return np.arange(len(clusters))
    random = np.random.default_rng(0)
    fraction = most / len(clusters)
    members = [random.permutation(np.flatnonzero(clusters == cluster)) for cluster in np.unique(clusters)]
    return np.sort(np.concatenate([rows[: max(round(fraction * len(rows)), least)] for rows in members]))


def scaler(table: Table, weight: np.ndarray | None = None) -> BaseEstimator:
    """Fit preprocessing steps that bring the columns to a common scale, to rows that may have weights."""
    if table.names is None:
        steps = StandardScaler(with_mean=not table.is_sparse)
        return fitted(steps, table.for_sklearn, weight)
    prepared = prepare(table.data)
    return fitted(prepared.pipeline, prepared.frame, weight)
