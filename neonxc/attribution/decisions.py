"""The cluster decisions that NEON explains: for a target, against all competitors or one of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from neonxc.carriers import Decide, rows
from neonxc.common.targets import as_columns, check_columns
from neonxc.head import Decision, Head
from neonxc.head.competition import Path, Share, take_most
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
        share: Callable[[slice], Share] = lambda block: take_most,
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
        share : callable
            Returns the function that computes the competitors' shares of a block of points.
        """

        @torch.no_grad()
        def decide(block: slice) -> Decision:
            x, other = points[block], None if rival is None else rival[block]
            decision = self.net.head.decision(x, columns[block], self.stiffness, other, share(block))
            if wanted is None:
                return decision
            return replace(decision, weights=decision.weights * wanted[block, None])

        return decide

    @torch.no_grad()
    def contrasts(self, a: Tensor, columns: Tensor, rival: Tensor | None) -> Tensor:
        """The contrasts [n, L] of a target with its competitors at features `a`; infinite for what is none."""
        competition = self.net.head.competition

        def of_block(block: slice, x: Tensor) -> Tensor:
            other = None if rival is None else rival[block]
            return competition.evidence(self.net.head.values(x), columns[block], other)[0]

        return self.net.carrier.each(rows(a), of_block)

    def columns(self, a: Tensor, target: Any) -> tuple[Tensor, Tensor | None]:
        """The column to explain at each point of features `a` [N, d, ...].

        Parameters
        ----------
        a : Tensor [N, d, ...]
            Features; on a map every location is a point.
        target : int, sequence or Tensor [N], tuple or None
            As in :meth:`neonxc.NEON.attribute`; None: the cluster that each point is assigned to.

        Returns
        -------
        columns : Tensor [n] of int64
        wanted : Tensor [n] of int64, or None
            1 for the points to explain and 0 for the others; None: all are explained. On a map, a column selects
            the locations of its cluster, and a tuple ``(column, row, column, ...)`` a single location.
        """
        head = self.net.head
        own = self.net.carrier.each(rows(a), lambda _, x: head.assign(x))
        if target is None:
            return own, None
        if isinstance(target, tuple) and a.ndim > 2 and len(target) == a.ndim - 1:
            column, *place = target
            check_columns(torch.as_tensor(column), head.n_clusters, "target")
            if any(not 0 <= i < n for i, n in zip(place, a.shape[2:], strict=True)):
                raise ValueError(f"target {target} is outside the feature map of shape {list(a.shape[2:])}")
            wanted = torch.zeros(a.shape[0], *a.shape[2:], dtype=torch.long, device=a.device)
            wanted[(slice(None), *place)] = 1
            return torch.full_like(own, int(column)), wanted.flatten()
        columns = self._at_places(target, a, "target")
        return columns, (own == columns).long() if a.ndim > 2 else None

    def rivals(self, a: Tensor, columns: Tensor, target: Any, competitor: Any) -> Tensor | None:
        """The only competitor at each point of features `a`, [n]; None: all others compete."""
        if competitor is None:
            return None
        rival = self._at_places(competitor, a, "competitor")
        same = rival[rival == columns]
        if target is not None and len(same):
            k = int(same[0])
            raise ValueError(f"target and competitor are both {k}; a cluster does not compete with itself")
        return rival

    def _at_places(self, value: Any, a: Tensor, name: str) -> Tensor:
        """Return the column [n] of every point of features `a`, from one for all inputs or one for each."""
        hint = " (the position of a label in net.classes_)"
        columns = as_columns(value, a.shape[0], self.net.head.n_clusters, name, a.device, hint)
        return columns.repeat_interleave(a.shape[2:].numel())

    def logit(self, points: Tensor, columns: Tensor) -> Tensor:
        """The logit [n] of one column per point [n, d]."""
        head = self.net.head
        return self.net.carrier.each(points, lambda block, x: head(x).gather(1, columns[block, None])[:, 0])


def tree_tests(head: Head) -> tuple[Tensor, int]:
    """The test of a tree or hierarchy that each neuron belongs to, [M], and the number of tests."""
    if not isinstance(head.competition, Path):
        raise ValueError("only trees have thresholds: neuralize a ThresholdTree or a fitted tree explainer")
    return head.groups, head.n_values


def restricted(decide: Decide, neurons: Tensor, block: slice) -> Decision:
    """The contribution of some neurons, a mask [M], to decisions."""
    decision = decide(block)
    return replace(decision, weights=decision.weights * neurons)
