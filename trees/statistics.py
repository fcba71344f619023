"""What is added up over the points left of a cut: one kind of sum per class.

A statistic has `size` numbers per cut. It is a sum over *elements*: points, or edges between points. If it sums
the same elements in every node, its sums are kept: those of a child are its parent's, less those of the elements
that the child does not have.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import torch
from torch import Tensor

import neonxc.trees.sums as sums
from neonxc.trees.codes import transposed
from neonxc.trees.exact import rounded
from neonxc.trees.ordering import chosen
from neonxc.trees.views import View

if TYPE_CHECKING:
    from neonxc.trees.graph import Graph
    from neonxc.trees.problem import Node, Problem


class Statistic(ABC):
    """A sum over the points left of a cut.

    Attributes
    ----------
    size : int
        Numbers per cut.
    whole : bool
        Whether it counts points without weights: its sums have no rounding at all.
    kept : bool
        Whether it is a sum over the same elements in every node.
    counts : bool
        Whether its numbers add up to the mass of the points on the left.
    by_center : bool
        Whether groups are the node's centers, each of which only one of the children has.
    """

    size = 1
    whole = False
    kept = False
    counts = False
    by_center = False

    def elements(self, node: Node) -> Tensor:
        """The elements of a node, by default its points."""
        return node.rows

    def groups(self, node: Node) -> Tensor | None:
        """What is summed apart, if that is not the same for all nodes."""
        return None

    def entries(self, groups: Tensor | None) -> int:
        """Rows of :meth:`terms` for every column."""
        return self.size if groups is None else len(groups)

    @abstractmethod
    def terms(self, view: View, elements: Tensor, groups: Tensor | None) -> Tensor:
        """Sums of the elements left of every cut, [f, groups, bins]; what :meth:`left` makes numbers of."""

    def left(self, terms: Tensor) -> Tensor:
        """The numbers of a cut, [size, f, bins]."""
        return terms.movedim(1, 0)

    def once(self, view: View, elements: Tensor, groups: Tensor | None) -> Tensor:
        """The numbers of a cut, [size, f, bins], where terms are of no further use."""
        return self.left(self.terms(view, elements, groups))

    def within(self, terms: Tensor) -> Tensor:
        """The least numbers that a cut between two codes of a bin may have, [size, f, bins]."""
        raise NotImplementedError

    def divided(
        self, elements: Tensor, left: Tensor, centers_left: Tensor, children: tuple[Node, Node]
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """The elements of the left child, those of the right one, and those that neither has.

        Parameters
        ----------
        elements : Tensor
        left : Tensor [n] of bool
            Whether a point goes left.
        centers_left : Tensor [k] of bool
            Whether a center does.
        children : tuple of Node
        """
        return children[0].rows, children[1].rows, None


class Clusters(Statistic):
    """Points by reference cluster, or their weights; a node has a row for every cluster that it has points of."""

    kept = True
    counts = True

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.whole = problem.weight is None

    def groups(self, node: Node) -> Tensor:
        """The clusters of a node's points."""
        return self.problem.clusters(node)[0]

    def terms(self, view: View, elements: Tensor, groups: Tensor | None) -> Tensor:
        """Prefix sums of a histogram by cluster."""
        assert groups is not None
        own = self.problem.positions(elements, groups)
        counts = view.histogram(elements, own, len(groups), self.problem.weights(elements))
        return counts.cumsum_(2)


class Points(Statistic):
    """Points on the left, or their weights.

    Parameters
    ----------
    problem : Problem
    weight : Tensor [n] of float64, optional
        Other weights than the problem's.
    """

    kept = True

    def __init__(self, problem: Problem, weight: Tensor | None = None) -> None:
        self.weight = problem.weight if weight is None else rounded(weight)
        self.counts = weight is None
        self.whole = self.weight is None

    def terms(self, view: View, elements: Tensor, groups: Tensor | None) -> Tensor:
        """Prefix sums of a histogram."""
        weight = None if self.weight is None else self.weight.index_select(0, elements)
        counts = view.histogram(elements, None, 1, weight)
        return counts.cumsum_(2)

    def within(self, terms: Tensor) -> Tensor:
        """The points before the bin."""
        return torch.nn.functional.pad(terms[..., :-1], (1, 0)).movedim(1, 0)


