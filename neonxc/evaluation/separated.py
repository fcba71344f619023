"""Whether two clusters are separated, or slices of one cloud: two tests of the density of their rows.

A clustering cuts any cloud into as many clusters as it is asked for. Of two neighbouring clusters a and b, two
tests ask whether rows are rare between them, and either suffices. Rows are halved at random. What is found with
the labels of one half is tested on the rows of the other half, without their labels, and both ways round.

**The valley**, along an axis. From a and b in the one half, with means mu_a and mu_b:

    S      covariance of the rows around the mean of their cluster, by Ledoit and Wolf, on columns of one scale
    u      S^-1/2 (x - (mu_a + mu_b) / 2), a row x whose columns have the covariance of noise
    v      unit vector along S^-1/2 (mu_b - mu_a): the axis of the linear discriminant analysis
    R^2    WITHIN-quantile of |u|^2 - (v u)^2
    z      (v u - m_a) / (m_b - m_a), with the medians m_a and m_b of v u in a and b

The rows x of the other half, of whatever cluster, count if they lie in the cylinder |u|^2 - (v u)^2 <= R^2 and z
lies in SLAB. With all of these z,

    f      kernel density, with the bandwidth of Silverman for the two sides of z = 1/2
    depth  max over t in [0, 1] of 1 - f(t) / min(max of f left of t, max of f right of t), maxima within BANKS
    p      (1 + number of draws that are at least as deep) / (1 + number of draws); drawing ends early at AS_DEEP
           of them, with p = AS_DEEP / number of draws (Besag and Clifford, 1991)

Null model: a draw has as many z, from f with its valley filled: made rising up to its highest peak, and falling
behind it. Every cloud with one peak passes as one, Gaussian or not. The cylinder is convex and has all rows that
are in it, so that a cloud of log-concave density has one peak in it along every axis. This is not so of the rows
of a and b alone: between two of several slices, rows of a third one are missing.

**The saddle**, for shapes that no axis separates, with the distance r(x) to the K-th nearest row of the other
half, of whatever cluster, and the dimension D in which balls around rows grow:

    border  mid-points of a row of a and a row of b that are the nearest to each other
    middle  median of r over the rows of a, or over those of b if it is larger
    saddle  (r / middle)^D at the densest tenth of the border: how many times sparser it is than the middle of
            both; the smaller value of the two halves

Null model: none is drawn. Parts of one cloud slope towards each other, so that the densest tenth of their border
is no sparser than the middle of the sparser part; SPARSER leaves room for chance.

Columns that are rounded to a step s would have gaps between their values: if they have at least three values, and
repeat some, uniform numbers of [-s / 2, s / 2] are added. More than MAX_COLUMNS columns are reduced to their first
principal components.

The steps for all pairs:

    1. Rows are read; of more than `max_rows`, a sample with the same share of every cluster is judged.
    2. Rows that are noise count to the cluster of the nearest clustered row.
    3. The second cluster of a row is the one with the nearest mean, its own aside. b is a neighbour of a if it is
       the second cluster of at least FREQUENT of the rows of a, and one of its MAX_NEIGHBOURS most frequent ones;
       the most frequent one always is. A pair is asked if one is a neighbour of the other.
    4. Rows are halved HALVINGS times anew; the medians of depth, p and saddle count. There are too few rows if a
       or b has less than MIN_ROWS rows, or if less than MIN_SIDE of z are on one side of 1/2.
    5. The level is over all pairs: p is adjusted by Holm's method. A pair is separated if the adjusted p is at
       most LEVEL, or if the saddle is at least SPARSER.

**Density clusterings.** DBSCAN, HDBSCAN, OPTICS and single linkage find the gaps of the very rows that they are
fitted to, and both halves of these rows share them. There the model is fitted again to one half, with half of its
minimal numbers of rows, and its clusters are matched with those that are asked about; rows that are in none of
these count to the nearest one. If most refits lack a or b, the pair is not judged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import linear_sum_assignment
from scipy.sparse.csgraph import connected_components
from sklearn.base import clone
from sklearn.covariance import ledoit_wolf
from sklearn.decomposition import TruncatedSVD
from sklearn.neighbors import NearestNeighbors
from sklearn.utils import check_random_state
from torch import nn

from neonxc.clusterings.labels import labels_of
from neonxc.clusterings.neuralize_arguments import first_map, points_of, steps_of
from neonxc.clusterings.number_of_rows import finds_gaps, parameters_for_half
from neonxc.clusterings.readers import is_precomputed
from neonxc.common.arguments import check_whole, kind_of
from neonxc.common.progress import progress_bar
from neonxc.common.result import Result
from neonxc.common.searches import unwrapped
from neonxc.common.types import ArrayLike, Label, RandomState, TableLike
from neonxc.data.frames import in_order_of, reads_tables
from neonxc.data.labels import as_labels
from neonxc.data.preparation import prepare
from neonxc.data.table import Table
from neonxc.pipelines.folding import transform

LEVEL = 0.05
"""Level of the test of valleys over all pairs."""
HALVINGS = 5
"""Number of times that rows are halved."""
SPARSER = 1.25
"""Saddle from which on a pair is separated."""
MIN_ROWS = 12
"""Minimum number of rows of each cluster of a pair."""
MIN_SIDE = 6
"""Minimum number of z on each side of 1/2."""
DRAWS = 199
"""Minimum number of draws of the null model, and 2 / LEVEL for each pair: else p_holm could not be small."""
MAX_DRAWS = 9999
"""Maximum number of draws, which is enough for 499 pairs."""
AS_DEEP = 10
"""Number of draws as deep as the valley, after which drawing ends."""
K = 5
"""r is the distance to the K-th nearest row."""
DENSEST = 0.1
"""Quantile of r over the border."""
FREQUENT = 0.1
"""Fraction of the rows of a cluster whose second cluster a neighbour is."""
MAX_NEIGHBOURS = 3
"""Maximum number of neighbours of a cluster."""
MAX_COLUMNS = 50
"""Number of columns, beyond which rows are reduced to as many principal components."""
WITHIN = 0.9
"""Fraction of the rows of a and b that the cylinder has."""
SLAB = (-1.0, 2.0)
"""Range of the z that count."""
BANKS = (-0.25, 1.25)
"""Range of z in which both sides of a valley are: further ones would be those of other clusters."""
N_BINS = 300
"""Number of bins of the density."""
BY_REFITS = "half of the rows do not have these clusters again"

Points = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, repr=False)
class Separation(Result):
    """Result of :func:`separation`.

    Attributes
    ----------
    rows : int
        Number of rows that were judged.
    reason : str
        The reason why pairs were not judged; "" if all were.
    """

    _pairs: pd.DataFrame
    rows: int
    reason: str
    _has_unknown_noise: bool = False

    def to_frame(self) -> pd.DataFrame:
        """Return one row for every pair of neighbouring clusters.

        Returns
        -------
        DataFrame
            Columns:

            - ``a`` and ``b``: the clusters;
            - ``verdict``: "separated", "slices" (of one cloud), "too few rows" or "not judged";
            - ``depth``: of the valley between the two along an axis, 0 (none) to 1 (no rows);
            - ``p``: p-value of the valley;
            - ``p_holm``: the same, adjusted for all pairs of the table by Holm's method, from which the verdict is
              at the level 0.05;
            - ``saddle``: how many times sparser the rows are between the two than in the middle of both, for any
              shape; the verdict is "separated" from 1.25 on, whatever p.
        """
        return self._pairs.copy()

    def sentences(self) -> list[str]:
        """Return the verdicts in words, such as "3 and 7 are slices of one cloud".

        Clusters of which all neighbouring pairs are slices are named together.
        """
        frame = self._pairs
        lines = []
        for clusters in self._clouds():
            lines.append(f"{_enumerated(clusters)} are slices of one cloud")
        few = _named_pairs(frame[frame["verdict"] == "too few rows"])
        if few:
            lines.append(f"there are too few rows to judge {few}")
        others = _named_pairs(frame[frame["verdict"] == "not judged"])
        if others:
            lines.append(f"{others} are not judged ({self.reason})")
        n_separated = int((frame["verdict"] == "separated").sum())
        if n_separated and n_separated == len(frame):
            lines.append(f"all {n_separated} pairs of neighbouring clusters are separated")
            if n_separated == 1:
                lines[-1] = f"{_named_pairs(frame)} are separated"
        elif n_separated:
            lines.append(f"{_named_pairs(frame[frame['verdict'] == 'separated'])} are separated")
        return lines

    def _clouds(self) -> list[list[Label]]:
        """Return the clusters of each cloud: all of them together if none of their pairs is otherwise."""
        slices = self._pairs[self._pairs["verdict"] == "slices"]
        names, codes = np.unique(slices[["a", "b"]].to_numpy(dtype=object).astype(str), return_inverse=True)
        codes = codes.reshape(-1, 2)
        graph = sparse.coo_array((np.ones(len(codes)), codes.T), shape=(len(names), len(names)))
        _, components = connected_components(graph, directed=False)

        clouds: list[list[Label]] = []
        for component in pd.unique(components[codes[:, 0]]):
            pairs = slices[components[codes[:, 0]] == component]
            members = [*dict.fromkeys(pairs[["a", "b"]].to_numpy(dtype=object).T.ravel())]
            others = self._pairs[self._pairs["a"].isin(members) & self._pairs["b"].isin(members)]
            if len(others) == len(pairs):
                clouds.append([cluster for cluster in self._order if cluster in members])
            else:
                clouds += [[a, b] for a, b in zip(pairs["a"], pairs["b"], strict=True)]
        return clouds

    @property
    def _order(self) -> list[Label]:
        """The clusters, sorted as in the table."""
        return [*dict.fromkeys([*self._pairs["a"], *self._pairs["b"]])]

    def _remarks(self) -> list[str]:
        if not len(self._pairs):
            return ["one cluster, which has no neighbour"]
        lines = self.sentences()
        lines.append(f"p_holm is p, adjusted for all {len(self._pairs)} pairs; the level is {LEVEL}")
        if self._has_unknown_noise:
            lines.append("If these are the labels of a density clustering, pass the fitted model instead of them")
        return lines


def _enumerated(clusters: list[Label]) -> str:
    """Write several names: "1, 2 and 5"."""
    *first, last = map(str, clusters)
    return f"{', '.join(first)} and {last}"


def _named_pairs(pairs: pd.DataFrame) -> str:
    """Write pairs: "1 and 2, 3 and 4"."""
    return ", ".join(f"{a} and {b}" for a, b in zip(pairs["a"], pairs["b"], strict=True))


@reads_tables
def separation(
    X: TableLike, labels: object, *, max_rows: int = 20_000, random_state: RandomState = 0
) -> Separation:
    """Tell of neighbouring clusters whether they are separated, or slices of one cloud.

    A clustering finds as many clusters as it is asked for, also in a cloud that has none. Two clusters are
    separated if rows are rarer between them than they would be in one cloud: there is a valley of their density
    along an axis, or, for moons and rings, a saddle that is sparser than the middle of both. Neither test assumes
    that clusters are Gaussian.

    Parameters
    ----------
    X : array, sparse matrix, frame, tensor, sequence of str, or path
        The rows [n, d], as the model takes them. With labels, the columns of a data frame are prepared by
        :func:`~neonxc.data.preparation.prepare` (numbers are standardized, categories are one-hot, and missing
        numbers have the median); an array is taken as it is.
    labels : array-like [n], estimator or Pipeline
        The clusters of the rows, where -1 and missing values are noise; or the fitted model. Density clusterings
        (DBSCAN, HDBSCAN, OPTICS and single linkage) need the model: see the notes.
    max_rows : int
        Maximum number of rows; of more, a random sample with the same share of every cluster is judged.
    random_state : int, RandomState or None
        Seed of the sample, of halves of the rows and of the null model.

    Returns
    -------
    Separation

    Raises
    ------
    ValueError
        If labels do not fit X, all rows are noise, X has missing values and is no data frame, or the model has no
        labels for X.
    TypeError
        If the arguments are in the wrong order, or `labels` is a network.

    Notes
    -----
    The top of ``neonxc/evaluation/separated.py`` defines both tests, which pairs are neighbours, and what happens
    to noise. The p-values are of the valley alone, and adjusted for all pairs that are asked.

    A density clustering finds the gaps of the rows that it is fitted to, also those that are there by chance. Its
    model is therefore fitted again to one half of the rows, and the other half is judged. Pairs that refits do not
    have are "not judged", and neither are any behind a map such as UMAP, which makes gaps of its own, or of
    precomputed distances. Labels alone do not tell where they are from: with those of a density clustering, chance
    gaps may be called separated.

    "Slices" says that no valley and no saddle was found, which also happens to clusters that overlap a lot: two
    Gaussian clusters at a distance of less than about 4 standard deviations have too few rows in the valley to
    tell. There are no weights: repeated rows look like peaks of the density. Draw rows with the weights as
    probabilities and without repetition, or judge the rows that are there.

    References
    ----------
    J. Besag and P. Clifford, "Sequential Monte Carlo p-values", 1991; S. Holm, "A simple sequentially rejective
    multiple test procedure", 1979; O. Ledoit and M. Wolf, "A well-conditioned estimator for large-dimensional
    covariance matrices", 2004. A valley filled up to one peak is the null model of B. W. Silverman, "Using kernel
    density estimates to investigate multimodality", 1981, with the bandwidth kept.

    Examples
    --------
    >>> from sklearn.cluster import KMeans
    >>> from sklearn.datasets import make_blobs
    >>> from neonxc.evaluation import separation
    >>> X, _ = make_blobs(400, centers=[[0, 0], [9, 0]], random_state=0)
    >>> separation(X, KMeans(3, n_init=10, random_state=0).fit(X)).sentences()
    ['0 and 2 are slices of one cloud', '1 and 2 are separated']
    """
    check_whole("max_rows", max_rows, least=2 * MIN_ROWS)
    generator = np.random.default_rng(check_random_state(random_state).randint(2**31 - 1))
    clustering = _read(X, labels)
    if len(clustering.codes) > max_rows:
        rows = _stratified(clustering.codes, max_rows, generator)
        clustering = clustering.take(rows)

    points = _reduced(clustering.points, generator)
    codes = _with_noise(points, clustering.codes)
    n_clusters = len(clustering.classes)
    pairs = _neighbours(codes, _second_clusters(points, codes, n_clusters), n_clusters)
    statistics = np.full((HALVINGS, len(pairs), 3), np.nan)
    if not clustering.reason:
        n_draws = min(max(DRAWS, int(2 * len(pairs) / LEVEL)), MAX_DRAWS)
        for halving in progress_bar(range(HALVINGS), desc="halves of the rows"):
            sides = _sides(points, codes, clustering, generator)
            for number, (a, b) in enumerate(pairs):
                statistics[halving, number] = _statistics(sides, a, b, n_draws, generator)

    reason = clustering.reason or BY_REFITS
    frame = _verdicts(pairs, statistics, np.bincount(codes, minlength=n_clusters), clustering)
    has_unjudged = bool((frame["verdict"] == "not judged").any())
    has_unknown_noise = clustering.model is None and bool((clustering.codes < 0).any())
    return Separation(frame, len(codes), reason if has_unjudged else "", has_unknown_noise)


# --- 1. rows and labels ------------------------------------------------------------------------------------------


class Clustering(NamedTuple):
    """Rows, their clusters, and a density clustering that can be fitted again."""

    points: Any  # [n, d], an array or a sparse matrix
    codes: Integers  # [n], positions of the clusters in `classes`; -1 for noise
    classes: NDArray[Any]  # [K], the labels
    model: Any  # the clusterer; None if labels were passed
    is_density: bool  # whether the clusterer finds the gaps of its rows
    reason: str  # why no pair can be judged; "" if they can

    def take(self, rows: Integers) -> Clustering:
        """Return the same clustering of a sample of the rows, in which small clusters may be missing."""
        codes = self.codes[rows]
        present = np.unique(codes[codes >= 0])
        positions = np.full(len(self.classes) + 1, -1)  # the last one is that of noise
        positions[present] = np.arange(len(present))
        return self._replace(points=self.points[rows], codes=positions[codes], classes=self.classes[present])


def _read(X: TableLike, labels: object) -> Clustering:
    """Read rows and labels, or a fitted model."""
    if hasattr(X, "fit") or isinstance(X, nn.Module):
        raise TypeError(f"X needs the rows, got {kind_of(X)}; the rows come first: separation(X, model)")
    if isinstance(labels, nn.Module):
        raise TypeError(
            f"labels needs the clusters of the rows or a fitted clusterer, got {kind_of(labels)}; pass the "
            "clusterer that it was made from, or labels=net.predict(X) with the points that were clustered"
        )
    model = unwrapped(labels)
    if not hasattr(model, "fit"):
        table = Table.read(X)
        ordered = in_order_of(labels, table)
        codes, classes = _codes(ordered, len(table))
        return Clustering(_columns(table, ordered), codes, classes, None, False, "")

    table = points_of(model, X)
    steps, final = steps_of(model)
    n_before = first_map(steps)
    if is_precomputed(model) and len(table.shape) == 2 and table.shape[0] == table.shape[1]:
        raise ValueError(
            "X is a matrix of distances, which has no density; pass the columns of the rows, and model.labels_"
        )
    before = transform(steps[:n_before], table.for_sklearn)
    entering = Table.read(transform(steps[n_before:], before))
    labels = labels_of(final, entering)
    if labels is None:
        raise ValueError(
            f"{kind_of(final)} has no labels for the {len(table)} rows of X; fit it to them, or pass their labels"
        )
    codes, classes = _codes(labels, len(table))
    is_density = finds_gaps(final)
    reason = ""
    if n_before < len(steps):
        reason = "the clusters are those of a map of the rows, which has gaps of its own"
    elif is_density and (is_precomputed(model) or not hasattr(final, "get_params")):
        reason = "a density clustering has to be fitted again to columns"
    return Clustering(_columns(Table.read(before), labels), codes, classes, final, is_density, reason)


def _codes(labels: Any, n: int) -> tuple[Integers, NDArray[Any]]:
    """Return the position of the cluster of each row, -1 for noise, and the labels of the clusters."""
    positions, classes, clustered = as_labels(labels, n, torch.device("cpu"))
    codes = positions.numpy().copy()
    codes[~clustered.numpy()] = -1
    return codes, classes


def _columns(table: Table, labels: ArrayLike) -> Any:
    """Return the columns [n, d] of rows: those of a data frame are prepared, others are as they are."""
    if table.names is not None:
        preparation = prepare(table.frame(), labels=labels)
        return np.asarray(preparation.pipeline.fit_transform(preparation.frame), np.float64)
    if table.is_sparse:
        _ = table.rows(torch.device("cpu"))  # an error for values that are no finite numbers
        return table.data.tocsr().astype(np.float64)
    _ = table.width  # an error if the rows are no table
    return table.tensor.double().cpu().numpy()


def _stratified(codes: Integers, n: int, generator: np.random.Generator) -> Integers:
    """Return n sorted rows, of every cluster the same share."""
    order = generator.permutation(len(codes))
    order = order[np.argsort(codes[order], kind="stable")]
    positions = np.floor((np.arange(n) + generator.random()) * len(codes) / n)
    return np.sort(order[positions.astype(np.int64)])


def _reduced(points: Any, generator: np.random.Generator) -> Points:
    """Spread rounded columns over their steps, or reduce many columns to principal components."""
    if points.shape[1] > MAX_COLUMNS:
        if not sparse.issparse(points):
            points = points - points.mean(axis=0)
        n_components = min(MAX_COLUMNS, max(1, points.shape[0] - 1))
        return np.asarray(TruncatedSVD(n_components, random_state=0).fit_transform(points))
    if sparse.issparse(points):
        points = points.toarray()
    points = points.copy()
    for column in points.T:  # views
        values = np.unique(column)
        if 2 < len(values) < len(column):
            step = np.diff(values).min()
            column += generator.uniform(-step / 2, step / 2, len(column))
    return np.asarray(points)


def _with_noise(points: Points, codes: Integers) -> Integers:
    """Return the cluster [n] of each row, for noise that of the nearest clustered row, if there is one."""
    clustered = codes >= 0
    if clustered.all() or not clustered.any():
        return codes
    nearest = NearestNeighbors(n_neighbors=1).fit(points[clustered])
    neighbour = nearest.kneighbors(points[~clustered], return_distance=False)[:, 0]
    every = codes.copy()
    every[~clustered] = codes[clustered][neighbour]
    return every


# --- 3. neighbours -----------------------------------------------------------------------------------------------


def _second_clusters(points: Points, codes: Integers, n_clusters: int) -> Integers:
    """Return the second cluster [n] of every row; its own if there is no other."""
    means = np.stack([points[codes == cluster].mean(axis=0) for cluster in range(n_clusters)])
    # |x - m|^2 without |x|^2, of points around the origin
    origin = points.mean(axis=0)
    means -= origin
    distances = (means**2).sum(axis=1) - 2 * (points - origin) @ means.T
    distances[np.arange(len(points)), codes] = np.inf
    return distances.argmin(axis=1)


def _neighbours(codes: Integers, second: Integers, n_clusters: int) -> list[tuple[int, int]]:
    """Return the pairs a < b of clusters of which one is a neighbour of the other."""
    if n_clusters < 2:
        return []
    pairs = set()
    for a in range(n_clusters):
        counts = np.bincount(second[codes == a], minlength=n_clusters)
        order = np.argsort(-counts, kind="stable")[:MAX_NEIGHBOURS]
        frequent = counts[order] >= FREQUENT * counts.sum()
        frequent[0] = True
        pairs |= {(min(a, b), max(a, b)) for b in order[frequent].tolist() if counts[b]}
    return sorted(pairs)


# --- 4. halves ---------------------------------------------------------------------------------------------------


class Side(NamedTuple):
    """One half of the rows, with which axes and borders are found, and the other one, on which they are tested."""

    fit: Points  # [f, d], rows of the one half
    codes: Integers  # [f], their clusters
    test: Points  # [t, d], rows of the other half
    neighbours: NearestNeighbors  # of rows among those of `test`
    reach: NDArray[np.float64]  # [f], r of the rows of `fit`
    dimension: float  # D; NaN if most rows are repeated


def _sides(points: Points, codes: Integers, clustering: Clustering, generator: np.random.Generator) -> list[Side]:
    """Halve the rows at random, with the same share of every cluster, and return both sides."""
    order = generator.permutation(len(codes))
    order = order[np.argsort(codes[order], kind="stable")]
    halves = [np.sort(order[::2]), np.sort(order[1::2])]
    sides = []
    for fit, test in (halves, halves[::-1]):
        fit_codes = codes[fit]
        if clustering.is_density:
            fit_codes = _refitted(clustering.model, clustering.points[fit], points[fit], fit_codes)
        sides.append(_side(points[fit], fit_codes, points[test]))
    return sides


def _side(fit: Points, codes: Integers, test: Points) -> Side:
    """Compute what all pairs need of one half of the rows."""
    neighbours = NearestNeighbors(n_neighbors=min(K, len(test))).fit(test)
    distances, _ = neighbours.kneighbors(fit)
    # a ball up to the K-th row has K / 2 times as many rows as one up to the second, and (far / near)^D its volume
    near = distances[:, min(1, len(test) - 1)]
    far = distances[:, -1]
    is_apart = near > 0
    dimension = np.nan
    if is_apart.mean() > 0.5:
        growth = np.median(np.log(far[is_apart] / near[is_apart]))
        dimension = np.log(K / 2) / max(growth, 1e-3)
    return Side(fit, codes, test, neighbours, far, dimension)


def _refitted(model: Any, inputs: Any, points: Points, codes: Integers) -> Integers:
    """Fit a density clustering to one half, and return the clusters [f] of its rows; all -1 if none has a match.

    Clusters of the refit are matched with `codes` by the largest sum of Jaccard indices.
    """
    changed = parameters_for_half(model, model.get_params())
    labels = np.asarray(clone(model).set_params(**changed).fit(inputs).labels_)
    counts = pd.crosstab(labels, codes).drop(index=[-1, -2, -3], errors="ignore")
    table = counts.to_numpy()
    sizes = np.bincount(codes)[counts.columns.to_numpy()]
    union = table.sum(axis=1, keepdims=True) + sizes - table
    refit, original = linear_sum_assignment(table / union, maximize=True)
    is_match = table[refit, original] > 0
    matches = dict(zip(counts.index[refit[is_match]], counts.columns[original[is_match]], strict=True))
    matched_codes = np.array([matches.get(label, -1) for label in labels.tolist()], dtype=np.int64)
    return _with_noise(points, matched_codes)


def _statistics(
    sides: list[Side], a: int, b: int, n_draws: int, generator: np.random.Generator
) -> tuple[float, float, float]:
    """Return the depth and the p-value of the valley, and the saddle; NaN for those with too few rows."""
    for side in sides:
        if min((side.codes == a).sum(), (side.codes == b).sum()) < 3:
            return np.nan, np.nan, np.nan
    z = np.concatenate([_projected(side, a, b) for side in sides])
    depth, p = valley(z, n_draws, generator)
    return depth, p, min(_saddle(side, a, b) for side in sides)


# --- the valley --------------------------------------------------------------------------------------------------


def _projected(side: Side, a: int, b: int) -> NDArray[np.float64]:
    """Return z of the tested rows in the slab of the cylinder; none if a and b have the same mean."""
    of_pair = (side.codes == a) | (side.codes == b)
    rows = side.fit[of_pair]
    is_b = side.codes[of_pair] == b
    mean_a = rows[~is_b].mean(axis=0)
    mean_b = rows[is_b].mean(axis=0)
    whitening = _whitening(rows - np.where(is_b[:, None], mean_b, mean_a))
    axis = (mean_b - mean_a) @ whitening  # v
    length = np.linalg.norm(axis)
    if not length > 0:
        return np.zeros(0)
    axis /= length

    middle = (mean_a + mean_b) / 2
    along, squared_distance = _cylindrical((rows - middle) @ whitening, axis)
    median_a = np.median(along[~is_b])
    median_b = np.median(along[is_b])
    if not median_b > median_a:
        return np.zeros(0)
    squared_radius = np.quantile(squared_distance, WITHIN)
    along, squared_distance = _cylindrical((side.test - middle) @ whitening, axis)
    z = (along - median_a) / (median_b - median_a)
    return z[(squared_distance <= squared_radius) & (z >= SLAB[0]) & (z <= SLAB[1])]


def _whitening(centred: Points) -> Points:
    """Return S^-1/2 [d, d] of rows that are centred, up to a rotation; 0 if all rows are equal."""
    scale = centred.std(axis=0)
    scale[scale == 0] = 1.0
    covariance, _ = ledoit_wolf(centred / scale, assume_centered=True)
    values, vectors = np.linalg.eigh(covariance)
    if not values[-1] > 0:
        return np.zeros_like(vectors)
    # columns without any variance would count without limit
    values = np.maximum(values, 1e-6 * values[-1])
    whitening: Points = vectors / np.sqrt(values) / scale[:, None]
    return whitening


def _cylindrical(u: Points, axis: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the position [n] of points along an axis, and their squared distance [n] from it."""
    along = u @ axis
    return along, (u**2).sum(axis=1) - along**2


