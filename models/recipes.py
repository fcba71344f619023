"""From a recipe, as a file holds it, to the feature network that is the place for saved weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from .backbones import build as build_extractor
from .backbones import vgg_small
from .words import WordVectors

__all__ = ["build"]


def build(recipe: Mapping[str, Any], sizes: Mapping[str, tuple[int, ...]]) -> nn.Module:
    """Build a feature network from its `recipe`, with weights to be replaced.

    Parameters
    ----------
    recipe : mapping
        ``builder``, and what it takes, as JSON values.
    sizes : mapping
        Shapes of the saved tensors.

    Raises
    ------
    ValueError
        `recipe` is none.
    """
    options = {key: value for key, value in recipe.items() if key != "builder"}
    if recipe.get("builder") == "WordVectors":
        return WordVectors(options["words"], torch.zeros(sizes["vectors"]))
    if recipe.get("builder") == "vgg_small":  # without its classifier
        network = vgg_small(int(options["in_channels"]), width=int(options.get("width", 32)))[:-1]
        network.recipe = dict(recipe)  # type: ignore[assignment]
        return network.eval()
    return build_extractor(recipe)
