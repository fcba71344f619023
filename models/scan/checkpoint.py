"""Checkpoints: the state of a training in one file, with the settings that a continued one must agree on."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from neonxc.files import read, write

FILE, KIND = "scan.safetensors", "SCAN checkpoint"
SELF_LABELLING = 3  # the number of the last stage
LAST = ("self_label_epochs", "self_label_threshold")  # settings that matter only once it has begun


class Checkpoint:
    """A file for the state of a training, in a folder that is made if needed; without a folder, none."""

    def __init__(self, folder: Any, settings: Mapping[str, Any]) -> None:
        self.path = None if folder is None else Path(folder) / FILE
        self.settings = settings

    def save(self, state: Mapping[str, Any]) -> None:
        """Replace the file by a nested state of tensors and JSON values, as a whole or not at all."""
        if self.path is None:
            return
        begun = (state["progress"]["stage"], state["progress"]["epoch"]) > (SELF_LABELLING, 0)
        settings = {name: value for name, value in self.settings.items() if begun or name not in LAST}
        flat = flattened(state)
        tensors = {path: value for path, value in flat.items() if isinstance(value, Tensor)}
        plain = {path: value for path, value in flat.items() if path not in tensors}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write(self.path, KIND, {"settings": settings, "state": plain}, tensors)

    def load(self) -> dict[str, Any]:
        """Read the state back; an empty one if there is no file, a ValueError if it is of another training."""
        if self.path is None or not self.path.exists():
            return {}
        _, plain, tensors = read(self.path, [KIND])
        found = plain["settings"]
        needed = {name: value for name, value in self.settings.items() if name in found or name not in LAST}
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
        return nested({**plain["state"], **tensors})


def flattened(state: Mapping[Any, Any], prefix: str = "") -> dict[str, Any]:
    """Values of a nested state by the paths that lead to them."""
    flat: dict[str, Any] = {}
    for key, value in state.items():
        inner = isinstance(value, dict) and value  # an empty one is a value
        flat |= flattened(value, f"{prefix}{key}/") if inner else {f"{prefix}{key}": value}
    return flat


def nested(flat: Mapping[str, Any]) -> dict[Any, Any]:
    """Put back what `flattened` took apart; keys that are numbers, as those of optimizers, are numbers again."""
    state: dict[Any, Any] = {}
    for path, value in flat.items():
        *keys, last = (int(key) if key.isdigit() else key for key in path.split("/"))
        inner = state
        for key in keys:
            inner = inner.setdefault(key, {})
        inner[last] = value
    return state


def fingerprint(tensors: Mapping[str, Tensor]) -> str:
    """Hash of names, shapes, types and values."""
    copies = {name: t.detach().cpu().clone(memory_format=torch.contiguous_format) for name, t in tensors.items()}
    return hashlib.sha256(safetensors.torch.save(copies)).hexdigest()[:16]
