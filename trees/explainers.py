"""Tree explainers that separate reference centers: a criterion, and growth until every leaf has one center."""

from __future__ import annotations

from typing import Any

import numpy as np

from neonxc.evaluation import waes
from neonxc.parameters import check_number
from neonxc.trees.center_tree import CenterTree
from neonxc.trees.criteria.induced_cost import InducedCost
from neonxc.trees.criteria.mistakes import Mistakes
from neonxc.trees.growth import Separator
from neonxc.trees.problem import Problem

STEPS = 20  # of the search for a depth factor


class IMM(CenterTree):
    """Iterative mistake minimization: every cut separates the fewest points from their centers.

    Parameters
    ----------
    n_clusters : int
        For `reference` "kmeans" and "spectral"; ignored where an estimator, labels or centers say how many
        clusters there are.
    reference : {"kmeans", "spectral"} or estimator
        The clustering that is explained, unless `fit` gets labels or centers. With a pipeline, costs are measured
        in the space of its last step, and rules are in raw units.
    max_leaves : int, optional
        More leaves than clusters: the tree grows on by ExKMC's rule, and leaves share clusters.
    leaf_labels : {"surrogate", "majority", "own"}
        Then: the cluster of a leaf is the one whose center costs its points least, the most frequent one, or the
        leaf itself.
    metric : {"l2", "l1"}
        k-means or k-medians.
    refine : bool
        Improve the tree by its own k-means cost; see :func:`neonxc.trees.refine.refined`.
    n_init : int
        Starts, of which the tree of least cost is kept: the first is the explainer's own, further ones have other
        criteria and, if the reference is "kmeans", other seeds.
    max_bins : int, optional
        Put the values of every column into so many bins; default: every value counts.
    random_state : int, optional

    Attributes
    ----------
    tree_ : ThresholdTree
    labels_ : array or tensor [n]
    cluster_centers_ : array or tensor [k, d]
        Means of the tree's clusters.
    inertia_ : float
        Their k-means cost.

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

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        reference: Any = "kmeans",
        max_leaves: int | None = None,
        leaf_labels: str = "surrogate",
        metric: str = "l2",
        refine: bool = False,
        n_init: int = 1,
        max_bins: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.reference = reference
        self.max_leaves = max_leaves
        self.leaf_labels = leaf_labels
        self.metric = metric
        self.refine = refine
        self.n_init = n_init
        self.max_bins = max_bins
        self.random_state = random_state

    def _criterion(self, problem: Problem) -> Separator:
        return Mistakes(problem)


class EMN(IMM):
    """Mistakes over the lesser number of centers on a side: balanced cuts may make more mistakes.

    Parameters are those of :class:`IMM`.

    References
    ----------
    .. [1] H. Esfandiari, V. Mirrokni, S. Narayanan, "Almost tight approximation algorithms for explainable
       clustering", SODA 2022.
    """

    def _criterion(self, problem: Problem) -> Separator:
        return Mistakes(problem, shared=True)


class ExGreedy(CenterTree):
    """Every cut costs least if points go to the nearest center left on their side.

    Parameters are those of :class:`IMM`, without `metric`.

    References
    ----------
    .. [1] E. Laber, L. Murtinho, "On the price of explainability for some clustering problems", ICML 2021.
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        reference: Any = "kmeans",
        max_leaves: int | None = None,
        leaf_labels: str = "surrogate",
        refine: bool = False,
        n_init: int = 1,
        max_bins: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.reference = reference
        self.max_leaves = max_leaves
        self.leaf_labels = leaf_labels
        self.refine = refine
        self.n_init = n_init
        self.max_bins = max_bins
        self.random_state = random_state

    def _criterion(self, problem: Problem) -> Separator:
        return InducedCost(problem)