def valley(z: NDArray[np.float64], n_draws: int, generator: np.random.Generator) -> tuple[float, float]:
    """Return the depth of the valley of z between 0 and 1, and its p-value; NaN for too few z on one side."""
    is_left = z <= 0.5
    if min(is_left.sum(), (~is_left).sum()) < MIN_SIDE:
        return np.nan, np.nan
    counts, grid, h = binned(z)
    kernel = np.exp(-0.5 * ((grid[:, None] - grid) / h) ** 2)
    density = counts.astype(np.float64) @ kernel
    ends = np.searchsorted(grid, [0, 1, *BANKS]).clip(0, N_BINS - 1)
    depth = float(deepest(density, ends))

    filled = unimodal(density)
    n_drawn = 0
    n_as_deep = 0
    while n_drawn < n_draws:
        size = min(DRAWS, n_draws - n_drawn)
        draws = generator.multinomial(counts.sum(), filled / filled.sum(), size).astype(np.float64)
        is_as_deep = deepest(draws @ kernel, ends) >= depth
        up_to = n_as_deep + is_as_deep.cumsum()
        if up_to[-1] >= AS_DEEP:
            n_drawn += 1 + int(np.argmax(up_to >= AS_DEEP))
            return depth, AS_DEEP / n_drawn
        n_as_deep = int(up_to[-1])
        n_drawn += size
    return depth, (1 + n_as_deep) / (1 + n_drawn)


