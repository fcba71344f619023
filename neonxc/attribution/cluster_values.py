"""Typical values of the features in clusters, and how far they are from those of all points.

    feature       typical value in a cluster, and in all others    effect size against all other points
    number        the mean                                         Cohen's d
    category      the fraction of the points in each category      Cramér's V
    word, term    the fraction of the texts that contain it        Cramér's V of two categories: contained or not

:mod:`neonxc.attribution.direction` puts them into words. The sums behind them are collected in batches of points,
which may have weights. Missing numbers do not count, and missing categories are a category of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from scipy import sparse
from torch import Tensor

from neonxc.attribution.direction import UNKNOWN, Direction, of_category, of_number, of_term
from neonxc.attribution.moments import Moments, cramers_v
from neonxc.common.numbers import text
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


class ValueSpread(NamedTuple):
    """What is known of the values of d features in K clusters beside their means; arrays [K, d]."""

    deviation: np.ndarray  # root of the mean of (x - m')^2, in standard deviations of the other points' values
    known: np.ndarray  # fraction of the points that have a value
    known_elsewhere: np.ndarray  # that of all other points
    present: np.ndarray  # fraction of the values that are not 0; 1 in columns with negative values


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
    others : ndarray [K, d] or None
        Mean of each feature over all points but those of each cluster.
    others_shares : dict of int to ndarray [K, categories], or None
        Fractions of the categories in all points but those of each cluster, in the order of the columns of
        `shares`.
    spread : ValueSpread or None
        What else is known of the values.
    formats : tuple of d ColumnFormat
        How the numbers of the features are printed, with their units; default: without.
    """

    means: np.ndarray
    overall: np.ndarray
    shares: dict[int, pd.DataFrame] = field(default_factory=dict)
    in_texts: bool = False
    effects: np.ndarray | None = None
    others: np.ndarray | None = None
    others_shares: dict[int, np.ndarray] | None = None
    spread: ValueSpread | None = None
    formats: tuple[ColumnFormat, ...] = ()

    def format(self, feature: int) -> ColumnFormat:
        """Return how the numbers of a feature are printed."""
        if not self.formats:
            return PLAIN
        return self.formats[feature]

    def described(self, cluster: int, feature: int) -> Direction:
        """Say how the values of a feature in a cluster differ from those of all other points.

        Parameters
        ----------
        cluster, feature : int
            Positions of the cluster and of the feature.
        """
        effect = np.nan if self.effects is None else float(self.effects[cluster, feature])
        if feature in self.shares:
            return self._category(cluster, feature, effect)
        own = float(self.means[cluster, feature])
        others = float(self.others_means[cluster, feature])
        if self.in_texts:
            return of_term(own, others, effect)
        spread = self.spread
        if spread is None:
            return of_number(own, others, effect, format=self.format(feature))
        return of_number(
            own,
            others,
            effect,
            deviation=float(spread.deviation[cluster, feature]),
            known=float(spread.known[cluster, feature]),
            known_elsewhere=float(spread.known_elsewhere[cluster, feature]),
            present=float(spread.present[cluster, feature]),
            format=self.format(feature),
        )

    @property
    def others_means(self) -> np.ndarray:
        """Means [K, d] of the features over all points but those of each cluster."""
        if self.others is None:
            return np.broadcast_to(self.overall, self.means.shape)
        return self.others

    def _category(self, cluster: int, feature: int, effect: float) -> Direction:
        """Compare the fractions of the category that is typical of a cluster."""
        fractions = self.shares[feature]
        in_cluster = fractions.iloc[cluster].to_numpy()
        others = fractions.iloc[-1].to_numpy()
        if self.others_shares is not None:
            others = self.others_shares[feature][cluster]
        if np.isnan(in_cluster).any():  # an empty cluster
            return UNKNOWN
        category = typical_category(in_cluster, np.nan_to_num(others))
        name = text(fractions.columns[category], separators=False)
        return of_category(name, float(in_cluster[category]), float(others[category]), effect)

    def direction(self, cluster: int, feature: int) -> tuple[str, float, float]:
        """Compare a cluster with all points in one feature.

        Returns
        -------
        direction : str
            ``"↑"``, ``"↓"``, ``"↕"``, ``"≈"`` or ``"="`` if values are high, low, extreme, medium, or read like
            those of all other points; ``"is Private"`` for the category whose fraction exceeds that of the other
            points most; "" if the values are unknown.
        mean, overall : float
            The means or fractions in the cluster and in all points; NaN if unknown.
        """
        described = self.described(cluster, feature)
        if not described.is_known:
            return "", np.nan, np.nan
        if feature not in self.shares:
            return described.arrow, float(self.means[cluster, feature]), float(self.overall[feature])
        fractions = self.shares[feature]
        names = [text(name, separators=False) for name in fractions.columns]
        category = names.index(described.word.removeprefix("is "))
        return described.arrow, described.own, float(fractions.iloc[-1, category])

    def comparison(self, cluster: int, feature: int) -> str:
        """Write direction and numbers: ``"↑ 1116 vs 582.3"``, ``"is Private 91% vs 53%"``; "" if unknown."""
        return self.described(cluster, feature).comparison()

    def effect(self, cluster: int, feature: int) -> str:
        """Write the effect size: ``"d = 1.8"``, ``"V = 0.41"``; "" if it is unknown."""
        return self.described(cluster, feature).effect_size()


