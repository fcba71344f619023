"""One layer of a network: found by its name, and its output, without what comes after it."""

from __future__ import annotations

import difflib
import threading
from typing import Any

from torch import Tensor, nn

from neonxc.modules import unwrapped

__all__ = ["find_module", "layer_output", "unwrap"]


class _Reached(Exception):
    """Leaves the network as soon as the wanted layer has its output; carries the call and that output."""


def unwrap(net: nn.Module, layer: str) -> tuple[nn.Module, str]:
    """Take the network out of `DataParallel` or `DistributedDataParallel`, whose names begin with ``module``."""
    inner = unwrapped(net)
    if inner is net:
        return net, layer
    outer_name = layer.partition(".")[0] == "module" and not hasattr(inner, "module")
    return inner, layer.partition(".")[2] if outer_name else layer


def find_module(net: nn.Module, layer: str) -> nn.Module:
    """Module of `net` that is called `layer`; if there is none, a ValueError tells names that are close."""
    try:
        return net.get_submodule(layer)
    except AttributeError:
        names = [name for name, _ in net.named_modules(remove_duplicate=False)]
        close = difflib.get_close_matches(str(layer), names, n=5, cutoff=0.5)
        hint = f"close matches: {', '.join(map(repr, close))}; " if close else ""
        raise ValueError(
            f"layer {layer!r} is no module of {type(net).__name__}; {hint}"
            "all names: [name for name, _ in net.named_modules()]"
        ) from None


def layer_output(net: nn.Module, layer: str, images: Tensor) -> object:
    """First output of `layer` when `net` is called on `images`; nothing after it is computed.

    A ValueError says that the network does not take images of this shape, a RuntimeError that it does not run
    the layer.
    """
    # Extractors may share a network, contain each other and run at the same time: the output travels in the
    # exception, which knows its call, and the hook minds its own thread only.
    call, thread = object(), threading.get_ident()

    def stop(module: nn.Module, args: tuple[Any, ...], output: object) -> None:
        if threading.get_ident() == thread:
            raise _Reached(call, output)

    hook = find_module(net, layer).register_forward_hook(stop)
    try:
        net(images)
    except _Reached as reached:
        reached_by, output = reached.args
        if reached_by is not call:
            raise
        return output
    except AssertionError as error:  # how torchvision and timm say which image sizes they take
        shape = list(images.shape)
        raise ValueError(f"{type(net).__name__} does not take images of shape {shape}: {error}") from error
    finally:
        hook.remove()
    raise RuntimeError(f"layer {layer!r} does not run when {type(net).__name__} is called")
