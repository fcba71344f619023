"""Base class of criteria: the statistics of points that are summed, and how the sums left of a cut score it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from neonxc.trees.columns.columns import Cuts as Cuts
from neonxc.trees.columns.statistics import Clusters, Statistic

if TYPE_CHECKING:
    from neonxc.trees.problem import Cut, Node, Problem


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

    def statistics(self, node: Node) -> Sequence[Statistic]:
        """Statistics to sum over the points on the left; by default, counts of the reference clusters.

        A statistic whose sums are stored for the children of a node (see
        :class:`~neonxc.trees.columns.statistics.Statistic`) must be the same object for all nodes.
        """
        return (Clusters(self.problem, node),)

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


def positive(values: Tensor) -> Tensor:
    """Replace divisors of 0 by a tiny number, where the numerator is 0 too."""
    return values.clamp(min=torch.finfo(torch.float64).tiny)
