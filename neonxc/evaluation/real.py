"""Whether clusters are real, in sentences: what reports, commands and :func:`neonxc.evaluation.choose_k` print.

    null_reference    more than a table without clusters would have?   for models that can be fitted again
    separation        two clusters, or slices of one cloud?            for pairs of neighbouring clusters
    name_clusters     can they be told apart by their names?           for tables and texts

The first two are computed on a sample of the rows, so that they take about a second.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from sklearn.pipeline import Pipeline

from neonxc.attribution.contrasts import some_of
from neonxc.common.numbers import text
from neonxc.common.types import TableLike
from neonxc.data.table import Table
from neonxc.evaluation.separated import separation
from neonxc.evaluation.without_clusters import null_reference

MAX_COLUMNS = 40
MAX_CLUSTERS = 12
"""Numbers of columns and of clusters up to which sentences are computed, in a few seconds."""
VALUES = 5000
"""Approximate number of values of the rows that 19 tables without clusters are like."""
MIN_ROWS = 100
SEPARATED_ROWS = 1000
"""Number of rows among which pairs of clusters are judged."""


def of_kmeans(model: Pipeline, X: TableLike, weight: np.ndarray | None = None) -> list[str]:
    """Say whether the clusters of k-means are real, and whether their names hold.

    Parameters
    ----------
    model : Pipeline
        Preprocessing, and k-means that was fitted to all rows of X.
    X : table [n, d]
        Rows as the model takes them.
    weight : ndarray [n], optional
        Weights of the rows.
    """
    from neonxc.naming.naming import Rows, name_groups  # loads the vectorizers of texts

    table = Table.read(X)
    kmeans = model[-1]
    lines = []
    if table.width <= MAX_COLUMNS:
        lines += above_null(model, X, weight).sentences
    if kmeans.n_clusters <= MAX_CLUSTERS and weight is None:
        lines += slices(model[:-1].transform(table.for_sklearn), kmeans.labels_)
    if table.width <= MAX_COLUMNS:
        rows = Rows(table, kmeans.labels_, weight)
        named = name_groups([*range(kmeans.n_clusters)], rows, generator=np.random.RandomState(0))
        lines += named.verdict()
    return lines


class Finding(NamedTuple):
    """Whether a clustering is more than tables without clusters would have."""

    sentences: list[str]
    is_above: bool | None  # None if it is not known


UNKNOWN = Finding([], None)


def above_null(model: object, X: TableLike, weight: np.ndarray | None = None) -> Finding:
    """Say whether a clustering is more than tables without clusters would have.

    Parameters
    ----------
    model : estimator or Pipeline
        Clusterer, which is cloned and fitted again.
    X : table [n, d]
        Rows as the model takes them.
    weight : ndarray [n], optional
        Weights of the rows.

    Returns
    -------
    Finding
        Without sentences if the model can't be fitted again, or if the table is too small.
    """
    table = Table.read(X)
    if len(table.shape) != 2 or table.is_sparse or len(table) < MIN_ROWS:
        return UNKNOWN
    n_rows = max(MIN_ROWS, VALUES // table.width)
    rows = some_of(np.arange(len(table)), n_rows)
    of_rows = None if weight is None else weight[rows]
    try:
        reference = null_reference(model, table.take(rows).data, sample_weight=of_rows)
    except (TypeError, ValueError):  # it can't be fitted again, or finds no clusters in a sample
        return UNKNOWN
    return Finding(_on_sample(reference.lines(), len(rows), len(table)), reference.above)


def slices(space: TableLike, labels: object) -> list[str]:
    """Say which neighbouring clusters are slices of one cloud, and which are separated.

    Parameters
    ----------
    space : array or sparse matrix [n, p]
        Rows behind the preprocessing.
    labels : array-like [n]
        -1 is noise.
    """
    n_clusters = len(set(np.asarray(labels).tolist()) - {-1, "-1"})
    if n_clusters < 2 or len(Table.read(space)) < MIN_ROWS:
        return []
    try:
        separations = separation(space, labels, max_rows=SEPARATED_ROWS)
    except (TypeError, ValueError):  # a matrix that has no density, or a sample with a single cluster
        return []
    return [f"{sentence[0].upper()}{sentence[1:]}." for sentence in separations.sentences()]


def _on_sample(lines: list[str], n_rows: int, n: int) -> list[str]:
    """Say that sentences are about a sample of the rows, if they are."""
    if n_rows == n:
        return lines
    return [*lines, f"This compares a sample of {text(n_rows)} of the {text(n)} rows."]
