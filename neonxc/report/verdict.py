"""The verdict of a report: its figures, a sentence, and what to know before it is believed."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from neonxc.competition import Path
from neonxc.inputs import as_array
from neonxc.numerals import percent
from neonxc.report.contents import Caution, Figure
from neonxc.report.relevance import Relevance
from neonxc.report.reproduce import one_line
from neonxc.report.subject import Subject
from neonxc.report.tree import TreePart
from neonxc.report.trust import FlippingPart, RefitPart

FAITHFUL = 0.95
LOST = 0.8  # of a cluster's points with the right label, below which it is lost
ALONE = 0.7  # share of a column in all relevance, from which it decides alone
STABLE = 0.8  # adjusted Rand index of refits
KEPT = 0.6  # Jaccard index of a cluster with its refits
MUCH = 0.2  # noise among all points
SMALL = 10  # points of a cluster about which little can be said

THINGS = {"table": "rows", "images": "images", "locations": "locations", "texts": "texts"}


def what(subject: Subject) -> str:
    """What was clustered and how."""
    things = f"{subject.n:,} {THINGS[subject.kind]}"
    if subject.kind == "locations":
        things += f" of {len(subject.X)} photos"
    width = f" by {len(subject.units):,} columns" if subject.kind == "table" else ""
    how = "given labels" if subject.model is None else _how(subject.model)
    return f"{things}{width}, {subject.k} clusters, by {how}"


def _how(model: Any) -> str:
    """A clusterer with its parameters, and the names of the steps before it."""
    if not isinstance(model, Pipeline):
        return one_line(model)
    steps = [type(step).__name__ for _, step in model.steps[:-1] if step not in (None, "passthrough")]
    return one_line(model[-1]) + (f" behind {', '.join(steps)}" if steps else "")


def figures(subject: Subject, tree: TreePart, flipping: FlippingPart, refits: RefitPart | None) -> list[Figure]:
    """The figures that the verdict stands on."""
    found = [
        Figure(
            "fidelity",
            "tree agrees",
            tree.held_out,
            percent(tree.held_out),
            f"Share of points to which the tree of {tree.tree.n_leaves} leaves gives their own cluster, "
            + ("of those that it was not grown on." if tree.unseen else "too few to hold some of them out."),
        ),
        Figure(
            "price",
            "price of the tree",
            tree.price,
            f"× {tree.price:.2f}",
            "Squared distances to the means of the tree's clusters over those to the means of the clustering: 1 "
            "costs nothing, and less is possible where the clustering did not minimise them.",
        ),
        Figure(
            "auc",
            "attribution",
            flipping.auc,
            f"{flipping.auc:.0f} of 100",
            "Area under the pixel-flipping curve: how soon points are back in their cluster when columns are "
            f"revealed, the most relevant ones first. The best of the other methods, {flipping.rival}, has "
            f"{flipping.best:.0f}.",
        ),
    ]
    held_out = subject.whole.fidelity_held_out_
    if held_out is not None:
        found.insert(
            0,
            Figure(
                "surrogate",
                "surrogate agrees",
                held_out,
                percent(held_out),
                "The clustering is known by its labels alone, and a kernel k-means stands in for it: share of "
                "points with the same label, of those that it was not fitted to.",
            ),
        )
    stable = subject.whole.stability_
    if stable is not None:
        found.insert(
            0 if held_out is None else 1,
            Figure(
                "surrogate_stability",
                "explanations stay",
                stable,
                percent(stable),
                "One minus the relative change of the attributions if the kernel k-means that stands in for the "
                "labels is fitted without a twentieth of the points, mean of three fits.",
            ),
        )
    if refits is not None:
        mean = float(np.mean(refits.seeds))
        text = (
            "Adjusted Rand index with the clustering, mean of five refits on 80% of the points from other seeds."
        )
        found.append(Figure("stability", "stability", mean, f"{mean:.2f}", text))
    return found


def sentence(subject: Subject, tree: TreePart, flipping: FlippingPart) -> str:
    """The result in a sentence or two."""
    leaves = tree.tree.n_leaves
    rules = f"{leaves} rules" if leaves > 1 else "one rule"
    unseen = ", of those not used to find the rules" if tree.unseen else ""
    give = "give" if leaves > 1 else "gives"
    right = f"{rules} {give} {percent(tree.held_out)} of the points their cluster{unseen}"
    compared = "By pixel-flipping no other method that was tried orders the columns better than the attribution"
    if flipping.behind:
        compared = f"By pixel-flipping {flipping.rival} orders the columns better than the attribution"
    return f"{right[0].upper()}{right[1:]}. {compared}."


def warned(
    subject: Subject, tree: TreePart, relevance: Relevance, refits: RefitPart | None, titles: list[str]
) -> list[Caution]:
    """What to know first, in plain words."""
    found = []
    held_out = subject.whole.fidelity_held_out_
    if held_out is not None and held_out < FAITHFUL:
        found.append(
            Caution(
                f"The network that stands in for the labels gives {percent(1 - held_out)} of the points another "
                "cluster: its attributions explain a clustering that differs from yours by that much."
            )
        )
    if held_out is not None and (lost := _lost(subject)):
        names = _listed([titles[k] for k in lost])
        found.append(Caution(f"The stand-in loses points of {names}.", lost))
    total = np.abs(relevance.values).mean(0)
    own_tree = isinstance(subject.net.head.competition, Path)  # a tree goes by few columns anyway
    if not own_tree and total.sum() > 0 and total.max() / total.sum() >= ALONE and len(total) > 1:
        name = subject.units[relevance.shown[int(total.argmax())]]
        found.append(Caution(f"One column decides nearly alone: {name}. Is it on another scale than the others?"))
    noise = int((subject.own < 0).sum())
    if noise > MUCH * subject.n:
        found.append(
            Caution(f"{percent(noise / subject.n)} of the points are noise: rules and figures leave them out.")
        )
    if tree.held_out < FAITHFUL:
        found.append(
            Caution(
                f"The rules give {percent(1 - tree.held_out)} of the points another cluster. More leaves cost "
                "readability; see cost against length."
            )
        )
    if without := _without_rules(subject, tree):
        found.append(Caution(f"No rule leads to {_listed([titles[k] for k in without])}.", without))
    if refits is not None:
        mean = float(np.mean(refits.seeds))
        weak = [k for k in range(subject.k) if refits.kept[k] < KEPT]
        if mean < STABLE:
            found.append(Caution(f"Clusters change from run to run: five refits agree to {mean:.2f} only.", weak))
        elif weak:
            found.append(
                Caution(
                    f"Some clusters are not found again by refits: {_listed([titles[k] for k in weak])}.", weak
                )
            )
    small = [k for k in range(subject.k) if 0 < subject.sizes[k] < SMALL]
    if small:
        found.append(
            Caution(f"Clusters of fewer than {SMALL} points: what is said of them rests on little.", small)
        )
    return found


def _lost(subject: Subject) -> list[int]:
    """Clusters of which the surrogate loses many points."""
    index = subject.sample
    labels = as_array(subject.net.predict(subject.inputs(index)))
    own = subject.own[index]
    return [
        k
        for k in range(subject.k)
        if (own == k).any() and float((labels[own == k] == subject.net.classes_[k]).mean()) < LOST
    ]


def _without_rules(subject: Subject, tree: TreePart) -> list[int]:
    """Clusters that have points and no leaf."""
    told = set(tree.tree.classes[tree.tree.label[tree.tree.leaves].numpy()].tolist())
    labels = subject.net.classes_.tolist()
    return [k for k in range(subject.k) if subject.sizes[k] and labels[k] not in told]


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
