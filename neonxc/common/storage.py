"""Files of saved objects: safetensors with the tensors in the body, and everything else as JSON in the header.

    key of the header    JSON
    KEY                  version     of the format, VERSION
                         versions    {package: version} of PACKAGES
                         kind        of the file, such as KIND
                         plain       the description of the object by :func:`neonxc.common.registry.pack`
                         tensors     {name: checksum of its type, shape and bytes}
    SUM                  checksum of the JSON of KEY

Nothing is ever unpickled: only classes in :data:`neonxc.common.registry.FORMS` can be loaded.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection
from contextlib import suppress
from functools import cache
from importlib import import_module, metadata
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save_file
from torch import Tensor, nn

from neonxc.common.atomic import staged_file
from neonxc.common.registry import FORMS, pack, unpack

VERSION = 5
"""Version of the format that is written."""
READ = (4, 5)
"""Versions of the format that are read."""
KEY = "neonxc"
SUM = f"{KEY}.checksum"
KIND = "object"
"""Kind of the files of :func:`save`."""
PACKAGES = ("neonxc", "scikit-learn", "torch")
"""Packages whose versions are in the header, and are named if a file can't be loaded."""
OTHERS = {".pkl", ".pickle", ".joblib", ".pt", ".pth", ".ckpt", ".onnx", ".npz"}
"""Suffixes of formats that are not written."""
HOMES = (
    "neonxc.network",
    "neonxc.head.noise",
    "neonxc.head.nearest",
    "neonxc.head.vote",
    "neonxc.head.quadratic",
    "neonxc.inputs.terms",
    "neonxc.rules",
    "neonxc.subspaces.concepts",
    "neonxc.models",
    "neonxc.trees.saving",
    "neonxc.trees.explainers.center_based",
    "neonxc.trees.explainers.expanding",
    "neonxc.trees.explainers.kernel",
    "neonxc.trees.explainers.random_thresholds",
    "neonxc.trees.explainers.spex",
    "neonxc.trees.explainers.unsupervised",
)
"""Modules that register classes when they are imported."""


def save(obj: object, path: str | os.PathLike[str]) -> None:
    """Save a network, a threshold tree or a fitted model.

    Parameters
    ----------
    obj : NeuralizedClustering, ThresholdTree, Rules, tree explainer, KernelKMeans, SCAN, FeatureExtractor, ...
        Any object of a class that is registered with :func:`neonxc.common.registry.register`. The feature network
        of a clustering is saved with it if :func:`neonxc.models.backbone` made it; other feature networks are
        not saved, and have to be passed to :func:`load` (a SCAN on one of them can't be saved). Parameters of an
        estimator that are not numbers or strings (estimators, initial labels, random states) are not saved; a
        loaded estimator has their default values.
    path : path-like
        The file, usually ``*.safetensors``. It is written atomically: to a temporary file first. A file that
        exists keeps its permissions, and a symbolic link its target.

    Raises
    ------
    TypeError
        If the object's class is not registered, or the object can't be saved.
    ValueError
        If the suffix of `path` is that of another format, such as ``.pkl`` or ``.pt``.
    FileNotFoundError
        If the folder of `path` does not exist.
    """
    if Path(path).suffix.lower() in OTHERS:
        raise ValueError(f"path needs the suffix .safetensors, the format that neonxc.save writes, got {path}")
    described, tensors = pack(obj)
    write(path, KIND, described, tensors)


def load(path: str | os.PathLike[str], features: nn.Module | None = None) -> Any:
    """Load an object that :func:`save` has saved.

    Parameters
    ----------
    path : path-like
    features : nn.Module, optional
        The feature network of a clustering, needed if the file does not hold it; it replaces the one in the file.

    Returns
    -------
    object
        The object, with its tensors on the CPU. For type checkers it is `Any`, as the file decides what it is:
        ``net: neonxc.NeuralizedClustering = neonxc.load(path)`` declares what is expected.

    Raises
    ------
    FileNotFoundError
        There is no such file.
    ValueError
        The file is damaged, of another program or version, of a class that is not registered, or without the
        feature network that the object needs.
    """
    if features is not None and not isinstance(features, nn.Module):
        raise TypeError(f"features needs an nn.Module, got {type(features).__name__}")
    _, described, tensors, versions = read(path, {KIND})
    try:
        if features is not None:
            names = {**described["values"], **described["parts"]}
            if "features" in names:
                described["parts"].pop("features", None)
                described["values"]["features"] = features
        _import_classes(described)
        return unpack(described, tensors)
    except ValueError as error:
        raise ValueError(f"{path} can't be loaded: {error}{_origin(versions)}") from error
    except Exception as error:  # whatever a class raises because the file does not describe one of its objects
        raise ValueError(f"{path} is damaged: {error!r}{_origin(versions)}") from error


