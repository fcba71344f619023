"""Trees that separate reference centers: one leaf per center, better starts, refinement, more leaves."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from scipy.optimize import linear_sum_assignment
from sklearn.utils import check_random_state

from neonxc.parameters import check_whole
from neonxc.trees.base import TreeExplainer
from neonxc.trees.builder import TreeBuilder
from neonxc.trees.columns import code
from neonxc.trees.criteria.induced_cost import InducedCost
from neonxc.trees.criteria.mistakes import Mistakes
from neonxc.trees.criteria.surrogate import Surrogate
from neonxc.trees.growth import Separator, best_first, separate_centers
from neonxc.trees.problem import Node, Problem
from neonxc.trees.reference import kmeans
from neonxc.trees.refine import Grow, measured, refined

LEAF_LABELS = ("surrogate", "majority", "own")
STARTS: tuple[Callable[[Problem], Separator], ...] = (
    lambda problem: InducedCost(problem, 0.03),
    lambda problem: Mistakes(problem),
    lambda problem: InducedCost(problem),
    lambda problem: InducedCost(problem, 0.1),
    lambda problem: InducedCost(problem, 0.01),
    lambda problem: Mistakes(problem, shared=True),
)
"""Further starts, in turns: what is cheap at first is not always cheapest in the end."""
Leaves = tuple[TreeBuilder, list[Node]]


class CenterTree(TreeExplainer):
    """A tree with one leaf per reference center, and with more leaves if wanted."""

    max_leaves: int | None
    leaf_labels: str = "surrogate"
    refine: bool
    n_init: int

    @abstractmethod
    def _criterion(self, problem: Problem) -> Separator:
        """What makes a cut good."""

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_leaf_labels(self.leaf_labels)
        check_whole("n_init", self.n_init)

    def _grow(self, problem: Problem) -> tuple[TreeBuilder, list[Node], dict[int, int] | None]:
        if self.max_leaves is not None and self.max_leaves < problem.k:
            raise ValueError(f"max_leaves needs at least one leaf per cluster, {problem.k}, got {self.max_leaves}")
        builder, leaves = self._one_leaf_per_center(problem)
        if self.max_leaves is None or self.max_leaves == problem.k:
            return builder, leaves, {leaf.id: int(leaf.centers[0]) for leaf in leaves}
        leaves = best_first(problem, Surrogate(problem), builder, without_centers(leaves), self.max_leaves)
        return builder, leaves, label_leaves(problem, leaves, self.leaf_labels)

    def _one_leaf_per_center(self, problem: Problem) -> Leaves:
        """The explainer's tree; of several starts, and refined, that of least cost."""
        if not self.refine and self.n_init == 1:
            return separated(problem, self._criterion(problem))
        starts: list[tuple[Problem, Grow]] = [(problem, partial(grown_by, self._criterion))]
        for start in range(1, self.n_init):
            criterion = STARTS[(start - 1) % len(STARTS)]
            starts.append((self._other_reference(problem, start), partial(grown_by, criterion)))
        trees = [
            refined(at, grow, self.max_bins) if self.refine else measured(at, *grow(at)) for at, grow in starts
        ]
        best = min(trees, key=lambda tree: tree.cost)
        return best.builder, matched(best.leaves, problem)

    def _other_reference(self, problem: Problem, start: int) -> Problem:
        """The problem with k-means from another seed, where k-means is the reference; else as it is."""
        if self._given or self.reference != "kmeans" or self.metric != "l2":
            return problem
        seed = check_random_state(self.random_state).randint(1 << 30) + start
        centers, labels = kmeans(problem.table, problem.k, problem.weight, seed, n_init=1)
        columns = code(problem.table, centers, self.max_bins)
        moved = replace(problem, columns=columns, centers=centers, space_centers=centers)
        return replace(moved, labels=labels, given_distances=None)


def separated(problem: Problem, criterion: Separator) -> Leaves:
    """The tree of a criterion with one leaf per center."""
    builder = TreeBuilder()
    return builder, separate_centers(problem, criterion, builder)


def grown_by(criterion: Callable[[Problem], Separator], problem: Problem) -> Leaves:
    """The tree of a criterion that the problem is yet to be given to."""
    return separated(problem, criterion(problem))


def matched(leaves: list[Node], problem: Problem) -> list[Node]:
    """Number the clusters of leaves so that as many points as can be are in their reference cluster."""
    k = problem.k
    shared = torch.zeros(k, k, dtype=torch.float64, device=problem.device)
    for leaf in leaves:
        labels, weight = problem.labels[leaf.rows], problem.weights(leaf.rows)
        shared[leaf.centers[0]] += torch.bincount(labels, weight, minlength=k)
    ours, theirs = linear_sum_assignment(shared.cpu().numpy(), maximize=True)
    number = torch.empty(k, dtype=torch.int64, device=problem.device)
    number[torch.from_numpy(ours).to(problem.device)] = torch.from_numpy(theirs).to(problem.device)
    return [replace(leaf, centers=number[leaf.centers]) for leaf in leaves]


def without_centers(leaves: list[Node]) -> list[Node]:
    """Leaves as nodes that go on growing whatever centers they have."""
    return [Node(leaf.id, leaf.rows, leaf.centers[:0], leaf.sides) for leaf in leaves]


def check_leaf_labels(value: str) -> None:
    """Refuse another way of labelling leaves."""
    if value not in LEAF_LABELS:
        raise ValueError(f"leaf_labels needs one of {', '.join(LEAF_LABELS)}, got {value!r}")


def label_leaves(problem: Problem, leaves: list[Node], leaf_labels: str) -> dict[int, int] | None:
    """The reference cluster of every leaf; None where leaves are clusters of their own."""
    if leaf_labels == "own":
        return None
    if leaf_labels == "surrogate":
        surrogate = Surrogate(problem)
        return {leaf.id: surrogate.label(leaf.rows) for leaf in leaves}
    return {leaf.id: problem.majority(leaf.rows) for leaf in leaves}
