"""Path attribution: relevance on the path from a baseline b to an input x, with the most relevant features first.

A point of the path is ``b + t (x - b)``, where every group of features has its own t in [0, 1]. At T points, x - b
is multiplied by the multipliers of the decision, and the products R(t) are averaged.

1. The first two points are on the straight line: all groups have t = 1/4, then t = 3/4 (t = 1/2 if T = 1).
2. The others fade the groups in one after the other. With the groups ordered by their relevance so far, the one at
   position i of n (0: most relevant) has ``t_i = sigmoid((s - (i + 1/2) / n) / FADE)``. In *insertion* passes the
   most relevant groups come in first from the baseline: t = t_i, which shows what suffices for the decision. In
   *deletion* passes they go out first from the input: t = 1 - t_i, which shows what is needed. The two take turns;
   the j-th pair has s = (j + 1/2) GOLDEN mod 1, numbers that are evenly spread over 0 to 1 however many there are.
3. Insertion and deletion passes have a mean each, I and D, to which the straight line belongs as well. As
   multipliers near the baseline and near the input differ in size, both means are scaled to the same size (the sum
   over the groups of ``|relevance|``; the mean of the two) and averaged.

An input that is in its cluster, and is not yet at t = 3/4 of the straight line, is decided *late*: other
competitors matter on the path than at its end, as is usual among many clusters. The groups of such an input come
in greedily:

4. The first third of its other passes are deletions, in the order of D so far. In the rest, those groups come in
   next for which ``R/|R| + D/|D|`` is largest, as many in each pass. R is the relevance at the point with t = 1
   for all groups that are in and t = T_WAITING for those that wait, and ``|.|`` sums absolute values over the
   groups.
5. Relevance is computed as in step 3, and its values are exchanged between the groups: the largest one goes to the
   first group that came in, and so on.
"""

from __future__ import annotations

import math
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
T_WAITING = 0.25
"""The t of groups that have not come in yet in greedy passes. With 0, insertion on channels of a photo network is
1 to 6 points less and removal 2 to 5 points more; 0.15 to 0.35 are alike."""


@dataclass(frozen=True, repr=False)
class Estimate(Result, Generic[Rows]):
    """Relevance with a baseline, and how exact it is; :meth:`neonxc.NEON.estimate` computes it.

    Attributes
    ----------
    relevance : shaped like the inputs
        As :meth:`neonxc.NEON.attribute` returns it.
    stderr : Tensor [N, groups]
        Standard error over the passes of the relevance of each group of features, in units of the logit; NaN with
        a single pass. Of inputs that are decided late (see the Notes of :class:`neonxc.NEON`), it is that of the
        means, before values are exchanged between the groups.
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
        self.n = x.new_zeros(len(x), 1)  # passes of each input
        self.relevance = torch.zeros_like(x)
        self.by_group = x.new_zeros(len(x), n_groups)
        self.squares = torch.zeros_like(self.by_group)  # q, of the deviations from the mean of the passes

    def add(self, relevance: Tensor, by_group: Tensor, rows: Tensor) -> None:
        """Add the relevance [N, ...] of a pass, and that of the groups [N, groups], for some rows [N] of bool."""
        row = rows[:, None]
        # q grows by (x - m)(x - m'), with the means m before and m' after (Welford, 1962)
        from_mean = by_group - self.by_group / self.n.clamp(min=1)
        self.n = self.n + row.to(self.n)
        self.relevance += torch.where(_per_feature(row, relevance), relevance, 0.0)
        self.by_group += torch.where(row, by_group, 0.0)
        growth = from_mean * (by_group - self.by_group / self.n.clamp(min=1))
        self.squares += torch.where(row, growth, 0.0)

    @property
    def size(self) -> Tensor:
        """Sum of the absolute values of the groups, [N, 1]."""
        return _size(self.by_group)

    @property
    def shares(self) -> Tensor:
        """The mean of the groups [N, groups], such that its absolute values sum to 1."""
        return self.by_group / self.size

    def mean_of_size(self, size: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the mean [N, ...], scaled to a size [N, 1], and its standard error [N, groups]."""
        variance = self.squares.clamp(min=0) / self.n
        stderr = (variance / (self.n - 1)).sqrt().masked_fill(self.n == 1, torch.nan)
        factor = size / self.size
        return _per_feature(factor, self.relevance) * self.relevance, factor * self.n * stderr


