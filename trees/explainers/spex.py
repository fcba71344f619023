"""SpEx: trees whose cuts have low conductance in a graph on the points, so that few edges cross between leaves.

    conductance of a side S   weight of the edges that leave S / sum of the degrees of its points
    score of a cut            conductance of the left side + conductance of the right side
    gain of a leaf            its own conductance - the lowest score of its cuts (Eq. 4 of the paper)

The leaf of the largest gain is cut first. SpExClique has an edge between any two points of a reference cluster,
SpExKNN between nearest neighbors, and SpExGraph any edges.
"""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import Literal

from neonxc.common.types import ArrayLike, TableLike
from neonxc.data.table import Table
from neonxc.trees.criteria.criterion import Criterion
from neonxc.trees.criteria.labels import CliqueConductance, GraphConductance
from neonxc.trees.cuts.growth import Grown, best_first, label_leaves, root
from neonxc.trees.cuts.search import Search
from neonxc.trees.explainers.expanding import BestFirst, OwnClusters
from neonxc.trees.fit.problem import Problem
from neonxc.trees.fit.training_data import warn_of_repeated
from neonxc.trees.graph import Graph, as_graph, knn_graph
from neonxc.trees.parameters import AtLeastTwo, LeafLabels, explainer
from neonxc.trees.saving import register_explainer

NEIGHBORS = 20  # default number of neighbors, as in the paper's experiments


@register_explainer
@explainer(
    clique_weights="""
    Weight of an edge between two points of a cluster: 1, or 1 / (size of the cluster - 1) (Corollary A.5), so that
    large and small clusters have the same influence.""",
)
class SpExClique(BestFirst):
    """SpEx on the clique graph, in which all points of a reference cluster are connected.

    Each cut minimizes the conductance of the graph. Any labels can be explained, including those of clusters that
    have no centers. The graph is never stored, because the score of a cut depends only on the number of points
    of each cluster on its two sides. A side without edges has conductance 1.

    Attributes
    ----------
    tree_, labels_, cluster_centers_, inertia_
        As for :class:`IMM`.

    References
    ----------
    .. [1] T. Argov, T. Wagner, "SpEx: A spectral approach to explainable clustering", 2025, Algorithm 1 and
       section 2.3.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from neonxc.trees import SpExClique
    >>> X, moon = make_moons(400, noise=0.05, random_state=0)
    >>> tree = SpExClique(2, max_leaves=4).fit(X, labels=moon)
    >>> round(float((tree.labels_ == moon).mean()), 2)
    0.92
    """

    _: KW_ONLY
    leaf_labels: LeafLabels = "majority"
    clique_weights: Literal["unit", "size"] = "unit"

    def _criterion(self, problem: Problem) -> Criterion:
        return CliqueConductance(problem, by_size=self.clique_weights == "size")

    def _can_read_batches(self) -> bool:
        return True


@explainer(
    n_clusters="""Number of leaves. Every leaf is a cluster.""",
    max_leaves="""Number of leaves, if it differs from `n_clusters`.""",
)
class GraphTree(OwnClusters):
    """Base class of the SpEx explainers that cut a given graph."""

    n_clusters: int = 8
    _: KW_ONLY
    max_leaves: int | None = None
    max_bins: AtLeastTwo | None = None

    def _fit(self, X: TableLike, graph: object, labels: ArrayLike | None, centers: TableLike | None) -> None:
        data, problem = self._prepare(X, labels, centers, None)
        warn_of_repeated(data)
        edges = None
        if graph is not None:
            edges = as_graph(graph, len(Table(data.points)), device=problem.device)
            if data.rows is not None:
                edges = edges.take(data.rows)
        self._finish(data, problem, self._grow(problem, edges))

    def _grow(self, problem: Problem, graph: Graph | None = None) -> Grown:
        if graph is None:
            graph = knn_graph(problem.reference.space.data, getattr(self, "n_neighbors", NEIGHBORS))
        max_leaves = self.n_clusters if self.max_leaves is None else self.max_leaves
        search = Search(problem, GraphConductance(problem, graph))
        grown = best_first(search, Grown([root(problem)]), max_leaves)
        if problem.reference.is_passed:
            return label_leaves(problem, grown, "majority")
        ids = sorted(leaf.id for leaf in grown.leaves)
        grown.clusters = {id: number for number, id in enumerate(ids)}
        return grown


