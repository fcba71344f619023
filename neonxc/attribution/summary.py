"""Summary of each cluster: its size, its most relevant features and their typical values, and its prototypes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from neonxc.attribution.effects import cramers_v
from neonxc.attribution.moments import Moments
from neonxc.common.numbers import percent, plural, text
from neonxc.common.result import Result, preformatted
from neonxc.data.kinds import plain
from neonxc.data.sparse import SparseRows
from neonxc.data.table import Table
from neonxc.data.weights import counted_weights, point_weights
from neonxc.head.answer import rows
from neonxc.inputs import Inputs
from neonxc.network import NeuralizedClustering, is_noise

WHAT = {"lrp": "the mean relevance", "permute": "the share of points that leave if the column is permuted"}
ALL = "all"
"""Index of the row of a table of shares that refers to all points."""


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
        Share of each category, 0 to 1, in every cluster and, in the last row, in all points, by the position of
        the categorical feature. Missing values form a category of their own, None.
    in_texts : bool
        Whether the features are words or terms. Their means are then the shares of the texts that contain them.
    effects : ndarray [K, d] or None
        Effect size of each cluster against all other points: Cohen's d of numbers, the difference of the means in
        pooled standard deviations; Cramér's V of categories, words and terms, 0 to 1.
    """

    means: np.ndarray
    overall: np.ndarray
    shares: dict[int, pd.DataFrame] = field(default_factory=dict)
    in_texts: bool = False
    effects: np.ndarray | None = None

    def direction(self, cluster: int, feature: int) -> tuple[str, float, float]:
        """Compare a cluster with all points in one feature.

        Returns
        -------
        direction : str
            ``"↑"`` or ``"↓"`` if the mean in the cluster is above or below the overall mean, ``"="`` if both are
            equal when printed; ``"is Private"`` for the category whose share exceeds its overall share most; "" if
            the values are unknown.
        own, overall : float
            The two means or shares; NaN if unknown.
        """
        if feature in self.shares:
            own = self.shares[feature].iloc[cluster]
            overall = self.shares[feature].iloc[-1]
            if own.isna().any():
                return "", np.nan, np.nan
            at = typical_category(own.to_numpy(), overall.to_numpy())
            return f"is {text(own.index[at], separators=False)}", float(own.iloc[at]), float(overall.iloc[at])
        mean = float(self.means[cluster, feature])
        common = float(self.overall[feature])
        if np.isnan(mean):
            return "", np.nan, np.nan
        if self._printed(mean) == self._printed(common):
            return "=", mean, common
        return "↑" if mean > common else "↓", mean, common

    def comparison(self, cluster: int, feature: int) -> str:
        """Write direction and numbers: ``"↑ 1116 vs 746.9"``, ``"is Private 91% vs 70%"``; "" if unknown."""
        direction, own, overall = self.direction(cluster, feature)
        if not direction:
            return ""
        printed = percent if feature in self.shares else self._printed
        return f"{direction} {'in ' * self.in_texts}{printed(own)} vs {printed(overall)}"

    def effect(self, cluster: int, feature: int) -> str:
        """Write the effect size: ``"d = 1.8"``, ``"V = 0.41"``; "" if it is unknown."""
        if self.effects is None or np.isnan(self.effects[cluster, feature]):
            return ""
        name = "V" if self.in_texts or feature in self.shares else "d"
        return f"{name} = {text(float(self.effects[cluster, feature]), 2)}"

    def _printed(self, mean: float) -> str:
        return percent(mean) if self.in_texts else text(mean)


def typical_category(own: np.ndarray, others: np.ndarray) -> int:
    """Return the position of the category whose share exceeds that among others most."""
    return int(np.argmax(own - others))


