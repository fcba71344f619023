"""Save and load: one safetensors file, tensors in its body and everything else as JSON in its header.

Nothing is ever unpickled. A file says which class it holds and which plain attributes that has; the classes
that may be named are listed here.
"""

from __future__ import annotations

import json
import os
import tempfile
import uuid
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from neonxc.detection import Described, Detection
from neonxc.heads import CentroidHead, Head, HierarchyHead, LinearHead, MixtureHead
from neonxc.network import NeuralizedClustering

VERSION = 3
KEY = "neonxc"
KINDS = ("NeuralizedClustering", "ThresholdTree", "Clusterer")

_PARTS: dict[str, type[Described]] = {
    part.__name__: part for part in (CentroidHead, HierarchyHead, LinearHead, MixtureHead, Detection)
}


def save(obj: Any, path: str | os.PathLike[str]) -> None:
    """Save a neuralized clustering, a threshold tree, a fitted tree explainer, KernelKMeans or SCAN.

    Parameters
    ----------
    obj : NeuralizedClustering, ThresholdTree, tree explainer, KernelKMeans or SCAN
        Of a feature network, the weights are saved where it comes from a builder of :mod:`neonxc.models`; any
        other is left out and has to be given to :func:`load`, and a SCAN with one is refused. Parameters of an
        estimator that are no numbers or strings (estimators, labels to start from, random states) are left out,
        and have their defaults when it is loaded.
    path : path-like
        Usually ``*.safetensors``. Written to a temporary neighbour first: the file is there whole or not at all.

    Raises
    ------
    TypeError
        An object of another kind.
    FileNotFoundError
        The folder does not exist.
    """
    header: dict[str, Any]
    header, tensors = _pack_network(obj) if isinstance(obj, NeuralizedClustering) else _pack_other(obj)
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"no such folder: {path.parent}")
    write_tensors(tensors, path, {KEY: json.dumps({"version": VERSION, **header})})


def _pack_network(net: NeuralizedClustering) -> tuple[dict[str, Any], dict[str, Tensor]]:
    tensors: dict[str, Tensor] = {"beta": net._beta}
    header: dict[str, Any] = {
        "kind": "NeuralizedClustering",
        "classes": net.classes_.tolist(),
        "feature_names": net.feature_names_,
        "head": _pack(net.head, "head.", tensors),
        "fidelity": [net.fidelity_, net.fidelity_held_out_],
        "features": None,
    }
    if net.features is not None:
        header["features"] = getattr(net.features, "recipe", None) or "custom"
        if header["features"] != "custom":
            tensors |= {f"features.{name}": tensor for name, tensor in net.features.state_dict().items()}
    return header, tensors


def _pack_other(obj: Any) -> tuple[dict[str, Any], dict[str, Tensor]]:
    home = type(obj).__module__  # trees and models need not be imported to be told apart
    if home.startswith("neonxc.trees"):
        from neonxc.trees.saving import pack

        kind = "ThresholdTree"
    elif home.startswith("neonxc.models"):
        from neonxc.models.saving import pack

        kind = "Clusterer"
    else:
        raise TypeError(
            f"can't save a {type(obj).__name__}; neonxc saves networks from neonxc.neuralize, "
            "trees of neonxc.trees and clusterers of neonxc.models"
        )
    header, tensors = pack(obj)
    return {"kind": kind, **header}, tensors


def write_tensors(tensors: dict[str, Tensor], path: Path, metadata: dict[str, str]) -> None:
    """Write a safetensors file: as a whole, or not at all."""
    # copies: safetensors refuses tensors that share memory, as tied weights do
    tensors = {name: t.detach().cpu().clone(memory_format=torch.contiguous_format) for name, t in tensors.items()}
    partial = path.with_name(f"{path.name}.{uuid.uuid4().hex}.part")
    try:
        partial.touch()
        mode = partial.stat().st_mode  # the usual one; safetensors lets only the owner read
        save_file(tensors, partial, metadata=metadata)
        partial.chmod(mode)
        os.replace(partial, path)
    except SafetensorError as error:  # a full disk, say
        raise OSError(f"can't write {path}: {error}") from error
    finally:
        partial.unlink(missing_ok=True)


def load(path: str | os.PathLike[str], features: nn.Module | None = None) -> Any:
    """Load what :func:`save` wrote, on the CPU.

    Parameters
    ----------
    path : path-like
    features : nn.Module, optional
        The feature network, where the file could not hold it.

    Raises
    ------
    FileNotFoundError
    ValueError
        A file that is corrupt, of another program, or of another version; a feature network that is missing.
    """
    if features is not None and not isinstance(features, nn.Module):
        raise TypeError(f"features needs an nn.Module, got {type(features).__name__}")
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no such file: {path}")
    header, tensors = _read(path)
    if not isinstance(header.get("version"), int):
        raise ValueError(f"{path} is damaged: its header has no version")
    if header["version"] != VERSION:
        age = "a newer" if header["version"] > VERSION else "an older"
        raise ValueError(f"{path} was written by {age} neonxc (file version {header['version']}, known {VERSION})")
    try:
        if header["kind"] == "ThresholdTree":
            from neonxc.trees.saving import unpack

            return unpack(header, tensors)
        if header["kind"] == "Clusterer":
            from neonxc.models.saving import unpack

            return unpack(header, tensors)
        return _unpack_network(header, tensors, features, path)
    except (AssertionError, AttributeError, IndexError, KeyError, TypeError, RuntimeError) as error:
        raise ValueError(f"{path} is damaged: {error!r}") from error


