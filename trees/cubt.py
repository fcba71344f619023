"""Unsupervised binary trees: cuts that lower the deviance of points from their mean; then leaves are joined."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from neonxc.parameters import check_number
from neonxc.trees.criteria.deviance import Deviance
from neonxc.trees.problem import Node, Problem
from neonxc.trees.sums import BUDGET
from neonxc.trees.unguided import UnguidedTree


class CUBT(UnguidedTree):
    """Cluster by a tree of least deviance; prune and join leaves that lie close together.

    A baseline that needs no reference clustering. If `fit` gets labels or centers, the same tree is grown and
    pruned; then its leaves are not joined, but take the reference cluster whose center costs their points least.

    Parameters
    ----------
    n_clusters : int or None
        Leaves are joined until there are so many clusters; None: they are not joined. There are fewer clusters if
        the tree has fewer leaves.
    max_leaves : int, optional
        Only the first cuts, which gain most, are kept. Default: all that pruning leaves.
    min_size : float
        Nodes of fewer points (or less weight) are not cut.
    min_dev : float in [0, 1]
        A cut has to lower the deviance by this share of the deviance of all points.
    min_dist : float
        Leaves of one parent become one if they are less dissimilar than this, in the units of the columns.
    delta : float in (0, 1]
        How dissimilar two leaves are: the mean distance of a leaf's points to the nearest point of the other leaf,
        over the share `delta` of points that are nearest; the greater of both ways.
    random_state : ignored

    Attributes
    ----------
    tree_, labels_, cluster_centers_, inertia_
        As for :class:`IMM`.

    Notes
    -----
    A cut of n points into L and R lowers their deviance, n times the trace of their covariance, by
    ``|S|^2 n / (n_L n_R)``, where S sums the differences of L's points from the mean of all n: prefix sums again,
    in O(n d) per column.

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

    def __init__(
        self,
        n_clusters: int | None = 8,
        *,
        max_leaves: int | None = None,
        min_size: float = 10,
        min_dev: float = 0.001,
        min_dist: float = 0.3,
        delta: float = 0.2,
        random_state: Any = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.max_leaves = max_leaves
        self.min_size = min_size
        self.min_dev = min_dev
        self.min_dist = min_dist
        self.delta = delta
        self.random_state = random_state

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_number("min_size", self.min_size)
        check_number("min_dev", self.min_dev, most=1)
        check_number("min_dist", self.min_dist)
        check_number("delta", self.delta, most=1)
        if self.delta == 0:
            raise ValueError("delta needs a number in (0, 1], got 0")

    def _criterion(self, problem: Problem) -> Deviance:
        return Deviance(problem, self.min_size, self.min_dev)

    def _alike(self, problem: Problem, criterion: Any, left: Node, right: Node) -> bool:
        for here, there in ((left, right), (right, left)):
            near = nearest(problem.points(here.rows), problem.points(there.rows))
            if mean_of_least(near[:, None], problem.weights(here.rows), self.delta) >= self.min_dist:
                return False
        return True

    def _own_clusters(self, problem: Problem, leaves: list[Node]) -> list[int]:
        return joined(problem, [leaf.rows for leaf in leaves], self.n_clusters or len(leaves), self.delta)


def joined(problem: Problem, rows: list[Tensor], n_clusters: int, delta: float) -> list[int]:
    """Join the two least dissimilar leaves until `n_clusters` are left; return the cluster of every leaf."""
    clusters, rows = [[leaf] for leaf in range(len(rows))], list(rows)
    points = problem.points(torch.arange(problem.table.n, device=problem.device))
    near = torch.stack([nearest(points, points[own]) for own in rows], 1)  # from every point to every cluster

    def way(own: Tensor, to: Tensor) -> Tensor:
        return mean_of_least(near[own][:, to], problem.weights(own), delta)

    ways = torch.stack([way(own, torch.arange(len(rows))) for own in rows])
    while len(rows) > n_clusters:
        both = torch.maximum(ways, ways.T).fill_diagonal_(torch.inf).flatten()
        place = int((both <= both.min() * (1 + 1e-9)).to(torch.uint8).argmax())  # of equals, the first pair
        one, other = place // len(rows), place % len(rows)  # one < other
        clusters[one] += clusters.pop(other)
        rows[one] = torch.cat([rows[one], rows.pop(other)])
        near[:, one] = torch.minimum(near[:, one], near[:, other])
        kept = torch.tensor([cluster for cluster in range(len(rows) + 1) if cluster != other])
        near, ways = near[:, kept], ways[kept][:, kept]
        ways[one] = way(rows[one], torch.arange(len(rows)))
        ways[:, one] = torch.cat([way(own, torch.tensor([one])) for own in rows])
    return [k for leaf in range(sum(map(len, clusters))) for k, own in enumerate(clusters) if leaf in own]


def nearest(here: Tensor, there: Tensor) -> Tensor:
    """The distance of every point [n, d] to the nearest of other points [m, d], [n]."""
    parts = here.split(max(1, BUDGET // len(there)))
    mode = "donot_use_mm_for_euclid_dist"  # equal points have a distance of 0
    return torch.cat([torch.cdist(part, there, compute_mode=mode).amin(1) for part in parts])


def mean_of_least(values: Tensor, weight: Tensor | None, share: float) -> Tensor:
    """Mean of the least share of every column of `values` [n, m], weighted, [m]."""
    ordered, order = values.sort(dim=0)
    mass = torch.ones_like(values) if weight is None else weight[order]
    most = share * mass.sum(0)
    taken = torch.minimum((most - mass.cumsum(0) + mass).clamp_(min=0), mass)
    return (taken * ordered).sum(0) / most
