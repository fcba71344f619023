"""Layers of labels as forks, nested or crossing.

Layers are sorted by their number of clusters, the coarsest first.

    home of a cluster      the cluster of the next coarser layer that has most of its rows, the first of several
                           with as many; if more of them are noise there than are in any cluster, the home of these
                           in the layer before it, and so on; the root, if this is so in all coarser layers
    parts of a cluster     the clusters whose home it is
    part of a row          the first of the parts, by layer, that has the row

A cluster that crosses the border of two coarser ones thus belongs to one of them. The rows of its that are in the
other one are in no part there, and are counted by where they are.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from neonxc.common.cluster_names import label_text
from neonxc.common.types import Label
from neonxc.hierarchy.forks import ROOT, Fork, Integers, Origin, part_name

NOISE = "noise"


class Layer(NamedTuple):
    """The clusters of one resolution."""

    name: str  # "layer 1", or the name of the column that they are from
    codes: Integers  # [N], positions of the clusters; -1: noise
    labels: list[Label]  # [K]
    origin: Origin

    def rows_of(self, cluster: int) -> Integers:
        """Return the sorted rows of a cluster."""
        return np.flatnonzero(self.codes == cluster)


Node: TypeAlias = tuple[int, int]
"""A cluster by the positions of its layer and among the clusters of the layer; `TOP` is the root."""
TOP: Node = (-1, 0)


def forks_of_layers(layers: Sequence[Layer]) -> list[Fork]:
    """Return the forks of layers, those of coarser layers first."""
    ordered = sorted(layers, key=lambda layer: len(layer.labels))
    parts = _parts(ordered)
    forks = []
    names = {TOP: ROOT}
    waiting = [TOP]
    for node in waiting:  # grows inside the loop, by one layer after the other
        name = names[node]
        while len(parts[node]) == 1:
            node = parts[node][0]
            names[node] = name
        children = parts[node]
        if children:
            names.update(_names(name, children, ordered))
            waiting += children
            forks.append((node, children))
    forks.sort(key=lambda fork: fork[0])
    return [_fork(node, children, ordered, names) for node, children in forks]


def _parts(layers: Sequence[Layer]) -> dict[Node, list[Node]]:
    """Return the parts of every cluster and of the root, by layer."""
    parts: dict[Node, list[Node]] = defaultdict(list)
    for number, layer in enumerate(layers):
        for cluster in range(len(layer.labels)):
            rows = layer.rows_of(cluster)
            parts[_home(rows, layers[:number])].append((number, cluster))
    return parts


def _home(rows: Integers, coarser: Sequence[Layer]) -> Node:
    """Return the cluster in coarser layers to which the rows of a cluster belong."""
    for number in reversed(range(len(coarser))):
        layer = coarser[number]
        codes = layer.codes[rows]
        is_noise = codes < 0
        counts = np.bincount(codes[~is_noise], minlength=1)
        if counts.max() >= is_noise.sum():
            return number, int(counts.argmax())
        rows = rows[is_noise]  # others may be in a part of another cluster, and the part would have no row
    return TOP


def _names(parent: str, children: Sequence[Node], layers: Sequence[Layer]) -> dict[Node, str]:
    """Return the names of the parts of a cluster; those of several layers may have the same label."""
    labels = [label_text(layers[number].labels[cluster]) for number, cluster in children]
    names = {}
    for (number, cluster), label in zip(children, labels, strict=True):
        if labels.count(label) > 1:
            label = f"{label} ({layers[number].name})"
        names[number, cluster] = part_name(parent, label)
    return names


def _fork(node: Node, children: Sequence[Node], layers: Sequence[Layer], names: dict[Node, str]) -> Fork:
    """Return a fork, with the rows that are in none of its parts counted by where they are."""
    if node == TOP:
        rows = np.arange(len(layers[0].codes))
    else:
        rows = layers[node[0]].rows_of(node[1])
    codes = np.full(len(rows), -1)
    for part, (number, cluster) in enumerate(children):
        is_in_part = layers[number].codes[rows] == cluster
        codes[is_in_part & (codes < 0)] = part

    nearest = children[0][0]  # the layer of most parts
    left = layers[nearest].codes[rows[codes < 0]]
    counts = Counter(NOISE if code < 0 else names[nearest, code] for code in left.tolist())
    elsewhere = dict(counts.most_common())
    parts = [names[child] for child in children]
    labels: list[Label] = []
    if children[-1][0] == nearest:  # all are of one layer
        labels = [layers[nearest].labels[cluster] for _, cluster in children]
    return Fork(names[node], parts, rows, codes, elsewhere, layers[nearest].origin, labels)
