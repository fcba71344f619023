"""Descriptions of networks, and the functions that build feature extractors on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Protocol

import torch
from torch import Tensor, nn

from ..features import FeatureExtractor
from ..layout import Pool, prefix_tokens
from .weights import Weights


class Builder(Protocol):
    """Signature of the builders of backbones."""

    __name__: str

    def __call__(
        self, block: int = ..., *, weights: Weights = ..., pool: Pool = ..., normalize: bool = ...
    ) -> FeatureExtractor:
        """Build an extractor."""


@dataclass(frozen=True)
class Network:
    """Description of a network on which feature extractors are built."""

    name: str
    load: Callable[[Weights], nn.Module]
    layers: Sequence[str]  # name of the layer of every block
    default: int  # number of the default block
    first: int = 0  # number of the first block
    mean: tuple[float, ...] = (0.485, 0.456, 0.406)  # of ImageNet
    std: tuple[float, ...] = (0.229, 0.224, 0.225)
    size: tuple[int, int] = (224, 224)  # height and width of the images
    only_size: bool = False  # whether no other size is accepted
    class_token: bool = True  # whether the first token, if there are tokens, is a class token
    title: str = ""  # this and the following fields are for the documentation
    where: str = ""
    reference: str = ""
    published: str = "ImageNet weights of torchvision, downloaded once"

    @property
    def last(self) -> int:
        """Number of the last block."""
        return self.first + len(self.layers) - 1

    def extractor(
        self, block: int | None, layer: str | None, weights: Weights, pool: Pool, normalize: bool
    ) -> FeatureExtractor:
        """Load the network and build an extractor for a layer, a block or the default block."""
        if pool == "class" and not self.class_token:
            raise ValueError(f'pool="class" needs a class token, but {self.name} has none')
        layer = self._layer(self.default if block is None else block) if layer is None else layer
        net = self.load(weights).eval()
        images = torch.empty(1, len(self.mean), *self.size, device="meta")
        tokens = prefix_tokens(_shape(FeatureExtractor(net, layer), images))
        size = self.size if self.only_size else None
        built = FeatureExtractor(
            net, layer, pool=pool, normalize=normalize, mean=self.mean, std=self.std, tokens=tokens, size=size
        )
        return ready(built, self.name)

    def _layer(self, block: int) -> str:
        if not self.layers:
            raise ValueError(f"{self.name} has no numbered blocks; pass layer, a name in its named_modules()")
        if block not in range(self.first, self.last + 1):
            raise ValueError(f"block of {self.name} must be {self.first} to {self.last}; got {block!r}")
        return self.layers[block - self.first]


def _shape(extractor: FeatureExtractor, images: Tensor) -> torch.Size:
    """Shape of the features, computed on the meta device, where tensors have no values."""
    tensors = chain(extractor.named_parameters(), extractor.named_buffers())
    state = {name: tensor.to("meta") for name, tensor in tensors}
    with torch.device("meta"), torch.no_grad():
        features: Tensor = torch.func.functional_call(extractor, state, images)
    return features.shape


def ready(extractor: FeatureExtractor, name: str) -> FeatureExtractor:
    """Freeze the parameters, and record the builder's name for the recipe."""
    extractor._origin = (name, extractor.net)
    return extractor.requires_grad_(False).eval()


NETWORKS: dict[str, Network] = {}
"""The networks that have a builder, by name."""
BACKBONES: dict[str, Builder] = {}
"""The builders of feature extractors, by name."""

_DOCUMENTATION = """Build a feature extractor on {0.title}, in evaluation mode and with frozen parameters.

    Parameters
    ----------
    block : int, default={0.default}
        {0.first} to {0.last}. The features are the output of {0.where}.
    weights : "default", None or path, default="default"
        "default": {0.published};
        None: random weights; a path: a .pth or .safetensors file with the state dict of the network.
    pool, normalize
        As in :func:`neonxc.models.backbone`, which also takes the name of a layer instead of a block.

    Returns
    -------
    FeatureExtractor
        On the CPU in float32, with the `mean` and `std` of the network's inputs and a `recipe`.

    References
    ----------
    {0.reference}
    """


def builder(network: Network, module: str) -> Builder:
    """Register a network, and create the public function of `module` that builds extractors on it."""

    def build(
        block: int = network.default, *, weights: Weights = "default", pool: Pool = None, normalize: bool = False
    ) -> FeatureExtractor:
        return network.extractor(block, None, weights, pool, normalize)

    build.__name__ = build.__qualname__ = network.name
    build.__module__ = module
    build.__doc__ = _DOCUMENTATION.format(network)
    NETWORKS[network.name], BACKBONES[network.name] = network, build
    return build
