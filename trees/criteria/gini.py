"""Impurity of labels: CART."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from neonxc.trees import sweep
from neonxc.trees.problem import Cut, Node, Problem

SMALL, ROOM = 1 << 17, 3  # entries of a histogram: always few enough, and for every code of the table


@dataclass
class Memory:
    """What a node's labels weigh.

    Attributes
    ----------
    labels : Tensor [labels] of int64
        Those that are there.
    mass : Tensor [labels] of float64
        Their points, or weights.
    impurity : float
        Gini impurity, weighted by points.
    counts : Tensor [labels, cells] or None
        Their histograms of all columns, one after the other, if these are what cuts are found by.
    """

    labels: Tensor
    mass: Tensor
    impurity: float
    counts: Tensor | None = None


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
        # Else columns have so many values that to sort the points of a node costs less
        most = min(sweep.BUDGET, max(SMALL, ROOM * self.columns.codes.numel()))
        self.by_histograms = problem.k * self.columns.cells <= most
        self.ends = [0, *self.columns.size.cumsum(0).tolist()]  # of the columns, among the cells of a histogram

    def bound(self, node: Node) -> float:
        """At most the gain of splitting the node: its impurity, weighted by its points."""
        return self._memory(node).impurity

    def best(self, node: Node) -> tuple[float, int, int] | None:
        """The best cut's gain, column and code; None where no cut leaves points on both sides."""
        best, points = (torch.inf, 0, 0), self.problem.mass(node.rows)
        for found in self._least(node, 1e-12 * points):
            best = min(best, found, key=lambda cut: (round(cut[0] / points, 11), cut[1], cut[2]))
        return None if best[0] == torch.inf else (self.bound(node) - best[0], *best[1:])

    def split(self, node: Node, cut: Cut, children: tuple[Node, Node]) -> None:
        """Count the smaller child; the larger one has the rest. Labels that are not there are left out."""
        memory: Memory = node.memory
        node.memory = None
        if memory.counts is None:
            return
        small, large = sorted(children, key=lambda child: len(child.rows))
        few = self._count(small, memory.labels)
        for child, counts in ((small, few), (large, memory.counts.sub_(few))):
            labels, mass = memory.labels, counts[:, : self.ends[1]].sum(1).to(torch.float64)
            there = mass > self.least
            if not bool(there.all()):
                labels, mass, counts = labels[there], mass[there], counts[there]
            child.memory = Memory(labels, mass, self._impurity(mass), counts)

    def _memory(self, node: Node) -> Memory:
        """What the node's labels weigh; it stays with the node."""
        if node.memory is None:
            own, weight = self.problem.labels.index_select(0, node.rows), self.problem.weights(node.rows)
            mass = torch.bincount(own, weight, minlength=self.problem.k).to(torch.float64)
            labels = mass.nonzero()[:, 0]
            mass = mass[labels]
            node.memory = Memory(labels, mass, self._impurity(mass))
        return node.memory

    def _impurity(self, mass: Tensor) -> float:
        """Gini impurity of the masses of labels; 0 where it is but rounding."""
        values = mass.tolist()
        total = sum(values)
        impurity = total - sum(value * value for value in values) / total if total else 0.0
        return impurity if impurity > 8 * torch.finfo(torch.float64).eps * total else 0.0

    def _count(self, node: Node, labels: Tensor) -> Tensor:
        """Histograms of some labels, [labels, cells]."""
        own, weight = self.problem.positions(node.rows, labels), self.problem.weights(node.rows)
        return sweep.cells(
            self.columns.at(node.rows), self.columns.start, self.columns.cells, own, len(labels), weight
        )

    def _least(self, node: Node, slack: float) -> Iterator[tuple[float, int, int]]:
        """The least impurity that a cut of some columns leaves, its column and its code."""
        memory = self._memory(node)
        total, squares = float(memory.mass.sum()), float(memory.mass @ memory.mass)
        if self.by_histograms:
            if memory.counts is None:
                memory.counts = self._count(node, memory.labels)
            for first, last in self._parts(len(memory.labels)):
                a, b = self.ends[first], self.ends[last]
                sums = _sums_of_histogram(memory.counts[:, a:b], self.columns.column[a:b] - first, memory.mass)
                place, least = sweep.first_minimum(_left_over(*sums, total, squares, self.least)[None], slack)[1:]
                feature = int(self.columns.column[a + place])
                yield least, feature, a + place - self.ends[feature]
            return
        own, weight = self.problem.positions(node.rows, memory.labels), self.problem.weights(node.rows)
        for first, codes, original in sweep.node_codes(self.problem, node, 3):
            sums = _sums_of_points(codes, own, memory.mass, weight)
            row, code, least = sweep.first_minimum(_left_over(*sums, total, squares, self.least), slack)
            yield least, row + first, code if original is None else int(original[row, code])

    def _parts(self, labels: int) -> Iterator[tuple[int, int]]:
        """Ranges of columns whose histograms stay in a cache, or of a single one."""
        first, columns = 0, len(self.ends) - 1
        few = columns if self.problem.weight is None else 16  # sums over many columns would round weights too much
        for last in range(1, columns + 1):
            full = labels * (self.ends[min(last + 1, columns)] - self.ends[first]) > sweep.CACHED
            if last == columns or full or last - first == few:
                yield first, last
                first = last


