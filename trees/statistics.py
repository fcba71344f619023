"""Statistics: the sums over the points left of a cut from which criteria compute scores, one kind per class.

A statistic yields `size` numbers per cut. It sums over *elements*, which are points or edges between points. If it
sums the same quantities in every node, its sums are stored, and those of one child are obtained by subtracting
those of the other child from the parent's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import torch
from torch import Tensor

import neonxc.trees.sums as sums
from neonxc.trees.codes import transposed
from neonxc.trees.exact import rounded
from neonxc.trees.ordering import select
from neonxc.trees.views import View

if TYPE_CHECKING:
    from neonxc.trees.graph import Graph
    from neonxc.trees.node import Node
    from neonxc.trees.problem import Problem


class Statistic(ABC):
    """A sum over the points left of a cut.

    Attributes
    ----------
    size : int
        Number of sums per cut.
    whole : bool
        Whether it counts points without weights, so that its sums are integers.
    kept : bool
        Whether it sums the same quantities in every node, so that stored sums can be used for the children.
    counts : bool
        Whether its sums add up to the mass of the points on the left.
    by_center : bool
        Whether its groups are the node's centers, each of which belongs to only one of the children.
    """

    size = 1
    whole = False
    kept = False
    counts = False
    by_center = False

    def elements(self, node: Node) -> Tensor:
        """Elements of a node; by default its points."""
        return node.rows

    def groups(self, node: Node) -> Tensor | None:
        """Groups of elements that are summed separately, if they depend on the node."""
        return None

    def entries(self, groups: Tensor | None) -> int:
        """Number of rows of :meth:`terms` for every column."""
        return self.size if groups is None else len(groups)

    @abstractmethod
    def terms(self, view: View, elements: Tensor, groups: Tensor | None) -> Tensor:
        """Sums over the elements left of every cut, by group, [f, groups, bins]."""

    def left(self, terms: Tensor) -> Tensor:
        """Sums of every cut, [size, f, bins], from the result of :meth:`terms`."""
        return terms.movedim(1, 0)

    def once(self, view: View, elements: Tensor, groups: Tensor | None) -> Tensor:
        """Sums of every cut, [size, f, bins], computed directly when the terms need not be stored."""
        return self.left(self.terms(view, elements, groups))

    def within(self, terms: Tensor) -> Tensor:
        """Lower bounds of the sums over all cuts inside a bin, [size, f, bins]."""
        raise NotImplementedError

    def divided(
        self, elements: Tensor, left: Tensor, centers_left: Tensor, children: tuple[Node, Node]
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Elements of the left child, of the right child, and of neither.

        Parameters
        ----------
        elements : Tensor
            Elements of the parent.
        left : Tensor [n] of bool
            Whether each point goes left.
        centers_left : Tensor [k] of bool
            Whether each center goes left.
        children : tuple of Node
        """
        return children[0].rows, children[1].rows, None


class Clusters(Statistic):
    """Number (or weight) of points by reference cluster, with one row for every cluster present in the node."""

    kept = True
    counts = True

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.whole = problem.weight is None

    def groups(self, node: Node) -> Tensor:
        """Clusters of the node's points."""
        return self.problem.clusters(node)[0]

    def terms(self, view: View, elements: Tensor, groups: Tensor | None) -> Tensor:
        """Prefix sums of a histogram by cluster."""
        assert groups is not None
        own = self.problem.positions(elements, groups)
        counts = view.histogram(elements, own, len(groups), self.problem.weights(elements))
        return counts.cumsum_(2)