class ValueSums:
    """Accumulate sums of the values of d features by cluster, in batches of points.

    Parameters
    ----------
    clusters, features : int
        Numbers of clusters and of features.
    categories : sequence of int
        Positions of the categorical features.
    """

    def __init__(self, clusters: int, features: int, categories: Sequence[int] = ()) -> None:
        self.moments = Moments(clusters, features)
        self.categories: dict[int, dict[Any, np.ndarray]] = {feature: {} for feature in categories}

    def add(self, values: Tensor | SparseRows, column: Tensor, weight: Tensor | None = None) -> None:
        """Add the values [n, d] of points, given the positions [n] of their clusters in `column`, and weights."""
        self.moments.add(values, column, weight)

    def add_table(
        self,
        table: pd.DataFrame,
        numbers: dict[int, np.ndarray],
        column: Tensor,
        weight: np.ndarray | None = None,
    ) -> None:
        """Add the rows of the only table: its categories, and its numbers by their position (NaN if missing)."""
        clusters = column.numpy()
        mass = np.ones(len(clusters)) if weight is None else weight
        for feature, values in numbers.items():
            self.moments.add_column(feature, values, clusters, mass)
        k = len(self.moments.counts)
        for feature in self.categories:
            codes, names = pd.factorize(table.iloc[:, feature].astype(object), use_na_sentinel=False)
            counts = np.zeros((len(names), k))
            np.add.at(counts, (codes, clusters), mass)
            self.categories[feature] = dict(zip(map(plain, names), counts, strict=True))

    def result(self, in_texts: bool) -> ClusterValues:
        """Compute means, shares and effect sizes."""
        means = self.moments.means
        overall = self.moments.overall
        if in_texts:  # words are there or not
            *every, all_texts = (np.stack([part.numpy(), 1 - part.numpy()]) for part in (*means, overall))
            n = self.moments.counts[:, 0].tolist()
            effects = np.stack(
                [cramers_v(own, all_texts, size, sum(n)) for own, size in zip(every, n, strict=True)]
            )
        else:
            effects = self.moments.cohens_d()
        shares = {}
        for feature, found in self.categories.items():
            if found:
                shares[feature], sizes = _shares(found)
                *rows, everywhere = shares[feature].to_numpy()
                for k, own in enumerate(rows):
                    effects[k, feature] = cramers_v(own, everywhere, sizes[k], sizes[-1])
        return ClusterValues(means.numpy(), overall.numpy(), shares, in_texts, effects)


def _divisor(counts: Tensor) -> Tensor:
    """Counts or sums of weights by which sums are divided; 1 where there is nothing."""
    return torch.where(counts > 0, counts, 1.0)


def _shares(found: dict[Any, np.ndarray]) -> tuple[pd.DataFrame, np.ndarray]:
    """Convert counts by cluster to shares [K + 1, categories], the most frequent first, and sizes [K + 1]."""
    names = sorted(found, key=lambda name: (-found[name].sum(), str(name)))
    counts = np.stack([found[name] for name in names], axis=1)
    counts = np.vstack([counts, counts.sum(axis=0)])
    sizes = counts.sum(axis=1, keepdims=True)
    shares = np.divide(counts, sizes, out=np.full_like(counts, np.nan), where=sizes > 0)
    frame = pd.DataFrame(shares, index=[*range(len(counts) - 1), ALL], columns=pd.Index(names, dtype=object))
    return frame, sizes[:, 0]