class GreedyOrder:
    """The order in which groups come in from the baseline, those of the largest slope first.

    Parameters
    ----------
    has_effect : Tensor [N, groups] of bool
        Whether a group has any effect; the others never come in.
    n_passes : int
        The number of passes in which they come in.
    """

    def __init__(self, has_effect: Tensor, n_passes: int) -> None:
        self.has_effect = has_effect
        self.n_passes = n_passes
        self.passes = 0
        self.position = torch.full(has_effect.shape, torch.inf, device=has_effect.device)  # infinite: not yet in

    @property
    def is_in(self) -> Tensor:
        """Whether a group has come in, [N, groups]."""
        return self.position.isfinite()

    def choose(self, scores: Tensor) -> None:
        """Let the groups of the largest scores [N, groups] come in, as many as are due after one more pass."""
        self.passes += 1
        n_in = self.is_in.sum(1, keepdim=True)
        n_due = (self.has_effect.sum(1, keepdim=True) * self.passes / self.n_passes).round()
        waiting = self.has_effect & ~self.is_in
        rank = _positions(scores.masked_fill(~waiting, -torch.inf))
        comes_in = waiting & (rank < n_due - n_in)
        self.position = torch.where(comes_in, (n_in + rank).to(self.position), self.position)

    def exchanged(self, values: Tensor) -> Tensor:
        """Return values [N, groups] whose largest one is that of the first group, the second that of the next."""
        descending = values.masked_fill(~self.is_in, -torch.inf).sort(dim=1, descending=True).values
        index = self.position.masked_fill(~self.is_in, 0).long()
        return torch.where(self.is_in, descending.gather(1, index), values)


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
        all_rows = torch.ones(len(self.x), dtype=torch.bool, device=self.x.device)
        is_late = ~all_rows
        for step in range(n_straight):
            relevance, logit = self._relevance((step + 0.5) / n_straight)
            by_group = self._by_group(relevance)
            insertion.add(relevance, by_group, all_rows)
            deletion.add(relevance, by_group, all_rows)
            is_late = self._is_late(logit)

        n_deletions = (steps - n_straight) // 3
        greedy = GreedyOrder(deletion.by_group != 0, steps - n_straight - n_deletions)
        for step in range(steps - n_straight):
            pair, is_deletion = divmod(step, 2)
            t = self._faded_in(insertion.shares + deletion.shares, (pair + 0.5) * GOLDEN % 1)
            if is_deletion:
                t = 1 - t
            deletes = torch.full_like(all_rows, bool(is_deletion))
            if is_late.any():
                is_greedy_deletion = step < n_deletions
                t_late = self._t_late(step, is_greedy_deletion, greedy, deletion)
                t = torch.where(_per_feature(is_late, self.x), t_late, t)
                deletes = torch.where(is_late, is_greedy_deletion, deletes)
            relevance, _ = self._relevance(t)
            by_group = self._by_group(relevance)
            insertion.add(relevance, by_group, ~deletes)
            deletion.add(relevance, by_group, deletes)
            if is_late.any() and step >= n_deletions:
                greedy.choose(by_group / _size(by_group) + deletion.shares)

        size = (insertion.size / insertion.n + deletion.size / deletion.n) / 2
        inserted, inserted_stderr = insertion.mean_of_size(size)
        deleted, deleted_stderr = deletion.mean_of_size(size)
        relevance = (inserted + deleted) / 2
        if is_late.any() and steps > n_straight:
            in_order = self._in_order(relevance, greedy)
            relevance = torch.where(_per_feature(is_late, self.x), in_order, relevance)
        # the mean of two standard errors is an upper bound of that of the mean, whatever their correlation
        return relevance, (inserted_stderr + deleted_stderr) / 2

    def _is_late(self, logit: Tensor) -> Tensor:
        """Whether inputs [N] are in their cluster, but not yet at the last point of the straight line."""
        return (logit < 0) & (self._by_input(self.logit) > 0)

    def _t_late(self, step: int, is_deletion: bool, greedy: GreedyOrder, deletion: PassSums) -> Tensor:
        """Compute t [N, ...] of each feature at a greedy pass of inputs that are decided late."""
        if is_deletion:
            return 1 - self._faded_in(deletion.shares, (step + 0.5) * GOLDEN % 1)
        t = torch.where(greedy.is_in, 1.0, T_WAITING)
        return self._of_features(t)

    def _in_order(self, relevance: Tensor, greedy: GreedyOrder) -> Tensor:
        """Exchange the values of groups by their order; the features of a group share in what changes.

        They do so in proportion to their absolute relevance, so that features without any effect have none.
        """
        by_group = self._by_group(relevance)
        change = greedy.exchanged(by_group) - by_group
        absolute = self._by_group(relevance.abs())
        share = torch.where(absolute > 0, change / absolute, 0.0)
        return relevance + relevance.abs() * self._of_features(share)

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
        return self._by_input(change) - relevance.flatten(1).sum(1)

    def _relevance(self, t: float | Tensor) -> tuple[Tensor, Tensor]:
        """Compute the relevance [N, ...] at the point t of the path, and the logit [N] there.

        The relevance is x - b, multiplied by the multipliers of the decision.
        """
        run = self.inputs.between(self.baseline, self.x, t, self.how.composite)
        multipliers = []
        logits = []
        with torch.no_grad():
            for answer in self._answers(run, self.rule):
                multipliers.append(answer.multiplier())
                logits.append(self._logit(answer.contrasts))
        start = unrows(torch.cat(multipliers), run.features).to(run.features.dtype)
        return run.back(start), self._by_input(torch.cat(logits))

    def _by_input(self, logit: Tensor) -> Tensor:
        """Sum a logit [n] over the locations that are explained, [N]."""
        if self.question.where is not None:
            logit = logit * self.question.where
        return logit.view(len(self.x), -1).sum(1)

    def _contrasts(self, t: float) -> Tensor:
        """Compute the contrasts [n, L] of the decision at the point t of the straight line."""
        run = self.inputs.between(self.baseline, self.x, t, self.how.composite)
        return torch.cat([answer.contrasts for answer in self._answers(run, TAKE_MOST)])

    def _logit(self, contrasts: Tensor) -> Tensor:
        """Compute the logit f [n] of contrasts [n, L]; 0 without any competitor.

        It is their minimum, or with a probability threshold the log odds minus those of the threshold.
        """
        threshold = self.inputs.head.competition.threshold
        if threshold is None:
            logit = contrasts.amin(1)
        else:
            logit = math.log((1 - threshold) / threshold) - torch.logsumexp(-contrasts, 1)
        return logit.masked_fill(logit.isinf(), 0.0)

    def _answers(self, run: Run, rule: ContrastRule) -> Iterator[Answer]:
        """Answer the question at a point of the path, block by block."""
        return answers(self.inputs.head, run.features.detach(), self.question, self.how.beta, rule)

    def _faded_in(self, relevance: Tensor, s: float) -> Tensor:
        """Compute t [N, ...] of each feature if the fraction s of the groups, by their relevance, has faded in.

        Groups without any effect, such as padding, come last and do not count.
        """
        has_effect = relevance != 0
        position = _positions(relevance.masked_fill(~has_effect, -torch.inf)).to(relevance)
        rank = (position + 0.5) / has_effect.sum(1, keepdim=True)
        return self._of_features(torch.sigmoid((s - rank) / FADE))

    def _of_features(self, by_group: Tensor) -> Tensor:
        """Give every feature the value of its group, [N, ...]."""
        return by_group.gather(1, self.groups).view_as(self.x).to(self.x)

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


def _size(by_group: Tensor) -> Tensor:
    """Sum the absolute values of the groups, [N, 1]; 1 without any relevance, as there is nothing to scale."""
    size = by_group.abs().sum(1, keepdim=True)
    return torch.where(size > 0, size, 1.0)


def _positions(scores: Tensor) -> Tensor:
    """Return the position [N, groups] of each score in descending order, from 0."""
    order = scores.argsort(dim=1, descending=True, stable=True)
    return order.argsort(dim=1)


def _per_feature(values: Tensor, x: Tensor) -> Tensor:
    """Append dimensions to values [N] or [N, 1], so that they count for every feature of x [N, ...]."""
    return values.view(-1, *[1] * (x.ndim - 1))
