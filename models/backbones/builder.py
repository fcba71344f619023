"""From a network to the function that builds its feature extractor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from torch import nn

from ..features import FeatureExtractor
from ..layers import find_module
from ..layout import Pool
from .weights import Weights

__all__ = ["IMAGENET_MEAN", "IMAGENET_STD", "Backbone", "Builder", "at_layer", "named"]

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)

_DOCUMENTATION = """Feature extractor on {title}, ready to use: evaluation mode, parameters frozen.

    Parameters
    ----------
    block : int, default={default}
        {first} to {last}: the features are the output of {where}.
    weights : "default", None or path, default="default"
        {published}; None: random ones; or the path of a .pth or .safetensors
        file with the state dict of the network.
    pool : {pool}
    normalize : bool, default=False
        Scale the features to unit Euclidean norm along the channels.

    Returns
    -------
    FeatureExtractor
        On the CPU, float32; with the `mean` and `std` of the network's inputs{inputs}, and a `recipe`.

    Raises
    ------
    ValueError
        `block` out of range, `pool` unknown, or a weight file that is missing, damaged or another network's.
    RuntimeError, ImportError
        The default weights could not be downloaded, or their package is not installed; the message says what
        to do.

    References
    ----------
    {source}
    """

_POOL = """{"avg"}, optional
        ``"avg"``: the mean over all positions, [N, d]; None: a feature map, [N, d, h, w]."""
_POOL_TOKENS = """{"avg", "class"}, optional
        ``"avg"``: the mean over the patch tokens, [N, d]; ``"class"``: the class token, [N, d]; None: the
        patch tokens as a map, [N, d, h, w]."""


class Builder(Protocol):
    """The signature that all builders of backbones share."""

    __name__: str

    def __call__(
        self, block: int = ..., *, weights: Weights = ..., pool: Pool = ..., normalize: bool = ...
    ) -> FeatureExtractor:
        """Build the extractor."""


@dataclass(frozen=True)
class Backbone:
    """What has to be known of a network so that its layers can be used as features."""

    name: str
    title: str
    source: str
    published: str
    load: Callable[[Weights], nn.Module]
    layer: Callable[[nn.Module, int], str]  # the module whose output a block's features are
    where: str
    blocks: range
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD
    tokens: int | None = None
    size: tuple[int, int] | None = None

    def extractor(self, block: int, weights: Weights, pool: Pool, normalize: bool) -> FeatureExtractor:
        """Load the network and put an extractor on one of its blocks."""
        if block not in self.blocks:
            first, last = self.blocks[0], self.blocks[-1]
            raise ValueError(f"block of {self.name} must be {first} to {last}; got {block!r}")
        net = self.load(weights)
        extractor = FeatureExtractor(
            net,
            self.layer(net, block),
            pool=pool,
            normalize=normalize,
            mean=self.mean,
            std=self.std,
            tokens=self.tokens,
            size=self.size,
        )
        return named(extractor, self.name)

    def builder(self, default: int, module: str) -> Builder:
        """Make the public function of `module` that builds extractors on this network."""

        def build(
            block: int = default, *, weights: Weights = "default", pool: Pool = None, normalize: bool = False
        ) -> FeatureExtractor:
            return self.extractor(block, weights, pool, normalize)

        build.__name__ = build.__qualname__ = self.name
        build.__module__ = module
        build.__doc__ = _DOCUMENTATION.format(
            title=self.title,
            default=default,
            first=self.blocks[0],
            last=self.blocks[-1],
            where=self.where,
            published=self.published,
            pool=_POOL if self.tokens is None else _POOL_TOKENS,
            inputs="" if self.size is None else ", their `size`",
            source=self.source,
        )
        return build


def named(extractor: FeatureExtractor, name: str) -> FeatureExtractor:
    """Make ready what the builder `name` built: evaluation mode, parameters frozen, a recipe."""
    extractor._origin = (name, extractor.net)
    return extractor.requires_grad_(False).eval()


def at_layer(extractor: FeatureExtractor, layer: str) -> FeatureExtractor:
    """Move the extractor to another layer of its network."""
    find_module(extractor.net, layer)
    extractor.layer = layer
    return extractor
