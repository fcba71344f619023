"""Clustering as classification: cuts that tell points from empty space."""

from __future__ import annotations

from typing import Any

from neonxc.parameters import check_number
from neonxc.trees.criteria.empty_space import EmptySpace
from neonxc.trees.problem import Node, Problem
from neonxc.trees.unguided import UnguidedTree


class CLTree(UnguidedTree):
    """Cluster by a tree that separates dense regions, as if from a second class of points spread evenly.

    A baseline that needs no reference clustering: its leaves are clusters. If `fit` gets labels or centers, the
    same tree is grown, and its leaves take the reference cluster whose center costs their points least.

    Parameters
    ----------
    n_clusters : int, optional
        Most clusters. Default: as many as there are leaves.
    max_leaves : int, optional
        Only the first cuts, which gain most, are kept. Default: `n_clusters`.
    min_y : float in [0, 1]
        Nodes with a smaller share of the points are not cut.
    min_rd : float
        Two leaves of one parent become one if each has more points than this per uniform point, those in the gap
        between them counted with both. Greater values keep more leaves.
    random_state : ignored

    Attributes
    ----------
    tree_, labels_, cluster_centers_, inertia_
        As for :class:`IMM`.

    Notes
    -----
    Uniform points are counted, never drawn: a part of a node has its share of the node's side. A node has those
    that it gets from its parent, or as many as it has points, if these are more. Where the published tree needs
    two cuts for the two ends of an empty gap, and looks ahead for the second one, this tree counts both at once:
    what it gains by a cut is the information left, of points and uniform points up to the gap and beyond it. The
    threshold is in the middle of the gap.

    References
    ----------
    .. [1] B. Liu, Y. Xia, P. S. Yu, "Clustering through decision tree construction", CIKM 2000.

    Examples
    --------
    >>> import numpy as np
    >>> from neonxc.trees import CLTree
    >>> X = np.concatenate([np.linspace(0, 1, 50), np.linspace(9, 10, 50)])[:, None]
    >>> tree = CLTree().fit(X).tree_
    >>> tree, tree.threshold[0].item()
    (ThresholdTree(2 leaves, depth 1, 1 features), 5.0)
    """

    def __init__(
        self,
        n_clusters: int | None = None,
        *,
        max_leaves: int | None = None,
        min_y: float = 0.05,
        min_rd: float = 0.6,
        random_state: Any = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.max_leaves = max_leaves
        self.min_y = min_y
        self.min_rd = min_rd
        self.random_state = random_state

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_number("min_y", self.min_y, most=1)
        check_number("min_rd", self.min_rd)

    def _most_leaves(self) -> int | None:
        return self.n_clusters if self.max_leaves is None else self.max_leaves

    def _criterion(self, problem: Problem) -> EmptySpace:
        return EmptySpace(problem, self.min_y)

    def _alike(self, problem: Problem, criterion: Any, left: Node, right: Node) -> bool:
        return all(leaf.mass > self.min_rd * criterion.around[leaf.id] for leaf in (left, right))
