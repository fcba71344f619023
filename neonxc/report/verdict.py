"""The verdict of a report: a summary in words, key figures, and warnings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from neonxc.common.numbers import percent, plural, text
from neonxc.data.inputs import as_array
from neonxc.data.preparation import on_suspects
from neonxc.evaluation.choice import STABLE
from neonxc.head.competition import Path
from neonxc.network import NeuralizedClustering
from neonxc.pipelines.opened import opened
from neonxc.report.clustering import Clustering
from neonxc.report.contents import Caution, Figure
from neonxc.report.relevance import Relevance
from neonxc.report.reproduce import one_line
from neonxc.report.tree import TreePart
from neonxc.report.trust import FlippingPart, RefitPart, Rivalry, silhouette

# thresholds of the warnings
FAITHFUL = 0.95  # fidelity of the tree and of the surrogate
LOST = 0.8  # share of the points of a cluster to which the surrogate gives their own label
ALONE = 0.7  # share of a single column in the total relevance
KEPT = 0.6  # mean Jaccard index of a cluster with its counterparts in the refits
MUCH = 0.2  # share of noise
SMALL = 10  # number of points of a cluster

THINGS = {"table": "row", "images": "image", "locations": "location", "texts": "text"}


def description(clustering: Clustering) -> str:
    """Describe the data and the clusterer."""
    things = plural(clustering.n, THINGS[clustering.kind])
    if clustering.weight is not None:
        things += f" ({text(clustering.total)} by weight)"
    if clustering.kind == "locations":
        things += f" of {plural(len(clustering.X), 'photo')}"
    width = f" with {plural(len(clustering.units), 'column')}" if clustering.kind == "table" else ""
    how = "given labels" if clustering.model is None else _how(clustering.model)
    return f"{things}{width}, {clustering.counted} from {how}"


def _how(model: Any) -> str:
    """Describe a clusterer with its parameters and the names of its preprocessing steps."""
    steps, final = opened(model)
    names = [type(step).__name__ for _, step in steps if step not in (None, "passthrough")]
    if not names:
        return one_line(final)
    return f"{one_line(final)} after {', '.join(names)}"


def figures(
    clustering: Clustering, tree: TreePart, flipping: FlippingPart | None, refits: RefitPart | None
) -> Iterator[Figure]:
    """Yield the key figures of the verdict."""
    for name, title, share, help in _of_surrogate(clustering.whole):
        if share is not None:
            yield Figure(name, title, share, percent(share), help)
    tested = "held-out points" if tree.unseen else "the training points, because there are too few to hold out"
    yield Figure(
        "fidelity",
        "tree fidelity",
        tree.held_out,
        percent(tree.held_out),
        f"Share of points that a tree with {tree.tree.n_leaves} leaves assigns to their own cluster, on {tested}.",
    )
    yield Figure(
        "price",
        "cost of the tree",
        tree.price,
        f"× {tree.price:.2f}",
        "Sum of squared distances to the cluster means of the tree, divided by that of the clustering. 1 "
        "means no loss. Smaller values are possible if the clustering does not minimise this sum.",
    )
    if flipping is not None:
        yield Figure(
            "auc",
            "attribution AUC",
            flipping.insertion.auc,
            f"{flipping.insertion.auc:.1f}",
            "Area under the pixel-flipping curve by insertion, at most 100: it is large if points return to "
            "their cluster soon when columns are revealed in the order of their relevance. The best of the other "
            f"methods, {flipping.insertion.rival}, reaches {flipping.insertion.best:.1f}. By removal, where small "
            f"is good, NEON has {flipping.removal.auc:.1f} and {flipping.removal.rival} "
            f"{flipping.removal.best:.1f}.",
        )
    if refits is not None:
        yield Figure(
            "stability",
            "stability",
            refits.stability,
            f"{refits.stability:.2f}",
            "Adjusted Rand index between the clustering and refits on random halves of the points with other "
            "seeds, averaged over five refits: 1 if all refits find the same clusters, 0 at chance level.",
        )
    if (separation := silhouette(clustering)) is not None:
        yield Figure(
            "silhouette",
            "silhouette",
            separation,
            f"{separation:.2f}",
            "Compares the distance of a point to its own cluster with that to the nearest other cluster, in the "
            "space of the clustering, averaged over the points: 1 if all clusters are far apart, 0 if they touch.",
        )
    if (agreement := clustering.whole.agreement_) is not None:
        yield Figure(
            "agreement",
            "agreement",
            agreement,
            percent(agreement),
            "Share of the points, without ties, to which the network that is explained gives the label that the "
            "clusterer has for them.",
        )


def verdict(clustering: Clustering, tree: TreePart, flipping: FlippingPart | None) -> str:
    """Summarise the result in one or two sentences."""
    leaves = tree.tree.n_leaves
    rules = f"{leaves} rules assign" if leaves > 1 else "One rule assigns"
    fidelity = f"{rules} {percent(tree.held_out)} of the {_tested(tree)} to their own cluster."
    if flipping is None:
        return fidelity
    measures = {"insertion": flipping.insertion, "removal": flipping.removal}
    found = "; ".join(f"by {measure}, {_better(rivalry)}" for measure, rivalry in measures.items())
    return (
        f"{fidelity} Columns are ranked by NEON, which was chosen by insertion. Pixel-flipping of this "
        f"clustering: {found}."
    )


def _better(rivalry: Rivalry) -> str:
    better = rivalry.rival if rivalry.lead > rivalry.error else "no method"
    areas = f"{rivalry.rival} {rivalry.best:.1f}, NEON {rivalry.auc:.1f}, standard error {rivalry.error:.1f}"
    return f"{better} is clearly better ({areas})"


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
    clustering: Clustering, tree: TreePart, relevance: Relevance, refits: RefitPart | None, names: list[str]
) -> Iterator[Caution]:
    """Yield warnings about the results."""

    def listed(clusters: list[int]) -> str:
        *first, last = (names[cluster] for cluster in clusters)
        return f"{', '.join(first)} and {last}" if first else last

    who = f"The {clustering.whole.head.detection.stand_in}"
    agreement = clustering.whole.agreement_
    if agreement is not None and agreement < FAITHFUL:
        yield Caution(
            f"The clusterer has another label than the network for {percent(1 - agreement)} of the points: the "
            "rows may not be those that it was fitted on, or on another scale."
        )
    held_out = clustering.whole.fidelity_held_out_
    clusters = range(clustering.k)
    if held_out is not None and held_out < FAITHFUL:
        yield Caution(
            f"{who} assigns {percent(1 - held_out)} of the held-out points to another cluster than "
            "their label: the attributions explain a clustering that differs from yours to this extent."
        )
    noise_told = clustering.whole.noise_held_out_
    if noise_told is not None and noise_told < FAITHFUL:
        yield Caution(
            f"{who} takes {percent(1 - noise_told)} of the held-out points for noise although they are "
            "clustered, or the reverse, and about as many of new points."
        )
    if held_out is not None and (lost := _lost(clustering)):
        yield Caution(f"{who} assigns many points of {listed(lost)} to other clusters.", lost)
    total = np.abs(relevance.values).mean(0)
    if relevance.weight is not None:
        total = np.average(np.abs(relevance.values), axis=0, weights=relevance.weight)
    own_tree = isinstance(clustering.net.head.competition, Path)  # trees use few columns by design
    scaled = clustering.kind in ("table", "texts") and not own_tree
    if scaled and total.sum() > 0 and total.max() / total.sum() >= ALONE and len(total) > 1:
        yield Caution(
            f"A single column has most of the relevance: {relevance.table.columns[total.argmax()]}. Check whether "
            "its scale differs from others."
        )
    if clustering.kind == "table":
        yield from map(Caution, on_suspects(relevance.table.loc[:, total > 0]))
    noise = clustering.share(clustering.positions < 0)
    if noise > MUCH:
        yield Caution(f"{percent(noise)} of the points are noise, which key figures leave out.")
    if tree.held_out < FAITHFUL:
        yield Caution(
            f"The rules assign {percent(1 - tree.held_out)} of the {_tested(tree)} to another cluster. A tree "
            "with more leaves would be harder to read; see the cost against the number of leaves."
        )
    if without := _without_rules(clustering, tree):
        yield Caution(f"No rule leads to {listed(without)}.", without)
    if refits is not None:
        weak = [cluster for cluster in clusters if refits.overlaps[cluster] < KEPT]
        if refits.stability < STABLE:
            yield Caution(
                "The clusters are unstable: refits on halves of the points reach a mean adjusted Rand index "
                f"of only {refits.stability:.2f}.",
                weak,
            )
        elif weak:
            yield Caution(f"Refits on halves do not reproduce some clusters: {listed(weak)}.", weak)
    numbers = np.bincount(clustering.positions[clustering.clustered], minlength=clustering.k)  # a weight is no row
    if small := [cluster for cluster in clusters if 0 < numbers[cluster] < SMALL]:
        yield Caution(f"Some clusters have fewer than {SMALL} points; statements about them are uncertain.", small)


def _tested(tree: TreePart) -> str:
    return "held-out points" if tree.unseen else "points"


def _lost(clustering: Clustering) -> list[int]:
    """Find clusters of which the surrogate assigns many points to other clusters."""
    index = clustering.sample
    agrees = as_array(clustering.net.predict(clustering.inputs(index))) == clustering.labels[index]
    weight = clustering.weights_at(index)
    positions = clustering.positions[index]
    shares = pd.Series(agrees).groupby(positions).mean()
    if weight is not None:
        sums = pd.Series(weight).groupby(positions).sum()
        shares = pd.Series(agrees * weight).groupby(positions).sum() / sums
    return [cluster for cluster in shares.index[shares < LOST].tolist() if cluster >= 0]


def _without_rules(clustering: Clustering, tree: TreePart) -> list[int]:
    """Find clusters that have points but no leaf in the tree."""
    leaves = tree.tree.label[tree.tree.leaves].numpy()
    covered = clustering.net.positions(tree.tree.classes[leaves]).numpy()
    return np.setdiff1d(np.flatnonzero(clustering.sizes), covered).tolist()
