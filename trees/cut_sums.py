"""Sums of the statistics for all cuts of a node, computed for a few columns at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

import neonxc.trees.sums as sums
from neonxc.trees.chunked_view import ROWS
from neonxc.trees.criterion import Criterion, Cuts
from neonxc.trees.entries import SparseColumns
from neonxc.trees.node import Node
from neonxc.trees.node_columns import NodeColumns, coded_columns, concatenate, renumbered_columns, sparse_columns
from neonxc.trees.problem import Problem
from neonxc.trees.statistics import Statistic
from neonxc.trees.stored_sums import StoredSums, cached_view, worth_storing

Cutting = tuple[NodeColumns, Cuts, Tensor]
"""Columns, all of their cuts, and a mask of the cuts that leave a side empty."""


class CutSums:
    """Computes the sums of all cuts of a node, from which a criterion scores them.

    Parameters
    ----------
    problem : Problem
    criterion : Criterion
    """

    def __init__(self, problem: Problem, criterion: Criterion) -> None:
        self.problem, self.criterion = problem, criterion
        columns = problem.columns
        # Whether the codes of all points of a node are gathered at once
        self._gathers = isinstance(columns, SparseColumns) or any(
            block.row_major is None for block in columns.blocks
        )

    def bin_by_bin(
        self, node: Node, statistics: Sequence[Statistic], inside: list[tuple[Tensor, Tensor]]
    ) -> Iterator[Cutting]:
        """Cuts of all columns between bins; bounds of the scores of cuts inside bins are added to `inside`."""
        if isinstance(self.problem.columns, SparseColumns):
            yield from self.code_by_code(node, statistics, None)
            return
        for number, block in enumerate(self.problem.columns.blocks):
            if not block.exact and not self.criterion.coarse:
                yield from self.code_by_code(node, statistics, block.features)
                continue
            view = cached_view(self.problem, node, number)
            for stored in node.stored:
                if (
                    stored is not None
                    and number not in stored.terms
                    and worth_storing(self.problem, block, stored)
                ):
                    terms = stored.statistic.terms(view, stored.elements, stored.groups)
                    stored.terms[number] = self.problem.reduce(terms)
            whole = NodeColumns(self.problem, node, block.features, view, None, block.width)
            entries = sum(s.entries(g) for s, g in _groups(statistics, node))
            for chunk in self._chunks(node, entries, block.n_bins, len(block.features)):
                part, numbers, least = whole.subset(chunk), [], []
                for statistic, stored in zip(statistics, node.stored, strict=True):
                    if stored is not None and number in stored.terms:
                        terms = stored.terms[number][chunk]
                    elif block.exact:
                        numbers.append(self._once(part, statistic, stored))
                        continue
                    else:
                        terms = self.problem.reduce(statistic.terms(part.view, *_summed(node, stored)))
                    numbers.append(statistic.left(terms))
                    if not block.exact:
                        least.append(statistic.within(terms))
                if least:
                    inside.append((self._bound_inside(part, concatenate(least)), part.features))
                yield part, *self._cuts(part, statistics, numbers)

    def code_by_code(
        self, node: Node, statistics: Sequence[Statistic], features: Tensor | None
    ) -> Iterator[Cutting]:
        """Cuts between all codes of the given columns (or of all columns, None), whose sums are not stored."""
        entries = sum(s.size if s.by_center else s.entries(g) for s, g in _groups(statistics, node))
        if features is None or isinstance(self.problem.columns, SparseColumns):
            parts = sparse_columns(self.problem, node, features, entries)
        else:
            parts = self._dense_parts(node, features, entries)
        for part in parts:
            numbers = [self._once(part, s, stored) for s, stored in zip(statistics, node.stored, strict=True)]
            yield part, *self._cuts(part, statistics, numbers)

    def _dense_parts(self, node: Node, features: Tensor, entries: int) -> Iterator[NodeColumns]:
        """Groups of dense columns that are searched code by code."""
        columns = self.problem.dense
        for number, codes in enumerate(columns.codes):
            mine = features[columns.place[features, 0] == number]
            if not len(mine):
                continue
            bins = int(columns.size[mine].max())
            few = bins > max(256, 2 * node.n) and not self.problem.sharded
            for chunk in self._chunks(node, entries, min(bins, 2 * node.n) if few else bins, len(mine)):
                if few:
                    yield renumbered_columns(self.problem, node, codes, mine[chunk])
                else:
                    yield coded_columns(self.problem, node, codes, mine[chunk], bins)

    def _once(self, part: NodeColumns, statistic: Statistic, stored: StoredSums | None) -> Tensor:
        """Sums of a statistic that need not be stored."""
        return self.problem.reduce(statistic.once(part.view, *_summed(part.node, stored)))

    def _cuts(
        self, part: NodeColumns, statistics: Sequence[Statistic], numbers: Sequence[Tensor]
    ) -> tuple[Cuts, Tensor]:
        counted = [own.sum(0, dtype=own.dtype) for s, own in zip(statistics, numbers, strict=True) if s.counts]
        return part.all_cuts(concatenate(numbers), counted[0] if counted else None, len(self.criterion.stages) > 1)

    def _chunks(self, node: Node, entries: int, bins: int, columns: int) -> Iterator[slice]:
        """Ranges of columns whose sums fit into a core's cache."""
        rows = node.n if self._gathers else min(node.n, ROWS)
        step = max(1, min(sums.CACHED // max(1, bins * entries), sums.BUDGET // max(1, rows)))
        for first in range(0, columns, step):
            yield slice(first, min(first + step, columns))

    def _bound_inside(self, part: NodeColumns, least: Tensor) -> Tensor:
        """Lower bound of the scores of all cuts inside bins, for every column."""
        bound = self.criterion.within(part.node, least, part.features[:, None])
        assert bound is not None
        if len(part.node.centers):
            centers = part.centers()
            low, high = centers.amin(1), centers.amax(1)
        else:
            low, high = part.ends()
        place = torch.arange(part.view.bins, device=bound.device)
        outside = (place < low[:, None]) | (place > high[:, None])
        return bound.to(torch.float64).masked_fill(outside, torch.inf).amin(1).where(part.width > 1, torch.inf)


def _summed(node: Node, stored: StoredSums | None) -> tuple[Tensor, Tensor | None]:
    """Elements that are summed, and the groups that are summed separately."""
    return (node.rows, None) if stored is None else (stored.elements, stored.groups)


def _groups(statistics: Sequence[Statistic], node: Node) -> list[tuple[Statistic, Tensor | None]]:
    """Every statistic with the groups that it sums separately."""
    return [
        (s, None if stored is None else stored.groups) for s, stored in zip(statistics, node.stored, strict=True)
    ]
