"""CLTree: clustering by a classification tree that separates the points from uniformly distributed ones."""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import Any

from neonxc.trees.baselines.unsupervised import UnsupervisedTree
from neonxc.trees.criteria.empty_space import EmptySpace
from neonxc.trees.parameters import explainer
from neonxc.trees.problem import Node, Problem


@explainer(
    n_clusters="""int, optional
    Maximum number of clusters. Default: every leaf is a cluster.""",
    max_leaves="""int, optional
    Maximum number of leaves after pruning; the cuts made first, which gain most, are kept. Default:
    `n_clusters`.""",
    min_y="""float in [0, 1]
    Nodes with a smaller fraction of the points are not cut.""",
    min_rd="""float
    Minimum relative density of a dense region. Two leaves of the same parent are merged if both have more than
    this number of data points per uniform point; uniform points in the gap between the leaves count for both.
    Greater values keep more leaves.""",
    random_state="ignored",
)
class CLTree(UnsupervisedTree):
    """Clustering through decision tree construction (CLTree).

    The tree separates dense regions from empty ones: it is a classification tree for the data points against a
    second class of points that are distributed uniformly. It is a baseline that needs no reference clustering; its
    leaves are the clusters. If labels or centers are passed to `fit`, the same tree is grown, and each leaf is
    assigned to the reference cluster for which the cost of its points is lowest.

    Attributes
    ----------
    tree_, labels_, cluster_centers_, inertia_
        As for :class:`IMM`.

    Notes
    -----
    The uniform points are not drawn. Their expected number in a part of a node is proportional to the part's
    length along the column that is cut. A node has the uniform points that it inherits from its parent, or as many
    as it has data points if that is more. The published tree needs two cuts, found by looking ahead, for the two
    ends of an empty gap. This tree makes one cut in the middle of the gap and scores it by the information in the
    two regions beside the gap.

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

    n_clusters: int | None = None  # type: ignore[assignment]
    _: KW_ONLY
    max_leaves: int | None = None
    min_y: float = 0.05
    min_rd: float = 0.6
    random_state: Any = None

    def _most_leaves(self) -> int | None:
        return self.n_clusters if self.max_leaves is None else self.max_leaves

    def _criterion(self, problem: Problem) -> EmptySpace:
        return EmptySpace(problem, self.min_y)

    def _should_merge(self, problem: Problem, criterion: Any, left: Node, right: Node) -> bool:
        return all(leaf.mass > self.min_rd * criterion.around[leaf.id] for leaf in (left, right))
