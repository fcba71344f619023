"""Base class of criteria: the statistics of points that are summed, and how the sums left of a cut score it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from neonxc.trees.statistics import Clusters, Statistic

if TYPE_CHECKING:
    from neonxc.trees.node import Cut, Node
    from neonxc.trees.problem import Problem


@dataclass(frozen=True)
class Cuts:
    """Candidate cuts of one node, described by sums over the points on their left.

    In the shapes below, ``...`` stands for one or two dimensions of cuts. A score must operate on them element by
    element.

    Attributes
    ----------
    left : Tensor [m, ...]
        The m sums of the statistics over the points on the left. Several statistics are concatenated. For
        :class:`Clusters`, the sums are the number of points of each of the node's clusters.
    total : Tensor [m]
        The same sums over all points of the node.
    right : Tensor [m, ...]
        The same sums over the points on the right.
    feature : Tensor that broadcasts to [...] of int64
        Column of every cut.
    centers_left : Tensor [...] of int64
        Number of the node's centers that go left.
    mass_left : Tensor [...] or None
        Number of points that go left, or their weight; None unless a statistic counts them.
    bound : Tensor [...] or None
        Result of the previous stage; see :attr:`Criterion.stages`.
    gap : callable
        ``gap()`` returns the greatest value on the left and the least value on the right of every cut, [...] each;
        infinite where a side has no points.
    sides : callable
        ``sides()`` returns whether each center of the node goes left, [..., centers].
    sum_left : callable
        ``sum_left(values, part, exact)`` sums values over the points on the left of every cut. `values` has shape
        [parts, points]; `part` [...] selects the row for every cut; `exact` tells whether sums of the values are
        exact without rounding them first (see :class:`~neonxc.trees.statistics.Channels`).
    """

    left: Tensor
    total: Tensor
    feature: Tensor
    centers_left: Tensor
    mass_left: Tensor | None
    bound: Tensor | None
    gap: Callable[[], tuple[Tensor, Tensor]]
    sides: Callable[[], Tensor]
    sum_left: Callable[[Tensor, Tensor, bool], Tensor]

    @property
    def right(self) -> Tensor:
        """Sums over the points on the right, [m, ...]."""
        return self.total.view(-1, *(1,) * (self.left.ndim - 1)) - self.left


class Criterion(ABC):
    """Scores the cuts of a node; :mod:`neonxc.trees.search` finds the cut with the lowest score.

    A subclass must implement :meth:`score`, which works on sums over points. The search takes care of everything
    else: chunks of columns, bins, cuts that leave a side empty, ties, rounding and thresholds.

    Parameters
    ----------
    problem : Problem
        Points, columns and the reference clustering.

    Attributes
    ----------
    coarse : bool
        Whether :meth:`within` is implemented; False by default.
    """

    coarse = False

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.clusters = Clusters(problem)

    def statistics(self, node: Node) -> Sequence[Statistic]:
        """Statistics to sum over the points on the left; by default, counts of the reference clusters.

        A statistic whose sums are stored for the children of a node (see
        :class:`~neonxc.trees.statistics.Statistic`) must be the same object for all nodes.
        """
        return (self.clusters,)

    @abstractmethod
    def score(self, node: Node, cuts: Cuts) -> Tensor:
        """Score of every cut, [...]. The cut with the lowest score is made; an infinite score forbids a cut."""

    @property
    def stages(self) -> Sequence[Callable[[Node, Cuts], Tensor]]:
        """Increasingly tight lower bounds of the score; the last stage is the score itself.

        The first stage is computed for all cuts, each later one only for cuts that can still be the best.
        """
        return (self.score,)

    def within(self, node: Node, least: Tensor, feature: Tensor) -> Tensor | None:
        """Lower bound of the scores of all cuts inside a bin, [f, bins].

        With this bound, columns of many values are first searched bin by bin, and then value by value only in bins
        that may contain the best cut.

        Parameters
        ----------
        least : Tensor [m, f, bins]
            Lower bounds of the sums of the statistics over all cuts inside the bin.
        feature : Tensor [f, 1] of int64
        """
        return None

    def further(self, node: Node, least: float) -> Sequence[Statistic]:
        """Additional statistics that are needed once a cut with score at most `least` is known."""
        return ()

    def features(self, node: Node) -> Tensor | None:
        """Columns in which the node may be cut; None allows all."""
        return None

    def open(self, node: Node) -> Any:
        """Return what the criterion stores in ``node.state``; called once, before the node's cuts are scored."""
        return None

    def split(self, node: Node, cut: Cut, children: tuple[Node, Node]) -> None:
        """Derive the states of the children from the parent's, if needed. By default, the parent's is dropped."""
        node.state = None

    def size(self, node: Node) -> float:
        """Magnitude of the terms of a score, such as the mass of the points; rounding errors are proportional."""
        return node.mass

    def bound(self, node: Node) -> float:
        """Upper bound of the gain of splitting the node (best-first growth); minus infinity keeps it a leaf."""
        return float("inf")

    def gain(self, node: Node, score: float) -> float:
        """Gain of a cut with the given score (best-first growth); minus infinity keeps the node a leaf."""
        return -score


def floating(values: Tensor) -> Tensor:
    """A copy of the sums in float64."""
    return torch.empty(values.shape, dtype=torch.float64, device=values.device).copy_(values)


def at_least_one(values: Tensor) -> Tensor:
    """Replace divisors of 0 by 1, where the numerator is 0 too."""
    return torch.where(values > 0, values, 1)
