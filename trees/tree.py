"""Threshold trees: nodes as tensors, and their predictions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np
import torch
from torch import Tensor

from neonxc.common.types import TableLike
from neonxc.data.frames import reads_tables
from neonxc.data.table import Table
from neonxc.pipelines.parts import Number
from neonxc.rules.intervals import Intervals, union

if TYPE_CHECKING:
    from sklearn.tree import DecisionTreeClassifier

    from neonxc.pipelines.encoding import Encoding
    from neonxc.rules.collection import Rules
    from neonxc.trees.estimator import TreeExplainer


@dataclass(frozen=True, eq=False, kw_only=True)
class ThresholdTree:
    """A binary tree of tests ``x[feature] <= threshold``, whose leaves have the labels of clusters.

    A tree consists of its nodes, of what they refer to, and of what is known of the points of its fit:

    1. The tests: `feature`, `threshold` and `intervals`. A test is that ``x[feature]`` is at most a threshold, or
       lies in one or two intervals; points that meet it go left. Nodes are numbered in preorder from the root, 0:
       a parent, all nodes of its left branch, and all nodes of its right branch. The children, `left` and `right`,
       therefore follow from which nodes are leaves.
    2. The clusters of the leaves: `label` and `classes`.
    3. The table whose columns are tested: `n_features`, `feature_names`, `boolean`, `encoding` and `table_format`.
    4. The numbers of training points: `samples`, `mistakes`, `class_samples`, `noise` and `n_noise`.
    5. The values of the training points: `spread`, `bounds` and `cost_ratio`.

    Attributes
    ----------
    feature : Tensor [nodes] of int
        The column that a node tests, which is a column of the `encoding` if there is one; -1 at leaves.
    threshold : Tensor [nodes] of float64
        The thresholds, in the units of the column; NaN at leaves and interval tests. Points with ``x <=
        threshold`` go left.
    intervals : Tensor [nodes, 2, 2] of float64, or None
        The one or two intervals ``(low, high)`` of a test, in the units of the column, with infinite bounds if
        they are open; NaN if there are none. Points with ``low < x <= high`` for one of them go left. None if all
        tests are thresholds.
    label : Tensor [nodes] of int
        Position in `classes` of a leaf's cluster; -1 at tests.
    classes : ndarray
        The label of every cluster.
    n_features : int
        Number of columns of the table.
    feature_names : tuple of str or None
        Names of the table's columns.
    boolean : Tensor [n_features] of bool, or None
        Whether a column of the table holds truth values, which are tested as 0 and 1. None if no column does.
    encoding : Encoding or None
        Encoding of a data frame with categories or missing values as the numeric columns that are tested; None if
        the columns of the table are tested.
    table_format : str or None
        How the table was read from a file, as :func:`neonxc.data.files.read_table` stored it with the frame; None
        if it was not.
    samples : Tensor [nodes] of float64
        Number of training points that reach a node, or the sum of their weights.
    mistakes : Tensor [nodes] of float64
        At tests, the training points that are sent to a side without a leaf of their reference cluster; at leaves,
        the training points of other clusters.
    class_samples : Tensor [classes] of float64, or None
        Number of training points of every reference cluster, or the sum of their weights. If leaves are clusters
        of their own, those of the most frequent reference cluster of a leaf.
    noise : Tensor [nodes] of float64, or None
        Number of points of noise in every leaf, or the sum of their weights; 0 at tests. None if there are none.
    n_noise : int
        Number of points with label -1 (noise), whatever their weights, which `fit` has left out.
    spread : Tensor [n_columns] of float64, or None
        Standard deviation of the tested columns over the training points; 1 for other columns. It is the unit of
        the margins in :func:`neonxc.neuralize`.
    bounds : Tensor [bounds, 5] of float64, or None
        The training values next to every bound of a test: one row ``(column, bound, below, above, whole)`` per
        distinct finite bound of a column, sorted by column and bound. Among the training points of positive
        weight, `below` is the largest value <= the bound, and `above` the smallest value > the bound (-inf and inf
        if there is none). Any bound in [below, above) therefore sends the training points the same way. `whole` is
        1 if all values of the column are whole numbers, otherwise 0. None for trees from files of version 0.1.
    cost_ratio : float or None
        Price of explainability: the k-means cost of the tree's clusters divided by that of the reference
        clustering, in the space of the reference, as :func:`neonxc.evaluation.cost_ratio` computes it. None if it
        is not measured: for kernel and graph trees, k-medians, and tables that are read in batches.

    Examples
    --------
    >>> import numpy as np
    >>> from neonxc.trees import IMM
    >>> X = np.array([[0.0, 0], [0, 1], [4, 0], [4, 1]])
    >>> tree = IMM(n_clusters=2, random_state=0).fit(X, labels=[0, 0, 1, 1]).tree_
    >>> tree.predict(X)
    array([0, 0, 1, 1])
    >>> tree.threshold[0].item()
    2.0
    """

    feature: Tensor
    threshold: Tensor
    intervals: Tensor | None = None
    label: Tensor
    classes: np.ndarray = field(default_factory=lambda: np.arange(1))
    n_features: int
    feature_names: tuple[str, ...] | None = None
    boolean: Tensor | None = None
    encoding: Encoding | None = None
    table_format: str | None = None
    samples: Tensor
    mistakes: Tensor
    class_samples: Tensor | None = None
    noise: Tensor | None = None
    n_noise: int = 0
    spread: Tensor | None = None
    bounds: Tensor | None = None
    cost_ratio: float | None = None

    def __repr__(self) -> str:
        return f"ThresholdTree({self.n_leaves} leaves, depth {self.depth}, {self.n_features} features)"

    @property
    def n_nodes(self) -> int:
        """Number of nodes, tests and leaves."""
        return len(self.feature)

    @cached_property
    def left(self) -> Tensor:
        """Left child of every test, [nodes] of int; -1 at leaves."""
        return children_of(self.feature)[0]

    @cached_property
    def right(self) -> Tensor:
        """Right child of every test, [nodes] of int; -1 at leaves."""
        return children_of(self.feature)[1]

    @property
    def n_columns(self) -> int:
        """Number of numeric columns: those of the table, or of its encoding."""
        return self.n_features if self.encoding is None else self.encoding.width

    @property
    def n_leaves(self) -> int:
        """Number of leaves."""
        return len(self.leaves)

    @cached_property
    def leaves(self) -> Tensor:
        """Nodes of the leaves, from left to right."""
        return (self.feature < 0).nonzero()[:, 0]

    @property
    def depth(self) -> int:
        """Number of tests on the longest path; 0 for a single leaf."""
        return int(self.depths.max())

    @cached_property
    def depths(self) -> Tensor:
        """Number of tests before every node, [nodes]."""
        depths = torch.zeros(self.n_nodes, dtype=torch.int64)
        for node in (self.feature >= 0).nonzero()[:, 0].tolist():  # parents come before their children
            depth_of_children = depths[node] + 1
            depths[self.left[node]] = depth_of_children
            depths[self.right[node]] = depth_of_children
        return depths

    @cached_property
    def parents(self) -> Tensor:
        """Parent of every node, [nodes]; -1 at the root."""
        parents = torch.full((self.n_nodes,), -1)
        inner = (self.feature >= 0).nonzero()[:, 0]
        parents[self.left[inner]] = inner
        parents[self.right[inner]] = inner
        return parents

    @cached_property
    def tests(self) -> list[Intervals]:
        """Disjoint intervals (low, high] of the numbers that a node's test sends left, [nodes]; none at leaves."""
        tests = [[(-inf, threshold)] for threshold in self.threshold.tolist()]
        if self.intervals is not None:
            for test, intervals in zip(tests, self.intervals.tolist(), strict=True):
                test += [(low, high) for low, high in intervals]
        # NaN, where a node has no threshold or fewer than two intervals, is left out by the union
        return [union(test) for test in tests]

    @cached_property
    def explanation_sizes(self) -> Tensor:
        """Number of tests on the path to every node that no later test makes redundant, [nodes].

        Tests of one column with the same answer are counted once, separately for thresholds and intervals. Tests
        of different categories are tests of different columns.
        """
        same: Sequence[int] = range(self.n_features)
        if self.encoding is not None:
            same = canonical_columns(self.encoding)
        # the distinct answers on the path to every node: column, kind of test, and side
        answers: list[frozenset[tuple[int, bool, bool]]] = [frozenset()] * self.n_nodes
        for node in (self.feature >= 0).nonzero()[:, 0].tolist():  # parents come before their children
            column = same[int(self.feature[node])]
            is_interval = bool(self.threshold[node].isnan())
            left = int(self.left[node])
            right = int(self.right[node])
            answers[left] = answers[node] | {(column, is_interval, True)}
            answers[right] = answers[node] | {(column, is_interval, False)}
        return torch.tensor([len(distinct) for distinct in answers])

    @overload
    def apply(self, X: Tensor) -> Tensor: ...
    @overload
    def apply(self, X: TableLike | Table) -> np.ndarray: ...
    @reads_tables
    def apply(self, X: TableLike | Table) -> np.ndarray | Tensor:
        """Return the leaf (its node) of every point, [N], as an array or, for a tensor, a tensor.

        Parameters
        ----------
        X : array, data frame, sparse matrix or Tensor [N, d]
            Points.
        """
        table = Table.read(X, columns=self.feature_names, format=self.table_format)
        return table.labels(self.leaf_of(table))

    @overload
    def predict(self, X: Tensor) -> Tensor: ...
    @overload
    def predict(self, X: TableLike | Table) -> np.ndarray: ...
    @reads_tables
    def predict(self, X: TableLike | Table) -> np.ndarray | Tensor:
        """Return the label of every point's leaf, [N], as an array or, for a tensor, a tensor.

        Parameters
        ----------
        X : array-like, data frame, sparse matrix or tensor [N, features]
            Points with the columns and units of the training data. A tree of a table with categories or missing
            values takes such tables; an unknown category equals none of the known ones.

        Raises
        ------
        ValueError
            If the number or the names of the columns differ, if values are not finite, or if a number is missing
            in a tested column without missing numbers in the training data.
        """
        table = Table.read(X, columns=self.feature_names, format=self.table_format)
        label = self.label[self.leaf_of(table)].numpy()
        return table.labels(self.classes[label])

    @reads_tables
    def leaf_of(self, X: TableLike | Table) -> Tensor:
        """Return the leaf (its node) of every point, [N], on the CPU; X as for :meth:`predict`.

        Parameters
        ----------
        X : array, data frame, sparse matrix or Tensor [N, d]
            Points.
        """
        table = Table.read(X, columns=self.feature_names, format=self.table_format)
        chunks: Iterable[Table] = [table]
        if table.is_sparse:
            chunks = table.blocks(32 * self.n_leaves)  # the tests on a path, and copies
        return torch.cat([paths_of(self, chunk).nodes[-1] for chunk in chunks])

    def rules(self, **options: Any) -> Rules:
        """Return one rule per leaf, without redundant conditions.

        Parameters
        ----------
        **options
            `feature_names` and `class_names` (sequences of str) name columns and clusters. `units` maps columns to
            units, and `categories` maps encoded columns to their categories. ``terms=True`` says "with" and
            "without" of terms of texts, and ``merge=True`` merges rules of a cluster that one rule can replace.

        Returns
        -------
        Rules
        """
        from neonxc.trees.rules import rules  # is about trees

        return rules(self, **options)

    def to_sklearn(self) -> DecisionTreeClassifier:
        """Convert the tree to scikit-learn's, for tools that read those.

        Returns
        -------
        DecisionTreeClassifier
            A fitted classifier. Its ``predict`` and ``apply`` agree with the tree's on the training points, and on
            other data in float32, to which scikit-learn's trees round all data. If rounding moves a float64
            training value across a threshold, the threshold is moved as well. Nodes have the tree's numbers.
            Interval tests become chains of thresholds: ``predict`` agrees, but ``apply`` returns other leaves,
            because leaves are copied; copies share the training weight of a leaf equally. The probability of a
            leaf's cluster is 1; inner nodes have the mean of their leaves.

        Raises
        ------
        ValueError
            If training values on the two sides of a test are equal in float32.

        Notes
        -----
        A tree without `bounds` keeps its thresholds. Missing values, which the tree refuses, go right. Of a tree
        with an `encoding`, the classifier takes ``encoding.encode(X)``.

        Examples
        --------
        >>> from neonxc.trees import IMM
        >>> X = [[0.0, 0], [0, 1], [4, 0], [4, 1]]
        >>> tree = IMM(n_clusters=2).fit(X, labels=["a", "a", "b", "b"]).tree_
        >>> tree.to_sklearn().predict_proba(X)
        array([[1., 0.],
               [1., 0.],
               [0., 1.],
               [0., 1.]])
        """
        from neonxc.trees.to_sklearn import to_sklearn  # is about trees

        return to_sklearn(self)

    def relabel(self, label: Tensor, classes: np.ndarray) -> ThresholdTree:
        """Give the same tests with other labels at the leaves, [nodes].

        Parameters
        ----------
        label : Tensor [nodes] of int
            Number of the class at each leaf; ignored at inner nodes.
        classes : sequence
            Labels of the classes.

        Returns
        -------
        ThresholdTree
        """
        class_samples = None
        if self.class_samples is not None:
            old_label = self.label[self.leaves]
            new_label = label[self.leaves]
            class_samples = self.class_samples.new_zeros(len(classes))
            class_samples[new_label] = self.class_samples[old_label]
        return replace(self, label=label, classes=classes, class_samples=class_samples)

    def __getstate__(self) -> dict[str, Any]:  # cached properties come back by themselves
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def children_of(feature: Tensor) -> tuple[Tensor, Tensor]:
    """Find the left and the right child of every node, [nodes], -1 at leaves, of nodes in preorder.

    The node after a test is its left child. The node after a leaf is the right child of the last test that has
    none yet.

    Parameters
    ----------
    feature : Tensor [nodes] of int
        -1 at leaves, and not negative at tests.

    Raises
    ------
    ValueError
        If the nodes are not those of one binary tree.
    """
    are_tests = (feature >= 0).tolist()
    left = [-1] * len(are_tests)
    right = [-1] * len(are_tests)
    without_right = []  # tests whose right child is still to come
    for node, is_test in enumerate(are_tests[:-1]):
        if is_test:
            left[node] = node + 1
            without_right.append(node)
        elif without_right:
            right[without_right.pop()] = node + 1
        else:
            raise ValueError(f"the tree ends at node {node}, and has {len(are_tests)} nodes")
    last_is_leaf = are_tests[-1:] == [False]
    if without_right or not last_is_leaf:
        raise ValueError("the tree has tests without children")
    return torch.tensor(left), torch.tensor(right)


