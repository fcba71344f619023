"""Summary of each cluster: its size, its most relevant features and their typical values, and its prototypes.

Of the points i that are assigned to cluster k, with logits f_i, relevance R_ij of the features j for this cluster,
and weights w_i (1 by default):

    size            n_k = sum_i w_i
    relevance       sum_i w_i R_ij / n_k
    prototypes      the n most typical points with w_i > 0, see :mod:`neonxc.attribution.typical`
    values          as :mod:`neonxc.attribution.cluster_values` computes them

On a map of features, every location is a point, with the weight of its image.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from neonxc.attribution.cluster_values import ClusterValues, ValueSums, truths_of
from neonxc.attribution.direction import WORTH, present_first
from neonxc.attribution.typical import Typicality, clearest
from neonxc.common.cluster_names import cluster_text
from neonxc.common.locales import Marks, printed_like
from neonxc.common.numbers import plural, text
from neonxc.common.result import Result, preformatted
from neonxc.common.types import Label, TableLike
from neonxc.data.kinds import plain
from neonxc.data.table import Table
from neonxc.data.weights import counted_weights, point_weights
from neonxc.inputs import Inputs
from neonxc.network import NeuralizedClustering

MEANING = {"lrp": "the mean relevance", "permute": "the share of points that leave if the column is permuted"}
"""What the numbers of each method are, in words."""


@dataclass(frozen=True, repr=False)
class ClusterSummary(Result):
    """Sizes, relevant features, typical values and prototypes of clusters: the result of :meth:`NEON.summary`.

    Attributes
    ----------
    classes : ndarray [K]
        Labels of the clusters.
    sizes : ndarray [K]
        Number of points in each cluster; with weights, the sum of these.
    relevance : ndarray [K, d]
        Mean relevance of each feature over a cluster's points, in units of the logit; 0 for an empty cluster.
    prototypes : list of K ndarrays
        Indices of points near the middle of the cluster and clearly inside, the most typical first; those with the
        largest logits for noise.
    feature_names : list of str
        Names of the features.
    values : ClusterValues
        Typical values of the features: ``values.means`` [K, d] and ``values.overall`` [d] are the means over each
        cluster and over all points, including noise, in float64. Missing values are ignored. The means of a
        categorical feature are NaN, and ``values.shares[feature]`` is a frame with the fraction of each category.
        For words and terms the means are the fractions of texts that contain them.
    n_noise : int or float
        Number of points that are in no cluster; with weights, the sum of these.
    method : {"lrp", "permute"}
        What `relevance` is.
    marks : Marks or None
        The marks with which numbers are printed: those of the file of the table; None for no file.
    """

    classes: np.ndarray
    sizes: np.ndarray
    relevance: np.ndarray
    prototypes: list[np.ndarray]
    feature_names: list[str]
    values: ClusterValues
    n_noise: float = 0
    method: Literal["lrp", "permute"] = "lrp"
    marks: Marks | None = field(default=None, repr=False)

    def top(self, cluster: Label, n: int = 5) -> list[tuple[str, float]]:
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

    def reasons(self, cluster: Label, n: int = 5) -> list[str]:
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
            Texts such as ``"proline +2.06 (↑ 1116 vs 582.3, d = 2.4)"`` or ``"color +0.31 (is dark 91% vs 53%, V
            = 0.3)"``: the mean relevance and, in brackets, the mean (or the fraction of a category) in the cluster
            and in all other points, and the effect size. :mod:`neonxc.attribution.direction` has the arrows. What
            the cluster lacks comes after what it has, and features whose two numbers read alike are left out.
        """
        with printed_like(self.marks):
            return self._described(self._position(cluster), n)

    def _described(self, k: int, n: int) -> list[str]:
        """Describe the features that speak most for the cluster at a position."""
        reasons = []
        for i in self._reasons(k, n):
            reason = f"{self.feature_names[i]} {text(self.relevance[k, i], 3, signed=True)}"
            described = self.values.described(k, i)
            known = [words for words in (described.comparison(), described.effect_size()) if words]
            if known:
                reason += f" ({', '.join(known)})"
            reasons.append(reason)
        return reasons

    def to_frame(self) -> pd.DataFrame:
        """Return all features of all clusters as a table.

        Returns
        -------
        DataFrame [K * d, 6]
            Table with the index levels ``cluster`` and ``feature``; the features of a cluster are sorted by
            decreasing relevance. The columns are ``relevance``; ``direction``: ``"↑"``, ``"↓"``, ``"↕"``, ``"≈"``
            or ``"="`` if the values are high, low, extreme on both sides, medium, or read like those of all other
            points, ``"is Private"`` for the category whose fraction exceeds that of the other points most, "" if
            the values are unknown; ``mean`` and ``overall``, the means in the cluster and in all points, or the
            fractions of that category; ``effect``, Cohen's d of numbers or Cramér's V of categories; and
            ``points``, the size of the cluster.

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
                direction, mean, overall = self.values.direction(k, int(i))
                relevance = float(self.relevance[k, i])
                effect = np.nan if self.values.effects is None else float(self.values.effects[k, i])
                size = self.sizes[k].item()
                rows.append((label, self.feature_names[i], relevance, direction, mean, overall, effect, size))
        columns = ["cluster", "feature", "relevance", "direction", "mean", "overall", "effect", "points"]
        return pd.DataFrame(rows, columns=columns).set_index(["cluster", "feature"])

    def _position(self, cluster: Label) -> int:
        """Return the position of a label among the clusters."""
        classes = self.classes.tolist()
        if cluster not in classes:
            raise ValueError(f"cluster needs one of the labels {classes}, got {plain(cluster)!r}")
        return classes.index(cluster)

    def _strongest(self, k: int, n: int) -> np.ndarray:
        """Return the positions of the `n` features with the largest relevance for cluster k."""
        return np.argsort(-self.relevance[k], kind="stable")[:n]

    def _reasons(self, k: int, n: int) -> list[int]:
        """Return the positions of the `n` features that tell cluster k from others, present ones first.

        Features whose values read alike in the cluster and elsewhere are left out.
        """
        candidates = []
        needed = WORTH * float(self.relevance[k].max(initial=0.0))
        for i in self._strongest(k, len(self.feature_names)).tolist():
            described = self.values.described(k, i)
            if described.is_reason or not described.is_known:
                candidates.append((i, described))
            # absent features leave their places to present ones, if these are relevant enough
            n_present = sum(not of_one.is_absence for _, of_one in candidates)
            is_irrelevant = self.relevance[k, i] < needed
            if n_present >= n or (is_irrelevant and len(candidates) >= n):
                break
        order = present_first([(described, float(self.relevance[k, i])) for i, described in candidates])
        return [candidates[position][0] for position in order[: max(n, 0)]]

    def __str__(self) -> str:
        with printed_like(self.marks):
            return self._text()

    def _text(self) -> str:
        """Write the clusters with their sizes and reasons."""
        lines = []
        reasons = map(self.reasons, self.classes.tolist())
        for label, size, of_cluster in zip(self.classes, self.sizes.tolist(), reasons, strict=True):
            lines.append(f"{cluster_text(label)} ({_size_in_words(size)})")
            lines += [f"    {reason}" for reason in of_cluster]
        if not np.isnan(self.values.overall).all() or self.values.shares:
            lines.append(
                f"Numbers are {MEANING[self.method]} and, in brackets, the mean (or share) in the cluster vs "
                "that of all other points and the effect size: Cohen's d, or Cramér's V of categories."
            )
        return "\n".join(lines)

    def _remarks(self) -> list[str]:
        return [f"The relevance is {MEANING[self.method]}."]

    def _repr_html_(self) -> str:
        return preformatted(str(self))


def _size_in_words(size: float) -> str:
    """Write a number of points, or a sum of their weights."""
    if float(size).is_integer():
        return plural(int(size), "point")
    return f"weight {text(size)}"


@torch.no_grad()
def summarized(
    net: NeuralizedClustering,
    beta: float,
    X: TableLike | Table,
    n_prototypes: int,
    weight: np.ndarray | None = None,
) -> ClusterSummary:
    """Explain every point's cluster, and sum relevance and values by cluster.

    Inputs may have weights [N], and those of weight 0 are left out.
    """
    inputs = net.inputs
    n_clusters = net.head.n_clusters
    points = _points_of(inputs, Table.read(X), weight)
    answered = inputs.answered(points.table, beta=beta)
    encoded = inputs.table(points.table)
    names = inputs.units  # which may become known with the inputs

    values = ValueSums(n_clusters, len(names), inputs.categories)
    total = torch.zeros(n_clusters, len(names), dtype=torch.float64)  # sum_i w_i R_ij
    typicality = Typicality(net.head)
    logits = []
    clusters = []
    first = 0
    for x, answer in answered:
        assigned = answer.assigned
        n = len(assigned)
        mass = point_weights(points.weight, first, n, assigned.device)
        counted = point_weights(points.counted, first, n, assigned.device)
        first += n
        inputs.add(x, answer, assigned, total, mass)
        if encoded is None:
            values.add(inputs.values(x, answer.x), assigned, counted)
        typicality.add(answer)
        clusters.append(assigned.cpu())
        logits.append(answer.logit.cpu().double())
    cluster = torch.cat(clusters)
    if encoded is not None:
        frame, numbers = encoded
        values.add_table(frame, numbers, cluster, points.counted)

    sizes = _sizes(cluster, n_clusters, points.weight)
    divisor = torch.where(sizes > 0, sizes, 1)
    mean = total / divisor[:, None].double()
    of_points = (cluster.numpy(), torch.cat(logits).numpy())
    prototypes = []
    for k in range(n_clusters):
        if k == net.noise_position:
            prototypes.append(clearest(np.flatnonzero(of_points[0] == k), of_points[1], n_prototypes))
        else:
            prototypes.append(typicality.order(*of_points, k, n_prototypes, points.weight))
    if points.positions is not None:
        prototypes = [points.positions[of_cluster] for of_cluster in prototypes]
    n_noise = sizes[net.noise_position].item() if net.noise_position >= 0 else 0
    truths = [] if encoded is not None else truths_of(points.table, names)
    typical = values.result(inputs.in_texts, truths, inputs.formats)
    return ClusterSummary(
        net.classes_,
        sizes.numpy(),
        mean.numpy(),
        prototypes,
        names,
        typical,
        n_noise,
        marks=inputs.marks,
    )


@torch.no_grad()
def relevance_by_cluster(net: NeuralizedClustering, X: Table, weight: np.ndarray | None = None) -> np.ndarray:
    """Compute the mean relevance [K, units] over the points of every cluster, 0 without points.

    Inputs may have weights [N], and those of weight 0 are left out.
    """
    inputs = net.inputs
    points = _points_of(inputs, X, weight)
    answered = inputs.answered(points.table, beta=net.beta)
    n_clusters = net.head.n_clusters
    total = torch.zeros(n_clusters, len(inputs.units), dtype=torch.float64)
    clusters = []
    first = 0
    for x, answer in answered:
        n = len(answer.assigned)
        mass = point_weights(points.weight, first, n, answer.assigned.device)
        first += n
        inputs.add(x, answer, answer.assigned, total, mass)
        clusters.append(answer.assigned.cpu())
    sizes = _sizes(torch.cat(clusters), n_clusters, points.weight)
    return (total / torch.where(sizes > 0, sizes, 1)[:, None].double()).numpy()


class _Points(NamedTuple):
    """The inputs that are summarized, and the weights of their n points, which are None without weights."""

    table: Table
    weight: np.ndarray | None = None  # [n]
    counted: np.ndarray | None = None  # [n], the weights with which effect sizes count the points
    positions: np.ndarray | None = None  # [n], positions among the points of all inputs


def _points_of(inputs: Inputs, table: Table, weight: np.ndarray | None) -> _Points:
    """Select the inputs with a weight > 0; all points of an input have its weight."""
    if weight is None:
        return _Points(table)
    selected = np.flatnonzero(weight)
    n_locations = _points_per_input(inputs, table)
    positions = selected[:, None] * n_locations + np.arange(n_locations)
    point_weight = np.repeat(weight[selected], n_locations)
    return _Points(table.take(selected), point_weight, counted_weights(point_weight), positions.ravel())


def _points_per_input(inputs: Inputs, table: Table) -> int:
    """Count the points of each input: 1, or the number of locations of a map of features."""
    if inputs.module is None:
        return 1
    first = next(iter(inputs.parts(table.take([0]).data)))
    features = inputs.features(first)
    return int(features.shape[2:].numel()) if features.ndim > 2 else 1


def _sizes(cluster: Tensor, n_clusters: int, weight: np.ndarray | None) -> Tensor:
    """Count the points of every cluster, [K], or sum their weights; sums of whole weights are whole numbers."""
    if weight is None:
        return torch.bincount(cluster, minlength=n_clusters)
    sums = torch.bincount(cluster, torch.from_numpy(weight), minlength=n_clusters)
    if (weight % 1).any():
        return sums
    return sums.long()
