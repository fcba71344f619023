"""The words of a report: where the clusters come from, the verdict, key figures, and warnings.

There is a warning if

    network     it agrees with the clusterer on less than FAITHFUL of the points (a surrogate: of those held out),
                or a surrogate with the labels on less than LOST of a cluster
    columns     one has ALONE of the relevance or more, or looks like an identifier or like weights
    noise       it is more than MUCH of the points
    tree        its fidelity is below FAITHFUL, or it has no rule for a cluster
    refits      their mean adjusted Rand index is below STABLE, or a cluster has an overlap below KEPT
    clusters    one has fewer than SMALL points
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from neonxc.common.locales import localized
from neonxc.common.numbers import in_words, percent, text
from neonxc.data.inputs import as_array
from neonxc.data.preparation import on_suspects
from neonxc.evaluation.choice import STABLE
from neonxc.head.competition import Path
from neonxc.network import NeuralizedClustering
from neonxc.pipelines.opened import opened
from neonxc.report.checks import RefitCheck, silhouette
from neonxc.report.clustered import ClusteredData
from neonxc.report.description import Caution, KeyFigure
from neonxc.report.relevance import Relevance
from neonxc.report.reproduce import one_line
from neonxc.report.tree import FittedTree

if TYPE_CHECKING:
    from neonxc.report.flipping import FlippingCheck

# thresholds of the warnings
FAITHFUL = 0.95  # fidelity of the tree and of the surrogate
LOST = 0.8  # share of the points of a cluster to which the surrogate gives their own label
ALONE = 0.7  # share of a single column in the total relevance
KEPT = 0.6  # mean Jaccard index of a cluster with its counterparts in the refits
MUCH = 0.2  # share of noise
SMALL = 10  # number of points of a cluster
ONE_CLOUD = "One cloud without clusters is cut like this: see whether the clusters are real, below."


def decimal(value: float, decimals: int = 2) -> str:
    """Write a number with decimals, in the notation of the report."""
    return localized(f"{value:.{decimals}f}")


def source(clustering: ClusteredData) -> str:
    """Describe the data and where the clusters come from."""
    points = clustering.counted_points
    if clustering.weight is not None:
        points += f" ({text(clustering.total)} by weight)"
    if clustering.model is not None:
        origin = _clusterer(clustering.model)
    else:
        origin = "a network" if clustering.is_network else "given labels"
    return f"{points}, {clustering.counted} from {origin}"


def _clusterer(model: object) -> str:
    """Describe a clusterer with its parameters and the names of its preprocessing steps."""
    steps, final = opened(model)
    names = [type(step).__name__ for _, step in steps if step not in (None, "passthrough")]
    if not names:
        return one_line(final)
    return f"{one_line(final)} after {', '.join(names)}"


def _of_areas(flipping: FlippingCheck) -> str:
    """Explain the area under the pixel-flipping curve, and name those of the best other methods."""
    insertion = flipping.insertion
    removal = flipping.removal
    return (
        "Area under the pixel-flipping curve by insertion, at most 100: it is large if points return to their "
        "cluster soon when columns are revealed in the order of their relevance. The best of the other methods, "
        f"{insertion.competitor}, reaches {decimal(insertion.best, 1)}. By removal, where small is good, NEON has "
        f"{decimal(removal.auc, 1)} and {removal.competitor} {decimal(removal.best, 1)}."
    )


def verdict(clustering: ClusteredData, tree: FittedTree, refits: RefitCheck | None) -> str:
    """Say how well the rules reproduce the clusters, and whether refits find the same clusters."""
    n_leaves = tree.tree.n_leaves
    rules = f"{n_leaves} rules assign" if n_leaves > 1 else "One rule assigns"
    sentences = [f"{rules} {percent(tree.held_out)} of the {_tested(tree)} to their own cluster."]
    if refits is not None:
        sentences.append(f"Refits on halves of the {clustering.thing}s {_agreement(refits.stability)}.")
    return " ".join(sentences)


def _agreement(stability: float) -> str:
    """Say how far refits find the same clusters, given the mean adjusted Rand index."""
    if stability >= STABLE:
        clusters = "find the same clusters"
    elif stability >= STABLE / 2:
        clusters = "find partly other clusters"
    else:
        clusters = "find mostly other clusters"
    return f"{clusters} (adjusted Rand index {decimal(stability)})"


def comparisons(flipping: FlippingCheck) -> list[str]:
    """Say for each measure of pixel-flipping whether a method is better than NEON, and by how much."""
    measures = {"inserting": flipping.insertion, "removing": flipping.removal}
    sentences = []
    for doing, comparison in measures.items():
        best = comparison.competitor
        lead = text(abs(comparison.lead), 2)
        auc = decimal(comparison.auc, 1)
        best_auc = decimal(comparison.best, 1)
        areas = f"NEON {auc}, {best} {best_auc}, standard error {decimal(comparison.error, 1)}"
        if comparison.lead > comparison.error:
            finding = f"{best} is better than NEON by {lead}"
        elif -comparison.lead > comparison.error:
            finding = f"no method is better than NEON, which is {lead} ahead of {best}"
        else:
            finding = f"no method is better than NEON; {best} is as good within the error"
        sentences.append(f"By {doing} the most relevant columns first, {finding} ({areas}).")
    return sentences


def figures(
    clustering: ClusteredData, tree: FittedTree, flipping: FlippingCheck | None, refits: RefitCheck | None
) -> Iterator[KeyFigure]:
    """Yield the key figures, of which the main ones are on the first screen."""
    for name, title, fraction, help in _of_surrogate(clustering.whole):
        if fraction is not None:
            yield KeyFigure(name, title, fraction, percent(fraction), help, is_main=name == "surrogate")
    tested = "held-out points" if tree.unseen else "the training points, because there are too few to hold out"
    yield KeyFigure(
        "fidelity",
        "tree fidelity",
        tree.held_out,
        percent(tree.held_out),
        f"Share of points that a tree with {tree.tree.n_leaves} leaves assigns to their own cluster, on {tested}.",
        is_main=True,
    )
    if refits is not None:
        yield KeyFigure(
            "stability",
            "stability",
            refits.stability,
            decimal(refits.stability),
            "Adjusted Rand index between the clustering and refits on random halves of the points with other "
            "seeds, averaged over five refits: 1 if all refits find the same clusters, 0 at chance level.",
            is_main=True,
        )
    width = silhouette(clustering)
    if width is not None:
        yield KeyFigure(
            "silhouette",
            "silhouette",
            width,
            decimal(width),
            "Compares the distance of a point to its own cluster with that to the nearest other cluster, in the "
            "space of the clustering, averaged over the points: 1 if all clusters are far apart, 0 if they touch.",
            is_main=True,
        )
    yield KeyFigure(
        "price",
        "cost of the tree",
        tree.price,
        f"× {decimal(tree.price)}",
        "Sum of squared distances to the cluster means of the tree, divided by that of the clustering. 1 "
        "means no loss. Smaller values are possible if the clustering does not minimise this sum.",
    )
    if flipping is not None:
        yield KeyFigure(
            "auc",
            "attribution AUC",
            flipping.insertion.auc,
            decimal(flipping.insertion.auc, 1),
            _of_areas(flipping),
        )
    agreement = clustering.whole.agreement_
    if agreement is not None:
        yield KeyFigure(
            "agreement",
            "agreement",
            agreement,
            percent(agreement),
            "Share of the points, without ties, to which the network that is explained gives the label that the "
            "clusterer has for them.",
        )


def _of_surrogate(net: NeuralizedClustering) -> Iterator[tuple[str, str, float | None, str]]:
    """Yield name, title, share and description of the measures of a surrogate, or of a vote behind a map."""
    who = net.head.detection.stand_in
    why = "Only the labels of the clustering are known, so a kernel k-means surrogate"
    if who == "vote":
        why = "The clusters lie behind a map, so the vote of the nearest rows of each in the columns before it"
    yield (
        "surrogate",
        f"{who} fidelity",
        net.fidelity_held_out_,
        f"{why} is explained instead. Share of held-out points to which the {who} gives their own label.",
    )
    yield (
        "surrogate_noise",
        f"{who} noise",
        net.noise_held_out_,
        f"Share of held-out points that the {who} takes for noise if their label is noise, and for clustered "
        "otherwise.",
    )
    yield (
        "surrogate_stability",
        "surrogate stability",
        net.stability_,
        "One minus the relative change of the attributions when the surrogate is fitted without 5% of the "
        "points, averaged over three fits.",
    )


def cautions(
    clustering: ClusteredData,
    tree: FittedTree,
    relevance: Relevance,
    refits: RefitCheck | None,
    is_above: bool | None,
    names: list[str],
) -> Iterator[Caution]:
    """Yield warnings about the results.

    `is_above` tells whether the clusters are more than tables without clusters have, and `names` are theirs.
    """
    if is_above is False:
        yield Caution(ONE_CLOUD)
    yield from _of_network(clustering, names)
    yield from _of_columns(clustering, relevance)
    noise = clustering.share(clustering.positions < 0)
    if noise > MUCH:
        yield Caution(f"{percent(noise)} of the points are noise, which key figures leave out.")
    if tree.held_out < FAITHFUL:
        yield Caution(
            f"The rules assign {percent(1 - tree.held_out)} of the {_tested(tree)} to another cluster. A tree "
            "with more leaves would be harder to read; see the cost against the number of leaves."
        )
    without = _without_rules(clustering, tree)
    if without:
        yield Caution(f"No rule leads to {_listed(without, names)}.", without)
    if refits is not None:
        yield from _of_refits(refits, clustering.k, names)
    numbers = np.bincount(clustering.positions[clustering.clustered], minlength=clustering.k)  # a weight is no row
    small = np.flatnonzero((numbers > 0) & (numbers < SMALL)).tolist()
    if small:
        yield Caution(f"Some clusters have fewer than {SMALL} points; statements about them are uncertain.", small)


def _listed(clusters: list[int], names: list[str]) -> str:
    """Write the names of clusters as a list in a sentence."""
    return in_words(names[cluster] for cluster in clusters)


def _of_network(clustering: ClusteredData, names: list[str]) -> Iterator[Caution]:
    """Yield warnings about a network that differs from the clustering."""
    net = clustering.whole
    subject = f"The {net.head.detection.stand_in}"
    if net.agreement_ is not None and net.agreement_ < FAITHFUL:
        yield Caution(
            f"The clusterer has another label than the network for {percent(1 - net.agreement_)} of the points: "
            "the rows may not be those that it was fitted on, or on another scale."
        )
    held_out = net.fidelity_held_out_
    if held_out is not None and held_out < FAITHFUL:
        yield Caution(
            f"{subject} assigns {percent(1 - held_out)} of the held-out points to another cluster than "
            "their label: the attributions explain a clustering that differs from yours to this extent."
        )
    noise = net.noise_held_out_
    if noise is not None and noise < FAITHFUL:
        yield Caution(
            f"{subject} takes {percent(1 - noise)} of the held-out points for noise although they are "
            "clustered, or the reverse, and about as many of new points."
        )
    lost = [] if held_out is None else _lost(clustering)
    if lost:
        yield Caution(f"{subject} assigns many points of {_listed(lost, names)} to other clusters.", lost)


def _of_columns(clustering: ClusteredData, relevance: Relevance) -> Iterator[Caution]:
    """Yield warnings about columns that decide alone, or that look like identifiers or weights of the rows."""
    total = np.average(np.abs(relevance.values), axis=0, weights=relevance.weight)
    is_tree = isinstance(clustering.net.head.competition, Path)  # trees use few columns by design
    is_alone = total.sum() > 0 and total.max() / total.sum() >= ALONE and len(total) > 1
    if clustering.has_readable_columns and not is_tree and is_alone:
        yield Caution(
            f"A single column has most of the relevance: {relevance.table.columns[total.argmax()]}. Check whether "
            "its scale differs from others."
        )
    if clustering.kind == "table":
        for warning in on_suspects(relevance.table.loc[:, total > 0]):
            yield Caution(warning)


def _of_refits(refits: RefitCheck, k: int, names: list[str]) -> Iterator[Caution]:
    """Yield a warning about clusters that refits do not find again."""
    weak = [cluster for cluster in range(k) if refits.overlaps[cluster] < KEPT]
    if refits.stability < STABLE:
        yield Caution(
            "The clusters are unstable: refits on halves of the points reach a mean adjusted Rand index "
            f"of only {decimal(refits.stability)}.",
            weak,
        )
    elif weak:
        yield Caution(f"Refits on halves do not reproduce some clusters: {_listed(weak, names)}.", weak)


def _tested(tree: FittedTree) -> str:
    return "held-out points" if tree.unseen else "points"


def _lost(clustering: ClusteredData) -> list[int]:
    """Find clusters of which the surrogate assigns many points to other clusters."""
    index = clustering.sample
    agrees = as_array(clustering.net.predict(clustering.inputs(index))) == clustering.labels[index]
    weight = clustering.weights_at(index)
    positions = clustering.positions[index]
    fractions = pd.Series(agrees).groupby(positions).mean()
    if weight is not None:
        sums = pd.Series(weight).groupby(positions).sum()
        fractions = pd.Series(agrees * weight).groupby(positions).sum() / sums
    lost = fractions.index[fractions < LOST].tolist()
    return [cluster for cluster in lost if cluster >= 0]


def _without_rules(clustering: ClusteredData, tree: FittedTree) -> list[int]:
    """Find clusters that have points but no leaf in the tree."""
    leaves = tree.tree.label[tree.tree.leaves].numpy()
    covered = clustering.net.positions(tree.tree.classes[leaves]).numpy()
    return np.setdiff1d(np.flatnonzero(clustering.sizes), covered).tolist()
