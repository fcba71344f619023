"""VGG networks of torchvision: features are the outputs of their five max-poolings."""

from __future__ import annotations

from functools import partial

from torch import nn

from .builder import Backbone, Builder
from .weights import torchvision_net

__all__ = ["vgg11", "vgg11_bn", "vgg13", "vgg13_bn", "vgg16", "vgg16_bn", "vgg19", "vgg19_bn"]


def _max_pool(net: nn.Module, block: int) -> str:
    pools: list[str] = [name for name, module in net.named_modules() if isinstance(module, nn.MaxPool2d)]
    return pools[block - 1]


def _builder(name: str) -> Builder:
    depth, _, batch_norm = name.removeprefix("vgg").partition("_")
    return Backbone(
        name=name,
        title=f"VGG-{depth}" + (" with batch normalisation" if batch_norm else ""),
        source='K. Simonyan, A. Zisserman: "Very Deep Convolutional Networks for Large-Scale Image '
        'Recognition", ICLR 2015.',
        published="ImageNet weights of torchvision, downloaded once",
        load=partial(torchvision_net, name),
        layer=_max_pool,
        where="the max-pooling of that number",
        blocks=range(1, 6),
    ).builder(default=5, module=__name__)


vgg11 = _builder("vgg11")
vgg13 = _builder("vgg13")
vgg16 = _builder("vgg16")
vgg19 = _builder("vgg19")
vgg11_bn = _builder("vgg11_bn")
vgg13_bn = _builder("vgg13_bn")
vgg16_bn = _builder("vgg16_bn")
vgg19_bn = _builder("vgg19_bn")