@register_explainer
@explainer(
    n_neighbors="""
    Number of neighbors that each point is connected to, at most n - 1. An edge between mutual neighbors has
    weight 2, any other edge weight 1."""
)
class SpExKNN(GraphTree):
    """SpEx on the graph of nearest neighbors, which needs no reference clustering.

    Each cut minimizes the conductance of the graph, and the leaves of the tree are the clusters.

    Attributes
    ----------
    tree_, labels_, cluster_centers_, inertia_
        As for :class:`IMM`.

    References
    ----------
    .. [1] T. Argov, T. Wagner, "SpEx: A spectral approach to explainable clustering", 2025, Algorithm 1 and
       section 2.3.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from neonxc.trees import SpExKNN
    >>> SpExKNN(3).fit(load_iris(as_frame=True).data).tree_
    ThresholdTree(3 leaves, depth 2, 4 features)
    """

    _: KW_ONLY
    n_neighbors: int = NEIGHBORS

    def fit(  # type: ignore[override]  # points of a graph have no weights
        self,
        X: TableLike,
        y: object = None,
        *,
        labels: ArrayLike | None = None,
        centers: TableLike | None = None,
    ) -> SpExKNN:
        """Fit the tree.

        Parameters
        ----------
        X : array-like, data frame, sparse matrix or tensor [n, d]
            The columns that are cut and in which neighbors are found. As for :meth:`neonxc.trees.IMM.fit`.
        y : ignored
        labels : array-like [n], optional
            Names of the leaves: each leaf takes the most frequent label of its points. The labels do not change
            the cuts, except that points of label -1 (noise) are left out.
        centers : array-like [k, d], optional
            Names the leaves in the same way; the label of a point is its nearest center.

        Returns
        -------
        self
        """
        del y
        self._fit(X, None, labels, centers)
        return self


@register_explainer
@explainer()
class SpExGraph(GraphTree):
    """SpEx on any graph.

    Each cut is a threshold on a column of X and minimizes the conductance of the graph. The graph need not be
    derived from these columns: it may hold the nearest neighbors in a network's feature space, links between
    documents, or similarities.

    Attributes
    ----------
    tree_, labels_, cluster_centers_, inertia_
        As for :class:`IMM`.

    References
    ----------
    .. [1] T. Argov, T. Wagner, "SpEx: A spectral approach to explainable clustering", 2025, Algorithm 1.

    Examples
    --------
    >>> import numpy as np
    >>> from neonxc.trees import SpExGraph
    >>> X = np.array([[0.0, 5], [1, 3], [2, 4], [8, 5], [9, 3]])
    >>> edges = [(0, 1), (1, 2), (0, 2), (3, 4)]
    >>> SpExGraph(2).fit(X, graph=edges).labels_
    array([0, 0, 0, 1, 1])
    """

    def fit(  # type: ignore[override]
        self,
        X: TableLike,
        y: object = None,
        *,
        graph: object = None,
        labels: ArrayLike | None = None,
        centers: TableLike | None = None,
    ) -> SpExGraph:
        """Fit the tree.

        Parameters
        ----------
        X : array-like, data frame, sparse matrix or tensor [n, d]
            The columns that are cut. As for :meth:`neonxc.trees.IMM.fit`.
        y : ignored
        graph : sparse matrix [n, n], edge list [edges, 2] or [edges, 3], or tuple (edges, weights), optional
            Weights of the edges between the points, which have the same order as in X; see
            :func:`neonxc.trees.graph.as_graph`. Default: the graph of the 20 nearest neighbors in X.
        labels : array-like [n], optional
            Names of the leaves: each leaf takes the most frequent label of its points. The labels do not change
            the cuts, except that points of label -1 (noise) are left out.
        centers : array-like [k, d], optional
            Names the leaves in the same way; the label of a point is its nearest center.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If the graph has another number of points than X, is directed, has negative weights or has no edges.
        """
        del y
        self._fit(X, graph, labels, centers)
        return self
