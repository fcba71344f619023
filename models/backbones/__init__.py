"""Networks whose layers serve as features: builders, their registry, and how to build one from its recipe."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..features import FeatureExtractor
from .builder import Builder
from .efficientnet_lite0 import EfficientNetLite0, efficientnet_lite0
from .resnet import resnet18, resnet50
from .vgg import vgg11, vgg11_bn, vgg13, vgg13_bn, vgg16, vgg16_bn, vgg19, vgg19_bn

__all__ = [
    "BACKBONES",
    "EfficientNetLite0",
    "backbone",
    "build",
    "efficientnet_lite0",
    "resnet18",
    "resnet50",
    "vgg11",
    "vgg11_bn",
    "vgg13",
    "vgg13_bn",
    "vgg16",
    "vgg16_bn",
    "vgg19",
    "vgg19_bn",
]

BACKBONES: dict[str, Builder] = {
    builder.__name__: builder
    for builder in (
        efficientnet_lite0,
        *(vgg11, vgg13, vgg16, vgg19),
        *(vgg11_bn, vgg13_bn, vgg16_bn, vgg19_bn),
        *(resnet18, resnet50),
    )
}
"""Builders by name."""


def backbone(name: str, layer: str | None = None, **options: Any) -> FeatureExtractor:
    """Build the feature extractor that is called `name`.

    Parameters
    ----------
    name : str
        A key of `BACKBONES`.
    layer : str, optional
        A module of the network by its name, such as ``"features.3"``, instead of one of the builder's blocks.
    **options
        What the builder takes: `block`, `weights`, `pool`, `normalize`.

    Returns
    -------
    FeatureExtractor
        In evaluation mode, parameters frozen.

    Raises
    ------
    ValueError
        No such backbone or layer; and what the builder raises.

    Examples
    --------
    >>> import torch
    >>> from neonxc.models import backbone
    >>> extractor = backbone("resnet18", block=2, weights=None, pool="avg")
    >>> extractor(torch.zeros(1, 3, 64, 64)).shape
    torch.Size([1, 128])
    """
    if name not in BACKBONES:
        raise ValueError(f"no backbone is called {name!r}; there are: {', '.join(BACKBONES)}")
    extractor = BACKBONES[name](**options)
    return extractor if layer is None else _at_layer(extractor, name, layer)


def build(recipe: Mapping[str, Any]) -> FeatureExtractor:
    """Build an extractor from its `recipe`, with random weights: the place for saved ones.

    Parameters
    ----------
    recipe : mapping
        `FeatureExtractor.recipe`: ``builder``, ``block`` or ``layer``, ``pool`` and ``normalize``.

    Returns
    -------
    FeatureExtractor
        In evaluation mode, parameters frozen; its `recipe` equals the given one.

    Raises
    ------
    ValueError
        `recipe` is none.
    """
    # A recipe comes out of a file, so it may hold anything; weights=PATH, for one, must not get through.
    options = dict(recipe)
    name = options.pop("builder", None)
    if not isinstance(name, str) or not options.keys() <= {"block", "layer", "pool", "normalize"}:
        raise ValueError(f"not the recipe of a feature extractor: {recipe}")
    return backbone(name, weights=None, **options)


def _at_layer(extractor: FeatureExtractor, name: str, layer: str) -> FeatureExtractor:
    pool, normalize = extractor.pool, extractor.normalize
    moved = FeatureExtractor(
        extractor.net, layer, pool=pool, normalize=normalize, mean=extractor.mean, std=extractor.std
    ).eval()
    moved.recipe = {"builder": name, "layer": layer, "pool": pool, "normalize": normalize}
    return moved