def binned(z: NDArray[np.float64]) -> tuple[Integers, NDArray[np.float64], float]:
    """Return the counts of z in bins, the middle of the bins, and the bandwidth h."""
    centred = np.concatenate([side - np.median(side) for side in (z[z <= 0.5], z[z > 0.5])])
    low, high = np.percentile(centred, [25, 75])
    spread = centred.std()
    if high > low:
        spread = min(spread, (high - low) / 1.34)
    h = max(1.06 * spread * (len(z) / 2) ** -0.2, 1e-3)  # Silverman's, for half of z on either side
    edges = np.linspace(z.min() - 3 * h, z.max() + 3 * h, N_BINS + 1)
    counts, _ = np.histogram(z, edges)
    return counts, (edges[1:] + edges[:-1]) / 2, h


def deepest(density: NDArray[np.float64], ends: Integers) -> NDArray[np.float64]:
    """Return the depth of the deepest valley of densities [..., bins]; `ends` are the bins of 0, 1 and BANKS."""
    first, last, start, stop = ends
    density = density[..., start : stop + 1]
    left = np.maximum.accumulate(density, axis=-1)
    right = np.maximum.accumulate(density[..., ::-1], axis=-1)[..., ::-1]
    lower = np.maximum(np.minimum(left, right), np.finfo(np.float64).tiny)
    depths: NDArray[np.float64] = 1 - density / lower
    return depths[..., first - start : last - start + 1].max(axis=-1)