class Points(Statistic):
    """Number (or weight) of points on the left.

    Parameters
    ----------
    problem : Problem
    weight : Tensor [n] of float64, optional
        Weights of the points. Default: those of the problem.
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
        """Number of points before the bin."""
        return torch.nn.functional.pad(terms[..., :-1], (1, 0)).movedim(1, 0)


class Parted(Statistic):
    """Number (or weight) of points that a cut separates from their reference center.

    Only points whose center is in the node are counted.
    """

    kept = True
    by_center = True

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.whole = problem.weight is None

    def elements(self, node: Node) -> Tensor:
        """Points whose center is in the node."""
        if len(node.centers) == self.problem.k:
            return node.rows
        present = torch.zeros(self.problem.k, dtype=torch.bool, device=node.rows.device)
        present[node.centers] = True
        return select(node.rows, present[self.problem.labels.index_select(0, node.rows)])

    def groups(self, node: Node) -> Tensor:
        """Centers of the node."""
        return node.centers

    def terms(self, view: View, elements: Tensor, groups: Tensor | None) -> Tensor:
        """Points that are separated from each center."""
        assert groups is not None
        own, weight = self.problem.positions(elements, groups), self.problem.weights(elements)
        centers = view.centers.index_select(1, groups)
        return view.parted_by_center(elements, own, centers, weight)

    def left(self, terms: Tensor) -> Tensor:
        """Sum over the centers."""
        return terms.sum(1, dtype=terms.dtype)[None]

    def once(self, view: View, elements: Tensor, groups: Tensor | None) -> Tensor:
        """Sum over the centers, without a row per center."""
        assert groups is not None
        own, weight = self.problem.positions(elements, groups), self.problem.weights(elements)
        centers = view.centers.index_select(1, groups)
        return view.parted(elements, own, centers, weight)[None]

    def within(self, terms: Tensor) -> Tensor:
        """Sum of the lower bounds for each center."""
        return sums.least_within_bins(terms)[None]

    def divided(
        self, elements: Tensor, left: Tensor, centers_left: Tensor, children: tuple[Node, Node]
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Points that stay with their center on the left, those on the right, and those that are separated."""
        side = left.index_select(0, elements)
        own = centers_left.index_select(0, self.problem.labels.index_select(0, elements))
        return select(elements, side & own), select(elements, ~(side | own)), select(elements, side ^ own)


class PartedFrom(Statistic):
    """Sum of given weights over the points that a cut separates from one of the node's centers.

    Parameters
    ----------
    centers : Tensor [centers] of int64
        Centers of the node.
    own : Tensor [points] of int64
        Position in `centers` of each point's center.
    weight : Tensor [points] of float64
        Weights of the points, rounded so that sums are exact.
    """

    def __init__(self, centers: Tensor, own: Tensor, weight: Tensor) -> None:
        self.centers, self.own, self.weight = centers, own, weight

    def terms(self, view: View, elements: Tensor, groups: Tensor | None) -> Tensor:
        """Weight that is separated: by center if cuts inside bins are bounded, otherwise in total."""
        centers = view.centers.index_select(1, self.centers)
        if view.coarse:
            return view.parted_by_center(elements, self.own, centers, self.weight)
        return view.parted(elements, self.own, centers, self.weight)[:, None]

    def left(self, terms: Tensor) -> Tensor:
        """Sum over the centers."""
        return terms.movedim(1, 0) if terms.shape[1] == 1 else terms.sum(1)[None]

    def within(self, terms: Tensor) -> Tensor:
        """Sum of the lower bounds for each center."""
        return sums.least_within_bins(terms)[None]


class Channels(Statistic):
    """Sums of m values per point.

    Parameters
    ----------
    values : Tensor [m, points] of float64
        Values of the node's points.
    exact : bool
        Whether sums of the values are exact without rounding them first. This holds for ``problem.distances``,
        differences between them, and integers.
    """

    def __init__(self, values: Tensor, exact: bool = False) -> None:
        self.values, self.size = values if exact else rounded(values), len(values)

    def terms(self, view: View, elements: Tensor, groups: Tensor | None) -> Tensor:
        """Prefix sums of the values."""
        return view.channels(elements, self.values).cumsum_(2)


class Pairs(Statistic):
    """Weight of the edges inside a node that have at least one end on the left, and of those that have both.

    The difference between the two is the weight of the edges that are cut.

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
        """Edges whose ends are both in the node."""
        if len(node.rows) == self.n:
            return torch.arange(len(self.lower), device=node.rows.device)
        inside = torch.zeros(self.n, dtype=torch.bool, device=node.rows.device)
        inside[node.rows] = True
        return (inside[self.lower] & inside[self.upper]).nonzero()[:, 0]

    def terms(self, view: View, elements: Tensor, groups: Tensor | None) -> Tensor:
        """Weight of the edges by their lower and by their upper code; the former is degrees minus the latter."""
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
        """Edges inside the left child, edges inside the right child, and edges between them."""
        one, other = (left.index_select(0, side.index_select(0, elements)) for side in (self.lower, self.upper))
        inside = select(elements, one & other), select(elements, ~one & ~other)
        return *inside, select(elements, one ^ other)