def _sums_of_histogram(counts: Tensor, column: Tensor, mass: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of the masses L of labels left of every cut: their sum, that of L^2, and that of L times `mass`, [cells]."""
    up_to = counts.cumsum(1, dtype=torch.float64)
    up_to.addr_(mass, column.to(torch.float64), alpha=-1)  # every column before has all of the points
    return up_to.sum(0), torch.linalg.vecdot(up_to, up_to, dim=0), mass @ up_to


def _sums_of_points(
    codes: Tensor, labels: Tensor, mass: Tensor, weight: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """The same without histograms, whatever the number of labels.

    With the points of a label in the order of a column, a point of weight w that has the weight L before it adds
    ``(L + w)^2 - L^2`` to the sum of squares.
    """
    f, n = codes.shape
    bins = int(codes.max()) + 1
    sizes = torch.bincount(labels, minlength=len(mass))
    start = sizes.cumsum(0) - sizes
    label = torch.arange(len(mass), device=codes.device).repeat_interleave(sizes, output_size=n)
    shift = (torch.arange(f, device=codes.device) * len(mass))[:, None]
    key = (shift + labels) * bins + codes  # in one row, integers are sorted digit by digit
    key, order = key.flatten().sort(stable=True)
    place = key.view(f, n) - (shift + label) * bins
    if weight is None:
        rank = torch.arange(n, device=codes.device) - start[label]
        values = torch.stack([torch.ones_like(rank), 2 * rank + 1]).to(torch.float64)
        ones, squares = values[:, None].expand(-1, f, -1)
    else:
        ones = weight[order.view(f, n) - torch.arange(f, device=codes.device)[:, None] * n]
        before = ones.cumsum(1) - ones
        before = before - before.index_select(1, start.clamp(max=n - 1)).index_select(1, label)
        squares = ones * (2 * before + ones)
    sums = torch.zeros(3, f, bins, dtype=torch.float64, device=codes.device)
    for total, value in zip(sums, (ones, squares, ones * mass[label]), strict=True):
        total.scatter_add_(1, place, value)
    left, left_squares, products = sums.cumsum_(2)
    return left, left_squares, products


def _left_over(
    left: Tensor, squares: Tensor, products: Tensor, total: float, total_squares: float, least: float
) -> Tensor:
    """Impurity left by every cut, weighted by points, [f, bins]; infinite where a side is empty."""
    right = total - left
    squares_right = (total_squares - 2 * products).add_(squares)
    empty = torch.minimum(left, right) < least
    impurity = (left - squares / left).add_(right - squares_right / right)
    return impurity.masked_fill_(empty, torch.inf)