def unimodal(density: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the lowest curve [bins] above a density that rises up to its highest peak and falls behind it."""
    peak = int(np.argmax(density))
    rising = np.maximum.accumulate(density[: peak + 1])
    falling = np.maximum.accumulate(density[:peak:-1])[::-1]
    return np.concatenate([rising, falling])


# --- the saddle --------------------------------------------------------------------------------------------------


def _saddle(side: Side, a: int, b: int) -> float:
    """Return how many times sparser the border is than the middle of both; NaN if that is not known."""
    is_a = side.codes == a
    is_b = side.codes == b
    middle = max(np.median(side.reach[is_a]), np.median(side.reach[is_b]))
    if not middle > 0:  # rows are repeated
        return np.nan
    distances, _ = side.neighbours.kneighbors(border_of(side.fit[is_a], side.fit[is_b]))
    reach = max(np.quantile(distances[:, -1], DENSEST), np.finfo(np.float64).tiny)
    return float(np.exp(side.dimension * np.log(reach / middle)))


def border_of(of_a: Points, of_b: Points) -> Points:
    """Return the mid-points [m, d] of a point of a and a point of b that are the nearest to each other."""
    nearest_b = NearestNeighbors(n_neighbors=1).fit(of_b).kneighbors(of_a, return_distance=False)[:, 0]
    nearest_a = NearestNeighbors(n_neighbors=1).fit(of_a).kneighbors(of_b, return_distance=False)[:, 0]
    mutual = np.flatnonzero(nearest_a[nearest_b] == np.arange(len(of_a)))
    return (of_a[mutual] + of_b[nearest_b[mutual]]) / 2


# --- 5. verdicts -------------------------------------------------------------------------------------------------


def _verdicts(
    pairs: list[tuple[int, int]], statistics: NDArray[np.float64], sizes: Integers, clustering: Clustering
) -> pd.DataFrame:
    """Return the table of the pairs from the statistics [halvings, pairs, 3] and the sizes [K] of the clusters."""
    unknown = "not judged" if clustering.reason or clustering.is_density else "too few rows"
    rows = []
    for number, (a, b) in enumerate(pairs):
        depth, p, saddle = (_median(values) for values in statistics[:, number].T)
        verdict = "slices"
        if min(sizes[a], sizes[b]) < MIN_ROWS:
            verdict = "too few rows"
            depth = p = saddle = np.nan
        elif saddle >= SPARSER:
            verdict = "separated"
        elif np.isnan(p):
            verdict = unknown
        rows.append((clustering.classes[a], clustering.classes[b], verdict, depth, p, np.nan, saddle))
    frame = pd.DataFrame(rows, columns=["a", "b", "verdict", "depth", "p", "p_holm", "saddle"])
    frame["p_holm"] = _holm(frame["p"].to_numpy(dtype=np.float64))
    frame.loc[frame["p_holm"] <= LEVEL, "verdict"] = "separated"
    return frame


def _median(values: NDArray[np.float64]) -> float:
    """Return the median over the halvings, NaN if most of them are."""
    known = values[~np.isnan(values)]
    if 2 * len(known) <= len(values):
        return float("nan")
    return float(np.median(known))


def _holm(p: NDArray[np.float64]) -> NDArray[np.float64]:
    """Adjust p-values for all of those that are known: the i-th smallest of m is multiplied by m - i + 1."""
    adjusted = np.full(len(p), np.nan)
    order = np.argsort(p, kind="stable")
    order = order[~np.isnan(p[order])]
    factors = np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(p[order] * factors), 1.0)
    return adjusted
