"""Where clusters come from: k-means, or a column of a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from sklearn.cluster import KMeans
from sklearn.pipeline import Pipeline, make_pipeline
from tqdm import tqdm

from neonxc.distinct import n_distinct
from neonxc.given import GivenLabels
from neonxc.inputs import NOISE
from neonxc.preparation import Preparation

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
    """

    model: Pipeline
    labels: np.ndarray
    what: str
    given: bool = False

    @property
    def k(self) -> int:
        """Number of clusters; noise is none."""
        return len(set(self.labels.tolist()) - {NOISE})


def kmeans(points: Any, clusters: int, what: str, names: Sequence[str] = ()) -> KMeans:
    """K-means, fitted; an error calls the points `what`, and tells by their `names` which ones are the same."""
    n, different = points.shape[0], n_distinct(_rounded(points))
    if different < clusters:
        got = f"got {n}" if different == n else f"only {different} of the {n} are different"
        got = f"all {n} are the same" if different == 1 < n else got
        if names and 1 < different < n:
            got += f" ({', '.join(_alike(points, names)[:NAMED])} are the same)"
        ask = f"; ask for at most {different} clusters (--clusters)" if different > 1 else ""
        raise ValueError(f"{clusters} clusters need at least as many different {what}; {got}{ask}")
    random = np.random.RandomState(0)  # shared by all starts, as n_init=10 and random_state=0 would have it
    starts = tqdm(range(10), desc="k-means", delay=2, leave=False)
    best = min(
        (KMeans(clusters, n_init=1, random_state=random).fit(points) for _ in starts),
        key=lambda model: model.inertia_,
    )
    return best.set_params(n_init=10, random_state=0)


def _rounded(points: Any) -> Any:
    """Points of which those that differ by rounding errors are equal: features of one photo in two files."""
    if getattr(points, "dtype", None) != np.float32 or hasattr(points, "tocsr"):
        return points
    return np.round(points / max(float(np.abs(points).max()), 1e-30), 5)


def _alike(points: Any, names: Sequence[str]) -> list[str]:
    """Names of points that are the same, as many as there are."""
    _, group = np.unique(_rounded(points), axis=0, return_inverse=True)
    return [
        name for name, own in zip(names, group.ravel() == np.bincount(group.ravel()).argmax(), strict=True) if own
    ]


def by_kmeans(prepared: Preparation, clusters: int, name: str) -> Clusters:
    """K-means on the rows of a table."""
    points = prepared.pipeline.fit_transform(prepared.frame)
    model = kmeans(points, clusters, f"rows of {name}")
    what = f"{clusters} clusters of {len(points)} rows of {name}"
    return Clusters(make_pipeline(prepared.pipeline, model), model.labels_, what)


def by_column(prepared: Preparation, labels: pd.Series, name: str) -> Clusters:
    """The clusters that a column of the table names; `prepared` is without it.

    Raises
    ------
    ValueError
        Missing labels, numbers that are not whole, a single cluster, or as many clusters as rows.
    """
    if missing := int(labels.isna().sum()):
        raise ValueError(
            f"column {labels.name!r} of {name} has no label in {missing} rows: fill them in, or remove these rows"
        )
    values = labels.to_numpy()
    if values.dtype.kind == "f":
        if (values != np.round(values)).any():
            raise ValueError(f"column {labels.name!r} of {name} holds numbers that are not whole, not labels")
        values = values.astype(np.int64)
    values = values.astype(str).astype(object) if values.dtype.kind not in "iu" else values
    k = len(set(values.tolist()) - {NOISE})
    if k < 2 or k == len(values):
        raise ValueError(f"column {labels.name!r} of {name} has {k} different labels in {len(values)} rows")
    prepared.pipeline.fit(prepared.frame)
    model = make_pipeline(prepared.pipeline, GivenLabels(values).fit(prepared.frame))
    return Clusters(model, values, f"{k} clusters of {name} by {labels.name}, {len(values)} rows", given=True)
