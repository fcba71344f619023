"""Clustering as classification: cuts that tell points from empty space."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from neonxc.parameters import check_number
from neonxc.trees import sweep
from neonxc.trees.problem import Cut, Node, Problem
from neonxc.trees.unguided import UnguidedTree


class CLTree(UnguidedTree):
    """Cluster by a tree that separates dense regions, as if from a second class of points spread evenly.

    A baseline that needs no reference clustering: its leaves are clusters. If `fit` gets labels or centers, the
    same tree is grown, and its leaves take the reference cluster whose center costs their points least.

    Parameters
    ----------
    n_clusters : int, optional
        Most clusters. Default: as many as there are leaves.
    max_leaves : int, optional
        Only the first cuts, which gain most, are kept. Default: `n_clusters`.
    min_y : float in [0, 1]
        Nodes with a smaller share of the points are not cut.
    min_rd : float
        Two leaves of one parent become one if each has more points than this per uniform point, those in the gap
        between them counted with both. Greater values keep more leaves.
    random_state : ignored

    Attributes
    ----------
    tree_, labels_, cluster_centers_, inertia_
        As for :class:`IMM`.

    Notes
    -----
    Uniform points are counted, never drawn: a part of a node has its share of the node's side. A node has those
    that it gets from its parent, or as many as it has points, if these are more. Where the published tree needs
    two cuts for the two ends of an empty gap, and looks ahead for the second one, this tree counts both at once:
    what it gains by a cut is the information left, of points and uniform points up to the gap and beyond it. The
    threshold is in the middle of the gap.

    References
    ----------
    .. [1] B. Liu, Y. Xia, P. S. Yu, "Clustering through decision tree construction", CIKM 2000.

    Examples
    --------
    >>> import numpy as np
    >>> from neonxc.trees import CLTree
    >>> X = np.concatenate([np.linspace(0, 1, 50), np.linspace(9, 10, 50)])[:, None]
    >>> tree = CLTree().fit(X).tree_
    >>> tree, tree.threshold[0].item()
    (ThresholdTree(2 leaves, depth 1, 1 features), 5.0)
    """

    def __init__(
        self,
        n_clusters: int | None = None,
        *,
        max_leaves: int | None = None,
        min_y: float = 0.05,
        min_rd: float = 0.6,
        random_state: Any = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.max_leaves = max_leaves
        self.min_y = min_y
        self.min_rd = min_rd
        self.random_state = random_state

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_number("min_y", self.min_y, most=1)
        check_number("min_rd", self.min_rd)

    def _most_leaves(self) -> int | None:
        return self.n_clusters if self.max_leaves is None else self.max_leaves

    def _criterion(self, problem: Problem) -> EmptySpace:
        return EmptySpace(problem, self.min_y)

    def _alike(self, problem: Problem, criterion: Any, left: Node, right: Node) -> bool:
        return all(problem.mass(leaf.rows) > self.min_rd * criterion.around[leaf.id] for leaf in (left, right))


@dataclass
class Box:
    """Where a node is: the least and the greatest value of every column, [d], and its uniform points."""

    low: Tensor
    high: Tensor
    uniform: float


class EmptySpace:
    """The greatest information gain about which of a node's points are data, and which are uniform.

    Parameters
    ----------
    problem : Problem
    min_y : float
        The share of all points that a node needs to be cut.

    Attributes
    ----------
    around : dict of int to float
        The uniform points that every node got from its parent, and those in the gap beside it.
    """

    def __init__(self, problem: Problem, min_y: float) -> None:
        self.problem = problem
        self.columns = problem.columns
        self.least = min_y * problem.mass(problem.root().rows)
        self.values = torch.zeros(problem.table.d, self.columns.bins, dtype=torch.float64, device=problem.device)
        for first, last in problem.table.chunks():
            codes = self.columns.codes[first:last].to(torch.int64)
            self.values[first:last].scatter_(1, codes, problem.table.columns(first, last).to(torch.float64))
        self.around: dict[int, float] = {}

    def bound(self, node: Node) -> float:
        """At most the gain of splitting the node: what there is to know."""
        mass = self.problem.mass(node.rows)
        if mass < self.least or len(node.rows) < 2:
            return 0.0
        both = torch.tensor([mass, self._box(node).uniform], dtype=torch.float64)
        return float(_information(both[0], both[1]))

    def best(self, node: Node) -> tuple[float, int, int] | None:
        """The best cut's gain, column and code; None where none gains anything."""
        box, everything = self._box(node), self.bound(node)
        own, weight = torch.zeros_like(node.rows), self.problem.weights(node.rows)
        slack = 4 * (len(node.rows) + 1) * torch.finfo(torch.float64).eps * everything
        best = (slack, -1, 0)
        for first, codes, original in sweep.node_codes(self.problem, node, 8):
            bins, part = int(codes.max()) + 1, slice(first, first + len(codes))
            counts = sweep.histogram(codes, bins, own, 1, weight)[:, 0].to(torch.float64)
            values = self.values[part]
            values = values[:, :bins] if original is None else values.gather(1, original[:, :bins])
            up_to, beyond = _sides(values, counts > 0, box.low[part, None], box.high[part, None])
            left = counts.cumsum(1)
            right = left[:, -1:] - left
            rest = _information(left, box.uniform * up_to) + _information(right, box.uniform * beyond)
            gain = (everything - rest).masked_fill_((left <= 0) | (right <= 0), -1.0)
            row, code, least = sweep.first_minimum(-gain, slack)
            if -least > best[0] + (slack if best[1] >= 0 else 0):
                best = (-least, row + first, code if original is None else int(original[row, code]))
        return None if best[1] < 0 else best

    def split(self, node: Node, cut: Cut, children: tuple[Node, Node]) -> None:
        """Divide the box: up to the gap that the cut is in, and beyond."""
        box, feature = self._box(node), cut.feature
        low, high = float(box.low[feature]), float(box.high[feature])
        values = self.problem.table.column(feature, node.rows).to(torch.float64)
        last, first = float(values[cut.left].max()), float(values[~cut.left].min())
        per_length = box.uniform / (high - low)
        for child, ends in zip(children, ((low, last), (first, high)), strict=True):
            uniform = per_length * (ends[1] - ends[0])
            self.around[child.id] = uniform + per_length * (first - last)
            part = Box(box.low.clone(), box.high.clone(), max(uniform, self.problem.mass(child.rows)))
            part.low[feature], part.high[feature] = ends
            child.memory = part

    def _box(self, node: Node) -> Box:
        if node.memory is None:  # the root
            table = self.problem.table
            values = [table.columns(*chunk) for chunk in table.chunks()]
            low, high = (torch.cat([ends(part, 1) for part in values]) for ends in (torch.amin, torch.amax))
            node.memory = Box(low.to(torch.float64), high.to(torch.float64), self.problem.mass(node.rows))
        box: Box = node.memory
        return box


def _information(points: Tensor, uniform: Tensor) -> Tensor:
    """Entropy of the two classes, in nats, times their number."""
    total = points + uniform
    return torch.xlogy(total, total) - torch.xlogy(points, points) - torch.xlogy(uniform, uniform)


def _sides(values: Tensor, present: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """Shares of a box's sides [f, bins] up to the gap that a cut is in, and beyond it."""
    below = values.masked_fill(~present, -torch.inf).cummax(1).values
    above = values.masked_fill(~present, torch.inf).flip(1).cummin(1).values.flip(1).roll(-1, 1)
    return ((below - low) / (high - low)).clamp(0, 1), ((high - above) / (high - low)).clamp(0, 1)
