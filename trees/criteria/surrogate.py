"""Decrease of the surrogate cost, which is measured to fixed reference centers: the criterion of ExKMC.

With the costs D(x, c) of a node's points x at the reference centers c, the node costs ``min_c sum_x D(x, c)``.
Let a be the center at which that minimum is taken, and ``g(x, c) = D(x, c) - D(x, a)`` the *gain* of a point,
below 0 where c is better. A cut into L and R lowers the node's cost by minus its score,

    score  =  min(0, min_c sum over L of g(x, c))  +  min(0, min_c sum over R of g(x, c)).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from neonxc.trees.criteria.criterion import Criterion, Pruning
from neonxc.trees.criteria.sums import Sum, channels
from neonxc.trees.cuts.growth import Node
from neonxc.trees.cuts.search import Cuts

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
    bound : float
        Upper bound of the gain of splitting the node; minus infinity if only rounding errors could be gained.
    reach : Tensor [k] or None
        Lower bound of the score of a cut for which the center is the best one of a side.
    postponed : Tensor [k] of bool or None
        Centers whose gains are summed only if they turn out to be needed.
    """

    gains: Tensor
    size: float
    bound: float
    reach: Tensor | None
    postponed: Tensor | None = None


class ReachBound(Pruning):
    """Upper bound of the gain of a node, and gains that are summed only where a better cut may need them."""

    def gain_bound(self, node: Node) -> float:
        """Upper bound of the gain, which includes a margin for rounding errors."""
        return float(node.state.bound)

    def sums(self, node: Node) -> Sequence[Sum]:
        """Gains at the centers with which a cut may reach the lowest score; those at others are postponed."""
        state: NodeGains = node.state
        # no other center improves on the node's best one, for any of its points
        centers = self.problem.reduce((state.gains < 0).any(0), "max")
        if state.reach is not None:
            state.postponed = centers & (state.reach > state.reach.min() + node.rounding(state.size))
            centers = centers & ~state.postponed
        return (_gains_at(node, centers),)

    def further_sums(self, node: Node, lowest: float) -> Sequence[Sum]:
        """Gains at the postponed centers with which a cut may have a score below the lowest one."""
        state: NodeGains = node.state
        if state.postponed is None or state.reach is None:
            return ()
        needed = state.postponed & (state.reach <= lowest + 2 * node.rounding(state.size))
        if not bool(needed.any()):
            return ()
        return (_gains_at(node, needed),)


def _gains_at(node: Node, centers: Tensor) -> Sum:
    """The sums of the gains at some centers, given by a mask [k]."""
    return channels(node, node.state.gains[:, centers].T.contiguous())


class Surrogate(Criterion):
    """Minus the decrease of the surrogate cost, in which a leaf is assigned to its best reference center.

    References
    ----------
    .. [1] N. Frost, M. Moshkovitz, C. Rashtchian, "ExKMC: Expanding explainable k-means clustering", 2020,
       Definition 1 and Algorithm 1.
    """

    pruning = ReachBound

    def open(self, node: Node) -> NodeGains:
        """Gains of the node's points, and bounds that tell which centers can be the best one of a side."""
        problem = self.problem
        k = self.problem.k
        distances = problem.weighted(problem.distances.index_select(0, node.rows).T, node.rows).T
        total = problem.reduce(distances.sum(0))
        best = total.argmin()[None]
        gains = distances - distances[:, best]
        size = float(total.max())

        n_gains = k * node.n * problem.table.d
        if n_gains > FEW and k < 8 * problem.table.d and not problem.sharded:
            reach = _reach(gains)
            gain = -float(reach.min())
        else:  # every point at the center that is best for it
            reach = None
            gain = -float(problem.reduce(gains.amin(1).sum()))
        slack = node.rounding(size)
        bound = gain + slack if gain > slack else -torch.inf
        return NodeGains(gains, size, bound, reach)

    def sums(self, node: Node) -> Sequence[Sum]:
        """Gains at all centers."""
        return (channels(node, node.state.gains.T.contiguous()),)

    def size(self, node: Node) -> float:
        """Cost at the worst center."""
        return float(node.state.size)

    def score(self, node: Node, cuts: Cuts) -> Tensor:
        """Sum of the gains of the two sides at their best centers, each at most 0."""
        return cuts.left.amin(0).clamp_(max=0) + cuts.right.amin(0).clamp_(max=0)

    def gain(self, node: Node, score: float) -> float:
        """Decrease of the cost; 0 is allowed, because some leaves need two cuts to lower their cost."""
        if node.state.bound == -torch.inf:
            return -torch.inf
        return max(-score, 0.0)


def _reach(gains: Tensor) -> Tensor:
    """Lower bound of the score of a cut for which a center is the best one of a side, [centers].

    If the two sides have best centers a and b, the score is at least the sum over points of the smaller of their
    gains [points, centers] at a and b, which is ``(a + b - |a - b|) / 2`` for each point.
    """
    total = gains.sum(0)
    a, b = torch.triu_indices(len(total), len(total), 1, device=gains.device)
    bound = total[a] + total[b] - torch.nn.functional.pdist(gains.T, 1)  # twice the sum
    reach = torch.full_like(total, torch.inf)
    reach = reach.scatter_reduce_(0, a, bound, "amin")
    return reach.scatter_reduce_(0, b, bound, "amin") / 2
