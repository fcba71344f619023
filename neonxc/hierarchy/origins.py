"""What is exact about the parts of a fork, and how they are judged, by the clusterer that they are from.

    clusterer                     a network of the parts                        judged by
    labels, linkages              none                                          their labels
    model of a layer              that of the model with all of its clusters    their labels
    bisecting k-means             that of the centers of the two sides          their labels
    HDBSCAN                       that of HDBSCAN with the sides as clusters    the highest forks of refits
    single linkage                none                                          the same
    other density clusterings     that of the model                             refits of the model

Density clusterings find the gaps of the rows that they are fitted to, also those that are there by chance: see
:mod:`neonxc.evaluation.separated`.
"""

from __future__ import annotations

import warnings
from copy import copy
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import linkage
from sklearn.base import BaseEstimator, ClusterMixin, clone
from sklearn.cluster import KMeans
from sklearn.pipeline import Pipeline

from neonxc.clusterings.neuralize_arguments import first_map, steps_of
from neonxc.clusterings.number_of_rows import finds_gaps
from neonxc.clusterings.readers import reads_exactly
from neonxc.data.table import Table
from neonxc.hierarchy.forks import Fork, Origin, Parts
from neonxc.hierarchy.linkages import Dendrogram
from neonxc.network import NeuralizedClustering
from neonxc.pipelines.folding import transform


class OfModel(Origin):
    """Parts that are clusters of a fitted model.

    Parameters
    ----------
    model : estimator, Pipeline or NeuralizedClustering
    X : Table [N, ...]
        The rows as the model takes them.
    is_of_X : bool
        Whether these are the rows that explanations are about, and not features of them.
    """

    def __init__(self, model: Any, X: Table, is_of_X: bool) -> None:
        self.model = model
        self.X = X
        self.is_of_X = is_of_X
        self.steps, self.final = steps_of(model)

    @cached_property
    def network(self) -> NeuralizedClustering | None:
        """The network of the model; None if it would be a surrogate."""
        from neonxc.convert import neuralize  # loads all readers

        if not self.is_of_X:
            return None
        if isinstance(self.model, NeuralizedClustering):
            return self.model
        has_map = first_map(self.steps) < len(self.steps)
        is_member_based = type(self.final).__name__ in ("HDBSCAN", "OPTICS")
        if has_map or not (reads_exactly(self.final) or is_member_based):
            return None
        network = neuralize(self.model, self.X.data)
        return network if network.fidelity_ is None else None

    def space(self) -> Any | None:
        """Return the columns that were clustered, or those before a map such as UMAP."""
        return self._space

    @cached_property
    def _space(self) -> Any | None:
        if isinstance(self.model, NeuralizedClustering):
            return None
        entering = Table.read(transform(self.steps[: first_map(self.steps)], self.X.for_sklearn))
        if entering.is_sparse or len(entering.shape) != 2 or entering.is_mixed:
            return entering.data if entering.is_sparse else None
        return entering.tensor.double().cpu().numpy()

    def parts(self, fork: Fork) -> Parts | None:
        """Return the network of the whole layer."""
        if not fork.labels or self.network is None:
            return None
        return Parts(self.network, fork.labels)

    def refitted(self, fork: Fork) -> Any | None:
        """Return the model with the parts as its labels, if it finds gaps of its rows."""
        if not finds_gaps(self.final) or first_map(self.steps) < len(self.steps):
            return None
        judged = copy(self.final)
        judged.labels_ = fork.codes
        return judged


class OfCenters(OfModel):
    """The two sides of splits of bisecting k-means."""

    def __init__(self, model: Any, X: Table, is_of_X: bool, centers: dict[str, NDArray[np.float64]]) -> None:
        super().__init__(model, X, is_of_X)
        self.centers = centers  # [2, d] of the sides, by the name of the parent

    def parts(self, fork: Fork) -> Parts | None:
        """Return the network of k-means with the centers of both sides."""
        from neonxc.convert import neuralize  # loads all readers

        if not self.is_of_X:
            return None
        centers = self.centers[fork.parent]
        sides = KMeans(2, n_init=1)
        sides.cluster_centers_ = centers
        sides.labels_ = np.arange(2)
        sides.n_features_in_ = centers.shape[1]
        if hasattr(self.final, "feature_names_in_"):
            sides.feature_names_in_ = self.final.feature_names_in_
        sides._n_threads = 1
        model = Pipeline([*self.steps, ("sides", sides)]) if self.steps else sides
        return Parts(neuralize(model, self.X.take(fork.rows).data), [0, 1])


