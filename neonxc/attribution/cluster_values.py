"""Typical values of the features in clusters, and how far they are from those of all points.

    feature       typical value in a cluster, and in all points    effect size against all other points
    number        the mean                                         Cohen's d
    category      the fraction of the points in each category      Cramér's V
    word, term    the fraction of the texts that contain it        Cramér's V of two categories: contained or not

The sums behind them are collected in batches of points, which may have weights. Missing numbers do not count, and
missing categories are a category of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from neonxc.attribution.effects import cramers_v
from neonxc.attribution.moments import Moments
from neonxc.common.numbers import percent, text
from neonxc.common.types import Label
from neonxc.data.files.format import PLAIN, ColumnFormat
from neonxc.data.kinds import plain
from neonxc.data.sparse import SparseRows
from neonxc.data.table import Table
from neonxc.data.weights import counted_weights, point_weights
from neonxc.head.answer import rows
from neonxc.inputs import Inputs

ALL = "all"
"""Index of the row of a table of fractions that refers to all points."""


@dataclass(frozen=True)
class ClusterValues:
    """Typical values of d features in K clusters and in all points, including noise. Missing values are ignored.

    Attributes
    ----------
    means : ndarray [K, d] of float64
        Mean of each feature over the points of each cluster; NaN for categories and empty clusters.
    overall : ndarray [d] of float64
        Mean of each feature over all points.
    shares : dict of int to DataFrame [K + 1, categories]
        Fraction of each category, 0 to 1, in every cluster and, in the last row, in all points, by the position of
        the categorical feature. Missing values form a category of their own, None.
    in_texts : bool
        Whether the features are words or terms. Their means are then the fractions of texts that contain
        them.
    effects : ndarray [K, d] or None
        Effect size of each cluster against all other points: Cohen's d of numbers, the difference of the means in
        pooled standard deviations; Cramér's V of categories, words and terms, 0 to 1.
    formats : tuple of d ColumnFormat
        How the numbers of the features are printed, with their units; default: without.
    """

    means: np.ndarray
    overall: np.ndarray
    shares: dict[int, pd.DataFrame] = field(default_factory=dict)
    in_texts: bool = False
    effects: np.ndarray | None = None
    formats: tuple[ColumnFormat, ...] = ()

    def format(self, feature: int) -> ColumnFormat:
        """Return how the numbers of a feature are printed."""
        if not self.formats:
            return PLAIN
        return self.formats[feature]

    def direction(self, cluster: int, feature: int) -> tuple[str, float, float]:
        """Compare a cluster with all points in one feature.

        Returns
        -------
        direction : str
            ``"↑"`` or ``"↓"`` if the mean in the cluster is above or below the overall mean, ``"="`` if both are
            equal when printed; ``"is Private"`` for the category whose fraction exceeds its overall fraction most;
            "" if the values are unknown.
        mean, overall : float
            The two means or fractions; NaN if unknown.
        """
        if feature in self.shares:
            return self._direction_of_category(self.shares[feature], cluster)
        mean = float(self.means[cluster, feature])
        overall = float(self.overall[feature])
        if np.isnan(mean):
            return "", np.nan, np.nan
        if self._printed(feature, mean) == self._printed(feature, overall):
            return "=", mean, overall
        direction = "↑" if mean > overall else "↓"
        return direction, mean, overall

    @staticmethod
    def _direction_of_category(fractions: pd.DataFrame, cluster: int) -> tuple[str, float, float]:
        """Find the category that is typical of a cluster, and its fractions in the cluster and in all points."""
        in_cluster = fractions.iloc[cluster]
        overall = fractions.iloc[-1]
        if in_cluster.isna().any():  # an empty cluster
            return "", np.nan, np.nan
        category = typical_category(in_cluster.to_numpy(), overall.to_numpy())
        name = text(fractions.columns[category], separators=False)
        return f"is {name}", float(in_cluster.iloc[category]), float(overall.iloc[category])

    def comparison(self, cluster: int, feature: int) -> str:
        """Write direction and numbers: ``"↑ 1116 vs 746.9"``, ``"is Private 91% vs 70%"``; "" if unknown."""
        direction, mean, overall = self.direction(cluster, feature)
        if not direction:
            return ""
        numbers = self._printed(feature, mean, overall)
        if self.in_texts:
            return f"{direction} in {numbers}"  # of the texts
        return f"{direction} {numbers}"

    def effect(self, cluster: int, feature: int) -> str:
        """Write the effect size: ``"d = 1.8"``, ``"V = 0.41"``; "" if it is unknown."""
        if self.effects is None or np.isnan(self.effects[cluster, feature]):
            return ""
        name = "V" if self.in_texts or feature in self.shares else "d"
        return f"{name} = {text(float(self.effects[cluster, feature]), 2)}"

    def _printed(self, feature: int, *means: float, between: str = " vs ", digits: int = 4) -> str:
        """Write means or fractions of a feature, with its unit."""
        if self.in_texts or feature in self.shares:
            return between.join(map(percent, means))
        return self.format(feature).text(*means, digits=digits, between=between)

    def step(self, before: float, after: float, feature: int) -> str:
        """Write the change of a mean or fraction of a feature: ``"52 → 12 kg"``, ``"10% → 80%"``."""
        return self._printed(feature, before, after, between=" → ", digits=3)


def typical_category(in_cluster: np.ndarray, overall: np.ndarray) -> int:
    """Return the position of the category whose fraction in a cluster exceeds its overall fraction most."""
    return int(np.argmax(in_cluster - overall))


class ValueSums:
    """Accumulate sums of the values of d features by cluster, in batches of points.

    Parameters
    ----------
    n_clusters, n_features : int
        Numbers of clusters and of features.
    categories : sequence of int
        Positions of the categorical features.

    Attributes
    ----------
    moments : Moments [K, d]
        Those of the numbers.
    categories : dict of int to dict
        By the position of a categorical feature, and by the name of a category, the numbers of points in the
        clusters, [K].
    """

    def __init__(self, n_clusters: int, n_features: int, categories: Sequence[int] = ()) -> None:
        self.moments = Moments(n_clusters, n_features)
        self.categories: dict[int, dict[Label, np.ndarray]] = {feature: {} for feature in categories}

    def add(self, values: Tensor | SparseRows, cluster: Tensor, weight: Tensor | None = None) -> None:
        """Add the values [n, d] of points, given the positions [n] of their clusters, and weights [n]."""
        self.moments.add(values, cluster, weight)

    def add_table(
        self,
        table: pd.DataFrame,
        numbers: dict[int, np.ndarray],
        cluster: Tensor,
        weight: np.ndarray | None = None,
    ) -> None:
        """Add the rows of the only table: its categories, and its numbers by their position (NaN if missing)."""
        clusters = cluster.numpy()
        mass = np.ones(len(clusters)) if weight is None else weight
        for feature, values in numbers.items():
            self.moments.add_column(feature, values, clusters, mass)
        k = len(self.moments.counts)
        for feature in self.categories:
            codes, names = pd.factorize(table.iloc[:, feature].astype(object), use_na_sentinel=False)
            counts = np.zeros((len(names), k))
            np.add.at(counts, (codes, clusters), mass)
            self.categories[feature] = dict(zip(map(plain, names), counts, strict=True))

    def result(self, in_texts: bool, formats: tuple[ColumnFormat, ...] = ()) -> ClusterValues:
        """Compute means, fractions and effect sizes; `formats` say how the numbers of the features are printed."""
        means = self.moments.means.numpy()
        overall = self.moments.overall.numpy()
        if in_texts:
            effects = self._effects_of_words(means, overall)
        else:
            effects = self.moments.cohens_d()

        fractions_by_feature = {}
        for feature, counts in self.categories.items():
            if not counts:
                continue
            fractions, sizes = _fractions(counts)
            fractions_by_feature[feature] = fractions
            *by_cluster, in_all = fractions.to_numpy()
            for k, in_cluster in enumerate(by_cluster):
                effects[k, feature] = cramers_v(in_cluster, in_all, sizes[k], sizes[-1])
        return ClusterValues(means, overall, fractions_by_feature, in_texts, effects, formats)

    def _effects_of_words(self, means: np.ndarray, overall: np.ndarray) -> np.ndarray:
        """Compute Cramér's V [K, d] of two categories: a text contains a word, or not.

        The means [K, d] and [d] are fractions of texts that contain the words.
        """
        sizes = self.moments.counts[:, 0].tolist()
        total = sum(sizes)
        in_all = np.stack([overall, 1 - overall])
        effects = []
        for mean, size in zip(means, sizes, strict=True):
            in_cluster = np.stack([mean, 1 - mean])
            effects.append(cramers_v(in_cluster, in_all, size, total))
        return np.stack(effects)


def _fractions(counts: dict[Label, np.ndarray]) -> tuple[pd.DataFrame, np.ndarray]:
    """Convert counts [K] by category to fractions [K + 1, categories] and sizes [K + 1] of the clusters.

    The most frequent category is the first column, and all points are the last row.
    """
    names = sorted(counts, key=lambda name: (-counts[name].sum(), str(name)))
    by_cluster = np.stack([counts[name] for name in names], axis=1)
    with_all = np.vstack([by_cluster, by_cluster.sum(axis=0)])
    sizes = with_all.sum(axis=1, keepdims=True)
    fractions = np.divide(with_all, sizes, out=np.full_like(with_all, np.nan), where=sizes > 0)
    index = [*range(len(by_cluster)), ALL]
    frame = pd.DataFrame(fractions, index=index, columns=pd.Index(names, dtype=object))
    return frame, sizes[:, 0]


def values_of(
    inputs: Inputs, groups: Sequence[Table], weights: Sequence[np.ndarray] | None = None
) -> ClusterValues:
    """Compute the typical values of the features in groups of inputs, with weights [n] of each group's inputs."""
    counted = None if weights is None else counted_weights(np.concatenate(weights))
    sums = ValueSums(len(groups), len(inputs.units), inputs.categories)
    frames = []
    numbers = []
    for group in groups:
        encoded = inputs.table(group.data)
        if encoded is not None:
            frame, numbers_of_group = encoded
            frames.append(frame)
            numbers.append(numbers_of_group)

    if frames:
        sizes = torch.tensor([len(group) for group in groups])
        group_of_row = torch.arange(len(groups)).repeat_interleave(sizes)
        columns = {column: np.concatenate([values[column] for values in numbers]) for column in numbers[0]}
        sums.add_table(pd.concat(frames), columns, group_of_row, counted)
        return sums.result(inputs.in_texts, inputs.formats)

    first = 0
    for k, group in enumerate(groups):
        for x in inputs.parts(group.data):
            points = rows(inputs.features(x))
            weight = point_weights(counted, first, len(points), torch.device("cpu"))
            first += len(points)
            sums.add(inputs.values(x, points), torch.full((len(points),), k), weight)
    return sums.result(inputs.in_texts, inputs.formats)
