"""CUBT: clustering by an unsupervised binary tree, whose similar leaves are joined at the end."""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import Any

import torch
from torch import Tensor

from neonxc.trees.baselines.unsupervised import UnsupervisedTree
from neonxc.trees.columns.sums import BUDGET
from neonxc.trees.criteria.deviance import Deviance
from neonxc.trees.parameters import explainer
from neonxc.trees.problem import Node, Problem


@explainer(
    n_clusters="""int or None
    Leaves are joined until this number of clusters is reached. With None, leaves are not joined. There are fewer
    clusters if the tree has fewer leaves.""",
    max_leaves="""int, optional
    Maximum number of leaves after pruning; the cuts made first, which gain most, are kept. Default: no limit.""",
    min_size="""float
    Nodes with fewer points (or less weight) are not cut.""",
    min_dev="""float in [0, 1]
    Minimum decrease of the deviance by a cut, as a fraction of the deviance of all points.""",
    min_dist="""float
    Two leaves of the same parent are merged if their dissimilarity is below this value, which is in the units of
    the columns.""",
    delta="""float in (0, 1]
    Fraction of points used for the dissimilarity of two leaves A and B: the mean distance to the nearest point of
    B over the `delta` closest points of A, or the same with A and B exchanged, whichever is greater.""",
    random_state="ignored",
)
class CUBT(UnsupervisedTree):
    """Clustering using unsupervised binary trees (CUBT).

    The tree grows by cuts that reduce the deviance of the points from their mean. It is then pruned, and leaves
    that are close to each other are joined into clusters. It is a baseline that needs no reference clustering. If
    labels or centers are passed to `fit`, the same tree is grown and pruned, but instead of being joined, each
    leaf is assigned to the reference cluster for which the cost of its points is lowest.

    Attributes
    ----------
    tree_, labels_, cluster_centers_, inertia_
        As for :class:`IMM`.

    Notes
    -----
    The deviance of n points is n times the trace of their covariance. A cut into L and R lowers it by
    ``|S|^2 n / (n_L n_R)``, where S is the sum over the points of L of their differences from the mean of all n
    points. Prefix sums give S for all cuts of a column in O(n d).

    References
    ----------
    .. [1] R. Fraiman, B. Ghattas, M. Svarc, "Interpretable clustering using unsupervised binary trees", Advances
       in Data Analysis and Classification, 2013.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from neonxc.trees import CUBT
    >>> CUBT(n_clusters=3).fit(load_iris().data).tree_
    ThresholdTree(3 leaves, depth 2, 4 features)
    """

    n_clusters: int | None = 8  # type: ignore[assignment]
    _: KW_ONLY
    max_leaves: int | None = None
    min_size: float = 10
    min_dev: float = 0.001
    min_dist: float = 0.3
    delta: float = 0.2
    random_state: Any = None

    def _criterion(self, problem: Problem) -> Deviance:
        return Deviance(problem, self.min_size, self.min_dev)

    def _should_merge(self, problem: Problem, criterion: Any, left: Node, right: Node) -> bool:
        for leaf, sibling in ((left, right), (right, left)):
            distances = nearest_distances(problem.points(leaf.rows), problem.points(sibling.rows))
            if mean_of_smallest(distances[:, None], problem.weights(leaf.rows), self.delta) >= self.min_dist:
                return False
        return True

    def _own_clusters(self, problem: Problem, leaves: list[Node]) -> list[int]:
        return join_leaves(problem, [leaf.rows for leaf in leaves], self.n_clusters or len(leaves), self.delta)


def join_leaves(problem: Problem, rows: list[Tensor], n_clusters: int, delta: float) -> list[int]:
    """Join the two most similar clusters until `n_clusters` are left; return the cluster of every leaf."""
    clusters, rows = [[leaf] for leaf in range(len(rows))], list(rows)
    points = problem.points(torch.arange(problem.table.n, device=problem.device))
    distances = torch.stack([nearest_distances(points, points[own]) for own in rows], 1)  # [points, clusters]

    def one_sided(own: Tensor, others: Tensor) -> Tensor:
        return mean_of_smallest(distances[own][:, others], problem.weights(own), delta)

    dissimilarity = torch.stack([one_sided(own, torch.arange(len(rows))) for own in rows])
    while len(rows) > n_clusters:
        greater = torch.maximum(dissimilarity, dissimilarity.T).fill_diagonal_(torch.inf).flatten()
        place = int((greater <= greater.min() * (1 + 1e-9)).to(torch.uint8).argmax())  # ties: the first pair
        one, other = place // len(rows), place % len(rows)  # one < other
        clusters[one] += clusters.pop(other)
        rows[one] = torch.cat([rows[one], rows.pop(other)])
        distances[:, one] = torch.minimum(distances[:, one], distances[:, other])
        kept = torch.tensor([cluster for cluster in range(len(rows) + 1) if cluster != other])
        distances, dissimilarity = distances[:, kept], dissimilarity[kept][:, kept]
        dissimilarity[one] = one_sided(rows[one], torch.arange(len(rows)))
        dissimilarity[:, one] = torch.cat([one_sided(own, torch.tensor([one])) for own in rows])
    return [k for leaf in range(sum(map(len, clusters))) for k, own in enumerate(clusters) if leaf in own]


def nearest_distances(points: Tensor, others: Tensor) -> Tensor:
    """Distance of every point [n, d] to the nearest of the others [m, d], [n]."""
    parts = points.split(max(1, BUDGET // len(others)))
    mode = "donot_use_mm_for_euclid_dist"  # so that the distance of equal points is exactly 0
    return torch.cat([torch.cdist(part, others, compute_mode=mode).amin(1) for part in parts])


def mean_of_smallest(values: Tensor, weight: Tensor | None, share: float) -> Tensor:
    """Weighted mean of the smallest values, which make up a share of the weight, of each column of [n, m]; [m]."""
    ordered, order = values.sort(dim=0)
    mass = torch.ones_like(values) if weight is None else weight[order]
    most = share * mass.sum(0)
    taken = torch.minimum((most - mass.cumsum(0) + mass).clamp_(min=0), mass)
    return (taken * ordered).sum(0) / most
