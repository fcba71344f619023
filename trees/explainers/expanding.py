"""Explainers that always cut the leaf with the largest gain, and the base class of those that find clusters.

=========  ==============================================================  =======================================
explainer  cut of a leaf                                                   gain
=========  ==============================================================  =======================================
ExKMC      the one of largest gain                                         decrease of the leaves' costs, each at
                                                                           the best reference center for its points
CART       the one of largest gain                                         decrease of impurity times points
KDTree     at the median of the column of largest variance                 number of points
=========  ==============================================================  =======================================

Growth starts from a single leaf; ExKMC starts from the tree of IMM, or from any tree.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import KW_ONLY, replace
from math import isnan

import numpy as np

from neonxc.common.processes import Ranks
from neonxc.common.types import RandomState
from neonxc.data.inputs import check_names
from neonxc.trees.criteria.centers import Mistakes
from neonxc.trees.criteria.criterion import Criterion
from neonxc.trees.criteria.labels import Gini
from neonxc.trees.criteria.surrogate import Surrogate
from neonxc.trees.criteria.unsupervised import Median
from neonxc.trees.cuts.growth import (
    Grown,
    Node,
    Splits,
    Step,
    best_first,
    cut_at,
    grow_with_tests,
    label_leaves,
    root,
    separate_centers,
)
from neonxc.trees.cuts.search import Search
from neonxc.trees.estimator import TreeExplainer
from neonxc.trees.fit.mixed import centers_in_columns
from neonxc.trees.fit.problem import Problem
from neonxc.trees.fit.reference import Reference, from_labels
from neonxc.trees.fit.training_data import TrainingData
from neonxc.trees.parameters import AtLeastTwo, LeafLabels, explainer
from neonxc.trees.saving import register_explainer
from neonxc.trees.tree import ThresholdTree, as_tree, tree_of


class OwnClusters(TreeExplainer):
    """Base class of trees that need no reference clustering; if one is given, it only labels the leaves."""

    _no_group_reason = "finding its own clusters takes all points"
    _has_price = False
    n_clusters: int | None  # type: ignore[assignment]

    def _default_reference(self, data: TrainingData, ranks: Ranks) -> Reference:
        n = data.space.n
        if self.n_clusters is not None and n < self.n_clusters:
            raise ValueError(f"X has n_samples={n}, fewer than n_clusters={self.n_clusters}")
        same_cluster = np.zeros(n, dtype=np.int64)
        return from_labels(data.space, same_cluster, self.metric, data.weight)

    def _finish(self, data: TrainingData, problem: Problem, grown: Grown) -> None:
        if not problem.reference.is_passed and grown.clusters is not None:
            # the tree's own clusters become the reference
            labels = np.empty(problem.n, dtype=np.int64)
            for leaf in grown.leaves:
                labels[leaf.rows.cpu().numpy()] = grown.clusters[leaf.id]
            reference = from_labels(problem.reference.space, labels, self.metric, problem.weight)
            if problem.mixed is not None:
                reference = centers_in_columns(reference, problem.mixed, self.metric, problem.weight)
            problem = replace(problem, reference=reference)
        super()._finish(data, problem, grown)


@explainer(max_leaves="""Default: one per cluster.""")
class BestFirst(TreeExplainer):
    """Growth from a base tree, by default a single leaf."""

    n_clusters: int = 8
    _: KW_ONLY
    max_leaves: int | None = None
    leaf_labels: LeafLabels = "surrogate"
    reference: object = "kmeans"
    max_bins: AtLeastTwo | None = None
    random_state: RandomState = None

    @abstractmethod
    def _criterion(self, problem: Problem) -> Criterion:
        """Return the criterion that scores cuts and the gain of splitting a leaf."""

    def _default_leaves(self, problem: Problem) -> int:
        return problem.k

    def _base(self, problem: Problem) -> Grown:
        return Grown([root(problem)])

    def _grow(self, problem: Problem, smaller: Grown | None = None) -> Grown:
        base = self._base(problem) if smaller is None else smaller
        max_leaves = self._default_leaves(problem) if self.max_leaves is None else self.max_leaves
        search = Search(problem, self._criterion(problem))
        return label_leaves(problem, expanded(search, base, max_leaves), self.leaf_labels)

    def _needs_distances(self) -> bool:
        return self.leaf_labels == "surrogate"


def expanded(search: Splits, base: Grown, max_leaves: int) -> Grown:
    """Grow a tree best first until it has `max_leaves` leaves."""
    if max_leaves < len(base.leaves):
        needed = f"at least the number of leaves of base, {len(base.leaves)}"
        raise ValueError(f"max_leaves must be {needed}, got {max_leaves}")
    return best_first(search, base, max_leaves)


@register_explainer
@explainer(
    max_leaves="""Default: two per cluster.""",
    base="""{"imm", "none"}, ThresholdTree or fitted tree explainer
    The tree that is expanded. If the estimator will be cloned, as a grid search does, pass ``explainer.tree_``:
    the clone of an explainer is not fitted.""",
)
class ExKMC(BestFirst):
    """Expand a tree by further leaves, which share the reference clusters, to lower its cost.

    Growing stops early when every point is in a leaf of its nearest center.

    References
    ----------
    .. [1] N. Frost, M. Moshkovitz, C. Rashtchian, "ExKMC: Expanding explainable k-means clustering", 2020,
       Algorithm 1.
    """

    _: KW_ONLY
    base: str | ThresholdTree | TreeExplainer = "imm"

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if isinstance(self.base, str):
            is_valid = self.base in ("imm", "none")
        else:
            is_valid = tree_of(self.base) is not None
        if not is_valid:
            raise ValueError(f'base needs "imm", "none" or a fitted tree (explainer.tree_), got {self.base!r}')

    def _criterion(self, problem: Problem) -> Criterion:
        return Surrogate(problem)

    def _can_read_batches(self) -> bool:
        return isinstance(self.base, str)

    def _needs_distances(self) -> bool:
        return True

    def _default_leaves(self, problem: Problem) -> int:
        n_leaves = 0 if isinstance(self.base, str) else as_tree(self.base).n_leaves
        return max(2 * problem.k, n_leaves)

    def _base(self, problem: Problem) -> Grown:
        if self.base == "imm":
            return separate_centers(Search(problem, Mistakes(problem)))
        if isinstance(self.base, str):  # "none"
            return super()._base(problem)

        # the tests of a fitted tree
        tree = as_tree(self.base)
        encoding = None if problem.mixed is None else problem.mixed.encoding
        if tree.encoding != encoding:
            raise ValueError("base was fitted on another table than X: their categories or gaps differ")
        if tree.n_columns != problem.table.d:
            raise ValueError(f"base was fitted on {tree.n_columns} columns, X has {problem.table.d}")
        names = getattr(self, "feature_names_in_", None)
        if names is not None:
            names = list(names)
        check_names(names, tree.feature_names)

        def test(number: int, node: Node) -> Step | None:
            feature = int(tree.feature[number])
            if feature < 0:
                return None
            threshold = float(tree.threshold[number])
            intervals = tree.tests[number] if isnan(threshold) else ()
            cut = cut_at(problem, node, feature, threshold, intervals)
            return cut, int(tree.left[number]), int(tree.right[number])

        return grow_with_tests(problem, 0, test)


@register_explainer
@explainer()
class CART(BestFirst):
    """Classify the reference clusters by Gini impurity, as scikit-learn's DecisionTreeClassifier does.

    Ties between cuts go to the first column and, within a column, to the lowest threshold.

    References
    ----------
    .. [1] L. Breiman et al., "Classification and regression trees", 1984.
    """

    _: KW_ONLY
    leaf_labels: LeafLabels = "majority"

    def _criterion(self, problem: Problem) -> Criterion:
        return Gini(problem)

    def _can_read_batches(self) -> bool:
        return True


@register_explainer
@explainer()
class KDTree(BestFirst):
    """Halve the largest leaf at the median of its column of largest variance; ignores the reference.

    References
    ----------
    .. [1] J. L. Bentley, "Multidimensional binary search trees used for associative searching", 1975.
    """

    def _criterion(self, problem: Problem) -> Criterion:
        return Median(problem)
