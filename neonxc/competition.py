"""Competition: from the values of clusters or of tests to logits, and back to weights of these values."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from neonxc.pieces import Pieces
from neonxc.pooling import group_min, log_odds, min_over_competitors, take_most
from neonxc.registry import storable

Share = Callable[[Tensor, float | Tensor], Tensor]


@storable
class Rivals(nn.Module):
    """The other clusters compete: ``f_c = min_{k != c} E_k - E_c`` for values E, of which the least wins.

    Parameters
    ----------
    threshold : float, optional
        Of ``p = softmax(-E)``: the logit is then the log odds of p_c over those of the threshold (NEON paper,
        Prop. 7), and positive where p_c exceeds it.
    """

    PLAIN = ("threshold",)

    def __init__(self, threshold: float | None = None) -> None:
        super().__init__()
        self.threshold = threshold

    def n_clusters(self, n_values: int) -> int:
        """Clusters K, given so many values."""
        return n_values

    def forward(self, values: Tensor) -> Tensor:
        """Logits [N, K] of values [N, K]."""
        return min_over_competitors(values) if self.threshold is None else log_odds(values, self.threshold)

    def assign(self, values: Tensor) -> Tensor:
        """Column [N] of the winner."""
        return values.argmin(dim=1)

    def pieces(self, n_values: int, device: torch.device) -> Pieces:
        """Each cluster as the piece in which its value is the least, with or without a threshold."""
        column = torch.arange(n_values, device=device)
        return Pieces(column, (column != column[:, None]).to(torch.int8), column)

    def contrasts(self, values: Tensor, target: Tensor, competitor: Tensor | None = None) -> Tensor:
        """Contrasts ``E_k - E_c`` [N, K] with the target; infinite where there is no competitor."""
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
        """Weights [N, K] of the values in a decision, and the target as an indicator [N, K].

        Every competitor has its share s_k of :func:`~neonxc.pooling.take_most`, the target minus their sum. With a
        threshold, whose pooling is soft itself, the shares are those of its soft minimum, so that what lands on a
        weak contrast is let go, as the paper reassigns it; beta is ignored.

        Parameters
        ----------
        values : Tensor [N, K]
        target : Tensor [N] of int64
        beta : float or scalar Tensor
            Stiffness of the shares.
        competitor : Tensor [N] of int64, optional
            The only competitor that counts.
        share : callable
            Shares [N, K] from contrasts [N, K] and beta.
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
    """The tests on the path to a leaf compete: its value is their minimum, a cluster's that of its best leaf.

    Parameters
    ----------
    children : sequence of T (left, right)
        The tests of a binary tree, parents first: a child ``>= 0`` is the leaf of that number, ``-t`` the test
        number t. Points go left where a test's value is positive.
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

    def n_clusters(self, n_values: int) -> int:
        """Clusters K."""
        return self.k

    def forward(self, values: Tensor) -> Tensor:
        """Logits [N, K] of tests [N, T]."""
        found = self._of_leaves(values)
        return -group_min(-found, self.leaves, self.k)[0]

    def assign(self, values: Tensor) -> Tensor:
        """Column [N] of the cluster whose leaf a point reaches."""
        return self(values).argmax(dim=1)

    def pieces(self, n_values: int, device: torch.device) -> Pieces:
        """Each cluster as the pieces that are its leaves."""
        return Pieces(self.leaves, self.signs)

    def contrasts(self, values: Tensor, target: Tensor, competitor: Tensor | None = None) -> Tensor:
        """Evidence [N, T] of the tests on the way to the target's best leaf; infinite where a test is not on it.

        With a competitor it is that of one test alone: where the way to the competitor's best leaf parts from it.
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
        """Weights [N, T] of the tests in a decision: shares of those on the path, with its side as their sign.

        The parameters are those of :meth:`Rivals.weights`, with tests in place of clusters.
        """
        evidence, signs = self._evidence(values, target, competitor)
        return share(evidence, beta) * signs, None

    def _evidence(self, values: Tensor, target: Tensor, competitor: Tensor | None) -> tuple[Tensor, Tensor]:
        of_leaves = self._of_leaves(values)
        signs = self.signs.to(values)[self._best(of_leaves, target)]
        on_path = signs != 0
        if competitor is not None:  # two leaves are on different sides of a single test
            on_path &= signs * self.signs.to(values)[self._best(of_leaves, competitor)] < 0
        return torch.where(on_path, signs * values, torch.inf), signs

    def _of_leaves(self, values: Tensor) -> Tensor:
        """The weakest evidence [N, L] on each leaf's path."""
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

    def _best(self, of_leaves: Tensor, target: Tensor) -> Tensor:
        """The leaf [N] of a cluster with the greatest value."""
        return of_leaves.masked_fill(self.leaves != target[:, None], -torch.inf).argmax(dim=1)


def path_signs(children: Sequence[tuple[int, int]]) -> Tensor:
    """Sides [L, T] on which each leaf lies of each test: 1 left, -1 right, 0 not on its path."""
    signs = torch.zeros(len(children) + 1, len(children), dtype=torch.int8)
    below: dict[int, list[int]] = {}
    for test in range(len(children) - 1, -1, -1):  # children come after their parents
        sides = [[child] if child >= 0 else below[-child] for child in children[test]]
        below[test] = sides[0] + sides[1]
        for side, leaves in zip((1, -1), sides, strict=True):
            signs[leaves, test] = side
    return signs