def _unpack_network(
    header: dict[str, Any], tensors: dict[str, Tensor], features: nn.Module | None, path: Path
) -> NeuralizedClustering:
    net = NeuralizedClustering(
        _unpack(header["head"], "head.", tensors),
        _features(header, tensors, features, path),
        np.asarray(header["classes"]),
        header["feature_names"],
    )
    net.beta = float(tensors["beta"])
    net._beta = tensors["beta"]  # in its own precision
    net.fidelity_, net.fidelity_held_out_ = header["fidelity"]
    _check_network(net)
    return net


@torch.no_grad()
def _check_network(net: NeuralizedClustering) -> None:
    """Use a head once: what does not fit together shows now, and not at some later call."""
    head, K = net.head, len(net.classes_)
    names = net.feature_names_ or [""] * head.n_features
    if not isinstance(head, Head) or len(names) != head.n_features or not all(isinstance(n, str) for n in names):
        raise TypeError("its head or the names of its features are of no use")
    x = torch.zeros(1, head.n_features)
    head.relevance(x, torch.tensor([K - 1]), net._beta)
    if head(x).shape != (1, K) or head.n_clusters != K or head.outside(x).shape != (1,):
        raise TypeError(f"its head has not one output for each of {K} classes")


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    try:
        with safe_open(path, framework="pt") as file:
            header = json.loads((file.metadata() or {}).get(KEY, "null"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # not a dict
    except (SafetensorError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} is not a file of neonxc, or damaged: {error}") from None
    if not isinstance(header, dict) or header.get("kind") not in KINDS:
        raise ValueError(f"{path} was not written by neonxc.save")
    return header, tensors


def _pack(module: nn.Module, prefix: str, tensors: dict[str, Tensor]) -> dict[str, Any]:
    """Description of a module as JSON; its buffers go to `tensors`."""
    name = type(module).__name__
    buffers = dict(module._buffers)
    tensors |= {prefix + key: value for key, value in buffers.items() if value is not None}
    return {
        "class": name,
        "attributes": {key: getattr(module, key) for key in _PARTS[name].PLAIN},
        "buffers": [key for key, value in buffers.items() if value is not None],
        "unused": [key for key, value in buffers.items() if value is None],
        "children": {key: _pack(child, f"{prefix}{key}.", tensors) for key, child in module.named_children()},
    }


def _unpack(header: dict[str, Any], prefix: str, tensors: dict[str, Tensor]) -> Any:
    cls = _PARTS[header["class"]]
    module = cls.__new__(cls)
    nn.Module.__init__(module)
    for key in cls.PLAIN:
        setattr(module, key, header["attributes"][key])
    for key in header["buffers"]:
        module.register_buffer(key, tensors[prefix + key])
    for key in header["unused"]:
        module.register_buffer(key, None)
    for key, child in header["children"].items():
        module.add_module(key, _unpack(child, f"{prefix}{key}.", tensors))
    return module


def _features(
    header: dict[str, Any], tensors: dict[str, Tensor], given: nn.Module | None, path: Path
) -> nn.Module | None:
    recipe = header["features"]
    if recipe is None or given is not None:
        return given
    if recipe == "custom":
        raise ValueError(f"{path} was saved without its feature network: neonxc.load(path, features=network)")
    if not isinstance(recipe, dict):
        raise TypeError(f"no recipe of a feature network: {recipe!r}")
    from neonxc.models.recipes import build  # the core never needs the models otherwise

    prefix = "features."
    state = {k[len(prefix) :]: v for k, v in tensors.items() if k.startswith(prefix)}
    network = build(recipe, {name: tuple(tensor.shape) for name, tensor in state.items()})
    network.load_state_dict(state, assign=True)  # in the saved precision
    return network


@contextmanager
def staged_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Fill a folder all at once: what the block writes appears in `path` only if the block succeeds.

    Files of the same names are replaced, others stay.
    """
    path = Path(path)
    if path.exists() and not path.is_dir():
        raise ValueError(f"{path} is a file; a folder is needed")
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as stage:
        yield Path(stage)
        path.mkdir(exist_ok=True)
        for file in Path(stage).iterdir():
            os.replace(file, path / file.name)


def write(path: str | os.PathLike[str], kind: str, plain: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Write tensors and JSON values as a file of a kind: as a whole, or not at all."""
    write_tensors(tensors, Path(path), {KEY: json.dumps({"version": VERSION, "kind": kind, "plain": plain})})


def read(path: str | os.PathLike[str], kinds: Collection[str]) -> tuple[str, dict[str, Any], dict[str, Tensor]]:
    """Read what `write` wrote: kind, JSON values, tensors."""
    if not Path(path).is_file():
        raise FileNotFoundError(f"no such file: {path}")
    try:
        with safe_open(path, framework="pt") as file:
            header = json.loads((file.metadata() or {})[KEY])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # not a dict
        if header["version"] != VERSION or header["kind"] not in kinds:
            raise ValueError(f"{path} was written by another neonxc, or holds something else")
        return header["kind"], header["plain"], tensors
    except (SafetensorError, KeyError, TypeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} is not a file of neonxc, or damaged: {error!r}") from None
