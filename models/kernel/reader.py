"""Kernel k-means as a network, the soft minimum over its supports or members, and how a fitted one is stored."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from neonxc.clusterings import ClusterModel, read
from neonxc.clusterings.model import Fidelity
from neonxc.clusterings.supports import Supports
from neonxc.common.arguments import check_number
from neonxc.common.numbers import percent
from neonxc.common.registry import Values, pack_estimator, pack_fields, register, unpack_estimator
from neonxc.common.warnings import warn
from neonxc.head import centroid_head
from neonxc.network import NeuralizedClustering

from .em import Members
from .estimator import KernelKMeans

COMPARED = 2000  # members by which the network of the objective "feature" is judged


@read.register
def _read_kernel_kmeans(model: KernelKMeans) -> ClusterModel:
    check_is_fitted(model, "gamma_")
    fit = model._model
    points, groups, log_weights = fit.flat()
    # not support_vectors_: far from the origin float32 has no digits for them
    centers = (points.double() + model._shift.double()).cpu()
    log_weights = log_weights.double().cpu()
    head = partial(centroid_head, centers, groups.cpu(), gamma=model.gamma_, log_weights=log_weights)
    sample = torch.randperm(len(centers), generator=torch.Generator().manual_seed(0))[:COMPARED]
    network = ClusterModel(head, centers[sample], model.classes_, scale=model.gamma_)
    if model.objective != "feature":
        return network

    # the soft minimum leaves out the lengths of the means (Prop. 4): how far do they decide alike?
    assert isinstance(fit, Members)
    labels = fit.distances(points[sample.to(points.device)]).argmin(1).cpu()
    predicted = NeuralizedClustering(head(None)).predict(centers[sample])
    agrees = (predicted == labels).double()
    mass = fit.mass.double().cpu()[sample]  # a point stands for all that are equal to it
    fidelity = float(agrees @ mass / mass.sum())
    if fidelity < 0.95:
        warn(
            f"the network gives {percent(fidelity)} of the points their cluster: its soft minimum leaves out how "
            'long the means are, which decides here; objective="spherical" has means of one length',
        )
    return replace(network, fidelity=Fidelity(fidelity))


FITTED = (
    "n_features_in_",
    "feature_names_in_",
    "objective_",
    "history_",
    "classes_",
    "labels_",
    "_model",
    "_shift",
)


def _pack(model: KernelKMeans) -> Values:
    return pack_estimator(model, FITTED) | {"tensor": isinstance(model.support_vectors_, Tensor)}


def _unpack(cls: type[KernelKMeans], values: Values) -> KernelKMeans:
    values["params"].pop("prune", None)  # a parameter of version 0.2.0
    model = unpack_estimator(cls, values, FITTED)
    model._validate_params()
    check_number("gamma", model._model.gamma)

    # parts that do not fit together fail here, and not when the model is used
    k = len(model.classes_)
    point = model._shift[None].expand(1, model.n_features_in_)
    if model._distances(point).shape != (1, k) or not isinstance(model.history_, list):
        raise TypeError(f"its model has not one distance for each of {k} classes")
    model._publish(values["tensor"])
    return model


register(KernelKMeans, _pack, _unpack)
for _model in (Supports, Members):
    register(_model, pack_fields, lambda cls, values: cls(**values))
