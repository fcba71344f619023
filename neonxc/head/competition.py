"""Competition layers: logits from the values of clusters or tests, and the contrasts of a decision."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from neonxc.common.registry import storable
from neonxc.head.pooling import group_min, log_odds, min_over_competitors

Share = Callable[[Tensor, float | Tensor], Tensor]
"""Computes the competitors' shares [N, L] from their contrasts [N, L] with the target and the stiffness beta."""


class Competition(nn.Module, ABC):
    """Base class of competition layers, which compute logits [N, K] from values [N, L] of clusters or tests."""

    threshold: float | None = None

    def assign(self, values: Tensor) -> Tensor:
        """Return the column [N] of the cluster that each point is assigned to: that of the largest logit."""
        return self(values).argmax(dim=1)

    @abstractmethod
    def evidence(
        self, values: Tensor, target: Tensor, competitor: Tensor | None
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

    def contrasts(self, values: Tensor, target: Tensor, competitor: Tensor | None = None) -> Tensor:
        """Return the contrasts [N, L] of :meth:`evidence`."""
        return self.evidence(values, target, competitor)[0]


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

    def __init__(self, threshold: float | None = None) -> None:
        super().__init__()
        self.threshold = threshold

    def forward(self, values: Tensor) -> Tensor:
        """Compute the logits [N, K] from values [N, K]."""
        return min_over_competitors(values) if self.threshold is None else log_odds(values, self.threshold)

    def assign(self, values: Tensor) -> Tensor:
        """Return the column [N] of the cluster with the least value."""
        return values.argmin(dim=1)

    def evidence(self, values: Tensor, target: Tensor, competitor: Tensor | None) -> tuple[Tensor, None, Tensor]:
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
    signs: Tensor
    leaves: Tensor

    def __init__(self, children: Sequence[tuple[int, int]], leaves: Tensor) -> None:
        super().__init__()
        self.children_ = [(int(left), int(right)) for left, right in children]
        self.k = int(leaves.max()) + 1
        # the sides [L, T] of the tests on the leaves' paths: 1 left, -1 right, 0 off the path
        tests = torch.eye(len(children), dtype=torch.int8, device=leaves.device)
        self.register_buffer("signs", self._at_leaves(torch.zeros_like(tests[0]), tests, torch.add))
        self.register_buffer("leaves", leaves)

    def forward(self, values: Tensor) -> Tensor:
        """Compute the logits [N, K] from the values of tests [N, T]."""
        return -group_min(-self._leaf_values(values), self.leaves, self.k)[0]

    def evidence(self, values: Tensor, target: Tensor, competitor: Tensor | None) -> tuple[Tensor, Tensor, None]:
        """Compute the margins [N, T] of the tests on the path to the target's best leaf, and their sides.

        With a competitor, only the test where the path to the competitor's best leaf branches off has a margin.
        """
        leaf_values, sides = self._leaf_values(values), self.signs.to(values)

        def path(column: Tensor) -> Tensor:  # to the leaf with the greatest value
            return sides[leaf_values.masked_fill(self.leaves != column[:, None], -torch.inf).argmax(dim=1)]

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
        tests: dict[int, Tensor] = {0: root}
        leaves: dict[int, Tensor] = {}
        for test, children in enumerate(self.children_):
            for child, side in zip(children, (left[test], -left[test]), strict=True):
                (leaves if child >= 0 else tests)[abs(child)] = join(tests[test], side)
        return torch.stack([leaves[leaf] for leaf in range(len(leaves))])
