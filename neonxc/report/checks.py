"""Quality checks of a report: refits of the clustering, its silhouette, agreement of tree and network."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from sklearn.metrics import silhouette_score

from neonxc.clusterings.neuralize_arguments import is_map, steps_of
from neonxc.clusterings.readers import is_precomputed
from neonxc.common.progress import progress_bar
from neonxc.common.sizes import SAMPLED_ROWS
from neonxc.data.labels import NOISE
from neonxc.evaluation import agreement
from neonxc.evaluation.choice import rand_indices, refits, weighted_crosstab, weighted_silhouette
from neonxc.report.clustered import ClusteredData, stratified
from neonxc.report.tree import FittedTree

COMPARED = 5000  # number of points on which tree and network are compared
REFITTED = 10_000  # maximum number of points for refits
FAST = 2_000  # the same for a fast report


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


def refit(clustering: ClusteredData, most: int = REFITTED) -> RefitCheck | None:
    """Refit the clustering on random halves of at most `most` points; None if it cannot be refitted."""
    model = clustering.model
    positions = clustering.positions
    if clustering.has_own_features or not (hasattr(model, "fit_predict") and hasattr(model, "get_params")):
        return None  # training a network takes too long
    if is_precomputed(model):
        return None  # points are not the matrix that it takes
    if any(is_map(step) and not hasattr(step, "transform") for _, step in steps_of(model)[0]):
        return None  # no pipeline of scikit-learn fits a t-SNE
    sample = stratified(positions, most)
    if len(sample) < len(positions) and NOISE in np.asarray(getattr(clustering.final, "labels_", ())):
        return None  # clusters by their density differ in a sample, which is less dense
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