@dataclass(frozen=True, repr=False)
class ClusterSummary(Result):
    """Result of :meth:`NEON.summary`.

    Attributes
    ----------
    classes : ndarray [K]
        Labels of the clusters.
    sizes : ndarray [K]
        Number of points in each cluster; with weights, the sum of these.
    relevance : ndarray [K, d]
        Mean relevance of each feature over a cluster's own points, in units of the logit; 0 for an empty cluster.
    prototypes : list of K ndarrays
        Indices of the points with the largest logits, most typical first.
    feature_names : list of str
        Names of the features.
    values : ClusterValues
        Typical values of the features: ``values.means`` [K, d] and ``values.overall`` [d] are the means over each
        cluster and over all points, including noise, in float64. Missing values are ignored. The means of a
        categorical feature are NaN, and ``values.shares[feature]`` is a frame with the share of each category.
        For words and terms the means are the shares of the texts that contain them.
    n_noise : int or float
        Number of points that are in no cluster; with weights, the sum of these.
    method : {"lrp", "permute"}
        What `relevance` is.
    """

    classes: np.ndarray
    sizes: np.ndarray
    relevance: np.ndarray
    prototypes: list[np.ndarray]
    feature_names: list[str]
    values: ClusterValues
    n_noise: float = 0
    method: Literal["lrp", "permute"] = "lrp"

    def top(self, cluster: Any, n: int = 5) -> list[tuple[str, float]]:
        """Return the `n` features that speak most for a cluster, with their mean relevance.

        Parameters
        ----------
        cluster : label
            One of `classes`.
        n : int
            Number of features.
        """
        k = self._position(cluster)
        return [(self.feature_names[i], float(self.relevance[k, i])) for i in self._strongest(k, n)]

    def reasons(self, cluster: Any, n: int = 5) -> list[str]:
        """Describe the features that speak most for a cluster, and in which direction they differ.

        Parameters
        ----------
        cluster : label
            One of `classes`.
        n : int
            Number of features.

        Returns
        -------
        list of str
            Texts such as ``"proline +2.06 (↑ 1116 vs 746.9, d = 2.4)"`` or ``"color +0.31 (is dark 91% vs 70%, V =
            0.3)"``: the mean relevance and, in brackets, the mean (or the share of a category) in the cluster and
            in all points, and the effect size.
        """
        texts = []
        k = self._position(cluster)
        for i in self._strongest(k, n):
            numbers = self.values.comparison(k, int(i)), self.values.effect(k, int(i))
            comparison = ", ".join(filter(None, numbers))
            value = f"{self.feature_names[i]} {text(self.relevance[k, i], 3, signed=True)}"
            texts.append(f"{value} ({comparison})" if comparison else value)
        return texts

    def to_frame(self) -> pd.DataFrame:
        """Return all features of all clusters as a table.

        Returns
        -------
        DataFrame [K * d, 6]
            Table with the index levels ``cluster`` and ``feature``; the features of a cluster are sorted by
            decreasing relevance. The columns are ``relevance``, ``direction`` (``"↑"``, ``"↓"`` or ``"="`` if the
            mean in the cluster is above, below or equal to the overall mean, ``"is Private"`` for the category
            whose share exceeds its overall share most, "" if the values are unknown), ``mean`` and
            ``overall``: the two means, or the two shares of that category, ``effect``, Cohen's d of numbers or
            Cramér's V of categories, and ``points``, the size of the cluster.

        Examples
        --------
        >>> import neonxc
        >>> from sklearn.cluster import KMeans
        >>> from sklearn.datasets import load_iris
        >>> X = load_iris(as_frame=True).data
        >>> net = neonxc.neuralize(KMeans(3, n_init=10, random_state=0).fit(X), X)
        >>> frame = neonxc.NEON(net).summary(X).to_frame()
        >>> frame.loc[1, "direction"].to_dict()["petal length (cm)"]
        '↓'
        """
        rows = []
        for k, label in enumerate(self.classes):
            for i in self._strongest(k, len(self.feature_names)):
                direction, own, overall = self.values.direction(k, int(i))
                relevance = float(self.relevance[k, i])
                effect = np.nan if self.values.effects is None else float(self.values.effects[k, i])
                size = self.sizes[k].item()
                rows.append((label, self.feature_names[i], relevance, direction, own, overall, effect, size))
        columns = ["cluster", "feature", "relevance", "direction", "mean", "overall", "effect", "points"]
        return pd.DataFrame(rows, columns=columns).set_index(["cluster", "feature"])

    def _position(self, cluster: Any) -> int:
        classes = self.classes.tolist()
        if cluster not in classes:
            raise ValueError(f"cluster needs one of the labels {classes}, got {plain(cluster)!r}")
        return classes.index(cluster)

    def _strongest(self, k: int, n: int) -> np.ndarray:
        return np.argsort(-self.relevance[k], kind="stable")[:n]

    def __str__(self) -> str:
        reasons = map(self.reasons, self.classes.tolist())
        lines = []
        for label, size, texts in zip(self.classes, self.sizes, reasons, strict=True):
            name = "noise" if is_noise(label) else f"cluster {label}"
            lines += [f"{name} ({_points(size.item())})", *(f"    {reason}" for reason in texts)]
        if not np.isnan(self.values.overall).all() or self.values.shares:
            lines.append(
                f"Numbers are {WHAT[self.method]} and, in brackets, the mean (or share) in the cluster vs overall "
                "and the effect size against all other points: Cohen's d, or Cramér's V of categories."
            )
        return "\n".join(lines)

    def _remarks(self) -> list[str]:
        return [f"The relevance is {WHAT[self.method]}."]

    def _repr_html_(self) -> str:
        return preformatted(str(self))


