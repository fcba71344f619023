"""The surrogate cost, with reference centers that stay where they are: ExKMC."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from neonxc.trees.criterion import Criterion, Cuts
from neonxc.trees.problem import Node
from neonxc.trees.statistics import Channels

FEW = 1 << 18  # gains of a node, once per column: fewer are added up sooner than centers are left out


@dataclass
class State:
    """What a node's points cost more at each center than at the best one for all.

    Attributes
    ----------
    gains : Tensor [points, k]
    size : float
        The cost at the worst center.
    gain : float
        At most what splitting the node gains.
    reach : Tensor [k] or None
        What a cut scores at least if it makes a center a side's best one.
    rest : Tensor [k] of bool or None
        Centers whose gains are only added up if they turn out to be needed.
    """

    gains: Tensor
    size: float
    gain: float
    reach: Tensor | None
    rest: Tensor | None = None


class Surrogate(Criterion):
    """The greatest decrease of the surrogate cost: every leaf costs what its best reference center does.

    References
    ----------
    .. [1] N. Frost, M. Moshkovitz, C. Rashtchian, "ExKMC: Expanding explainable k-means clustering", 2020,
       Definition 1 and Algorithm 1.
    """

    def open(self, node: Node) -> State:
        """Which centers may be a side's best one."""
        problem, k = self.problem, self.problem.k
        distances = problem.weighted(problem.distances.index_select(0, node.rows).T, node.rows).T
        total = problem.reduce(distances.sum(0))
        gains = distances - distances[:, total.argmin()[None]]
        size = float(total.max())
        slack = 4 * (node.n + 1) * torch.finfo(torch.float64).eps * size
        many = k * node.n * problem.table.d > FEW and k < 8 * problem.table.d and not problem.sharded
        reach = _reach(gains) if many else None
        gain = -float(problem.reduce(gains.amin(1).sum()) if reach is None else reach.min())
        return State(gains, size, gain + slack if gain > slack else -torch.inf, reach)

    def statistics(self, node: Node) -> tuple[Channels]:
        """Gains at the centers that may be a side's best one; if these are many, only at the likeliest."""
        state: State = node.state
        first = self.problem.reduce((state.gains < 0).any(0), "max")  # others can't be a leaf's best center
        if state.reach is not None:
            slack = 4 * (node.n + 1) * torch.finfo(torch.float64).eps * state.size
            state.rest = first & (state.reach > state.reach.min() + slack)
            first = first & ~state.rest
        return (self._channels(state, first),)

    def further(self, node: Node, least: float) -> Sequence[Channels]:
        """Gains at those other centers that a cut may need to be as good as one that is known."""
        state: State = node.state
        if state.rest is None or state.reach is None:
            return ()
        slack = 8 * (node.n + 1) * torch.finfo(torch.float64).eps * state.size
        more = state.rest & (state.reach <= least + slack)
        return (self._channels(state, more),) if bool(more.any()) else ()

    def _channels(self, state: State, centers: Tensor) -> Channels:
        return Channels(state.gains[:, centers].T.contiguous(), exact=True)

    def score(self, node: Node, cuts: Cuts) -> Tensor:
        """What each side gains at its best center, and be it the one that is best for all."""
        return cuts.left.amin(0).clamp_(max=0) + cuts.right.amin(0).clamp_(max=0)

    def size(self, node: Node) -> float:
        """The cost at the worst center."""
        size: float = node.state.size
        return size

    def bound(self, node: Node) -> float:
        """At most the gain: no less than the gain itself, for all rounding."""
        bound: float = node.state.gain
        return bound

    def gain(self, node: Node, score: float) -> float:
        """The gain; a leaf with points of another center may need two cuts before the cost falls."""
        return max(-score, 0.0)


def _reach(gains: Tensor) -> Tensor:
    """What a cut scores at least if it makes a center a side's best one, [centers]; gains [points, centers].

    The sides have two best centers, and every point at most the lesser of its two gains: half of what their sum
    exceeds their distance by.
    """
    total = gains.sum(0)
    one, other = torch.triu_indices(len(total), len(total), 1, device=gains.device)
    least = total[one] + total[other] - torch.nn.functional.pdist(gains.T, 1)
    reach = torch.full_like(total, torch.inf)
    return reach.scatter_reduce_(0, one, least, "amin").scatter_reduce_(0, other, least, "amin") / 2
