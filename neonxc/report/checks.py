"""Quality checks of a report: refits of the clustering, its silhouette, agreement of tree and network.

What is computed, for a sample if there are many points:

    stability     mean adjusted Rand index of the clustering and of refits on halves of the points, on these halves
    overlap       Jaccard index of a cluster with the most similar cluster of a refit, mean over the refits
    silhouette    mean over the points, behind the preprocessing
    agreement     rank correlation over the columns of the relevance in the tree and in the network, by cluster
    reality       tables without clusters, and the density between neighbouring clusters
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.sparse import issparse
from sklearn.metrics import silhouette_score

from neonxc.clusterings.neuralize_arguments import is_map, steps_of
from neonxc.clusterings.number_of_rows import depends_on_number, finds_gaps
from neonxc.clusterings.readers import is_precomputed
from neonxc.common.progress import progress_bar
from neonxc.common.sizes import SAMPLED_ROWS
from neonxc.data.inputs import as_array
from neonxc.data.labels import NOISE
from neonxc.evaluation import agreement
from neonxc.evaluation.choice import rand_indices, refits, weighted_crosstab, weighted_silhouette
from neonxc.evaluation.real import MAX_CLUSTERS, MAX_COLUMNS, UNKNOWN, Finding, above_null, slices
from neonxc.report.clustered import ClusteredData, stratified
from neonxc.report.tree import FittedTree

COMPARED = 5000  # number of points on which tree and network are compared
REFITTED = 10_000  # maximum number of points for refits
FAST = 2_000  # the same for a fast report
# numbers of columns and of clusters up to which a fast report says whether its clusters are real, in less than a
# second
FEW_COLUMNS = 15
FEW_CLUSTERS = 5


@dataclass
class RefitCheck:
    """Refits of the clustering on random halves of the points, with other seeds.

    Attributes
    ----------
    seeds : list of float
        Adjusted Rand index between the clustering and each refit, on the points of the refit.
    overlaps : ndarray [k]
        Largest Jaccard index of each cluster with a cluster of a refit, averaged over the refits, 0 to 1;
        NaN if no refit has a point of it.
    """

    seeds: list[float]
    overlaps: np.ndarray

    @property
    def stability(self) -> float:
        """Mean adjusted Rand index."""
        return float(np.mean(self.seeds))


def can_be_fitted_again(clustering: ClusteredData) -> bool:
    """Whether the clusterer can be fitted to other points."""
    model = clustering.model
    if clustering.has_own_features or not (hasattr(model, "fit_predict") and hasattr(model, "get_params")):
        return False  # training a network takes too long
    if is_precomputed(model):
        return False  # points are not the matrix that it takes
    arrays = [value for value in model.get_params().values() if isinstance(value, np.ndarray) or issparse(value)]
    if any(array.shape[:1] == (clustering.n,) for array in arrays):
        return False  # a parameter has a value for every point, such as the graph `connectivity`
    # no pipeline of scikit-learn fits a t-SNE
    return not any(is_map(step) and not hasattr(step, "transform") for _, step in steps_of(model)[0])


def refit(clustering: ClusteredData, most: int = REFITTED) -> RefitCheck | None:
    """Refit the clustering on random halves of at most `most` points; None if it cannot be refitted."""
    if not can_be_fitted_again(clustering):
        return None
    model = clustering.model
    positions = clustering.positions
    sample = stratified(positions, most)
    has_noise = NOISE in as_array(getattr(clustering.final, "labels_", ()))
    if len(sample) < len(positions) and (has_noise or depends_on_number(clustering.final)):
        return None  # a sample has other clusters
    weight = clustering.weight
    halves = refits(model, clustering.clusterer_inputs, sample, clustering.k, weight)
    refitted = list(progress_bar(halves, desc="refits"))
    each = [_overlaps(positions[rows], labels, clustering.weights_at(rows)) for rows, labels in refitted]
    overlaps = pd.concat(each, axis=1).mean(axis=1)
    return RefitCheck(rand_indices(positions, refitted, weight), overlaps.reindex(range(clustering.k)).to_numpy())


def _overlaps(positions: np.ndarray, labels: np.ndarray, weight: np.ndarray | None) -> pd.Series:
    """Largest Jaccard index of each cluster with a cluster of other labels, of points that may have weights."""
    both = weighted_crosstab(positions, labels, weight)
    either = both.sum(axis=1).to_numpy()[:, None] + both.sum().to_numpy() - both
    return (both / either).max(axis=1)


def silhouette(clustering: ClusteredData) -> float | None:
    """Mean silhouette of a sample of the points after preprocessing; None if every cluster has a single point."""
    rows = clustering.clustered_sample(SAMPLED_ROWS)
    positions = clustering.positions[rows]
    if len(rows) <= len(np.unique(positions)):
        return None
    if clustering.weight is not None:
        return weighted_silhouette(clustering.space(rows), positions, clustering.weight[rows])
    return float(silhouette_score(clustering.space(rows), positions))


def agree(clustering: ClusteredData, tree: FittedTree) -> np.ndarray:
    """Rank correlation of tree and network over the columns, [k]."""
    index = np.intersect1d(clustering.sample, clustering.clustered)
    index = index[stratified(clustering.positions[index], COMPARED, least=20)]
    weight = clustering.weights_at(index)
    inputs = clustering.inputs(index)
    return agreement(clustering.net, tree.explainer, inputs, sample_weight=weight).correlation[: clustering.k]


def reality(clustering: ClusteredData, fast: bool) -> Finding:
    """Say whether the clusters are more than one cloud would have, and which of them are slices of one."""
    found = UNKNOWN
    n_columns = FEW_COLUMNS if fast else MAX_COLUMNS
    is_narrow = len(clustering.columns) <= n_columns
    if clustering.kind == "table" and is_narrow and can_be_fitted_again(clustering):
        inputs = clustering.clusterer_inputs(np.arange(clustering.n))
        found = above_null(clustering.model, inputs, clustering.weight)
    n_clusters = FEW_CLUSTERS if fast else MAX_CLUSTERS
    if clustering.k <= n_clusters and _can_be_separated(clustering):
        index = clustering.sample
        labels = np.array(["-1", *clustering.cluster_labels])[clustering.positions[index] + 1]
        return Finding([*found.sentences, *slices(clustering.space(index), labels)], found.is_above)
    return found


def _can_be_separated(clustering: ClusteredData) -> bool:
    """Whether the density between clusters tells something: not if they were found by gaps, and not with weights.

    Labels with noise, of which the clusterer is unknown, may be those of a density clustering.
    """
    has_noise = bool((clustering.positions < 0).any())
    if clustering.weight is not None or (clustering.model is None and has_noise):
        return False
    return not finds_gaps(clustering.final)
