"""Kernel k-means as a network: its supports, or its members, with the soft minimum over them."""

from __future__ import annotations

import torch
from sklearn.utils.validation import check_is_fitted

from neonxc.clusterings import ClusterModel, read
from neonxc.clusterings.readers import Fidelity
from neonxc.common.numbers import percent
from neonxc.common.warnings import warn
from neonxc.head import Head, centroid_head
from neonxc.head.detection import Preprocessing
from neonxc.network import NeuralizedClustering

from .estimator import KernelKMeans
from .members import Members

COMPARED = 2000  # members by which the network of the objective "feature" is judged


@read.register
def _(model: KernelKMeans) -> ClusterModel:
    check_is_fitted(model, "gamma_")
    inner = model._model
    points, groups, log_weights = inner.flat()
    # not support_vectors_: far from the origin float32 has no digits for them
    centers = (points.double() + model._shift.double()).cpu()
    groups, log_weights = groups.cpu(), log_weights.double().cpu()

    def head(chain: Preprocessing | None) -> Head:
        return centroid_head(centers, groups, chain, gamma=model.gamma_, log_weights=log_weights)

    some = torch.randperm(len(centers), generator=torch.Generator().manual_seed(0))[:COMPARED]
    if model.objective != "feature":
        return ClusterModel(head, centers[some], model.classes_, scale=model.gamma_)
    # the soft minimum leaves out the lengths of the means (Prop. 4): how far do they decide alike?
    assert isinstance(inner, Members)
    own = inner.distances(points[some.to(points.device)]).argmin(1).cpu()
    agree = (NeuralizedClustering(head(None)).predict(centers[some]) == own).double()
    mass = inner.mass.double().cpu()[some]  # a point stands for all that are equal to it
    fidelity = float(agree @ mass / mass.sum())
    if fidelity < 0.95:
        warn(
            f"the network gives {percent(fidelity)} of the points their cluster: its soft minimum leaves out how "
            'long the means are, which decides here; objective="spherical" has means of one length',
        )
    return ClusterModel(head, centers[some], model.classes_, fidelity=Fidelity(fidelity), scale=model.gamma_)
