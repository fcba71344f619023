"""The cluster decisions that NEON explains, for the target and competitor that a user asks for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from neonxc.carriers import Decide, rows
from neonxc.common.targets import competitors, explained
from neonxc.head import Decision, Head
from neonxc.head.competition import Path, Share
from neonxc.head.pooling import softmin, take_most
from neonxc.network import NeuralizedClustering


@dataclass(frozen=True)
class Decisions:
    """The decisions of a network's head.

    Attributes
    ----------
    net : NeuralizedClustering
    beta : float or None
        Stiffness of the take-most rule; None: the network's own.
    """

    net: NeuralizedClustering
    beta: float | None = None

    @property
    def stiffness(self) -> float | Tensor:
        """The stiffness of the take-most rule."""
        return self.net._beta if self.beta is None else self.beta

    @torch.no_grad()
    def of_target(self, a: Tensor, target: Any, competitor: Any) -> Decide:
        """The decisions for a target at the points of features `a`."""
        columns, wanted = self.columns(a, target)
        rival = self.rivals(a, columns, target, competitor)
        return self.of_columns(rows(a), columns, rival, wanted)

    def of_columns(
        self,
        points: Tensor,
        columns: Tensor,
        rival: Tensor | None = None,
        wanted: Tensor | None = None,
        share: Share | Tensor = take_most,
    ) -> Decide:
        """The decisions for one column per point.

        Parameters
        ----------
        points : Tensor [n, d]
        columns : Tensor [n] of int64
        rival : Tensor [n] of int64, optional
            The only competitor of each point. Default: all others compete.
        wanted : Tensor [n], optional
            1 for the points to explain and 0 for the others, whose relevance is 0.
        share : callable or Tensor [n, L]
            Computes the competitors' shares, or their weights.
        """

        @torch.no_grad()
        def decide(block: slice) -> Decision:
            x, other = points[block], None if rival is None else rival[block]
            shares = partial(take_most, weights=share[block]) if isinstance(share, Tensor) else share
            decision = self.net.head.decision(x, columns[block], self.stiffness, other, shares)
            if wanted is None:
                return decision
            return replace(decision, weights=decision.weights * wanted[block, None])

        return decide

    @torch.no_grad()
    def weights(self, a: Tensor, columns: Tensor, rival: Tensor | None) -> Tensor:
        """The soft minimum's weights [n, L] of the competitors of a target at features `a`."""
        points, head, parts = rows(a), self.net.head, []
        for block in self.net.carrier.of_points(points):
            values, other = head.values(points[block]), None if rival is None else rival[block]
            contrasts = head.competition.contrasts(values, columns[block], other)
            parts.append(softmin(contrasts, self.stiffness).nan_to_num())
        return torch.cat(parts)

    def columns(self, a: Tensor, target: Any) -> tuple[Tensor, Tensor | None]:
        """The column [n] to explain at each point of features `a`, and a mask of the points to explain or None."""
        points, head = rows(a), self.net.head
        own = torch.cat([head.assign(points[block]) for block in self.net.carrier.of_points(points)])
        return explained(target, own, a, head.n_clusters)

    def rivals(self, a: Tensor, columns: Tensor, target: Any, competitor: Any) -> Tensor | None:
        """The only competitor at each point of features `a`, [n]; None: all others compete."""
        return competitors(competitor, target, columns, a, self.net.head.n_clusters)


def tree_tests(head: Head) -> tuple[Tensor, int]:
    """The test of a tree or hierarchy that each neuron belongs to, [M], and the number of tests."""
    if not isinstance(head.competition, Path):
        raise ValueError("only trees have thresholds: neuralize a ThresholdTree or a fitted tree explainer")
    return head.groups, head.n_values


def restricted(decide: Decide, neurons: Tensor, block: slice) -> Decision:
    """The contribution of some neurons, a mask [M], to decisions."""
    decision = decide(block)
    return replace(decision, weights=decision.weights * neurons)