class Paths(NamedTuple):
    """The ways of points from the root of a tree to their leaves."""

    columns: Tensor  # [tested], the columns that the tree tests, in ascending order
    values: Tensor  # [N, tested], their values
    nodes: list[Tensor]  # [N] for every depth on the CPU, the nodes; points stay at their leaf


@reads_tables
def paths_of(tree: ThresholdTree, X: TableLike | Table) -> Paths:
    """Follow points from the root to their leaves."""
    table = Table.read(X, columns=tree.feature_names, format=tree.table_format)
    columns = tree.feature[tree.feature >= 0].unique()
    values = _values(tree, table, columns)

    # the nodes, on the device of the values
    device = values.device
    feature = tree.feature.to(device)
    left = tree.left.to(device)
    right = tree.right.to(device)
    threshold = tree.threshold.to(device)
    intervals = None if tree.intervals is None else tree.intervals.to(device)
    position = torch.zeros_like(tree.feature)  # of a test's column in `columns`; any at leaves
    if len(columns):
        position = torch.searchsorted(columns, tree.feature.clamp(min=columns[0]))
    position = position.to(device)

    node = torch.zeros(len(values), dtype=torch.int64, device=device)
    nodes = [node]
    for _ in range(tree.depth):
        value = values.gather(1, position[node][:, None])
        goes_left = value[:, 0] <= threshold[node]
        if intervals is not None:
            low, high = intervals[node].unbind(-1)  # no number is less or greater than NaN
            goes_left |= ((value > low) & (value <= high)).any(1)
        child = torch.where(goes_left, left[node], right[node])
        node = torch.where(feature[node] < 0, node, child)
        nodes.append(node)
    return Paths(columns, values, [each.cpu() for each in nodes])


