"""The vision transformer of torchvision: features are the tokens after its encoder layers."""

from __future__ import annotations

from functools import partial

from torch import nn

from .builder import Backbone
from .weights import torchvision_net

__all__ = ["vit_b_16"]


def _encoder_layer(net: nn.Module, block: int) -> str:
    return f"encoder.layers.encoder_layer_{block}"


vit_b_16 = Backbone(
    name="vit_b_16",
    title="ViT-B/16",
    source='A. Dosovitskiy et al.: "An Image is Worth 16x16 Words: Transformers for Image Recognition at Scale", '
    "ICLR 2021.",
    published="ImageNet weights of torchvision, downloaded once",
    load=partial(torchvision_net, "vit_b_16"),
    layer=_encoder_layer,
    where="the encoder layer of that number (the final norm is the layer ``encoder.ln``)",
    blocks=range(12),
    tokens=1,
    size=(224, 224),
).builder(default=11, module=__name__)
