"""IMM, EMN, ExGreedy and ExShallow: explainers that cut until every leaf holds exactly one reference center.

A node with several centers is split by the cut with the lowest score, where m is the number of points that the cut
separates from their center, and every point x moves to the nearest center c on its side of the cut:

    IMM         m
    EMN         m / number of centers on the side that has fewer
    ExGreedy    cost after the cut = sum over the points of |x - c|^2
    ExShallow   cost after the cut / cost before it + depth_factor * estimated depth below the cut

Then, if that is asked for, tests are refined (:mod:`neonxc.trees.explainers.refine`), and further leaves are added
by the rule of ExKMC.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import KW_ONLY, replace
from math import inf
from typing import NamedTuple

import torch
from scipy.optimize import linear_sum_assignment

from neonxc.common.numbers import text
from neonxc.common.types import ArrayLike, RandomState, TableLike
from neonxc.common.warnings import warn
from neonxc.trees.criteria.centers import CostAndDepth, InducedCost, Mistakes
from neonxc.trees.criteria.criterion import Criterion
from neonxc.trees.criteria.surrogate import Surrogate
from neonxc.trees.cuts.exact_sums import counts_by_label
from neonxc.trees.cuts.growth import Grown, Node, best_first, label_leaves, separate_centers
from neonxc.trees.cuts.search import Search
from neonxc.trees.estimator import TreeExplainer
from neonxc.trees.explainers.refine import refined
from neonxc.trees.fit.batches import BatchesLike
from neonxc.trees.fit.problem import Problem
from neonxc.trees.fit.training_data import TrainingData
from neonxc.trees.parameters import AtLeastTwo, LeafLabels, Metric, explainer
from neonxc.trees.saving import register_explainer

STEPS = 20  # maximum number of depth factors that `tune_depth_factor` tries between its two limits


@explainer()
class CenterTree(TreeExplainer):
    """Base class of trees with one leaf per reference center, or more leaves if `max_leaves` is larger."""

    n_clusters: int = 8
    _: KW_ONLY
    reference: object = "kmeans"
    max_leaves: int | None = None
    leaf_labels: LeafLabels = "surrogate"
    refine: bool = False
    max_bins: AtLeastTwo | None = None
    random_state: RandomState = None

    _separates_centers = True
    _uses_distances = False  # whether the criterion needs the distances of all points to the centers

    @abstractmethod
    def _criterion(self, problem: Problem) -> Criterion:
        """Return the criterion by which cuts are chosen."""

    def _can_read_batches(self) -> bool:
        return not self.refine

    def _needs_distances(self) -> bool:
        return self._uses_distances or self.max_leaves is not None

    def _grow(self, problem: Problem, smaller: Grown | None = None) -> Grown:
        if self.max_leaves is not None and self.max_leaves < problem.k:
            needed = f"at least the number of clusters, {problem.k}"
            raise ValueError(f"max_leaves must be {needed}, got {self.max_leaves}")

        # one leaf per center, and then more leaves by the rule of ExKMC
        grown = self._one_leaf_per_center(problem) if smaller is None else smaller
        if self.max_leaves is None or self.max_leaves == problem.k:
            ids = [leaf.id for leaf in grown.leaves]
            centers = torch.cat([leaf.centers for leaf in grown.leaves]).tolist()
            grown.clusters = dict(zip(ids, centers, strict=True))
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
    counts = torch.zeros(k, k, dtype=torch.float64, device=problem.device)  # by cluster of the tree and reference
    for leaf in leaves:
        labels = problem.labels[leaf.rows]
        weight = problem.weights(leaf.rows)
        counts[leaf.centers[0]] += counts_by_label(labels, k, weight)
    counts = problem.reduce(counts)
    clusters, reference_clusters = linear_sum_assignment(counts.cpu().numpy(), maximize=True)
    renumbered = torch.empty(k, dtype=torch.int64, device=problem.device)
    clusters = torch.from_numpy(clusters).to(problem.device)
    renumbered[clusters] = torch.from_numpy(reference_clusters).to(problem.device)
    return [replace(leaf, centers=renumbered[leaf.centers]) for leaf in leaves]


@register_explainer
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


@register_explainer
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


@register_explainer
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


class Trial(NamedTuple):
    """A tree that :meth:`ExShallow.tune_depth_factor` has grown."""

    depth_factor: float
    cost_ratio: float
    waes: float  # weighted average explanation size
    meets_cost: bool  # whether the cost goal is met
    grown: Grown

    def order(self) -> tuple[bool, float, float]:
        """Sort trees that meet the cost goal first, by explanation size, and the others by cost."""
        if self.meets_cost:
            return False, self.waes, self.cost_ratio
        return True, self.cost_ratio, self.cost_ratio


@register_explainer
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
        X: TableLike | BatchesLike,
        *,
        goal_cost: float,
        goal_waes: float,
        labels: ArrayLike | None = None,
        centers: TableLike | None = None,
        sample_weight: ArrayLike | None = None,
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
        data, problem = self._prepare(X, labels, centers, sample_weight)
        trials = self._trials(data, problem, goal_cost, goal_waes)
        best = min(trials, key=Trial.order)
        self.depth_factor_ = best.depth_factor
        self._finish(data, problem, best.grown)
        self.goals_met_ = best.meets_cost and best.waes <= goal_waes
        if not self.goals_met_:
            cheapest = min(trial.cost_ratio for trial in trials)
            shortest = min(trial.waes for trial in trials)
            warn(
                f"goal_cost={goal_cost:g} and goal_waes={goal_waes:g} are out of reach together: the tree has "
                f"cost ratio {text(best.cost_ratio)} and explanation size {text(best.waes)}. The lowest values "
                f"found, with different depth factors, are {text(cheapest)} and {text(shortest)}"
            )
        return self

    def _trials(self, data: TrainingData, problem: Problem, goal_cost: float, goal_waes: float) -> list[Trial]:
        """Bisect depth factors until both goals are met, or one at the limit of the cost goal is found."""
        low = 0.0  # the largest factor whose tree meets the cost goal
        high = inf  # the lowest factor whose tree exceeds it
        factor = float(self.depth_factor)
        trials: list[Trial] = []
        for step in range(STEPS + 2):
            trial = self._trial(data, problem, factor, goal_cost)
            trials.append(trial)
            if trial.meets_cost and trial.waes <= goal_waes:
                break
            if trial.meets_cost:
                low = factor
            else:
                high = factor
            is_narrow = high - low < 1e-4 * max(high, 1e-3) or (high == inf and low > 1e3)
            if is_narrow and any(each.meets_cost for each in trials):
                break
            if step == STEPS:  # the last trial is the tree of lowest cost
                factor = 0.0
            elif high < inf:
                factor = (low + high) / 2
            else:
                factor = 2 * low or 1e-3
        return trials

    def _trial(self, data: TrainingData, problem: Problem, factor: float, goal_cost: float) -> Trial:
        """Grow and measure the tree of a depth factor."""
        from neonxc.evaluation import waes  # only tuning needs it

        self.depth_factor_ = factor
        grown = super()._grow(problem)
        self._finish(data, problem, grown)
        reference_cost = problem.reference_cost or problem.cost(problem.labels)
        if reference_cost > 0:
            cost_ratio = self.inertia_ / reference_cost
        else:
            cost_ratio = float(self.inertia_ > 0) + 1
        return Trial(factor, cost_ratio, waes(self.tree_), cost_ratio <= goal_cost, grown)
