"""What criteria sum over the points left of a cut.

The bins of a column are b = 0, 1, ..., and cut b sends the points in the bins up to b to the left. A sum over
the left of all cuts is therefore a histogram of the points by bin, of which the prefix sums are taken
(``cumsum``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import pad

from neonxc.trees.cuts import histograms
from neonxc.trees.cuts.entries import SparseColumns
from neonxc.trees.cuts.growth import root, select
from neonxc.trees.cuts.histograms import ByCode, Columns

if TYPE_CHECKING:
    from neonxc.trees.cuts.growth import Node
    from neonxc.trees.fit.problem import Problem
    from neonxc.trees.graph import Graph


def unbounded(columns: Columns) -> tuple[Tensor, Tensor]:
    """Stand for `coarse` of sums without bounds, which no search by bins of several codes asks for."""
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
        Returns the same sums for bins of several codes, and lower bounds of the sums of all cuts inside each bin.
    """

    of: Callable[[Columns], Tensor]
    numbers: int = 1
    whole: bool = False
    counts: bool = False
    coarse: Callable[[Columns], tuple[Tensor, Tensor]] = unbounded


def clusters(problem: Problem, node: Node) -> Sum:
    """Number (or weight) of points by reference cluster, one for every cluster that is present in the node."""
    rows = node.rows
    present = problem.clusters(node)[0]
    label = problem.positions(rows, present)
    weight = problem.weights(rows)
    k = len(present)

    def of(columns: Columns) -> Tensor:
        return columns.counts(rows, label, k, weight).cumsum_(2)

    return Sum(of, numbers=k, whole=weight is None, counts=True)


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
    if weight is None:
        weight = problem.weight
    row_weight = None if weight is None else weight.index_select(0, rows)

    def of(columns: Columns) -> Tensor:
        return columns.counts(rows, weight=row_weight).cumsum_(2)

    def coarse(columns: Columns) -> tuple[Tensor, Tensor]:
        left = of(columns)
        before_bin = pad(left[..., :-1], (1, 0))  # these are left of all cuts inside the bin
        return left, before_bin

    return Sum(of, whole=row_weight is None, counts=counts, coarse=coarse)


def of_centers(problem: Problem, rows: Tensor, centers: Tensor) -> Tensor:
    """The points among `rows` whose reference centers are among `centers`."""
    if len(centers) == problem.k:
        return rows
    is_chosen = torch.zeros(problem.k, dtype=torch.bool, device=rows.device).index_fill_(0, centers, True)
    labels = problem.labels.index_select(0, rows)
    return select(rows, is_chosen.index_select(0, labels))


def parted(problem: Problem, node: Node, rows: Tensor | None = None) -> Sum:
    """Number (or weight) of points that a cut separates from their reference center, if that is in the node.

    Parameters
    ----------
    problem : Problem
    node : Node
    rows : Tensor of int64, optional
        The points. Default: those of the node.
    """
    if rows is None:
        rows = node.rows
    rows = of_centers(problem, rows, node.centers)
    return _separated(node, rows, problem.positions(rows, node.centers), problem.weights(rows))


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
        self._of_block: dict[int, Tensor] = {}  # by number of a block of columns, [f, k, bins]

    def sum(self, node: Node, lost: Tensor) -> Sum:
        """The points of a node, given the points outside of it whose centers are in the node."""
        problem = self.problem

        # the sums are the same for all columns of the node, but not all of its columns need them
        @cache
        def of_node() -> Sum:
            return parted(problem, node)

        @cache
        def of_lost() -> Sum:
            return parted(problem, node, lost)

        def of(columns: Columns) -> Tensor:
            by_center = self._of_all_points(columns)
            if by_center is None:
                return of_node().of(columns)
            separated = by_center.sum(1, keepdim=True, dtype=by_center.dtype)
            return separated.sub_(of_lost().of(columns))

        def coarse(columns: Columns) -> tuple[Tensor, Tensor]:
            by_center = self._of_all_points(columns)
            if by_center is None:
                return of_node().coarse(columns)
            label = problem.positions(lost, node.centers)
            center_bins = columns.center_bins
            lost_by_center = columns.separated_by_center(lost, label, center_bins, problem.weights(lost))
            return _bounded(by_center.sub_(lost_by_center))

        return Sum(of, whole=problem.weight is None, coarse=coarse)

    def _of_all_points(self, columns: Columns) -> Tensor | None:
        """Sums over all points of the node's centers, [f, centers, bins]; None if they are not kept."""
        problem = self.problem
        coded = problem.columns
        if not isinstance(columns, ByCode) or columns.block is None or isinstance(coded, SparseColumns):
            return None
        if problem.k * columns.n_bins > self.n:
            return None
        number, chunk = columns.block
        block = coded.blocks[number]
        if len(block.features) * problem.k * columns.n_bins > histograms.BUDGET:
            return None

        centers = columns.node.centers
        if number not in self._of_block:
            block_columns = replace(columns, codes=block.bins)
            rows = torch.arange(problem.n, device=centers.device)
            self._of_block[number] = block_columns.separated_by_center(
                rows, problem.labels, block.centers, problem.weight
            )
        return self._of_block[number][chunk].index_select(1, centers)


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
    return _separated(node, node.rows, own, weight)


