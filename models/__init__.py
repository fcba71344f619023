"""Clustering models, and the networks and word vectors whose features they cluster."""

from __future__ import annotations

from .backbones import BACKBONES, backbone, vgg_small
from .backbones.architectures import EfficientNetLite0, efficientnet_lite0
from .backbones.torchvision_networks import vgg16
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
    "backbone",
    "efficientnet_lite0",
    "load_image",
    "patterns",
    "to_tensor",
    "vgg16",
    "vgg_small",
]
