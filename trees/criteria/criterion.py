"""Base class of criteria: what is summed over the points left of a cut, and how the sums score it.

For every node, growth and the search call a criterion in this order:

====  ==========================  =====================================================================
step  call                        what it returns
====  ==========================  =====================================================================
1     ``open(node)``              what the criterion needs to know about the node, kept in ``node.state``
2     ``features(node)``          the columns that may be cut
3     ``sums(node)``              what is summed over the points left of a cut
4     ``size(node)``              the magnitude of scores, by which ties are told from rounding errors
5     ``score(node, cuts)``       the scores of many cuts, for one group of columns after the other
6     ``gain(node, score)``       the gain of the best cut, by which best-first growth compares leaves
7     ``split(node, cut, ...)``   nothing; the states of the children may be derived from the node's
====  ==========================  =====================================================================

Steps 6 and 7 are for the best cut. Only ``score`` has no default. Steps 2 to 6 may be skipped for some cuts and
nodes by a :class:`Pruning`, which says what is known about scores before they are computed. Without bounds, the
search scores all cuts of all leaves, and finds the same tree. A bound on the wrong side of a score or a gain gives
wrong trees without an error. :mod:`neonxc.trees.cuts.search` says by how much a bound may be off.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from math import inf
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from neonxc.common.warnings import deprecated
from neonxc.trees.criteria.sums import Sum, clusters
from neonxc.trees.cuts.search import Cuts

if TYPE_CHECKING:
    from neonxc.trees.cuts.growth import Cut, Node
    from neonxc.trees.fit.problem import Problem


class Pruning:
    """Bounds of the scores and gains of a criterion, which save time and change no tree.

    A subclass overrides what it knows a bound of; this class knows none. It is named by :attr:`Criterion.pruning`.

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


class Criterion(ABC):
    """Scores the cuts of a node; :mod:`neonxc.trees.cuts.search` finds the cut with the lowest score.

    A subclass must implement :meth:`score`, which works on sums over points. The search takes care of everything
    else: groups of columns, cuts that leave a side empty, ties, rounding and thresholds.

    Parameters
    ----------
    problem : Problem
        Points, columns and the reference clustering.

    Attributes
    ----------
    problem : Problem
    pruning : subclass of :class:`Pruning`
        Bounds of scores and gains, which save time and change no tree; by default there are none.
    """

    pruning: type[Pruning] = Pruning

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        former = [name for name in FORMER if name in vars(cls)]
        if former:
            deprecated(f"{', '.join(former)} of a criterion", "a class of bounds, Criterion.pruning")
            cls.pruning = FormerPruning

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def open(self, node: Node) -> Any:
        """Return what the criterion stores in ``node.state``; called once, before the node's cuts are scored."""
        return None

    def sums(self, node: Node) -> Sequence[Sum]:
        """What is summed over the points on the left; by default, points by reference cluster."""
        return (clusters(self.problem, node),)

    def features(self, node: Node) -> Tensor | None:
        """Columns in which the node may be cut; None allows all."""
        return None

    def size(self, node: Node) -> float:
        """Magnitude of the terms of a score, such as the mass of the points; rounding errors are proportional."""
        return node.mass

    @abstractmethod
    def score(self, node: Node, cuts: Cuts) -> Tensor:
        """Score of every cut, [...]. The cut with the lowest score is made; an infinite score forbids a cut."""

    def gain(self, node: Node, score: float) -> float:
        """Gain of a cut with the given score (best-first growth); minus infinity keeps the node a leaf."""
        return -score

    def split(self, node: Node, cut: Cut, children: tuple[Node, Node]) -> None:
        """Derive the states of the children from the parent's, if needed. By default, the parent's is dropped."""
        node.state = None


def floating(values: Tensor) -> Tensor:
    """A copy of the sums in float64."""
    return torch.empty(values.shape, dtype=torch.float64, device=values.device).copy_(values)


def combined(factors: Tensor, sums: Tensor) -> Tensor:
    """Linear combinations [m, ...] of sums [clusters, ...] with factors [m, clusters]; ``tensordot`` is slower."""
    return (factors @ sums.flatten(1)).view(len(factors), *sums.shape[1:])


def positive(values: Tensor) -> Tensor:
    """Replace divisors of 0 by a tiny number, where the numerator is 0 too."""
    return values.clamp(min=torch.finfo(torch.float64).tiny)


# --- criteria of version 0.3 ---

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
