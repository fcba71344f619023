"""Relevance on the way from a baseline to an input, on which the most relevant features come first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neonxc.attribution.decisions import Decisions
from neonxc.carriers import Carrier, rows
from neonxc.head.competition import near_decision, softmin, take_most

STRAIGHT = 2  # passes on the straight line, from which the first order of the features is known
FADE = 0.1  # share of the groups that fade in at a time, about; hard steps lose 2 points of AUC
GOLDEN = (5**0.5 - 1) / 2  # multiples of it, without their whole parts, are spread evenly over 0 to 1


@dataclass(frozen=True)
class Estimate:
    """Relevance with a baseline, and how exact it is; :meth:`neonxc.NEON.estimate` computes it.

    Attributes
    ----------
    relevance : shaped like the inputs
        As :meth:`neonxc.NEON.attribute` returns it.
    stderr : Tensor [N, groups]
        Standard error over the passes of the relevance of each group of features, in units of the logit.
    residual : Tensor [N]
        ``f(x) - f(b)`` minus the sum of the relevance, in units of the logit.
    """

    relevance: Any
    stderr: Tensor
    residual: Tensor


def as_baseline(along: Any) -> Tensor:
    """A user's baseline as a finite tensor."""
    try:
        base = along if isinstance(along, Tensor) else torch.tensor(np.array(along))
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"along needs a number or a baseline shaped like one input, got {along!r}") from None
    if base.dtype == torch.bool or base.is_complex() or not bool(base.isfinite().all()):
        raise ValueError(f"along needs finite numbers, got {along!r}")
    return base.detach()


class Way:
    """The way of some inputs from a baseline, and the decision that is explained on it.

    Parameters
    ----------
    carrier, decisions
        Of the network.
    x : Tensor [N, ...]
    along
        The baseline.
    groups : Tensor [N, D] of int64
        The group of each feature.
    n_groups : int
        The number of groups.
    target, competitor
        As in :meth:`neonxc.NEON.attribute`.
    """

    def __init__(
        self,
        carrier: Carrier,
        decisions: Decisions,
        x: Tensor,
        along: Any,
        *,
        groups: Tensor,
        n_groups: int,
        target: Any,
        competitor: Any,
    ) -> None:
        self.carrier, self.decisions, self.x = carrier, decisions, x
        self.base = carrier.baseline(along, x)
        self.groups, self.n_groups = groups, n_groups
        self.features = carrier.features(x).detach()
        self.columns, self.wanted = decisions.columns(self.features, target)
        self.rival = decisions.rivals(self.features, self.columns, target, competitor)
        contrasts = decisions.contrasts(self.features, self.columns, self.rival)
        self.logit, largest = _least(contrasts), contrasts.masked_fill(contrasts.isinf(), 0.0).abs().amax(1)
        # at a tie the logit is 0, and a stiffness of 1 / logit infinite
        self.scale = torch.maximum(self.logit.abs(), 1e-6 * largest).clamp(min=1e-30)[:, None]

    def in_order(self, steps: int) -> tuple[Tensor, Tensor]:
        """Relevance [N, ...], and its standard error [N, groups] over the passes.

        After a few passes on the straight line, each further one takes the gradient where the most relevant groups
        so far are nearly those of the input, and the least relevant ones nearly those of the baseline.
        """
        total, sums, squares = torch.zeros_like(self.x), *torch.zeros(2, len(self.x), self.n_groups).to(self.x)
        straight = min(steps, STRAIGHT)
        for step in range(steps):
            if step < straight:
                share: Any = (step + 0.5) / straight
            else:
                share = self._faded_in(sums, (step - straight + 0.5) * GOLDEN % 1)
            found = self._slopes(share)
            of_groups = self._by_group(found)
            total, sums, squares = total + found, sums + of_groups, squares + of_groups.square()
        deviation = (squares / steps - (sums / steps).square()).clamp(min=0).sqrt()
        return total / steps, deviation / max(steps - 1, 1) ** 0.5

    def straight(self, steps: int) -> Tensor:
        """Relevance [N, ...] that shares the logit by the competitors' mean weights on the straight line."""
        weights: Any = 0.0
        for features in self._on_line((i + 0.5) / steps for i in range(steps)):
            contrasts = self.decisions.contrasts(features, self.columns, self.rival)
            weights = weights + softmin(contrasts, self.decisions.stiffness).nan_to_num() / steps
        decide = self.decisions.of_columns(
            rows(self.features),
            self.columns,
            self.rival,
            self.wanted,
            lambda block: partial(take_most, weights=weights[block]),
        )
        return next(self.carrier.record(self.x).relevance([decide], "midpoint"))

    def residual(self, relevance: Tensor) -> Tensor:
        """Contrast at the input minus that at the baseline and the sum of the relevance, [N]."""
        (start,) = self._on_line([0.0])
        change = self.logit - _least(self.decisions.contrasts(start, self.columns, self.rival))
        if self.wanted is not None:
            change = change * self.wanted
        return change.view(len(self.x), -1).sum(1) - relevance.flatten(1).sum(1)

    def _on_line(self, shares: Any) -> Iterator[Tensor]:
        for share in shares:
            yield self.carrier.between(self.base, self.x, share).features.detach()

    def _slopes(self, share: Any) -> Tensor:
        """Inputs minus baseline, times the multipliers at a point of the way.

        The stiffness is 1 / logit of the input (NEON paper, Eq. 3, for each input alone): on the way, many
        competitors are as near as the target, and a softer minimum would explain a decision against all of them.
        """
        record = self.carrier.between(self.base, self.x, share)
        given = self.decisions.beta

        def near(block: slice) -> Any:
            scale = self.scale[block]
            return lambda contrasts, _: near_decision(contrasts, 1 / scale if given is None else given, scale)

        decide = self.decisions.of_columns(rows(record.features), self.columns, self.rival, self.wanted, near)
        return record.change(decide, self.base, self.x)

    def _faded_in(self, sums: Tensor, share: float) -> Tensor:
        """How far each feature is on its way, 0 to 1, if the most relevant share of the groups has faded in.

        Groups without any effect, such as padding, come last and do not count.
        """
        known = sums != 0
        order = sums.masked_fill(~known, -torch.inf).argsort(dim=1, descending=True, stable=True)
        place = order.argsort(dim=1).to(sums) + 0.5
        faded = torch.sigmoid((share - place / known.sum(1, keepdim=True)) / FADE)
        return faded.gather(1, self.groups).view_as(self.x).to(self.x)

    def _by_group(self, relevance: Tensor) -> Tensor:
        """Sums [N, groups] of relevance over the features of each group."""
        zeros = relevance.new_zeros(len(relevance), self.n_groups)
        return zeros.scatter_add_(1, self.groups, relevance.flatten(1))


def _least(contrasts: Tensor) -> Tensor:
    """The least contrast [n] with a competitor; 0 without any."""
    least = contrasts.amin(1)
    return least.masked_fill(least.isinf(), 0.0)
