"""Columns of a node that are searched together: the codes of its points, and sums over the points by code.

Codes have shape [f, n], one row per column. Cut b of a column sends codes <= b to the left, so the sums of all its
cuts are the prefix sums of a histogram.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from neonxc.trees.cuts.codes import ColumnBlock, transposed
from neonxc.trees.cuts.exact_sums import is_first, sorted_rows
from neonxc.trees.cuts.nodes import Node

if TYPE_CHECKING:
    from neonxc.trees.fit.problem import Problem

BUFFER = 280_000  # number of indices that fit into a core's cache
CACHED = 1 << 19  # entries of a histogram over which several passes are made
BUDGET = 1 << 24  # maximum number of entries of any temporary array
ROWS = 1 << 16  # number of points whose codes are gathered at a time from a table that is stored by row


@dataclass(frozen=True)
class Columns:
    """Columns of a node whose cuts are searched together; a cut sends the codes up to a *place* left.

    Attributes
    ----------
    problem : Problem
    node : Node
    features : Tensor [f] of int64
        The columns.
    centers : Tensor [f, k] of int64
        Codes of all reference centers.
    places : int
        Number of places, one more than the greatest code.
    gather : callable (rows, slice of the columns) -> Tensor [f, points]
        Returns codes of points, whose rows are in ascending order.
    part : slice
        The columns among those that `gather` knows.
    width : Tensor [f] of int64, optional
        Number of the table's codes per place. Default: one.
    original : Tensor [f, places], optional
        The table's code for every place, if the codes have been renumbered.
    step : int, optional
        Number of points whose codes are gathered at a time. Default: all.
    """

    problem: Problem
    node: Node
    features: Tensor
    centers: Tensor
    places: int
    gather: Callable[[Tensor, slice], Tensor] | None = None
    part: slice = field(default_factory=lambda: slice(None))
    width: Tensor | None = None
    original: Tensor | None = None
    step: int | None = None

    def __getitem__(self, part: slice) -> Columns:
        """Select a range of the columns."""
        width = None if self.width is None else self.width[part]
        return replace(self, features=self.features[part], centers=self.centers[part], part=part, width=width)

    def code(self, row: int, place: int) -> int:
        """The table's code for a place in the column with position `row`."""
        if self.original is not None:
            return int(self.original[row, place])
        return place if self.width is None else int(self.width[row]) * (place + 1) - 1

    def centers_of(self, which: Tensor) -> Tensor:
        """Codes of some of the centers, [f, centers]."""
        return self.centers.index_select(1, which)

    def at(self, rows: Tensor) -> Tensor:
        """Codes of the points `rows`, which are in ascending order, [f, points]."""
        assert self.gather is not None
        return self.gather(rows, self.part)

    def by_point(self, rows: Tensor) -> Tensor:
        """Codes of any points of the node, in any order, [points, f]."""
        every = self.node.rows
        place = every.new_zeros(self.problem.n).index_copy_(
            0, every, torch.arange(len(every), device=every.device)
        )
        return transposed(self.at(every)).index_select(0, place.index_select(0, rows))

    def counts(
        self, rows: Tensor, labels: Tensor | None = None, k: int = 1, weight: Tensor | None = None
    ) -> Tensor:
        """Number (or weight) of points by column, label and code, [f, k, places]."""
        return self._added(
            rows,
            lambda codes, part: histogram(codes, self.places, _some(labels, part), k, _some(weight, part)),
        )

    def channels(self, rows: Tensor, values: Tensor) -> Tensor:
        """Sums of values [m, points] by column and code, [f, m, places]."""
        return self._added(rows, lambda codes, part: channels(codes, self.places, values[:, part]))

    def chosen_channels(self, rows: Tensor, values: Tensor, row: Tensor, which: Tensor) -> Tensor:
        """Sums up to every place, [groups, places], of the rows `which` of values [m, points] in columns `row`."""
        return self._added(
            rows,
            lambda codes, part: selected_channels(codes.index_select(0, row), self.places, values[:, part], which),
        )

    def parted(
        self, rows: Tensor, labels: Tensor, centers: Tensor, weight: Tensor | None = None, by_center: bool = False
    ) -> Tensor:
        """Number (or weight) of points that each cut separates from their centers [f, k], [f, places].

        With `by_center`, those of every center, [f, k, places].
        """
        function = parted_by_center if by_center else parted
        return self._added(
            rows, lambda codes, part: function(codes, self.places, labels[part], centers, _some(weight, part))
        )

    def ends(self) -> tuple[Tensor, Tensor]:
        """Smallest and largest code of the node's points over all processes, [f] each."""
        if self.step is None and not self.problem.sharded:
            low, high = self.at(self.node.rows).aminmax(dim=1)
            return low.to(torch.int64), high.to(torch.int64)
        present = self.problem.reduce(self.counts(self.node.rows))[:, 0] > 0
        place = torch.arange(self.places, device=present.device)
        return place.where(present, self.places).amin(1), place.where(present, -1).amax(1)

    def gaps(self) -> tuple[Tensor, Tensor]:
        """The node's values on the two sides of every cut, [f, places] each; of a table in one process."""
        codes, none = self.at(self.node.rows).to(torch.int64), (len(self.features), self.places)
        values = self.problem.table.at(self.features, self.node.rows).to(torch.float64)
        low = values.new_full(none, -torch.inf).scatter_reduce_(1, codes, values, "amax")
        high = values.new_full(none, torch.inf).scatter_reduce_(1, codes, values, "amin")
        above = high.flip(1).cummin(1).values.flip(1).roll(-1, 1)
        above[:, -1] = torch.inf
        return low.cummax(1).values, above

    def _added(self, rows: Tensor, function: Callable[[Tensor, slice], Tensor]) -> Tensor:
        """Add a function of codes over all points. Sums are exact, so they do not depend on `step`."""
        if self.step is None:
            return function(self.at(rows), slice(None))
        parts = (slice(first, first + self.step) for first in range(0, max(1, len(rows)), self.step))
        result: Tensor | None = None
        for part in parts:
            own = function(self.at(rows[part]), part)
            result = own if result is None else result.add_(own)
        assert result is not None
        return result


