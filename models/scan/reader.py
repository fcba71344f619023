"""Converts a fitted SCAN to a linear head on its embedding for :func:`neonxc.neuralize`."""

from __future__ import annotations

from dataclasses import replace

from sklearn.utils.validation import check_is_fitted

from neonxc.clusterings import ClusterModel, read

from .estimator import SCAN


@read.register
def _(model: SCAN) -> ClusterModel:
    check_is_fitted(model)
    return replace(read(model.cluster_head_), features=model.embedding_)
