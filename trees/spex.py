"""Trees whose leaves are parts of a graph with few edges between them: SpEx."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import KW_ONLY
from typing import Any

from neonxc.parameters import check_whole
from neonxc.trees.builder import TreeBuilder
from neonxc.trees.criteria.conductance import CliqueConductance, GraphConductance
from neonxc.trees.criterion import Criterion
from neonxc.trees.expanding import BestFirst
from neonxc.trees.graph import Graph, as_graph, knn_graph
from neonxc.trees.growth import best_first
from neonxc.trees.labelling import label_leaves
from neonxc.trees.parameters import explainer
from neonxc.trees.problem import Problem
from neonxc.trees.search import Search
from neonxc.trees.unguided import OwnClusters

NEIGHBORS = 20  # of SpExGraph without a graph, as in the paper's experiments


@explainer(
    clique_weights="""{"unit", "size"}
    What an edge between two points of a cluster weighs: 1, or 1 over one less than the cluster's points
    (Corollary A.5), so that clusters of all sizes count alike.""",
)
class SpExClique(BestFirst):
    """Parts of least conductance in the graph that joins all points of a reference cluster.

    Any labels can be explained, whether clusters have centers or not. The graph takes no memory: a cut's score
    depends only on how many points of each cluster are on its two sides. A side without edges has conductance 1.

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
    leaf_labels: str = "majority"
    clique_weights: str = "unit"

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.clique_weights not in ("unit", "size"):
            raise ValueError(f'clique_weights needs "unit" or "size", got {self.clique_weights!r}')

    def _criterion(self, problem: Problem) -> Criterion:
        return CliqueConductance(problem, by_size=self.clique_weights == "size")

    def _streams(self) -> bool | None:
        return self.leaf_labels == "surrogate"


@explainer(
    n_clusters="""int
    Leaves, each of which is a cluster.""",
    max_leaves="""int, optional
    Leaves, if they are not `n_clusters`.""",
)
class GraphTree(OwnClusters):
    """Parts of least conductance in a graph on the points."""

    n_clusters: int = 8
    _: KW_ONLY
    max_leaves: int | None = None
    max_bins: int | None = None

    @abstractmethod
    def _neighbors(self) -> int:
        """Nearest neighbours that a point is joined with, where no graph is given."""

    def _fit(self, X: Any, graph: Any, labels: Any, centers: Any) -> Any:
        data = self._prepare(X, labels, centers, None)
        if graph is None:
            own = knn_graph(data.problem.space.data, self._neighbors())
        else:
            own = as_graph(graph, data.points.shape[0], device=data.problem.device)
            own = own if data.kept is None else own.take(data.kept)
        self._finish(data, *self._grow_in(data.problem, own))
        return self

    def _grow(self, problem: Problem) -> Any:
        return self._grow_in(problem, knn_graph(problem.space.data, self._neighbors()))

    def _grow_in(self, problem: Problem, graph: Graph) -> Any:
        builder, most = TreeBuilder(), self.n_clusters if self.max_leaves is None else self.max_leaves
        search = Search(problem, GraphConductance(problem, graph))
        leaves = best_first(search, builder, [problem.root().without_centers()], most)
        if self._given:
            return builder, leaves, label_leaves(problem, leaves, "majority")
        return builder, leaves, {leaf.id: number for number, leaf in enumerate(sorted(leaves, key=lambda n: n.id))}


@explainer(
    n_neighbors="""int
    Neighbours that every point is joined with; mutual ones by an edge of weight 2. There are n - 1 at most."""
)
class SpExKNN(GraphTree):
    """Parts of least conductance in the graph of nearest neighbours: a clustering by a tree, without a reference.

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

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_whole("n_neighbors", self.n_neighbors)

    def _neighbors(self) -> int:
        return self.n_neighbors

    def fit(  # type: ignore[override]  # points of a graph have no weights
        self, X: Any, y: Any = None, *, labels: Any = None, centers: Any = None
    ) -> SpExKNN:
        """Fit the tree.

        Parameters
        ----------
        X : array-like, data frame, sparse matrix or tensor [n, d]
            The columns that are cut, in which neighbours are near. As for :meth:`neonxc.trees.IMM.fit`.
        y : ignored
        labels : array-like [n], optional
            Names for the leaves: each takes the most frequent label of its points. The tree does not depend on
            them, but points of label -1 (noise) are left out.
        centers : array-like [k, d], optional
            The same, with the nearest center of every point as its label.
        """
        del y
        self._fit(X, None, labels, centers)
        return self


@explainer()
class SpExGraph(GraphTree):
    """Parts of least conductance in any graph on the points, cut by any columns of theirs.

    The graph may come from another space than the columns: nearest neighbours by a network's features, links
    between documents, similarities.

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

    def _neighbors(self) -> int:
        return NEIGHBORS

    def fit(  # type: ignore[override]
        self, X: Any, y: Any = None, *, graph: Any = None, labels: Any = None, centers: Any = None
    ) -> SpExGraph:
        """Fit the tree.

        Parameters
        ----------
        X : array-like, data frame, sparse matrix or tensor [n, d]
            The columns that are cut. As for :meth:`neonxc.trees.IMM.fit`.
        y : ignored
        graph : sparse matrix [n, n], edge list [edges, 2] or [edges, 3], or tuple (edges, weights), optional
            Weights of edges between the points of X, in their order; see :func:`neonxc.trees.graph.as_graph`.
            Default: the 20 nearest neighbours of every point in X.
        labels : array-like [n], optional
            Names for the leaves: each takes the most frequent label of its points. The tree does not depend on
            them, but points of label -1 (noise) are left out.
        centers : array-like [k, d], optional
            The same, with the nearest center of every point as its label.

        Raises
        ------
        ValueError
            Another number of points in the graph, a graph that has a direction, negative weights, no edges.
        """
        del y
        self._fit(X, graph, labels, centers)
        return self