def _some(values: Tensor | None, part: slice) -> Tensor | None:
    return None if values is None else values[part]


def of_block(problem: Problem, node: Node, block: ColumnBlock) -> Columns:
    """The columns of a block, by bin; the codes that were gathered last are kept."""
    kept: list[Tensor] = []

    def gathered(rows: Tensor, part: slice) -> Tensor:
        if not kept or kept[0] is not rows:
            kept[:] = rows, block.by_column(rows)
        return kept[1][part]

    def stored_by_row(rows: Tensor, part: slice) -> Tensor:
        assert block.row_major is not None
        return transposed(block.row_major[:, part].index_select(0, rows))

    width = None if block.exact else block.width
    return Columns(
        problem,
        node,
        block.features,
        block.centers,
        block.n_bins,
        gathered if block.row_major is None else stored_by_row,
        width=width,
        step=None if block.row_major is None else ROWS,
    )


def by_code(problem: Problem, node: Node, codes: Tensor, features: Tensor, places: int | None) -> Columns:
    """Columns whose codes [columns, n] are searched one by one.

    If `places` is None, codes are renumbered to those that occur among the node's points and centers.
    """
    columns = problem.dense
    own, centers, original = codes.index_select(0, columns.place[features, 1]), columns.centers[features], None
    if places is None:
        own = own.index_select(1, node.rows)
        own, new, original = renumber_codes(own, centers.index_select(1, node.centers))
        centers, places = centers.index_copy(1, node.centers, new), original.shape[1]

    def gather(rows: Tensor, part: slice) -> Tensor:
        if len(rows) == own.shape[1]:
            return own[part]
        return own[part].index_select(1, rows if original is None else torch.searchsorted(node.rows, rows))

    return Columns(problem, node, features, centers, places, gather, original=original)


