"""Networks whose layers serve as features: builders, their registry, and how to build one from its recipe."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..features import FeatureExtractor
from .builder import Builder, at_layer, named
from .efficientnet_lite0 import EfficientNetLite0, efficientnet_lite0
from .from_timm import timm_extractor
from .resnet import resnet18, resnet50
from .sequential import alexnet, convnext_tiny, efficientnet_b0, mobilenet_v2, mobilenet_v3_small
from .vgg import vgg11, vgg11_bn, vgg13, vgg13_bn, vgg16, vgg16_bn, vgg19, vgg19_bn
from .vgg_small import vgg_small
from .vit import vit_b_16

__all__ = [
    "BACKBONES",
    "EfficientNetLite0",
    "alexnet",
    "backbone",
    "build",
    "convnext_tiny",
    "efficientnet_b0",
    "efficientnet_lite0",
    "mobilenet_v2",
    "mobilenet_v3_small",
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
    "vgg_small",
    "vit_b_16",
]

BACKBONES: dict[str, Builder] = {
    builder.__name__: builder
    for builder in (
        efficientnet_lite0,
        *(vgg11, vgg13, vgg16, vgg19),
        *(vgg11_bn, vgg13_bn, vgg16_bn, vgg19_bn),
        *(resnet18, resnet50),
        *(alexnet, mobilenet_v2, mobilenet_v3_small, efficientnet_b0, convnext_tiny),
        vit_b_16,
    )
}
"""Builders by name."""

_SETTINGS = ("pool", "normalize", "tokens", "mean", "std")


def backbone(name: str, layer: str | None = None, **options: Any) -> FeatureExtractor:
    """Build the feature extractor that is called `name`.

    Parameters
    ----------
    name : str
        A key of `BACKBONES`, or any name in ``timm.list_models()``, with ``"timm/"`` before it where ours are
        called the same: ``"resnet18"`` is torchvision's, ``"timm/resnet18"`` timm's.
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
    ImportError
        A network of timm, and timm is not installed.

    Notes
    -----
    Of a network of timm the blocks are the entries of its `feature_info`, counted from 0: stages, or the blocks
    of a vision transformer. The default is the last one at 1/16 of the image's resolution or more. A vision
    transformer takes any image that its patches tile, and its features may be pooled to the ``"class"`` token.

    Examples
    --------
    >>> import torch
    >>> from neonxc.models import backbone
    >>> extractor = backbone("resnet18", block=2, weights=None, pool="avg")
    >>> extractor(torch.zeros(1, 3, 64, 64)).shape
    torch.Size([1, 128])
    """
    if name not in BACKBONES:
        return timm_extractor(name, layer, **options)
    extractor = BACKBONES[name](**options)
    return extractor if layer is None else at_layer(extractor, layer)


def build(recipe: Mapping[str, Any]) -> FeatureExtractor:
    """Build an extractor from its `recipe`, with random weights: the place for saved ones.

    Parameters
    ----------
    recipe : mapping
        `FeatureExtractor.recipe`: ``builder``, ``layer`` (or ``block``), and what to change of the extractor
        that this builds: ``pool``, ``normalize``, ``tokens``, ``mean``, ``std``.

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
    if not isinstance(name, str) or not options.keys() <= {"block", "layer", *_SETTINGS}:
        raise ValueError(f"not the recipe of a feature extractor: {recipe}")
    place = {key: options.pop(key) for key in ("block", "layer") if key in options}
    built = backbone(name, weights=None, **place)
    settings = {key: options.get(key, getattr(built, key)) for key in _SETTINGS}
    return named(FeatureExtractor(built.net, built.layer, size=built.size, **settings), name)
