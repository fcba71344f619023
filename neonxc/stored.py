"""How a neuralized clustering is stored."""

from __future__ import annotations

import torch

from neonxc.heads import CentroidHead, Head, HierarchyHead, LinearHead, MixtureHead
from neonxc.network import NeuralizedClustering
from neonxc.registry import LEFT_OUT, Values, can_pack, register, storable


def _pack(net: NeuralizedClustering) -> Values:
    return {
        "head": net.head,
        "features": net.features if net.features is None or can_pack(net.features) else LEFT_OUT,
        "classes": net.classes_,
        "feature_names": net.feature_names_,
        "fidelity": [net.fidelity_, net.fidelity_held_out_],
        "beta": net._beta,
    }


def _unpack(cls: type[NeuralizedClustering], values: Values) -> NeuralizedClustering:
    if values["features"] == LEFT_OUT:
        raise ValueError("it was saved without its feature network: neonxc.load(path, features=network)")
    net = cls(values["head"], values["features"], values["classes"], values["feature_names"])
    net.beta = float(values["beta"])
    net._beta = values["beta"]  # in its own precision
    net.fidelity_, net.fidelity_held_out_ = values["fidelity"]
    _check(net)
    return net


@torch.no_grad()
def _check(net: NeuralizedClustering) -> None:
    """Use the head once: what does not fit together shows now, and not at some later call."""
    head, K = net.head, len(net.classes_)
    names = net.feature_names_ or [""] * head.n_features
    if not isinstance(head, Head) or len(names) != head.n_features or not all(isinstance(n, str) for n in names):
        raise TypeError("its head or the names of its features are of no use")
    x = torch.zeros(1, head.n_features)
    head.relevance(x, torch.tensor([K - 1]), net._beta)
    if head(x).shape != (1, K) or head.n_clusters != K or head.outside(x).shape != (1,):
        raise TypeError(f"its head has not one output for each of {K} classes")


register(NeuralizedClustering, _pack, _unpack)
for part in (CentroidHead, HierarchyHead, LinearHead, MixtureHead):
    storable(part)
