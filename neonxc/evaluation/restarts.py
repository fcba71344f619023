"""A k-means that is started from given clusters, and whether it keeps them.

Another seed may lead k-means to other clusters, and with them to other columns that matter. Such clusters are a
local optimum of the same objective, so that Lloyd's algorithm, started from their means, keeps them. Clusters that
were found in another space, with another scale of a column or by another encoder, are left. So one restart tells a
change of the model from one of the seed. Refits with other seeds do not: they show how often each optimum occurs,
and one that occurs once in ten times is missing in most sets of five.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy import sparse
from sklearn.cluster import KMeans, MiniBatchKMeans
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from neonxc.clusterings.neuralize_arguments import fitted_names
from neonxc.common.types import Points
from neonxc.data.labels import NOISE
from neonxc.data.sparse import dense
from neonxc.data.table import Table
from neonxc.evaluation.choice import seed_names
from neonxc.head.detection import LinearDetection
from neonxc.network import NeuralizedClustering
from neonxc.pipelines.opened import opened

KEPT = 0.95
"""Adjusted Rand index from which on a restart keeps the clusters that it started from."""


def restarted(model: object, rows: Table, labels: np.ndarray) -> object | None:
    """Fit the k-means at the end of a model again, from the means of given clusters.

    Parameters
    ----------
    model : estimator, Pipeline or NeuralizedClustering
        The steps of a pipeline, and a network up to its head, stay as they are.
    rows : Table
        The N rows, as the model takes them.
    labels : ndarray [N]
        The clusters to start from, which may be more or fewer than those of the model. Noise belongs to none.

    Returns
    -------
    KMeans, Pipeline, NeuralizedClustering or None
        None if the model does not end in a k-means.
    """
    if isinstance(model, NeuralizedClustering):
        return _restarted_network(model, rows, labels)
    steps, final = opened(model)
    if not isinstance(final, KMeans | MiniBatchKMeans):
        return None
    X = rows.ordered(fitted_names(model)).for_sklearn
    if not steps:
        return _from_means(X, labels)
    before = make_pipeline(*(step for _, step in steps))
    return make_pipeline(*before, _from_means(before.transform(X), labels))


def _restarted_network(net: NeuralizedClustering, rows: Table, labels: np.ndarray) -> NeuralizedClustering | None:
    """Fit the k-means again that a network was made from; None if it was made from another clusterer."""
    from neonxc.convert import neuralize  # depends on this package

    scale = _scales(net)
    if scale is None:
        return None
    points = torch.cat([dense(x) for x in net.inputs.points(rows)]).double().cpu().numpy()
    centers = _from_means(points * scale, labels).cluster_centers_
    scaler = StandardScaler(with_mean=False).fit(points)
    scaler.scale_ = 1 / scale
    pipeline = make_pipeline(scaler, KMeans(len(centers), init=centers, n_init=1, max_iter=1).fit(points * scale))
    features = net.features if net.inputs.encoding is None else net.inputs.encoding
    network = NeuralizedClustering(neuralize(pipeline).head, features, None, net.inputs.names)
    return network.calibrate(rows.data)


def _scales(net: NeuralizedClustering) -> np.ndarray | None:
    """Return the scales A [d] of the columns in the distances of a k-means; None for another form of the head.

    A head of centroids behind ``z = A y + z_0`` with a diagonal A has the directions ``D = 2 A M`` and the anchors
    ``M / (2 A)`` (:mod:`neonxc.head.head`), so that ``A^2 = D / (4 anchor)``: the same for all centroids.
    """
    detection = net.head.detection
    if not isinstance(detection, LinearDetection) or net.head.grouping is not None:
        return None
    if detection.norm is not None or not detection.diagonal or detection.nearest_zero:
        return None
    directions = detection.directions.double()
    anchors = detection.anchors.double()
    squares = (directions * anchors).sum(dim=0) / (
        4 * anchors.square().sum(dim=0)
    )  # NaN where all centroids are 0
    scale: np.ndarray = squares.nan_to_num(1.0).clamp(min=0).sqrt().cpu().numpy()
    return np.where(scale > 0, scale, 1.0)


def has_random_steps(model: object) -> bool:
    """Whether steps before the clusterer have seeds, so that the restart of another refit is another one."""
    steps, _ = opened(model)
    return any(seed_names(step) for _, step in steps if hasattr(step, "get_params"))


def _from_means(points: Points, labels: np.ndarray) -> KMeans:
    """Run Lloyd's algorithm on points [N, d], from the means of clusters."""
    in_cluster = labels != NOISE
    clusters, codes = np.unique(labels[in_cluster], return_inverse=True)
    is_member = sparse.csr_array(
        (np.ones(len(codes)), (codes, np.flatnonzero(in_cluster))), (len(clusters), len(labels))
    )
    sums = is_member @ points
    means = np.asarray(sums.todense() if sparse.issparse(sums) else sums) / np.bincount(codes)[:, None]
    return KMeans(len(clusters), init=means, n_init=1).fit(points)
