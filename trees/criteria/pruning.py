"""What a criterion knows about its scores before they are computed, by which the search skips cuts and leaves.

Without bounds, the search scores all cuts of all leaves, and finds the same tree. A bound on the wrong side of
a score or a gain gives wrong trees without an error. :mod:`neonxc.trees.cuts.search` says by how much a bound
may be off.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import TYPE_CHECKING, Any

from torch import Tensor

if TYPE_CHECKING:
    from neonxc.trees.criteria.criterion import Criterion
    from neonxc.trees.criteria.sums import Sum
    from neonxc.trees.cuts.cuts import Cuts
    from neonxc.trees.cuts.nodes import Node


class Pruning:
    """Bounds of the scores and gains of a criterion, which save time and change no tree.

    A subclass overrides what it knows a bound of; this class knows none. It is named by
    :attr:`neonxc.trees.criteria.criterion.Criterion.pruning`.

    Parameters
    ----------
    criterion : Criterion

    Attributes
    ----------
    criterion : Criterion
    problem : Problem
        That of the criterion.
    """

    def __init__(self, criterion: Criterion) -> None:
        self.criterion = criterion
        self.problem = criterion.problem

    def gain_bound(self, node: Node) -> float:
        """Upper bound of the gain of splitting a node; minus infinity if the gain is.

        Best-first growth searches a leaf only when its bound is the largest of all leaves.
        """
        return inf

    @property
    def bounds(self) -> Sequence[Callable[[Node, Cuts], Tensor]]:
        """Lower bounds of the score, each tighter than the one before it.

        The first is computed for all cuts. Every later one, and then the score, is computed only for the cuts
        that the bounds before it do not exclude. These cuts are a list, and ``cuts.bound`` is their last bound.
        """
        return ()

    def score(self, node: Node, cuts: Cuts) -> Tensor:
        """The score of cuts; a subclass may make use of ``cuts.bound``."""
        return self.criterion.score(node, cuts)

    @property
    def bounds_bins(self) -> bool:
        """Whether there is a :meth:`bound_inside`."""
        return type(self).bound_inside is not Pruning.bound_inside

    def bound_inside(self, node: Node, least: Tensor, feature: Tensor) -> Tensor:
        """Lower bound [f, bins] of the scores of all cuts inside bins that stand for several neighbouring codes.

        With this bound, columns of many values are searched by such bins first, and then by their codes only if
        a bin may contain the best cut. All sums of the criterion need
        :attr:`~neonxc.trees.criteria.sums.Sum.coarse` then.

        Parameters
        ----------
        node : Node
        least : Tensor [m, f, bins]
            Lower bounds of the sums over all cuts inside the bin.
        feature : Tensor [f, 1] of int64
        """
        raise NotImplementedError

    def sums(self, node: Node) -> Sequence[Sum]:
        """Sums that suffice to score the best cut of most nodes; by default, those of the criterion."""
        return self.criterion.sums(node)

    def further_sums(self, node: Node, lowest: float) -> Sequence[Sum]:
        """Further sums that a score below `lowest`, the lowest score so far, needs; none by default.

        If there are some, cuts are scored again with both.
        """
        return ()


FORMER = ("stages", "coarse", "within", "further", "bound")
"""Names by which criteria defined their bounds themselves before version 0.4."""


class FormerPruning(Pruning):
    """Bounds that a criterion defines itself by the former names."""

    def _former(self, name: str, default: Any) -> Any:
        return getattr(self.criterion, name, default)

    def gain_bound(self, node: Node) -> float:
        """The former `bound`."""
        bound: float = self._former("bound", super().gain_bound)(node)
        return bound

    @property
    def bounds(self) -> Sequence[Callable[[Node, Cuts], Tensor]]:
        """The former `stages`, of which the last is the score."""
        stages: Sequence[Callable[[Node, Cuts], Tensor]] = self._former("stages", ())
        return stages[:-1]

    def score(self, node: Node, cuts: Cuts) -> Tensor:
        """The last of the former `stages`, or the score."""
        stages: Sequence[Callable[[Node, Cuts], Tensor]] = self._former("stages", (self.criterion.score,))
        return stages[-1](node, cuts)

    @property
    def bounds_bins(self) -> bool:
        """The former `coarse`."""
        return bool(self._former("coarse", False))

    def bound_inside(self, node: Node, least: Tensor, feature: Tensor) -> Tensor:
        """The former `within`."""
        bound: Tensor = self._former("within", None)(node, least, feature)
        return bound

    def further_sums(self, node: Node, lowest: float) -> Sequence[Sum]:
        """The former `further`."""
        sums: Sequence[Sum] = self._former("further", super().further_sums)(node, lowest)
        return sums
