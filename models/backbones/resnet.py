"""ResNets of torchvision: features are the outputs of their four stages."""

from __future__ import annotations

from functools import partial

from torch import nn

from .builder import Backbone, Builder
from .weights import torchvision_net

__all__ = ["resnet18", "resnet50"]


def _stage(net: nn.Module, block: int) -> str:
    return f"layer{block}"


def _builder(name: str) -> Builder:
    return Backbone(
        name=name,
        title=f"ResNet-{name.removeprefix('resnet')}",
        source='K. He, X. Zhang, S. Ren, J. Sun: "Deep Residual Learning for Image Recognition", CVPR 2016.',
        published="ImageNet weights of torchvision, downloaded once",
        load=partial(torchvision_net, name),
        layer=_stage,
        where="the stage of that number, ``layer1`` to ``layer4``",
        blocks=range(1, 5),
    ).builder(default=4, module=__name__)


resnet18 = _builder("resnet18")
resnet50 = _builder("resnet50")
