"""Where clusters come from: k-means, or a column of a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
import pandas as pd
from sklearn.cluster import KMeans
from sklearn.pipeline import Pipeline, make_pipeline

from neonxc.clusterings.readers import GivenLabels
from neonxc.common.arguments import as_range
from neonxc.common.numbers import plural, text
from neonxc.common.progress import progress_bar
from neonxc.common.types import ArrayLike, Points, TableLike
from neonxc.data.labels import are_labels, label_array, name_of_noise, written_labels
from neonxc.data.preparation import Preparation, prepare, spelled_alike
from neonxc.data.table import Table
from neonxc.data.weights import weights_of
from neonxc.evaluation.choice import Choice, compared

Labels = TypeVar("Labels", bound=ArrayLike)

USUAL = 8
"""Largest number of clusters that is tried if none is given."""
NAMED = 3
"""Points that are the same, at most so many of which a message names."""


@dataclass(frozen=True)
class Clusters:
    """A clustering of the rows of a table.

    Attributes
    ----------
    model : Pipeline
        The fitted preparation, and a clusterer behind it.
    labels : ndarray [n]
        The cluster of every row.
    what : str
        What a title calls it.
    given : bool
        Whether it is a column of the table.
    notes : list of str
        What the user should know about the labels.
    weight : ndarray [n] or None
        Weights > 0 of the rows.
    """

    model: Pipeline
    labels: np.ndarray
    what: str
    given: bool = False
    notes: list[str] = field(default_factory=list)
    weight: np.ndarray | None = None

    @property
    def clustered(self) -> np.ndarray:
        """Positions of the rows that are in a cluster: those that are not noise and have a label."""
        return np.flatnonzero(are_labels(self.labels))

    @property
    def k(self) -> int:
        """Number of clusters."""
        return len(set(self.labels[self.clustered].tolist()))


def noise_as_cluster(labels: Labels) -> tuple[Labels | np.ndarray, str | None]:
    """Return labels of a single cluster and noise as the names of two clusters, and the one of noise.

    Other labels are returned as they are, and None.
    """
    values = label_array(labels)
    clustered = are_labels(values)
    names = {*values[clustered].tolist()}
    if len(names) != 1 or clustered.all():
        return labels, None
    noise = name_of_noise(names)
    return np.where(clustered, text(*names, separators=False), noise), noise


def kmeans(
    points: Points, clusters: int, what: str, names: Sequence[str] = (), weight: np.ndarray | None = None
) -> KMeans:
    """K-means, fitted; an error calls the points `what`, and tells by their `names` which ones are the same."""
    n = points.shape[0]
    different = Table.read(_rounded(points)).distinct()
    if different < clusters:
        got = f"only {different} of the {n} are different"
        if different == n:
            got = f"got {n}"
        elif different == 1:
            got = f"all {n} are the same"
        elif names:
            got += f" ({', '.join(_alike(points, names)[:NAMED])} are the same)"
        ask = ""
        if different > 1:
            ask = f"; ask for at most {different} clusters (--clusters)"
        raise ValueError(f"{clusters} clusters need at least as many different {what}; {got}{ask}")
    random = np.random.RandomState(0)  # shared by all starts, as n_init=10 and random_state=0 would have it
    starts = progress_bar(range(10), desc="k-means")
    models = [KMeans(clusters, n_init=1, random_state=random).fit(points, sample_weight=weight) for _ in starts]
    return min(models, key=lambda model: model.inertia_).set_params(n_init=10, random_state=0)


def _rounded(points: Points) -> Points:
    """Points of which those that differ by rounding errors are equal: features of one photo in two files."""
    if getattr(points, "dtype", None) != np.float32 or Table.read(points).is_sparse:
        return points
    return np.round(points / max(float(np.abs(points).max()), 1e-30), 5)


def _alike(points: Points, names: Sequence[str]) -> list[str]:
    """Names of points that are the same, as many as there are."""
    _, group = np.unique(_rounded(points), axis=0, return_inverse=True)
    largest = group.ravel() == np.bincount(group.ravel()).argmax()
    return [names[point] for point in np.flatnonzero(largest).tolist()]


def _fit(prepared: Preparation, weight: np.ndarray | None) -> tuple[Points, list[str]]:
    """Fit the preparation of a table with weights of its rows; return its columns, and what takes no weights."""
    if weight is None:
        return prepared.pipeline.fit_transform(prepared.frame), []
    from neonxc.trees.fit.weighting import fit_transform  # depends on this package

    points, unweighted = fit_transform(prepared.pipeline, prepared.frame, weight)
    names = [*dict.fromkeys(unweighted)]
    return points, [f"Rows count without their weights in: {', '.join(names)}"] * bool(names)


def by_kmeans(prepared: Preparation, clusters: int, name: str, weight: np.ndarray | None = None) -> Clusters:
    """K-means on the rows of a table, which may have weights > 0, [n]."""
    points, notes = _fit(prepared, weight)
    model = kmeans(points, clusters, f"rows of {name}", weight=weight)
    what = f"{clusters} clusters of {plural(len(points), 'row')} of {name}"
    return Clusters(make_pipeline(prepared.pipeline, model), model.labels_, what, notes=notes, weight=weight)


def by_column(prepared: Preparation, labels: pd.Series, name: str, weight: np.ndarray | None = None) -> Clusters:
    """The clusters that a column of the table names; `prepared` is the table without it.

    Rows without a label are noise, as those with label -1.

    Raises
    ------
    ValueError
        Numbers that are not whole, fewer than two clusters, or as many clusters as rows.
    """
    missing = labels.isna()
    values, of_noise = noise_as_cluster(label_array(written_labels(labels)))
    if values.dtype.kind == "f" and (values % 1).any():
        raise ValueError(f"column {labels.name!r} of {name} has numbers that are not whole: these are no labels")
    clustered = are_labels(values)
    n = len(values)
    k = len({*values[clustered].tolist()})
    if k < 2 or k == n:
        raise ValueError(
            f"column {labels.name!r} of {name} has {plural(k, 'different label')} in {plural(n, 'row')}; labels "
            "name at least 2 clusters, and fewer than there are rows"
        )
    notes = []
    alike = spelled_alike(labels)
    if alike:
        unlike = "labels that differ in capitals, blanks or invisible characters alone are used as different ones"
        notes.append(f"{unlike}: {alike}")
    if noise := int((~clustered).sum()):
        why = "their label is -1"
        if missing.any():
            why = f"{missing.sum()} of them have no label"
        are = "are" if noise > 1 else "is"
        notes.append(f"{noise} of {plural(n, 'row')} {are} noise and in no cluster: {why}")
    frame = prepared.frame
    notes += _fit(prepared, weight)[1]
    model = make_pipeline(prepared.pipeline, GivenLabels(values, of_noise).fit(frame))
    what = f"{k} clusters of {name} by {labels.name}, {n} rows"
    return Clusters(model, values, what, True, notes, weight)


def by_choice(
    prepared: Preparation, clusters: range | None, name: str, weight: np.ndarray | None = None
) -> tuple[Clusters, Choice | None]:
    """Cluster a table by k-means; return the comparison of numbers of clusters too, if there is a choice.

    Raises
    ------
    ValueError
        If the table has too few different rows.
    """
    if clusters is None:
        different = Table(prepared.frame).distinct()
        if different < 3:
            raise ValueError(f"{name} has only {different} different rows: there is nothing to cluster")
        clusters = range(2, min(USUAL, different - 1, max(2, len(prepared.frame) // 2)) + 1)
    if len(prepared.frame) < clusters[-1]:
        raise ValueError(
            f"{clusters[-1]} clusters need at least as many different rows of {name}; got {len(prepared.frame)}"
        )
    if len(clusters) == 1:
        return by_kmeans(prepared, clusters[0], name, weight), None
    try:
        choice, _ = compared(prepared.frame, clusters, preprocessing=prepared.pipeline, sample_weight=weight)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    notes = [f"The number of clusters was chosen by a comparison: {choice.reason}"]
    fitted = by_kmeans(prepared, choice.k, name, weight)
    return replace(fitted, notes=[*notes, *fitted.notes]), choice


def of_data(
    data: TableLike, clusters: int | str | range | None, name: str, sample_weight: ArrayLike | None = None
) -> tuple[Preparation, Clusters]:
    """Prepare and cluster a table, which messages call `name`; the others are as for :func:`neonxc.explain`."""
    table = Table.read(data)
    weight = weights_of(sample_weight, table)
    prepared = prepare(table.frame(), sample_weight=weight)
    return prepared, by_choice(prepared, None if clusters is None else as_range(clusters), name, weight)[0]
