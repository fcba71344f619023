"""Clustering models, and the networks and word vectors whose features they cluster."""

from __future__ import annotations

from .backbones import BACKBONES, backbone, vgg_small
from .backbones.architectures import EfficientNetLite0, efficientnet_lite0
from .backbones.torchvision_networks import (
    alexnet,
    convnext_tiny,
    efficientnet_b0,
    mobilenet_v2,
    mobilenet_v3_small,
    resnet18,
    resnet50,
    vgg11,
    vgg11_bn,
    vgg13,
    vgg13_bn,
    vgg16,
    vgg16_bn,
    vgg19,
    vgg19_bn,
    vit_b_16,
)
from .features import FeatureExtractor
from .images import load_image, to_tensor
from .interpretable import BetaInterpretable, KCenter, StronglyInterpretable, patterns
from .kernel import KernelKMeans
from .scan import SCAN
from .words import SentenceEncoder, WordVectors

__all__ = [
    "BACKBONES",
    "SCAN",
    "BetaInterpretable",
    "EfficientNetLite0",
    "FeatureExtractor",
    "KCenter",
    "KernelKMeans",
    "SentenceEncoder",
    "StronglyInterpretable",
    "WordVectors",
    "alexnet",
    "backbone",
    "convnext_tiny",
    "efficientnet_b0",
    "efficientnet_lite0",
    "load_image",
    "mobilenet_v2",
    "mobilenet_v3_small",
    "patterns",
    "resnet18",
    "resnet50",
    "to_tensor",
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