class ExShallow(CenterTree):
    """Cost against depth: the ratio of induced to current cost, plus an estimate of the depth below a cut.

    Parameters
    ----------
    depth_factor : float
        λ: the share of cost that one test less is worth, on average over points.
    n_clusters, reference, max_leaves, leaf_labels, refine, n_init, max_bins, random_state
        As for :class:`IMM`.

    Attributes
    ----------
    depth_factor_ : float
        The depth factor of the tree: `depth_factor`, or what :meth:`tune_depth_factor` found.
    goals_met_ : bool
        Whether :meth:`tune_depth_factor` reached its goals.
    tree_, labels_, cluster_centers_, inertia_
        As for :class:`IMM`.

    References
    ----------
    .. [1] E. S. Laber, L. Murtinho, F. Oliveira, "Shallow decision trees for explainable k-means clustering",
       Pattern Recognition, 2023.
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        depth_factor: float = 0.03,
        reference: Any = "kmeans",
        max_leaves: int | None = None,
        leaf_labels: str = "surrogate",
        refine: bool = False,
        n_init: int = 1,
        max_bins: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.depth_factor = depth_factor
        self.reference = reference
        self.max_leaves = max_leaves
        self.leaf_labels = leaf_labels
        self.refine = refine
        self.n_init = n_init
        self.max_bins = max_bins
        self.random_state = random_state

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_number("depth_factor", self.depth_factor)

    def _criterion(self, problem: Problem) -> Separator:
        return InducedCost(problem, self.depth_factor_)

    def fit(
        self, X: Any, y: Any = None, *, labels: Any = None, centers: Any = None, sample_weight: Any = None
    ) -> ExShallow:
        """Fit the tree; see :meth:`neonxc.trees.IMM.fit`."""
        self.depth_factor_ = self.depth_factor
        self.__dict__.pop("goals_met_", None)  # of an earlier search
        super().fit(X, labels=labels, centers=centers, sample_weight=sample_weight)
        return self

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
        """Fit the tree with a depth factor that reaches two goals: ExShallow*.

        The search halves an interval, from `depth_factor` on: less where the cost is above its goal, more where
        explanations are longer than theirs. If both goals can't be reached, the shortest explanations are taken
        whose cost is not above its goal; failing that, the least cost.

        Parameters
        ----------
        X, labels, centers, sample_weight
            As for :meth:`fit`.
        goal_cost : float
            Greatest ratio of the tree's k-means cost to the reference clustering's.
        goal_waes : float
            Greatest weighted average explanation size, in tests.

        Returns
        -------
        self
            With `depth_factor_`, the one that was found, and `goals_met_`, whether both goals are.

        References
        ----------
        .. [1] E. S. Laber, L. Murtinho, F. Oliveira, "Shallow decision trees for explainable k-means clustering",
           Pattern Recognition, 2023, Section 4.4.
        """
        self.depth_factor_ = self.depth_factor
        data = self._prepare(X, labels, centers, sample_weight)
        base = data.problem.cost(data.problem.labels)
        low, high = 0.0, np.inf
        found: list[tuple[bool, float, float, float, Any]] = []
        for factor in (self.depth_factor, *[None] * STEPS, 0.0):
            if factor is None:
                factor = (low + high) / 2 if high < np.inf else 2 * low or 1e-3
            self.depth_factor_ = float(factor)
            grown = self._grow(data.problem)
            self._finish(data, *grown)
            cost = self.inertia_ / base if base > 0 else float(self.inertia_ > 0) + 1
            size = waes(self.tree_)
            above = cost > goal_cost
            found.append((above, cost if above else size, cost, self.depth_factor_, grown))
            if not above and size <= goal_waes:
                break
            low, high = (low, self.depth_factor_) if above else (self.depth_factor_, high)
            narrow = high - low < 1e-4 * max(high, 1e-3) or (high == np.inf and low > 1e3)
            if narrow and not all(entry[0] for entry in found):
                break
        above, value, _, self.depth_factor_, grown = min(found, key=lambda entry: entry[:3])
        self._finish(data, *grown)
        self.goals_met_ = not above and value <= goal_waes
        return self
