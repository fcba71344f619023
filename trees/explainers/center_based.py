"""IMM, EMN, ExGreedy and ExShallow: explainers that cut until every leaf holds exactly one reference center."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import KW_ONLY, replace
from typing import Any

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment

from neonxc.common.numbers import text
from neonxc.common.warnings import warn
from neonxc.trees.criteria.centers import CostAndDepth, InducedCost, Mistakes
from neonxc.trees.criteria.criterion import Criterion
from neonxc.trees.criteria.surrogate import Surrogate
from neonxc.trees.cuts.exact_sums import counts_by_label
from neonxc.trees.cuts.growth import Grown, best_first, label_leaves, separate_centers
from neonxc.trees.cuts.nodes import Node
from neonxc.trees.cuts.search import Search
from neonxc.trees.estimator import TreeExplainer
from neonxc.trees.explainers.refine import refined
from neonxc.trees.fit.problem import Problem
from neonxc.trees.parameters import AtLeastTwo, LeafLabels, Metric, explainer

STEPS = 20  # maximum number of depth factors that `tune_depth_factor` tries between its two limits


@explainer()
class CenterTree(TreeExplainer):
    """Base class of trees with one leaf per reference center, or more leaves if `max_leaves` is larger."""

    n_clusters: int = 8
    _: KW_ONLY
    reference: Any = "kmeans"
    max_leaves: int | None = None
    leaf_labels: LeafLabels = "surrogate"
    refine: bool = False
    max_bins: AtLeastTwo | None = None
    random_state: Any = None

    _separates_centers = True
    _uses_distances = False  # whether the criterion needs the distances of all points to the centers

    @abstractmethod
    def _criterion(self, problem: Problem) -> Criterion:
        """Criterion by which cuts are chosen."""

    def _streams(self) -> bool | None:
        return None if self.refine else self._uses_distances or self.max_leaves is not None

    def _grow(self, problem: Problem, smaller: Grown | None = None) -> Grown:
        if self.max_leaves is not None and self.max_leaves < problem.k:
            needed = f"at least the number of clusters, {problem.k}"
            raise ValueError(f"max_leaves must be {needed}, got {self.max_leaves}")
        grown = self._one_leaf_per_center(problem) if smaller is None else smaller
        if self.max_leaves is None or self.max_leaves == problem.k:
            centers = torch.cat([leaf.centers for leaf in grown.leaves]).tolist()
            grown.clusters = dict(zip([leaf.id for leaf in grown.leaves], centers, strict=True))
            return grown
        grown = best_first(Search(problem, Surrogate(problem)), grown, self.max_leaves)
        return label_leaves(problem, grown, self.leaf_labels)

    def _one_leaf_per_center(self, problem: Problem) -> Grown:
        """Grow the explainer's tree, and refine it if that is asked for."""

        def grow(problem: Problem) -> Grown:
            return separate_centers(Search(problem, self._criterion(problem)))

        if not self.refine:
            return grow(problem)
        grown = refined(problem, grow, self.max_bins)
        grown.leaves = match_labels(grown.leaves, problem)
        return grown


def match_labels(leaves: list[Node], problem: Problem) -> list[Node]:
    """Renumber the clusters of leaves so that as many points as possible are in their reference cluster."""
    k = problem.k
    shared = torch.zeros(k, k, dtype=torch.float64, device=problem.device)
    for leaf in leaves:
        labels = problem.labels[leaf.rows]
        weight = problem.weights(leaf.rows)
        shared[leaf.centers[0]] += counts_by_label(labels, k, weight)
    shared = problem.reduce(shared)
    ours, theirs = linear_sum_assignment(shared.cpu().numpy(), maximize=True)
    number = torch.empty(k, dtype=torch.int64, device=problem.device)
    number[torch.from_numpy(ours).to(problem.device)] = torch.from_numpy(theirs).to(problem.device)
    return [replace(leaf, centers=number[leaf.centers]) for leaf in leaves]


@explainer()
class IMM(CenterTree):
    """Iterative mistake minimization (IMM).

    Each cut separates as few points as possible from their reference centers. Cuts are made until every leaf holds
    one center.

    Attributes
    ----------
    tree_ : ThresholdTree
        The fitted tree.
    labels_ : array or tensor [n]
        Cluster of every training point according to the tree.
    cluster_centers_ : array or tensor [k, d]
        Means of the tree's clusters.
    inertia_ : float
        k-means cost of the tree's clusters.

    References
    ----------
    .. [1] M. Moshkovitz, S. Dasgupta, C. Rashtchian, N. Frost, "Explainable k-means and k-medians clustering",
       ICML 2020, Algorithm 1.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from neonxc.trees import IMM
    >>> iris = load_iris(as_frame=True)
    >>> IMM(n_clusters=3, random_state=0).fit(iris.data).tree_
    ThresholdTree(3 leaves, depth 2, 4 features)
    """

    _: KW_ONLY
    metric: Metric = "l2"

    def _criterion(self, problem: Problem) -> Criterion:
        return Mistakes(problem)


@explainer()
class EMN(CenterTree):
    """Mistakes per separated center, after Esfandiari, Mirrokni and Narayanan (EMN).

    A cut is scored by the number of points that it separates from their centers, divided by the number of centers
    on its smaller side. A balanced cut may therefore make more mistakes than an unbalanced one.

    Attributes
    ----------
    tree_, labels_, cluster_centers_, inertia_
        As for :class:`IMM`.

    References
    ----------
    .. [1] H. Esfandiari, V. Mirrokni, S. Narayanan, "Almost tight approximation algorithms for explainable
       clustering", SODA 2022.
    """

    _: KW_ONLY
    metric: Metric = "l2"

    def _criterion(self, problem: Problem) -> Criterion:
        return Mistakes(problem, shared=True)


