"""Competition layers: logits from the values of clusters or tests, and the contrasts of a decision."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from neonxc.common.registry import storable
from neonxc.head.detection import Stage
from neonxc.head.grouping import group_min

Share = Callable[[Tensor, float | Tensor], Tensor]
"""Computes the competitors' shares [N, L] from their contrasts [N, L] with the target and the stiffness beta."""


class Competition(Stage):
    """Base class of competition layers, which compute logits [N, K] from values [N, L] of clusters or tests."""

    threshold: float | None = None
    by_contrast = False
    """Whether each value competes as its difference to the target's own."""

    def has_own_weights(self, beta: float) -> bool:
        """Whether there is a shorter way to the weights for the cluster that each point is assigned to."""
        return False

    def own_weights(self, values: Tensor, cluster: Tensor, beta: float) -> Tensor:
        """Compute the weights [N, L] of the values for the assigned cluster [N], against all others."""
        raise NotImplementedError

    def assign(self, values: Tensor) -> Tensor:
        """Return the column [N] of the cluster that each point is assigned to: that of the largest logit."""
        return self(values).argmax(dim=1)

    @abstractmethod
    def evidence(
        self, values: Tensor, target: Tensor, competitor: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Compute what speaks for a cluster, from all competitors or from one [N] only.

        Returns
        -------
        contrasts : Tensor [N, L]
            Each is a value times its sign, minus the target's own value if there is one; infinite for values that
            do not compete.
        signs : Tensor [N, L] or None
            None if all are 1.
        own : Tensor [N, L] or None
            Indicator of the target's own value.
        """


@storable
class Rivals(Competition):
    """All clusters compete: ``f_c = min_{k != c} E_k - E_c`` for values E, of which the least wins.

    Parameters
    ----------
    threshold : float, optional
        Threshold in (0, 1) of the probabilities ``p = softmax(-E)``. The logit is then the log odds of p_c minus
        those of the threshold (NEON paper, Prop. 7), which is positive if p_c exceeds the threshold. Default: the
        hard competition above.
    """

    PLAIN = ("threshold",)
    by_contrast = True

    def __init__(self, threshold: float | None = None) -> None:
        super().__init__(threshold=threshold)

    def forward(self, values: Tensor) -> Tensor:
        """Compute the logits [N, K] from values [N, K]; terms that all clusters share cancel."""
        if self.threshold is not None:
            return log_odds(values, self.threshold)
        first, best = values.min(dim=1, keepdim=True)
        second = values.scatter(1, best, torch.inf).amin(dim=1, keepdim=True)
        return (first - values).scatter(1, best, second - first)  # of the others: the second least for the best

    def assign(self, values: Tensor) -> Tensor:
        """Return the column [N] of the cluster with the least value."""
        return values.argmin(dim=1)

    def has_own_weights(self, beta: float) -> bool:
        """Whether contrasts, which are not negative, are shared by a soft minimum."""
        return self.threshold is None and 0 < beta < math.inf

    def own_weights(self, values: Tensor, cluster: Tensor, beta: float) -> Tensor:
        """Compute the weights [N, K]: those of :func:`take_most`, and minus their sum for the own cluster.

        All steps are in one array, as memory is what takes time.
        """
        own = cluster[:, None]
        contrasts = (values - values.gather(1, own)).scatter_(1, own, torch.inf)
        contrasts.clamp_(min=torch.finfo(values.dtype).tiny)  # f / h is 1 for the nearest, even if both are 0
        least = contrasts.amin(dim=1, keepdim=True)
        weights = (least - contrasts).mul_(beta).exp_()  # a softmax over few clusters takes three times as long
        weights.mul_(least / weights.sum(dim=1, keepdim=True)).div_(contrasts)
        return weights.scatter_(1, own, -weights.sum(dim=1, keepdim=True))

    def evidence(
        self, values: Tensor, target: Tensor, competitor: Tensor | None = None
    ) -> tuple[Tensor, None, Tensor]:
        """Compute the contrasts ``E_k - E_c`` [N, K] with the target; see :meth:`Competition.evidence`."""
        columns = torch.arange(values.shape[1], device=values.device)
        own = columns == target[:, None]
        absent = own if competitor is None else own | (columns != competitor[:, None])
        contrasts = (values - values.gather(1, target[:, None])).masked_fill(absent, torch.inf)
        return contrasts, None, own.to(values)


@storable
class Path(Competition):
    """The tests on the path to a leaf compete: a leaf's value is their minimum, a cluster's that of its best leaf.

    Parameters
    ----------
    children : sequence of T pairs (left, right)
        Children of the tests of a binary tree, parents first: a child ``>= 0`` is the leaf of this number, and
        ``-t`` is test number t. Points go left if the value of a test is positive.
    leaves : Tensor [L] of int64
        Column of the cluster that each leaf belongs to.
    """

    PLAIN = ("children_", "k")
    children_: list[tuple[int, int]]
    k: int
    signs: Tensor
    leaves: Tensor

    def __init__(self, children: Sequence[tuple[int, int]], leaves: Tensor) -> None:
        pairs = [(int(left), int(right)) for left, right in children]
        super().__init__(children_=pairs, k=int(leaves.max()) + 1, leaves=leaves)
        # the sides [L, T] of the tests on the leaves' paths: 1 left, -1 right, 0 off the path
        tests = torch.eye(len(children), dtype=torch.int8, device=leaves.device)
        self.register_buffer("signs", self._at_leaves(torch.zeros_like(tests[0]), tests, torch.add))

    def forward(self, values: Tensor) -> Tensor:
        """Compute the logits [N, K] from the values of tests [N, T]."""
        return -group_min(-self._leaf_values(values), self.leaves, self.k)[0]

    def evidence(
        self, values: Tensor, target: Tensor, competitor: Tensor | None = None
    ) -> tuple[Tensor, Tensor, None]:
        """Compute the margins [N, T] of the tests on the path to the target's best leaf, and their sides.

        With a competitor, only the test where the path to the competitor's best leaf branches off has a margin.
        """
        leaf_values = self._leaf_values(values)

        def path(column: Tensor) -> Tensor:  # to the leaf with the greatest value
            best = leaf_values.masked_fill(self.leaves != column[:, None], -torch.inf).argmax(dim=1)
            return self.signs[best].to(values)

        signs = path(target)
        # exactly one test separates two leaves
        absent = signs == 0 if competitor is None else signs * path(competitor) >= 0
        return (signs * values).masked_fill(absent, torch.inf), signs, None

    def _leaf_values(self, values: Tensor) -> Tensor:
        """The least margin [N, L] on the path to each leaf."""
        left = values.T.contiguous()
        return self._at_leaves(torch.full_like(left[0], torch.inf), left, torch.minimum).T

    def _at_leaves(self, root: Tensor, left: Tensor, join: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """Carry a value from the root to the leaves [L, ...]: a test joins its `left` [T, ...] or minus it."""
        found: dict[int, Tensor] = {}
        for test, (first, second) in enumerate(self.children_):
            here = found[-test] if test else root  # a key 0 is the first leaf
            found[first] = join(here, left[test])
            found[second] = join(here, -left[test])
        return torch.stack([found[leaf] for leaf in range(len(left) + 1)])


def log_odds(energy: Tensor, threshold: float) -> Tensor:
    """Compute the log odds [N, K] of ``p = softmax(-energy)`` minus those of a threshold (NEON paper, Prop. 7).

    For each cluster c this is ``LME^{-1}`` of the contrasts ``E_k - E_c``, plus a constant.
    """
    logs = (-energy).log_softmax(dim=1)
    best = logs.argmax(dim=1, keepdim=True)
    # log(1 - p_c) is inexact if p_c is nearly 1: for the best cluster, the other probabilities are summed instead
    rest = logs.scatter(1, best, -torch.inf)
    others = torch.log1p(-rest.exp()).scatter(1, best, rest.logsumexp(dim=1, keepdim=True))
    return logs - others + math.log((1 - threshold) / threshold)


def softmin(contrasts: Tensor, beta: float | Tensor) -> Tensor:
    """Compute the weights ``softmax(-beta h)`` [N, L] of contrasts h.

    `beta` ranges from 0 (equal weights) to inf (the least contrast gets all; ties share equally). Infinite
    contrasts get 0; a row with infinite contrasts only gets NaN.
    """
    least = contrasts.amin(dim=1, keepdim=True)
    logits = torch.where(contrasts == least, 0.0, -beta * (contrasts - least))
    return logits.masked_fill(contrasts.isinf(), -torch.inf).softmax(dim=1)


def take_most(contrasts: Tensor, beta: float | Tensor, weights: Tensor | None = None) -> Tensor:
    """Share the minimum of the contrasts among the competitors: multipliers ``s_k = R_k / h_k``.

    If the minimum f is >= 0 this is the min-take-most rule of the NEON paper (Eq. 2), ``R_k = w_k f`` with ``w =
    softmin(beta h)``. If it is negative ("why not c?"), some contrasts may be close to zero, and ``R_k / h_k``
    would have a pole. In that case f is shared among the clusters that beat c, those with h_k < 0: ``s_k = w_k f /
    sum_j w_j h_j``. Both rules conserve: ``sum_k s_k h_k = f``.

    Parameters
    ----------
    contrasts : Tensor [N, L]
        The contrasts h; ``inf`` where there is no competitor. A row without any competitor gets zeros.
    beta : float or scalar Tensor
        Stiffness from 0 (equal weights) to inf (the least contrast gets all; ties share equally).
    weights : Tensor [N, L], optional
        The weights w, in place of the softmin; those of clusters that do not compete are ignored. A negative
        minimum is always shared by the softmin, as its shares are bounded.

    Returns
    -------
    Tensor [N, L]
        The multipliers s, finite and not negative.
    """
    lowest = contrasts.amin(dim=1, keepdim=True)
    absent = contrasts.isinf()
    found = softmin(contrasts, beta)
    if weights is not None:
        weights = weights.masked_fill(absent, 0.0)
        total = weights.sum(dim=1, keepdim=True)
        found = torch.where((lowest >= 0) & (total > 0), weights / total, found)
    nearest = (contrasts == lowest) | absent  # f / h is 1 for the nearest competitor, even if both are 0
    won = found * torch.where(nearest, 1.0, lowest / contrasts)
    beaten_by = found * (contrasts < 0)
    lost = beaten_by * (lowest / (found * contrasts.clamp(max=0)).sum(dim=1, keepdim=True))
    return torch.where(lowest < 0, lost, won).masked_fill(absent, 0.0)


def near_decision(contrasts: Tensor, beta: float | Tensor, scale: Tensor) -> Tensor:
    """Weight the gradients of contrasts: a soft minimum's weights, less where the decision is far from open.

    The weights [N, L] of a point sum to ``scale / (scale + |f|)``, where f is its least contrast, and `scale`
    [N, 1] a contrast that is large enough for a decision. Without any competitor they are 0.
    """
    least = contrasts.amin(dim=1, keepdim=True).abs()
    return (softmin(contrasts, beta) * (scale / (scale + least))).nan_to_num()
