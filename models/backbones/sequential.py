"""Networks of torchvision whose convolutions are one sequence, `features`: blocks are modules of it.

The default block is the last at 1/16 of the image's resolution.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import nn

from .builder import Backbone, Builder
from .weights import torchvision_net

__all__ = ["alexnet", "convnext_tiny", "efficientnet_b0", "mobilenet_v2", "mobilenet_v3_small"]


def _module(net: nn.Module, block: int) -> str:
    return f"features.{block}"


def _relu(net: nn.Module, block: int) -> str:
    relus: list[str] = [name for name, module in net.named_modules() if isinstance(module, nn.ReLU)]
    return relus[block - 1]


def _convnext_stage(net: nn.Module, block: int) -> str:
    return f"features.{2 * block - 1}"  # those between stem the image or halve its resolution


def _builder(
    name: str,
    title: str,
    source: str,
    where: str,
    blocks: range,
    default: int,
    layer: Callable[[nn.Module, int], str] = _module,
) -> Builder:
    return Backbone(
        name=name,
        title=title,
        source=source,
        published="ImageNet weights of torchvision, downloaded once",
        load=partial(torchvision_net, name),
        layer=layer,
        where=where,
        blocks=blocks,
    ).builder(default=default, module=__name__)


alexnet = _builder(
    "alexnet",
    "AlexNet",
    'A. Krizhevsky: "One Weird Trick for Parallelizing Convolutional Neural Networks", arXiv 1404.5997, 2014.',
    "the ReLU after the convolution of that number",
    range(1, 6),
    default=5,
    layer=_relu,
)
mobilenet_v2 = _builder(
    "mobilenet_v2",
    "MobileNetV2",
    'M. Sandler, A. Howard, M. Zhu, A. Zhmoginov, L.-C. Chen: "MobileNetV2: Inverted Residuals and Linear '
    'Bottlenecks", CVPR 2018.',
    "``features.N``: a convolution, 17 inverted-residual blocks, a convolution",
    range(19),
    default=13,
)
mobilenet_v3_small = _builder(
    "mobilenet_v3_small",
    "MobileNetV3-Small",
    'A. Howard et al.: "Searching for MobileNetV3", ICCV 2019.',
    "``features.N``: a convolution, 11 inverted-residual blocks, a convolution",
    range(13),
    default=8,
)
efficientnet_b0 = _builder(
    "efficientnet_b0",
    "EfficientNet-B0",
    'M. Tan, Q. V. Le: "EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks", ICML 2019.',
    "``features.N``: a convolution, seven stages, a convolution",
    range(9),
    default=5,
)
convnext_tiny = _builder(
    "convnext_tiny",
    "ConvNeXt-Tiny",
    'Z. Liu, H. Mao, C.-Y. Wu, C. Feichtenhofer, T. Darrell, S. Xie: "A ConvNet for the 2020s", CVPR 2022.',
    "the stage of that number, ``features.1``, ``features.3``, ``features.5`` or ``features.7``",
    range(1, 5),
    default=3,
    layer=_convnext_stage,
)
