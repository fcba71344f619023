"""Relevance on the way from a baseline to an input, on which the most relevant features come first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from neonxc.common.result import Result
from neonxc.data.inputs import as_array
from neonxc.head.answer import Answer, Question, answers, unrows
from neonxc.head.competition import near_decision, softmin, take_most
from neonxc.inputs.base import How, Inputs

STRAIGHT = 2  # passes on the straight line, from which the first order of the features is known
FADE = 0.1  # share of the groups that fade in at a time, about; hard steps lose 2 points of AUC
GOLDEN = (5**0.5 - 1) / 2  # multiples of it, without their whole parts, are spread evenly over 0 to 1


@dataclass(frozen=True, repr=False)
class Estimate(Result):
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

    def to_frame(self) -> pd.DataFrame:
        """Return one row per input.

        Returns
        -------
        DataFrame
            Index: the number of the input. Columns, in units of the logit: "relevance", the sum over the features;
            "largest stderr", that of the group whose relevance is least exact; "residual".
        """
        relevance = as_array(self.relevance)
        values = {
            "relevance": relevance.sum(axis=tuple(range(1, relevance.ndim))),
            "largest stderr": as_array(self.stderr.amax(1)),
            "residual": as_array(self.residual),
        }
        return pd.DataFrame(values).rename_axis("input")


class Passes:
    """Passes on one way, as sums over them."""

    def __init__(self, x: Tensor, n_groups: int) -> None:
        self.n, self.sum = 0, torch.zeros_like(x)
        self.of_groups, self.squares = x.new_zeros(2, len(x), n_groups)

    def add(self, relevance: Tensor, of_groups: Tensor) -> None:
        """Add the relevance [N, ...] of a pass, and that of the groups [N, groups]."""
        self.n += 1
        self.sum += relevance
        self.of_groups += of_groups
        self.squares += of_groups.square()

    @property
    def size(self) -> Tensor:
        """Sum of the absolute values of the groups, [N, 1]."""
        size = self.of_groups.abs().sum(1, keepdim=True)
        return torch.where(size > 0, size, 1.0)  # without any relevance there is nothing to scale

    def at_size(self, size: Tensor) -> tuple[Tensor, Tensor]:
        """The mean [N, ...], brought to a size [N, 1], and its standard error [N, groups]; NaN for one pass."""
        variance = (self.squares / self.n - (self.of_groups / self.n).square()).clamp(min=0)
        stderr = (variance / (self.n - 1)).sqrt() if self.n > 1 else torch.full_like(variance, torch.nan)
        factor = size / self.size
        return factor.view(-1, *[1] * (self.sum.ndim - 1)) * self.sum, factor * self.n * stderr


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

        After a few passes on the straight line, passes are in turns on two ways, on which the groups move in the
        order of their relevance so far: the most relevant ones come in first from the baseline, which shows what
        suffices, or go out first from the input, which shows what is needed. Each way has an estimate, to which
        the straight line belongs as well. As slopes near a baseline and near an input differ in size, the two
        estimates are brought to the same size and averaged.
        """
        ways = comes_in, goes_out = Passes(self.x, self.n_groups), Passes(self.x, self.n_groups)
        straight = min(steps, STRAIGHT)
        for step in range(steps):
            turn, out = divmod(step - straight, 2)
            share: Any = (step + 0.5) / straight
            if step >= straight:
                order = comes_in.of_groups / comes_in.size + goes_out.of_groups / goes_out.size
                share = self._faded_in(order, (turn + 0.5) * GOLDEN % 1)
                share = 1 - share if out else share
            relevance = self._slopes(share)
            for way in ways if step < straight else [ways[out]]:
                way.add(relevance, self._by_group(relevance))
        size = (comes_in.size / comes_in.n + goes_out.size / goes_out.n) / 2
        (one, error), (other, other_error) = (way.at_size(size) for way in ways)
        return (one + other) / 2, (error + other_error) / 2

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
