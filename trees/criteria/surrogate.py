"""The surrogate cost, with reference centers that stay where they are: ExKMC."""

from __future__ import annotations

import torch
from torch import Tensor

from neonxc.trees import sweep
from neonxc.trees.problem import Cut, Node, Problem

FEW = 1 << 18  # gains of a node, once per column: fewer are added up sooner than centers are left out


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
        """At most the gain of splitting the node: every point to its own nearest center, or to one of two."""
        gains, slack = self._gains(node.rows)
        k, d = self.problem.k, self.problem.table.d
        reach = _reach(gains) if k * len(node.rows) * d > FEW and k < 8 * d else None
        node.memory = gains, reach, slack
        gain = -float(gains.amin(1).sum() if reach is None else reach.min())
        return gain + slack if gain > slack else 0.0  # no less than the gain itself, for all rounding

    def best(self, node: Node) -> tuple[float, int, int] | None:
        """The best cut's gain, column and code; None where all points are equal.

        A leaf with points of another center may need two cuts before the cost falls; the first then gains nothing.
        """
        gains, reach, slack = node.memory
        node.memory = None
        some = (gains < 0).any(0)  # other centers can't be a leaf's best one
        rest = None if reach is None else some & (reach > reach.min() + slack)
        first = gains[:, some if rest is None else some & ~rest].T.contiguous()
        best: tuple[float, int, int] | None = None
        for start, codes, original in sweep.node_codes(self.problem, node, len(first)):
            bins = int(codes.max()) + 1
            place = torch.arange(bins, device=codes.device)
            outside = (place < codes.amin(1, keepdim=True)) | (place >= codes.amax(1, keepdim=True))
            left, right = _sides(codes, bins, first)
            if rest is not None:  # only centers that some cut may need to become better than those known
                least = float((left + right).masked_fill_(outside, torch.inf).min())
                more = rest & (reach <= (least if best is None else min(least, best[0])) + 2 * slack)
                if bool(more.any()):
                    others = _sides(codes, bins, gains[:, more].T.contiguous())
                    left, right = torch.minimum(left, others[0]), torch.minimum(right, others[1])
            score = left.add_(right).masked_fill_(outside, torch.inf)
            row, code, least = sweep.first_minimum(score, slack)
            if least < (torch.inf if best is None else best[0] - slack):
                best = (least, row + start, code if original is None else int(original[row, code]))
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


def _reach(gains: Tensor) -> Tensor:
    """What a cut scores at least if it makes a center a side's best one, [centers].

    The sides have two best centers, and every point at most the lesser of its two gains: half of what their sum
    exceeds their distance by.
    """
    total = gains.sum(0)
    one, other = torch.triu_indices(len(total), len(total), 1, device=gains.device)
    least = total[one] + total[other] - torch.nn.functional.pdist(gains.T, 1)
    reach = torch.full_like(total, torch.inf)
    return reach.scatter_reduce_(0, one, least, "amin").scatter_reduce_(0, other, least, "amin") / 2


def _sides(codes: Tensor, bins: int, gains: Tensor) -> tuple[Tensor, Tensor]:
    """What each side of every cut gains at the best of some centers, [f, bins]."""
    left = sweep.channels(codes, bins, gains).cumsum_(2)
    right = left[..., -1:] - left
    return left.amin(1).clamp_(max=0), right.amin(1).clamp_(max=0)