@explainer()
class ExGreedy(CenterTree):
    """Greedy minimization of the k-means cost.

    Each cut minimizes the cost that results when every point moves to the nearest center on its side of the cut.

    Attributes
    ----------
    tree_, labels_, cluster_centers_, inertia_
        As for :class:`IMM`.

    References
    ----------
    .. [1] E. Laber, L. Murtinho, "On the price of explainability for some clustering problems", ICML 2021.
    """

    _uses_distances = True

    def _criterion(self, problem: Problem) -> Criterion:
        return InducedCost(problem)


@explainer(
    depth_factor="""
    λ, the weight of depth against cost: the relative increase in cost that is accepted if points pass one test
    fewer on average. 0 ignores depth."""
)
class ExShallow(CenterTree):
    """Shallow trees of low cost.

    A cut is scored by the ratio of the cost after the cut to the cost before it, plus `depth_factor` times an
    estimate of the tree's depth below the cut.

    Attributes
    ----------
    depth_factor_ : float
        The depth factor of the fitted tree: `depth_factor`, or the one that :meth:`tune_depth_factor` chose.
    goals_met_ : bool
        Whether :meth:`tune_depth_factor` reached both goals. Set by that method only.
    tree_, labels_, cluster_centers_, inertia_
        As for :class:`IMM`.

    References
    ----------
    .. [1] E. S. Laber, L. Murtinho, F. Oliveira, "Shallow decision trees for explainable k-means clustering",
       Pattern Recognition, 2023.
    """

    _: KW_ONLY
    depth_factor: float = 0.03
    _uses_distances = True

    def _criterion(self, problem: Problem) -> Criterion:
        return CostAndDepth(problem, self.depth_factor_)

    def _grow(self, problem: Problem, smaller: Grown | None = None) -> Grown:
        self.depth_factor_ = self.depth_factor
        self.__dict__.pop("goals_met_", None)  # set by an earlier call of tune_depth_factor
        return super()._grow(problem, smaller)

    def tune_depth_factor(
        self,
        X: Any,
        *,
        goal_cost: float,
        goal_waes: float,
        labels: Any = None,
        centers: Any = None,
        sample_weight: Any = None,
    ) -> ExShallow:
        """Fit the tree with a depth factor that reaches two goals (ExShallow*).

        A bisection starts at `depth_factor`. It lowers the depth factor if the cost exceeds its goal, and raises
        it if the explanations are too long. If no depth factor meets both goals, the tree with the shortest
        explanations among those that meet the cost goal is kept, or, if there is none, the tree of lowest cost.

        Parameters
        ----------
        X, labels, centers, sample_weight
            As for :meth:`fit`.
        goal_cost : float
            Upper limit of the tree's k-means cost divided by that of the reference clustering.
        goal_waes : float
            Upper limit of the weighted average explanation size (:func:`neonxc.evaluation.waes`), in tests.

        Returns
        -------
        self
            With the attributes `depth_factor_` and `goals_met_`.

        Warns
        -----
        UserWarning
            The two goals are out of reach together; the message has the cost and the explanation size of the tree,
            and the least of both that were found.

        References
        ----------
        .. [1] E. S. Laber, L. Murtinho, F. Oliveira, "Shallow decision trees for explainable k-means clustering",
           Pattern Recognition, 2023, Section 4.4.
        """
        from neonxc.evaluation import waes  # only tuning needs it

        given, problem = self._prepare(X, labels, centers, sample_weight)
        base = problem.reference_cost or problem.cost(problem.labels)
        low = 0.0
        high = np.inf
        found: list[tuple[bool, float, float, float, float, Any]] = []
        for factor in (self.depth_factor, *[None] * STEPS, 0.0):
            if factor is None:
                factor = (low + high) / 2 if high < np.inf else 2 * low or 1e-3
            self.depth_factor_ = float(factor)
            grown = super()._grow(problem)
            self._finish(given, problem, grown)
            cost = self.inertia_ / base if base > 0 else float(self.inertia_ > 0) + 1
            size = waes(self.tree_)
            above = cost > goal_cost
            found.append((above, cost if above else size, cost, size, self.depth_factor_, grown))
            if not above and size <= goal_waes:
                break
            low, high = (low, self.depth_factor_) if above else (self.depth_factor_, high)
            narrow = high - low < 1e-4 * max(high, 1e-3) or (high == np.inf and low > 1e3)
            if narrow and not all(entry[0] for entry in found):
                break
        above, _, cost, size, self.depth_factor_, grown = min(found, key=lambda entry: entry[:3])
        self._finish(given, problem, grown)
        self.goals_met_ = not above and size <= goal_waes
        if not self.goals_met_:
            cheapest, shortest = (min(entry[i] for entry in found) for i in (2, 3))
            warn(
                f"goal_cost={goal_cost:g} and goal_waes={goal_waes:g} are out of reach together: the tree has "
                f"cost ratio {text(cost)} and explanation size {text(size)}. The lowest values found, with "
                f"different depth factors, are {text(cheapest)} and {text(shortest)}"
            )
        return self
