"""Points that a cut separates from their reference center: IMM and EMN."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from neonxc.trees import sweep
from neonxc.trees.problem import Cut, Node, Problem


@dataclass
class Memory:
    """Points whose center is still in the node, and what each cut costs each center.

    Attributes
    ----------
    rows : Tensor [points] of int64
    lost : Tensor [d, centers, bins]
        The points, or weights, that the cut at the end of each bin separates from each center.
    """

    rows: Tensor
    lost: Tensor


class Mistakes:
    """The least mistakes (IMM), or mistakes over the lesser number of centers on a side (EMN).

    A mistake counts once: points that were cut from their center do not count any more.

    Parameters
    ----------
    problem : Problem
    shared : bool
        Divide by the lesser number of centers.

    Notes
    -----
    Cuts within a bin are bounded from below by the points that lie in other bins; only the columns whose bound
    is not above the best cut between two bins are looked at value by value.

    References
    ----------
    .. [1] M. Moshkovitz, S. Dasgupta, C. Rashtchian, N. Frost, "Explainable k-means and k-medians clustering",
       ICML 2020, Algorithm 1.
    .. [2] H. Esfandiari, V. Mirrokni, S. Narayanan, "Almost tight approximation algorithms for explainable
       clustering", SODA 2022.
    """

    def __init__(self, problem: Problem, shared: bool = False) -> None:
        self.problem = problem
        self.columns = problem.columns
        self.shared = shared
        self.bin_of_centers = self.columns.centers.div(self.columns.width[:, None], rounding_mode="floor")
        self.wide = (self.columns.width > 1).nonzero()[:, 0]
        self.slack = 0.0  # sums of counts are exact, those of weights are not
        if problem.weight is not None:
            rounding = 4 * (problem.table.n + 1) * torch.finfo(torch.float64).eps
            self.slack = rounding * float(problem.weight.sum())

    def cut(self, node: Node) -> Cut | None:
        """The best cut that separates two of the node's centers; None if there is none."""
        if node.memory is None:  # the root
            node.memory = Memory(node.rows, self._lost(node.rows, node.centers))
        lost = node.memory.lost
        centers = self.bin_of_centers.index_select(1, node.centers)
        score = self._score(lost.sum(1, dtype=lost.dtype), centers)
        feature, place, best = sweep.first_minimum(score, self.slack)
        width = self.columns.width
        if best < torch.inf:
            found = (best, feature, int(width[feature]) * (place + 1) - 1)
        else:
            found = (torch.inf, self.problem.table.d, 0)
        if not self.columns.separated:
            found = self._first(found, self._within_bins(node, centers, found))
        return None if found[0] == torch.inf else self.problem.cut(node, *found[1:])

    def split(self, node: Node, cut: Cut, children: tuple[Node, Node]) -> None:
        """Hand the points that still count on to the children."""
        memory: Memory = node.memory
        node.memory = None
        if all(len(child.centers) == 1 for child in children):
            return
        rows, lost = memory.rows, memory.lost
        left = self.columns.codes[cut.feature].index_select(0, rows) <= cut.code
        labels = self.problem.labels.index_select(0, rows)
        together = left == (self.columns.centers[cut.feature] <= cut.code).index_select(0, labels)
        apart = rows.masked_select(~together)
        if len(apart):
            lost -= self._lost(apart, node.centers)
            rows, left = rows.masked_select(together), left.masked_select(together)
        for child, points, centers in zip(
            children, (left, ~left), (cut.centers_left, ~cut.centers_left), strict=True
        ):
            if len(child.centers) > 1:
                child.memory = Memory(rows.masked_select(points), lost.index_select(1, centers.nonzero()[:, 0]))

    def _lost(self, rows: Tensor, centers: Tensor) -> Tensor:
        """What the cuts separate from each of some centers of some points, [d, centers, bins]."""
        local, weight = self.problem.positions(rows, centers), self.problem.weights(rows)
        codes, own = self.columns.binned(rows), self.bin_of_centers.index_select(1, centers)
        return sweep.lost_by_center(codes, self.columns.row_bins, local, own, weight)

    def _score(self, mistakes: Tensor, centers: Tensor) -> Tensor:
        """Mistakes of the cuts that separate centers, divided as EMN does if asked to; infinite for others."""
        left = sweep.centers_left(centers, mistakes.shape[1])
        lesser = torch.minimum(left, centers.shape[1] - left)
        score = mistakes / lesser if self.shared else mistakes.to(torch.float64)
        return score.masked_fill_(lesser == 0, torch.inf)

    def _first(self, one: tuple[float, int, int], other: tuple[float, int, int]) -> tuple[float, int, int]:
        """The better cut; of equals that in the lower column, then at the lower code."""
        if abs(one[0] - other[0]) <= self.slack or one[0] == other[0]:
            return min(one, other, key=lambda cut: cut[1:])
        return min(one, other)

    def _within_bins(self, node: Node, centers: Tensor, found: tuple[float, int, int]) -> tuple[float, int, int]:
        """The best cut between values of one bin, if it may be better than the one found."""
        wide = self.wide
        lost, centers = node.memory.lost.index_select(0, wide), centers.index_select(0, wide)
        bound = sweep.least_within_bins(lost).to(torch.float64)
        low, high = centers.amin(1, keepdim=True), centers.amax(1, keepdim=True)
        place = torch.arange(bound.shape[1], device=bound.device)
        bound.masked_fill_((place < low) | (place > high), torch.inf)
        least = bound.amin(1) / (len(node.centers) // 2 if self.shared else 1)
        equal = (least <= found[0] + self.slack) & (wide <= found[1])
        features = wide[(least < found[0] - self.slack) | equal]
        rows = node.memory.rows
        local, weight = self.problem.positions(rows, node.centers), self.problem.weights(rows)
        best = (torch.inf, self.problem.table.d, 0)
        step = max(1, sweep.BUDGET // max(len(rows), self.columns.bins))
        for part in features.split(step) if len(features) else ():
            codes = self.columns.codes.index_select(0, part).index_select(1, rows)
            exact = self.columns.centers[part][:, node.centers]
            mistakes = sweep.separated_directly(codes, self.columns.bins, local, exact, weight)
            row, code, score = sweep.first_minimum(self._score(mistakes, exact), self.slack)
            best = self._first(best, (score, int(part[row]), code))
        return best