class OfHDBSCAN(OfModel):
    """The sides of splits in the condensed tree of HDBSCAN."""

    has_network = True
    """Whether HDBSCAN has an exact network, which needs Euclidean distances; the first fork tells."""

    def parts(self, fork: Fork) -> Parts | None:
        """Return the network of HDBSCAN whose clusters are the two sides; all other rows are noise."""
        from neonxc.convert import neuralize  # loads all readers

        if not self.is_of_X or not self.has_network or first_map(self.steps) < len(self.steps):
            return None
        final = copy(self.final)
        final.labels_ = np.full(len(self.X), -1)
        final.labels_[fork.rows] = fork.codes
        model = Pipeline([*self.steps, ("sides", final)]) if self.steps else final
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a network that is a surrogate, which is not used
            network = neuralize(model, self.X.data)
        self.has_network = network.fidelity_ is None
        return Parts(network, [0, 1]) if self.has_network else None

    def refitted(self, fork: Fork) -> Any | None:
        """Return a clusterer that finds the highest split in the tree of a refit."""
        if first_map(self.steps) < len(self.steps) or not hasattr(self.final, "get_params"):
            return None
        return HighestFork(self.final, **counts_of(self.final)).with_labels(fork.codes)


class OfLinkage(Origin):
    """The sides of merges of a linkage.

    Parameters
    ----------
    is_single : bool
        Whether the linkage is the single one, which finds gaps of its rows.
    least : int
        Minimum number of rows of a side.
    points : array [N, d], optional
        The columns that were clustered, if they are known.
    """

    def __init__(self, is_single: bool, least: int, points: Any | None = None) -> None:
        self.is_single = is_single
        self.least = least
        self.points = points

    def space(self) -> Any | None:
        """Return the columns that were clustered."""
        return self.points

    def refitted(self, fork: Fork) -> Any | None:
        """Return a clusterer that finds the highest merge of other rows, if the linkage is single."""
        if not self.is_single:
            return None
        return HighestFork(None, min_cluster_size=self.least).with_labels(fork.codes)


class HighestFork(ClusterMixin, BaseEstimator):
    """Clusterer with the two sides of the highest fork of a tree, which is fitted to halves of the rows.

    Parameters
    ----------
    model : HDBSCAN, optional
        Its tree is taken; default: that of single linkage.
    min_cluster_size : int
        Minimum number of rows of a side.
    min_samples : int, optional
        That of HDBSCAN.
    """

    linkage = "single"  # by which a clusterer is known to find the gaps of its rows; HDBSCAN is one, too

    def __init__(self, model: Any = None, min_cluster_size: int = 2, min_samples: int | None = None) -> None:
        self.model = model
        self.min_cluster_size = min_cluster_size
        self.min_samples = min_samples

    def with_labels(self, labels: NDArray[np.int64]) -> HighestFork:
        """Set the labels of the rows that are judged."""
        self.labels_ = labels
        return self

    def fit(self, X: Any, y: object = None) -> HighestFork:
        """Find the sides of the highest fork; all other rows are noise."""
        if self.model is None:
            Z = linkage(np.asarray(X), "single")
        else:
            counts = {"min_cluster_size": self.min_cluster_size, "min_samples": self.min_samples}
            Z = tree_of_hdbscan(clone(self.model).set_params(**counts).fit(X))
        hierarchy = Dendrogram(Z).forks(1, self.min_cluster_size, Origin())
        self.labels_ = np.full(len(X), -1)
        for fork in hierarchy.forks:
            self.labels_[fork.rows] = fork.codes
        return self


def counts_of(model: Any) -> dict[str, int]:
    """Return the minimal numbers of rows of HDBSCAN; that of samples is the other one by default."""
    least = int(model.min_cluster_size)
    return {"min_cluster_size": least, "min_samples": int(model.min_samples or least)}


def tree_of_hdbscan(model: Any) -> NDArray[np.float64]:
    """Return the single-linkage tree of an HDBSCAN of scikit-learn or of the package hdbscan."""
    tree = getattr(model, "single_linkage_tree_", None)
    if tree is not None:
        return np.asarray(tree.to_numpy(), np.float64)
    merges = model._single_linkage_tree_  # scikit-learn stores it only in this private attribute
    return np.column_stack([merges[name] for name in merges.dtype.names]).astype(np.float64)
