"""The verdict of a report: a summary in words, key figures, and warnings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from sklearn.pipeline import Pipeline

from neonxc.common.numbers import percent, text
from neonxc.data.inputs import as_array
from neonxc.data.preparation import on_suspects
from neonxc.evaluation.choice import STABLE
from neonxc.head.competition import Path
from neonxc.report.clustering import Clustering
from neonxc.report.contents import Caution, Figure
from neonxc.report.relevance import Relevance
from neonxc.report.reproduce import one_line
from neonxc.report.tree import TreePart
from neonxc.report.trust import FlippingPart, RefitPart, silhouette

# thresholds of the warnings
FAITHFUL = 0.95  # fidelity of the tree and of the surrogate
LOST = 0.8  # share of the points of a cluster to which the surrogate gives their own label
ALONE = 0.7  # share of a single column in the total relevance
KEPT = 0.6  # mean Jaccard index of a cluster with its counterparts in the refits
MUCH = 0.2  # share of noise
SMALL = 10  # number of points of a cluster

THINGS = {"table": "rows", "images": "images", "locations": "locations", "texts": "texts"}


def description(clustering: Clustering) -> str:
    """Describe the data and the clusterer."""
    things = f"{text(clustering.n)} {THINGS[clustering.kind]}"
    if clustering.kind == "locations":
        things += f" of {len(clustering.X)} photos"
    width = f" with {text(len(clustering.units))} columns" if clustering.kind == "table" else ""
    how = "given labels" if clustering.model is None else _how(clustering.model)
    return f"{things}{width}, {clustering.k} clusters from {how}"


def _how(model: Any) -> str:
    """Describe a clusterer with its parameters and the names of its preprocessing steps."""
    if not isinstance(model, Pipeline):
        return one_line(model)
    steps = [type(step).__name__ for _, step in model.steps[:-1] if step not in (None, "passthrough")]
    return one_line(model[-1]) + (f" after {', '.join(steps)}" if steps else "")


def figures(
    clustering: Clustering, tree: TreePart, flipping: FlippingPart | None, refits: RefitPart | None
) -> list[Figure]:
    """Collect the key figures of the verdict."""
    found = [
        Figure(
            "fidelity",
            "tree fidelity",
            tree.held_out,
            percent(tree.held_out),
            f"Share of points that a tree with {tree.tree.n_leaves} leaves assigns to their own cluster, on "
            + (
                "held-out points."
                if tree.unseen
                else "the training points, because there are too few to hold out."
            ),
        ),
        Figure(
            "price",
            "cost of the tree",
            tree.price,
            f"× {tree.price:.2f}",
            "Sum of squared distances to the cluster means of the tree, divided by that of the clustering. 1 "
            "means no loss. Smaller values are possible if the clustering does not minimise this sum.",
        ),
    ]
    if flipping is not None:
        found.append(
            Figure(
                "auc",
                "attribution AUC",
                flipping.auc,
                f"{flipping.auc:.1f}",
                "Area under the pixel-flipping curve, at most 100: it is large if points return to their cluster "
                "soon when columns are revealed in the order of their relevance. The best of the other methods, "
                f"{flipping.rival}, reaches {flipping.best:.1f}.",
            )
        )
    held_out = clustering.whole.fidelity_held_out_
    if held_out is not None:
        found.insert(
            0,
            Figure(
                "surrogate",
                "surrogate fidelity",
                held_out,
                percent(held_out),
                "Only the labels of the clustering are known, so a kernel k-means surrogate is explained instead. "
                "Share of held-out points to which the surrogate gives their own label.",
            ),
        )
    stable = clustering.whole.stability_
    if stable is not None:
        found.insert(
            0 if held_out is None else 1,
            Figure(
                "surrogate_stability",
                "surrogate stability",
                stable,
                percent(stable),
                "One minus the relative change of the attributions when the surrogate is fitted without 5% of the "
                "points, averaged over three fits.",
            ),
        )
    if refits is not None:
        mean = float(np.mean(refits.seeds))
        text = (
            "Adjusted Rand index between the clustering and refits on random halves of the points with other "
            "seeds, averaged over five refits: 1 if all refits find the same clusters, 0 at chance level."
        )
        found.append(Figure("stability", "stability", mean, f"{mean:.2f}", text))
    apart = silhouette(clustering)
    if apart is not None:
        text = (
            "Compares the distance of a point to its own cluster with that to the nearest other cluster, in the "
            "space of the clustering, averaged over the points: 1 if all clusters are far apart, 0 if they touch."
        )
        found.append(Figure("silhouette", "silhouette", apart, f"{apart:.2f}", text))
    return found


def verdict(clustering: Clustering, tree: TreePart, flipping: FlippingPart | None) -> str:
    """Summarise the result in one or two sentences."""
    leaves = tree.tree.n_leaves
    rules = f"{leaves} rules" if leaves > 1 else "one rule"
    assign = "assign" if leaves > 1 else "assigns"
    right = f"{rules} {assign} {percent(tree.held_out)} of the {_tested(tree)} to their own cluster"
    right = f"{right[0].upper()}{right[1:]}."
    if flipping is None:
        return right
    areas = f"{flipping.rival} has an AUC of {flipping.best:.1f}, NEON {flipping.auc:.1f}"
    better = flipping.rival if flipping.best - flipping.auc > flipping.error else "no method"
    return (
        f"{right} According to pixel-flipping, {better} ranks the columns clearly better than NEON, which is used "
        f"here: {areas} (standard error of the difference: {flipping.error:.1f})."
    )


def cautions(
    clustering: Clustering,
    tree: TreePart,
    relevance: Relevance,
    table: pd.DataFrame,
    refits: RefitPart | None,
    titles: list[str],
) -> list[Caution]:
    """Collect warnings about the results."""
    found = []
    held_out = clustering.whole.fidelity_held_out_
    if held_out is not None and held_out < FAITHFUL:
        found.append(
            Caution(
                f"The surrogate assigns {percent(1 - held_out)} of the held-out points to another cluster than "
                "their label: the attributions explain a clustering that differs from yours to this extent."
            )
        )
    if held_out is not None and (lost := _lost(clustering)):
        names = _listed([titles[k] for k in lost])
        found.append(Caution(f"The surrogate assigns many points of {names} to other clusters.", lost))
    total = np.abs(relevance.values).mean(0)
    own_tree = isinstance(clustering.net.head.competition, Path)  # trees use few columns by design
    if not own_tree and total.sum() > 0 and total.max() / total.sum() >= ALONE and len(total) > 1:
        name = clustering.units[relevance.shown[int(total.argmax())]]
        found.append(
            Caution(
                f"A single column has most of the relevance: {name}. Check whether its scale differs from others."
            )
        )
    if clustering.kind == "table":
        found += [Caution(note) for note in on_suspects(table.loc[:, total > 0])]
    noise = int((clustering.own < 0).sum())
    if noise > MUCH * clustering.n:
        found.append(
            Caution(f"{percent(noise / clustering.n)} of the points are noise, which key figures leave out.")
        )
    if tree.held_out < FAITHFUL:
        found.append(
            Caution(
                f"The rules assign {percent(1 - tree.held_out)} of the {_tested(tree)} to another cluster. A tree "
                "with more leaves would be harder to read; see the cost against the number of leaves."
            )
        )
    if without := _without_rules(clustering, tree):
        found.append(Caution(f"No rule leads to {_listed([titles[k] for k in without])}.", without))
    if refits is not None:
        mean = float(np.mean(refits.seeds))
        weak = [k for k in range(clustering.k) if refits.kept[k] < KEPT]
        if mean < STABLE:
            found.append(
                Caution(
                    "The clusters are unstable: refits on halves of the points reach a mean adjusted Rand index "
                    f"of only {mean:.2f}.",
                    weak,
                )
            )
        elif weak:
            found.append(
                Caution(
                    f"Refits on halves do not reproduce some clusters: {_listed([titles[k] for k in weak])}.", weak
                )
            )
    small = [k for k in range(clustering.k) if 0 < clustering.sizes[k] < SMALL]
    if small:
        found.append(
            Caution(f"Some clusters have fewer than {SMALL} points; statements about them are uncertain.", small)
        )
    return found


def _tested(tree: TreePart) -> str:
    return "held-out points" if tree.unseen else "points"


def _lost(clustering: Clustering) -> list[int]:
    """Find clusters of which the surrogate assigns many points to other clusters."""
    index = clustering.sample
    labels = as_array(clustering.net.predict(clustering.inputs(index)))
    own = clustering.own[index]
    return [
        k
        for k in range(clustering.k)
        if (own == k).any() and float((labels[own == k] == clustering.net.classes_[k]).mean()) < LOST
    ]


def _without_rules(clustering: Clustering, tree: TreePart) -> list[int]:
    """Find clusters that have points but no leaf in the tree."""
    covered = set(tree.tree.classes[tree.tree.label[tree.tree.leaves].numpy()].tolist())
    labels = clustering.net.classes_.tolist()
    return [k for k in range(clustering.k) if clustering.sizes[k] and labels[k] not in covered]


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
