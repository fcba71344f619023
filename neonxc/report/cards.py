"""Cards of the clusters: statements, rules, prototypes and borderline cases of each cluster."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from neonxc.report.clustering import Clustering
from neonxc.report.contents import Card, RuleText, Statement
from neonxc.report.items import items, whole_photos
from neonxc.report.relevance import Relevance
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
