"""Slow definitions that clusterings by values of interest are compared with."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pandas as pd


def partitions(n, k):
    """All labels of n points in at most k clusters, each clustering once."""

    def grown(labels, used):
        if len(labels) == n:
            yield labels
            return
        for label in range(min(used + 1, k)):
            yield from grown([*labels, label], max(used, label + 1))

    yield from grown([], 0)


def score(labels, codes):
    """Definition 1, cluster by cluster."""
    shares = []
    for cluster in set(labels):
        own = [code for label, code in zip(labels, codes, strict=True) if label == cluster]
        shares.append(max(own.count(code) for code in set(own)) / len(own))
    return min(shares)


def gower(frame):
    """Distances of all pairs of rows, value by value."""
    n = len(frame)
    far = np.ones((n, n))
    for i, j in product(range(n), repeat=2):
        parts = []
        for name in frame:
            column = frame[name]
            x = column.iloc[i]
            y = column.iloc[j]
            if pd.isna(x) or pd.isna(y):
                continue
            if column.dtype.kind in "iuf":
                spread = column.max() - column.min()
                parts.append(abs(x - y) / spread if spread else 0.0)
            else:
                parts.append(float(x != y))
        if parts:
            far[i, j] = np.mean(parts)
    return far


def least_radius(far, k):
    """The least radius of k centers."""
    n = len(far)
    return min(far[:, centers].min(1).max() for centers in combinations(range(n), min(k, n)))


def radius(far, labels):
    """The largest radius of the clusters, each around its best member."""
    labels = np.asarray(labels)
    return max(far[np.ix_(own, own)].max(0).min() for own in (labels == c for c in set(labels.tolist())))
