"""Sums that are kept from a node to its children, so that only the smaller child's are added up anew."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

import neonxc.trees.sums as sums
from neonxc.trees.codes import Block
from neonxc.trees.long_view import LongView
from neonxc.trees.problem import Node, Problem
from neonxc.trees.statistics import Statistic
from neonxc.trees.views import DenseView, View

SMALL, ROOM = 1 << 17, 3  # entries of kept sums: always few enough, and for every code of the table


@dataclass
class Kept:
    """A statistic's sums of a node, from which its children's are told.

    Attributes
    ----------
    statistic : Statistic
    elements : Tensor
        Points or edges that are added up.
    groups : Tensor or None
        What is summed apart: rows of `terms`.
    terms : dict of int to Tensor [f, groups, bins]
        By block of columns.
    """

    statistic: Statistic
    elements: Tensor
    groups: Tensor | None
    terms: dict[int, Tensor]

    def of(self, elements: Tensor, groups: Tensor | None) -> Kept:
        """The same statistic, of a child, without its sums."""
        return Kept(self.statistic, elements, groups, {})


def view_of(problem: Problem, node: Node, number: int) -> View:
    """A block of columns, with the codes of a node's points at hand once they were asked for."""
    if number not in node.views:
        node.views[number] = fresh_view(problem, number)
    view: View = node.views[number]
    return view


def fresh_view(problem: Problem, number: int) -> View:
    """A block of columns."""
    block = problem.dense.blocks[number]
    if block.long is not None:
        return LongView(block.long, block.centers, block.n_bins)
    return DenseView(block.by_point, block.by_column, block.centers, block.n_bins, not block.exact)


def worth_keeping(problem: Problem, block: Block, kept: Kept) -> bool:
    """Whether sums are so few that they are kept."""
    most = min(sums.BUDGET, max(SMALL, ROOM * len(block.features) * problem.n_total))
    return len(block.features) * block.n_bins * kept.statistic.entries(kept.groups) <= most


def divided(
    problem: Problem, kept: Kept, left: Tensor, centers_left: Tensor, children: tuple[Node, Node]
) -> tuple[Kept, Kept]:
    """What the children keep.

    Parameters
    ----------
    left : Tensor [n] of bool
        Whether a point goes left.
    centers_left : Tensor [k] of bool
        Whether a center does.
    """
    *own, gone = kept.statistic.divided(kept.elements, left, centers_left, children)
    if kept.statistic.by_center:
        return _by_center(problem, kept, (own[0], own[1]), gone, centers_left)
    if not kept.terms:  # nothing is kept but what is added up
        groups = [kept.statistic.groups(child) for child in children]
        return kept.of(own[0], groups[0]), kept.of(own[1], groups[1])
    small, large = sorted((0, 1), key=lambda child: children[child].mass)
    parts = kept.of(own[0], kept.groups), kept.of(own[1], kept.groups)
    for number, terms in kept.terms.items():
        view = view_of(problem, children[small], number)
        few = problem.reduce(kept.statistic.terms(view, own[small], kept.groups))
        rest = _without(problem, kept, number, terms.sub_(few), gone)
        parts[small].terms[number], parts[large].terms[number] = few, rest
    return _with_groups_left(parts[0], children[0]), _with_groups_left(parts[1], children[1])


def _by_center(
    problem: Problem, kept: Kept, own: tuple[Tensor, Tensor], gone: Tensor | None, centers_left: Tensor
) -> tuple[Kept, Kept]:
    """Sums by center: each child has those of its centers, less what neither child has."""
    assert kept.groups is not None
    side = centers_left.index_select(0, kept.groups)
    places = side.nonzero()[:, 0], (~side).nonzero()[:, 0]
    one, other = (kept.of(rows, kept.groups.index_select(0, at)) for rows, at in zip(own, places, strict=True))
    for number, terms in kept.terms.items():
        rest = _without(problem, kept, number, terms, gone)
        one.terms[number], other.terms[number] = (rest.index_select(1, place) for place in places)
    return one, other


def _without(problem: Problem, kept: Kept, number: int, terms: Tensor, gone: Tensor | None) -> Tensor:
    """Take off the sums of elements that neither child has."""
    if gone is None or not (len(gone) or problem.sharded):
        return terms
    return terms.sub_(problem.reduce(kept.statistic.terms(fresh_view(problem, number), gone, kept.groups)))


def _with_groups_left(kept: Kept, child: Node) -> Kept:
    """Leave out the clusters that a child has no points of, and tell it which it has."""
    if kept.groups is None:
        return kept
    mass, groups = next(iter(kept.terms.values()))[0, :, -1].to(torch.float64), kept.groups
    if not min(mass.tolist(), default=1) > 0:
        there = (mass > 0).nonzero()[:, 0]
        groups, mass = groups.index_select(0, there), mass.index_select(0, there)
        terms = {number: own.index_select(1, there) for number, own in kept.terms.items()}
        kept = replace(kept, groups=groups, terms=terms)
    child.clusters = groups, mass
    return kept
