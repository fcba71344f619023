"""The output of a layer of a network: computed without the layers after it, and arranged as [N, d, ...]."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from inspect import signature
from typing import Any, Literal

import torch
from torch import Tensor, nn

from neonxc.common.arguments import similar

Pool = Literal["avg", "class"] | None


class _LayerReached(Exception):
    """Stops the forward pass when the layer has been computed; holds an identifier of the call and the output."""


def find_module(net: nn.Module, layer: str) -> nn.Module:
    """Find the module called `layer`; if there is none, a ValueError lists similar names."""
    try:
        return net.get_submodule(layer)
    except AttributeError:
        names = [name for name, _ in net.named_modules(remove_duplicate=False)]
        raise ValueError(
            f"layer {layer!r} is not a module of {type(net).__name__}{similar([layer], names)}; "
            "see net.named_modules()"
        ) from None


def layer_output(net: nn.Module, layer: str, images: Tensor) -> object:
    """Compute the first output of `layer` when `net` is called on `images`; later layers are not computed.

    Raises a ValueError if the network does not accept images of this shape, and a RuntimeError if it does not call
    the layer.
    """
    # Several extractors may share a network, be nested and run in parallel. Therefore the exception carries the
    # output together with an identifier of its call, and the hook only acts in its own thread.
    call, thread = object(), threading.get_ident()

    def stop(module: nn.Module, args: tuple[Any, ...], output: object) -> None:
        if threading.get_ident() == thread:
            raise _LayerReached(call, output)

    hook = find_module(net, layer).register_forward_hook(stop)
    try:
        net(images)
    except _LayerReached as reached:
        reached_by, output = reached.args
        if reached_by is not call:
            raise
        return getattr(output, "last_hidden_state", output)
    except AssertionError as error:  # raised by torchvision and timm for unsupported image sizes
        shape = list(images.shape)
        raise ValueError(f"{type(net).__name__} does not take images of shape {shape}: {error}") from error
    finally:
        hook.remove()
    raise RuntimeError(f"{type(net).__name__} does not call layer {layer!r} in its forward pass")


def check_pool(pool: Pool, tokens: int | None) -> None:
    """Raise a ValueError if `pool` or `tokens` is invalid, or if a class token is needed and there is none."""
    if pool not in ("avg", "class", None):
        raise ValueError(f'pool must be "avg", "class" or None; got {pool!r}')
    if tokens is not None and (not isinstance(tokens, int) or tokens < 0):
        raise ValueError(f"tokens must be None or the number of prefix tokens, 0 or more; got {tokens!r}")
    if pool == "class" and not tokens:
        raise ValueError(f'pool="class" needs a layer with a class token, tokens=1 or more; got tokens={tokens}')


def arrange(features: Tensor, pool: Pool, tokens: int | None, size: Sequence[int]) -> Tensor:
    """Arrange a layer's output as [N, d, ...] and pool it; `pool` and `tokens` are as in `FeatureExtractor`.

    The output has shape [N, d], [N, d, ...] or, with `tokens`, [N, T, d] or [N, h, w, d]. The patches must form a
    grid with the aspect ratio of the image, whose height and width are `size`; otherwise a ValueError is raised.
    """
    if tokens == 0 and features.ndim == 4:
        features = features.movedim(3, 1)
    elif tokens is not None and features.ndim > 2:
        if features.ndim != 3 or features.shape[1] <= tokens:
            raise ValueError(
                f"tokens={tokens} needs a layer with more tokens than that, [N, T, d]; "
                f"got shape {list(features.shape)} (tokens=None is for [N, d, h, w])"
            )
        if pool == "class":
            return features[:, 0]
        features = features[:, tokens:].mT
        if pool is None:
            features = features.unflatten(2, _grid(features.shape[2], size))
    return features.flatten(2).mean(2) if pool == "avg" and features.ndim > 2 else features


def _grid(patches: int, size: Sequence[int]) -> tuple[int, int]:
    height, width = size
    rows, columns = (round(math.sqrt(patches * ratio)) for ratio in (height / width, width / height))
    if rows * columns != patches:
        raise ValueError(
            f"the {patches} patch tokens of the layer form no grid for an image of {height} x {width} pixels; "
            'set tokens to the right number of prefix tokens, or use pool="avg"'
        )
    return rows, columns


@torch.no_grad()
def vision_settings(
    net: Any, layer: str, tokens: int | None, size: tuple[int, int] | None
) -> tuple[int | None, tuple[int, int] | None]:
    """The number of prefix tokens of a vision transformer of transformers, and the only size that it accepts."""
    side = getattr(net.config, "image_size", None)
    if not isinstance(side, int):
        return tokens, size
    if tokens is None:
        weight = next(net.parameters())
        output = layer_output(net, layer, weight.new_zeros(1, net.config.num_channels, side, side))
        tokens = prefix_tokens(output.shape) if isinstance(output, Tensor) else None
    fixed = "interpolate_pos_encoding" in signature(net.forward).parameters
    return tokens, size or ((side, side) if fixed else None)


def prefix_tokens(shape: Sequence[int]) -> int | None:
    """Infer `tokens` from the shape of a layer's output for one square image."""
    if len(shape) == 3:
        return shape[1] - math.isqrt(shape[1]) ** 2
    if len(shape) == 4 and shape[1] == shape[2] != shape[3]:
        return 0
    return None
