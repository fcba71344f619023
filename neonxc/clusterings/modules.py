"""Readers of clustering heads of networks: linear layers, and layers with centers (deep embedded clustering)."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from neonxc.clusterings.centers import centroids
from neonxc.clusterings.model import ClusterModel, read
from neonxc.data.inputs import check_finite
from neonxc.head import linear_head

CENTERS = ("cluster_centers", "centers", "centroids")
TRIED = 256  # number of points at which the module is compared with the nearest center
TIED = 1e-3  # relative tolerance: closer squared distances are ties


@read.register
def _(model: nn.Linear) -> ClusterModel:
    values = {}
    for name in ("weight", "bias"):
        if (value := getattr(model, name)) is not None:
            check_finite(value.detach(), name=f"the {name} of the linear layer")
            values[name] = value.detach().to(torch.float64, copy=True)  # as the layer may be trained further
    return ClusterModel(lambda chain: linear_head(**values), None, scale=1.0)


@read.register
def _(model: nn.Sequential) -> ClusterModel:
    """Read a network that ends in a clustering head; a softmax after the head does not change the decisions."""
    layers = list(model)
    while layers and isinstance(layers[-1], nn.Softmax | nn.LogSoftmax | nn.Identity):
        layers.pop()
    if not layers:
        raise TypeError("can't neuralize an empty nn.Sequential")
    found = read(layers[-1])
    return replace(found, features=chained(*layers[:-1], found.features))


def chained(*modules: nn.Module | None) -> nn.Module | None:
    """Return the modules, some of which may be missing, as one; None if all are."""
    found = [module for module in modules if module is not None]
    # a single module may be rebuilt from its description when it is loaded
    return nn.Sequential(*found) if len(found) > 1 else next(iter(found), None)


def device_of(holder: Any) -> torch.device | None:
    """Return the device of a tensor or of a module with tensors; None for anything else."""
    if isinstance(holder, nn.Module):
        holder = next(chain(holder.parameters(), holder.buffers()), None)
    return holder.device if isinstance(holder, Tensor) else None


@read.register
def _(model: nn.Module) -> ClusterModel:
    """Read a layer with centers, such as DEC's, whose Student-t similarity is largest for the nearest center."""
    for name in CENTERS:
        centers = getattr(model, name, None)
        if isinstance(centers, Tensor) and centers.ndim == 2:
            found = centroids(centers)
            _check_nearest(model, name, centers.detach())
            return found
    raise TypeError(
        f"can't neuralize a {type(model).__name__}: the model needs to be an nn.Linear, or a module with centers "
        f"[K, d] as {' or '.join(CENTERS)}; pass the network before it as features="
    )


@torch.no_grad()
def _check_nearest(model: nn.Module, name: str, centers: Tensor) -> None:
    """Refuse a module whose largest output is not that of the nearest center, tested at random points."""
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(TRIED, centers.shape[1], generator=generator).to(centers)
    points = centers[torch.arange(TRIED, device=centers.device) % len(centers)] + noise * centers.std(0, False)
    far = torch.cdist(points.double(), centers.double()).square()
    # the distance is |z|^2 - 2 z'c + |c|^2
    rounding = 16 * torch.finfo(points.dtype).eps * points.double().square().sum(1)
    try:
        chosen = far.gather(1, model(points).argmax(1, keepdim=True))[:, 0]
        nearest = bool((chosen <= far.amin(1) * (1 + TIED) + rounding).all())
    except (AttributeError, LookupError, RuntimeError, ValueError, TypeError):  # it has other inputs or outputs
        nearest = False
    if not nearest:
        raise TypeError(
            f"can't neuralize a {type(model).__name__}: its largest output is not that of the nearest of its "
            f"{name}; pass the network before them as features=, and the similarity layer or the {name} as "
            "the model"
        )
