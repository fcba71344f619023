"""Quality checks of a report: pixel-flipping, refits of the clustering, agreement of tree and network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.metrics import silhouette_score

from neonxc.clusterings.neuralize_arguments import is_map, steps_of
from neonxc.clusterings.readers import is_precomputed
from neonxc.common.numbers import mean_error, rounded
from neonxc.common.progress import progress_bar
from neonxc.common.sizes import SAMPLED_ROWS
from neonxc.data.labels import NOISE
from neonxc.data.table import Table
from neonxc.data.weights import repeated_rows
from neonxc.evaluation import Imputer, KDEImputer, agreement, methods
from neonxc.evaluation.choice import rand_indices, refits, weighted_crosstab, weighted_silhouette
from neonxc.evaluation.flipping import Flipping, flipped
from neonxc.evaluation.imputers import default_imputer
from neonxc.inputs.groups import groups_of
from neonxc.report.clustered import ClusteredData, stratified
from neonxc.report.description import Curve
from neonxc.report.tree import FittedTree

FLIPPED = 200  # number of points for pixel-flipping
BACKGROUND = 1000  # number of points from which hidden columns are imputed
COMPARED = 5000  # number of points on which tree and network are compared
STEPS = 20  # maximum number of steps of a flipping curve
REFITTED = 10_000  # maximum number of points for refits
FAST = 2_000  # the same for a fast report


@dataclass
class Comparison:
    """NEON against the best of the other methods, by one measure of pixel-flipping.

    Attributes
    ----------
    auc, best : float
        Area under the curve of NEON and of that other method, 0 to 100.
    competitor : str
        Its name.
    lead : float
        By how much it is better than NEON, mean over the points; negative if it is worse.
    error : float
        Standard error of the lead; NaN for a single point.
    """

    auc: float
    best: float
    competitor: str
    lead: float
    error: float


@dataclass
class FlippingCheck:
    """Pixel-flipping of NEON and of other methods.

    Attributes
    ----------
    insertion, removal : Comparison
        If the most relevant columns are inserted first (a large AUC is good) or removed first (a small one is).
    curves : list of Curve
        Curves of insertion of all methods; that of NEON comes first.
    """

    insertion: Comparison
    removal: Comparison
    curves: list[Curve]


def flip(clustering: ClusteredData) -> FlippingCheck:
    """Compare NEON with other fast methods by pixel-flipping on a sample."""
    net = clustering.net
    sample = clustering.clustered_sample(FLIPPED, 1)
    weight = clustering.weights_at(sample)
    others = clustering.clustered_sample(BACKGROUND, 5)
    others = repeated_rows(others, BACKGROUND, clustering.weights_at(others))
    x, background = (
        net.batch(Table.read(clustering.inputs(rows)).dense()).tensor  # imputed columns are not sparse
        for rows in (sample, others)
    )
    compared: dict[str, Any] = {"NEON": methods.neon, "NCA": methods.nca, "random": methods.random()}
    if net.inputs.absent == "word":
        imputer: Imputer = default_imputer(net.inputs, background)
    else:  # words have no gradients
        imputer = KDEImputer(background)
        compared |= {"gradient × input": methods.gradient_x_input, "squared gradient": methods.sensitivity}
    target = torch.from_numpy(clustering.positions[sample]).to(x.device)
    steps = min(STEPS, x.shape[1])
    groups = groups_of(net, None, x)
    inserted = {}
    removed = {}
    for name, method in progress_bar(compared.items(), desc="methods"):
        relevance = method(net, x, target)
        inserted[name], removed[name] = (
            flipped(net, x, relevance, imputer, 3, groups, target, "insert", order, steps, 0, weight)
            for order in ("most", "least")  # the least relevant columns first, read backwards, is removal
        )
    curves = [
        Curve(
            name,
            rounded([0, *result.known]),
            rounded([0, *result.curve]),
            f"insertion {result.auc:.1f}, removal {removed[name].auc:.1f}",
        )
        for name, result in inserted.items()
    ]
    return FlippingCheck(_compare(inserted, 1, weight), _compare(removed, -1, weight), curves)


def _compare(results: dict[str, Flipping], sign: int, weight: np.ndarray | None) -> Comparison:
    """NEON against the other method of largest (sign 1) or smallest (-1) area."""
    competitor = max(results.keys() - {"NEON"}, key=lambda name: (sign * results[name].auc, name))
    neon = results["NEON"]
    best = results[competitor]
    lead = sign * (best.auc_per_input - neon.auc_per_input)
    return Comparison(neon.auc, best.auc, competitor, *mean_error(lead, weight))


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
