"""Competition layers: logits from the values of clusters or tests, and the contrasts of a decision.

The values E_k of clusters compete for a point, of which the least wins, or the values v_t of the tests of a tree,
where a point goes left if v_t > 0. What speaks for cluster c is a minimum over contrasts h::

    of clusters         f_c = min of the contrasts h_k = E_k - E_c, over k != c        (NEON paper, Prop. 1)
    with a threshold    f_c = log odds of p_c minus those of the threshold, p = softmax(-E)     (Prop. 7)
    of tests            f_c = max over the leaves of c of the min of h_t, over the tests t on the path to it
                        h_t = v_t where the path goes left, and -v_t where it goes right

A rule divides f_c among the contrasts: it computes multipliers s, by which relevance is ``sum_k s_k h_k``.
"""

from __future__ import annotations

import math
import warnings
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

import torch
from torch import Tensor

from neonxc.common.registry import load_as, storable
from neonxc.head.detection import Stage
from neonxc.head.grouping import group_min


class ContrastRule(Protocol):
    """A rule that divides decisions among their contrasts."""

    def __call__(self, contrasts: Tensor, beta: float | Tensor, /) -> Tensor:
        """Compute the multipliers [N, L] of contrasts [N, L] for the stiffness beta."""

    def of_block(self, block: slice) -> Self:
        """Return the rule for a block of points."""


