"""Checkpoints: the state of a training in a file, with the settings that have to agree when it is continued."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from neonxc.attribution.fingerprint import hash_of, plain_text
from neonxc.common.estimators import plain_parameters
from neonxc.common.storage import read, write

from .augment import RandomWarp

FILE, KIND = "scan.safetensors", "SCAN checkpoint"
SELF_LABELLING = 3  # index of the last stage
SAMPLE = 256  # number of images whose fingerprint tells whether a checkpoint belongs to the same data
LAST = ("self_label_epochs", "self_label_threshold")  # settings that may change until the last stage begins


class Checkpoint:
    """The file for the state of a training on images; with ``checkpoint=None``, nothing is saved."""

    def __init__(self, model: Any, images: Tensor) -> None:
        self.path = None if model.checkpoint is None else Path(model.checkpoint) / FILE
        self.settings = training_settings(model, images) if self.path else {}

    def save(self, state: Mapping[str, Any]) -> None:
        """Write a nested state of tensors and JSON values, replacing the file atomically."""
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
        """Read the state; empty if there is no file. A checkpoint of another training is a ValueError."""
        if self.path is None or not self.path.exists():
            return {}
        _, plain, tensors = read(self.path, [KIND])
        found = plain["settings"]
        needed = {name: value for name, value in self.settings.items() if name in found or name not in LAST}
        changed = [
            f"{name} was {found.get(name)!r} and is now {needed.get(name)!r}"
            for name in sorted(found.keys() | needed.keys())
            if found.get(name) != needed.get(name)
        ]
        if changed:
            raise ValueError(
                f"{self.path} is a checkpoint of another training: {'; '.join(changed)}; pass another folder as "
                "checkpoint, or delete the file"
            )
        return nested({**plain["state"], **tensors})


def flattened(state: Mapping[Any, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten a nested state to a dictionary from paths to values."""
    flat: dict[str, Any] = {}
    for key, value in state.items():
        inner = isinstance(value, dict) and value  # an empty dictionary is a value
        flat |= flattened(value, f"{prefix}{key}/") if inner else {f"{prefix}{key}": value}
    return flat


def nested(flat: Mapping[str, Any]) -> dict[Any, Any]:
    """Undo `flattened`; keys that are numbers, such as those of optimizers, are converted back to integers."""
    state: dict[Any, Any] = {}
    for path, value in flat.items():
        *keys, last = (int(key) if key.isdigit() else key for key in path.split("/"))
        inner = state
        for key in keys:
            inner = inner.setdefault(key, {})
        inner[last] = value
    return state


def training_settings(model: Any, images: Tensor) -> dict[str, Any]:
    """Parameters and data of a training as JSON values, which have to agree when a checkpoint is continued."""
    weights = {} if model.backbone is None else model.backbone.state_dict()
    sample = images[:: len(images) // SAMPLE + 1]
    settings = plain_parameters(model) | {
        "backbone": f"{type(model.backbone).__name__} {hash_of(None, weights)}",
        "augment": plain_text(model.augment or RandomWarp()),
        "images": f"{list(images.shape)} {hash_of(None, {'images': sample})}",
    }
    return {name: value for name, value in settings.items() if name not in ("device", "checkpoint", "verbose")}
