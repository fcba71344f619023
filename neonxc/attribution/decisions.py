"""The cluster decisions that NEON explains: for a target and a competitor, or along a path from a baseline."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neonxc.carriers import Carrier, Decide, HeadRule, rows
from neonxc.common.targets import as_columns, check_columns
from neonxc.head import Decision, Head
from neonxc.head.competition import Path, Share, slopes_of_most, softmin, take_most
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
        competition = self.net.head.competition

        def of_block(block: slice, x: Tensor) -> Tensor:
            other = None if rival is None else rival[block]
            contrasts = competition.evidence(self.net.head.values(x), columns[block], other)[0]
            return softmin(contrasts, self.stiffness).nan_to_num()

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


def as_baseline(along: Any) -> Tensor:
    """A user's baseline as a finite tensor."""
    try:
        base = along if isinstance(along, Tensor) else torch.tensor(np.array(along))
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"along needs a number or a baseline shaped like one input, got {along!r}") from None
    if base.dtype == torch.bool or base.is_complex() or not bool(base.isfinite().all()):
        raise ValueError(f"along needs finite numbers, got {along!r}")
    return base.detach()


def relevance_from_baseline(
    carrier: Carrier,
    decisions: Decisions,
    x: Tensor,
    along: Any,
    steps: int,
    rule: HeadRule,
    target: Any,
    competitor: Any,
) -> Tensor:
    """Relevance [N, ...] of inputs x [N, ...]; :class:`neonxc.NEON` describes the two rules in its notes."""
    base = carrier.baseline(along, x)
    a = carrier.features(x).detach()
    columns, wanted = decisions.columns(a, target)
    rival = decisions.rivals(a, columns, target, competitor)
    shares = [(i + 0.5) / steps for i in range(steps)]
    if rule == "linear":
        total: Any = 0.0
        for share in shares:
            record = carrier.between(base, x, share)
            decide = decisions.of_columns(rows(record.features), columns, rival, wanted, slopes_of_most)
            total = total + record.change(decide, base, x) / steps
        return total
    path = (base + share * (x - base) for share in shares)
    weights = [decisions.weights(carrier.features(point), columns, rival) for point in path]
    decide = decisions.of_columns(rows(a), columns, rival, wanted, torch.stack(weights).mean(0))
    return next(carrier.record(x).relevance([decide], "midpoint"))