def _separated(node: Node, rows: Tensor, label: Tensor, weight: Tensor | None) -> Sum:
    """Number (or weight) of points that a cut separates from the node's center at position `label`."""

    def of(columns: Columns) -> Tensor:
        return columns.separated(rows, label, columns.center_bins, weight)[:, None]

    def coarse(columns: Columns) -> tuple[Tensor, Tensor]:
        return _bounded(columns.separated_by_center(rows, label, columns.center_bins, weight))

    return Sum(of, whole=weight is None, coarse=coarse)


def _bounded(by_center: Tensor) -> tuple[Tensor, Tensor]:
    """Sums over the centers [f, centers, bins], and lower bounds of them inside bins of several codes."""
    separated = by_center.sum(1, keepdim=True, dtype=by_center.dtype)
    return separated, _least_within(by_center)[:, None]


def _least_within(separated: Tensor) -> Tensor:
    """Lower bound [f, n_bins] of the weight that any cut inside a bin of several codes separates from the centers.

    A cut t inside bin b has H[c, b - 1] <= H[c, t] <= H[c, b]. If it is left of the center of c, it separates
    H[c, t] >= s[c, b - 1] points, and otherwise N_c - H[c, t] >= s[c, b]. Every center therefore contributes at
    least the smaller one of s[c, b - 1] and s[c, b].

    Parameters
    ----------
    separated : Tensor [f, centers, n_bins]
        The result of :meth:`Columns.separated_by_center`.
    """
    least = separated.clone()
    torch.minimum(separated[..., 1:], separated[..., :-1], out=least[..., 1:])
    least[..., 0] = 0  # s[c, -1]: no point is left of the first bin
    return least.sum(1, dtype=separated.dtype)


def channels(node: Node, values: Tensor) -> Sum:
    """Sums of m values per point.

    Parameters
    ----------
    node : Node
    values : Tensor [m, points] of float64
        Values of the node's points. Their sums are exact if they are ``problem.distances``, differences between
        them, or integers; other values need :func:`neonxc.trees.cuts.exact_sums.rounded` first.
    """

    def of(columns: Columns) -> Tensor:
        return columns.channels(node.rows, values).cumsum_(2)

    return Sum(of, numbers=len(values))


def pairs(node: Node, graph: Graph) -> Sum:
    """Weight of the edges inside a node that have at least one end on the left, and of those that have both.

    The difference between the two is the weight of the edges that are cut. The weights of the graph are rounded so
    that sums are exact.
    """
    edges = edges_inside(node, graph)
    rows = node.rows
    lower = graph.lower.index_select(0, edges)
    upper = graph.upper.index_select(0, edges)
    weight = graph.weight.index_select(0, edges)
    position = rows.new_zeros(graph.n).index_copy_(0, rows, torch.arange(len(rows), device=rows.device))
    degree = torch.bincount(torch.cat([lower, upper]), weight.repeat(2), minlength=graph.n).to(torch.float64)
    points = degree.nonzero()[:, 0]  # the ends of the edges

    def of(columns: Columns) -> Tensor:
        """Sums by the first and by the last bin of an edge's two ends: one end is left, and both ends are.

        Every edge is in the degrees of its two ends, so that the former are the degrees minus the latter.
        """
        degrees = columns.counts(points, weight=degree.index_select(0, points))[:, 0]
        last = torch.zeros_like(degrees)
        bins = columns.bins_of(rows)
        step = max(1, histograms.BUDGET // len(degrees))
        chunks = zip(weight.split(step), position[lower].split(step), position[upper].split(step), strict=True)
        for chunk_weight, one_end, other_end in chunks:
            one_bin = bins.gather(1, one_end.expand(len(bins), -1))
            other_bin = bins.gather(1, other_end.expand(len(bins), -1))
            last_bin = torch.maximum(one_bin, other_bin)
            last += histograms.histogram(last_bin, columns.n_bins, None, 1, chunk_weight)[:, 0]
        return torch.stack([degrees - last, last], 1).cumsum_(2)

    return Sum(of, numbers=2)


def edges_inside(node: Node, graph: Graph) -> Tensor:
    """Numbers of the edges of which both ends are in a node."""
    inside = torch.zeros(graph.n, dtype=torch.bool, device=node.rows.device)
    inside[node.rows] = True
    return (inside[graph.lower] & inside[graph.upper]).nonzero()[:, 0]
