"""Networks whose layers serve as features, by name and by recipe."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..features import FeatureExtractor
from ..layout import Pool
from .network import BACKBONES, NETWORKS, ready
from .timm_networks import timm_network
from .vgg_small import vgg_small
from .weights import Weights

__all__ = ["BACKBONES", "backbone", "build", "vgg_small"]


def backbone(
    name: str,
    layer: str | None = None,
    *,
    block: int | None = None,
    weights: Weights = "default",
    pool: Pool = None,
    normalize: bool = False,
) -> FeatureExtractor:
    """Build the feature extractor that is called `name`, in evaluation mode and with frozen parameters.

    Parameters
    ----------
    name : str
        A key of `BACKBONES`, or any name in ``timm.list_models()``, with ``"timm/"`` before it where ours are
        called the same: ``"resnet18"`` is torchvision's, ``"timm/resnet18"`` timm's.
    layer : str, optional
        A module of the network by its name, such as ``"features.3"``, in place of a block.
    block : int, optional
        One of the network's numbered blocks; None: its default one. Of a network of timm they are the entries
        of its `feature_info`, counted from 0: stages, or the blocks of a vision transformer. The default is then
        the last one at 1/16 of the image's resolution or more.
    weights : "default", None or path, default="default"
        The published weights, random ones, or those of a .pth or .safetensors file with the state dict of the
        network.
    pool : {"avg", "class"}, optional
        ``"avg"``: the mean over all positions, [N, d]; ``"class"``: the class token of a vision transformer,
        [N, d]; None: a feature map, [N, d, h, w], to which the tokens of patches are arranged.
    normalize : bool, default=False
        Scale the features to unit Euclidean norm along the channels.

    Returns
    -------
    FeatureExtractor
        On the CPU, float32; with the `mean` and `std` of the network's inputs and a `recipe`. A vision
        transformer of timm takes any image that its patches tile; other networks may take one `size` only.

    Raises
    ------
    ValueError
        There is no such backbone, layer, block or pooling; or a weight file is missing, damaged or another
        network's.
    RuntimeError
        The default weights could not be downloaded; the message says what to do.
    ImportError
        The network or its weights need an optional package; the message names it.

    Examples
    --------
    >>> import torch
    >>> from neonxc.models import backbone
    >>> extractor = backbone("resnet18", block=2, weights=None, pool="avg")
    >>> extractor(torch.zeros(1, 3, 64, 64)).shape
    torch.Size([1, 128])
    """
    network = NETWORKS[name] if name in NETWORKS else timm_network(name, weights)
    return network.extractor(block, layer, weights, pool, normalize)


def build(recipe: Mapping[str, Any]) -> FeatureExtractor:
    """Build an extractor from its `recipe`, with random weights: the place for saved ones.

    Parameters
    ----------
    recipe : mapping
        `FeatureExtractor.recipe`: ``builder``, ``layer`` (or ``block``), and attributes of the extractor:
        ``pool``, ``normalize``, ``tokens``, ``mean``, ``std``. Those that are missing are the builder's.

    Returns
    -------
    FeatureExtractor
        In evaluation mode, parameters frozen; its `recipe` equals the given one.

    Raises
    ------
    ValueError
        `recipe` is not one.
    """
    # A recipe comes out of a file, so it may hold anything; weights=PATH, for one, must not get through.
    options = dict(recipe)
    name, layer, block = (options.pop(key, None) for key in ("builder", "layer", "block"))
    if not isinstance(name, str) or not options.keys() <= set(FeatureExtractor.settings):
        raise ValueError(f"not the recipe of a feature extractor: {recipe}")
    built = backbone(name, layer, block=block, weights=None)
    settings = {key: getattr(built, key) for key in built.settings} | options
    return ready(FeatureExtractor(built.net, built.layer, size=built.size, **settings), name)
