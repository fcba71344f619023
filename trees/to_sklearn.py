"""Converts a threshold tree to scikit-learn's DecisionTreeClassifier."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import chain
from math import inf
from typing import NamedTuple

import numpy as np
import torch
from sklearn.tree import DecisionTreeClassifier
from sklearn.tree._tree import NODE_DTYPE, Tree

from neonxc.trees.tree import ThresholdTree

# TREE_LEAF and TREE_UNDEFINED of sklearn.tree._tree
NO_CHILD = -1
NO_TEST = -2


@dataclass
class _Node:
    """A node of the converted tree; `leaf` is the leaf of the threshold tree that it is a copy of, or -1."""

    depth: int
    leaf: int = -1
    feature: int = NO_TEST
    threshold: float = NO_TEST
    left: int = NO_CHILD
    right: int = NO_CHILD


def to_sklearn(tree: ThresholdTree) -> DecisionTreeClassifier:
    """See :meth:`ThresholdTree.to_sklearn`."""
    nodes = _unrolled(tree)
    totals = _totals(tree, nodes)
    state = np.zeros(len(nodes), dtype=NODE_DTYPE)
    state["left_child"] = [node.left for node in nodes]
    state["right_child"] = [node.right for node in nodes]
    state["feature"] = [node.feature for node in nodes]
    state["threshold"] = [node.threshold for node in nodes]
    state["impurity"] = 1 - (totals.fraction**2).sum(1)  # Gini
    state["n_node_samples"] = totals.n_points
    state["weighted_n_node_samples"] = totals.weight
    n_classes = len(tree.classes)
    sklearn_tree = Tree(tree.n_columns, np.array([n_classes], dtype=np.intp), 1)
    sklearn_tree.__setstate__(
        {
            "max_depth": max(node.depth for node in nodes),
            "node_count": len(nodes),
            "nodes": state,
            "values": totals.fraction[:, None],
        }
    )
    model = DecisionTreeClassifier()
    model.n_features_in_ = model.max_features_ = tree.n_columns
    model.n_outputs_ = 1
    model.n_classes_ = np.int64(n_classes)
    model.classes_ = tree.classes
    if tree.feature_names is not None and tree.encoding is None:
        model.feature_names_in_ = np.array(tree.feature_names, dtype=object)
    model.tree_ = sklearn_tree
    return model


def _unrolled(tree: ThresholdTree) -> list[_Node]:
    """Return the nodes in preorder; an interval test becomes a chain of thresholds with copies of its branches."""
    nodes: list[_Node] = []
    feature = tree.feature.tolist()
    bounds = _float32_bounds(tree)
    box: dict[int, tuple[float, float]] = {}  # ranges of the columns that reach the node
    todo = [(-1, [(inf, 0)], box, -1, "root")]
    while todo:
        column, pieces, box, parent, side = todo.pop()
        if parent >= 0:
            setattr(nodes[parent], side, len(nodes))
        while len(pieces) == 1 and feature[pieces[0][1]] >= 0:
            column = feature[pieces[0][1]]
            pieces = _pieces(tree, pieces[0][1], box)
        depth = nodes[parent].depth + 1 if parent >= 0 else 0
        nodes.append(_Node(depth))
        bound, node = pieces[0]
        if len(pieces) == 1:
            nodes[-1].leaf = node
            continue
        nodes[-1].feature = column
        nodes[-1].threshold = bounds.get((column, bound), bound)
        low, high = box.get(column, (-inf, inf))
        number = len(nodes) - 1
        box_on_left = box | {column: (low, min(high, bound))}
        box_on_right = box | {column: (max(low, bound), high)}
        todo.append((column, pieces[1:], box_on_right, number, "right"))
        todo.append((column, pieces[:1], box_on_left, number, "left"))
    return nodes


def _pieces(tree: ThresholdTree, node: int, box: dict[int, tuple[float, float]]) -> list[tuple[float, int]]:
    """Return pairs (bound, child) in ascending order: values in (previous bound, bound] go to the child."""
    left = int(tree.left[node])
    right = int(tree.right[node])
    threshold = float(tree.threshold[node])
    if threshold == threshold:
        return [(threshold, left), (inf, right)]
    low, high = box.get(int(tree.feature[node]), (-inf, inf))
    ends = [*chain(*tree.tests[node]), inf]
    pieces = []
    last = -inf
    for i, end in enumerate(ends):  # outside and inside of intervals in turn
        child = left if i % 2 else right
        if max(last, low) < min(end, high):
            pieces.append((end, child))
        last = end
    return pieces or [(inf, right)]


def _float32_bounds(tree: ThresholdTree) -> dict[tuple[int, float], float]:
    """Map (column, bound) to a bound that sends the training values to the same side after rounding to float32."""
    if tree.bounds is None:
        return {}
    column, bound, below, above, _ = tree.bounds.unbind(1)
    low = below.float().double()
    high = above.float().double()
    equal = (low == high).nonzero()[:, 0].tolist()
    if equal:
        row = equal[0]
        number = int(column[row])
        if tree.encoding is not None:
            number = int(tree.encoding.owner[number])
        name = number if tree.feature_names is None else repr(tree.feature_names[number])
        raise ValueError(
            f"column {name} has the values {float(below[row])!r} and {float(above[row])!r} on the two sides of a "
            "test, which are equal in float32, the data type of scikit-learn's trees; export the tree with "
            "to_python, or subtract an offset from the column and fit again"
        )
    # a rounded training value that has crossed the bound takes it along
    just_below = torch.nextafter(bound.float(), torch.tensor(-inf)).double()
    moved = torch.where(high <= bound, just_below, bound)
    moved = torch.where(low > bound, low, moved)
    keys = zip(column.long().tolist(), bound.tolist(), strict=True)
    return dict(zip(keys, moved.tolist(), strict=True))


class _Totals(NamedTuple):
    """What the nodes of a tree hold of the training points."""

    weight: np.ndarray  # [nodes]
    n_points: np.ndarray  # [nodes], at least 1 in a leaf
    fraction: np.ndarray  # [nodes, classes], of the weight, as the leaves below predict the classes


def _totals(tree: ThresholdTree, nodes: list[_Node]) -> _Totals:
    """Sum up the training points of every node; copies of a leaf share its weight equally."""
    copies = Counter(node.leaf for node in nodes)
    lowest = np.finfo(np.float64).eps * float(tree.samples[0])  # SHAP does not accept leaves without weight
    weight = np.zeros(len(nodes))
    count = np.zeros(len(nodes), dtype=np.int64)
    fraction = np.zeros((len(nodes), len(tree.classes)))
    for number, node in reversed(list(enumerate(nodes))):  # children before their parents
        if node.leaf >= 0:
            weight_of_copy = float(tree.samples[node.leaf]) / copies[node.leaf]
            weight[number] = max(weight_of_copy, lowest)
            count[number] = max(1, round(weight[number]))
            fraction[number, int(tree.label[node.leaf])] = 1
        else:
            sides = [node.left, node.right]
            weight[number] = weight[sides].sum()
            count[number] = count[sides].sum()
            fraction[number] = np.average(fraction[sides], axis=0, weights=weight[sides])
    return _Totals(weight, count, fraction)
