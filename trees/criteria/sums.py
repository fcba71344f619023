"""What criteria sum over the points left of a cut."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor
from torch.nn.functional import pad

from neonxc.trees.cuts import histograms
from neonxc.trees.cuts.columns import ByCode, Columns
from neonxc.trees.cuts.exact_sums import select
from neonxc.trees.cuts.nodes import root

if TYPE_CHECKING:
    from neonxc.trees.cuts.nodes import Node
    from neonxc.trees.fit.problem import Problem
    from neonxc.trees.graph import Graph


def unbounded(columns: Columns) -> tuple[Tensor, Tensor]:
    """Sums without bounds, which are never asked for by coarse codes."""
    raise NotImplementedError


@dataclass(frozen=True)
class Sum:
    """One or several sums over the points of a node left of every cut.

    Attributes
    ----------
    of : callable (Columns) -> Tensor [f, m, bins]
        Returns m sums over the points in the bins up to each.
    numbers : int
        Number of sums per column and bin that are computed at once, which limits temporary arrays.
    whole : bool
        Whether the sums are integers.
    counts : bool
        Whether the sums add up to the mass of the points on the left.
    coarse : callable (Columns) -> two Tensors [f, m, bins], optional
        Returns the same sums by coarse codes, and lower bounds of the sums over all cuts inside each coarse code.
    """

    of: Callable[[Columns], Tensor]
    numbers: int = 1
    whole: bool = False
    counts: bool = False
    coarse: Callable[[Columns], tuple[Tensor, Tensor]] = unbounded


def clusters(problem: Problem, node: Node) -> Sum:
    """Number (or weight) of points by reference cluster, one for every cluster that is present in the node."""
    present = problem.clusters(node)[0]
    rows = node.rows
    weight = problem.weights(node.rows)
    own = problem.positions(rows, present)
    k = len(present)
    return Sum(lambda columns: columns.counts(rows, own, k, weight).cumsum_(2), k, weight is None, True)


def points(problem: Problem, node: Node, weight: Tensor | None = None) -> Sum:
    """Number (or weight) of points.

    Parameters
    ----------
    problem : Problem
    node : Node
    weight : Tensor [n] of float64, optional
        Weights of all points, rounded so that sums are exact. Default: those of the problem.
    """
    rows = node.rows
    counts = weight is None
    own = problem.weights(rows) if weight is None else weight.index_select(0, rows)

    def of(columns: Columns) -> Tensor:
        return columns.counts(rows, weight=own).cumsum_(2)

    def coarse(columns: Columns) -> tuple[Tensor, Tensor]:
        left = of(columns)
        return left, pad(left[..., :-1], (1, 0))  # at least the points before the coarse code

    return Sum(of, 1, own is None, counts, coarse)


def of_centers(problem: Problem, rows: Tensor, centers: Tensor) -> Tensor:
    """The points among `rows` whose reference centers are among `centers`."""
    if len(centers) == problem.k:
        return rows
    there = torch.zeros(problem.k, dtype=torch.bool, device=rows.device).index_fill_(0, centers, True)
    return select(rows, there.index_select(0, problem.labels.index_select(0, rows)))


def parted(problem: Problem, node: Node, rows: Tensor | None = None) -> Sum:
    """Number (or weight) of points that a cut separates from their reference center, if that is in the node.

    Parameters
    ----------
    problem : Problem
    node : Node
    rows : Tensor of int64, optional
        The points. Default: those of the node.
    """
    rows = of_centers(problem, node.rows if rows is None else rows, node.centers)
    return _parted(node, rows, problem.positions(rows, node.centers), problem.weights(rows))


class Separated:
    """The same as :func:`parted`, faster at all nodes but the root.

    All points are summed by center once; at a node, the few points that earlier cuts have separated from its
    centers are subtracted. Where sums by center would be larger than the table, each node sums its own points.

    Parameters
    ----------
    problem : Problem
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.n = root(problem).n
        self._whole: dict[int, Tensor] = {}

    def sum(self, node: Node, lost: Tensor) -> Sum:
        """The points of a node, given the points outside of it whose centers are in the node."""
        problem = self.problem
        here = cache(lambda: parted(problem, node))
        gone = cache(lambda: parted(problem, node, lost))

        def of(columns: Columns) -> Tensor:
            whole = self._of_all(columns)
            if whole is None:
                return here().of(columns)
            return whole.sum(1, keepdim=True, dtype=whole.dtype).sub_(gone().of(columns))

        def coarse(columns: Columns) -> tuple[Tensor, Tensor]:
            whole = self._of_all(columns)
            if whole is None:
                return here().coarse(columns)
            own = problem.positions(lost, node.centers)
            centers = columns.centers_of(node.centers)
            return _bounded(whole.sub_(columns.separated_by_center(lost, own, centers, problem.weights(lost))))

        return Sum(of, whole=problem.weight is None, coarse=coarse)

    def _of_all(self, columns: Columns) -> Tensor | None:
        """Sums of all points of the node's centers, [f, centers, bins]; None if they are not kept."""
        problem = self.problem
        centers = columns.node.centers
        coded = cast(Any, self.problem.columns)
        if not isinstance(columns, ByCode) or columns.block is None or problem.k * columns.n_bins > self.n:
            return None
        number, part = columns.block
        block = coded.blocks[number]
        if len(block.features) * problem.k * columns.n_bins > histograms.BUDGET:
            return None
        if number not in self._whole:
            every = replace(columns, codes=block.bins)
            rows = torch.arange(problem.n, device=centers.device)
            sums = every.separated_by_center(rows, problem.labels, block.centers, problem.weight)
            self._whole[number] = sums
        return self._whole[number][part].index_select(1, centers)


