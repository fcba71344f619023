"""Columns of a node that are searched together, and the cuts in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

import neonxc.trees.sums as sums
from neonxc.trees.chunked_view import ChunkedView
from neonxc.trees.criterion import Cuts
from neonxc.trees.entries import SparseColumns, SparseEntries
from neonxc.trees.node import Node
from neonxc.trees.problem import Problem
from neonxc.trees.sparse_view import SparseView, split_by_cost
from neonxc.trees.views import DenseView, View


@dataclass(frozen=True)
class NodeColumns:
    """Columns of a node whose cuts are searched together.

    Attributes
    ----------
    problem : Problem
    node : Node
    features : Tensor [f] of int64
        The columns.
    view : View
        Codes (or bins) of the node's points in these columns.
    original : Tensor [f, bins] or None
        The table's code for every code of the view, if the codes have been renumbered.
    width : Tensor [f] of int64
        Number of codes per bin.
    """

    problem: Problem
    node: Node
    features: Tensor
    view: View
    original: Tensor | None
    width: Tensor

    def subset(self, part: slice) -> NodeColumns:
        """Select a range of the columns."""
        if part == slice(0, len(self.features)):
            return self
        original = None if self.original is None else self.original[part]
        assert isinstance(self.view, DenseView | ChunkedView)
        return NodeColumns(
            self.problem, self.node, self.features[part], self.view.subset(part), original, self.width[part]
        )

    def table_code(self, row: int, place: int) -> int:
        """The table's code for a cut at `place` in the column with position `row`."""
        if self.original is not None:
            return int(self.original[row, place])
        return int(self.width[row]) * (place + 1) - 1 if self.view.coarse else place

    def centers(self) -> Tensor:
        """Codes of the node's centers, [f, centers]."""
        return self.view.centers.index_select(1, self.node.centers)

    def ends(self) -> tuple[Tensor, Tensor]:
        """Smallest and largest code of the node's points, [f] each."""
        if not self.problem.sharded:
            return self.view.ends(self.node.rows)
        codes = self.view.at(self.node.rows)
        place = codes.to(torch.int64)
        none = place.new_full((len(codes), 1), self.view.bins)  # this process may have no points
        low = -self.problem.reduce(torch.cat([-place, -none], 1).amax(1), "max")
        return low, self.problem.reduce(torch.cat([place, -none], 1).amax(1), "max")

    def gaps(self) -> tuple[Tensor, Tensor]:
        """The node's values on the two sides of every cut, [f, bins] each."""
        rows = self.node.rows

        ends = self.problem.columns.ends

        def values() -> Tensor:
            return self.problem.table.at(self.features, rows).to(torch.float64)

        def of_codes(side: Tensor) -> Tensor:
            codes = [self.problem.columns.column(feature)[rows] for feature in self.features.tolist()]
            return side[self.features].gather(1, torch.stack(codes).to(torch.int64))

        if ends is None:
            low, high = self.view.extremes(rows, values)
        else:
            low = self.view.extremes(rows, lambda: of_codes(ends.high))[0]
            high = self.view.extremes(rows, lambda: of_codes(ends.low))[1]
        low, high = self.problem.reduce(low, "max"), self.problem.reduce(high, "max")
        above = (-high).flip(1).cummin(1).values.flip(1).roll(-1, 1)
        above[:, -1] = torch.inf
        return low.cummax(1).values, above

    def sums_left(self, values: Tensor, which: Tensor, exact: bool, row: Tensor, place: Tensor) -> Tensor:
        """Sums over the points left of some cuts; each cut sums the row of `values` that `which` gives."""
        group, member = torch.unique(row * len(values) + which, return_inverse=True)
        column = group.div(len(values), rounding_mode="floor")
        values = values if exact else self.problem.exact(values)
        totals = self.view.selected_channels(self.node.rows, values, column, group % len(values))
        return self.problem.reduce(totals)[member, place]

    def all_cuts(self, left: Tensor, mass_left: Tensor | None, only_new: bool) -> tuple[Cuts, Tensor]:
        """Describe all cuts, [f, bins]; the second result is a mask of the cuts that leave a side empty.

        Parameters
        ----------
        left : Tensor [m, f, bins]
            Sums of the statistics over the points on the left.
        mass_left : Tensor [f, bins] or None
            Mass of the points on the left.
        only_new : bool
            Whether to mask cuts that separate points and centers in the same way as the previous cut.
        """
        view, n_centers = self.view, len(self.node.centers)
        centers = self.centers() if n_centers else view.centers[:, :0]

        def places() -> Tensor:
            return torch.arange(view.bins, device=left.device)

        if n_centers:
            centers_left = sums.centers_left(centers, view.bins)
            impossible = (centers_left == 0) | (centers_left == n_centers)
            if mass_left is not None and only_new:
                new = mass_left.diff(dim=1, prepend=torch.zeros_like(mass_left[:, :1])) > 0
                impossible |= ~new.scatter_(1, centers, True)
        else:
            centers_left = self.node.centers.new_zeros(1, 1)
            if mass_left is not None:
                impossible = (mass_left <= 0) | (mass_left >= mass_left[:, -1:])
            else:
                low, high = self.ends()
                impossible = (places() < low[:, None]) | (places() >= high[:, None])

        def sum_left(values: Tensor, which: Tensor, exact: bool) -> Tensor:
            row = torch.arange(len(centers), device=left.device)[:, None]
            return self.sums_left(values, which, exact, row, places())

        cuts = Cuts(
            left,
            left[:, 0, -1],
            self.features[:, None],
            centers_left,
            mass_left,
            None,
            self.gaps,
            lambda: centers[:, None] <= places()[:, None],
            sum_left,
        )
        return cuts, impossible


