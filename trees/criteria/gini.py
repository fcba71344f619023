"""Impurity of labels: CART."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from neonxc.trees import sweep
from neonxc.trees.problem import Cut, Node, Problem


class Gini:
    """The greatest decrease of Gini impurity, weighted by the points of a node, as scikit-learn's trees have it.

    Parameters
    ----------
    problem : Problem

    References
    ----------
    .. [1] L. Breiman et al., "Classification and regression trees", 1984.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.columns = problem.columns
        self.least = 0.5 if problem.weight is None else float(problem.weight.min()) / 2  # less is no point

    def bound(self, node: Node) -> float:
        """At most the gain of splitting the node: its impurity, weighted by its points."""
        mass = self._mass(node)
        total = float(mass.sum())
        impurity = total - float(mass.square().sum()) / total if total else 0.0
        return impurity if impurity > 8 * torch.finfo(torch.float64).eps * total else 0.0

    def best(self, node: Node) -> tuple[float, int, int] | None:
        """The best cut's gain, column and code; None where no cut leaves points on both sides."""
        best, mass = (torch.inf, 0, 0), self.problem.mass(node.rows)
        for first, counts, original in self._histograms(node):
            row, code, score = sweep.first_minimum(_impurity(counts, self.least), 1e-12 * mass)
            found = (score, row + first, code if original is None else int(original[row, code]))
            best = min(best, found, key=lambda cut: (round(cut[0] / mass, 11), cut[1], cut[2]))
        return None if best[0] == torch.inf else (self.bound(node) - best[0], *best[1:])

    def split(self, node: Node, cut: Cut, children: tuple[Node, Node]) -> None:
        """Count the smaller child; the larger one has the rest. Labels that are not there are left out."""
        if node.memory is None:
            return
        labels, counts = node.memory
        node.memory = None
        small, large = sorted(children, key=lambda child: len(child.rows))
        few = self._count(small, labels)
        for child, own in ((small, few), (large, counts - few)):
            there = torch.isin(labels, self.problem.labels[child.rows])
            child.memory = (labels, own) if bool(there.all()) else (labels[there], own[:, there])

    def _mass(self, node: Node) -> Tensor:
        """Points of every label."""
        if node.memory is not None:
            return node.memory[1][0].sum(1).to(torch.float64)
        labels = self.problem.labels[node.rows]
        return torch.bincount(labels, self.problem.weights(node.rows), minlength=self.problem.k).to(torch.float64)

    def _count(self, node: Node, labels: Tensor) -> Tensor:
        """Histogram of some labels, [d, labels, bins]."""
        own, weight = self.problem.positions(node.rows, labels), self.problem.weights(node.rows)
        return sweep.histogram(self.columns.binned(node.rows), self.columns.bins, own, len(labels), weight)

    def _histograms(self, node: Node) -> Iterable[tuple[int, Tensor, Tensor | None]]:
        """Histograms of the labels that are there, with the first of their columns and the codes' old values."""
        if not self.columns.separated or self.problem.k * self.problem.table.d * self.columns.bins > sweep.BUDGET:
            return sweep.histograms(self.problem, node, self.problem.labels[node.rows].unique())
        if node.memory is None:
            labels = self.problem.labels[node.rows].unique()
            node.memory = labels, self._count(node, labels)
        counts = node.memory[1]
        step = max(1, sweep.CACHED // (counts.shape[1] * self.columns.bins))
        return [(first, counts[first : first + step], None) for first in range(0, len(counts), step)]


def _impurity(counts: Tensor, least: float) -> Tensor:
    """Impurity left by every cut, weighted by points, [f, bins]; infinite where a side is empty."""
    up_to = counts.cumsum(2, dtype=counts.dtype).to(torch.float64)
    total = up_to[:1, :, -1]  # the same in every column
    left = up_to.sum(1)
    right = total.sum() - left
    squares = up_to.square().sum(1)
    squares_right = total.square().sum() - 2 * (total[0] @ up_to) + squares
    impurity = (left - squares / left) + (right - squares_right / right)
    return impurity.masked_fill_((left < least) | (right < least), torch.inf)
