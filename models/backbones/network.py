"""Descriptions of networks, and their weights."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from neonxc.common.shortening import shortened

from ..features import FeatureExtractor
from ..layers import check_pool, layer_output, layout

Weights = str | os.PathLike[str] | None
"""``"default"``: the published ones; None: random; otherwise the path of a .pth or .safetensors file."""


class NoWeights(RuntimeError):
    """The default weights of a network can't be loaded; `reason` says why, without the advice for callers."""

    def __init__(self, reason: str, advice: str = "") -> None:
        self.reason = reason
        super().__init__(
            f"{reason}. {advice}Give weights=PATH for a .pth or .safetensors file, or weights=None for random "
            "weights; efficientnet_lite0() needs no download"
        )


def with_weights(
    weights: Weights, create: Callable[[], nn.Module], pretrained: Callable[[], nn.Module]
) -> nn.Module:
    """Make a network: with its published weights, random ones or those of a file."""
    if weights == "default":
        return pretrained()
    return create() if weights is None else from_file(create, weights)


def from_file(create: Callable[[], nn.Module], path: str | os.PathLike[str]) -> nn.Module:
    """Make a network with the state dict of a .safetensors file or, with ``weights_only=True``, of `torch.save`.

    Raises
    ------
    ValueError
        The file is missing, damaged, holds something else or does not fit; the message names it.
    """
    path = os.fspath(path)
    try:
        if path.endswith(".safetensors"):
            state = load_file(path, "cpu")
        else:
            state = torch.load(path, "cpu", weights_only=True)
    except Exception as error:  # on a foreign file the readers raise whatever they stumble over
        raise ValueError(f"cannot read the weights {path!r} ({first_line(error)})") from error
    if not isinstance(state, Mapping) or not all(isinstance(value, Tensor) for value in state.values()):
        raise ValueError(f"{path!r} holds no state dict, that is, tensors by name")
    net = create()  # after the file, as a network can take seconds to initialise
    try:
        net.load_state_dict(state)
    except RuntimeError as error:
        reason = shortened(" ".join(str(error).split()), 300)
        raise ValueError(f"{path!r} does not fit {type(net).__name__}: {reason}") from error
    return net


def first_line(error: Exception) -> str:
    """Write the kind of an error and the beginning of its message."""
    first, *_ = f"{type(error).__name__}: {error}".split("\n")
    return shortened(" ".join(first.split()), 200)


@dataclass(frozen=True)
class Network:
    """Description of a network on which feature extractors are built."""

    name: str
    load: Callable[[Weights], nn.Module]
    layers: Mapping[int, str]  # name of the layer of every block
    default: int  # number of the default block
    mean: tuple[float, ...] = (0.485, 0.456, 0.406)  # of ImageNet
    std: tuple[float, ...] = (0.229, 0.224, 0.225)
    size: tuple[int, int] = (224, 224)  # height and width of the images
    only_size: bool = False  # whether no other size is accepted
    class_token: bool = True  # whether the first token, if there are tokens, is a class token

    def extractor(
        self, block: int | None, layer: str | None, weights: Weights, **options: Any
    ) -> FeatureExtractor:
        """Load the network and build an extractor for a layer, a block or the default block.

        The `options` are those of the extractor. The description decides those that are not given.
        """
        if options.get("pool") == "class" and not self.class_token:
            raise ValueError(f'pool="class" needs a class token, but {self.name} has none')
        if layer is None:
            block = self.default if block is None else block
            if not self.layers:
                raise ValueError(f"{self.name} has no numbered blocks; pass layer, a name in its named_modules()")
            if block not in self.layers:
                raise ValueError(
                    f"block of {self.name} must be {min(self.layers)} to {max(self.layers)}; got {block!r}"
                )
            layer = self.layers[block]
        net = self.load(weights).eval()

        # The shape of the layer's output as it is, on the device "meta", where tensors have no values
        plain = FeatureExtractor(net, layer)
        plain.forward = partial(layer_output, net, layer)  # type: ignore[method-assign]  # does not arrange it
        tensors = chain(plain.named_parameters(), plain.named_buffers())
        state = {name: tensor.to("meta") for name, tensor in tensors}
        with torch.device("meta"), torch.no_grad():
            images = torch.empty(1, len(self.mean), *self.size)
            shape = torch.func.functional_call(plain, state, images).shape

        tokens = layout(net, layer, shape, self.size)
        options = {"mean": self.mean, "std": self.std, "tokens": tokens, **options}
        check_pool(options.get("pool"), options["tokens"] or 0)
        size = self.size if self.only_size else None
        extractor = FeatureExtractor(net, layer, size=size, **options)
        extractor._origin = (self.name, extractor.net)
        return extractor.requires_grad_(False).eval()
