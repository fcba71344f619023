"""Descriptions of the clusters, and of noise: statements, rules, typical and borderline points.

Of a cluster:

    typical       points near its middle that are clearly inside
    borderline    its points with the smallest logits
    nearest       the cluster that most often has the second largest logit at its points
    fidelity      fraction of its points that the tree assigns to it
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from neonxc.attribution.cluster_values import ClusterValues
from neonxc.common.types import Label
from neonxc.data.labels import NOISE
from neonxc.data.weights import as_count
from neonxc.report.checks import agree
from neonxc.report.clustered import ClusteredData
from neonxc.report.description import ClusterDescription, RuleText, Statement
from neonxc.report.names import Names
from neonxc.report.relevance import Relevance
from neonxc.report.statements import statements as statements_of
from neonxc.report.tree import FittedTree

MEMBERS = 4  # maximum number of prototypes, and of borderline cases


def describe_clusters(
    clustering: ClusteredData,
    relevance: Relevance,
    statements: list[list[Statement]],
    named: Names,
    tree: FittedTree,
    values: ClusterValues,
) -> list[ClusterDescription]:
    """Describe the clusters in the order of the network's outputs, and then noise if it has an output."""
    described = []
    rules = _rules(clustering, tree)
    agreements = agree(clustering, tree)
    classes = clustering.net.classes_.tolist()
    for k, label in enumerate(clustering.cluster_labels):
        prototypes, borderline = clustering.members_shown(relevance, k, clustering.shortened(MEMBERS))
        cluster = ClusterDescription(
            label=label,
            name=named.names[k],
            title=named.titles[k],
            size=as_count(clustering.sizes[k]),
            share=clustering.share(clustering.positions == k),
            rules=rules.get(classes[k], []),
            statements=statements[k],
            prototypes=prototypes,
            borderline=borderline,
        )
        inside = np.flatnonzero(relevance.positions == k)
        if len(inside):
            competitors = relevance.competitor[inside]
            weight = clustering.weights_at(relevance.index[inside])
            cluster.nearest = int(np.bincount(competitors, weight).argmax())
            cluster.fidelity = _fidelity(clustering, tree, k)
        if not np.isnan(agreements[k]):
            cluster.agreement = float(agreements[k])
        described.append(cluster)
    noise = _describe_noise(clustering, relevance, values)
    if noise is not None:
        described.append(noise)
    return described


def _fidelity(clustering: ClusteredData, tree: FittedTree, cluster: int) -> float:
    """Share of the points of a cluster that the tree assigns to it."""
    members = np.flatnonzero(clustering.positions == cluster)
    is_mistaken = np.isin(members, tree.mistaken)
    return float(1 - np.average(is_mistaken, weights=clustering.weights_at(members)))


def _describe_noise(
    clustering: ClusteredData, relevance: Relevance, values: ClusterValues
) -> ClusterDescription | None:
    """Describe noise: by which columns points are noise, and which clusters they are nearest to.

    None if no point is noise, or if noise is explained like a cluster.
    """
    inside = relevance.positions < 0
    if not inside.any() or clustering.net.noise_position < 0:
        return None
    clusters, of_cluster = np.unique(relevance.competitor[inside], return_inverse=True)
    times = np.bincount(of_cluster, clustering.weights_at(relevance.index[inside]))
    order = np.argsort(-times, kind="stable")

    n = clustering.noise_total
    numbers = times[order] * n / times.sum()  # relevance is that of a sample
    if isinstance(n, int):
        numbers = np.round(numbers).astype(int)
    clearest, nearest = clustering.members_shown(relevance, NOISE, clustering.shortened(MEMBERS))
    return ClusterDescription(
        label=str(NOISE),
        name="noise",
        title="noise",
        size=n,
        share=clustering.share(clustering.positions < 0),
        statements=statements_of(clustering, relevance, NOISE, values),
        prototypes=clearest,
        borderline=nearest,
        nearest=int(clusters[order[0]]),
        near=[*zip(clusters[order].tolist(), numbers.tolist(), strict=True)],
    )


def _rules(clustering: ClusteredData, tree: FittedTree) -> dict[Label, list[RuleText]]:
    """Rules of every label, by decreasing coverage."""
    rules: dict[Label, list[RuleText]] = defaultdict(list)
    for rule in tree.tree.rules(feature_names=clustering.rule_names, terms=clustering.has_terms):
        coverage, precision = np.nan_to_num([rule.coverage, rule.precision]).tolist()
        with_noise = rule.counts.precision_with_noise if rule.counts.noise else None
        samples = as_count(rule.samples)
        rules[rule.label].append(RuleText(rule.text(), samples, coverage, precision, rule.leaves[0], with_noise))
    return {label: sorted(texts, key=lambda rule: -rule.coverage) for label, texts in rules.items()}
