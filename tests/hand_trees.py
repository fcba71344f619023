"""Trees that are made by hand: their nodes are numbered, and their points routed and counted, in plain Python.

A tree is a list of splits, (node, column, test): a test is a threshold, or a tuple of the intervals that go left.
Nodes have the numbers in which they are made: those of the children of the i-th split are 2 i + 1 and 2 i + 2.
"""

from collections import Counter, defaultdict
from math import inf, nan

import numpy as np
import torch

from neonxc.trees import ThresholdTree

GRID = np.arange(-10, 11) / 4  # the bounds of all random tests, -2 ... 2 in halves, and numbers between and beyond


def goes_left(test, value):
    if isinstance(test, tuple):
        return any(low < value <= high for low, high in test)
    return value <= test


def route(splits, point):
    """The leaf of a point."""
    tests = {node: (column, test, 2 * i + 1) for i, (node, column, test) in enumerate(splits)}
    node = 0
    while node in tests:
        column, test, left = tests[node]
        node = left if goes_left(test, float(point[column])) else left + 1
    return node


def counted(splits, label, counts, features=3, names=None, classes=None):
    """A tree and its numbers of the nodes; `counts` has the clusters of the points, {leaf: {cluster: weight}}."""
    tests = {node: (column, test, 2 * i + 1) for i, (node, column, test) in enumerate(splits)}
    nodes = []
    number = {}

    def add(node):
        """Add a node and all below it; its place, the clusters of its leaves, and its points."""
        place = number[node] = len(nodes)
        nodes.append(())
        if node not in tests:
            points = Counter(counts.get(node, {}))
            nodes[place] = (-1, nan, (), -1, -1, label[node], points.total(), points.total() - points[label[node]])
            return place, {label[node]}, points
        column, test, child = tests[node]
        left, mine, here = add(child)
        right, other, there = add(child + 1)
        lost = sum(here[cluster] for cluster in other - mine) + sum(there[cluster] for cluster in mine - other)
        threshold, pairs = (nan, test) if isinstance(test, tuple) else (test, ())
        nodes[place] = (column, threshold, pairs, left, right, -1, (here + there).total(), lost)
        return place, mine | other, here + there

    points = add(0)[2]
    feature, threshold, intervals, left, right, labels, samples, mistakes = zip(*nodes, strict=True)
    classes = np.arange(max(label) + 1) if classes is None else np.asarray(classes)
    pairs = [[*own, (nan, nan), (nan, nan)][:2] for own in intervals]
    known = [points[cluster] for cluster in range(len(classes))]
    integers = [torch.tensor(values) for values in (feature, left, right, labels)]
    floats = [torch.tensor(values, dtype=torch.float64) for values in (threshold, samples, mistakes, pairs, known)]
    tree = ThresholdTree(
        feature=integers[0],
        threshold=floats[0],
        intervals=floats[3] if any(intervals) else None,
        label=integers[3],
        classes=classes,
        n_features=features,
        feature_names=None if names is None else tuple(names),
        samples=floats[1],
        mistakes=floats[2],
        class_samples=floats[4],
    )
    assert torch.equal(tree.left, integers[1])  # which preorder tells
    assert torch.equal(tree.right, integers[2])
    return tree, number


def grown(splits, label, X, names=None, classes=None, *, reference=None, weight=None):
    """A tree and its numbers of the nodes; points are by default of the clusters of their leaves."""
    counts = defaultdict(Counter)
    for i, point in enumerate(X):
        leaf = route(splits, point)
        cluster = label[leaf] if reference is None else int(reference[i])
        counts[leaf][cluster] += 1 if weight is None else float(weight[i])
    return counted(splits, label, counts, np.shape(X)[1], names, classes)


def random_splits(seed, leaves, features=3):
    """Tests of thresholds, and of one or two intervals that may be open, overlap or touch; labels, and points."""
    rng = np.random.default_rng(seed)
    splits = []
    ends = [0]
    for i in range(leaves - 1):
        node = ends.pop(int(rng.integers(len(ends))))
        bounds = np.concatenate([[-inf], np.arange(-4, 5) / 2, [inf]])
        pairs = tuple(tuple(np.sort(rng.choice(bounds, 2, replace=False)).tolist()) for _ in range(2))
        test = [float(rng.integers(-4, 5)) / 2, pairs[:1], pairs][int(rng.integers(3))]
        splits.append((node, int(rng.integers(features)), test))
        ends += [2 * i + 1, 2 * i + 2]
    return splits, rng.integers(0, 3, 2 * leaves - 1).tolist(), rng.choice(GRID, (100, features))


def shop(names=("age", "price")):
    """Every kind of test: one interval, two, an open one, a threshold."""
    splits = [
        (0, 1, ((2.1, 3.4),)),
        (2, 0, ((18, 25), (60, 67.5))),
        (4, 1, ((-inf, 1.0), (5.0, inf))),
        (6, 0, 40.0),
    ]
    X = [[30, 3], [20, 0], [63, 4], [30, 0.5], [30, 6], [30, 4], [50, 4]]
    return grown(splits, [0, 0, 0, 1, 0, 2, 0, 3, 0], X, names, list("ABCD"))[0]
