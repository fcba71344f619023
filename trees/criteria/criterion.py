"""Base class of criteria: what is summed over the points left of a cut, and how the sums score it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from neonxc.trees.criteria.sums import Sum, clusters
from neonxc.trees.cuts.cuts import Cuts

if TYPE_CHECKING:
    from neonxc.trees.cuts.nodes import Cut, Node
    from neonxc.trees.fit.problem import Problem


class Criterion(ABC):
    """Scores the cuts of a node; :mod:`neonxc.trees.cuts.search` finds the cut with the lowest score.

    A subclass must implement :meth:`score`, which works on sums over points. The search takes care of everything
    else: chunks of columns, coarse codes, cuts that leave a side empty, ties, rounding and thresholds.

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

    def sums(self, node: Node) -> Sequence[Sum]:
        """What is summed over the points on the left; by default, points by reference cluster."""
        return (clusters(self.problem, node),)

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
        """Lower bound of the scores of all cuts inside a coarse code, [f, places].

        A coarse code stands for several neighbouring codes. With this bound, columns of many values are first
        searched by coarse codes, and by their own codes only if these may contain the best cut.

        Parameters
        ----------
        least : Tensor [m, f, places]
            Lower bounds of the sums over all cuts inside the coarse code.
        feature : Tensor [f, 1] of int64
        """
        return None

    def further(self, node: Node, least: float) -> Sequence[Sum]:
        """Further sums that are needed once a cut with score at most `least` is known."""
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
