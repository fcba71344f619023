"""Save and load objects: one safetensors file with tensors in its body and everything else as JSON in its header.

Nothing is ever unpickled. A file names the classes of the objects it contains, and only classes in
:data:`neonxc.registry.FORMS` are instantiated.
"""

from __future__ import annotations

import json
import os
import tempfile
import uuid
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from neonxc.registry import FORMS, pack, unpack

VERSION = 4
KEY = "neonxc"
KIND = "object"
# modules in which classes register themselves
HOMES = ("neonxc.network", "neonxc.readers", "neonxc.rules", "neonxc.models", "neonxc.trees")


def save(obj: Any, path: str | os.PathLike[str]) -> None:
    """Save a network, a threshold tree or a fitted model.

    Parameters
    ----------
    obj : NeuralizedClustering, ThresholdTree, Rules, tree explainer, KernelKMeans, SCAN, FeatureExtractor, ...
        WordVectors, or an object of another class that is registered by :func:`neonxc.registry.register`. The
        feature network of a clustering is saved with it if it can be saved by itself, as networks from the
        builders of :mod:`neonxc.models` can. Other feature networks are left out and have to be passed to
        :func:`load`; a SCAN on such features is refused. Parameters of an estimator that are not numbers or
        strings (estimators, initial labels, random states) are left out and have their default values after
        loading.
    path : path-like
        Usually ``*.safetensors``. The file is written under a temporary name first, so that it is never
        incomplete.

    Raises
    ------
    TypeError
        If the class of the object is not registered.
    FileNotFoundError
        If the folder does not exist.
    """
    write(path, KIND, *pack(obj))


def load(path: str | os.PathLike[str], features: nn.Module | None = None) -> Any:
    """Load an object that :func:`save` has written, on the CPU.

    Parameters
    ----------
    path : path-like
    features : nn.Module, optional
        The feature network of a clustering that was saved without it. It replaces a feature network in the file.

    Raises
    ------
    FileNotFoundError
    ValueError
        If the file is damaged, was written by another program or a newer version, names a class that is not
        registered, or lacks its feature network.
    """
    if features is not None and not isinstance(features, nn.Module):
        raise TypeError(f"features needs an nn.Module, got {type(features).__name__}")
    _, described, tensors = read(path, {KIND})
    try:
        if features is not None and "features" in {**described["values"], **described["parts"]}:
            described["parts"].pop("features", None)
            described["values"]["features"] = features
        _import_classes(described)
        return unpack(described, tensors)
    except ValueError as error:
        raise ValueError(f"{path} can't be loaded: {error}") from error
    except (AssertionError, AttributeError, LookupError, TypeError, RuntimeError) as error:
        raise ValueError(f"{path} is damaged: {error!r}") from error


def write(path: str | os.PathLike[str], kind: str, plain: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Write JSON values and tensors to a file of the given `kind`, atomically.

    Raises
    ------
    OSError
        The folder does not exist, or the file can't be written.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"the folder {path.parent} does not exist; create it before saving {path.name}")
    write_tensors(tensors, path, {KEY: json.dumps({"version": VERSION, "kind": kind, "plain": plain})})


def write_tensors(tensors: dict[str, Tensor], path: Path, metadata: dict[str, str]) -> None:
    """Write a safetensors file with this header, atomically."""
    # copies, because safetensors refuses tensors that share memory, such as tied weights
    tensors = {name: t.detach().cpu().clone(memory_format=torch.contiguous_format) for name, t in tensors.items()}
    try:
        with staged_file(path) as partial:
            partial.touch()
            mode = partial.stat().st_mode  # the usual permissions; safetensors lets only the owner read
            save_file(tensors, partial, metadata=metadata)
            partial.chmod(mode)
    except SafetensorError as error:  # for example a full disk
        raise OSError(f"can't write {path}: {error}") from error


def read(path: str | os.PathLike[str], kinds: Collection[str]) -> tuple[str, dict[str, Any], dict[str, Tensor]]:
    """Read the kind, the JSON values and the tensors (on the CPU) of a file that :func:`write` has written.

    Raises
    ------
    FileNotFoundError
    ValueError
        If the file is damaged, was written by another program or a newer version, or is of none of these `kinds`.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no such file: {path}")
    try:
        with safe_open(path, framework="pt") as file:
            header = json.loads((file.metadata() or {}).get(KEY, "null"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # not a dict
    except (SafetensorError, ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not a file of neonxc, or damaged: {error}") from None
    if not isinstance(header, dict):
        raise ValueError(f"{path} was not written by neonxc")
    version, kind, plain = (header.get(name) for name in ("version", "kind", "plain"))
    if not isinstance(version, int):
        raise ValueError(f"{path} is damaged: its header has no version")
    if version != VERSION:
        age = "a newer" if version > VERSION else "an older"
        raise ValueError(f"{path} was written by {age} neonxc (file version {version}, known {VERSION})")
    if not isinstance(kind, str) or not isinstance(plain, dict):
        raise ValueError(f"{path} is damaged: its header lacks the kind of its contents")
    if kind not in kinds:
        needed = " or ".join(map(repr, kinds))
        raise ValueError(f"{path} contains a {kind!r}, not {needed}")
    return kind, plain, tensors


@contextmanager
def staged_file(path: Path) -> Iterator[Path]:
    """Write a file atomically: the file that the block writes replaces `path` only if the block succeeds."""
    partial = path.with_name(f"{path.name}.{uuid.uuid4().hex}.part")
    try:
        yield partial
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def staged_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Fill a folder atomically: the files that the block writes appear in `path` only if the block succeeds.

    Files with the same names are replaced; other files are kept.
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


def _import_classes(described: dict[str, Any]) -> None:
    """Import the modules that register our classes if a description names a class that is not registered."""
    for home in HOMES:
        if not _class_names(described) <= FORMS.keys():
            import_module(home)


def _class_names(described: dict[str, Any]) -> set[str]:
    return {described["class"]}.union(*map(_class_names, described["parts"].values()))
