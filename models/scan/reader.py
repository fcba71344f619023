"""SCAN as a network: its clustering head on its own embedding."""

from __future__ import annotations

from sklearn.utils.validation import check_is_fitted

from neonxc.readers import ClusterModel, read

from .estimator import SCAN


@read.register
def _(model: SCAN) -> ClusterModel:
    check_is_fitted(model)
    found = read(model.cluster_head_)
    return ClusterModel(found.head, found.points, None, model.embedding_)
