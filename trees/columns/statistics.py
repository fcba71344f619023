"""Statistics of a node: the sums over the points left of a cut from which criteria compute scores.

A statistic yields `size` numbers per cut. It sums over *elements*, which are points or edges between points. If it
sums the same quantities in every node, its sums are kept, and those of one child are obtained by subtracting those
of the other child from the parent's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from copy import copy
from typing import TYPE_CHECKING

import torch
from torch import Tensor

import neonxc.trees.columns.columns as sums
from neonxc.trees.coding.codes import ColumnBlock, transposed
from neonxc.trees.coding.exact_sums import select
from neonxc.trees.columns.columns import Columns, of_block

if TYPE_CHECKING:
    from neonxc.trees.graph import Graph
    from neonxc.trees.problem import Node, Problem

SMALL, ROOM = 1 << 17, 3  # sums are kept up to SMALL entries, or ROOM entries per code of the table


class Statistic(ABC):
    """A sum over the points of a node left of a cut.

    Parameters
    ----------
    problem : Problem
    node : Node
    elements : Tensor, optional
        Points or edges that are summed. Default: the node's points.
    groups : Tensor, optional
        Groups of elements that are summed separately, if they depend on the node.

    Attributes
    ----------
    size : int
        Number of sums per cut.
    whole : bool
        Whether it counts points without weights, so that its sums are integers.
    kept : bool
        Whether it sums the same quantities in every node, so that sums are kept for the children.
    counts : bool
        Whether its sums add up to the mass of the points on the left.
    terms : dict of int to Tensor [f, groups, places]
        The sums that are kept, by block of columns.
    """

    size = 1
    whole = False
    kept = False
    counts = False

    def __init__(
        self, problem: Problem, node: Node, elements: Tensor | None = None, groups: Tensor | None = None
    ) -> None:
        self.problem, self.groups = problem, groups
        self.elements = node.rows if elements is None else elements
        self.terms: dict[int, Tensor] = {}

    @property
    def entries(self) -> int:
        """Number of sums per column and place that are computed at once."""
        return self.size if self.groups is None else len(self.groups)

    @property
    def entries_once(self) -> int:
        """The same for :meth:`once`."""
        return self.entries

    @abstractmethod
    def sums(self, columns: Columns) -> Tensor:
        """Sums over the elements left of every cut, by group, [f, groups, places]."""

    def left(self, terms: Tensor) -> Tensor:
        """Sums of every cut, [size, f, places], from the result of :meth:`sums`."""
        return terms.movedim(1, 0)

    def once(self, columns: Columns) -> Tensor:
        """Sums of every cut, [size, f, places], computed directly when they are not kept."""
        return self.left(self.sums(columns))

    def within(self, terms: Tensor) -> Tensor:
        """Lower bounds of the sums over all cuts inside a bin, [size, f, places]."""
        raise NotImplementedError

    def keep(self, columns: Columns, number: int, block: ColumnBlock) -> None:
        """Keep the sums of a block of columns, if they take little enough memory."""
        most = min(sums.BUDGET, max(SMALL, ROOM * len(block.features) * self.problem.n_total))
        if number not in self.terms and len(block.features) * block.n_bins * self.entries <= most:
            self.terms[number] = self.problem.reduce(self.sums(columns))

    def of(self, elements: Tensor, groups: Tensor | None) -> Statistic:
        """The same statistic of other elements and groups, without sums."""
        other = copy(self)
        other.elements, other.groups, other.terms = elements, groups, {}
        return other

    def divided(
        self, left: Tensor, centers_left: Tensor, children: tuple[Node, Node]
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Elements of the left child, of the right child, and of neither.

        Parameters
        ----------
        left : Tensor [n] of bool
            Whether each point goes left.
        centers_left : Tensor [k] of bool
            Whether each center goes left.
        children : tuple of Node
        """
        return children[0].rows, children[1].rows, None

    def split(
        self, node: Node, left: Tensor, centers_left: Tensor, children: tuple[Node, Node]
    ) -> tuple[Statistic, Statistic]:
        """The statistics of the two children; see :meth:`divided`."""
        *own, gone = self.divided(left, centers_left, children)
        parts = (self.of(own[0], self.groups), self.of(own[1], self.groups))
        small, large = sorted((0, 1), key=lambda child: children[child].mass)
        for number, terms in self.terms.items():
            few = self.problem.reduce(parts[small].sums(block_of(self.problem, children[small], number)))
            rest = self._without(gone, node, number, terms.sub_(few))
            parts[small].terms[number], parts[large].terms[number] = few, rest
        return parts

    def _without(self, gone: Tensor | None, node: Node, number: int, terms: Tensor) -> Tensor:
        """Subtract the sums of elements that are in neither child."""
        if gone is None or not (len(gone) or self.problem.sharded):
            return terms
        columns = of_block(self.problem, node, self.problem.dense.blocks[number])
        return terms.sub_(self.problem.reduce(self.of(gone, self.groups).sums(columns)))


