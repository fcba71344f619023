"""Base class of criteria: what is summed over the points left of a cut, and how the sums score it.

For every node, growth and the search call a criterion in this order:

====  ==========================  =====================================================================
step  call                        what it returns
====  ==========================  =====================================================================
1     ``open(node)``              what the criterion needs to know about the node, kept in ``node.state``
2     ``sums(node)``              what is summed over the points left of a cut
3     ``features(node)``          the columns that may be cut
4     ``size(node)``              the magnitude of scores, by which ties are told from rounding errors
5     ``score(node, cuts)``       the scores of many cuts, for one group of columns after the other
6     ``gain(node, score)``       the gain of the best cut, by which best-first growth compares leaves
7     ``split(node, cut, ...)``   nothing; the states of the children may be derived from the node's
====  ==========================  =====================================================================

Steps 6 and 7 are for the best cut. Only ``score`` has no default. :attr:`Criterion.pruning` may skip step 2 to
6 for some cuts and nodes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from neonxc.common.warnings import deprecated
from neonxc.trees.criteria.pruning import FORMER, FormerPruning, Pruning
from neonxc.trees.criteria.sums import Sum, clusters
from neonxc.trees.cuts.cuts import Cuts

if TYPE_CHECKING:
    from neonxc.trees.cuts.nodes import Cut, Node
    from neonxc.trees.fit.problem import Problem


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
    pruning : subclass of :class:`~neonxc.trees.criteria.pruning.Pruning`
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


def positive(values: Tensor) -> Tensor:
    """Replace divisors of 0 by a tiny number, where the numerator is 0 too."""
    return values.clamp(min=torch.finfo(torch.float64).tiny)
