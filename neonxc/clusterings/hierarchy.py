"""Reader for clusterers that assign points by descending a hierarchy (BisectingKMeans)."""

from __future__ import annotations

import numpy as np
import torch
from sklearn.cluster import BisectingKMeans
from sklearn.utils.validation import check_is_fitted

from neonxc.clusterings.centers import centroids
from neonxc.clusterings.model import ClusterModel, SameCenters, read
from neonxc.head import bisecting_head


@read.register
def _(model: BisectingKMeans) -> ClusterModel:
    check_is_fitted(model)
    if model.n_clusters < 2:
        return centroids(model.cluster_centers_)
    children: list[tuple[int, int]] = []
    centers: list[np.ndarray] = []
    queue = [model._bisecting_tree]  # scikit-learn stores its hierarchy only in this private attribute
    for node in queue:
        sides = []
        for child in (node.left, node.right):
            if child.left is None:
                sides.append(int(child.label))
            else:
                queue.append(child)
                sides.append(-(len(queue) - 1))
        children.append((sides[0], sides[1]))
        centers.append(np.stack([node.left.center, node.right.center]) + getattr(model, "_X_mean", 0.0))
    pairs = torch.as_tensor(np.stack(centers), dtype=torch.float64)
    if (pairs[:, 0] == pairs[:, 1]).all(dim=1).any():
        raise SameCenters("a split of the hierarchy has identical centers on both sides")
    points = torch.as_tensor(model.cluster_centers_, dtype=torch.float64)
    return ClusterModel(lambda chain: bisecting_head(children, pairs[:, 0], pairs[:, 1], chain), points)
