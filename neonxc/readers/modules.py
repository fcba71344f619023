"""Clustering heads of networks: a linear layer with a softmax, or the centers of deep embedded clustering."""

from __future__ import annotations

from torch import Tensor, nn

from neonxc.heads import LinearHead
from neonxc.readers.centers import centroids
from neonxc.readers.model import ClusterModel, read

CENTERS = ("cluster_centers", "centers", "centroids")


@read.register
def _(model: nn.Linear) -> ClusterModel:
    weight = model.weight.detach().double()
    bias = None if model.bias is None else model.bias.detach().double()
    return ClusterModel(lambda chain: LinearHead(weight, bias), None)


@read.register
def _(model: nn.Sequential) -> ClusterModel:
    """A network that ends in a clustering head; a softmax after it changes no decision."""
    layers = [layer for layer in model if not isinstance(layer, nn.Softmax | nn.LogSoftmax | nn.Identity)]
    if not layers:
        raise TypeError("can't neuralize an empty nn.Sequential")
    found = read(layers[-1])
    before = [*layers[:-1], *([] if found.features is None else [found.features])]
    features = nn.Sequential(*before) if before else None
    return ClusterModel(found.head, found.points, found.classes, features)


@read.register
def _(model: nn.Module) -> ClusterModel:
    """A layer with centers: DEC's similarity, a Student t of the distance, is greatest for the nearest."""
    for name in CENTERS:
        found = getattr(model, name, None)
        if isinstance(found, Tensor) and found.ndim == 2:
            return centroids(found)
    raise TypeError(
        f"can't neuralize a {type(model).__name__}: a clustering head is an nn.Linear, or a module with centers "
        f"[K, d] as {' or '.join(CENTERS)}; pass the network before it as features="
    )
