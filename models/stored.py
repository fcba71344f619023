"""Saving and loading of feature networks: a recipe from which they are rebuilt, and their weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from neonxc.common.registry import register

from .backbones import build, vgg_small
from .features import FeatureExtractor
from .words import WordVectors


def _pack(network: Any) -> dict[str, Any]:
    recipe = getattr(network, "recipe", None)
    if not isinstance(recipe, dict):
        raise TypeError(
            f"can't save a {type(network).__name__} whose network was not built by neonxc.models.backbone"
        )
    return {"recipe": recipe, **network.state_dict()}


def _unpack(cls: type[nn.Module], values: dict[str, Any]) -> nn.Module:
    state = {name: value for name, value in values.items() if isinstance(value, Tensor)}
    network = _built(values["recipe"], state)
    if not isinstance(network, cls):
        raise TypeError(f"the recipe does not describe a {cls.__name__}: {values['recipe']}")
    network.load_state_dict(state, assign=True)  # keeps the saved precision
    return network


def _built(recipe: Mapping[str, Any], state: Mapping[str, Tensor]) -> nn.Module:
    """Rebuild a feature network in evaluation mode; its weights are replaced by `state` afterwards."""
    if recipe.get("builder") == "WordVectors":
        return WordVectors(recipe["words"], torch.zeros_like(state["vectors"]))
    if recipe.get("builder") == "vgg_small":  # used by SCAN without its classifier
        network = vgg_small(int(recipe["in_channels"]), width=int(recipe.get("width", 32)))[:-1]
        network.recipe = dict(recipe)  # type: ignore[assignment]
        return network.eval()
    return build(recipe)


for _network in (FeatureExtractor, WordVectors, nn.Sequential):  # nn.Sequential is SCAN's default embedding
    register(_network, _pack, _unpack)
