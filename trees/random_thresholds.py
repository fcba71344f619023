"""Trees of random cuts, of which the best is kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

import neonxc.trees.sums as sums
from neonxc.parameters import check_whole
from neonxc.trees.builder import TreeBuilder
from neonxc.trees.estimator import TreeExplainer
from neonxc.trees.growth import Step, replayed
from neonxc.trees.problem import Node, Problem, between
from neonxc.trees.shards import common_seed

ARRAYS = 8  # of [nodes, d, k], about, that drawing cuts takes at once
Tests = dict[int, tuple[int, float]]
"""Path from the root (1, then 2 p and 2 p + 1) -> column and threshold."""


class RandomThresholds(TreeExplainer):
    """Random cuts between centers, many trees at once; the tree of least cost is kept.

    A node's cut falls between two neighbouring centers of a column: with a probability proportional to their
    distance and anywhere between them for k-medians (``metric="l1"``), with one proportional to its square and
    rather in the middle for k-means. Every point costs what it does at the center of its leaf.

    Parameters
    ----------
    n_trials : int
        Trees that are drawn.
    metric : {"l2", "l1"}
        k-means or k-medians.
    n_clusters, reference, max_bins, random_state
        As for :class:`IMM`.

    References
    ----------
    .. [1] B. Gamlath, X. Jia, A. Polak, O. Svensson, "Nearly-tight and oblivious algorithms for explainable
       clustering", NeurIPS 2021.
    .. [2] K. Makarychev, L. Shan, "Near-optimal algorithms for explainable k-medians and k-means", ICML 2021.
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        n_trials: int = 100,
        metric: str = "l2",
        reference: Any = "kmeans",
        max_bins: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.n_trials = n_trials
        self.metric = metric
        self.reference = reference
        self.max_bins = max_bins
        self.random_state = random_state

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_whole("n_trials", self.n_trials)

    def _grow(self, problem: Problem) -> tuple[TreeBuilder, list[Node], dict[int, int] | None]:
        generator = np.random.default_rng(common_seed(self.random_state, problem.ranks))
        spread = problem.variances.sqrt().cpu().numpy()
        scale = np.where(spread > 0, spread, 1.0)
        drawn = draw(problem.centers.cpu().numpy() / scale, self.n_trials, self.metric, generator)
        trials = [{path: (f, t * float(scale[f])) for path, (f, t) in tests.items()} for tests in drawn]
        trees = (_build(problem, tests) for tests in trials)  # one at a time: each holds all points
        builder, leaves = min(trees, key=lambda tree: _cost(problem, tree[1]))
        return builder, leaves, {leaf.id: int(leaf.centers[0]) for leaf in leaves}


def draw(centers: np.ndarray, n_trials: int, metric: str, generator: np.random.Generator) -> list[Tests]:
    """Tests of random trees that separate the centers [k, d]; all trials draw their next cuts at once."""
    k, d = centers.shape
    step = max(1, sums.BUDGET // (ARRAYS * k * d))
    order = np.argsort(centers, axis=0, kind="stable").T  # [d, k]
    ordered = np.take_along_axis(centers.T, order, 1)
    trials: list[Tests] = [{} for _ in range(n_trials)]
    open_ = [(trial, 1, np.ones(k, dtype=bool)) for trial in range(n_trials)] if k > 1 else []
    while open_:
        member = np.stack([entry[2] for entry in open_])
        which, inside = generator.random(len(open_)), generator.random(len(open_))
        if metric == "l2":  # a triangle: likelier the farther from both centers
            inside = (inside + generator.random(len(open_))) / 2
        gaps = [
            _gaps(member[first : first + step][:, order], ordered, metric, which[first : first + step])
            for first in range(0, len(open_), step)
        ]
        feature, low, high = (np.concatenate(parts) for parts in zip(*gaps, strict=True))
        next_ = []
        for node, (trial, path, centers_there) in enumerate(open_):
            threshold = between(low[node], high[node], None, inside[node])
            trials[trial][path] = (int(feature[node]), threshold)
            left = centers_there & (centers[:, feature[node]] <= threshold)
            for child, side in ((2 * path, left), (2 * path + 1, centers_there & ~left)):
                if side.sum() > 1:
                    next_.append((trial, child, side))
        open_ = next_
    return trials


def _gaps(
    there: np.ndarray, ordered: np.ndarray, metric: str, which: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw a gap between neighbouring centers for every node: its column, and the two centers' values.

    Parameters
    ----------
    there : ndarray [nodes, d, k] of bool
        Which centers reach a node, in the order of every column.
    ordered : ndarray [d, k]
        Their values.
    which : ndarray [nodes]
        Uniform random numbers.
    """
    nodes, k = np.arange(len(there)), there.shape[2]
    before = np.full(there.shape, -np.inf)  # the value of the center before, among those that reach the node
    before[..., 1:] = np.maximum.accumulate(np.where(there, ordered, -np.inf), axis=2)[..., :-1]
    gap = np.where(there & np.isfinite(before), ordered - np.where(np.isfinite(before), before, 0), 0)
    share = (gap if metric == "l1" else gap**2).reshape(len(there), -1).cumsum(1)
    if not (share[:, -1] > 0).all():
        raise ValueError("some centers are the same in every column, so that no cut separates them")
    place = (share < which[:, None] * share[:, -1:]).sum(1)
    feature, rank = place // k, place % k
    return feature, before[nodes, feature, rank], ordered[feature, rank]


def _build(problem: Problem, tests: Tests) -> tuple[TreeBuilder, list[Node]]:
    def test(path: int, node: Node) -> Step | None:
        return (problem.cut_at(node, *tests[path]), 2 * path, 2 * path + 1) if path in tests else None

    builder, leaves = replayed(problem, 1, test)
    return builder, [leaf for _, leaf in leaves]


def _cost(problem: Problem, leaves: list[Node]) -> float:
    labels: Tensor = torch.empty_like(problem.labels)
    for leaf in leaves:
        labels[leaf.rows] = leaf.centers[0]
    return problem.cost(labels)
