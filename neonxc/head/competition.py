"""Competition layers: logits from the values of clusters or tests, and the values' weights in a decision."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from neonxc.common.registry import storable
from neonxc.head.pooling import group_min, log_odds, min_over_competitors, take_most

Share = Callable[[Tensor, float | Tensor], Tensor]
"""Computes the competitors' shares [N, L] from their contrasts [N, L] with the target and the stiffness beta."""


@storable
class Rivals(nn.Module):
    """All clusters compete: ``f_c = min_{k != c} E_k - E_c`` for values E, of which the least wins.

    Parameters
    ----------
    threshold : float, optional
        Threshold in (0, 1) of the probabilities ``p = softmax(-E)``. The logit is then the log odds of p_c minus
        those of the threshold (NEON paper, Prop. 7), which is positive if p_c exceeds the threshold. Default: the
        hard competition above.
    """

    PLAIN = ("threshold",)

    def __init__(self, threshold: float | None = None) -> None:
        super().__init__()
        self.threshold = threshold

    def forward(self, values: Tensor) -> Tensor:
        """Compute the logits [N, K] from values [N, K]."""
        return min_over_competitors(values) if self.threshold is None else log_odds(values, self.threshold)

    def assign(self, values: Tensor) -> Tensor:
        """Return the column [N] of the cluster with the least value."""
        return values.argmin(dim=1)

    def contrasts(self, values: Tensor, target: Tensor, competitor: Tensor | None = None) -> Tensor:
        """Compute the contrasts ``E_k - E_c`` [N, K] with the target; infinite where k does not compete."""
        column = target[:, None]
        found = (values - values.gather(1, column)).scatter(1, column, torch.inf)
        if competitor is None:
            return found
        rival = competitor[:, None]
        return torch.full_like(found, torch.inf).scatter(1, rival, found.gather(1, rival))

    def weights(
        self,
        values: Tensor,
        target: Tensor,
        beta: float | Tensor,
        competitor: Tensor | None = None,
        share: Share = take_most,
    ) -> tuple[Tensor, Tensor]:
        """Compute the weights of the values in a decision.

        A competitor's weight is its share s_k, by default that of :func:`~neonxc.head.pooling.take_most`; the
        target's weight is minus their sum. With a threshold, whose pooling is soft itself, the shares are the
        gradient of its soft minimum, and beta is ignored.

        Parameters
        ----------
        values : Tensor [N, K]
        target : Tensor [N] of int64
        beta : float or scalar Tensor
            Stiffness of the shares.
        competitor : Tensor [N] of int64, optional
            The only competitor of each point. Default: all other clusters compete.
        share : callable
            Computes the shares [N, K] from contrasts [N, K] and beta.

        Returns
        -------
        weights : Tensor [N, K]
        own : Tensor [N, K]
            Indicator of the target.
        """
        contrasts = self.contrasts(values, target, competitor)
        if self.threshold is None:
            shares = share(contrasts, beta)
        else:
            shares = (-contrasts).softmax(dim=1).nan_to_num()
        column = target[:, None]
        own = torch.zeros_like(shares).scatter_(1, column, 1.0)
        return shares.scatter(1, column, -shares.sum(dim=1, keepdim=True)), own


@storable
class Path(nn.Module):
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
    signs: Tensor
    leaves: Tensor

    def __init__(self, children: Sequence[tuple[int, int]], leaves: Tensor) -> None:
        super().__init__()
        self.children_ = [(int(left), int(right)) for left, right in children]
        self.k = int(leaves.max()) + 1
        self.register_buffer("signs", path_signs(self.children_).to(leaves.device))
        self.register_buffer("leaves", leaves)

    def forward(self, values: Tensor) -> Tensor:
        """Compute the logits [N, K] from the values of tests [N, T]."""
        found = self._leaf_values(values)
        return -group_min(-found, self.leaves, self.k)[0]

    def assign(self, values: Tensor) -> Tensor:
        """Return the column [N] of the cluster whose leaf a point reaches."""
        return self(values).argmax(dim=1)

    def contrasts(self, values: Tensor, target: Tensor, competitor: Tensor | None = None) -> Tensor:
        """Compute the margins [N, T] of the tests on the path to the target's best leaf; infinite off the path.

        With a competitor, only the test where the path to the competitor's best leaf branches off has a margin.
        """
        return self._evidence(values, target, competitor)[0]

    def weights(
        self,
        values: Tensor,
        target: Tensor,
        beta: float | Tensor,
        competitor: Tensor | None = None,
        share: Share = take_most,
    ) -> tuple[Tensor, None]:
        """Compute the weights [N, T] of the tests in a decision: their shares, with the side of the path as sign.

        The parameters are those of :meth:`Rivals.weights`, with tests in place of clusters.
        """
        evidence, signs = self._evidence(values, target, competitor)
        return share(evidence, beta) * signs, None

    def _evidence(self, values: Tensor, target: Tensor, competitor: Tensor | None) -> tuple[Tensor, Tensor]:
        """The margins [N, T] of :meth:`contrasts`, and the sides [N, T] of the path."""
        leaf_values = self._leaf_values(values)
        signs = self.signs.to(values)[self._best(leaf_values, target)]
        on_path = signs != 0
        if competitor is not None:  # exactly one test separates two leaves
            on_path &= signs * self.signs.to(values)[self._best(leaf_values, competitor)] < 0
        return torch.where(on_path, signs * values, torch.inf), signs

    def _leaf_values(self, values: Tensor) -> Tensor:
        """The least margin [N, L] on the path to each leaf."""
        left = values.T.contiguous()
        reached = {0: torch.full_like(left[0], torch.inf)}  # minimum over the path to a test
        found: list[Tensor] = [reached[0]] * len(self.leaves)
        for test, children in enumerate(self.children_):
            for child, evidence in zip(children, (left[test], -left[test]), strict=True):
                value = torch.minimum(reached[test], evidence)
                if child >= 0:
                    found[child] = value
                else:
                    reached[-child] = value
        return torch.stack(found, dim=1)

    def _best(self, leaf_values: Tensor, target: Tensor) -> Tensor:
        """The target's leaf [N] with the greatest value."""
        return leaf_values.masked_fill(self.leaves != target[:, None], -torch.inf).argmax(dim=1)


def path_signs(children: Sequence[tuple[int, int]]) -> Tensor:
    """Return the sides [L, T] of the tests on the leaves' paths: 1 left, -1 right, 0 off the path."""
    signs = torch.zeros(len(children) + 1, len(children), dtype=torch.int8)
    below: dict[int, list[int]] = {}
    for test in range(len(children) - 1, -1, -1):  # children come after their parents
        sides = [[child] if child >= 0 else below[-child] for child in children[test]]
        below[test] = sides[0] + sides[1]
        for side, leaves in zip((1, -1), sides, strict=True):
            signs[leaves, test] = side
    return signs
