"""Path attribution: relevance on the path from a baseline b to an input x, with the most relevant features first.

A point of the path is ``b + t (x - b)``, where every group of features has its own t in [0, 1]. At T points, x - b
is multiplied by the multipliers of the decision, and the products R(t) are averaged.

1. The first two points are on the straight line: all groups have t = 1/4, then t = 3/4 (t = 1/2 if T = 1).
2. The others fade the groups in one after the other. With the groups ordered by their relevance so far, the one at
   position i of n (0: most relevant) has ``t_i = sigmoid((s - (i + 1/2) / n) / FADE)``. In *insertion* passes the
   most relevant groups come in first from the baseline: t = t_i, which shows what suffices for the decision. In
   *deletion* passes they go out first from the input: t = 1 - t_i, which shows what is needed. The two take turns;
   the j-th pair has s = (j + 1/2) GOLDEN mod 1, numbers that are evenly spread over 0 to 1 however many there are.
3. Insertion and deletion passes have a mean each, to which the straight line belongs as well. As multipliers near
   the baseline and near the input differ in size, both means are scaled to the same size (the sum over the groups
   of ``|relevance|``; the mean of the two) and averaged.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Generic

import pandas as pd
import torch
from torch import Tensor

from neonxc.common.result import Result
from neonxc.common.types import Rows
from neonxc.data.inputs import as_array
from neonxc.head.answer import Answer, Question, answers, unrows
from neonxc.head.competition import TAKE_MOST, ContrastRule, TakeMost, near_decision, softmin
from neonxc.inputs.base import How, Inputs, Run

N_STRAIGHT = 2
"""Number of points on the straight line, from which the first order of the groups is known."""
FADE = 0.1
"""Width of the fade, as a fraction of the groups; with hard steps, the AUC of pixel-flipping is 2 points less."""
GOLDEN = (5**0.5 - 1) / 2


@dataclass(frozen=True, repr=False)
class Estimate(Result, Generic[Rows]):
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

    relevance: Rows
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
        all_but_first = tuple(range(1, relevance.ndim))
        values = {
            "relevance": relevance.sum(axis=all_but_first),
            "largest stderr": as_array(self.stderr.amax(1)),
            "residual": as_array(self.residual),
        }
        return pd.DataFrame(values).rename_axis("input")


@dataclass(frozen=True)
class NearDecision:
    """Rule that weights the competitors at a point of the path: less where the decision is far from open.

    With the contrasts h of a point and their minimum f, the weights are
    ``softmin(h / scale) * scale / (scale + |f|)``. The scale is ``|f(x)|`` at the input (NEON paper, Eq. 3, for
    each input alone): on the path many competitors are as near as the target, and a softer minimum would explain
    a decision against all of them.

    Attributes
    ----------
    scale : Tensor [n, 1]
    stiffness : float, optional
        The stiffness of the soft minimum, in place of ``1 / scale``.
    """

    scale: Tensor
    stiffness: float | None = None

    def of_block(self, block: slice) -> NearDecision:
        """Return the rule of a block of points."""
        return replace(self, scale=self.scale[block])

    def __call__(self, contrasts: Tensor, _: float | Tensor) -> Tensor:
        """Compute the weights [n, L] of contrasts [n, L]."""
        stiffness = 1 / self.scale if self.stiffness is None else self.stiffness
        return near_decision(contrasts, stiffness, self.scale)


class PassSums:
    """Sums of the relevance over passes, from which a mean and its standard error are computed."""

    def __init__(self, x: Tensor, n_groups: int) -> None:
        self.n = 0
        self.relevance = torch.zeros_like(x)
        self.by_group = x.new_zeros(len(x), n_groups)
        self.squares = torch.zeros_like(self.by_group)  # q, of the deviations from the mean of the passes

    def add(self, relevance: Tensor, by_group: Tensor) -> None:
        """Add the relevance [N, ...] of a pass, and that of the groups [N, groups]."""
        # q grows by (x - m)(x - m'), with the means m before and m' after (Welford, 1962)
        from_mean = by_group - self.by_group / max(self.n, 1)
        self.n += 1
        self.relevance += relevance
        self.by_group += by_group
        self.squares += from_mean * (by_group - self.by_group / self.n)

    @property
    def size(self) -> Tensor:
        """Sum of the absolute values of the groups, [N, 1]."""
        size = self.by_group.abs().sum(1, keepdim=True)
        return torch.where(size > 0, size, 1.0)  # without any relevance there is nothing to scale

    def mean_of_size(self, size: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the mean [N, ...], scaled to a size [N, 1], and its standard error [N, groups]."""
        variance = self.squares.clamp(min=0) / self.n
        if self.n > 1:
            stderr = (variance / (self.n - 1)).sqrt()
        else:
            stderr = torch.full_like(variance, torch.nan)
        factor = size / self.size
        per_feature = factor.view(-1, *[1] * (self.relevance.ndim - 1))
        return per_feature * self.relevance, factor * self.n * stderr


