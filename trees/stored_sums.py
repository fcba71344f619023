"""Sums that are stored with a node: its larger child's sums are the node's minus those of the smaller child."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

import neonxc.trees.sums as sums
from neonxc.trees.chunked_view import ChunkedView
from neonxc.trees.codes import ColumnBlock
from neonxc.trees.node import Node
from neonxc.trees.problem import Problem
from neonxc.trees.statistics import Statistic
from neonxc.trees.views import DenseView, View

SMALL, ROOM = 1 << 17, 3  # sums are stored up to SMALL entries, or ROOM entries per code of the table


@dataclass
class StoredSums:
    """The sums of a statistic over a node.

    Attributes
    ----------
    statistic : Statistic
    elements : Tensor
        Points or edges that are summed.
    groups : Tensor or None
        Groups that are summed separately, the rows of `terms`.
    terms : dict of int to Tensor [f, groups, bins]
        The stored sums for every block of columns.
    """

    statistic: Statistic
    elements: Tensor
    groups: Tensor | None
    terms: dict[int, Tensor]

    def for_child(self, elements: Tensor, groups: Tensor | None) -> StoredSums:
        """An entry of the same statistic for a child, without sums yet."""
        return StoredSums(self.statistic, elements, groups, {})


def cached_view(problem: Problem, node: Node, number: int) -> View:
    """View of a block of columns, which is created once per node and caches the codes of the node's points."""
    if number not in node.views:
        node.views[number] = new_view(problem, number)
    view: View = node.views[number]
    return view


def new_view(problem: Problem, number: int) -> View:
    """View of a block of columns, without cached codes."""
    block = problem.dense.blocks[number]
    if block.row_major is not None:
        return ChunkedView(block.row_major, block.centers, block.n_bins)
    return DenseView(block.by_point, block.by_column, block.centers, block.n_bins, not block.exact)


def worth_storing(problem: Problem, block: ColumnBlock, stored: StoredSums) -> bool:
    """Whether the sums take little enough memory to be stored."""
    most = min(sums.BUDGET, max(SMALL, ROOM * len(block.features) * problem.n_total))
    return len(block.features) * block.n_bins * stored.statistic.entries(stored.groups) <= most


def split_sums(
    problem: Problem, stored: StoredSums, left: Tensor, centers_left: Tensor, children: tuple[Node, Node]
) -> tuple[StoredSums, StoredSums]:
    """Divide the sums of a node between its two children.

    Parameters
    ----------
    left : Tensor [n] of bool
        Whether each point goes left.
    centers_left : Tensor [k] of bool
        Whether each center goes left.
    """
    *own, gone = stored.statistic.divided(stored.elements, left, centers_left, children)
    if stored.statistic.by_center:
        return _split_by_center(problem, stored, (own[0], own[1]), gone, centers_left)
    if not stored.terms:  # no sums are stored
        groups = [stored.statistic.groups(child) for child in children]
        return stored.for_child(own[0], groups[0]), stored.for_child(own[1], groups[1])
    small, large = sorted((0, 1), key=lambda child: children[child].mass)
    parts = stored.for_child(own[0], stored.groups), stored.for_child(own[1], stored.groups)
    for number, terms in stored.terms.items():
        view = cached_view(problem, children[small], number)
        few = problem.reduce(stored.statistic.terms(view, own[small], stored.groups))
        rest = _subtract_lost(problem, stored, number, terms.sub_(few), gone)
        parts[small].terms[number], parts[large].terms[number] = few, rest
    return _drop_empty_groups(parts[0], children[0]), _drop_empty_groups(parts[1], children[1])


def _split_by_center(
    problem: Problem, stored: StoredSums, own: tuple[Tensor, Tensor], gone: Tensor | None, centers_left: Tensor
) -> tuple[StoredSums, StoredSums]:
    """Divide sums by center: each child gets the rows of its centers, minus elements that are in neither child."""
    assert stored.groups is not None
    side = centers_left.index_select(0, stored.groups)
    places = side.nonzero()[:, 0], (~side).nonzero()[:, 0]
    one, other = (
        stored.for_child(rows, stored.groups.index_select(0, at)) for rows, at in zip(own, places, strict=True)
    )
    for number, terms in stored.terms.items():
        rest = _subtract_lost(problem, stored, number, terms, gone)
        one.terms[number], other.terms[number] = (rest.index_select(1, place) for place in places)
    return one, other


def _subtract_lost(
    problem: Problem, stored: StoredSums, number: int, terms: Tensor, gone: Tensor | None
) -> Tensor:
    """Subtract the sums of elements that are in neither child."""
    if gone is None or not (len(gone) or problem.sharded):
        return terms
    return terms.sub_(problem.reduce(stored.statistic.terms(new_view(problem, number), gone, stored.groups)))


def _drop_empty_groups(stored: StoredSums, child: Node) -> StoredSums:
    """Drop the clusters of which a child has no points, and set its clusters."""
    if stored.groups is None:
        return stored
    mass, groups = next(iter(stored.terms.values()))[0, :, -1].to(torch.float64), stored.groups
    if not min(mass.tolist(), default=1) > 0:
        present = (mass > 0).nonzero()[:, 0]
        groups, mass = groups.index_select(0, present), mass.index_select(0, present)
        terms = {number: own.index_select(1, present) for number, own in stored.terms.items()}
        stored = replace(stored, groups=groups, terms=terms)
    child.clusters = groups, mass
    return stored