def _points(size: float) -> str:
    """Write a number of points, or a sum of their weights."""
    return plural(int(size), "point") if float(size).is_integer() else f"weight {text(size)}"


@torch.no_grad()
def summarized(
    net: NeuralizedClustering, beta: float, X: Any, n: int, weight: np.ndarray | None = None
) -> ClusterSummary:
    """Explain the own cluster of every point, and sum relevance and values by cluster.

    Of every cluster, the `n` points with the largest logits are its prototypes. Points may have weights [N], and
    those of weight 0 are left out.
    """
    inputs = net.inputs
    K = net.head.n_clusters
    X = Table.read(X)
    kept = np.arange(len(X))
    if weight is not None:
        kept = np.flatnonzero(weight)
        X, n_locations = X.take(kept), _points_per_input(inputs, X)
        weight = np.repeat(weight[kept], n_locations)  # those of an input are those of its locations
        kept = (kept[:, None] * n_locations + np.arange(n_locations)).ravel()
    counted = None if weight is None else counted_weights(weight)
    answered = inputs.answered(X, beta=beta)
    table = inputs.table(X)
    units = inputs.units  # which may become known with the inputs
    values = ValueSums(K, len(units), inputs.categories)
    total = torch.zeros(K, len(units), dtype=torch.float64)
    logits = []
    clusters = []
    first = 0
    for x, answer in answered:
        cluster = answer.assigned
        mass, number = (point_weights(each, first, len(cluster), cluster.device) for each in (weight, counted))
        first += len(cluster)
        inputs.add(x, answer, cluster, total, mass)
        if table is None:
            values.add(inputs.values(x, answer.x), cluster, number)
        clusters.append(cluster.cpu())
        logits.append(answer.logit.cpu().double())
    logit = torch.cat(logits)
    cluster = torch.cat(clusters)
    if table is not None:
        values.add_table(*table, cluster, counted)
    sizes = torch.bincount(cluster, None if weight is None else torch.from_numpy(weight), minlength=K)
    if weight is not None and not (weight % 1).any():
        sizes = sizes.long()
    mean = total / _divisor(sizes[:, None].double())
    order = logit.argsort(descending=True, stable=True)
    prototypes = [order[cluster[order] == k][:n].numpy() for k in range(K)]
    if weight is not None:
        prototypes = [kept[places] for places in prototypes]
    noise = sizes[net.noise_position].item() if net.noise_position >= 0 else 0
    typical = values.result(inputs.in_texts)
    return ClusterSummary(net.classes_, sizes.numpy(), mean.numpy(), prototypes, units, typical, noise)


def _points_per_input(inputs: Inputs, X: Table) -> int:
    """Number of points of each input: 1, or the number of locations of a map of features."""
    if inputs.module is None:
        return 1
    features = inputs.features(next(iter(inputs.parts(X.take([0]).data))))
    return int(features.shape[2:].numel()) if features.ndim > 2 else 1


def values_of(
    inputs: Inputs, groups: Sequence[Table], weights: Sequence[np.ndarray] | None = None
) -> ClusterValues:
    """Typical values of the features in some groups of inputs, which may have weights, one array per group."""
    every = None if weights is None else counted_weights(np.concatenate(weights))
    sums = ValueSums(len(groups), len(inputs.units), inputs.categories)
    tables = [table for group in groups if (table := inputs.table(group.data)) is not None]
    if tables:
        frames, numbers = zip(*tables, strict=True)
        group_of = torch.arange(len(groups)).repeat_interleave(torch.tensor([*map(len, groups)]))
        together = {column: np.concatenate([values[column] for values in numbers]) for column in numbers[0]}
        sums.add_table(pd.concat(frames), together, group_of, every)
    else:
        first = 0
        for number, group in enumerate(groups):
            for x in inputs.parts(group.data):
                points = rows(inputs.features(x))
                weight = point_weights(every, first, len(points), torch.device("cpu"))
                first += len(points)
                sums.add(inputs.values(x, points), torch.full((len(points),), number), weight)
    return sums.result(inputs.in_texts)