def block_of(problem: Problem, node: Node, number: int) -> Columns:
    """Columns of a block, which are made once per node and keep the codes of the node's points."""
    if number not in node.columns:
        node.columns[number] = of_block(problem, node, problem.dense.blocks[number])
    columns: Columns = node.columns[number]
    return columns


class Clusters(Statistic):
    """Number (or weight) of points by reference cluster, with one row for every cluster present in the node."""

    kept = counts = True

    def __init__(self, problem: Problem, node: Node) -> None:
        super().__init__(problem, node, None, problem.clusters(node)[0])
        self.whole = problem.weight is None

    def sums(self, columns: Columns) -> Tensor:
        """Prefix sums of a histogram by cluster."""
        assert self.groups is not None
        own, weight = self.problem.positions(self.elements, self.groups), self.problem.weights(self.elements)
        return columns.counts(self.elements, own, len(self.groups), weight).cumsum_(2)

    def split(
        self, node: Node, left: Tensor, centers_left: Tensor, children: tuple[Node, Node]
    ) -> tuple[Statistic, Statistic]:
        """The statistics of the two children, without the clusters of which a child has no points."""
        if not self.terms:
            return Clusters(self.problem, children[0]), Clusters(self.problem, children[1])
        parts = super().split(node, left, centers_left, children)
        for own, child in zip(parts, children, strict=True):
            assert own.groups is not None
            mass = next(iter(own.terms.values()))[0, :, -1].to(torch.float64)
            if not min(mass.tolist(), default=1) > 0:
                present = (mass > 0).nonzero()[:, 0]
                own.groups, mass = own.groups.index_select(0, present), mass.index_select(0, present)
                own.terms = {number: terms.index_select(1, present) for number, terms in own.terms.items()}
            child.clusters = own.groups, mass
        return parts


class Points(Statistic):
    """Number (or weight) of points on the left.

    Parameters
    ----------
    problem : Problem
    node : Node
    weight : Tensor [n] of float64, optional
        Weights of the points, rounded so that sums are exact. Default: those of the problem.
    """

    kept = True

    def __init__(self, problem: Problem, node: Node, weight: Tensor | None = None) -> None:
        super().__init__(problem, node)
        self.weight = problem.weight if weight is None else weight
        self.counts, self.whole = weight is None, self.weight is None

    def sums(self, columns: Columns) -> Tensor:
        """Prefix sums of a histogram."""
        weight = None if self.weight is None else self.weight.index_select(0, self.elements)
        return columns.counts(self.elements, weight=weight).cumsum_(2)

    def within(self, terms: Tensor) -> Tensor:
        """Number of points before the bin."""
        return torch.nn.functional.pad(terms[..., :-1], (1, 0)).movedim(1, 0)


