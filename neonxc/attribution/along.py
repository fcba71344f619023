"""Relevance on the way from a baseline to an input, on which the most relevant features come first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from neonxc.head.answer import Answer, Question, answers, unrows
from neonxc.head.competition import near_decision, softmin, take_most
from neonxc.inputs.base import How, Inputs

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
        Standard error over the passes of the relevance of each group of features, in units of the logit; NaN with
        a single pass.
    residual : Tensor [N]
        ``f(x) - f(b)`` minus the sum of the relevance, in units of the logit.
    """

    relevance: Any
    stderr: Tensor
    residual: Tensor


class Way:
    """The way of some inputs from a baseline, and the decision that is explained on it.

    Parameters
    ----------
    inputs : Inputs
        Of the network.
    x : Tensor [N, ...]
    base
        The baseline, as :meth:`neonxc.inputs.Inputs.baseline` reads it.
    question : Question
    how : How
    beta : float or None
        The stiffness, if it was given to the explainer.
    groups : Tensor [N, D] of int64
        The group of each feature.
    n_groups : int
        The number of groups.
    """

    def __init__(
        self,
        inputs: Inputs,
        x: Tensor,
        base: Any,
        question: Question,
        how: How,
        *,
        beta: float | None,
        groups: Tensor,
        n_groups: int,
    ) -> None:
        self.inputs, self.x, self.how, self.beta = inputs, x, how, beta
        self.base = base if isinstance(base, str) else _like(base, x)
        self.groups, self.n_groups = groups, n_groups
        self.features = inputs.features(x).detach()
        every = [*answers(inputs.head, self.features, question, how.beta)]
        # on the way the target is that of x, at every location
        cluster, kept = torch.cat([answer.cluster for answer in every]), [answer.kept for answer in every]
        where = None if kept[0] is None else torch.cat([part[:, 0] for part in kept if part is not None])
        self.question = question._replace(target=self._on_map(cluster), where=where)
        contrasts = torch.cat([answer.contrasts for answer in every])
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
            relevance = self._slopes(share)
            of_groups = self._by_group(relevance)
            total, sums, squares = total + relevance, sums + of_groups, squares + of_groups.square()
        deviation = (squares / steps - (sums / steps).square()).clamp(min=0).sqrt()
        stderr = deviation / (steps - 1) ** 0.5 if steps > 1 else torch.full_like(deviation, torch.nan)
        return total / steps, stderr

    def straight(self, steps: int) -> Tensor:
        """Relevance [N, ...] that shares the logit by the competitors' mean weights on the straight line."""
        weights: Any = 0.0
        for step in range(steps):
            contrasts = torch.cat([answer.contrasts for answer in self._on_line((step + 0.5) / steps)])
            weights = weights + softmin(contrasts, self.how.beta).nan_to_num() / steps
        how = self.how._replace(share=lambda block: partial(take_most, weights=weights[block]))
        return next(self.inputs.explain(self.x, [self.question], how))

    def residual(self, relevance: Tensor) -> Tensor:
        """Contrast at the input minus that at the baseline and the sum of the relevance, [N]."""
        start = torch.cat([_least(answer.contrasts) for answer in self._on_line(0.0)])
        change = self.logit - start
        if self.question.where is not None:
            change = change * self.question.where
        return change.view(len(self.x), -1).sum(1) - relevance.flatten(1).sum(1)

    def _on_map(self, cluster: Tensor) -> Tensor:
        """The clusters [n] of points as those of inputs, [N], or of the locations of a map, [N, ...]."""
        return cluster.view(self.features.shape[0], *self.features.shape[2:])

    def _on_line(self, share: float) -> Iterator[Answer]:
        run = self.inputs.between(self.base, self.x, share, self.how.composite)
        return answers(self.inputs.head, run.features.detach(), self.question, self.how.beta)

    def _slopes(self, share: Any) -> Tensor:
        """Inputs minus baseline, times the multipliers at a point of the way.

        The stiffness is 1 / logit of the input (NEON paper, Eq. 3, for each input alone): on the way, many
        competitors are as near as the target, and a softer minimum would explain a decision against all of them.
        """
        run = self.inputs.between(self.base, self.x, share, self.how.composite)

        def near(block: slice) -> Any:
            scale = self.scale[block]
            return lambda contrasts, _: near_decision(
                contrasts, 1 / scale if self.beta is None else self.beta, scale
            )

        each = answers(self.inputs.head, run.features.detach(), self.question, self.how.beta, near)
        with torch.no_grad():
            start = torch.cat([answer.multiplier() for answer in each])
        return run.back(unrows(start, run.features).to(run.features.dtype))

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


def _like(base: Tensor, x: Tensor) -> Tensor:
    """A baseline with the shape of one of the inputs [N, ...]."""
    if base.ndim and base.shape[1:] != x.shape[1:]:
        got, needed = list(base.shape[1:]), list(x.shape[1:])
        raise ValueError(f"along needs a number or a baseline shaped like one input, {needed}, got {got}")
    return (base[0] if base.ndim else base).to(x).expand(x.shape[1:])


def _least(contrasts: Tensor) -> Tensor:
    """The least contrast [n] with a competitor; 0 without any."""
    least = contrasts.amin(1)
    return least.masked_fill(least.isinf(), 0.0)