def typical_category(in_cluster: np.ndarray, others: np.ndarray) -> int:
    """Return the position of the category whose fraction in a cluster exceeds that elsewhere most."""
    return int(np.argmax(in_cluster - others))


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
        self.nonzero = torch.zeros(n_clusters, n_features, dtype=torch.float64)  # number of values that are not 0
        self.minimum = torch.full((n_features,), torch.inf, dtype=torch.float64)
        self.sizes = np.zeros(n_clusters)
        self.categories: dict[int, dict[Label, np.ndarray]] = {feature: {} for feature in categories}

    def add(self, values: Tensor | SparseRows, cluster: Tensor, weight: Tensor | None = None) -> None:
        """Add the values [n, d] of points, given the positions [n] of their clusters, and weights [n]."""
        self._count(cluster.cpu().numpy(), None if weight is None else weight.cpu().numpy())
        self.moments.add(values, cluster, weight)
        if isinstance(values, SparseRows):
            matrix = values.matrix
            self.nonzero += _count_entries(matrix, cluster.cpu().numpy(), weight, len(self.sizes))
            minimum = torch.from_numpy(matrix.min(axis=0).toarray().ravel().astype(np.float64))
        else:
            numbers = values.cpu().double()
            is_nonzero = ((numbers != 0) & ~numbers.isnan()).double()
            if weight is not None:
                is_nonzero = is_nonzero * weight.cpu()[:, None]
            self.nonzero.index_add_(0, cluster.cpu(), is_nonzero)
            minimum = numbers.nan_to_num(torch.inf).amin(dim=0)
        self.minimum = torch.minimum(self.minimum, minimum)

    def add_table(
        self,
        table: pd.DataFrame,
        numbers: dict[int, np.ndarray],
        cluster: Tensor,
        weight: np.ndarray | None = None,
    ) -> None:
        """Add rows of a table: its categories, and its numbers by their position (NaN if missing)."""
        clusters = cluster.numpy()
        mass = np.ones(len(clusters)) if weight is None else weight
        self._count(clusters, mass)
        for feature, values in numbers.items():
            self.moments.add_column(feature, values, clusters, mass)
            is_nonzero = (values != 0) & ~np.isnan(values)
            n_nonzero = np.bincount(clusters, is_nonzero * mass, minlength=len(self.sizes))
            self.nonzero[:, feature] += torch.from_numpy(n_nonzero)
            if not np.isnan(values).all():
                self.minimum[feature] = min(float(self.minimum[feature]), float(np.nanmin(values)))
        for feature, so_far in self.categories.items():
            codes, names = pd.factorize(table.iloc[:, feature].astype(object), use_na_sentinel=False)
            counts = np.zeros((len(names), len(self.sizes)))
            np.add.at(counts, (codes, clusters), mass)
            for name, of_name in zip(map(plain, names), counts, strict=True):
                so_far[name] = so_far.get(name, 0) + of_name

    def _count(self, clusters: np.ndarray, weight: np.ndarray | None) -> None:
        """Count the points of the clusters, or add up their weights."""
        self.sizes += np.bincount(clusters, weight, minlength=len(self.sizes))

    def result(
        self, in_texts: bool, truths: Sequence[int] = (), formats: tuple[ColumnFormat, ...] = ()
    ) -> ClusterValues:
        """Compute means, fractions and effect sizes.

        `truths` are the positions of features that are true or false, and `formats` say how the numbers of the
        features are printed.
        """
        means = self.moments.means.numpy()
        overall = self.moments.overall.numpy()
        if in_texts:
            effects = self._effects_of_words(means, overall)
        else:
            effects = self.moments.cohens_d()

        fractions_by_feature = {}
        others_by_feature = {}
        categories = dict(self.categories)
        for feature in truths:
            mass = self.moments.counts.numpy()[:, feature]
            n_true = np.nan_to_num(means[:, feature]) * mass
            categories[feature] = {True: n_true, False: mass - n_true}
        for feature, counts in categories.items():
            if not counts:
                continue
            fractions, sizes = _fractions(counts)
            fractions_by_feature[feature] = fractions
            others_by_feature[feature] = _fractions_of_others(counts, fractions)
            *by_cluster, in_all = fractions.to_numpy()
            for k, in_cluster in enumerate(by_cluster):
                effects[k, feature] = cramers_v(in_cluster, in_all, sizes[k], sizes[-1])
        return ClusterValues(
            means,
            overall,
            fractions_by_feature,
            in_texts,
            effects,
            others=self.moments.others.numpy(),
            others_shares=others_by_feature,
            spread=self._spread(),
            formats=formats,
        )

    def _spread(self) -> ValueSpread:
        """Compute what is known of the values beside their means."""
        difference = (self.moments.means - self.moments.others).square()
        own = self.moments.deviations().square() + difference.nan_to_num()
        others = self.moments.deviations_of_others()
        deviation = torch.where(others > 0, own.sqrt() / others, 0.0)
        counts = self.moments.counts.numpy()
        known = _fraction(counts, self.sizes)
        known_elsewhere = _fraction(counts.sum(axis=0) - counts, self.sizes.sum() - self.sizes)
        present = torch.where(self.minimum >= 0, self.nonzero / self.moments.counts, 1.0)
        return ValueSpread(deviation.numpy(), known, known_elsewhere, present.numpy())

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


