"""A threshold tree: its nodes as tensors, and what they decide for points."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from neonxc.rules.intervals import Intervals, union
from neonxc.trees.decoding import canonical_columns
from neonxc.trees.routing import leaves_of, tested_columns, ways

if TYPE_CHECKING:
    from sklearn.tree import DecisionTreeClassifier

    from neonxc.encoding import Encoding
    from neonxc.rules.collection import Rules
    from neonxc.trees.estimator import TreeExplainer


@dataclass(frozen=True, eq=False)
class ThresholdTree:
    """A binary tree of tests ``x[feature] <= threshold``, each leaf of which has the label of a cluster.

    A test may also ask whether ``x[feature]`` lies in an interval, or in one of two: points inside go left.
    Nodes are numbered from the root, 0, in preorder: a parent, all of its left branch, all of its right one.

    Attributes
    ----------
    feature : Tensor [nodes] of int
        The column that a node tests, of those that the `encoding` makes if there is one; -1 at leaves.
    threshold : Tensor [nodes] of float64
        In the units of the column; NaN at leaves and tests of intervals. Points with ``x <= threshold`` go left.
    left, right : Tensor [nodes] of int
        The children; -1 at leaves.
    label : Tensor [nodes] of int
        Position in `classes` of a leaf's cluster; -1 elsewhere.
    samples : Tensor [nodes] of float64
        Training points that reached a node, or the sum of their weights.
    mistakes : Tensor [nodes] of float64
        Training points that a test sends where no leaf has their reference cluster; at leaves, those of other
        clusters.
    n_features : int
        Columns of the table.
    classes : ndarray
        The label of every cluster.
    feature_names : tuple of str or None
        Of the table's columns.
    intervals : Tensor [nodes, 2, 2] of float64, or None
        The one or two intervals of a test, ``(low, high)`` in the units of the column, with infinite bounds where
        they are open; NaN where there are none. Points with ``low < x <= high`` for one of them go left. None
        where all tests are of thresholds.
    spread : Tensor [n_columns] of float64, or None
        Standard deviation of the columns that are tested, over the training points; 1 for the others. It is what
        :func:`neonxc.neuralize` measures margins in.
    bounds : Tensor [bounds, 5] of float64, or None
        Where the training points lie around every bound that a test compares with: one row
        ``(column, bound, below, above, whole)`` per different finite bound of a column, sorted by both. Of the
        values that the column has in training points of positive weight, `below` is the greatest that is <= the
        bound and `above` the least that is greater (-inf and inf where there is none), so that any bound from
        `below` up to, but without, `above` sends the training points the same way; `whole` is 1 if all of these
        values are whole numbers, else 0. None for trees of files that were saved by version 0.1.
    class_samples : Tensor [classes] of float64, or None
        Training points of every reference cluster, or the sum of their weights; where leaves are clusters of their
        own, of the reference cluster that most of a leaf's points are of.
    n_noise : int
        Points of label -1 (noise) that `fit` was given and left out.
    cost_ratio : float or None
        Price of explainability: the k-means cost of the tree's clusters over that of the reference clustering, in
        the space where the reference was found. None where it was not measured: for trees of kernels and graphs,
        k-medians, and tables that are read batch by batch.
    encoding : Encoding or None
        How the columns of a data frame with categories or missing values become the columns of numbers that are
        tested; None where these are the table's own.

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

    def __repr__(self) -> str:
        return f"ThresholdTree({self.n_leaves} leaves, depth {self.depth}, {self.n_features} features)"

    @property
    def n_nodes(self) -> int:
        """Inner nodes and leaves."""
        return len(self.feature)

    @property
    def n_columns(self) -> int:
        """Columns of numbers: those of the table, or those that the encoding makes."""
        return self.n_features if self.encoding is None else self.encoding.width

    @property
    def n_leaves(self) -> int:
        """Leaves."""
        return int((self.feature < 0).sum())

    @cached_property
    def leaves(self) -> Tensor:
        """The leaves' nodes, from left to right."""
        return (self.feature < 0).nonzero()[:, 0]

    @property
    def depth(self) -> int:
        """Tests on the longest path; 0 for a single leaf."""
        return int(self.depths.max())

    @cached_property
    def depths(self) -> Tensor:
        """Tests before every node, [nodes]."""
        depths = torch.zeros(self.n_nodes, dtype=torch.int64)
        for node in (self.feature >= 0).nonzero()[:, 0].tolist():  # parents come before their children
            depths[self.left[node]] = depths[self.right[node]] = depths[node] + 1
        return depths

    @cached_property
    def parents(self) -> Tensor:
        """The parent of every node, [nodes]; -1 at the root."""
        parents = torch.full((self.n_nodes,), -1)
        inner = (self.feature >= 0).nonzero()[:, 0]
        parents[self.left[inner]] = parents[self.right[inner]] = inner
        return parents

    @cached_property
    def tests(self) -> list[Intervals]:
        """The numbers that a node's test sends left, [nodes]: disjoint intervals (low, high]; none at leaves."""
        rows = [[(-inf, threshold)] for threshold in self.threshold.tolist()]
        if self.intervals is not None:
            rows = [
                row + [(low, high) for low, high in more]
                for row, more in zip(rows, self.intervals.tolist(), strict=True)
            ]
        return [union(row) for row in rows]  # which leaves out NaN

    @cached_property
    def explanation_sizes(self) -> Tensor:
        """Tests on the path to every node that no later test makes redundant, [nodes].

        Tests of one column whose answer was the same count once; those of thresholds and those of intervals apart.
        Tests for different categories are tests of different columns.
        """
        same = range(self.n_features) if self.encoding is None else canonical_columns(self.encoding)
        sizes = torch.zeros(self.n_nodes, dtype=torch.int64)
        sides: list[frozenset[tuple[int, bool, bool]]] = [frozenset()] * self.n_nodes
        for node in (self.feature >= 0).nonzero()[:, 0].tolist():
            test = same[int(self.feature[node])], bool(self.threshold[node].isnan())
            for child, is_left in ((int(self.left[node]), True), (int(self.right[node]), False)):
                sides[child] = sides[node] | {(*test, is_left)}
                sizes[child] = len(sides[child])
        return sizes

    @property
    def feature_importances(self) -> Tensor:
        """Share of all tests made by training points that a column has, [features]; sums to 1 (0 for one leaf)."""
        inner = self.feature >= 0
        sums = torch.zeros(self.n_features, dtype=torch.float64)
        tested = self.feature[inner] if self.encoding is None else self.encoding.owner[self.feature[inner]]
        sums.scatter_add_(0, tested, self.samples[inner])
        return sums / sums.sum().clamp(min=torch.finfo(torch.float64).tiny)

    def apply(self, X: Any) -> Any:
        """Leaf (its node) of every point, [N]; an array for an array, a tensor for a tensor.

        Parameters
        ----------
        X : array, data frame, sparse matrix or Tensor [N, d]
            Points.
        """
        leaf, labels = leaves_of(self, X)
        return labels(leaf)

    def predict(self, X: Any) -> Any:
        """Label of every point's leaf, [N]; an array for an array, a tensor for a tensor.

        Parameters
        ----------
        X : array-like, data frame, sparse matrix or tensor [N, features]
            In the columns and units of the training data. A tree of a table with categories or missing values
            takes such tables; a category that it has not seen is none of those it has.

        Raises
        ------
        ValueError
            Another number of columns, other names, values that are not finite, or a missing number in a column
            that is tested and had none in the training data.
        """
        leaf, labels = leaves_of(self, X)
        return labels(self.classes[self.label[leaf].numpy()])

    def decision_path(self, X: Any) -> Any:
        """Whether a point passes through a node, [N, nodes] of bool.

        Parameters
        ----------
        X : array, data frame, sparse matrix or Tensor [N, d]
            Points.
        """
        used, values, labels = tested_columns(self, X)
        passed = torch.zeros(len(values), self.n_nodes, dtype=torch.bool)
        for nodes in ways(self, used, values):
            passed[torch.arange(len(values)), nodes] = True
        return labels(passed)

    def leaf_of(self, X: Any) -> Tensor:
        """Leaf (its node) of every point, [N], on the CPU; X as for :meth:`predict`.

        Parameters
        ----------
        X : array, data frame, sparse matrix or Tensor [N, d]
            Points.
        """
        return leaves_of(self, X)[0]

    def rules(self, **options: Any) -> Rules:
        """Return one rule per leaf, without redundant conditions.

        Parameters
        ----------
        **options
            `feature_names` and `class_names` (sequences of str) name columns and clusters. `units` maps columns to
            units, and `categories` maps encoded columns to their categories. ``merge=True`` merges rules of a
            cluster that one rule can replace.

        Returns
        -------
        Rules
        """
        from neonxc.trees.rules import rules

        return rules(self, **options)

    def to_sklearn(self) -> DecisionTreeClassifier:
        """Give the tree as scikit-learn's, for tools that read those.

        Returns
        -------
        DecisionTreeClassifier
            Fitted. Its ``predict`` and ``apply`` agree with the tree's on the training points, and on other data
            in float32, to which scikit-learn's trees round all data. Where a training value of float64 is rounded
            across a threshold, the threshold moves past it, and float32 data of that value go with it.
            Nodes have the tree's numbers. Tests of intervals become chains of thresholds: ``predict`` agrees, and
            ``apply`` gives other leaves, as leaves are copied; copies share a leaf's training weight evenly. The
            probability of a leaf's cluster is 1, as the tree decides; inner nodes have the mean of their leaves.

        Raises
        ------
        ValueError
            Training values on the two sides of a test that are the same in float32.

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
        from neonxc.trees.sklearn_tree import to_sklearn

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
        samples, old = None, self.class_samples
        if old is not None:
            samples = old.new_zeros(len(classes))
            samples[label[self.leaves]] = old[self.label[self.leaves]]
        return replace(self, label=label, classes=classes, class_samples=samples)

    def __getstate__(self) -> dict[str, Any]:  # cached properties come back by themselves
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def tree_of(given: Any) -> ThresholdTree | None:
    """A tree as it is, or that of a fitted explainer; None for anything else."""
    tree = getattr(given, "tree_", given)
    return tree if isinstance(tree, ThresholdTree) else None


def as_tree(given: ThresholdTree | TreeExplainer) -> ThresholdTree:
    """A tree as it is, or that of a fitted explainer; a TypeError for anything else."""
    tree = tree_of(given)
    if tree is None:
        unfitted = " that is not fitted" if hasattr(given, "fit") and hasattr(given, "get_params") else ""
        raise TypeError(
            f"tree needs a ThresholdTree or a fitted tree explainer, got {type(given).__name__}{unfitted}"
        )
    return tree
