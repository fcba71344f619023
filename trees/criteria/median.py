"""The median of the column of greatest variance: the KD-tree."""

from __future__ import annotations

import torch

from neonxc.trees.problem import Cut, Node, Problem


class Median:
    """Halve a node at the median of its column of greatest variance; the largest node comes first.

    Parameters
    ----------
    problem : Problem
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.unit = torch.ones(problem.table.d, dtype=torch.float64, device=problem.device)
        if problem.space is not problem.table:  # costs are measured elsewhere: columns count by their spread
            self.unit = problem.table.variances(problem.root().rows, problem.weight)

    def bound(self, node: Node) -> float:
        """The points of the node."""
        return self.problem.mass(node.rows) if len(node.rows) > 1 else 0.0

    def best(self, node: Node) -> tuple[float, int, int] | None:
        """The column and code of the cut nearest to the median; None where all points are equal."""
        variances = self.problem.table.variances(node.rows, self.problem.weight) / self.unit
        variances = variances.nan_to_num(nan=0.0)
        equal = variances >= variances.max() * (1 - 1e-12)  # but for rounding; the first one wins
        feature = int(equal.to(torch.uint8).argmax())
        codes = self.problem.columns.codes[feature].index_select(0, node.rows).to(torch.int64)
        mass = torch.bincount(codes, self.problem.weights(node.rows)).to(torch.float64)
        up_to = mass.cumsum(0)
        off = (2 * up_to - up_to[-1]).abs().masked_fill_((up_to <= 0) | (up_to >= up_to[-1]), torch.inf)
        if not bool(off.isfinite().any()):
            return None
        return self.problem.mass(node.rows), feature, int(off.argmin())

    def split(self, node: Node, cut: Cut, children: tuple[Node, Node]) -> None:
        """Nothing to hand on."""