def parted_from(node: Node, own: Tensor, weight: Tensor) -> Sum:
    """Sum of given weights over the points that a cut separates from one of the node's centers.

    Parameters
    ----------
    node : Node
    own : Tensor [points] of int64
        Position in the node's centers of each point's center.
    weight : Tensor [points] of float64
        Weights of the node's points, rounded so that sums are exact.
    """
    return _parted(node, node.rows, own, weight)


def _parted(node: Node, rows: Tensor, own: Tensor, weight: Tensor | None) -> Sum:
    def of(columns: Columns) -> Tensor:
        return columns.separated(rows, own, columns.centers_of(node.centers), weight)[:, None]

    def coarse(columns: Columns) -> tuple[Tensor, Tensor]:
        return _bounded(columns.separated_by_center(rows, own, columns.centers_of(node.centers), weight))

    return Sum(of, whole=weight is None, coarse=coarse)


def _bounded(terms: Tensor) -> tuple[Tensor, Tensor]:
    """Sums over the centers [f, centers, bins], and lower bounds of them inside coarse codes."""
    return terms.sum(1, keepdim=True, dtype=terms.dtype), histograms.least_within(terms)[:, None]


def channels(node: Node, values: Tensor) -> Sum:
    """Sums of m values per point.

    Parameters
    ----------
    node : Node
    values : Tensor [m, points] of float64
        Values of the node's points. Their sums are exact if they are ``problem.distances``, differences between
        them, or integers; other values need :func:`neonxc.trees.cuts.exact_sums.rounded` first.
    """
    return Sum(lambda columns: columns.channels(node.rows, values).cumsum_(2), len(values))


def pairs(node: Node, graph: Graph) -> Sum:
    """Weight of the edges inside a node that have at least one end on the left, and of those that have both.

    The difference between the two is the weight of the edges that are cut. The weights of the graph are rounded so
    that sums are exact.
    """
    edges = edges_inside(node, graph)
    rows = node.rows
    ends = [side.index_select(0, edges) for side in (graph.lower, graph.upper)]
    place = rows.new_zeros(graph.n).index_copy_(0, rows, torch.arange(len(rows), device=rows.device))
    weight = graph.weight.index_select(0, edges)
    degree = torch.bincount(torch.cat(ends), weight.repeat(2), minlength=graph.n).to(torch.float64)
    points = degree.nonzero()[:, 0]

    def of(columns: Columns) -> Tensor:
        """Sums of the edges by their lower and by their upper code; the former is degrees minus the latter."""
        both = columns.counts(points, weight=degree.index_select(0, points))[:, 0]
        upper = torch.zeros_like(both)
        codes = columns.bins_of(rows)
        step = max(1, histograms.BUDGET // len(both))
        for own, *two in zip(weight.split(step), *(place[end].split(step) for end in ends), strict=True):
            later = torch.maximum(*(codes.gather(1, end.expand(len(codes), -1)) for end in two))
            upper += histograms.histogram(later, columns.n_bins, None, 1, own)[:, 0]
        return torch.stack([both - upper, upper], 1).cumsum_(2)

    return Sum(of, 2)


def edges_inside(node: Node, graph: Graph) -> Tensor:
    """Numbers of the edges of which both ends are in a node."""
    inside = torch.zeros(graph.n, dtype=torch.bool, device=node.rows.device)
    inside[node.rows] = True
    return (inside[graph.lower] & inside[graph.upper]).nonzero()[:, 0]
