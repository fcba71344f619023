"""Quality checks of a report: pixel-flipping, refits of the clustering, agreement of tree and network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.stats import spearmanr
from sklearn.metrics import silhouette_score

from neonxc.attribution.permutation import permuted
from neonxc.common.numbers import mean_error, rounded
from neonxc.common.progress import progress_bar
from neonxc.data.table import Table
from neonxc.evaluation import Imputer, KDEImputer, agreement, methods
from neonxc.evaluation.choice import SAMPLE, rand_indices, refits
from neonxc.evaluation.flipping import flipped
from neonxc.evaluation.imputers import default_imputer
from neonxc.inputs.groups import groups_of
from neonxc.report.clustering import Clustering, stratified
from neonxc.report.contents import Curve
from neonxc.report.relevance import Relevance
from neonxc.report.tree import TreePart

FLIPPED = 200  # number of points for pixel-flipping
BACKGROUND = 1000  # number of points from which hidden columns are imputed
COMPARED = 5000  # number of points on which tree and network are compared
STEPS = 20  # maximum number of steps of a flipping curve
REFITTED = 10_000  # maximum number of points for refits


@dataclass
class FlippingPart:
    """Pixel-flipping of NEON and of other methods.

    Attributes
    ----------
    auc, best : float
        Area under the curve of NEON, and the largest area of another method, 0 to 100.
    rival : str
        Name of that other method.
    error : float
        Standard error of the difference between the two areas; NaN for a single point.
    curves : list of Curve
        Curves of all methods; that of NEON comes first.
    """

    auc: float
    best: float
    rival: str
    error: float
    curves: list[Curve]


def flip(clustering: Clustering) -> FlippingPart:
    """Compare NEON with other fast methods by pixel-flipping on a sample."""
    clustered = np.flatnonzero(clustering.own >= 0)
    sample = clustered[stratified(clustering.own[clustered], FLIPPED, least=1)]
    base = clustered[stratified(clustering.own[clustered], BACKGROUND, least=5)]
    x, background = (clustering.net.batch(_dense(clustering.inputs(rows))).tensor for rows in (sample, base))
    others: dict[str, Any] = {"NEON": methods.neon, "NCA": methods.nca, "random": methods.random()}
    if clustering.net.inputs.absent == "word":
        imputer: Imputer = default_imputer(clustering.net.inputs, background)
    else:  # words have no gradients
        imputer = KDEImputer(background)
        others |= {"gradient × input": methods.gradient_x_input, "squared gradient": methods.sensitivity}
    target, steps = torch.from_numpy(clustering.own[sample]).to(x.device), min(STEPS, x.shape[1])
    groups = groups_of(clustering.net, None, x)
    found = {}
    for name, method in progress_bar(others.items(), desc="methods"):
        relevance = method(clustering.net, x, target)
        found[name] = flipped(clustering.net, x, relevance, imputer, 3, groups, target, "insert", "most", steps, 0)
    curves = [
        Curve(name, rounded([0, *one.known]), rounded([0, *one.curve]), f"AUC {one.auc:.1f}")
        for name, one in found.items()
    ]
    auc = {name: one.auc for name, one in found.items()}
    rival = max((name for name in auc if name != "NEON"), key=lambda name: auc[name])
    _, error = mean_error(found[rival].auc_per_input - found["NEON"].auc_per_input)
    return FlippingPart(auc["NEON"], auc[rival], rival, error, curves)


def _dense(points: Any) -> Any:
    """Convert a sparse matrix to an array: imputed columns are not sparse."""
    return Table.read(points).dense()


@dataclass
class RefitPart:
    """Refits of the clustering on random halves of the points, with other seeds.

    Attributes
    ----------
    seeds : list of float
        Adjusted Rand index between the clustering and each refit, on the points of the refit.
    kept : ndarray [k]
        Largest Jaccard index of each cluster with a cluster of a refit, averaged over the refits, 0 to 1;
        NaN if no refit has a point of it.
    """

    seeds: list[float]
    kept: np.ndarray


def refit(clustering: Clustering) -> RefitPart | None:
    """Refit the clustering on random halves of the points; None if it cannot be refitted."""
    model, own = clustering.model, clustering.own
    if clustering.own_features or not (hasattr(model, "fit_predict") and hasattr(model, "get_params")):
        return None  # training a network takes too long
    again = refits(model, clustering.clustered, stratified(own, REFITTED), clustering.k)
    found = list(progress_bar(again, desc="refits"))
    kept = [_overlap(own[rows], labels, clustering.k) for rows, labels in found]
    return RefitPart(rand_indices(own, found), np.ma.masked_invalid(kept).mean(0).filled(np.nan))


def silhouette(clustering: Clustering) -> float | None:
    """Mean silhouette of a sample of the points after preprocessing; None if every cluster has a single point."""
    clustered = np.flatnonzero(clustering.own >= 0)
    rows = clustered[stratified(clustering.own[clustered], SAMPLE)]
    if len(rows) <= len(np.unique(clustering.own[rows])):
        return None
    return float(silhouette_score(clustering.space(rows), clustering.own[rows]))


def _overlap(own: np.ndarray, labels: np.ndarray, k: int) -> np.ndarray:
    """Largest Jaccard index of each cluster with a cluster of other labels, [k]."""
    found = np.full(k, np.nan)
    for cluster in np.unique(own[own >= 0]).tolist():
        inside = own == cluster
        values, counts = np.unique(labels[inside], return_counts=True)
        sizes = np.array([(labels == value).sum() for value in values])
        found[cluster] = float((counts / (sizes + inside.sum() - counts)).max())
    return found


def second_opinion(clustering: Clustering, relevance: Relevance) -> list[str]:
    """Compare the relevance of the columns of a table with what permuting them changes, in one sentence."""
    shown = len(relevance.shown) == len(clustering.units)  # others would take long
    if clustering.kind != "table" or not shown or Table.read(clustering.X).is_sparse:
        return []
    own, some = clustering.own[relevance.index], clustering.inputs(relevance.index)
    clusters = np.unique(own[own >= 0])
    means = np.stack([relevance.values[own == cluster].mean(0) for cluster in clusters])
    shares = permuted(clustering.net, some)[clusters]
    first = int((means.argmax(1) == shares.argmax(1)).sum())
    found = [spearmanr(*pair).statistic for pair in zip(means, shares, strict=True) if np.ptp(pair[1]) > 0]
    ranks = f"; its rank correlation with the relevance is {np.mean(found):.2f} on average" if found else ""
    return [
        "A second opinion, how many points leave their cluster if a column is permuted, names the same first "
        f"column for {first} of {len(clusters)} clusters{ranks}."
    ]


def agree(clustering: Clustering, tree: TreePart) -> np.ndarray:
    """Rank correlation of tree and network over the columns, [k]."""
    index = clustering.sample[clustering.own[clustering.sample] >= 0]
    index = index[stratified(clustering.own[index], COMPARED, least=20)]
    return agreement(clustering.net, tree.explainer, clustering.inputs(index)).correlation[: clustering.k]
