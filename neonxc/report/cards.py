"""Cards of the clusters: statements, rules, typical and borderline points; and comparisons of two clusters."""

from __future__ import annotations

from collections import defaultdict
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from neonxc.attribution.contrasts import contrasted, relevance_of_pair
from neonxc.attribution.typical import typical
from neonxc.common import colours
from neonxc.common.numbers import rounded, shares
from neonxc.common.progress import progress_bar
from neonxc.common.sizes import MAX_TESTED_COLUMNS as SEARCHED
from neonxc.data.labels import NOISE
from neonxc.data.weights import as_count, drawn
from neonxc.report.clustering import Clustering
from neonxc.report.contents import Card, Item, Pair, RuleText, Statement
from neonxc.report.items import items, whole_photos
from neonxc.report.relevance import Relevance
from neonxc.report.statements import statements as statements_of
from neonxc.report.statements import typical_values
from neonxc.report.tree import TreePart
from neonxc.report.trust import agree

MEMBERS = 4  # maximum number of prototypes, and of borderline cases


def cards(
    clustering: Clustering,
    relevance: Relevance,
    statements: list[list[Statement]],
    names: list[str],
    colors: list[str],
    tree: TreePart,
) -> list[Card]:
    """Make one card per cluster, in the order of the network's outputs."""
    described = []
    rules = _rules(clustering, tree)
    agreements = agree(clustering, tree)
    for cluster, label in enumerate(clustering.cluster_labels):
        inside = np.flatnonzero(relevance.positions == cluster)
        card = Card(
            label,
            names[cluster],
            as_count(clustering.sizes[cluster]),
            clustering.share(clustering.positions == cluster),
            colors[cluster],
            rules.get(clustering.net.classes_.tolist()[cluster], []),
            statements[cluster],
            *_examples(clustering, relevance, cluster),
        )
        if len(inside):
            members = np.flatnonzero(clustering.positions == cluster)
            of_rivals = clustering.weights_at(relevance.index[inside])
            card.nearest = int(np.bincount(relevance.rival[inside], of_rivals).argmax())
            is_mistaken = np.isin(members, tree.mistaken)
            card.fidelity = float(1 - np.average(is_mistaken, weights=clustering.weights_at(members)))
        card.agreement = None if np.isnan(agreements[cluster]) else float(agreements[cluster])
        described.append(card)
    return described


def noise_card(clustering: Clustering, relevance: Relevance) -> Card | None:
    """Make the card of noise: by which columns points are noise, and which clusters they are nearest to.

    None if no point is noise, or if noise is explained like a cluster.
    """
    inside = relevance.positions < 0
    rivals = relevance.rival[inside]
    weight = clustering.weights_at(relevance.index[inside])
    if not len(rivals) or clustering.net.noise_position < 0:
        return None
    n = clustering.noise_total
    clusters, of_cluster = np.unique(rivals, return_inverse=True)
    times = np.bincount(of_cluster, weight)
    order = np.argsort(-times, kind="stable")
    numbers = times[order] * n / times.sum()  # relevance is that of a sample
    if isinstance(n, int):
        numbers = np.round(numbers).astype(int)
    clear, near = _examples(clustering, relevance, NOISE)
    return Card(
        str(NOISE),
        "noise",
        n,
        clustering.share(clustering.positions < 0),
        colours.NOISE,
        statements=statements_of(clustering, relevance, NOISE),
        prototypes=clear,
        borderline=near,
        nearest=int(clusters[order[0]]),
        rivals=[*zip(clusters[order].tolist(), numbers.tolist(), strict=True)],
    )


