"""Cards of the clusters: statements, rules, typical and borderline points; and comparisons of two clusters."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from neonxc.attribution.contrasts import COLUMNS as SEARCHED
from neonxc.attribution.contrasts import contrasted, relevance_of_pair, some_of
from neonxc.common.numbers import rounded
from neonxc.common.progress import progress_bar
from neonxc.report.clustering import Clustering
from neonxc.report.contents import Card, Pair, RuleText, Statement
from neonxc.report.items import items, whole_photos
from neonxc.report.relevance import Relevance
from neonxc.report.statements import typical
from neonxc.report.tree import TreePart

MEMBERS = 4  # maximum number of prototypes, and of borderline cases


def cards(
    clustering: Clustering,
    relevance: Relevance,
    table: pd.DataFrame,
    names: list[str] | None,
    statements: list[list[Statement]],
    titles: list[str],
    colors: list[str],
    tree: TreePart | None,
) -> list[Card]:
    """Make one card per cluster, in the order of the network's outputs."""
    found, most = [], clustering.shortened(MEMBERS)
    photos, rules = None, {} if tree is None else _rules(clustering, tree)
    if clustering.kind == "locations":
        photos, names = whole_photos(clustering, names, MEMBERS), None
    for cluster, label in enumerate(clustering.cluster_labels):
        inside = np.flatnonzero(clustering.own[relevance.index] == cluster)
        order = inside[np.argsort(-relevance.logit[inside], kind="stable")]
        members = min(most, len(order) // 2) or len(order)
        card = Card(
            label,
            titles[cluster],
            int(clustering.sizes[cluster]),
            float(clustering.sizes[cluster] / max(clustering.sizes.sum(), 1)),
            colors[cluster],
            rules.get(clustering.net.classes_.tolist()[cluster], []),
            statements[cluster],
            items(clustering, relevance, table, names, order[:members]),
            items(clustering, relevance, table, names, order[::-1][: min(most, len(order) - members)]),
        )
        if photos is not None:  # show whole photos instead of single locations
            card.prototypes, card.borderline = photos[cluster], []
        if len(inside):
            card.nearest = int(np.bincount(relevance.rival[inside]).argmax())
        if tree is not None:
            mine = np.flatnonzero(clustering.own == cluster)
            card.fidelity = float(1 - np.isin(mine, tree.mistaken).mean()) if len(mine) else None
        found.append(card)
    return found


def _rules(clustering: Clustering, tree: TreePart) -> dict[Any, list[RuleText]]:
    """Rules of every label, by decreasing coverage."""
    found: dict[Any, list[RuleText]] = {}
    for rule in sorted(tree.tree.rules(feature_names=clustering.names), key=lambda rule: -_number(rule.coverage)):
        texts = rule.text(), int(rule.samples), _number(rule.coverage), _number(rule.precision)
        noisy = rule.counts.precision_with_noise if rule.counts.noise else None
        found.setdefault(rule.label, []).append(RuleText(*texts, rule.leaves[0], noisy))
    return found


def _number(value: float) -> float:
    return float(np.nan_to_num(value))


COLUMNS = 8  # maximum number of columns per pair
ENOUGH = 0.95  # accuracy at which a tree stops growing
MOST = 40_000  # approximate number of points of all pairs together
FEWEST = 60  # points per cluster that are used in any case
ALL = 20  # maximum number of clusters of which all pairs are compared
RIVALS = 2  # number of rivals of each cluster that are compared if there are more clusters


def pairs(clustering: Clustering, relevance: Relevance, trees: bool = True) -> tuple[list[Pair], list[str]]:
    """Compare pairs of clusters, and return them with remarks on what was left out.

    Parameters
    ----------
    clustering : Clustering
    relevance : Relevance
    trees : bool
        Whether to grow a tree for every pair.
    """
    there = np.flatnonzero(clustering.sizes).tolist()
    found, notes, width = list(combinations(there, 2)), [], len(clustering.units)
    slow = clustering.kind == "texts" and clustering.net.inputs.propagates
    if len(there) > ALL or (slow and len(there) > RIVALS + 1):
        found = _rivals(clustering, relevance)
        which = "Of clusters behind a sentence encoder" if slow else f"Of more than {ALL} clusters"
        notes.append(
            f"{which}, each is compared only with its {RIVALS} nearest rivals: the clusters that most "
            "often have the next largest logit at its points."
        )
    if trees and width > SEARCHED:
        notes.append(f"Trees test only the {SEARCHED} columns most relevant to the pair, of {width:,}.")
    most = FEWEST if slow else max(FEWEST, MOST // max(1, 2 * len(found)))
    place = {int(unit): i for i, unit in enumerate(relevance.shown)}
    bar = progress_bar(found, desc="pairs of clusters")
    return [_pair(clustering, a, b, most, place, trees) for a, b in bar], notes


def _rivals(clustering: Clustering, relevance: Relevance) -> list[tuple[int, int]]:
    """Pairs of every cluster and its nearest rivals."""
    ends = pd.DataFrame({"own": clustering.own[relevance.index], "rival": relevance.rival})
    times = ends[(ends["own"] >= 0) & (clustering.sizes[ends["rival"]] > 0)].value_counts()
    return sorted({(min(pair), max(pair)) for pair in times.groupby("own").head(RIVALS).index})


def _pair(clustering: Clustering, a: int, b: int, most: int, place: dict[int, int], trees: bool) -> Pair:
    members = [some_of(np.flatnonzero(clustering.own == cluster), most) for cluster in (a, b)]
    rows = np.concatenate(members)
    split = np.split(np.arange(len(rows)), [len(members[0])])
    inputs = clustering.inputs(rows)
    relevance = relevance_of_pair(clustering.net, inputs, split, (a, b))
    values = relevance.sum(axis=1).to_numpy()
    shares = values / max(np.abs(values).sum(), 1e-300)
    order = [unit for unit in np.argsort(-np.abs(shares), kind="stable").tolist() if unit in place][
        : clustering.shortened(COLUMNS)
    ]
    sides = [clustering.values(own, np.array(order, dtype=np.int64)) for own in members]
    signed = []
    for i, unit in enumerate(order):
        of_a, of_b = (typical(side.iloc[:, i], clustering.kind) for side in sides)
        signed.append((place[unit], rounded([shares[unit]])[0], of_a, of_b))
    if not trees:
        return Pair(a, b, signed)
    found = contrasted(clustering.net, inputs, split, (a, b), ENOUGH, relevance)
    rules = [(a if rule.label == found.a else b, rule.text()) for rule in found.rules]
    return Pair(a, b, signed, rules, rounded([found.accuracy])[0])
