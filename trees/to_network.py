"""Conversion of threshold trees to networks: tests are neurons, leaves minima over paths, clusters maxima."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from neonxc.clusterings import ClusterModel, read
from neonxc.head import Head
from neonxc.head.competition import Path
from neonxc.head.detection import Detection, EdgeDetection, LinearDetection
from neonxc.head.grouping import UnionOfIntervals
from neonxc.head.preprocessing import Preprocessing, mapped, pulled_back
from neonxc.trees.estimator import TreeExplainer
from neonxc.trees.tree import ThresholdTree


@read.register
def _read_explainer(model: TreeExplainer) -> ClusterModel:
    check_is_fitted(model, "tree_")
    return _model(model.tree_, torch.as_tensor(model.cluster_centers_).double().cpu())


@read.register
def _read_tree(tree: ThresholdTree) -> ClusterModel:
    return _model(tree, None)


def _model(tree: ThresholdTree, points: Tensor | None) -> ClusterModel:
    used, leaves = tree.label[tree.leaves].unique(return_inverse=True)  # a cluster may have lost all its leaves
    if len(used) < 2:
        raise ValueError(
            "explaining a tree needs at least 2 clusters with a leaf: with one there is no competitor"
        )

    def head(preprocessing: Preprocessing | None) -> Head:
        detection, grouping = _tests(tree, preprocessing)
        return Head(detection, grouping, Path(_children(tree), leaves))

    return ClusterModel(head, points, tree.classes[used.numpy()], encoding=tree.encoding)


def _children(tree: ThresholdTree) -> Sequence[tuple[int, int]]:
    """Return the children of each test, in preorder: leaves by their numbers, tests by minus their numbers."""
    inner = tree.feature >= 0
    number_of_test = inner.cumsum(0) - 1
    number_of_leaf = (~inner).cumsum(0) - 1
    number = torch.where(inner, -number_of_test, number_of_leaf)
    left = number[tree.left[inner]]
    right = number[tree.right[inner]]
    return list(zip(left.tolist(), right.tolist(), strict=True))


def _tests(tree: ThresholdTree, preprocessing: Preprocessing | None) -> tuple[Detection, UnionOfIntervals | None]:
    """Return a neuron for every finite bound of the tests, and the grouping of neurons into tests."""
    nodes = (tree.feature >= 0).nonzero()[:, 0].tolist()
    edges = []
    sides = []
    columns = []
    interval_of = []
    test_of = []
    for test, node in enumerate(nodes):
        for interval in tree.tests[node]:
            test_of.append(test)
            for bound, side in zip(interval, (-1.0, 1.0), strict=True):
                if isfinite(bound):
                    edges.append(bound)
                    sides.append(side)
                    columns.append(int(tree.feature[node]))
                    interval_of.append(len(test_of) - 1)

    column = torch.tensor(columns, dtype=torch.int64)
    edge = torch.tensor(edges, dtype=torch.float64)
    sign = torch.tensor(sides)
    spread = torch.ones(tree.n_columns, dtype=torch.float64)
    if tree.spread is not None:
        spread = tree.spread
    detection: Detection
    if preprocessing is None:
        detection = EdgeDetection(
            column=column, edge=edge, sign=sign, spread=spread[column], columns=tree.n_columns
        )
    else:
        detection = _after(preprocessing, column, edge, sign.double() / spread[column])
    if [test_of[interval] for interval in interval_of] == list(range(len(nodes))):
        return detection, None  # every test has a single bound
    intervals = torch.tensor(interval_of, dtype=torch.int64)
    tests = torch.tensor(test_of, dtype=torch.int64)
    return detection, UnionOfIntervals(intervals, tests, len(nodes))


def _after(preprocessing: Preprocessing, column: Tensor, edge: Tensor, slope: Tensor) -> LinearDetection:
    """Return neurons ``slope (edge - z_column)``, each relative to its zero nearest to the data mean."""
    middle = torch.zeros_like(preprocessing.bias)
    if preprocessing.norm is None:
        middle = preprocessing.bias + mapped(preprocessing.weight, preprocessing.center)
    one_hot = torch.nn.functional.one_hot(column, len(middle)).double()
    directions = pulled_back(preprocessing.weight, one_hot)
    steepest = directions * preprocessing.scale.square()
    margin = edge - preprocessing.offset[column] - middle[column]
    distance = margin / (directions * steepest).sum(1)
    anchors = distance[:, None] * steepest
    return LinearDetection(slope[:, None] * directions, anchors, **preprocessing.coordinates(middle).parts())
