"""Step 5 of a fit: the fitted tree, made of a grown one, and what its clusters cost.

1. The nodes are numbered in preorder, from 0: a node, its left branch, its right branch.
2. Every leaf has the cluster that growing gave it, or that of most of its points; or it is a cluster of its own.
3. The training points of every node are counted, and the mistakes:

       at a leaf    points of other clusters than the leaf's
       at a test    points that it sends to a side where no leaf has their cluster, although the other side has one

4. The training values next to every threshold are kept, between which it may be moved.
5. The means of the tree's clusters, and their k-means cost, which is compared with that of the reference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import nan
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from neonxc.common.processes import Ranks
from neonxc.trees.cuts.exact_sums import counts_by_label
from neonxc.trees.cuts.growth import Grown, majority
from neonxc.trees.fit.batches import Batches
from neonxc.trees.fit.points import CHUNK, Dense, filled, nearest_values
from neonxc.trees.fit.problem import Problem
from neonxc.trees.fit.sparse_points import Points
from neonxc.trees.fit.training_data import TrainingData
from neonxc.trees.tree import ThresholdTree


class Finished(NamedTuple):
    """A fitted tree, the cluster of every point, and what its clusters cost.

    Attributes
    ----------
    tree : ThresholdTree
    cluster : Tensor [n] of int64
        Position in ``tree.classes`` of the cluster of every point that `fit` was passed.
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


class TreeMoments(NamedTuple):
    """What the values of the training points tell about a tree and its clusters."""

    centers: Tensor  # [k, d], means of the clusters in the columns
    space_means: Tensor  # [k, p], the same in the space of the costs
    inertia: float
    variances: Tensor  # [d], of the columns that the tree tests; 0 for others
    nearest: Tensor  # [bounds, 5], see `nearest_values`


def finished(data: TrainingData, problem: Problem, grown: Grown, priced: bool) -> Finished:
    """Turn a grown tree into a fitted one.

    Parameters
    ----------
    data : TrainingData
    problem : Problem
    grown : Grown
    priced : bool
        Whether the cost of the tree's clusters is compared with that of the reference clustering.
    """
    tree, leaf = _tree_of(data, problem, grown)
    labels = tree.label.index_select(0, leaf).to(problem.device)
    moments = _moments(problem, tree, labels)

    bounds = moments.nearest
    if problem.sharded:
        bounds = problem.ranks.min(bounds)
    bounds[:, 2].neg_()  # the greatest value below, whose negative was minimized
    leaf_of_all = leaf if data.rows is None else data.leaf_of(tree)
    noise = None
    if data.noise is not None:
        noise = counts_by_label(leaf_of_all, tree.n_nodes, data.noise, problem.ranks)
    cost_ratio = None
    if priced and problem.reference_cost:
        cost_ratio = round(moments.inertia / problem.reference_cost, 9)
    tree = replace(
        tree,
        spread=moments.variances.sqrt().where(moments.variances > 0, 1),
        bounds=bounds,
        noise=noise,
        cost_ratio=cost_ratio,
    )
    cluster = tree.label.index_select(0, leaf_of_all)
    return Finished(tree, cluster, moments.centers, moments.space_means, moments.inertia)


def _moments(problem: Problem, tree: ThresholdTree, labels: Tensor) -> TreeMoments:
    """Compute means and cost of the tree's clusters, which the points have as `labels` [n], and tested values."""
    reference = problem.reference
    space = reference.space
    weight = problem.weight
    ranks = problem.ranks
    k = len(tree.classes)
    if isinstance(problem.table, Batches):
        means, inertia, variances, nearest = problem.table.moments(labels, k, tree)
        if isinstance(space, Batches) and space is not problem.table:
            means, inertia, *_ = space.moments(labels, k)
        space_means = filled(means, reference.space_centers)
    else:
        variances, nearest = _tested_values(problem.table, tree, weight, ranks)
        space_means = filled(space.means(labels, k, weight, ranks), reference.space_centers)
        inertia = problem.inertia(labels, space_means)
    centers = space_means
    if space is not problem.table:
        centers = filled(problem.filled.means(labels, k, weight, ranks), reference.centers)
    return TreeMoments(centers, space_means, inertia, variances, nearest)


