"""The contract of a criterion: what is added up over the points left of a cut, and how good that makes the cut."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from neonxc.trees.statistics import Clusters, Statistic

if TYPE_CHECKING:
    from neonxc.trees.problem import Cut, Node, Problem


@dataclass(frozen=True)
class Cuts:
    """Cuts of one node, described by sums over the points on their left.

    ``...`` stands for one or two dimensions of cuts: all operations of a score go over them element by element.

    Attributes
    ----------
    left : Tensor [m, ...]
        The statistic's numbers; of several statistics, one after the other. Of :class:`Clusters`, the points of
        each of the node's clusters.
    right : Tensor [m, ...]
        The same on the right.
    feature : Tensor that broadcasts to [...] of int64
        The column.
    centers_left : Tensor [...] of int64
        Centers of the node that go left.
    mass_left : Tensor [...] or None
        Points that go left, or their weight; None unless a statistic counts them.
    bound : Tensor [...] or None
        What the stage before gave; see :attr:`Criterion.stages`.
    gap : callable
        () -> the greatest value of the node's points on the left, and the least on the right, [...] each; infinite
        where a side has no points.
    sides : callable
        () -> whether each center of the node goes left, [..., centers].
    sum_left : callable
        Values [parts, points] of the node's points, the part that belongs to every cut [...], and whether sums of
        the values are exact as they are (see :class:`~neonxc.trees.statistics.Channels`) -> for every cut the sum
        of its part's values over the points on the left, [...].
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
        """What is not on the left, [m, ...]."""
        return self.total.view(-1, *(1,) * (self.left.ndim - 1)) - self.left


class Criterion(ABC):
    """What makes a cut good; the sweep (:mod:`neonxc.trees.search`) finds the cut of least score.

    A subclass has to write :meth:`score`. It sees sums and scores, never codes: columns in chunks and bins, cuts
    that leave a side empty, ties, rounding and thresholds are the sweep's.

    Parameters
    ----------
    problem : Problem
        Points, columns and the reference clustering.

    Attributes
    ----------
    coarse : bool
        Whether :meth:`within` gives a bound; False by default.
    """

    coarse = False

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.clusters = Clusters(problem)

    def statistics(self, node: Node) -> Sequence[Statistic]:
        """What is added up; by default the node's points by reference cluster.

        Statistics of class :class:`~neonxc.trees.statistics.Statistic` that are kept have to be the same objects
        for all nodes.
        """
        return (self.clusters,)

    @abstractmethod
    def score(self, node: Node, cuts: Cuts) -> Tensor:
        """How bad cuts are, [...]; the least is the best, infinite ones are never made."""

    @property
    def stages(self) -> Sequence[Callable[[Node, Cuts], Tensor]]:
        """Ever tighter lower bounds of the score, the last of which is the score itself.

        All cuts are bounded by the first one, the others only see cuts that may still be the best.
        """
        return (self.score,)

    def within(self, node: Node, least: Tensor, feature: Tensor) -> Tensor | None:
        """A lower bound of the score of all cuts between values that share a bin, [f, bins].

        With it, columns of many values are searched bin by bin first, and value by value only where this bound
        leaves a chance.

        Parameters
        ----------
        least : Tensor [m, f, bins]
            The least numbers of the statistics that such a cut may have.
        feature : Tensor [f, 1] of int64
        """
        return None

    def further(self, node: Node, least: float) -> Sequence[Statistic]:
        """Statistics that are needed as well if some cut of the node is known to score no more than `least`."""
        return ()

    def features(self, node: Node) -> Tensor | None:
        """The only columns in which the node may be cut; None for all."""
        return None

    def open(self, node: Node) -> Any:
        """What the criterion keeps for a node in ``node.state``; called when the node is first looked at."""
        return None

    def split(self, node: Node, cut: Cut, children: tuple[Node, Node]) -> None:
        """Set ``child.state`` where it depends on the parent's; by default, a parent's state is dropped."""
        node.state = None

    def size(self, node: Node) -> float:
        """What scores are made of, such as the mass of the points: their rounding is in proportion to it."""
        return node.mass

    def bound(self, node: Node) -> float:
        """At most the gain of splitting the node (best-first growth); minus infinity where it stays a leaf."""
        return float("inf")

    def gain(self, node: Node, score: float) -> float:
        """The gain of a cut with some score (best-first growth); minus infinity where the node stays a leaf."""
        return -score


def floating(values: Tensor) -> Tensor:
    """Sums in float64, one statistic's numbers after the other's."""
    return torch.empty(values.shape, dtype=torch.float64, device=values.device).copy_(values)


def at_least_one(values: Tensor) -> Tensor:
    """Divisors: 1 in the place of 0, where what is divided is 0 as well."""
    return torch.where(values > 0, values, 1)
