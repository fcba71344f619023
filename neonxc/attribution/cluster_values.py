"""Typical values of the features in each cluster and overall: means of numbers, shares of categories."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from neonxc.common.numbers import percent, text
from neonxc.common.processes import Ranks
from neonxc.data.inputs import plain
from neonxc.data.sparse import SparseRows

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
    """

    means: np.ndarray
    overall: np.ndarray
    shares: dict[int, pd.DataFrame] = field(default_factory=dict)
    in_texts: bool = False

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
            own, overall = self.shares[feature].iloc[cluster], self.shares[feature].iloc[-1]
            if own.isna().any():
                return "", np.nan, np.nan
            at = typical_category(own.to_numpy(), overall.to_numpy())
            return f"is {text(own.index[at], separators=False)}", float(own.iloc[at]), float(overall.iloc[at])
        mean, common = float(self.means[cluster, feature]), float(self.overall[feature])
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

    def _printed(self, mean: float) -> str:
        return percent(mean) if self.in_texts else text(mean)


def typical_category(own: np.ndarray, others: np.ndarray) -> int:
    """Return the position of the category whose share exceeds that among others most."""
    return int(np.argmax(own - others))


class ValueSums:
    """Accumulate sums of the values of d features by cluster, in batches of points; row K is noise.

    Parameters
    ----------
    clusters, features : int
        Numbers of clusters and of features.
    categories : sequence of int
        Positions of the categorical features.
    """

    def __init__(self, clusters: int, features: int, categories: Sequence[int] = ()) -> None:
        self.sums = torch.zeros(clusters + 1, features, dtype=torch.float64)
        self.counts = torch.zeros(clusters + 1, features, dtype=torch.float64)
        self.categories: dict[int, list[tuple[Any, list[int]]]] = {feature: [] for feature in categories}

    def add(self, values: Tensor | SparseRows, column: Tensor) -> None:
        """Add the values [n, d] of points, given the position of their clusters in `column` [n]."""
        column = column.cpu()
        self.counts += torch.bincount(column, minlength=len(self.counts))[:, None]
        if isinstance(values, SparseRows):
            points, features = values.places()
            self.sums.index_put_((column[points], features), values.entries.double(), accumulate=True)
        else:
            self.sums.index_add_(0, column, values.cpu().double())

    def add_table(self, table: pd.DataFrame, numbers: dict[int, np.ndarray], column: Tensor) -> None:
        """Add the rows of the only table: its categories, and its numbers by their position (NaN if missing)."""
        clusters, rows = column.numpy(), len(self.sums)
        for feature, values in numbers.items():
            there = ~np.isnan(values)
            self.counts[:, feature] += torch.from_numpy(np.bincount(clusters[there], minlength=rows))
            total = np.bincount(clusters[there], values[there], minlength=rows)
            self.sums[:, feature] += torch.from_numpy(total)
        for feature in self.categories:
            codes, names = pd.factorize(table.iloc[:, feature].astype(object), use_na_sentinel=False)
            counts = np.zeros((len(names), rows), dtype=int)
            np.add.at(counts, (codes, clusters), 1)
            self.categories[feature] = list(zip(map(plain, names), counts.tolist(), strict=True))

    def result(self, in_texts: bool, ranks: Ranks) -> ClusterValues:
        """Compute means and shares over the points of all ranks; a rank knows the categories of its own rows."""
        sums, counts = ranks.sum(torch.stack([self.sums, self.counts]))
        means, overall = sums[:-1] / counts[:-1], sums.sum(0) / counts.sum(0)
        total: dict[int, dict[Any, np.ndarray]] = {feature: {} for feature in self.categories}
        for every in ranks.texts(json.dumps(list(self.categories.values()))) if total else ():
            for found, listed in zip(total.values(), json.loads(every), strict=True):
                for name, of_clusters in listed:
                    found[name] = found.get(name, 0) + np.array(of_clusters, dtype=float)
        shares = {feature: _shares(found) for feature, found in total.items() if found}
        return ClusterValues(means.numpy(), overall.numpy(), shares, in_texts)


def _shares(found: dict[Any, np.ndarray]) -> pd.DataFrame:
    """Convert counts by cluster to shares [K + 1, categories], sorted by decreasing overall frequency."""
    names = sorted(found, key=lambda name: (-found[name].sum(), str(name)))
    counts = np.stack([found[name] for name in names], axis=1)
    counts = np.vstack([counts[:-1], counts.sum(axis=0)])
    sizes = counts.sum(axis=1, keepdims=True)
    shares = np.divide(counts, sizes, out=np.full_like(counts, np.nan), where=sizes > 0)
    return pd.DataFrame(shares, index=[*range(len(counts) - 1), ALL], columns=pd.Index(names, dtype=object))