def _examples(clustering: Clustering, relevance: Relevance, cluster: int) -> tuple[list[Item], list[Item]]:
    """Typical points of a cluster, or the clearest ones of noise (-1), and those with the smallest logit."""
    if clustering.kind == "locations":  # show whole photos instead of single locations
        return whole_photos(clustering, cluster, MEMBERS), []
    inside = np.flatnonzero(relevance.positions == cluster)
    most = clustering.shortened(MEMBERS)
    order = inside[np.argsort(-relevance.logit[inside], kind="stable")]
    n_largest = min(most, len(order) // 2) or len(order)
    inputs = clustering.inputs(relevance.index)
    chosen = typical(
        clustering.net, inputs, relevance.positions, relevance.logit, cluster, n_largest, relevance.weight
    )
    smallest = order[~np.isin(order, chosen)][::-1][: min(most, len(order) - n_largest)]
    return items(clustering, relevance, chosen), items(clustering, relevance, smallest)


def _rules(clustering: Clustering, tree: TreePart) -> dict[Any, list[RuleText]]:
    """Rules of every label, by decreasing coverage."""
    rules: dict[Any, list[RuleText]] = defaultdict(list)
    for rule in tree.tree.rules(feature_names=clustering.names, terms=clustering.has_terms):
        coverage, precision = np.nan_to_num([rule.coverage, rule.precision]).tolist()
        noisy = rule.counts.precision_with_noise if rule.counts.noise else None
        rules[rule.label].append(
            RuleText(rule.text(), as_count(rule.samples), coverage, precision, rule.leaves[0], noisy)
        )
    return {label: sorted(texts, key=lambda rule: -rule.coverage) for label, texts in rules.items()}


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
    clusters = np.flatnonzero(clustering.sizes).tolist()
    compared = list(combinations(clusters, 2))
    notes = []
    width = len(clustering.units)
    slow = clustering.kind == "texts" and clustering.net.inputs.propagates
    if len(clusters) > ALL or (slow and len(clusters) > RIVALS + 1):
        compared = _rivals(clustering, relevance)
        which = "Of clusters behind a sentence encoder" if slow else f"Of more than {ALL} clusters"
        notes.append(
            f"{which}, each is compared only with its {RIVALS} nearest rivals: the clusters that most "
            "often have the next largest logit at its points."
        )
    if trees and width > SEARCHED:
        notes.append(f"Trees test only the {SEARCHED} columns most relevant to the pair, of {width:,}.")
    most = FEWEST if slow else max(FEWEST, MOST // (2 * len(compared)))
    bar = progress_bar(compared, desc="pairs of clusters")
    return [_pair(clustering, pair, most, relevance.shown_positions, trees) for pair in bar], notes


def _rivals(clustering: Clustering, relevance: Relevance) -> list[tuple[int, int]]:
    """Pairs of every cluster and its nearest rivals."""
    ends = pd.DataFrame({"cluster": relevance.positions, "rival": relevance.rival})
    weight = clustering.weights_at(relevance.index)
    there = ends[(ends["cluster"] >= 0) & (clustering.sizes[ends["rival"]] > 0)]
    if weight is None:
        times = there.value_counts()
    else:
        sums = pd.Series(weight).groupby([there["cluster"], there["rival"]]).sum()
        times = sums.sort_values(ascending=False, kind="stable")
    return sorted({(min(pair), max(pair)) for pair in times.groupby("cluster").head(RIVALS).index})


def _pair(clustering: Clustering, pair: tuple[int, int], most: int, shown: dict[int, int], trees: bool) -> Pair:
    """Compare two clusters by at most `most` points of each, and by the columns that the report shows."""
    of_clusters = [np.flatnonzero(clustering.positions == cluster) for cluster in pair]
    samples = [drawn(rows, most, clustering.weights_at(rows)) for rows in of_clusters]
    members = [rows for rows, _ in samples]
    masses = [mass for _, mass in samples]
    weights = None if clustering.weight is None else [mass for mass in masses if mass is not None]
    inputs = clustering.inputs(np.concatenate(members))
    places = np.split(np.arange(len(members[0]) + len(members[1])), [len(members[0])])
    relevance = relevance_of_pair(clustering.net, inputs, places, pair, weights)
    share = shares(relevance.sum(axis=1).to_numpy())
    order = [column for column in np.argsort(-np.abs(share), kind="stable").tolist() if column in shown]
    order = order[: clustering.shortened(COLUMNS)]
    tables = [clustering.values(rows, np.array(order, dtype=np.int64)) for rows in members]
    columns = []
    for i, column in enumerate(order):
        of_a, of_b = typical_values(tables[0].iloc[:, i], tables[1].iloc[:, i], clustering.kind, masses)
        columns.append((shown[column], rounded([share[column]])[0], of_a, of_b))
    if not trees:
        return Pair(*pair, columns)
    contrast = contrasted(clustering.net, inputs, places, pair, ENOUGH, relevance, weights)
    rules = [(pair[0] if rule.label == contrast.a else pair[1], rule.text()) for rule in contrast.rules]
    return Pair(*pair, columns, rules, rounded([contrast.accuracy])[0])
