"""Base class of explainers that separate the reference centers, with several starts, refinement and expansion."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import KW_ONLY, replace
from functools import partial
from typing import Any

import torch
from scipy.optimize import linear_sum_assignment
from sklearn.utils import check_random_state

from neonxc.trees.coding.codes import code_columns
from neonxc.trees.coding.exact import tally
from neonxc.trees.criteria.centers import CostAndDepth, InducedCost, Mistakes
from neonxc.trees.criteria.criterion import Criterion
from neonxc.trees.criteria.surrogate import Surrogate
from neonxc.trees.estimator import TreeExplainer
from neonxc.trees.explainers.refine import Grow, refined, score_tree
from neonxc.trees.fitted.builder import TreeBuilder
from neonxc.trees.growth import Grown, Leaves, best_first, label_leaves, separate_centers
from neonxc.trees.parameters import explainer
from neonxc.trees.problem import Node, Problem
from neonxc.trees.reading.reference import common_seed, kmeans, kmeans_of_group
from neonxc.trees.search import Search

STARTS: tuple[tuple[str, Callable[[Problem], Criterion]], ...] = (
    ("ExShallow, depth_factor=0.03", lambda problem: CostAndDepth(problem, 0.03)),
    ("IMM", Mistakes),
    ("ExGreedy", InducedCost),
    ("ExShallow, depth_factor=0.1", lambda problem: CostAndDepth(problem, 0.1)),
    ("ExShallow, depth_factor=0.01", lambda problem: CostAndDepth(problem, 0.01)),
    ("EMN", lambda problem: Mistakes(problem, shared=True)),
)
"""Criteria of the starts after the first one, used cyclically with ``n_init > 1``."""


@explainer()
class CenterTree(TreeExplainer):
    """Base class of trees with one leaf per reference center, or more leaves if `max_leaves` is larger."""

    n_clusters: int = 8
    _: KW_ONLY
    reference: Any = "kmeans"
    max_leaves: int | None = None
    leaf_labels: str = "surrogate"
    refine: bool = False
    n_init: int = 1
    max_bins: int | None = None
    random_state: Any = None

    _separates_centers = True
    _uses_distances = False  # whether the criterion needs the distances of all points to the centers

    @abstractmethod
    def _criterion(self, problem: Problem) -> Criterion:
        """Criterion by which cuts are chosen."""

    def _streams(self) -> bool | None:
        several = self.refine or self.n_init > 1
        return None if several else self._uses_distances or self.max_leaves is not None

    def _grow(self, problem: Problem, smaller: Grown | None = None) -> Grown:
        if self.max_leaves is not None and self.max_leaves < problem.k:
            needed = f"at least the number of clusters, {problem.k}"
            raise ValueError(f"max_leaves must be {needed}, got {self.max_leaves}")
        builder, leaves = self._one_leaf_per_center(problem) if smaller is None else smaller[:2]
        if self.max_leaves is None or self.max_leaves == problem.k:
            centers = torch.cat([leaf.centers for leaf in leaves]).tolist()
            return builder, leaves, {leaf.id: center for leaf, center in zip(leaves, centers, strict=True)}
        nodes = [leaf.without_centers() for leaf in leaves]
        leaves = best_first(Search(problem, Surrogate(problem)), builder, nodes, self.max_leaves)
        return builder, leaves, label_leaves(problem, leaves, self.leaf_labels)

    def _one_leaf_per_center(self, problem: Problem) -> Leaves:
        """Grow the explainer's tree; of several starts, the tree with the lowest cost is kept."""
        self.criterion_ = type(self).__name__
        if not self.refine and self.n_init == 1:
            return one_leaf_per_center(problem, self._criterion(problem))
        starts: list[tuple[str, Problem, Grow]] = [
            (self.criterion_, problem, partial(grow_with_criterion, self._criterion))
        ]
        for start in range(1, self.n_init):
            name, criterion = STARTS[(start - 1) % len(STARTS)]
            starts.append((name, self._other_reference(problem, start), partial(grow_with_criterion, criterion)))
        trees = [
            (name, refined(at, grow, self.max_bins) if self.refine else score_tree(at, *grow(at)))
            for name, at, grow in starts
        ]
        self.criterion_, best = min(trees, key=lambda tree: tree[1].cost)
        return best.builder, match_labels(best.leaves, problem)

    def _other_reference(self, problem: Problem, start: int) -> Problem:
        """The problem with k-means fitted from another seed; unchanged if the reference is not k-means."""
        if self._given or self.reference != "kmeans" or self.metric != "l2":
            return problem
        ranks = problem.ranks
        if ranks.alone:
            seed = check_random_state(self.random_state).randint(1 << 30) + start
            centers, labels = kmeans(problem.table, problem.k, problem.weight, seed, n_init=1)
        else:
            seed = common_seed(self.random_state, ranks) + start
            centers = kmeans_of_group(problem.table, problem.k, problem.weight, seed, ranks)
            labels = problem.table.distances(centers).argmin(1)
        columns = code_columns(problem.table, centers, self.max_bins, problem.weight, ranks)
        moved = replace(problem, columns=columns, centers=centers, space_centers=centers)
        return replace(moved, labels=labels, given_distances=None)


def one_leaf_per_center(problem: Problem, criterion: Criterion) -> Leaves:
    """Grow a tree by a criterion until every leaf has one center."""
    builder = TreeBuilder()
    return builder, separate_centers(Search(problem, criterion), builder)


def grow_with_criterion(criterion: Callable[[Problem], Criterion], problem: Problem) -> Leaves:
    """Create the criterion for a problem, and grow a tree with one leaf per center."""
    return one_leaf_per_center(problem, criterion(problem))


def match_labels(leaves: list[Node], problem: Problem) -> list[Node]:
    """Renumber the clusters of leaves so that as many points as possible are in their reference cluster."""
    k = problem.k
    shared = torch.zeros(k, k, dtype=torch.float64, device=problem.device)
    for leaf in leaves:
        labels, weight = problem.labels[leaf.rows], problem.weights(leaf.rows)
        shared[leaf.centers[0]] += tally(labels, k, weight)
    shared = problem.reduce(shared)
    ours, theirs = linear_sum_assignment(shared.cpu().numpy(), maximize=True)
    number = torch.empty(k, dtype=torch.int64, device=problem.device)
    number[torch.from_numpy(ours).to(problem.device)] = torch.from_numpy(theirs).to(problem.device)
    return [replace(leaf, centers=number[leaf.centers]) for leaf in leaves]
