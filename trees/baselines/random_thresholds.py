"""Random thresholds: many trees with random cuts between the centers are drawn, and the cheapest is kept."""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import Any

import numpy as np
import torch
from torch import Tensor

import neonxc.trees.columns.sums as sums
from neonxc.trees.coding.midpoints import between
from neonxc.trees.estimator import TreeExplainer
from neonxc.trees.growth import Grown, Leaves, Step, grow_with_tests
from neonxc.trees.parameters import explainer
from neonxc.trees.problem import Node, Problem
from neonxc.trees.reading.reference import common_seed

ARRAYS = 8  # approximate number of arrays [nodes, d, k] that drawing cuts needs at the same time
Tests = dict[int, tuple[int, float]]
"""Column and threshold of every inner node; the root is 1, and the children of node p are 2 p and 2 p + 1."""


@explainer(
    n_trials="""int
    Number of trees that are drawn.""",
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
    metric: str = "l2"
    reference: Any = "kmeans"
    random_state: Any = None

    def _grow(self, problem: Problem) -> Grown:
        generator = np.random.default_rng(common_seed(self.random_state, problem.ranks))
        spread = problem.variances.sqrt().cpu().numpy()
        scale = np.where(spread > 0, spread, 1.0)
        drawn = draw(problem.centers.cpu().numpy() / scale, self.n_trials, self.metric, generator)
        trials = [{path: (f, t * float(scale[f])) for path, (f, t) in tests.items()} for tests in drawn]
        trees = (_build(problem, tests) for tests in trials)  # a generator, because each tree holds all points
        builder, leaves = min(trees, key=lambda tree: _cost(problem, tree[1]))
        return builder, leaves, {leaf.id: int(leaf.centers[0]) for leaf in leaves}


def draw(centers: np.ndarray, n_trials: int, metric: str, generator: np.random.Generator) -> list[Tests]:
    """Draw the tests of random trees that separate the centers [k, d], level by level for all trees together."""
    k, d = centers.shape
    step = max(1, sums.BUDGET // (ARRAYS * k * d))
    order = np.argsort(centers, axis=0, kind="stable").T  # [d, k]
    ordered = np.take_along_axis(centers.T, order, 1)
    trials: list[Tests] = [{} for _ in range(n_trials)]
    open_ = [(trial, 1, np.ones(k, dtype=bool)) for trial in range(n_trials)] if k > 1 else []
    while open_:
        member = np.stack([entry[2] for entry in open_])
        which, inside = generator.random(len(open_)), generator.random(len(open_))
        if metric == "l2":  # triangular: the middle between the two centers is the most likely threshold
            inside = (inside + generator.random(len(open_))) / 2
        gaps = [
            _gaps(member[first : first + step][:, order], ordered, metric, which[first : first + step])
            for first in range(0, len(open_), step)
        ]
        feature, low, high = (np.concatenate(parts) for parts in zip(*gaps, strict=True))
        next_ = []
        for node, (trial, path, reach) in enumerate(open_):
            threshold = between(low[node], high[node], None, inside[node])
            trials[trial][path] = (int(feature[node]), threshold)
            left = reach & (centers[:, feature[node]] <= threshold)
            for child, side in ((2 * path, left), (2 * path + 1, reach & ~left)):
                if side.sum() > 1:
                    next_.append((trial, child, side))
        open_ = next_
    return trials


def _gaps(
    reach: np.ndarray, ordered: np.ndarray, metric: str, which: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw a gap between adjacent centers for every node; return its column and the two centers' values.

    Parameters
    ----------
    reach : ndarray [nodes, d, k] of bool
        Whether a center reaches a node, with the centers sorted by value in every column.
    ordered : ndarray [d, k]
        The sorted values of the centers.
    which : ndarray [nodes]
        Uniform random numbers.
    """
    nodes, k = np.arange(len(reach)), reach.shape[2]
    before = np.full(reach.shape, -np.inf)  # value of the preceding center among those that reach the node
    before[..., 1:] = np.maximum.accumulate(np.where(reach, ordered, -np.inf), axis=2)[..., :-1]
    gap = np.where(reach & np.isfinite(before), ordered - np.where(np.isfinite(before), before, 0), 0)
    share = (gap if metric == "l1" else gap**2).reshape(len(reach), -1).cumsum(1)
    if not (share[:, -1] > 0).all():
        raise ValueError("two centers are the same in every column, so no cut separates them")
    place = (share < which[:, None] * share[:, -1:]).sum(1)
    feature, rank = place // k, place % k
    return feature, before[nodes, feature, rank], ordered[feature, rank]


def _build(problem: Problem, tests: Tests) -> Leaves:
    def test(path: int, node: Node) -> Step | None:
        return (problem.cut_at(node, *tests[path]), 2 * path, 2 * path + 1) if path in tests else None

    builder, leaves = grow_with_tests(problem, 1, test)
    return builder, [leaf for _, leaf in leaves]


def _cost(problem: Problem, leaves: list[Node]) -> float:
    labels: Tensor = torch.empty_like(problem.labels)
    for leaf in leaves:
        labels[leaf.rows] = leaf.centers[0]
    return problem.cost(labels)
