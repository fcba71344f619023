"""Base class of criteria: the statistics of points that are summed, and how the sums left of a cut score it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

import neonxc.trees.cuts.columns as sums
from neonxc.trees.criteria.sums import Clusters, Statistic
from neonxc.trees.cuts.columns import Columns

if TYPE_CHECKING:
    from neonxc.trees.cuts.nodes import Cut, Node
    from neonxc.trees.fit.problem import Problem


class Best(NamedTuple):
    """The best cut of a node."""

    score: float
    feature: int
    code: int


@dataclass(frozen=True)
class Cuts:
    """Cuts of one node: all places of some columns, [f, places], or those that may still be the best, [cuts].

    Attributes
    ----------
    columns : Columns
    row, place : Tensor
        Positions of the columns and places, which are broadcast to [...].
    left : Tensor [m, ...]
        Sums of the statistics over the points on the left.
    total : Tensor [m]
        The same sums over all points of the node.
    centers_left : Tensor [...] of int64
        Number of the node's centers on the left.
    mass_left : Tensor [...] or None
        Number (or weight) of points on the left, if a statistic counts points.
    bound : Tensor [...]
        Bounds of the scores from the previous stage of the criterion, or the scores; undefined before the first.
    """

    columns: Columns
    row: Tensor
    place: Tensor
    left: Tensor
    total: Tensor
    centers_left: Tensor
    mass_left: Tensor | None
    bound: Tensor

    @property
    def right(self) -> Tensor:
        """Sums over the points on the right, [m, ...]."""
        return self.total.view(-1, *(1,) * (self.left.ndim - 1)) - self.left

    @property
    def feature(self) -> Tensor:
        """Column of every cut, which is broadcast to [...]."""
        return self.columns.features[self.row]

    def sides(self) -> Tensor:
        """Whether each of the node's centers is on the left, [..., centers]."""
        return self.columns.centers_of(self.columns.node.centers)[self.row] <= self.place[..., None]

    def gap(self) -> tuple[Tensor, Tensor]:
        """The node's values on the two sides of every cut, [...] each; infinite where a side is empty."""
        below, above = self.columns.gaps()
        return below[self.row, self.place], above[self.row, self.place]

    def sum_left(self, values: Tensor, which: Tensor, exact: bool) -> Tensor:
        """Sums over the points on the left, [...].

        Parameters
        ----------
        values : Tensor [m, points] of float64
            Values of the node's points.
        which : Tensor [...] of int64
            The row of `values` that a cut sums.
        exact : bool
            Whether sums of the values are exact without rounding them first.
        """
        columns, m = self.columns, len(values)
        group, member = torch.unique(self.row * m + which, return_inverse=True)
        values = values if exact else columns.problem.exact(values)
        row = group.div(m, rounding_mode="floor")
        totals = columns.chosen_channels(columns.node.rows, values, row, group % m)
        return columns.problem.reduce(totals)[member, self.place]

    def best(self, slack: float) -> Best | None:
        """The first of the cuts with the lowest of the scores in `bound`; None if all are infinite."""
        least = float(self.bound.min())
        if not least < torch.inf:
            return None
        at = int((self.bound <= least + slack).view(torch.uint8).argmax())
        if self.bound.ndim == 1:
            row, place = int(self.row[at]), int(self.place[at])
        else:
            row, place = divmod(at, self.bound.shape[1])
        return Best(least, int(self.columns.features[row]), self.columns.code(row, place))

    def __getitem__(self, which: tuple[Tensor, ...]) -> Cuts:
        """Select some of all cuts, by column and place, or of the cuts that may still be the best, by position."""
        row, place = which if len(which) == 2 else (self.row[which], self.place[which])
        centers_left, bound = (own.expand_as(self.bound)[which] for own in (self.centers_left, self.bound))
        mass_left = None if self.mass_left is None else self.mass_left[which]
        every: Any = slice(None)
        left = self.left[(every, *which)]
        return Cuts(self.columns, row, place, left, self.total, centers_left, mass_left, bound)


def all_cuts(columns: Columns, left: Tensor, mass_left: Tensor | None, only_new: bool) -> tuple[Cuts, Tensor]:
    """Describe all cuts of some columns; the second result is a mask of the cuts that leave a side empty.

    With `only_new`, cuts that divide points and centers like the cut at the place before are masked, too.
    """
    node, places = columns.node, columns.places
    place = torch.arange(places, device=left.device)
    if len(node.centers):
        centers = columns.centers_of(node.centers)
        centers_left = sums.centers_left(centers, places)
        impossible = (centers_left == 0) | (centers_left == len(node.centers))
        if mass_left is not None and only_new:
            new = mass_left.diff(dim=1, prepend=torch.zeros_like(mass_left[:, :1])) > 0
            impossible |= ~new.scatter_(1, centers, True)
    else:
        centers_left = node.centers.new_zeros(1, 1)
        if mass_left is not None:
            impossible = (mass_left <= 0) | (mass_left >= mass_left[:, -1:])
        else:
            low, high = columns.ends()
            impossible = (place < low[:, None]) | (place >= high[:, None])
    row = torch.arange(len(columns.features), device=left.device)[:, None]
    return Cuts(columns, row, place, left, left[:, 0, -1], centers_left, mass_left, left[0]), impossible


def concatenated(numbers: Sequence[Tensor]) -> Tensor:
    """Concatenate the sums of several statistics, [m, f, places]."""
    return numbers[0] if len(numbers) == 1 else torch.cat([own.to(torch.float64) for own in numbers])


class Criterion(ABC):
    """Scores the cuts of a node; :mod:`neonxc.trees.cuts.search` finds the cut with the lowest score.

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
        :class:`~neonxc.trees.criteria.sums.Statistic`) must be the same object for all nodes.
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
