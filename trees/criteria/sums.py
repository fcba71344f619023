"""Statistics of a node: the sums over the points left of a cut from which criteria compute scores.

A statistic yields `size` numbers per cut. It sums over *elements*, which are points or edges between points.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import torch
from torch import Tensor

import neonxc.trees.cuts.columns as sums
from neonxc.trees.cuts.codes import transposed
from neonxc.trees.cuts.columns import Columns, of_block
from neonxc.trees.cuts.exact_sums import select

if TYPE_CHECKING:
    from neonxc.trees.cuts.nodes import Node
    from neonxc.trees.fit.problem import Problem
    from neonxc.trees.graph import Graph


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
    counts : bool
        Whether its sums add up to the mass of the points on the left.
    """

    size = 1
    whole = False
    counts = False

    def __init__(
        self, problem: Problem, node: Node, elements: Tensor | None = None, groups: Tensor | None = None
    ) -> None:
        self.problem, self.groups = problem, groups
        self.elements = node.rows if elements is None else elements

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
        """Sums of every cut, [size, f, places], computed at once."""
        return self.left(self.sums(columns))

    def within(self, terms: Tensor) -> Tensor:
        """Lower bounds of the sums over all cuts inside a bin, [size, f, places]."""
        raise NotImplementedError


def block_of(problem: Problem, node: Node, number: int) -> Columns:
    """Columns of a block, which are made once per node and keep the codes of the node's points."""
    if number not in node.columns:
        node.columns[number] = of_block(problem, node, problem.dense.blocks[number])
    columns: Columns = node.columns[number]
    return columns


class Clusters(Statistic):
    """Number (or weight) of points by reference cluster, with one row for every cluster present in the node."""

    counts = True

    def __init__(self, problem: Problem, node: Node) -> None:
        super().__init__(problem, node, None, problem.clusters(node)[0])
        self.whole = problem.weight is None

    def sums(self, columns: Columns) -> Tensor:
        """Prefix sums of a histogram by cluster."""
        assert self.groups is not None
        own, weight = self.problem.positions(self.elements, self.groups), self.problem.weights(self.elements)
        return columns.counts(self.elements, own, len(self.groups), weight).cumsum_(2)


class Points(Statistic):
    """Number (or weight) of points on the left.

    Parameters
    ----------
    problem : Problem
    node : Node
    weight : Tensor [n] of float64, optional
        Weights of the points, rounded so that sums are exact. Default: those of the problem.
    """

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
        them, or integers; other values need :func:`neonxc.trees.cuts.exact_sums.rounded` first.
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
