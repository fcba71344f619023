"""Why to believe a report: pixel-flipping, refits, agreement of tree and network."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score

from neonxc.evaluation import Imputer, KDEImputer, WordImputer, agreement, compare, methods
from neonxc.evaluation.comparison import mean_error
from neonxc.numerals import rounded
from neonxc.progress_bars import progress_bar
from neonxc.report.contents import Curve
from neonxc.report.subject import Subject, stratified
from neonxc.report.tree import TreePart

FLIPPED = 200  # points whose columns are flipped
BACKGROUND = 1000  # points that stand in for missing columns
STEPS = 20
LITTLE = 1.0  # of 100: a difference that matters to nobody
REFITS = 5
REFITTED = 10_000  # points that a clustering is refitted on
SHARE = 0.8  # of them that a refit sees


@dataclass
class FlippingPart:
    """Pixel-flipping of NEON and of other methods.

    Attributes
    ----------
    auc, best : float
        The area under NEON's curve, and the greatest of the others', 0 to 100.
    rival : str
        Which method that is.
    behind : bool
        Whether it is ahead of NEON, by more than a point and one standard error of their difference.
    curves : list of Curve
        NEON's first.
    """

    auc: float
    best: float
    rival: str
    behind: bool
    curves: list[Curve]


def flip(subject: Subject) -> FlippingPart:
    """Compare NEON with methods that cost no more, by pixel-flipping on a sample."""
    clustered = np.flatnonzero(subject.own >= 0)
    some = clustered[stratified(subject.own[clustered], FLIPPED, least=5)]
    base = clustered[stratified(subject.own[clustered], BACKGROUND, least=20)]
    x, background = (subject.net.batch(_laid_out(subject.inputs(rows))).tensor for rows in (some, base))
    others: dict[str, Any] = {"NEON": methods.neon, "NCA": methods.nca, "random": methods.random()}
    if subject.net.carrier.missing == "word":
        imputer: Imputer = WordImputer(background)
    else:  # words have no slopes
        imputer = KDEImputer(background)
        others |= {"gradient × input": methods.gradient_x_input, "squared gradient": methods.sensitivity}
    target, steps = subject.own[some], min(STEPS, x.shape[1])
    found = compare(
        subject.net, x, others, imputer, repeats=3, target=target, points=None, steps=steps, progress=False
    )
    curves = [
        Curve(name, rounded([0, *one.known]), rounded([0, *one.curve]), f"AUC {one.auc:.1f}")
        for name, one in found.results.items()
    ]
    auc = {name: one.auc for name, one in found.results.items()}
    rival = max((name for name in auc if name != "NEON"), key=lambda name: auc[name])
    ahead, error = mean_error(found.results[rival].auc_per_input - found.results["NEON"].auc_per_input)
    return FlippingPart(auc["NEON"], auc[rival], rival, ahead > max(error, LITTLE), curves)


def _laid_out(points: Any) -> Any:
    """A sparse matrix as an array: columns that are flipped are no longer sparse."""
    return points.toarray() if hasattr(points, "tocsr") else points


@dataclass
class RefitPart:
    """Refits on other points, from other seeds.

    Attributes
    ----------
    seeds : list of float
        Adjusted Rand index of each refit with the clustering, on the points that it saw.
    kept : ndarray [k]
        Mean share of a cluster, by Jaccard's index, that is one cluster of a refit: 0 to 1.
    """

    seeds: list[float]
    kept: np.ndarray


def refit(subject: Subject) -> RefitPart | None:
    """Cluster again five times, each on four fifths of the points; None where it can't be."""
    model = subject.model
    if subject.own_features or not (hasattr(model, "fit_predict") and hasattr(model, "get_params")):
        return None  # a network of its own takes too long to train
    index = stratified(subject.own, REFITTED)
    seeds, kept = [], []
    for seed in progress_bar(range(REFITS), desc="refits"):
        rows = np.sort(np.random.default_rng(seed).permutation(index)[: max(subject.k, int(SHARE * len(index)))])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # convergence of a refit is not the reader's concern
            labels = np.asarray(_seeded(model, seed).fit_predict(subject.clustered(rows)))
        seeds.append(float(adjusted_rand_score(subject.own[rows], labels)))
        kept.append(_overlap(subject.own[rows], labels, subject.k))
    return RefitPart(seeds, np.nanmean(kept, axis=0))


def _seeded(model: Any, seed: int) -> Any:
    """An unfitted copy from another seed, where it has one."""
    copy = clone(model)
    seeds = {name: seed for name in copy.get_params() if name.split("__")[-1] == "random_state"}
    return copy.set_params(**seeds)


def _overlap(own: np.ndarray, labels: np.ndarray, k: int) -> np.ndarray:
    """Of every cluster, the greatest Jaccard index with a cluster of other labels."""
    found = np.full(k, np.nan)
    for cluster in np.unique(own[own >= 0]).tolist():
        inside = own == cluster
        values, counts = np.unique(labels[inside], return_counts=True)
        sizes = np.array([(labels == value).sum() for value in values])
        found[cluster] = float((counts / (sizes + inside.sum() - counts)).max())
    return found


def agree(subject: Subject, tree: TreePart) -> tuple[np.ndarray, np.ndarray]:
    """Rank correlation [k] of tree and network over the columns, and the sample's points where they differ."""
    index = subject.sample[subject.own[subject.sample] >= 0]
    found = agreement(subject.net, tree.explainer, subject.inputs(index))
    return found.correlation, index[found.rows]
