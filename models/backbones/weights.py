"""Weights of backbones: read from a file, or fetched by torchvision. Nothing is ever unpickled."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

__all__ = ["OFFLINE", "Weights", "first_line", "load_state_dict", "read_state_dict", "torchvision_net"]

OFFLINE = (
    "give weights=PATH for a .pth or .safetensors file, or weights=None for random weights; "
    "efficientnet_lite0() needs no download."
)
"""What to do without the default weights."""

Weights = str | os.PathLike[str] | None
"""``"default"``: the published ones; None: random; otherwise the path of a .pth or .safetensors file."""


def read_state_dict(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """Read a state dict from a .safetensors file or, with ``weights_only=True``, any file of `torch.save`.

    Returns
    -------
    dict of str to Tensor
        On the CPU.

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
    """Copy `state` into `net`: every entry must have its place and every place its entry.

    Raises
    ------
    ValueError
        `state` belongs to another network; the message names its `source`.
    """
    try:
        net.load_state_dict(state)
    except RuntimeError as error:
        reason = textwrap.shorten(str(error), 300, placeholder=" ...")
        raise ValueError(f"{source!r} does not fit {type(net).__name__}: {reason}") from error


def torchvision_net(name: str, weights: Weights) -> nn.Module:
    """Make the network that torchvision calls `name`.

    Raises
    ------
    RuntimeError
        The default weights are not on this machine and could not be downloaded; the message says what to do.
    ValueError
        The file `weights` cannot be read or is another network's.
    """
    from torchvision import models  # takes a second, and only these networks need it

    # The weights first: the network, which can take seconds to initialise, is of no use without them.
    state = None
    if weights == "default":
        state = _fetch(models.get_model_weights(name).DEFAULT, name)
    elif weights is not None:
        state = read_state_dict(weights)
    net: nn.Module = models.get_model(name, weights=None)
    if state is not None:
        load_state_dict(net, state, str(weights))
    return net


def _fetch(published: Any, name: str) -> Mapping[str, Tensor]:
    try:
        state: Mapping[str, Tensor] = published.get_state_dict(check_hash=True, weights_only=True)
    except Exception as error:  # no network, a full disk, a wrong hash, a damaged file left by an earlier try
        file = PurePosixPath(published.url).name
        folder = os.path.join(torch.hub.get_dir(), "checkpoints")
        raise RuntimeError(
            f"could not get the default weights of {name} ({first_line(error)}). "
            f"Torch looks for the file {file} in {folder}: put it there (or remove a damaged one), or {OFFLINE}"
        ) from error
    return state


def first_line(error: Exception) -> str:
    """Kind of error and the beginning of its message."""
    line = str(error).partition("\n")[0]
    return f"{type(error).__name__}: {textwrap.shorten(line, 200, placeholder=' ...')}"
