"""Weights of backbones: read from a file. Nothing is ever unpickled."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Callable, Mapping

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

Weights = str | os.PathLike[str] | None
"""``"default"``: the published ones; None: random; otherwise the path of a .pth or .safetensors file."""


class NoWeights(RuntimeError):
    """The default weights of a network can't be had: `reason` says why, without what a caller in Python may do."""

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
    # The file first: a network, which can take seconds to initialise, is of no use without it.
    state = None if weights is None else read_state_dict(weights)
    net = create()
    if state is not None:
        load_state_dict(net, state, str(weights))
    return net


def read_state_dict(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """Read a state dict from a .safetensors file or, with ``weights_only=True``, any file of `torch.save`.

    Raises
    ------
    ValueError
        The file is missing, damaged or holds something else; the message names it.
    """
    path = os.fspath(path)
    if not os.path.isfile(path):
        raise ValueError(f"cannot read the weights {path!r}: no such file")
    try:
        if path.endswith(".safetensors"):
            return load_file(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # on a foreign file the readers raise whatever they stumble over
        reason = f"damaged or no weights ({first_line(error)})"
        raise ValueError(f"cannot read the weights {path!r}: {reason}") from error
    if not isinstance(state, Mapping) or not all(isinstance(value, Tensor) for value in state.values()):
        raise ValueError(f"{path!r} holds no state dict, that is, tensors by name")
    return dict(state)


def load_state_dict(net: nn.Module, state: Mapping[str, Tensor], source: str) -> None:
    """Copy all of `state` into all of `net`; a ValueError names the `source` if they do not fit."""
    try:
        net.load_state_dict(state)
    except RuntimeError as error:
        reason = textwrap.shorten(str(error), 300, placeholder=" ...")
        raise ValueError(f"{source!r} does not fit {type(net).__name__}: {reason}") from error


def first_line(error: Exception) -> str:
    """Kind of error and the beginning of its message."""
    line = str(error).partition("\n")[0]
    return f"{type(error).__name__}: {textwrap.shorten(line, 200, placeholder=' ...')}"