def histogram(codes: Tensor, bins: int, labels: Tensor | None, k: int, weight: Tensor | None = None) -> Tensor:
    """Count the points (or add their weights) by column, label and code.

    Parameters
    ----------
    codes : Tensor [f, n] of integers below `bins`
    bins : int
    labels : Tensor [n] of int64 below `k`, or None if `k` is 1
    k : int
    weight : Tensor [n] of float64, optional

    Returns
    -------
    Tensor [f, k, bins] of int32, or of float64 with weights
    """
    f, n = codes.shape
    dtype = _kind(weight)
    result = torch.zeros(f, k * bins, dtype=dtype, device=codes.device)
    values = torch.ones((), dtype=dtype, device=codes.device) if weight is None else weight
    step = _step(BUFFER, n, codes.device)
    offset = None if labels is None else labels * bins
    buffer = torch.empty(min(step, f), n, dtype=torch.int64, device=codes.device)
    for first in range(0, f, step):
        part = codes[first : first + step]
        index = buffer[: len(part)].copy_(part)
        if offset is not None:
            index.add_(offset)
        result[first : first + step].scatter_add_(1, index, values.expand_as(index))
    return result.view(f, k, bins)


def channels(codes: Tensor, bins: int, values: Tensor) -> Tensor:
    """Sums of m values per point by column and code, [f, m, bins]; `values` has shape [m, n]."""
    f, n = codes.shape
    m = len(values)
    result = torch.zeros(f, m, bins, dtype=torch.float64, device=codes.device)
    step = _step(BUFFER, n * m, codes.device)
    for first in range(0, f, step):
        part = codes[first : first + step].to(torch.int64)[:, None].expand(-1, m, -1)
        result[first : first + step].scatter_add_(2, part, values.expand_as(part))
    return result


