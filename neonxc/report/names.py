"""The names of the clusters of a report, and what their blind test tells.

    given by the user      as they are; if there are any, the test is not shown
    tables, texts          chosen and tested as by :func:`neonxc.name_clusters`, on the sample of the points and
                           among the columns whose relevance is shown
    photos, and clusters   by the label: "cluster 3"
    without statements

A name is what the page, rules and tables call a cluster. Its title, which is printed once with the cluster, says
in addition with which cluster it is confused if it did not pass.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from neonxc.common.types import Label
from neonxc.data.table import Table, is_texts
from neonxc.naming.cluster_names import ClusterNames, distinct
from neonxc.naming.naming import Rows, name_groups
from neonxc.report.clustered import ClusteredData
from neonxc.report.relevance import Relevance


class Names(NamedTuple):
    """What clusters are called."""

    names: list[str]  # [k], all different
    titles: list[str]  # [k]
    tested: list[str]  # sentences on the blind test


def name(clustering: ClusteredData, relevance: Relevance) -> Names:
    """Name clusters, as the user did or by statements that pass a blind test where there are any."""
    labels = clustering.cluster_labels
    given = clustering.cluster_names
    chosen = None
    if clustering.has_readable_columns and not given.keys() >= {*labels}:
        chosen = _chosen(clustering, relevance)
    by_label = {} if chosen is None else chosen.names
    names = distinct(labels, [given.get(label, by_label.get(label, "")) for label in labels])
    if chosen is None or given:  # a test among names that are not shown tells nothing of those that are
        return Names(names, names, [])
    titles = [of_cluster + chosen.marks.get(label, "") for label, of_cluster in zip(labels, names, strict=True)]
    return Names(names, titles, chosen.verdict(clustering.thing))


def _chosen(clustering: ClusteredData, relevance: Relevance) -> ClusterNames | None:
    """Choose and test the names of the clusters that have points in the sample."""
    present = [k for k in range(clustering.k) if (relevance.positions == k).any()]
    table = Table.read(relevance.table)
    categories: list[int] = []
    if clustering.has_terms:
        table = clustering.table.take(relevance.index)
        if not is_texts(table):
            return None
    else:
        encoded = set(clustering.net.inputs.categories)
        categories = [i for i, column in enumerate(relevance.shown.tolist()) if column in encoded]
    position = {k: i for i, k in enumerate(present)}
    groups = np.array([position.get(k, -1) for k in relevance.positions.tolist()])
    labels: list[Label] = [clustering.cluster_labels[k] for k in present]
    rows = Rows(table, groups, relevance.weight)
    return name_groups(labels, rows, categories=categories, generator=np.random.RandomState(0))
