"""Agreement of two explanations of one clustering: the columns that the network and the tree use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from neonxc.data.frames import reads_tables
from neonxc.data.inputs import as_array
from neonxc.network import NeuralizedClustering, check_network


@dataclass(frozen=True)
class Agreement:
    """Result of :func:`agreement`.

    Attributes
    ----------
    classes : ndarray [K]
    network, tree : DataFrame [K, columns]
        Share of each column in the positive relevance of a cluster, 0 to 1, by the network and by the tree.
    correlation : ndarray [K]
        Spearman's rank correlation of the two over the columns, -1 to 1; NaN if a cluster has no points or one of
        the two uses no column.
    same : ndarray [K]
        Share of a cluster's points, 0 to 1, that the tree assigns to the same cluster; NaN for an empty cluster.
    rows : ndarray
        The points that the two assign to different clusters.
    """

    classes: np.ndarray
    network: pd.DataFrame
    tree: pd.DataFrame
    correlation: np.ndarray
    same: np.ndarray
    rows: np.ndarray

    @property
    def frame(self) -> pd.DataFrame:
        """Return a row per cluster: the correlation, the share of equal points, and the two top columns."""
        values = {
            "correlation": self.correlation,
            "same": self.same,
            "network": _strongest(self.network),
            "tree": _strongest(self.tree),
        }
        return pd.DataFrame(values, index=pd.Index(self.classes, name="cluster"))

    def __str__(self) -> str:
        return str(self.frame)


@reads_tables
def agreement(net: NeuralizedClustering, tree: Any, X: Any) -> Agreement:
    """Compare the attribution of a clustering with a tree that explains it, cluster by cluster.

    The tree is converted to a network (:func:`neonxc.neuralize`), so that both compute relevance of the columns.

    Parameters
    ----------
    net : NeuralizedClustering
        Network of the clustering.
    tree : ThresholdTree or fitted tree explainer
        A tree with at least two leaves on the columns of X, or on the features of the network if it has a feature
        network.
    X : array, frame or tensor [N, ...]
        Inputs of `net`.

    Returns
    -------
    Agreement

    Raises
    ------
    TypeError
        If `net` is not a network.
    ValueError
        If the tree has a single cluster, or its columns are not those of the network.

    Examples
    --------
    >>> import neonxc
    >>> from neonxc.evaluation import agreement
    >>> from neonxc.trees import IMM
    >>> from sklearn.cluster import KMeans
    >>> from sklearn.datasets import load_iris
    >>> X = load_iris(as_frame=True).data
    >>> model = KMeans(3, n_init=10, random_state=0).fit(X)
    >>> found = agreement(neonxc.neuralize(model, X), IMM(3).fit(X, labels=model.labels_), X)
    >>> bool(found.same.min() > 0.8)
    True
    """
    from neonxc.attribution.neon import NEON
    from neonxc.convert import neuralize

    check_network(net, "agreement", "; label_agreement(labels, reference) compares two clusterings")
    columns, units = net.carrier.columns(X), net.carrier.units
    other = neuralize(tree, columns)
    if len(other.carrier.units) != len(units):
        raise ValueError(f"the tree has {len(other.carrier.units)} columns, the network {len(units)}")
    ours, theirs = NEON(net).summary(X, 0), NEON(other).summary(columns, 0)
    network, of_tree = (
        _shares(pd.DataFrame(found.relevance, found.classes, units).reindex(ours.classes, fill_value=0.0))
        for found in (ours, theirs)
    )
    labels, leaves = as_array(net.predict(X)).ravel(), as_array(other.predict(columns)).ravel()
    same = pd.Series(labels == leaves).groupby(labels).mean().reindex(ours.classes).to_numpy()
    correlation = network.rank(axis=1).corrwith(of_tree.rank(axis=1), axis=1).to_numpy()  # Spearman's
    return Agreement(ours.classes, network, of_tree, correlation, same, np.flatnonzero(labels != leaves))


def _shares(relevance: pd.DataFrame) -> pd.DataFrame:
    positive = relevance.clip(lower=0)
    total = positive.sum(axis=1)
    return positive.div(total.where(total > 0, 1), axis=0)


def _strongest(shares: pd.DataFrame) -> pd.Series:
    return shares.idxmax(axis=1).where(shares.max(axis=1) > 0, "")
