"""The fitted tree, made of a grown one: nodes in preorder, numbers of points, and the tree's clusters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import nan
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from neonxc.common.processes import ALONE, Ranks
from neonxc.trees.cuts.exact_sums import counts_by_label
from neonxc.trees.cuts.growth import Grown, majority
from neonxc.trees.fit.batches import Batches
from neonxc.trees.fit.given import Given
from neonxc.trees.fit.points import CHUNK, Dense, nearest_values
from neonxc.trees.fit.problem import Problem
from neonxc.trees.fit.reference import filled
from neonxc.trees.fit.sparse_points import Points
from neonxc.trees.tree import ThresholdTree


class Finished(NamedTuple):
    """A fitted tree, the cluster of every point, and what its clusters cost.

    Attributes
    ----------
    tree : ThresholdTree
    cluster : Tensor [n] of int64
        Position in ``tree.classes`` of the cluster of every point that `fit` was handed.
    centers, space_means : Tensor [k, d], Tensor [k, p]
        Means of the clusters in the columns, and in the space in which costs are measured.
    inertia : float
        k-means cost of the clusters.
    """

    tree: ThresholdTree
    cluster: Tensor
    centers: Tensor
    space_means: Tensor
    inertia: float


def finished(given: Given, problem: Problem, grown: Grown, priced: bool) -> Finished:
    """Turn a grown tree into a fitted one.

    Parameters
    ----------
    given : Given
    problem : Problem
    grown : Grown
    priced : bool
        Whether the cost of the tree's clusters is compared with that of the reference clustering.
    """
    tree, leaf = _tree_of(given, problem, grown)
    found = problem.reference
    weight = problem.weight
    ranks = problem.ranks
    own = tree.label[leaf].to(problem.device)
    k = len(tree.classes)
    if isinstance(problem.table, Batches):
        means, inertia, variances, nearest = problem.table.moments(own, k, tree)
        if isinstance(found.space, Batches) and found.space is not problem.table:
            means, inertia, *_ = found.space.moments(own, k)
        space_means = filled(means, found.space_centers)
    else:
        variances, nearest = _tested_values(problem.table, tree, weight, ranks)
        space_means = filled(found.space.means(own, k, weight, ranks), found.space_centers)
        inertia = problem.inertia(own, space_means)
    centers = space_means
    if found.space is not problem.table:
        centers = filled(problem.filled.means(own, k, weight, ranks), found.centers)
    bounds = ranks.min(nearest)
    bounds[:, 2].neg_()  # the greatest value below
    every = leaf if given.rows is None else given.leaf_of(tree)
    cost = problem.reference_cost if priced else None
    tree = replace(
        tree,
        spread=variances.sqrt().where(variances > 0, 1),
        bounds=bounds,
        noise=None if given.noise is None else ranks.sum(counts_by_label(every, tree.n_nodes, given.noise)),
        cost_ratio=round(inertia / cost, 9) if cost else None,
    )
    return Finished(tree, tree.label[every], centers, space_means, inertia)


def _tested_values(
    table: Points, tree: ThresholdTree, weight: Tensor | None, ranks: Ranks
) -> tuple[Tensor, Tensor]:
    """Variances [d] over all processes of the columns that a tree tests (0 for others), and nearest values."""
    variances = torch.zeros(table.d, dtype=torch.float64)
    rows = [torch.empty(0, 5, dtype=torch.float64)]
    tested = tree.feature[tree.feature >= 0].unique()
    most = max(1, int(ranks.max(torch.tensor(table.n))))
    for columns in tested.split(max(1, CHUNK // most)) if len(tested) else ():
        values = torch.stack([table.column(column).to(torch.float64) for column in columns.tolist()])
        every = torch.arange(table.n, device=table.device)
        variances[columns] = Dense(values.T).variances(every, weight, ranks).cpu()
        rows.append(nearest_values(tree, columns, values))
    return variances, torch.cat(rows)


def _tree_of(given: Given, problem: Problem, grown: Grown) -> tuple[ThresholdTree, Tensor]:
    """The tree without what depends on the values of the points, and the leaf of every point of the fit."""
    leaf = torch.empty(problem.n, dtype=torch.int64, device=problem.device)
    label = [0] * len(grown.feature)
    for node in grown.leaves:
        leaf[node.rows] = node.id
        label[node.id] = majority(problem, node) if grown.clusters is None else grown.clusters[node.id]
    tree, leaf = in_preorder(
        grown,
        leaf.cpu(),
        label,
        problem.labels.cpu(),
        None if problem.weight is None else problem.weight.cpu(),
        problem.ranks,
        n_features=given.n_features,
        classes=problem.reference.classes,
        feature_names=None if given.names is None else tuple(given.names),
        encoding=None if problem.mixed is None else problem.mixed.encoding,
        boolean=given.boolean if problem.mixed is None else None,
        n_noise=given.n_noise,
        table_format=given.table_format,
    )
    if grown.clusters is None:
        numbers = torch.full_like(tree.label, -1)
        numbers[tree.leaves] = torch.arange(tree.n_leaves)
        tree = tree.relabel(numbers, np.arange(tree.n_leaves))
    return tree, leaf


def in_preorder(
    grown: Grown,
    leaf: Tensor,
    label: Sequence[int],
    reference: Tensor,
    weight: Tensor | None = None,
    ranks: Ranks = ALONE,
    **described: Any,
) -> tuple[ThresholdTree, Tensor]:
    """Number the nodes of a grown tree in preorder and count points; return the tree and the leaf of every point.

    Parameters
    ----------
    grown : Grown
    leaf : Tensor [n] of int
        Leaf of every training point, in the order of creation.
    label : sequence of int, one per node
        Cluster of every leaf; the entries of inner nodes are ignored.
    reference : Tensor [n] of int
        Reference cluster of every training point.
    weight : Tensor [n] or None
    ranks : Ranks
        The processes that share the rows.
    **described : Any
        The columns and the clusters, as for :class:`~neonxc.trees.tree.ThresholdTree`.
    """
    order = torch.tensor(grown.preorder())
    new = torch.empty_like(order)
    new[order] = torch.arange(len(order))
    leaf = new[leaf]
    feature = torch.tensor(grown.feature)[order]
    left, right = (torch.tensor(side)[order] for side in (grown.left, grown.right))
    left, right = (torch.where(feature < 0, -1, new[side.clamp(min=0)]) for side in (left, right))
    labels = torch.where(feature < 0, torch.tensor(label)[order], -1)
    k = max(len(described["classes"]), int(labels.max()) + 1)
    counts = ranks.sum(counts_by_label(leaf * k + reference, len(feature) * k, weight).view(-1, k))
    samples, mistakes = _count(feature, left, right, labels, counts)
    intervals = None
    none = (nan, nan)
    if any(grown.intervals):
        every = [(*pairs, none, none)[:2] for pairs in grown.intervals]
        intervals = torch.tensor(every, dtype=torch.float64)[order]
    tree = ThresholdTree(
        feature,
        torch.tensor(grown.threshold, dtype=torch.float64)[order],
        left,
        right,
        labels,
        samples,
        mistakes,
        intervals=intervals,
        class_samples=counts.sum(0)[: len(described["classes"])],
        **described,
    )
    return tree, leaf


def _count(feature: Tensor, left: Tensor, right: Tensor, label: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Number of points at every node, and number of mistakes.

    The mistakes of a test are the points that it separates from all leaves of their cluster. `counts` [nodes, k]
    are the points of every cluster in the leaves.
    """
    inner = (feature >= 0).numpy()
    own = label.numpy()
    reach = counts.numpy().copy()
    below = np.zeros(reach.shape, dtype=bool)  # whether a leaf of the cluster is below the node
    below[~inner, own[~inner]] = True
    sides = left.numpy()[inner], right.numpy()[inner]
    for node, lower, upper in zip(*(ids[::-1].tolist() for ids in (inner.nonzero()[0], *sides)), strict=True):
        reach[node] = reach[lower] + reach[upper]  # children have greater numbers than their parents
        below[node] = below[lower] | below[upper]
    lost = np.where(below, 0, reach)  # points of clusters that have no leaf below the node
    mistakes = lost.sum(1)
    mistakes[inner] = np.where(below[inner], lost[sides[0]] + lost[sides[1]], 0).sum(1)
    return torch.from_numpy(reach.sum(1)), torch.from_numpy(mistakes)