class Parted(Statistic):
    """Number (or weight) of points that a cut separates from their reference center, if that is in the node."""

    kept = True
    entries_once = 1

    def __init__(self, problem: Problem, node: Node) -> None:
        elements = node.rows
        if len(node.centers) < problem.k:
            present = torch.zeros(problem.k, dtype=torch.bool, device=node.rows.device)
            present[node.centers] = True
            elements = select(node.rows, present[problem.labels.index_select(0, node.rows)])
        super().__init__(problem, node, elements, node.centers)
        self.whole = problem.weight is None

    def sums(self, columns: Columns) -> Tensor:
        """Points that are separated from each center."""
        return columns.parted(*self._arguments(columns), by_center=True)

    def left(self, terms: Tensor) -> Tensor:
        """Sum over the centers."""
        return terms.sum(1, dtype=terms.dtype)[None]

    def once(self, columns: Columns) -> Tensor:
        """Sum over the centers, without a row per center."""
        return columns.parted(*self._arguments(columns))[None]

    def within(self, terms: Tensor) -> Tensor:
        """Sum of the lower bounds for each center."""
        return sums.least_within_bins(terms)[None]

    def divided(
        self, left: Tensor, centers_left: Tensor, children: tuple[Node, Node]
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Points that stay with their center on the left, those on the right, and those that are separated."""
        elements, side = self.elements, left.index_select(0, self.elements)
        own = centers_left.index_select(0, self.problem.labels.index_select(0, elements))
        return select(elements, side & own), select(elements, ~(side | own)), select(elements, side ^ own)

    def split(
        self, node: Node, left: Tensor, centers_left: Tensor, children: tuple[Node, Node]
    ) -> tuple[Statistic, Statistic]:
        """Each child gets the rows of its centers, minus the points that are in neither child."""
        assert self.groups is not None
        *own, gone = self.divided(left, centers_left, children)
        side = centers_left.index_select(0, self.groups)
        places = side.nonzero()[:, 0], (~side).nonzero()[:, 0]
        one, other = (self.of(rows, self.groups.index_select(0, at)) for rows, at in zip(own, places, strict=True))
        for number, terms in self.terms.items():
            rest = self._without(gone, node, number, terms)
            one.terms[number], other.terms[number] = (rest.index_select(1, place) for place in places)
        return one, other

    def _arguments(self, columns: Columns) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        assert self.groups is not None
        own, weight = self.problem.positions(self.elements, self.groups), self.problem.weights(self.elements)
        return self.elements, own, columns.centers_of(self.groups), weight


class PartedFrom(Parted):
    """Sum of given weights over the points that a cut separates from one of the node's centers.

    Parameters
    ----------
    problem : Problem
    node : Node
    own : Tensor [points] of int64
        Position in the node's centers of each point's center.
    weight : Tensor [points] of float64
        Weights of the points, rounded so that sums are exact.
    """

    kept = False

    def __init__(self, problem: Problem, node: Node, own: Tensor, weight: Tensor) -> None:
        Statistic.__init__(self, problem, node)
        self.centers, self.own, self.weight = node.centers, own, weight

    def _arguments(self, columns: Columns) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        return self.elements, self.own, columns.centers_of(self.centers), self.weight


class Channels(Statistic):
    """Sums of m values per point.

    Parameters
    ----------
    problem : Problem
    node : Node
    values : Tensor [m, points] of float64
        Values of the node's points. Their sums are exact if they are ``problem.distances``, differences between
        them, or integers; other values need :func:`neonxc.trees.coding.exact_sums.rounded` first.
    """

    def __init__(self, problem: Problem, node: Node, values: Tensor) -> None:
        super().__init__(problem, node)
        self.values, self.size = values, len(values)

    def sums(self, columns: Columns) -> Tensor:
        """Prefix sums of the values."""
        return columns.channels(self.elements, self.values).cumsum_(2)


class Pairs(Statistic):
    """Weight of the edges inside a node that have at least one end on the left, and of those that have both.

    The difference between the two is the weight of the edges that are cut.

    Parameters
    ----------
    problem : Problem
    node : Node
    graph : Graph
        Its weights are rounded so that sums are exact.
    """

    size = 2
    kept = True

    def __init__(self, problem: Problem, node: Node, graph: Graph) -> None:
        inside = torch.zeros(graph.n, dtype=torch.bool, device=node.rows.device)
        inside[node.rows] = True
        super().__init__(problem, node, (inside[graph.lower] & inside[graph.upper]).nonzero()[:, 0])
        self.graph = graph

    def sums(self, columns: Columns) -> Tensor:
        """Weight of the edges by their lower and by their upper code; the former is degrees minus the latter."""
        ends = [side.index_select(0, self.elements) for side in (self.graph.lower, self.graph.upper)]
        weight = self.graph.weight.index_select(0, self.elements)
        degree = torch.bincount(torch.cat(ends), weight.repeat(2), minlength=self.graph.n).to(torch.float64)
        points = degree.nonzero()[:, 0]
        both = columns.counts(points, weight=degree.index_select(0, points))[:, 0]
        upper = torch.zeros_like(both)
        every = torch.arange(len(self.elements), device=weight.device)
        for part in every.split(max(1, sums.BUDGET // len(both))):
            codes = torch.maximum(*(columns.by_point(end.index_select(0, part)) for end in ends))
            own = weight.index_select(0, part)
            upper += sums.histogram(transposed(codes), columns.places, None, 1, own)[:, 0]
        return torch.stack([both - upper, upper], 1).cumsum_(2)

    def divided(
        self, left: Tensor, centers_left: Tensor, children: tuple[Node, Node]
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Edges inside the left child, edges inside the right child, and edges between them."""
        elements = self.elements
        ends = self.graph.lower, self.graph.upper
        one, other = (left.index_select(0, side.index_select(0, elements)) for side in ends)
        inside = select(elements, one & other), select(elements, ~one & ~other)
        return *inside, select(elements, one ^ other)
