"""Clustering as classification: cuts that tell points from empty space."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from neonxc.trees import sweep
from neonxc.trees.problem import Cut, Node, Problem
from neonxc.trees.unguided import UnguidedTree


class CLTree(UnguidedTree):
    """Cluster by a tree that separates dense regions from empty ones, as if from a second class of uniform points.

    A baseline that needs no reference clustering: its leaves are clusters. If `fit` gets labels or centers, the same
    tree is grown, and its leaves take the reference cluster whose center costs their points least.

    Parameters
    ----------
    n_clusters : int, optional
        Most clusters. Default: as many as there are leaves.
    max_leaves : int, optional
        Only the first cuts, which gain most, are kept. Default: `n_clusters`.
    min_y : float in [0, 1]
        Nodes with a smaller share of the points are not cut.
    min_rd : float
        Two leaves of one parent become one if both have more points than this per uniform point: no empty space
        lies between them.
    random_state : ignored
        Nothing here is random.

    Attributes
    ----------
    tree_, labels_, cluster_centers_, inertia_
        As for :class:`IMM`.

    Notes
    -----
    The uniform points are counted, never drawn: the number in a part of a node is proportional to its side. A node
    has those that it gets from its parent, or as many as it has points, if these are more. The published tree looks
    ahead for a second and a third cut into the emptier side; this one takes the cut that gains most.

    References
    ----------
    .. [1] B. Liu, Y. Xia, P. S. Yu, "Clustering through decision tree construction", CIKM 2000.

    Examples
    --------
    >>> import numpy as np
    >>> from neonxc.trees.cltree import CLTree
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
        min_y: float = 0.01,
        min_rd: float = 0.3,
        random_state: Any = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.max_leaves = max_leaves
        self.min_y = min_y
        self.min_rd = min_rd
        self.random_state = random_state

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if not 0 <= self.min_y <= 1:
            raise ValueError(f"min_y needs a share of the points, in [0, 1], got {self.min_y!r}")
        if not self.min_rd >= 0:
            raise ValueError(f"min_rd needs a number >= 0, got {self.min_rd!r}")

    def _most_leaves(self) -> int | None:
        return self.n_clusters if self.max_leaves is None else self.max_leaves

    def _criterion(self, problem: Problem) -> EmptySpace:
        return EmptySpace(problem, self.min_y)

    def _alike(self, problem: Problem, criterion: Any, left: Node, right: Node) -> bool:
        return all(problem.mass(leaf.rows) > self.min_rd * criterion.uniform[leaf.id] for leaf in (left, right))


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
    uniform : dict of int to float
        The uniform points that every node got from its parent.
    """

    def __init__(self, problem: Problem, min_y: float) -> None:
        self.problem = problem
        self.columns = problem.columns
        self.least = min_y * problem.mass(problem.root().rows)
        self.values = torch.zeros(problem.table.d, self.columns.bins, dtype=torch.float64, device=problem.device)
        for first, last in problem.table.chunks():
            codes = self.columns.codes[first:last].to(torch.int64)
            self.values[first:last].scatter_(1, codes, problem.table.columns(first, last).to(torch.float64))
        self.uniform: dict[int, float] = {}

    def bound(self, node: Node) -> float:
        """At most the gain of splitting the node: what there is to know."""
        mass = self.problem.mass(node.rows)
        if mass < self.least or len(node.rows) < 2:
            return 0.0
        return float(_information(torch.tensor(mass, dtype=torch.float64), torch.tensor(self._box(node).uniform)))

    def best(self, node: Node) -> tuple[float, Cut] | None:
        """The best cut and its gain; None where no cut gains anything."""
        box, everything = self._box(node), self.bound(node)
        own, weight = torch.zeros_like(node.rows), self.problem.weights(node.rows)
        slack = 4 * (len(node.rows) + 1) * torch.finfo(torch.float64).eps * everything
        best = (slack, -1, 0)
        for first, codes, original in sweep.node_codes(self.problem, node, 8):
            bins, part = int(codes.max()) + 1, slice(first, first + len(codes))
            counts = sweep.histogram(codes, bins, own, 1, weight)[:, 0].to(torch.float64)
            values = self.values[part, :bins] if original is None else self.values[part].gather(1, original[:, :bins])
            low, high = box.low[part, None], box.high[part, None]
            share = ((_midway(values, counts > 0) - low) / (high - low)).clamp(0, 1)
            left = counts.cumsum(1)
            right = left[:, -1:] - left
            rest = _information(left, box.uniform * share) + _information(right, box.uniform * (1 - share))
            gain = (everything - rest).masked_fill_((left <= 0) | (right <= 0), -1.0)
            row, code, least = sweep.first_minimum(-gain, slack)
            if -least > best[0] + (slack if best[1] >= 0 else 0):
                best = (-least, row + first, code if original is None else int(original[row, code]))
        return None if best[1] < 0 else (best[0], self.problem.cut(node, best[1], best[2]))

    def split(self, node: Node, cut: Cut, children: tuple[Node, Node]) -> None:
        """Divide the box and its uniform points."""
        box, feature = self._box(node), cut.feature
        low, high = float(box.low[feature]), float(box.high[feature])
        share = (cut.threshold - low) / (high - low)
        for child, part, side in zip(children, (share, 1 - share), (box.high, box.low), strict=True):
            self.uniform[child.id] = box.uniform * part
            moved = side.clone()
            moved[feature] = cut.threshold
            ends = (box.low, moved) if side is box.high else (moved, box.high)
            child.memory = Box(*ends, max(box.uniform * part, self.problem.mass(child.rows)))

    def _box(self, node: Node) -> Box:
        if node.memory is None:  # the root
            values = [self.problem.table.columns(*chunk).to(torch.float64) for chunk in self.problem.table.chunks()]
            low, high = torch.cat([part.amin(1) for part in values]), torch.cat([part.amax(1) for part in values])
            node.memory = Box(low, high, self.problem.mass(node.rows))
        box: Box = node.memory
        return box


def _information(points: Tensor, uniform: Tensor) -> Tensor:
    """Entropy of the two classes, in nats, times their number."""
    total = points + uniform
    return torch.xlogy(total, total) - torch.xlogy(points, points) - torch.xlogy(uniform, uniform)


def _midway(values: Tensor, present: Tensor) -> Tensor:
    """The threshold of every cut [f, bins], between the nearest values that are present on either side."""
    below = values.masked_fill(~present, -torch.inf).cummax(1).values
    above = values.masked_fill(~present, torch.inf).flip(1).cummin(1).values.flip(1)
    return (below + above.roll(-1, 1)) / 2