class Parted(Statistic):
    """Points that a cut parts from their reference center, among those whose center is in the node."""

    kept = True
    by_center = True

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.whole = problem.weight is None

    def elements(self, node: Node) -> Tensor:
        """The points whose center is in the node."""
        if len(node.centers) == self.problem.k:
            return node.rows
        there = torch.zeros(self.problem.k, dtype=torch.bool, device=node.rows.device)
        there[node.centers] = True
        return chosen(node.rows, there[self.problem.labels.index_select(0, node.rows)])

    def groups(self, node: Node) -> Tensor:
        """The centers of a node."""
        return node.centers

    def terms(self, view: View, elements: Tensor, groups: Tensor | None) -> Tensor:
        """What is parted from each center."""
        assert groups is not None
        own, weight = self.problem.positions(elements, groups), self.problem.weights(elements)
        centers = view.centers.index_select(1, groups)
        return view.parted_by_center(elements, own, centers, weight)

    def left(self, terms: Tensor) -> Tensor:
        """The sum over centers."""
        return terms.sum(1, dtype=terms.dtype)[None]

    def once(self, view: View, elements: Tensor, groups: Tensor | None) -> Tensor:
        """The sum over centers, at once."""
        assert groups is not None
        own, weight = self.problem.positions(elements, groups), self.problem.weights(elements)
        centers = view.centers.index_select(1, groups)
        return view.parted(elements, own, centers, weight)[None]

    def within(self, terms: Tensor) -> Tensor:
        """The sum of the least terms."""
        return sums.least_within_bins(terms)[None]

    def divided(
        self, elements: Tensor, left: Tensor, centers_left: Tensor, children: tuple[Node, Node]
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Points that stay with their center, on the left and on the right; the others are gone."""
        side = left.index_select(0, elements)
        own = centers_left.index_select(0, self.problem.labels.index_select(0, elements))
        return chosen(elements, side & own), chosen(elements, ~(side | own)), chosen(elements, side ^ own)


class PartedFrom(Statistic):
    """Weight of a node's points that a cut parts from a center of the node.

    Parameters
    ----------
    centers : Tensor [centers] of int64
        The node's.
    own : Tensor [points] of int64
        A point's center, as a position in `centers`.
    weight : Tensor [points] of float64
        Sums of them are exact as they are, as for :class:`Channels`.
    """

    def __init__(self, centers: Tensor, own: Tensor, weight: Tensor) -> None:
        self.centers, self.own, self.weight = centers, own, weight

    def terms(self, view: View, elements: Tensor, groups: Tensor | None) -> Tensor:
        """What is parted, from each center where that bounds cuts within bins; else from all of them."""
        centers = view.centers.index_select(1, self.centers)
        if view.coarse:
            return view.parted_by_center(elements, self.own, centers, self.weight)
        return view.parted(elements, self.own, centers, self.weight)[:, None]

    def left(self, terms: Tensor) -> Tensor:
        """The sum over centers."""
        return terms.movedim(1, 0) if terms.shape[1] == 1 else terms.sum(1)[None]

    def within(self, terms: Tensor) -> Tensor:
        """The sum of the least terms."""
        return sums.least_within_bins(terms)[None]


class Channels(Statistic):
    """Any numbers of a node's points.

    Parameters
    ----------
    values : Tensor [m, points] of float64
    exact : bool
        Whether sums of them are exact as they are: those of ``problem.distances`` and their differences, and of
        whole numbers.
    """

    def __init__(self, values: Tensor, exact: bool = False) -> None:
        self.values, self.size = values if exact else rounded(values), len(values)

    def terms(self, view: View, elements: Tensor, groups: Tensor | None) -> Tensor:
        """Their prefix sums."""
        return view.channels(elements, self.values).cumsum_(2)


class Pairs(Statistic):
    """Edges of a graph inside a node: the weight of those with an end on the left, and of those with both.

    The difference of the two is the weight of the edges that a cut parts.

    Parameters
    ----------
    graph : Graph
    """

    size = 2
    kept = True

    def __init__(self, graph: Graph) -> None:
        self.lower, self.upper, self.weight = graph.lower, graph.upper, rounded(graph.weight)
        self.n = graph.n

    def elements(self, node: Node) -> Tensor:
        """The edges inside the node."""
        if len(node.rows) == self.n:
            return torch.arange(len(self.lower), device=node.rows.device)
        there = torch.zeros(self.n, dtype=torch.bool, device=node.rows.device)
        there[node.rows] = True
        return (there[self.lower] & there[self.upper]).nonzero()[:, 0]

    def terms(self, view: View, elements: Tensor, groups: Tensor | None) -> Tensor:
        """Edges by their upper code; and by their lower one: those by both ends, less those by the upper one."""
        ends = [side.index_select(0, elements) for side in (self.lower, self.upper)]
        weight = self.weight.index_select(0, elements)
        degree = torch.bincount(torch.cat(ends), weight.repeat(2), minlength=self.n).to(torch.float64)
        points = degree.nonzero()[:, 0]
        both = view.histogram(points, None, 1, degree.index_select(0, points))[:, 0]
        upper = torch.zeros_like(both)
        for part in torch.arange(len(elements), device=elements.device).split(max(1, sums.BUDGET // len(both))):
            codes = torch.maximum(*(view.by_point(end.index_select(0, part)) for end in ends))
            own = weight.index_select(0, part)
            upper += sums.histogram(transposed(codes), view.bins, None, 1, own)[:, 0]
        return torch.stack([both - upper, upper], 1).cumsum_(2)

    def divided(
        self, elements: Tensor, left: Tensor, centers_left: Tensor, children: tuple[Node, Node]
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Edges inside the left and inside the right child; those between them are gone."""
        one, other = (left.index_select(0, side.index_select(0, elements)) for side in (self.lower, self.upper))
        inside = chosen(elements, one & other), chosen(elements, ~one & ~other)
        return *inside, chosen(elements, one ^ other)
