"""The surrogate cost, with reference centers that stay where they are: ExKMC."""

from __future__ import annotations

import torch
from torch import Tensor

from neonxc.trees import sweep
from neonxc.trees.problem import Cut, Node, Problem


class Surrogate:
    """The greatest decrease of the surrogate cost: every leaf costs what its best reference center does.

    Parameters
    ----------
    problem : Problem

    References
    ----------
    .. [1] N. Frost, M. Moshkovitz, C. Rashtchian, "ExKMC: Expanding explainable k-means clustering", 2020,
       Definition 1 and Algorithm 1.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.columns = problem.columns

    def bound(self, node: Node) -> float:
        """At most the gain of splitting the node: every point to its own nearest center."""
        gains, slack = node.memory = self._gains(node.rows)
        gain = float(-gains.amin(1).sum())
        return gain if gain > slack else 0.0

    def best(self, node: Node) -> tuple[float, int, int] | None:
        """The best cut's gain, column and code; None where all points are equal.

        A leaf with points of another center may need two cuts before the cost falls; the first then gains nothing.
        """
        gains, slack = node.memory
        node.memory = None
        gains = gains[:, (gains < 0).any(0)].T.contiguous()  # other centers can't be a leaf's best one
        best: tuple[float, int, int] | None = None
        for first, codes, original in sweep.node_codes(self.problem, node, len(gains)):
            bins = int(codes.max()) + 1
            left = sweep.channels(codes, bins, gains).cumsum_(2)
            right = left[..., -1:] - left
            score = left.amin(1).clamp_(max=0).add_(right.amin(1).clamp_(max=0))
            place = torch.arange(bins, device=codes.device)
            inside = (place >= codes.amin(1, keepdim=True)) & (place < codes.amax(1, keepdim=True))
            row, code, least = sweep.first_minimum(score.masked_fill_(~inside, torch.inf), slack)
            if least < (torch.inf if best is None else best[0] - slack):
                best = (least, row + first, code if original is None else int(original[row, code]))
        return None if best is None else (max(-best[0], 0.0), *best[1:])

    def split(self, node: Node, cut: Cut, children: tuple[Node, Node]) -> None:
        """Nothing to hand on."""

    def label(self, rows: Tensor) -> int:
        """The reference center at which some points cost least."""
        distances, weight = self.problem.distances.index_select(0, rows), self.problem.weights(rows)
        return int((distances.sum(0) if weight is None else weight @ distances).argmin())

    def _gains(self, rows: Tensor) -> tuple[Tensor, float]:
        """What points would cost more at each center than at the best one for all; what sums may be off by."""
        distances, weight = self.problem.distances.index_select(0, rows), self.problem.weights(rows)
        if weight is not None:
            distances = distances * weight[:, None]
        total = distances.sum(0)
        slack = 4 * (len(rows) + 1) * torch.finfo(torch.float64).eps * float(total.max())
        return distances - distances[:, total.argmin()[None]], slack
