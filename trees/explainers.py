"""Tree explainers that separate reference centers: a criterion, and growth until every leaf has one center."""

from __future__ import annotations

from typing import Any

import numpy as np

from neonxc.trees.center_tree import CenterTree
from neonxc.trees.criteria.induced_cost import InducedCost
from neonxc.trees.criteria.mistakes import Mistakes
from neonxc.trees.growth import Separator
from neonxc.trees.problem import Problem


class IMM(CenterTree):
    """Iterative mistake minimization: every cut separates the fewest points from their centers.

    Parameters
    ----------
    n_clusters : int
        For `reference` "kmeans" and "spectral".
    reference : {"kmeans", "spectral"} or estimator
        The clustering that is explained, unless `fit` gets labels or centers. Behind a pipeline's first steps costs
        are measured in the space of its last one, and rules are in raw units.
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
        Starts from other reference clusterings, of which the tree of least cost is kept.
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
        if not 0 <= self.depth_factor < np.inf:
            raise ValueError(f"depth_factor needs a number >= 0, got {self.depth_factor!r}")

    def _criterion(self, problem: Problem) -> Separator:
        return InducedCost(problem, self.depth_factor)
