"""Converts a k-center clustering to a head with its centers for :func:`neonxc.neuralize`."""

from __future__ import annotations

from sklearn.utils.validation import check_is_fitted

from neonxc.clusterings import ClusterModel, read
from neonxc.clusterings.readers import centroids

from .kcenter import KCenter


@read.register
def _(model: KCenter) -> ClusterModel:
    check_is_fitted(model, "labels_")
    if model.metric not in ("euclidean", "l2"):
        raise ValueError(
            f'only a KCenter with metric="euclidean" can be converted to a network, got {model.metric!r}; '
            "neonxc.neuralize(labels=model.labels_, X=X) explains its labels"
        )
    return centroids(model._centers)