def selected_channels(codes: Tensor, bins: int, values: Tensor, group: Tensor) -> Tensor:
    """Prefix sums, [f, bins], of one row of `values` [m, n] for every column, as given by `group` [f]."""
    n = codes.shape[1]
    result = torch.zeros(len(codes), bins, dtype=torch.float64, device=codes.device)
    step = max(1, BUDGET // 4 // max(n, bins))
    for first in range(0, len(codes), step):
        part = slice(first, first + step)
        result[part].scatter_add_(1, codes[part].to(torch.int64), values.index_select(0, group[part]))
    return result.cumsum_(1)


def parted(codes: Tensor, bins: int, labels: Tensor, centers: Tensor, weight: Tensor | None = None) -> Tensor:
    """Number (or weight) of points that each cut separates from the center of their label, [f, bins].

    Parameters
    ----------
    codes : Tensor [f, n]
    labels : Tensor [n] of int64
    centers : Tensor [f, k] of int64
        Codes of the centers.
    """
    k = centers.shape[1]
    if k * bins > len(labels):  # a histogram would be larger than the node
        return _parted_directly(codes, bins, labels, centers, weight)
    result = torch.empty(len(codes), bins, dtype=_kind(weight), device=codes.device)
    for part, terms in _terms(codes, bins, labels, centers, weight):
        torch.sum(terms, 1, dtype=result.dtype, out=result[part])
    return result


def _parted_directly(
    codes: Tensor, bins: int, labels: Tensor, centers: Tensor, weight: Tensor | None = None
) -> Tensor:
    """The same as :func:`parted`, without a histogram by label."""
    f, n = codes.shape
    dtype, kind = _kind(weight), torch.promote_types(codes.dtype, torch.int16)
    change = torch.zeros(f, bins, dtype=dtype, device=codes.device)
    jump = torch.zeros(centers.shape, dtype=dtype, device=codes.device)
    own_codes = centers.to(kind)
    step = _step(BUFFER, n, codes.device)
    index = torch.empty(min(step, f), n, dtype=torch.int64, device=codes.device)
    signed = torch.empty(min(step, f), n, dtype=dtype, device=codes.device)
    for first in range(0, f, step):
        columns = slice(first, first + step)
        part = codes[columns]
        # 1 if the point is left of its center, so that cuts from the point's code on separate the two
        side = own_codes[columns].index_select(1, labels).sub_(part).sign_()
        if weight is None:
            values = signed[: len(part)].copy_(side)
        else:
            values = torch.mul(side, weight, out=signed[: len(part)])
        change[columns].scatter_add_(1, index[: len(part)].copy_(part), values)
        jump[columns].scatter_add_(1, labels.expand_as(part), values)
    return change.scatter_add_(1, centers, -jump).cumsum_(1)


def parted_by_center(
    codes: Tensor, bins: int, labels: Tensor, centers: Tensor, weight: Tensor | None = None
) -> Tensor:
    """Number (or weight) of points that each cut separates from their center, by center, [f, k, bins].

    A cut left of the center separates the points on the cut's left. A cut right of the center separates those on
    the cut's right, whose number is that of all points minus those on the left.
    """
    result = torch.empty(*centers.shape, bins, dtype=_kind(weight), device=codes.device)
    for part, terms in _terms(codes, bins, labels, centers, weight):
        result[part] = terms
    return result


def _terms(
    codes: Tensor, bins: int, labels: Tensor, centers: Tensor, weight: Tensor | None
) -> Iterator[tuple[slice, Tensor]]:
    """Yield the result of :func:`parted_by_center` for consecutive ranges of columns."""
    k = centers.shape[1]
    mass = torch.bincount(labels, weight, minlength=k)[:, None].to(_kind(weight))
    step = max(1, CACHED // (k * bins))
    for first in range(0, len(codes), step):
        part = slice(first, first + step)
        counts, own = histogram(codes[part], bins, labels, k, weight), centers[part, :, None]
        yield part, counts.scatter_add_(2, own, -mass.expand_as(own)).cumsum_(2).abs_()


def _kind(weight: Tensor | None) -> torch.dtype:
    """Type of sums of weights, or of counts."""
    return torch.int32 if weight is None else torch.float64


def least_within_bins(terms: Tensor) -> Tensor:
    """Lower bound of the weight that any cut inside a bin separates from the centers, [f, bins].

    `terms` are the result of :func:`parted_by_center`. The points inside the bin may not be separated at all, so
    each center contributes the smaller of the weights of the cuts before and behind the bin.
    """
    least = terms.clone()
    torch.minimum(terms[..., 1:], terms[..., :-1], out=least[..., 1:])
    least[..., 0] = 0
    return least.sum(1, dtype=terms.dtype)


def centers_left(centers: Tensor, bins: int) -> Tensor:
    """Number of centers that each cut sends to the left, [f, bins]."""
    counts = torch.zeros(len(centers), bins, dtype=torch.int64, device=centers.device)
    return counts.scatter_add_(1, centers, torch.ones_like(centers)).cumsum_(1)


def renumber_codes(codes: Tensor, centers: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Renumber codes consecutively, so that only codes of the given points and centers remain.

    Returns
    -------
    codes : Tensor [f, n] of int64
    centers : Tensor [f, k] of int64
    original : Tensor [f, bins] of int64
        The old code for every new one.
    """
    n = codes.shape[1]
    ordered, order = sorted_rows(torch.cat([codes, centers.to(codes.dtype)], 1))
    rank = is_first(ordered).cumsum(1).sub_(1)
    original = rank.new_zeros(len(codes), int(rank[:, -1].max()) + 1)
    original.scatter_(1, rank, ordered.to(torch.int64))
    ranks = torch.empty_like(rank).scatter_(1, order, rank)
    return ranks[:, :n], ranks[:, n:], original


def _step(buffer: int, entries: int, device: torch.device) -> int:
    """Number of columns whose indices are computed at a time."""
    return max(1, (buffer if device.type == "cpu" else BUDGET) // max(entries, 1))