def _tested_values(
    table: Points, tree: ThresholdTree, weight: Tensor | None, ranks: Ranks
) -> tuple[Tensor, Tensor]:
    """Compute variances [d] of the columns that a tree tests (0 for others), and the values next to its bounds."""
    variances = torch.zeros(table.d, dtype=torch.float64)
    nearest = [torch.empty(0, 5, dtype=torch.float64)]
    tested = tree.feature[tree.feature >= 0].unique()
    if not len(tested):
        return variances, nearest[0]
    n_largest = max(1, table.n)
    if not ranks.alone:
        n_largest = int(ranks.max(torch.tensor(n_largest)))
    for columns in tested.split(max(1, CHUNK // n_largest)):
        values = torch.stack([table.column(column).to(torch.float64) for column in columns.tolist()])
        variances[columns] = Dense(values.T).variances(weight, ranks).cpu()
        nearest.append(nearest_values(tree, columns, values))
    return variances, torch.cat(nearest)


def _tree_of(data: TrainingData, problem: Problem, grown: Grown) -> tuple[ThresholdTree, Tensor]:
    """Make the tree but for what depends on the values of the points; return it and the leaf of every point."""
    labels_of_leaves = [0] * len(grown.feature)
    leaf = torch.empty(problem.n, dtype=torch.int64, device=problem.device)
    for node in grown.leaves:
        leaf[node.rows] = node.id
        if grown.clusters is None:
            labels_of_leaves[node.id] = majority(problem, node)
        else:
            labels_of_leaves[node.id] = grown.clusters[node.id]

    # preorder: `new` is the new number of every node
    order = torch.tensor(grown.preorder())
    new = torch.empty_like(order)
    new[order] = torch.arange(len(order))
    feature = torch.tensor(grown.feature)[order]
    is_leaf = feature < 0
    old_children = torch.tensor([grown.left, grown.right])[:, order]
    children = torch.where(is_leaf, -1, new[old_children])
    label = torch.where(is_leaf, torch.tensor(labels_of_leaves)[order], -1)
    leaf = new.index_select(0, leaf.cpu())

    classes = problem.reference.classes
    k = max(len(classes), int(label.max()) + 1)
    weight = None if problem.weight is None else problem.weight.cpu()
    cell = leaf * k + problem.labels.cpu()  # of a table [nodes, k], row by row
    counts = counts_by_label(cell, len(feature) * k, weight, problem.ranks).view(-1, k)
    samples, mistakes = _count(children, label, counts)

    # the columns: those of an encoding say themselves what they hold
    feature_names = None if data.names is None else tuple(data.names)
    encoding = None
    boolean = data.boolean
    if problem.mixed is not None:
        encoding = problem.mixed.encoding
        boolean = None
    tree = ThresholdTree(
        feature=feature,
        threshold=torch.tensor(grown.threshold, dtype=torch.float64)[order],
        intervals=_padded_intervals(grown, order),
        label=label,
        classes=classes,
        n_features=data.n_features,
        feature_names=feature_names,
        boolean=boolean,
        encoding=encoding,
        table_format=data.table_format,
        samples=samples,
        mistakes=mistakes,
        class_samples=counts.sum(0)[: len(classes)],
        n_noise=data.n_noise,
    )
    if grown.clusters is None:  # every leaf is a cluster of its own, with its number among the leaves
        numbers = torch.full_like(tree.label, -1)
        numbers[tree.leaves] = torch.arange(tree.n_leaves)
        tree = tree.relabel(numbers, np.arange(tree.n_leaves))
    return tree, leaf


def _padded_intervals(grown: Grown, order: Tensor) -> Tensor | None:
    """Return the intervals of the tests, [nodes, 2, 2] in an order of the nodes; NaN where there are none."""
    if not any(grown.intervals):
        return None
    none = (nan, nan)
    padded: list[Sequence[tuple[float, float]]] = [(*pairs, none, none)[:2] for pairs in grown.intervals]
    return torch.tensor(padded, dtype=torch.float64)[order]


def _count(children: Tensor, label: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Count the points and the mistakes of every node.

    The mistakes of a test are the points that it separates from all leaves of their cluster. `children` [2, nodes]
    and `label` [nodes] are -1 where there are none, and `counts` [nodes, k] are the points of every cluster in the
    leaves.
    """
    is_test = (label < 0).numpy()
    label_of_node = label.numpy()
    tests = is_test.nonzero()[0]
    lower, upper = children.numpy()[:, is_test]

    reach = counts.numpy().copy()  # [nodes, k], points of every cluster that reach a node
    has_leaf = np.zeros(reach.shape, dtype=bool)  # [nodes, k], whether a leaf of the cluster is below the node
    has_leaf[~is_test, label_of_node[~is_test]] = True
    bottom_up = zip(tests[::-1].tolist(), lower[::-1].tolist(), upper[::-1].tolist(), strict=True)
    for node, child, sibling in bottom_up:  # children have greater numbers than their parents
        reach[node] = reach[child] + reach[sibling]
        has_leaf[node] = has_leaf[child] | has_leaf[sibling]

    lost = np.where(has_leaf, 0, reach)  # points of clusters that have no leaf below the node
    mistakes = lost.sum(1)
    mistakes[is_test] = np.where(has_leaf[is_test], lost[lower] + lost[upper], 0).sum(1)
    return torch.from_numpy(reach.sum(1)), torch.from_numpy(mistakes)