def _values(tree: ThresholdTree, table: Table, columns: Tensor) -> Tensor:
    """Return the values [N, tested] of some of the columns that a tree can test."""
    if tree.encoding is not None:
        return tree.encoding.of(columns.tolist()).encode(table)
    if tree.feature_names is not None:
        table = table.by_name(tree.feature_names)
    if table.is_sparse:
        Table.read(table, tree.n_features)  # checks the number of columns
        if not len(columns):
            return torch.empty(len(table), 0)
        dense = table.select(columns.numpy()).dense()
        return Table(dense).tensor
    Table.read(table, tree.n_features)
    return table.tensor[:, columns.to(table.device)]


def canonical_columns(encoding: Encoding) -> list[int]:
    """Return, for every encoded column, the first one with the same tests up to the side of missing numbers."""
    first: dict[tuple[object, ...], int] = {}  # by the table's column and the values that the part codes
    canonical = []
    for position, part in enumerate(encoding.parts):
        values = None if isinstance(part, Number) else part.values
        canonical.append(first.setdefault((part.column, values), position))
    return canonical


def tree_of(model: object) -> ThresholdTree | None:
    """Return a tree, or the tree of a fitted explainer; None for any other object."""
    tree = getattr(model, "tree_", model)
    return tree if isinstance(tree, ThresholdTree) else None


def as_tree(model: ThresholdTree | TreeExplainer) -> ThresholdTree:
    """Return a tree, or the tree of a fitted explainer; raise a TypeError for any other object."""
    tree = tree_of(model)
    if tree is None:
        is_estimator = hasattr(model, "fit") and hasattr(model, "get_params")
        unfitted = ""
        if is_estimator:
            unfitted = " that is not fitted"
        raise TypeError(
            f"tree needs a ThresholdTree or a fitted tree explainer, got {type(model).__name__}{unfitted}"
        )
    return tree