class Competition(Stage):
    """Base class of competition layers, which compute logits [N, K] from values [N, L] of clusters or tests."""

    threshold: float | None = None
    by_contrast = False
    """Whether each value competes as its difference to the value of the target."""

    def has_assigned_weights(self, beta: float) -> bool:
        """Whether there is a shorter way to the weights for the cluster that each point is assigned to."""
        return False

    def assigned_weights(self, values: Tensor, cluster: Tensor, beta: float) -> Tensor:
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
            Each is a value times its sign, minus the value of the target if it has one; infinite for values that
            do not compete.
        signs : Tensor [N, L] or None
            None if all are 1.
        is_target : Tensor [N, L] or None
            1 for the value of the target, and 0 for the others.
        """


@storable
class Competitors(Competition):
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
        least, winner = values.min(dim=1, keepdim=True)
        second = values.scatter(1, winner, torch.inf).amin(dim=1, keepdim=True)
        # the minimum over the competitors of c is the least value, and the second least for the winner itself
        return (least - values).scatter(1, winner, second - least)

    def assign(self, values: Tensor) -> Tensor:
        """Return the column [N] of the cluster with the least value."""
        return values.min(dim=1).indices  # in two thirds of the time of argmin

    def has_assigned_weights(self, beta: float) -> bool:
        """Whether contrasts, which are not negative, are divided by a soft minimum."""
        return self.threshold is None and 0 < beta < math.inf

    def assigned_weights(self, values: Tensor, cluster: Tensor, beta: float) -> Tensor:
        """Compute the weights [N, K]: those of :func:`take_most`, and minus their sum for the assigned cluster.

        All steps are in one array, as memory is what takes time.
        """
        column = cluster[:, None]
        contrasts = (values - values.gather(1, column)).scatter_(1, column, torch.inf)
        contrasts.clamp_(min=torch.finfo(values.dtype).tiny)  # f / h is 1 for the nearest, even if both are 0
        least = contrasts.amin(dim=1, keepdim=True)  # f
        # s_k = w_k f / h_k with w = softmax(-beta h); a softmax over few clusters takes three times as long
        weights = (least - contrasts).mul_(beta).exp_()
        weights.mul_(least / weights.sum(dim=1, keepdim=True)).div_(contrasts)
        return weights.scatter_(1, column, -weights.sum(dim=1, keepdim=True))

    def evidence(
        self, values: Tensor, target: Tensor, competitor: Tensor | None = None
    ) -> tuple[Tensor, None, Tensor]:
        """Compute the contrasts ``E_k - E_c`` [N, K] with the target; see :meth:`Competition.evidence`."""
        columns = torch.arange(values.shape[1], device=values.device)
        is_target = columns == target[:, None]
        absent = is_target
        if competitor is not None:
            absent = absent | (columns != competitor[:, None])
        contrasts = (values - values.gather(1, target[:, None])).masked_fill(absent, torch.inf)
        return contrasts, None, is_target.to(values)


load_as("Rivals", Competitors)  # the name of the class in files of earlier versions


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
        off_path = torch.zeros_like(tests[0])
        self.register_buffer("signs", self._at_leaves(off_path, tests, torch.add))

    def forward(self, values: Tensor) -> Tensor:
        """Compute the logits [N, K] from the values of tests [N, T]."""
        negative, _ = group_min(-self._leaf_values(values), self.leaves, self.k)
        return -negative

    def evidence(
        self, values: Tensor, target: Tensor, competitor: Tensor | None = None
    ) -> tuple[Tensor, Tensor, None]:
        """Compute the margins [N, T] of the tests on the path to the target's best leaf, and their sides.

        With a competitor, only the test where the path to the competitor's best leaf branches off has a margin.
        """
        leaf_values = self._leaf_values(values)

        def path_to_best_leaf(cluster: Tensor) -> Tensor:
            of_other_clusters = self.leaves != cluster[:, None]
            best_leaf = leaf_values.masked_fill(of_other_clusters, -torch.inf).argmax(dim=1)
            return self.signs[best_leaf].to(values)

        signs = path_to_best_leaf(target)
        if competitor is None:
            absent = signs == 0
        else:
            # exactly one test separates two leaves: the one where their paths go to different sides
            absent = signs * path_to_best_leaf(competitor) >= 0
        return (signs * values).masked_fill(absent, torch.inf), signs, None

    def _leaf_values(self, values: Tensor) -> Tensor:
        """Compute the minimum [N, L] of the contrasts on the path to each leaf."""
        of_tests = values.T.contiguous()
        infinite = torch.full_like(of_tests[0], torch.inf)  # the minimum over no test
        return self._at_leaves(infinite, of_tests, torch.minimum).T

    def _at_leaves(self, root: Tensor, tests: Tensor, join: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """Carry a value from the root to the leaves, [L, ...].

        To the left of a test, the value is joined with that of the test in `tests` [T, ...], and to the right with
        minus that.
        """
        at_node: dict[int, Tensor] = {}  # by the numbers of leaves, and minus those of tests
        for test, (left, right) in enumerate(self.children_):
            value = at_node[-test] if test else root  # the root is test 0, and the key 0 the first leaf
            at_node[left] = join(value, tests[test])
            at_node[right] = join(value, -tests[test])
        n_leaves = len(tests) + 1
        return torch.stack([at_node[leaf] for leaf in range(n_leaves)])


def __getattr__(name: str) -> type:
    if name == "Rivals":
        warnings.warn("Rivals is now called Competitors", DeprecationWarning, stacklevel=2)
        return Competitors
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def log_odds(energy: Tensor, threshold: float) -> Tensor:
    """Compute the log odds [N, K] of ``p = softmax(-energy)`` minus those of a threshold (NEON paper, Prop. 7).

    For each cluster c this is ``LME^{-1}`` of the contrasts ``E_k - E_c``, plus a constant.
    """
    logs = (-energy).log_softmax(dim=1)
    best = logs.argmax(dim=1, keepdim=True)
    # log(1 - p_c) is inexact if p_c is nearly 1: for the best cluster, the other probabilities are summed instead
    others = logs.scatter(1, best, -torch.inf)
    complement = torch.log1p(-others.exp())  # log(1 - p_c)
    complement = complement.scatter(1, best, others.logsumexp(dim=1, keepdim=True))
    return logs - complement + math.log((1 - threshold) / threshold)


def softmin(contrasts: Tensor, beta: float | Tensor) -> Tensor:
    """Compute the weights ``softmax(-beta h)`` [N, L] of contrasts h.

    `beta` ranges from 0 (equal weights) to inf (the least contrast gets all; ties share equally). Infinite
    contrasts get 0; a row with infinite contrasts only gets NaN.
    """
    least = contrasts.amin(dim=1, keepdim=True)
    logits = torch.where(contrasts == least, 0.0, -beta * (contrasts - least))
    return logits.masked_fill(contrasts.isinf(), -torch.inf).softmax(dim=1)


def take_most(contrasts: Tensor, beta: float | Tensor, weights: Tensor | None = None) -> Tensor:
    """Divide the minimum of the contrasts among the competitors: multipliers ``s_k = R_k / h_k``.

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
    lowest = contrasts.amin(dim=1, keepdim=True)  # f
    absent = contrasts.isinf()
    shares = softmin(contrasts, beta)
    if weights is not None:
        weights = weights.masked_fill(absent, 0.0)
        total = weights.sum(dim=1, keepdim=True)
        shares = torch.where((lowest >= 0) & (total > 0), weights / total, shares)

    # f >= 0: s_k = w_k f / h_k, and f / h is 1 for the nearest competitor, even if both are 0
    is_nearest = (contrasts == lowest) | absent
    if_positive = shares * torch.where(is_nearest, 1.0, lowest / contrasts)

    # f < 0: s_k = w_k f / sum_j w_j h_j over the clusters that beat c
    shares_of_better = shares * (contrasts < 0)
    if_negative = shares_of_better * (lowest / (shares * contrasts.clamp(max=0)).sum(dim=1, keepdim=True))
    return torch.where(lowest < 0, if_negative, if_positive).masked_fill(absent, 0.0)


@dataclass(frozen=True)
class TakeMost:
    """The rule :func:`take_most`, with the softmin's weights or others, [N, L]."""

    weights: Tensor | None = None

    def of_block(self, block: slice) -> TakeMost:
        """Return the rule for a block of points."""
        return self if self.weights is None else TakeMost(self.weights[block])

    def __call__(self, contrasts: Tensor, beta: float | Tensor) -> Tensor:
        """Compute the multipliers [n, L] of contrasts [n, L]."""
        return take_most(contrasts, beta, self.weights)


TAKE_MOST = TakeMost()
"""The rule of the NEON paper."""


def near_decision(contrasts: Tensor, beta: float | Tensor, scale: Tensor) -> Tensor:
    """Weight the gradients of contrasts: a soft minimum's weights, less where the decision is far from open.

    The weights [N, L] of a point sum to ``scale / (scale + |f|)``, where f is its least contrast, and `scale`
    [N, 1] a contrast that is large enough for a decision. Without any competitor they are 0.
    """
    least = contrasts.amin(dim=1, keepdim=True).abs()
    return (softmin(contrasts, beta) * (scale / (scale + least))).nan_to_num()
