"""How a neuralized clustering is stored."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from neonxc.heads import CentroidHead, Head, HierarchyHead, LinearHead, MixtureHead
from neonxc.network import NeuralizedClustering
from neonxc.registry import LEFT_OUT, can_pack, register, storable


def _pack(net: NeuralizedClustering) -> dict[str, Any]:
    return {
        "head": net.head,
        "features": net.features if net.features is None or can_pack(net.features) else LEFT_OUT,
        "classes": net.classes_.tolist(),
        "feature_names": net.feature_names_,
        "fidelity": [net.fidelity_, net.fidelity_held_out_],
        "beta": net._beta,
    }


def _unpack(cls: type[NeuralizedClustering], values: dict[str, Any]) -> NeuralizedClustering:
    net = cls(values["head"], values["features"], np.asarray(values["classes"]), values["feature_names"])
    net.beta = float(values["beta"])
    net._beta = values["beta"]  # in its own precision
    net.fidelity_, net.fidelity_held_out_ = values["fidelity"]
    _check(net)
    return net


@torch.no_grad()
def _check(net: NeuralizedClustering) -> None:
    """Use the head once: what does not fit together shows now, and not at some later call."""
    head, K = net.head, len(net.classes_)
    if not isinstance(head, Head):
        raise TypeError(f"its head is a {type(head).__name__}")
    names = net.feature_names_ or [""] * head.n_features
    if len(names) != head.n_features or not all(isinstance(name, str) for name in names):
        raise TypeError(f"it has not one name for each of {head.n_features} features")
    x = torch.zeros(1, head.n_features)
    head.relevance(x, torch.tensor([K - 1]), net._beta)
    if head(x).shape != (1, K) or head.n_clusters != K or head.outside(x).shape != (1,):
        raise TypeError(f"its head has not one output for each of {K} classes")


register(NeuralizedClustering, _pack, _unpack)
for part in (CentroidHead, HierarchyHead, LinearHead, MixtureHead):
    storable(part)