class PathAttribution:
    """Attributes the decisions for some inputs along the path from a baseline.

    Parameters
    ----------
    inputs : Inputs
        Of the network.
    x : Tensor [N, ...]
    baseline
        As :meth:`neonxc.inputs.Inputs.baseline` reads it.
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
        baseline: Tensor | str,
        question: Question,
        how: How,
        *,
        beta: float | None,
        groups: Tensor,
        n_groups: int,
    ) -> None:
        self.inputs = inputs
        self.x = x
        self.baseline = baseline if isinstance(baseline, str) else _shaped_like_input(baseline, x)
        self.how = how
        self.groups = groups
        self.n_groups = n_groups

        features = inputs.features(x).detach()
        at_input = list(answers(inputs.head, features, question, how.beta))
        self.question = _fixed_at_input(question, at_input, features)
        contrasts = torch.cat([answer.contrasts for answer in at_input])
        self.logit = self._logit(contrasts)
        # At a tie the logit is 0, and a stiffness of 1 / logit would be infinite.
        largest = contrasts.masked_fill(contrasts.isinf(), 0.0).abs().amax(1)
        scale = torch.maximum(self.logit.abs(), 1e-6 * largest).clamp(min=1e-30)
        self.rule = NearDecision(scale[:, None], beta)

    def attribute(self, steps: int) -> tuple[Tensor, Tensor]:
        """Compute relevance [N, ...] from `steps` points, and its standard error [N, groups] over them."""
        insertion = PassSums(self.x, self.n_groups)
        deletion = PassSums(self.x, self.n_groups)

        n_straight = min(steps, N_STRAIGHT)
        for step in range(n_straight):
            relevance = self._relevance((step + 0.5) / n_straight)
            by_group = self._by_group(relevance)
            insertion.add(relevance, by_group)
            deletion.add(relevance, by_group)

        for step in range(steps - n_straight):
            pair, is_deletion = divmod(step, 2)
            so_far = insertion.by_group / insertion.size + deletion.by_group / deletion.size
            t = self._faded_in(so_far, (pair + 0.5) * GOLDEN % 1)
            if is_deletion:
                t = 1 - t
            relevance = self._relevance(t)
            sums = deletion if is_deletion else insertion
            sums.add(relevance, self._by_group(relevance))

        size = (insertion.size / insertion.n + deletion.size / deletion.n) / 2
        inserted, inserted_stderr = insertion.mean_of_size(size)
        deleted, deleted_stderr = deletion.mean_of_size(size)
        # the mean of two standard errors is an upper bound of that of the mean, whatever their correlation
        return (inserted + deleted) / 2, (inserted_stderr + deleted_stderr) / 2

    def attribute_by_mean_weights(self, steps: int) -> Tensor:
        """Compute relevance [N, ...] by the midpoint rule, with the mean over a straight line of the weights.

        The logit f(x) is divided among the competitors (NEON paper, Eq. 2) by the weights of the soft minimum,
        averaged over `steps` points between b and x.
        """
        mean_weights = torch.zeros(())
        for step in range(steps):
            contrasts = self._contrasts((step + 0.5) / steps)
            weights = softmin(contrasts, self.how.beta).nan_to_num()
            mean_weights = mean_weights + weights / steps
        how = self.how._replace(contrast_rule=TakeMost(mean_weights))
        return next(self.inputs.explain(self.x, [self.question], how))

    def residual(self, relevance: Tensor) -> Tensor:
        """Compute ``f(x) - f(b)`` minus the sum of the relevance, [N]."""
        change = self.logit - self._logit(self._contrasts(0.0))
        if self.question.where is not None:
            change = change * self.question.where
        return change.view(len(self.x), -1).sum(1) - relevance.flatten(1).sum(1)

    def _relevance(self, t: float | Tensor) -> Tensor:
        """Multiply x - b by the multipliers of the decision at the point t of the path, [N, ...]."""
        run = self.inputs.between(self.baseline, self.x, t, self.how.composite)
        with torch.no_grad():
            multiplier = torch.cat([answer.multiplier() for answer in self._answers(run, self.rule)])
        return run.back(unrows(multiplier, run.features).to(run.features.dtype))

    def _contrasts(self, t: float) -> Tensor:
        """Compute the contrasts [n, L] of the decision at the point t of the straight line."""
        run = self.inputs.between(self.baseline, self.x, t, self.how.composite)
        return torch.cat([answer.contrasts for answer in self._answers(run, TAKE_MOST)])

    def _logit(self, contrasts: Tensor) -> Tensor:
        """Compute the logit f [n] of contrasts [n, L], up to a constant; 0 without any competitor.

        It is their minimum, or with a probability threshold the soft minimum that the log odds are.
        """
        if self.inputs.head.competition.threshold is None:
            logit = contrasts.amin(1)
        else:
            logit = -torch.logsumexp(-contrasts, 1)
        return logit.masked_fill(logit.isinf(), 0.0)

    def _answers(self, run: Run, rule: ContrastRule) -> Iterator[Answer]:
        """Answer the question at a point of the path, block by block."""
        return answers(self.inputs.head, run.features.detach(), self.question, self.how.beta, rule)

    def _faded_in(self, relevance: Tensor, s: float) -> Tensor:
        """Compute t [N, ...] of each feature if the fraction s of the groups, by their relevance, has faded in.

        Groups without any effect, such as padding, come last and do not count.
        """
        has_effect = relevance != 0
        order = relevance.masked_fill(~has_effect, -torch.inf).argsort(dim=1, descending=True, stable=True)
        position = order.argsort(dim=1).to(relevance)
        rank = (position + 0.5) / has_effect.sum(1, keepdim=True)
        t = torch.sigmoid((s - rank) / FADE)
        return t.gather(1, self.groups).view_as(self.x).to(self.x)

    def _by_group(self, relevance: Tensor) -> Tensor:
        """Sum relevance over the features of each group, [N, groups]."""
        zeros = relevance.new_zeros(len(relevance), self.n_groups)
        return zeros.scatter_add_(1, self.groups, relevance.flatten(1))


def _fixed_at_input(question: Question, at_input: list[Answer], features: Tensor) -> Question:
    """Ask about the cluster and the locations that are explained at the input, at all points of the path."""
    cluster = torch.cat([answer.cluster for answer in at_input])
    target = cluster.view(features.shape[0], *features.shape[2:])  # [N], or [N, ...] on a map of features
    kept = [answer.kept[:, 0] for answer in at_input if answer.kept is not None]
    where = torch.cat(kept) if kept else None
    return question._replace(target=target, where=where, location=None)


def _shaped_like_input(baseline: Tensor, x: Tensor) -> Tensor:
    """Return a baseline with the shape of one of the inputs [N, ...]."""
    if baseline.ndim and baseline.shape[1:] != x.shape[1:]:
        needed = list(x.shape[1:])
        got = list(baseline.shape[1:])
        raise ValueError(f"baseline needs a number or a baseline shaped like one input, {needed}, got {got}")
    if baseline.ndim:
        baseline = baseline[0]
    return baseline.to(x).expand(x.shape[1:])