@dataclass(frozen=True)
class CandidateCuts:
    """Cuts that may still be the best: their positions [cuts], sums, and bounds of their scores [cuts]."""

    part: NodeColumns
    row: Tensor
    place: Tensor
    left: Tensor  # [m, cuts]
    total: Tensor  # [m]
    mass_left: Tensor | None
    score: Tensor

    def __getitem__(self, which: Tensor) -> CandidateCuts:
        row, place, score = (values.index_select(0, which) for values in (self.row, self.place, self.score))
        mass_left = None if self.mass_left is None else self.mass_left.index_select(0, which)
        return CandidateCuts(self.part, row, place, self.left.index_select(1, which), self.total, mass_left, score)

    def up_to(self, limit: float) -> CandidateCuts:
        """Select the cuts whose score may be at most `limit`."""
        return self[(self.score <= limit).nonzero()[:, 0]]

    def cuts(self) -> Cuts:
        """Describe the cuts for a criterion."""
        part, row, place = self.part, self.row, self.place
        sides = part.centers().index_select(0, row) <= place[:, None]

        def gap() -> tuple[Tensor, Tensor]:
            below, above = part.gaps()
            return below[row, place], above[row, place]

        return Cuts(
            self.left,
            self.total,
            part.features[row],
            sides.sum(1),
            self.mass_left,
            self.score,
            gap,
            lambda: sides,
            lambda values, which, exact: part.sums_left(values, which, exact, row, place),
        )


def coded_columns(problem: Problem, node: Node, codes: Tensor, features: Tensor, bins: int) -> NodeColumns:
    """Columns of a block, searched code by code."""
    columns = problem.dense
    own = codes.index_select(0, columns.place[features, 1])

    def by_column(points: Tensor) -> Tensor:
        return own if len(points) == own.shape[1] else own.index_select(1, points)

    view = DenseView(lambda points: own.index_select(1, points).T, by_column, columns.centers[features], bins)
    return NodeColumns(problem, node, features, view, None, torch.ones_like(features))


def renumbered_columns(problem: Problem, node: Node, codes: Tensor, features: Tensor) -> NodeColumns:
    """Columns of a block with codes renumbered to those that occur among the node's points and centers."""
    columns = problem.dense
    own = codes.index_select(0, columns.place[features, 1]).index_select(1, node.rows)
    centers = columns.centers[features]
    new, new_centers, original = sums.renumber_codes(own, centers.index_select(1, node.centers))
    centers = centers.index_copy(1, node.centers, new_centers)

    def by_column(points: Tensor) -> Tensor:
        return new if points is node.rows else new.index_select(1, torch.searchsorted(node.rows, points))

    view = DenseView(lambda points: by_column(points).T, by_column, centers, original.shape[1])
    return NodeColumns(problem, node, features, view, original, torch.ones_like(features))


def sparse_columns(problem: Problem, node: Node, features: Tensor | None, numbers: int) -> Iterator[NodeColumns]:
    """Groups of the sparse columns that can be cut, optionally only those in `features`.

    Columns are grouped if their numbers of codes are small, or differ at most by a factor of 2. `numbers` is the
    number of sums per code.
    """
    entries = node_entries(problem, node)
    columns = torch.arange(len(entries.features)) if features is None else entries.among(features)
    if not len(columns):
        return
    size, parts = entries.first.diff()[columns], [columns]
    if len(columns) * int(size.max()) * numbers > sums.CACHED:
        size, order = size.sort(stable=True)
        alike = torch.unique_consecutive(size.log2().ceil(), return_counts=True)[1]
        parts = list(columns[order].split(alike.tolist()))
    for part in parts:
        costs = (entries.first.diff() + entries.start.diff())[part] * numbers
        for some in split_by_cost(costs, sums.CACHED):
            own = part[some]
            view, features = SparseView(entries, own, problem.k), entries.features[own]
            place = entries.first[own][:, None] + torch.arange(view.bins)
            original = entries.code[place.clamp_(max=len(entries.code) - 1)]
            yield NodeColumns(problem, node, features, view, original, torch.ones_like(features))


def node_entries(problem: Problem, node: Node) -> SparseEntries:
    """Sparse entries of a node's points."""
    if node.entries is None:
        assert isinstance(problem.columns, SparseColumns)
        node.entries = problem.columns.entries_of(node.rows, node.centers)
    entries: SparseEntries = node.entries
    return entries


def concatenate(numbers: Sequence[Tensor]) -> Tensor:
    """Concatenate the sums of several statistics, [m, f, bins]."""
    return numbers[0] if len(numbers) == 1 else torch.cat([own.to(torch.float64) for own in numbers])
