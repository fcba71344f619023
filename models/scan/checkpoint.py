"""Checkpoints: one safetensors file in a folder, tensors in its body, the rest as JSON in its header."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from neonxc.files import write_tensors

__all__ = ["Checkpoint", "Progress", "fingerprint"]

FILE = "scan.safetensors"
KEY = "neonxc.scan"
VERSION = 1
SAMPLE = 256  # images that tell whether data is the same


@dataclass
class Progress:
    """How far training has come: all of it that is no tensor, as JSON values."""

    seed: int
    stage: int = 0
    """Number of the stage that is under way."""
    epoch: int = 0
    """How many of its epochs are done."""
    losses: list[float] | None = None
    """Of each head, once the clustering is done."""
    history: list[dict[str, Any]] = field(default_factory=list)


class Checkpoint:
    """Where the state of training is kept; without a folder, nowhere.

    Parameters
    ----------
    folder : path-like, optional
        Made if it does not exist.
    settings : mapping
        JSON values: what a checkpoint must agree on to be continued.
    last : mapping
        More of them, which matter only once the last stage has begun.
    """

    def __init__(self, folder: Any, settings: Mapping[str, Any], last: Mapping[str, Any]) -> None:
        self.path = None if folder is None else Path(folder) / FILE
        self.settings, self.last = (json.loads(json.dumps(values, default=float)) for values in (settings, last))

    def save(self, progress: Progress, tensors: Mapping[str, Tensor], *, last: bool) -> None:
        """Replace the checkpoint, as a whole or not at all; `last`: whether the last stage has begun."""
        if self.path is None:
            return
        settings = self.settings | self.last if last else self.settings
        header = {"version": VERSION, "settings": settings, "progress": vars(progress)}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_tensors(dict(tensors), self.path, {KEY: json.dumps(header)})

    def load(self) -> tuple[Progress, dict[str, Tensor]] | None:
        """Read the state of training back, if there is one.

        Raises
        ------
        ValueError
            A file that is damaged, of another program, of a newer version, or of other settings or data.
        """
        if self.path is None or not self.path.exists():
            return None
        try:
            with safe_open(self.path, framework="pt") as file:
                header = json.loads((file.metadata() or {})[KEY])
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # not a dict
            version, settings = header["version"], header["settings"]
        except (SafetensorError, OSError, KeyError, TypeError, json.JSONDecodeError) as error:
            raise ValueError(f"{self.path} is no checkpoint of SCAN, or damaged: {error!r}") from None
        if version != VERSION:
            raise ValueError(f"{self.path} was written by another neonxc (version {version}, known {VERSION})")
        self._check(settings)
        return Progress(**header["progress"]), tensors

    def _check(self, found: Mapping[str, Any]) -> None:
        needed = self.settings | {name: value for name, value in self.last.items() if name in found}
        changed = [
            f"{name} was {found.get(name)!r}, is {needed.get(name)!r}"
            for name in sorted(found.keys() | needed.keys())
            if found.get(name) != needed.get(name)
        ]
        if changed:
            raise ValueError(
                f"{self.path} is a checkpoint of another training: {'; '.join(changed)}. "
                "Give checkpoint another folder, or delete the file"
            )


def fingerprint(tensors: Iterable[tuple[str, Tensor]]) -> str:
    """Hash of named tensors: names, shapes, types and values."""
    digest = hashlib.sha256()
    for name, tensor in tensors:
        digest.update(f"{name} {list(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]


def data_fingerprint(images: Tensor) -> str:
    """Hash of a sample of images, and of how many there are."""
    sample = images[torch.linspace(0, len(images) - 1, min(SAMPLE, len(images)), device=images.device).long()]
    return f"{list(images.shape)} {fingerprint([('images', sample)])}"


def pack_optimizer(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Flatten the tensors of an optimizer's state under ``optimizer.NUMBER.NAME``."""
    state = optimizer.state_dict()["state"]
    return {f"optimizer.{i}.{key}": value for i, own in state.items() for key, value in own.items()}


def unpack_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Put back what `pack_optimizer` flattened."""
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        kind, _, rest = name.partition(".")
        if kind == "optimizer":
            number, _, key = rest.partition(".")
            state.setdefault(int(number), {})[key] = tensor
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def pack_network(network: nn.Module) -> dict[str, Tensor]:
    """Collect parameters and buffers under ``network.NAME``; copies, as safetensors takes no shared memory."""
    return {f"network.{name}": tensor.detach().clone() for name, tensor in network.state_dict().items()}


def unpack_network(network: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Put back what `pack_network` collected."""
    prefix = "network."
    network.load_state_dict({k[len(prefix) :]: v for k, v in tensors.items() if k.startswith(prefix)})
