"""Random thresholds: many trees with random cuts between the centers are drawn, and the cheapest is kept.

A cut of the centers of a node falls between two that are adjacent in a column, at a distance g (in standard
deviations of the column if costs are measured behind a scaler):

                     probability of the pair     threshold, in units of g from the lower center
    k-medians (l1)   proportional to g           uniform: u
    k-means (l2)     proportional to g^2         triangular: (u + u') / 2
"""

from __future__ import annotations

from dataclasses import KW_ONLY

import numpy as np
import torch

from neonxc.common.types import RandomState
from neonxc.trees.cuts.growth import Grown, Node, Step, between, cut_at, grow_with_tests
from neonxc.trees.estimator import TreeExplainer
from neonxc.trees.fit.problem import Problem
from neonxc.trees.fit.reference import common_seed
from neonxc.trees.parameters import Metric, explainer
from neonxc.trees.saving import register_explainer

Tests = dict[int, tuple[int, float]]
"""Column and threshold of every inner node; the root is 1, and the children of node p are 2 p and 2 p + 1."""


@register_explainer
@explainer(
    n_trials="""Number of trees that are drawn.""",
    random_state="""int, RandomState or None
    Seed of the cuts that are drawn, and of the reference clustering, if it is fitted here.""",
)
class RandomThresholds(TreeExplainer):
    """Random cuts between the reference centers; the best of many trees is kept.

    A cut falls between two centers that are adjacent in a column. For k-medians (``metric="l1"``), the two centers
    are chosen with a probability proportional to their distance, and the threshold is uniform between them. For
    k-means, the probability is proportional to the squared distance, and the threshold has a triangular density
    with its mode in the middle. The cost of a point is its distance to the center of its leaf.

    Attributes
    ----------
    tree_, labels_, cluster_centers_, inertia_
        As for :class:`IMM`.

    References
    ----------
    .. [1] B. Gamlath, X. Jia, A. Polak, O. Svensson, "Nearly-tight and oblivious algorithms for explainable
       clustering", NeurIPS 2021.
    .. [2] K. Makarychev, L. Shan, "Near-optimal algorithms for explainable k-medians and k-means", ICML 2021.
    """

    n_clusters: int = 8
    _: KW_ONLY
    n_trials: int = 100
    metric: Metric = "l2"
    reference: object = "kmeans"
    random_state: RandomState = None

    def _grow(self, problem: Problem) -> Grown:
        spread = problem.variances.sqrt().cpu().numpy()
        scale = np.where(spread > 0, spread, 1.0)
        generator = np.random.default_rng(common_seed(self.random_state, problem.ranks))
        drawn = draw(problem.centers.cpu().numpy(), self.n_trials, self.metric, generator, scale)
        trees = (_build(problem, tests) for tests in drawn)  # a generator, because each tree holds all points
        return min(trees, key=lambda grown: _cost(problem, grown))


def draw(
    centers: np.ndarray,
    n_trials: int,
    metric: str,
    generator: np.random.Generator,
    scale: np.ndarray | float = 1.0,
) -> list[Tests]:
    """Draw the tests of random trees that separate the centers [k, d], whose columns have a scale [d].

    Thresholds are in the units of the columns: rounding may put a rescaled one on one side of both centers.
    """
    trials: list[Tests] = [{} for _ in range(n_trials)]
    open_ = [(tests, 1, centers) for tests in trials if len(centers) > 1]
    while open_:  # one level of all trees
        pair_draws, threshold_draws = generator.random((2, len(open_)))
        if metric == "l2":
            threshold_draws = (threshold_draws + generator.random(len(open_))) / 2
        level = open_
        open_ = []
        for node, u_pair, u_threshold in zip(level, pair_draws, threshold_draws, strict=True):
            tests, path, node_centers = node
            ordered = np.sort(node_centers, axis=0)
            distances = ((ordered[1:] - ordered[:-1]) / scale).T  # between adjacent centers in every column
            weights = distances if metric == "l1" else distances**2
            cumulative = weights.cumsum()
            if not cumulative[-1] > 0:
                raise ValueError("two centers are the same in every column, so no cut separates them")
            pair = int(cumulative.searchsorted(u_pair * cumulative[-1]))
            feature, rank = divmod(pair, len(node_centers) - 1)
            threshold = between(ordered[rank, feature], ordered[rank + 1, feature], None, u_threshold)
            tests[path] = feature, threshold

            is_left = node_centers[:, feature] <= threshold
            left = (tests, 2 * path, node_centers[is_left])
            right = (tests, 2 * path + 1, node_centers[~is_left])
            open_ += [side for side in (left, right) if len(side[2]) > 1]
    return trials


def _build(problem: Problem, tests: Tests) -> Grown:
    """Grow a tree from its tests."""

    def test(path: int, node: Node) -> Step | None:
        if path not in tests:
            return None
        feature, threshold = tests[path]
        return cut_at(problem, node, feature, threshold), 2 * path, 2 * path + 1

    grown = grow_with_tests(problem, 1, test)
    grown.clusters = {leaf.id: int(leaf.centers[0]) for leaf in grown.leaves}
    return grown


def _cost(problem: Problem, grown: Grown) -> float:
    """Compute the cost of the points at the centers of their leaves."""
    labels = torch.empty_like(problem.labels)
    for leaf in grown.leaves:
        labels[leaf.rows] = leaf.centers[0]
    return problem.cost(labels)
