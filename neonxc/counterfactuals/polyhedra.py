"""Clusters that are unions of polyhedra: nearest centers, linear layers, hierarchies."""

from __future__ import annotations

import torch
from torch import Tensor

from neonxc.blocks import at_once
from neonxc.counterfactuals.projection import shortest
from neonxc.counterfactuals.search import Found, Nodes, roots, search
from neonxc.counterfactuals.task import Task
from neonxc.head import Head
from neonxc.pieces import Pieces

COPIES = 6  # of the half-spaces of a node that solving it holds


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
        """How many points are worked on at once."""
        return at_once(8 * COPIES * (self.values.numel() + len(self.pieces.cluster)), self.values.device)

    def nearest(self, task: Task, margin: Tensor) -> Found:
        """The nearest points that are by a margin [n], in spreads, inside of a piece."""
        values = self.head.compared(task.x)
        slopes = self.values * task.spread
        starts = pairs(self.pieces, task.target)

        def half_spaces(point: Tensor, piece: Tensor) -> tuple[Tensor, Tensor]:
            contrasts = self.pieces.contrasts(values[point], piece)
            return normalised(contrasts, self.pieces.slopes(slopes, piece), margin[point])

        def solve(nodes: Nodes) -> tuple[Tensor, Tensor, Tensor]:
            u, found, _ = shortest(*half_spaces(nodes.point, nodes.piece), nodes.low, nodes.high)
            return u, found, found

        if len(starts[0]) == len(task.x):  # one piece each: nothing to choose from
            bound = torch.zeros_like(margin)
        else:
            parts = zip(*(index.split(self.room) for index in starts), strict=True)
            bound = torch.cat([(-half_spaces(*part)[1]).amax(dim=1).clamp(min=0) for part in parts])
        return search(task, roots(task, *starts, bound), solve, self.room)


def pairs(pieces: Pieces, target: Tensor) -> tuple[Tensor, Tensor]:
    """Points and the pieces of their targets."""
    point, piece = (pieces.cluster == target[:, None]).nonzero(as_tuple=True)
    return point, piece


def normalised(contrasts: Tensor, slopes: Tensor, margin: Tensor) -> tuple[Tensor, Tensor]:
    """Half-spaces ``normals u <= limits`` where contrasts [n, M] of slopes [n, M, d] are beyond a margin [n]."""
    length = torch.linalg.vector_norm(slopes, dim=2)
    flat = length == 0
    length = torch.where(flat, 1.0, length)
    limits = contrasts / length - margin[:, None]
    limits = torch.where(flat, torch.where(contrasts >= 0, torch.inf, -1.0), limits)
    return -slopes / length[:, :, None], limits
