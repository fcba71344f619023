"""Threshold trees: nodes as tensors, and their predictions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, Any, overload

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


@dataclass(frozen=True, eq=False)
class ThresholdTree:
    """A binary tree of tests ``x[feature] <= threshold``, whose leaves have the labels of clusters.

    A test may also be that ``x[feature]`` lies in one or two intervals; points inside go left. Nodes are numbered
    in preorder from the root, 0: a parent, all nodes of its left branch, and all nodes of its right branch.

    Attributes
    ----------
    feature : Tensor [nodes] of int
        The column that a node tests, which is a column of the `encoding` if there is one; -1 at leaves.
    threshold : Tensor [nodes] of float64
        The thresholds, in the units of the column; NaN at leaves and interval tests. Points with ``x <=
        threshold`` go left.
    left, right : Tensor [nodes] of int
        The children; -1 at leaves.
    label : Tensor [nodes] of int
        Position in `classes` of a leaf's cluster; -1 at tests.
    samples : Tensor [nodes] of float64
        Number of training points that reach a node, or the sum of their weights.
    mistakes : Tensor [nodes] of float64
        At tests, the training points that are sent to a side without a leaf of their reference cluster; at leaves,
        the training points of other clusters.
    n_features : int
        Number of columns of the table.
    classes : ndarray
        The label of every cluster.
    feature_names : tuple of str or None
        Names of the table's columns.
    intervals : Tensor [nodes, 2, 2] of float64, or None
        The one or two intervals ``(low, high)`` of a test, in the units of the column, with infinite bounds if
        they are open; NaN if there are none. Points with ``low < x <= high`` for one of them go left. None if all
        tests are thresholds.
    spread : Tensor [n_columns] of float64, or None
        Standard deviation of the tested columns over the training points; 1 for other columns. It is the unit of
        the margins in :func:`neonxc.neuralize`.
    bounds : Tensor [bounds, 5] of float64, or None
        The training values next to every bound of a test: one row ``(column, bound, below, above, whole)`` per
        distinct finite bound of a column, sorted by column and bound. Among the training points of positive
        weight, `below` is the largest value <= the bound, and `above` the smallest value > the bound (-inf and inf
        if there is none). Any bound in [below, above) therefore sends the training points the same way. `whole` is
        1 if all values of the column are whole numbers, otherwise 0. None for trees from files of version 0.1.
    class_samples : Tensor [classes] of float64, or None
        Number of training points of every reference cluster, or the sum of their weights. If leaves are clusters
        of their own, those of the most frequent reference cluster of a leaf.
    n_noise : int
        Number of points with label -1 (noise), which `fit` has left out.
    noise : Tensor [nodes] of float64, or None
        Number of points of noise in every leaf, or the sum of their weights; 0 at tests. None if there are none.
    boolean : Tensor [n_features] of bool, or None
        Whether a column of the table holds truth values, which are tested as 0 and 1. None if no column does.
    cost_ratio : float or None
        Price of explainability: the k-means cost of the tree's clusters divided by that of the reference
        clustering, in the space of the reference, as :func:`neonxc.evaluation.cost_ratio` computes it. None if it
        is not measured: for kernel and graph trees, k-medians, and tables that are read in batches.
    encoding : Encoding or None
        Encoding of a data frame with categories or missing values as the numeric columns that are tested; None if
        the columns of the table are tested.
    table_format : str or None
        How the table was read from a file, as :func:`neonxc.data.files.read_table` stored it with the frame; None
        if it was not.

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
    left: Tensor
    right: Tensor
    label: Tensor
    samples: Tensor
    mistakes: Tensor
    n_features: int
    classes: np.ndarray = field(default_factory=lambda: np.arange(1))
    feature_names: tuple[str, ...] | None = None
    intervals: Tensor | None = None
    spread: Tensor | None = None
    bounds: Tensor | None = None
    class_samples: Tensor | None = None
    encoding: Encoding | None = None
    n_noise: int = 0
    cost_ratio: float | None = None
    noise: Tensor | None = None
    boolean: Tensor | None = None
    table_format: str | None = None

    def __repr__(self) -> str:
        return f"ThresholdTree({self.n_leaves} leaves, depth {self.depth}, {self.n_features} features)"

    @property
    def n_nodes(self) -> int:
        """Number of nodes, tests and leaves."""
        return len(self.feature)

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
            depths[self.left[node]] = depths[self.right[node]] = depths[node] + 1
        return depths

    @cached_property
    def parents(self) -> Tensor:
        """Parent of every node, [nodes]; -1 at the root."""
        parents = torch.full((self.n_nodes,), -1)
        inner = (self.feature >= 0).nonzero()[:, 0]
        parents[self.left[inner]] = parents[self.right[inner]] = inner
        return parents

    @cached_property
    def tests(self) -> list[Intervals]:
        """Disjoint intervals (low, high] of the numbers that a node's test sends left, [nodes]; none at leaves."""
        tests = [[(-inf, threshold)] for threshold in self.threshold.tolist()]
        if self.intervals is not None:
            for test, intervals in zip(tests, self.intervals.tolist(), strict=True):
                test += [(low, high) for low, high in intervals]
        return [union(test) for test in tests]  # which leaves out NaN

    @cached_property
    def explanation_sizes(self) -> Tensor:
        """Number of tests on the path to every node that no later test makes redundant, [nodes].

        Tests of one column with the same answer are counted once, separately for thresholds and intervals. Tests
        of different categories are tests of different columns.
        """
        same: Sequence[int] = range(self.n_features)
        if self.encoding is not None:
            same = canonical_columns(self.encoding)
        sizes = torch.zeros(self.n_nodes, dtype=torch.int64)
        sides: list[frozenset[tuple[int, bool, bool]]] = [frozenset()] * self.n_nodes
        for node in (self.feature >= 0).nonzero()[:, 0].tolist():
            column = same[int(self.feature[node])]
            is_interval = bool(self.threshold[node].isnan())
            for child, is_left in ((int(self.left[node]), True), (int(self.right[node]), False)):
                sides[child] = sides[node] | {(column, is_interval, is_left)}
                sizes[child] = len(sides[child])
        return sizes

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
        return table.labels(self.classes[self.label[self.leaf_of(table)].numpy()])

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
        return torch.cat([paths_of(self, chunk)[2][-1] for chunk in chunks])

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
            class_samples = self.class_samples.new_zeros(len(classes))
            class_samples[label[self.leaves]] = self.class_samples[self.label[self.leaves]]
        return replace(self, label=label, classes=classes, class_samples=class_samples)

    def __getstate__(self) -> dict[str, Any]:  # cached properties come back by themselves
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