def _fractions_of_others(counts: dict[Label, np.ndarray], fractions: pd.DataFrame) -> np.ndarray:
    """Compute the fractions [K, categories] of categories in all points but those of each cluster."""
    by_cluster = np.stack([counts[name] for name in fractions.columns], axis=1)
    others = by_cluster.sum(axis=0) - by_cluster
    sizes = others.sum(axis=1, keepdims=True)
    return np.divide(others, sizes, out=np.full_like(others, np.nan), where=sizes > 0)


def _fraction(counts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Divide counts [K, d] by sizes [K]; 1 for empty clusters."""
    sizes = sizes[:, None]
    return np.divide(counts, sizes, out=np.ones_like(counts), where=sizes > 0)


def _count_entries(
    matrix: sparse.csr_matrix, cluster: np.ndarray, weight: Tensor | None, n_clusters: int
) -> Tensor:
    """Count the values [K, d] of sparse rows that are not 0 by cluster, or add up the weights of their rows."""
    row = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))  # of each stored entry
    mass = (matrix.data != 0).astype(np.float64)
    if weight is not None:
        mass *= weight.cpu().numpy()[row]
    d = matrix.shape[1]
    cell = cluster[row] * d + matrix.indices
    return torch.from_numpy(np.bincount(cell, mass, minlength=n_clusters * d).reshape(n_clusters, d))


def truths_of(table: Table, units: Sequence[str]) -> list[int]:
    """Return the positions of the features that are columns of a table, and true or false."""
    frame = table.data
    if not isinstance(frame, pd.DataFrame) or not frame.columns.is_unique:
        return []
    are_truths = {name for name, dtype in frame.dtypes.items() if str(dtype) in ("bool", "boolean")}
    return [i for i, name in enumerate(units) if name in are_truths]


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
        return sums.result(inputs.in_texts, formats=inputs.formats)

    first = 0
    for k, group in enumerate(groups):
        for x in inputs.parts(group.data):
            points = rows(inputs.features(x))
            weight = point_weights(counted, first, len(points), torch.device("cpu"))
            first += len(points)
            sums.add(inputs.values(x, points), torch.full((len(points),), k), weight)
    return sums.result(inputs.in_texts, truths_of(groups[0], inputs.units), inputs.formats)
