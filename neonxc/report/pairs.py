"""Comparisons of two clusters: the columns that separate them.

With the mean relevance A_i of column i for "a, not b" over points of a, and B_i for "b, not a" over points of b, a
column separates the clusters by (A_i + B_i) / sum_j |A_j + B_j|.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np

from neonxc.attribution.contrasts import relevance_of_pair
from neonxc.common.numbers import rounded, shares
from neonxc.common.progress import progress_bar
from neonxc.data.weights import drawn
from neonxc.report.clustered import ClusteredData
from neonxc.report.description import Pair
from neonxc.report.relevance import Relevance
from neonxc.report.statements import formats_of, typical_values

COLUMNS = 8  # maximum number of columns per pair
MOST = 40_000  # approximate number of points of all pairs together
FEWEST = 60  # points per cluster that are used in any case
ALL = 20  # maximum number of clusters of which all pairs are compared
COMPETITORS = 2  # number of competitors of each cluster that are compared if there are more clusters


def compare_pairs(clustering: ClusteredData, relevance: Relevance) -> tuple[list[Pair], list[str]]:
    """Compare pairs of clusters, and return them with remarks on what was left out."""
    clusters = np.flatnonzero(clustering.sizes).tolist()
    pairs = list(combinations(clusters, 2))
    notes = []
    is_slow = clustering.is_slow_to_read
    if len(clusters) > ALL or (is_slow and len(clusters) > COMPETITORS + 1):
        pairs = _with_competitors(clustering, relevance)
        which = f"Of more than {ALL} clusters"
        if is_slow:
            which = "Of clusters behind a sentence encoder"
        notes.append(
            f"{which}, each is compared only with its {COMPETITORS} nearest competitors: the clusters that most "
            "often have the next largest logit at its points."
        )
    n_max = FEWEST
    if not is_slow:
        n_max = max(FEWEST, MOST // (2 * len(pairs)))
    bar = progress_bar(pairs, desc="pairs of clusters")
    return [_compare(clustering, pair, n_max, relevance.shown_positions) for pair in bar], notes


def _with_competitors(clustering: ClusteredData, relevance: Relevance) -> list[tuple[int, int]]:
    """Pairs of every cluster and its nearest competitors; of equal ones, the first."""
    weight = clustering.weights_at(relevance.index)
    if weight is None:
        weight = np.ones(len(relevance.index))
    is_clustered = relevance.positions >= 0
    times = np.zeros((clustering.k, clustering.k))
    np.add.at(times, (relevance.positions[is_clustered], relevance.competitor[is_clustered]), weight[is_clustered])
    times[:, clustering.sizes == 0] = 0
    pairs = set()
    for cluster, nearest in enumerate(np.argsort(-times, axis=1, kind="stable")[:, :COMPETITORS].tolist()):
        pairs |= {(min(cluster, other), max(cluster, other)) for other in nearest if times[cluster, other] > 0}
    return sorted(pairs)


def _compare(clustering: ClusteredData, pair: tuple[int, int], n_max: int, shown: dict[int, int]) -> Pair:
    """Compare two clusters by at most `n_max` points of each, and by the columns that the report shows."""
    of_clusters = [np.flatnonzero(clustering.positions == cluster) for cluster in pair]
    samples = [drawn(rows, n_max, clustering.weights_at(rows)) for rows in of_clusters]
    members = [rows for rows, _ in samples]
    masses = [mass for _, mass in samples]
    weights = None
    if clustering.weight is not None:
        weights = [mass for mass in masses if mass is not None]
    inputs = clustering.read(np.concatenate(members))
    n_first = len(members[0])
    positions = np.split(np.arange(n_first + len(members[1])), [n_first])  # of both clusters among the inputs

    relevance = relevance_of_pair(clustering.net, inputs, positions, pair, weights)
    fractions = shares(relevance.sum(axis=1).to_numpy())
    by_size = np.argsort(-np.abs(fractions), kind="stable").tolist()
    order = [column for column in by_size if column in shown]
    order = order[: clustering.shortened(COLUMNS)]
    columns = np.array(order, dtype=np.int64)
    a, b = (clustering.values(rows, columns) for rows in members)
    printed = typical_values(a, b, clustering.has_terms, masses, formats_of(clustering, columns))
    of_columns = [
        (shown[column], rounded([fractions[column]])[0], of_a, of_b)
        for column, (of_a, of_b) in zip(order, printed, strict=True)
    ]
    return Pair(*pair, of_columns)
