"""Decrease of the surrogate cost, which is measured to fixed reference centers: the criterion of ExKMC."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from neonxc.trees.criteria.criterion import Criterion
from neonxc.trees.criteria.sums import Sum, channels
from neonxc.trees.cuts.cuts import Cuts
from neonxc.trees.cuts.nodes import Node

FEW = 1 << 18  # number of gains (points x centers x columns) below which leaving out centers saves no time


@dataclass
class NodeGains:
    """Costs of a node's points at the reference centers.

    Attributes
    ----------
    gains : Tensor [points, k]
        Cost of a point at each center minus its cost at the node's best center.
    size : float
        Cost of the node at its worst center.
    gain : float
        Upper bound of the gain of splitting the node.
    reach : Tensor [k] or None
        Lower bound of the score of a cut for which the center is the best one of a side.
    rest : Tensor [k] of bool or None
        Centers whose gains are summed only if they turn out to be needed.
    """

    gains: Tensor
    size: float
    gain: float
    reach: Tensor | None
    rest: Tensor | None = None


class Surrogate(Criterion):
    """Minus the decrease of the surrogate cost, in which a leaf is assigned to its best reference center.

    References
    ----------
    .. [1] N. Frost, M. Moshkovitz, C. Rashtchian, "ExKMC: Expanding explainable k-means clustering", 2020,
       Definition 1 and Algorithm 1.
    """

    def open(self, node: Node) -> NodeGains:
        """Gains of the node's points, and bounds that tell which centers can be the best one of a side."""
        problem = self.problem
        k = self.problem.k
        distances = problem.weighted(problem.distances.index_select(0, node.rows).T, node.rows).T
        total = problem.reduce(distances.sum(0))
        gains = distances - distances[:, total.argmin()[None]]
        size = float(total.max())
        slack = node.rounding(size)
        many = k * node.n * problem.table.d > FEW and k < 8 * problem.table.d and not problem.sharded
        reach = _reach(gains) if many else None
        gain = -float(problem.reduce(gains.amin(1).sum()) if reach is None else reach.min())
        return NodeGains(gains, size, gain + slack if gain > slack else -torch.inf, reach)

    def sums(self, node: Node) -> Sequence[Sum]:
        """Gains at the centers that can be the best one of a side; of many centers, only at the most promising."""
        state: NodeGains = node.state
        first = self.problem.reduce((state.gains < 0).any(0), "max")  # no other center improves on the node's best
        if state.reach is not None:
            state.rest = first & (state.reach > state.reach.min() + node.rounding(state.size))
            first = first & ~state.rest
        return (self._channels(node, first),)

    def further(self, node: Node, least: float) -> Sequence[Sum]:
        """Gains at the remaining centers that a better cut may need."""
        state: NodeGains = node.state
        if state.rest is None or state.reach is None:
            return ()
        more = state.rest & (state.reach <= least + 2 * node.rounding(state.size))
        return (self._channels(node, more),) if bool(more.any()) else ()

    def _channels(self, node: Node, centers: Tensor) -> Sum:
        return channels(node, node.state.gains[:, centers].T.contiguous())

    def score(self, node: Node, cuts: Cuts) -> Tensor:
        """Sum of the gains of the two sides at their best centers, each at most 0."""
        return cuts.left.amin(0).clamp_(max=0) + cuts.right.amin(0).clamp_(max=0)

    def size(self, node: Node) -> float:
        """Cost at the worst center."""
        return float(node.state.size)

    def bound(self, node: Node) -> float:
        """Upper bound of the gain, which includes a margin for rounding errors."""
        return float(node.state.gain)

    def gain(self, node: Node, score: float) -> float:
        """Decrease of the cost; 0 is allowed, because some leaves need two cuts to lower their cost."""
        return max(-score, 0.0)


def _reach(gains: Tensor) -> Tensor:
    """Lower bound of the score of a cut for which a center is the best one of a side, [centers].

    If the two sides have best centers a and b, the score is at least the sum over points of the smaller of their
    gains [points, centers] at a and b, which is ``(a + b - |a - b|) / 2`` for each point.
    """
    total = gains.sum(0)
    one, other = torch.triu_indices(len(total), len(total), 1, device=gains.device)
    least = total[one] + total[other] - torch.nn.functional.pdist(gains.T, 1)
    reach = torch.full_like(total, torch.inf)
    return reach.scatter_reduce_(0, one, least, "amin").scatter_reduce_(0, other, least, "amin") / 2
