"""The networks of torchvision that have builders, one row each.

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

from .architectures import EFFICIENTNET
from .network import Builder, Network, NoWeights, Weights, builder, first_line, with_weights


def _load(name: str, weights: Weights) -> nn.Module:
    from torchvision import models  # takes a second, and only these networks need it

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


def _row(
    name: str,
    title: str,
    layer: str,
    numbers: Iterable[int],
    where: str,
    reference: str,
    default: int,
    first: int = 0,
    only_size: bool = False,
) -> Builder:
    layers = {block: f"{layer}{number}" for block, number in enumerate(numbers, first)}
    network = Network(name, partial(_load, name), layers, default, only_size=only_size)
    return builder(network, __name__, title, where, reference)


def _vgg(name: str, title: str, *poolings: int) -> Builder:
    return _row(name, title, "features.", poolings, "the max-pooling of that number", VGG, default=5, first=1)


def _resnet(name: str, title: str) -> Builder:
    where = "the stage of that number, ``layer1`` to ``layer4``"
    return _row(name, title, "layer", range(1, 5), where, RESNET, default=4, first=1)


VGG = 'K. Simonyan, A. Zisserman: "Very Deep Convolutional Networks for Large-Scale Image Recognition", ICLR 2015.'
RESNET = 'K. He, X. Zhang, S. Ren, J. Sun: "Deep Residual Learning for Image Recognition", CVPR 2016.'

vgg11 = _vgg("vgg11", "VGG-11", 2, 5, 10, 15, 20)
vgg13 = _vgg("vgg13", "VGG-13", 4, 9, 14, 19, 24)
vgg16 = _vgg("vgg16", "VGG-16", 4, 9, 16, 23, 30)
vgg19 = _vgg("vgg19", "VGG-19", 4, 9, 18, 27, 36)
vgg11_bn = _vgg("vgg11_bn", "VGG-11 with batch normalisation", 3, 7, 14, 21, 28)
vgg13_bn = _vgg("vgg13_bn", "VGG-13 with batch normalisation", 6, 13, 20, 27, 34)
vgg16_bn = _vgg("vgg16_bn", "VGG-16 with batch normalisation", 6, 13, 23, 33, 43)
vgg19_bn = _vgg("vgg19_bn", "VGG-19 with batch normalisation", 6, 13, 26, 39, 52)
resnet18 = _resnet("resnet18", "ResNet-18")
resnet50 = _resnet("resnet50", "ResNet-50")
alexnet = _row(
    "alexnet",
    "AlexNet",
    "features.",
    (1, 4, 7, 9, 11),
    "the ReLU after the convolution of that number",
    'A. Krizhevsky: "One Weird Trick for Parallelizing Convolutional Neural Networks", arXiv 1404.5997, 2014.',
    default=5,
    first=1,
)
mobilenet_v2 = _row(
    "mobilenet_v2",
    "MobileNetV2",
    "features.",
    range(19),
    "``features.N``: a convolution, 17 inverted-residual blocks, a convolution",
    'M. Sandler et al.: "MobileNetV2: Inverted Residuals and Linear Bottlenecks", CVPR 2018.',
    default=13,
)
mobilenet_v3_small = _row(
    "mobilenet_v3_small",
    "MobileNetV3-Small",
    "features.",
    range(13),
    "``features.N``: a convolution, 11 inverted-residual blocks, a convolution",
    'A. Howard et al.: "Searching for MobileNetV3", ICCV 2019.',
    default=8,
)
efficientnet_b0 = _row(
    "efficientnet_b0",
    "EfficientNet-B0",
    "features.",
    range(9),
    "``features.N``: a convolution, seven stages, a convolution",
    EFFICIENTNET,
    default=5,
)
convnext_tiny = _row(
    "convnext_tiny",
    "ConvNeXt-Tiny",
    "features.",
    (1, 3, 5, 7),
    "the stage of that number, ``features.1``, ``features.3``, ``features.5`` or ``features.7``",
    'Z. Liu et al.: "A ConvNet for the 2020s", CVPR 2022.',
    default=3,
    first=1,
)
vit_b_16 = _row(
    "vit_b_16",
    "ViT-B/16",
    "encoder.layers.encoder_layer_",
    range(12),
    "the encoder layer of that number (the final norm is the layer ``encoder.ln``)",
    'A. Dosovitskiy et al.: "An Image is Worth 16x16 Words: Transformers for Image Recognition at Scale", '
    "ICLR 2021.",
    default=11,
    only_size=True,
)
