"""The networks that are known by name: EfficientNet-Lite0, and networks of torchvision with numbered blocks.

The default block of a VGG, a ResNet, AlexNet or a vision transformer is its last one; that of the others is the
last one at 1/16 of the image's resolution or more.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import PurePosixPath

import torch
from torch import nn

from neonxc.common.arguments import installed_by

from ..features import FeatureExtractor
from ..layers import Pool
from .architectures import LITE0
from .network import Network, NoWeights, Weights, first_line, with_weights


def _load(name: str, weights: Weights) -> nn.Module:
    """Make a network of torchvision: with its published weights, random ones or those of a file."""
    try:
        from torchvision import models  # takes a second, and only these networks need it
    except ImportError as error:
        raise ImportError(
            f"{name} is a network of torchvision, an optional package: {installed_by('vision')}"
        ) from error

    create: Callable[[], nn.Module] = partial(models.get_model, name)

    def pretrained() -> nn.Module:
        published = models.get_model_weights(name).DEFAULT
        try:
            state = published.get_state_dict(check_hash=True, weights_only=True)
        except Exception as error:  # no network, a full disk, a wrong hash, a damaged file left by an earlier try
            file = PurePosixPath(published.url).name
            folder = os.path.join(torch.hub.get_dir(), "checkpoints")
            raise NoWeights(
                f"could not get the default weights of {name} ({first_line(error)}); torch looks for the file "
                f"{file} in {folder}: put it there, or remove a damaged one"
            ) from error
        net = create()
        net.load_state_dict(state)
        return net

    return with_weights(weights, create, pretrained)


_POOLINGS = {  # numbers of the layers at the end of a VGG's blocks
    "vgg11": (2, 5, 10, 15, 20),
    "vgg13": (4, 9, 14, 19, 24),
    "vgg16": (4, 9, 16, 23, 30),
    "vgg19": (4, 9, 18, 27, 36),
    "vgg11_bn": (3, 7, 14, 21, 28),
    "vgg13_bn": (6, 13, 20, 27, 34),
    "vgg16_bn": (6, 13, 23, 33, 43),
    "vgg19_bn": (6, 13, 26, 39, 52),
}


def _network(name: str, layer: str, numbers: Iterable[int], default: int, first: int = 0) -> Network:
    """Describe a network whose blocks, counted from `first`, are the layers of these numbers."""
    layers = {block: f"{layer}{number}" for block, number in enumerate(numbers, first)}
    return Network(name, partial(_load, name), layers, default, only_size=name.startswith("vit"))


_VGGS = [_network(name, "features.", numbers, default=5, first=1) for name, numbers in _POOLINGS.items()]
_ALL = [
    LITE0,
    *_VGGS,
    _network("resnet18", "layer", range(1, 5), default=4, first=1),
    _network("resnet50", "layer", range(1, 5), default=4, first=1),
    _network("alexnet", "features.", (1, 4, 7, 9, 11), default=5, first=1),  # the ReLUs of the convolutions
    _network("mobilenet_v2", "features.", range(19), default=13),
    _network("mobilenet_v3_small", "features.", range(13), default=8),
    _network("efficientnet_b0", "features.", range(9), default=5),
    _network("convnext_tiny", "features.", (1, 3, 5, 7), default=3, first=1),  # the stages
    _network("vit_b_16", "encoder.layers.encoder_layer_", range(12), default=11),
]
NETWORKS = {network.name: network for network in _ALL}
"""The networks that :func:`neonxc.models.backbone` knows without timm, by name."""


def vgg16(
    block: int = 5, *, weights: Weights = "default", pool: Pool = None, normalize: bool = False
) -> FeatureExtractor:
    """Build a feature extractor on VGG-16, in evaluation mode and with frozen parameters.

    Parameters
    ----------
    block : int, default=5
        1 to 5. The features are the output of the max-pooling of that number.
    weights, pool, normalize
        As in :func:`neonxc.models.backbone`, which also takes the name of a layer instead of a block.

    Returns
    -------
    FeatureExtractor

    References
    ----------
    K. Simonyan, A. Zisserman: "Very Deep Convolutional Networks for Large-Scale Image Recognition", ICLR 2015.
    """
    return NETWORKS["vgg16"].extractor(block, None, weights, pool=pool, normalize=normalize)