def write(path: str | os.PathLike[str], kind: str, plain: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Write JSON values and tensors to a file atomically, with a `kind` that :func:`read` checks.

    Raises
    ------
    OSError
        The folder does not exist, or the file can't be written.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"the folder {path.parent} does not exist; create it before saving {path.name}")
    described = {"version": VERSION, "versions": _versions(), "kind": kind, "plain": plain}
    header = json.dumps(described | {"tensors": _checksums(tensors)})
    write_tensors(tensors, path, {KEY: header, SUM: _checksum(header)})


def write_tensors(tensors: dict[str, Tensor], path: Path, metadata: dict[str, str]) -> None:
    """Write a safetensors file with this header, atomically."""
    copies = {}  # as safetensors does not accept tensors that share memory, such as tied weights
    for name, tensor in tensors.items():
        copies[name] = tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
    try:
        with staged_file(path) as partial:
            save_file(copies, partial, metadata=metadata)
    except SafetensorError as error:  # for example, a full disk
        raise OSError(f"can't write {path}: {error}") from error


class Content(NamedTuple):
    """Kind, JSON values and tensors of a file, and the versions of the packages that wrote it."""

    kind: str
    plain: dict[str, Any]
    tensors: dict[str, Tensor]
    versions: dict[str, str]


def read(path: str | os.PathLike[str], kinds: Collection[str]) -> Content:
    """Read a file of :func:`write`.

    Raises
    ------
    FileNotFoundError
        There is no such file.
    ValueError
        The file is damaged, of another program or version, or of none of these `kinds`.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no such file: {path}")
    tensors, header = _parsed(path)
    version = header.get("version")
    kind = header.get("kind")
    plain = header.get("plain")
    versions = header.get("versions", {})  # files of version 0.2 have none
    if not isinstance(versions, dict):
        raise ValueError(f"{path} is damaged: its header has no versions of packages")
    if not isinstance(version, int):
        raise ValueError(f"{path} is damaged: its header has no version")
    if version not in READ:
        age = "a newer" if version > VERSION else "an older"
        known = " and ".join(map(str, READ))
        raise ValueError(
            f"{path} was written by {age} neonxc (file version {version}, known {known}){_origin(versions)}"
        )
    sums = header.get("tensors", {})  # earlier files have none
    if not isinstance(kind, str) or not isinstance(plain, dict) or not isinstance(sums, dict):
        raise ValueError(f"{path} is damaged: its header has no description of its contents")
    if kind not in kinds:
        needed = " or ".join(map(repr, kinds))
        raise ValueError(f"{path} contains a {kind!r}, not {needed}")
    actual_sums = _checksums(tensors) if "tensors" in header else sums
    changed = [name for name in sorted({*sums, *actual_sums}) if sums.get(name) != actual_sums.get(name)]
    if changed:
        raise ValueError(f"{path} is damaged: its tensors {changed} were changed since it was written")
    return Content(kind, plain, tensors, versions)


def _parsed(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors of a file and its entry KEY, after its checksum is compared with SUM."""
    try:
        content = path.read_bytes()  # tensors of a file that is mapped would change with the file
        tensors = load_tensors(content)
        # the layout of safetensors: 8 bytes with the length of the JSON that follows
        length = int.from_bytes(content[:8], "little")
        start = json.loads(content[8 : 8 + length])
        entries = {KEY: "null"} | (start.get("__metadata__") or {})
        header = json.loads(entries[KEY])
    except (SafetensorError, ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not a file of neonxc, or is damaged: {error}") from None
    if not isinstance(header, dict):
        raise ValueError(f"{path} was not written by neonxc")
    if entries.get(SUM) not in (None, _checksum(entries[KEY])):  # files of version 0.2.0 have none
        raise ValueError(f"{path} is damaged: its header was changed since it was written")
    return tensors, header


@cache
def _versions() -> dict[str, str]:
    """Return the installed versions of the packages on which a file depends, found once."""
    versions = {}
    for name in PACKAGES:
        with suppress(metadata.PackageNotFoundError):  # a checkout that was never installed
            versions[name] = metadata.version(name)
    return versions


def _origin(versions: dict[str, str]) -> str:
    """Return the end of an error: the versions that wrote a file and the installed ones, if they differ."""
    installed = _versions()
    if not versions or versions == installed:
        return ""
    return f"; it was written with {_listed_versions(versions)}, and here are {_listed_versions(installed)}"


def _listed_versions(versions: dict[str, str]) -> str:
    """Write the versions of packages."""
    return ", ".join(f"{name} {number}" for name, number in versions.items())


def _checksum(text: str) -> str:
    """Return the checksum of a text."""
    return f"{crc32(text.encode()):08x}"


def _checksums(tensors: dict[str, Tensor]) -> dict[str, str]:
    """Return the checksums of the types, shapes and bytes of tensors by name."""
    sums = {}
    for name, tensor in tensors.items():
        content = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data
        description = f"{tensor.dtype} {[*tensor.shape]}"
        start = crc32(description.encode())
        sums[name] = f"{crc32(content, start):08x}"
    return sums


def _import_classes(described: dict[str, Any]) -> None:
    """Import the modules that register classes until all classes of a description are registered."""
    needed = _class_names(described)
    for home in HOMES:
        if not needed <= FORMS.keys():
            import_module(home)


def _class_names(described: dict[str, Any]) -> set[str]:
    """Return the names of the classes of a description and of its parts."""
    parts = described["parts"].values()
    return {described["class"]}.union(*map(_class_names, parts))