@reads_tables
def paths_of(tree: ThresholdTree, X: TableLike | Table) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Follow points from the root to their leaves.

    Returns
    -------
    used : Tensor [used]
        The columns that the tree tests.
    values : Tensor [N, used]
        Their values.
    way : list of Tensor [N]
        The node of every point at every depth, on the CPU; points stay at their leaf.
    """
    table = Table.read(X, columns=tree.feature_names, format=tree.table_format)
    used = tree.feature[tree.feature >= 0].unique()
    if tree.encoding is not None:
        values = tree.encoding.of(used.tolist()).encode(table)
    elif table.is_sparse:
        Table.read(table, tree.n_features)
        values = table.select(used.numpy()).dense()
        values = Table(values).tensor if len(used) else torch.empty(len(table), 0)
    else:
        table = table if tree.feature_names is None else table.by_name(tree.feature_names)
        Table.read(table, tree.n_features)
        values = table.tensor[:, used.to(table.device)]
    device = values.device
    column = torch.searchsorted(used, tree.feature.clamp(min=0)).clamp(max=max(len(used) - 1, 0)).to(device)
    feature = tree.feature.to(device)
    left = tree.left.to(device)
    right = tree.right.to(device)
    threshold = tree.threshold.to(device)
    intervals = None if tree.intervals is None else tree.intervals.to(device)
    node = torch.zeros(len(values), dtype=torch.int64, device=device)
    way = [node]
    for _ in range(tree.depth):
        value = values.gather(1, column[node][:, None])
        goes_left = value[:, 0] <= threshold[node]
        if intervals is not None:
            low, high = intervals[node].unbind(-1)  # no number is less or greater than NaN
            goes_left |= ((value > low) & (value <= high)).any(1)
        node = torch.where(feature[node] < 0, node, torch.where(goes_left, left[node], right[node]))
        way.append(node)
    return used, values, [nodes.cpu() for nodes in way]


def canonical_columns(encoding: Encoding) -> list[int]:
    """Return, for every encoded column, the first one with the same tests up to the side of missing numbers."""
    first: dict[tuple[object, ...], int] = {}
    result = []
    for i, part in enumerate(encoding.parts):
        values = None if isinstance(part, Number) else part.values
        result.append(first.setdefault((part.column, values), i))
    return result


def tree_of(model: object) -> ThresholdTree | None:
    """Return a tree, or the tree of a fitted explainer; None for any other object."""
    tree = getattr(model, "tree_", model)
    return tree if isinstance(tree, ThresholdTree) else None


def as_tree(model: ThresholdTree | TreeExplainer) -> ThresholdTree:
    """Return a tree, or the tree of a fitted explainer; raise a TypeError for any other object."""
    tree = tree_of(model)
    if tree is None:
        is_estimator = hasattr(model, "fit") and hasattr(model, "get_params")
        unfitted = " that is not fitted" if is_estimator else ""
        raise TypeError(
            f"tree needs a ThresholdTree or a fitted tree explainer, got {type(model).__name__}{unfitted}"
        )
    return tree
