"""Saving and loading of feature networks: a recipe from which they are rebuilt, and their weights."""

from __future__ import annotations

from typing import Any

from torch import nn

from neonxc.common.registry import Values, register

from .backbones import build
from .backbones.vgg_small import vgg_small_embedding
from .features import FeatureExtractor
from .words import WordVectors


def _pack(network: Any) -> Values:
    recipe = getattr(network, "recipe", None)
    if not isinstance(recipe, dict):
        raise TypeError(
            f"can't save a {type(network).__name__} whose network was not built by neonxc.models.backbone"
        )
    return {"recipe": recipe, **network.state_dict()}


def _unpack(cls: type[nn.Module], values: Values) -> nn.Module:
    """Rebuild a feature network in evaluation mode."""
    recipe = values.pop("recipe")
    if cls is WordVectors:
        network: nn.Module = WordVectors(recipe["words"], values["vectors"])
    else:
        network = build(recipe) if cls is FeatureExtractor else vgg_small_embedding(int(recipe["in_channels"]))
    network.load_state_dict(values, assign=True)  # keeps the saved precision
    return network.eval()


for _network in (FeatureExtractor, WordVectors, nn.Sequential):  # nn.Sequential is SCAN's default embedding
    register(_network, _pack, _unpack)
