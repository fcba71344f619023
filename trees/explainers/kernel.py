"""Explainers of kernel clusterings with interval tests: Kernel IMM, Kernel ExKMC and Kernel Expand.

1. Features of the kernel are computed, each a function of one column (:mod:`neonxc.trees.fit.kernel_features`).
2. Kernel IMM is IMM on these features, with the means of the clusters as centers. A threshold on a feature becomes
   one or two intervals of its column.
3. Kernel ExKMC and Kernel Expand add leaves by interval tests that lower a cost most. The cost of a leaf is that
   of its points at the cluster that is best for all of them: squared distances to the cluster's mean in the
   feature space of the kernel, or 1 for every point of another cluster.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import KW_ONLY, replace
from typing import Any, Literal

import torch
from torch import Tensor

from neonxc.common.types import RandomState
from neonxc.trees.criteria.centers import Mistakes
from neonxc.trees.cuts.codes import code_columns
from neonxc.trees.cuts.growth import (
    Grown,
    Node,
    Step,
    grow_with_tests,
    label_leaves,
    root,
    separate_centers,
)
from neonxc.trees.cuts.intervals import IntervalSearch, cut_from_sides
from neonxc.trees.cuts.search import Search
from neonxc.trees.estimator import TreeExplainer
from neonxc.trees.explainers.expanding import expanded
from neonxc.trees.fit.kernel_features import KernelFeatures, feature_space_distances, kernel_points, median_gamma
from neonxc.trees.fit.problem import Problem
from neonxc.trees.parameters import AtLeastTwo, Positive, explainer
from neonxc.trees.saving import register_explainer


@explainer(
    reference="""{"kernel_kmeans", "kmeans", "spectral"} or estimator
    The clustering to explain, unless labels or centers are passed to `fit`.""",
    kernel="""``exp(-gamma |x - y|^2)``, or ``exp(-gamma |x - y|_1)``.""",
    gamma="""
    Scale of the kernel. Default: the gamma of the reference if that is a Gaussian kernel k-means, otherwise 1 /
    the median distance between points (squared for the Gaussian kernel).""",
    features="""
    The features that Kernel IMM cuts, each of which is a function of one column: "anchors", the kernel between the
    column's values and anchors chosen among them, or "taylor", the first terms of the Gaussian kernel's Taylor
    expansion.""",
    n_features="""Number of anchors or Taylor terms per column.""",
)
class KernelTree(TreeExplainer):
    """Base class: the kernel's parameters, and the tree of Kernel IMM."""

    _no_group_reason = "kernel distances take all points"
    _has_price = False
    _cuts_sparse = False

    n_clusters: int = 8
    _: KW_ONLY
    reference: object = "kernel_kmeans"
    kernel: Literal["gaussian", "laplace"] = "gaussian"
    gamma: Positive | None = None
    features: Literal["anchors", "taylor"] = "anchors"
    n_features: int = 32
    max_bins: AtLeastTwo | None = None
    random_state: RandomState = None

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.features == "taylor" and self.kernel != "gaussian":
            raise ValueError(f'features="taylor" needs kernel="gaussian", got {self.kernel!r}')

    def _grow(self, problem: Problem) -> Grown:
        reference = problem.reference
        gamma = self.gamma
        if gamma is None and self.kernel == "gaussian":
            gamma = reference.gamma
        if gamma is None:
            gamma = median_gamma(reference.space, self.kernel, problem.weight)
        self.gamma_ = float(gamma)
        return self._grow_by_kernel(problem)

    @abstractmethod
    def _grow_by_kernel(self, problem: Problem) -> Grown:
        """Grow the tree of a problem, given the scale `gamma_` of the kernel."""

    def _kernel_imm(self, problem: Problem) -> Grown:
        """Grow the tree of Kernel IMM, with one leaf per cluster and tests on the raw columns."""
        points = kernel_points(problem, self.features)
        features = KernelFeatures(points, self.features, self.kernel, self.gamma_, self.n_features)
        centers = features.means(problem.labels, problem.k, problem.weight)
        table: Any = features  # has the methods of a table that are called here
        columns, centers = code_columns(table, centers, self.max_bins, problem.weight)
        reference = replace(problem.reference, centers=centers)
        on_features = replace(problem, table=table, columns=columns, reference=reference, mixed=None)
        tree = separate_centers(Search(on_features, Mistakes(on_features)))

        def test(number: int, node: Node) -> Step | None:
            """Translate a threshold on a feature to intervals of its raw column."""
            feature = tree.feature[number]
            if feature < 0:
                return None
            code = tree.code[number]
            left = columns.column(feature).index_select(0, node.rows) <= code
            centers_left = columns.centers[feature].index_select(0, node.centers) <= code
            cut, is_swapped = cut_from_sides(problem, node, feature // features.size, left, centers_left)
            if is_swapped:
                return cut, tree.right[number], tree.left[number]
            return cut, tree.left[number], tree.right[number]

        return grow_with_tests(problem, 0, test)


@register_explainer
@explainer()
class KernelIMM(KernelTree):
    """Iterative mistake minimization (IMM) for kernel clusterings.

    IMM is run on features of the kernel, each of which depends on one column, with the means of the clusters as
    centers. A threshold on a feature corresponds to one or two intervals of its column, such as ``1 < x <= 2``.

    Attributes
    ----------
    tree_, labels_, cluster_centers_, inertia_
        As for :class:`IMM`.
    gamma_ : float
        The kernel's scale.

    References
    ----------
    .. [1] M. Fleissner, L. C. Vankadara, D. Ghoshdastidar, "Explaining kernel clustering via decision trees", ICLR
       2024.

    Examples
    --------
    >>> from sklearn.datasets import make_circles
    >>> from neonxc.trees import KernelIMM
    >>> X, ring = make_circles(400, factor=0.3, noise=0.05, random_state=0)
    >>> tree = KernelIMM(2).fit(X, labels=ring).tree_
    >>> print(tree.rules()[0].text(2))
    x[0] in (-0.35, 0.37]
    """

    def _grow_by_kernel(self, problem: Problem) -> Grown:
        grown = self._kernel_imm(problem)
        grown.clusters = {leaf.id: int(leaf.centers[0]) for leaf in grown.leaves}
        return grown


@explainer(
    max_leaves="""Maximum number of leaves. Default: two per cluster.""",
    base="""The tree that is expanded: the one of :class:`KernelIMM`, or a single leaf.""",
)
class ExpandedKernelTree(KernelTree):
    """Base class: best-first growth by interval tests, from the tree of Kernel IMM or from a single leaf."""

    _: KW_ONLY
    max_leaves: int | None = None
    base: Literal["imm", "none"] = "imm"

    @abstractmethod
    def _costs(self, problem: Problem) -> Tensor:
        """Compute the cost of every point under each label, [n, k]."""

    def _grow_by_kernel(self, problem: Problem) -> Grown:
        base = self._kernel_imm(problem) if self.base == "imm" else Grown([root(problem)])
        max_leaves = 2 * problem.k if self.max_leaves is None else self.max_leaves
        reference = replace(problem.reference, distances=self._costs(problem))
        with_costs = replace(problem, reference=reference)
        grown = expanded(IntervalSearch(with_costs), base, max_leaves)
        return label_leaves(with_costs, grown, "surrogate")


@register_explainer
@explainer()
class KernelExKMC(ExpandedKernelTree):
    """Expand the tree of Kernel IMM by interval tests that lower the kernel k-means cost most.

    The cost of a leaf is the sum of the squared distances, in the kernel's feature space, between its points and
    the cluster mean for which this sum is smallest.

    Attributes
    ----------
    tree_, labels_, cluster_centers_, inertia_
        As for :class:`IMM`.
    gamma_ : float
        The kernel's scale.

    References
    ----------
    .. [1] M. Fleissner, L. C. Vankadara, D. Ghoshdastidar, "Explaining kernel clustering via decision trees", ICLR
       2024.
    """

    def _costs(self, problem: Problem) -> Tensor:
        space = problem.reference.space
        points = space.columns(0, space.d).T
        return feature_space_distances(points, problem.labels, problem.k, self.kernel, self.gamma_, problem.weight)


@register_explainer
@explainer()
class KernelExpand(ExpandedKernelTree):
    """Expand the tree of Kernel IMM by interval tests that lower the number of mistakes most.

    Mistakes are points that are not in the majority cluster of their leaf.

    Attributes
    ----------
    tree_, labels_, cluster_centers_, inertia_
        As for :class:`IMM`.
    gamma_ : float
        The kernel's scale.

    References
    ----------
    .. [1] M. Fleissner, L. C. Vankadara, D. Ghoshdastidar, "Explaining kernel clustering via decision trees", ICLR
       2024.
    """

    def _costs(self, problem: Problem) -> Tensor:
        return 1 - torch.nn.functional.one_hot(problem.labels, problem.k).to(torch.float64)
