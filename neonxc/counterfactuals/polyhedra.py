"""Counterfactuals of clusters that are unions of polyhedra: nearest centers, linear layers, hierarchies."""

from __future__ import annotations

import torch
from torch import Tensor

from neonxc.common.memory import at_once
from neonxc.counterfactuals.projection import shortest
from neonxc.counterfactuals.search import MOST_NODES, MOST_NUMBERS, Found, Nodes, roots, search
from neonxc.counterfactuals.task import Task
from neonxc.head import Head
from neonxc.head.grouping import Pieces

COPIES = 6  # copies of a node's half-spaces in memory while it is solved


class Polyhedra:
    """The clusters of a head whose contrasts are linear in the raw columns.

    Parameters
    ----------
    head : Head
    slopes : Tensor [M, d]
        From :meth:`~neonxc.head.Head.slopes`.
    """

    first_margin = 1e-9

    def __init__(self, head: Head, slopes: Tensor) -> None:
        self.head, self.values, self.pieces = head, slopes.double(), head.pieces()

    @property
    def room(self) -> int:
        """Number of points that fit into memory at once."""
        return at_once(8 * COPIES * (self.values.numel() + len(self.pieces.cluster)), self.values.device)

    def nearest(self, task: Task, margin: Tensor) -> Found:
        """Find the nearest points that are inside a piece of the target by a margin [n], in units of `spread`."""
        values = self.head.compared(task.x)
        slopes = self.values * task.spread
        starts = pairs(self.pieces, task.wanted)

        def half_spaces(point: Tensor, piece: Tensor) -> tuple[Tensor, Tensor]:
            contrasts = self.pieces.contrasts(values[point], piece)
            return normalised(contrasts, self.pieces.slopes(slopes, piece), margin[point])

        def solve(nodes: Nodes) -> tuple[Tensor, Tensor, Tensor]:
            u, found, _ = shortest(*half_spaces(nodes.point, nodes.piece), nodes.low, nodes.high)
            return u, found, found

        if len(starts[0]) == len(task.x):  # one piece per point: no bounds are needed
            bound = torch.zeros_like(margin)
        else:
            bound = self._bounds(task, values, slopes, *starts)
        most = min(MOST_NODES, MOST_NUMBERS // max(1, slopes.numel()))
        return search(task, roots(task, *starts, bound), solve, self.room, most + most_pieces(starts[0]), True)

    def _bounds(self, task: Task, values: Tensor, slopes: Tensor, point: Tensor, piece: Tensor) -> Tensor:
        """The distance [m] from the farthest half-space, if no more columns may change than allowed."""
        pieces, place = piece.unique(return_inverse=True)
        lengths = []
        for part in pieces.split(self.room):
            square = self.pieces.slopes(slopes, part).square().masked_fill(task.fixed, 0.0)
            few = square if task.most is None else square.topk(min(task.most, square.shape[2]), dim=2).values
            lengths.append(few.sum(dim=2).sqrt())
        length = torch.cat(lengths)
        rows = self.room * slopes.shape[1]
        parts = zip(*(index.split(rows) for index in (point, piece, place)), strict=True)
        far = [
            (-self.pieces.contrasts(values[i], p) / length[at]).nan_to_num(0.0, torch.inf) for i, p, at in parts
        ]
        return torch.cat([distance.amax(dim=1).clamp(min=0) for distance in far])


def most_pieces(point: Tensor) -> int:
    """The largest number of pieces of a point, from the points of all pairs."""
    return int(torch.bincount(point, minlength=1).max())


def pairs(pieces: Pieces, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """All pairs of a point and a piece of its targets, as two index tensors."""
    point, piece = wanted[:, pieces.cluster].nonzero(as_tuple=True)
    return point, piece


def normalised(contrasts: Tensor, slopes: Tensor, margin: Tensor) -> tuple[Tensor, Tensor]:
    """Half-spaces ``normals u <= limits`` where contrasts [n, M] with gradients [n, M, d] exceed a margin [n]."""
    length = torch.linalg.vector_norm(slopes, dim=2)
    flat = length == 0
    length = torch.where(flat, 1.0, length)
    limits = contrasts / length - margin[:, None]
    limits = torch.where(flat, torch.where(contrasts >= 0, torch.inf, -1.0), limits)
    return -slopes / length[:, :, None], limits
