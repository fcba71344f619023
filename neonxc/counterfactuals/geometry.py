"""Clusters as unions of convex pieces of the space of a head, whose neurons are linear in the raw columns."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, product
from math import prod

import torch
from torch import Tensor

from neonxc.common.sizes import MAX_PIECES
from neonxc.head import Head
from neonxc.head.competition import Path
from neonxc.head.grouping import UnionOfIntervals


@dataclass(frozen=True)
class Pieces:
    """P polyhedra of the input space, bounded by the neurons ``a_1 ... a_M`` of a head.

    A point is in piece p if ``signs_pm a_m >= 0`` for all m with a sign; with `reference`, if
    ``a_m >= a_reference``.

    Attributes
    ----------
    cluster : Tensor [P] of int64
        Column of the cluster that each piece belongs to.
    signs : Tensor [P, M]
        1 or -1, or 0 for neurons that do not bound the piece.
    reference : Tensor [P] of int64, or None
        The neuron that the others are compared with; their signs are then 1.
    """

    cluster: Tensor
    signs: Tensor
    reference: Tensor | None = None

    def contrasts(self, neurons: Tensor, piece: Tensor) -> Tensor:
        """Compute the functions [n, M] that bound one piece [n] per point; infinite for neurons that do not."""
        signs = self.signs[piece].to(neurons)
        if self.reference is not None:
            neurons = neurons - neurons.gather(1, self.reference[piece][:, None])
        return torch.where(signs == 0, torch.inf, signs * neurons)

    def slopes(self, slopes: Tensor, piece: Tensor) -> Tensor:
        """Compute the gradients [n, M, d] of the contrasts from those of the neurons, [M, d]."""
        if self.reference is not None:
            slopes = slopes - slopes[self.reference[piece]][:, None]
        return self.signs[piece].to(slopes)[:, :, None] * slopes


def pieces_of(head: Head) -> Pieces:
    """Return the clusters as unions of pieces."""
    if isinstance(head.competition, Path):
        leaves = Pieces(head.competition.leaves, head.competition.signs)
        if isinstance(head.grouping, UnionOfIntervals):
            return _of_edges(head.grouping, leaves)
        return leaves

    # one piece per neuron, where it is the least of all
    reference = torch.arange(len(head.groups), device=head.groups.device)
    return Pieces(head.groups, (head.groups != head.groups[:, None]).to(torch.int8), reference)


def slopes_of(head: Head) -> Tensor | None:
    """Return the gradients [M, d] of the neurons; None if clusters are not bounded by neurons linear in x."""
    if head.grouping is not None and head.grouping.mixes:
        return None
    return head.detection.slopes()


def _of_edges(grouping: UnionOfIntervals, pieces: Pieces) -> Pieces:
    """Split the pieces of tests into pieces of edges: one per combination of intervals inside or outside.

    Raises
    ------
    ValueError
        There are more than 16,384 combinations.
    """
    inside: list[list[list[int]]] = [[] for _ in range(grouping.n_groups)]  # the edges of each test's intervals
    for interval, test in enumerate(grouping.tests.tolist()):
        inside[test].append((grouping.intervals == interval).nonzero()[:, 0].tolist())
    # A point is inside a test's intervals if it is between all edges of one interval, and outside of them if it is
    # outside of one edge of every interval.
    outside = [[[*choice] for choice in product(*edges)] for edges in inside]
    sides = {1: inside, -1: outside}

    split: list[tuple[Tensor, Tensor]] = []
    for cluster, signs in zip(pieces.cluster, pieces.signs, strict=True):
        choices = [sides[sign][test] for test, sign in enumerate(signs.tolist()) if sign]
        if len(split) + prod(map(len, choices)) > MAX_PIECES:
            raise ValueError(f"the tree's interval tests split its clusters into more than {MAX_PIECES} pieces")
        for choice in product(*choices):
            edges = [*chain(*choice)]
            row = torch.zeros_like(grouping.groups, dtype=torch.int8)
            row[edges] = signs[grouping.groups[edges]]
            split.append((cluster, row))
    return Pieces(*map(torch.stack, zip(*split, strict=True)))
