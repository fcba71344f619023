"""Finds a layer of a network by its name, and computes its output without running the layers after it."""

from __future__ import annotations

import threading
from typing import Any

from torch import Tensor, nn

from neonxc.common.arguments import similar
from neonxc.common.modules import unwrapped


class _LayerReached(Exception):
    """Stops the forward pass when the layer has been computed; holds an identifier of the call and the output."""


def unwrap(net: nn.Module, layer: str) -> tuple[nn.Module, str]:
    """Unwrap `DataParallel` and `DistributedDataParallel`, and remove ``module.`` from the layer's name."""
    inner = unwrapped(net)
    if inner is net:
        return net, layer
    outer_name = layer.partition(".")[0] == "module" and not hasattr(inner, "module")
    return inner, layer.partition(".")[2] if outer_name else layer


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
        return output
    except AssertionError as error:  # raised by torchvision and timm for unsupported image sizes
        shape = list(images.shape)
        raise ValueError(f"{type(net).__name__} does not take images of shape {shape}: {error}") from error
    finally:
        hook.remove()
    raise RuntimeError(f"{type(net).__name__} does not call layer {layer!r} in its forward pass")
