"""Shards: files that hold some rows each, in a folder with a manifest that says what they are about.

A shard is there whole or not at all, and names its rows, so that a folder can be filled by several processes and
filled up after all of them were killed. No two shards have a row in common.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neonxc.dataset.formats import FORMATS, Columns
from neonxc.files import staged_file
from neonxc.fingerprint import hash_of

MANIFEST = "manifest.json"
VERSION = 1
KIND = "attributions"
STEM = "rows-"


class Writer:
    """Collects batches of rows, writes a shard whenever there are enough, and at the end what is left.

    A shard holds whole batches, so that a run that goes on where another one ended has the same batches: a row's
    numbers may depend on its company in their last digits.

    Parameters
    ----------
    folder : Path
    manifest : dict
        As :func:`begin` was given it.
    most : int
        Rows that a shard holds at most; no batch may have more. Rows of different shapes are in different shards.
    """

    def __init__(self, folder: Path, manifest: dict[str, Any], most: int) -> None:
        self.folder, self.manifest, self.most = folder, manifest, most
        self.parts: list[dict[str, Tensor]] = []

    def __enter__(self) -> Writer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._write()

    def add(self, rows: list[int], columns: dict[str, Tensor]) -> None:
        """Take rows [n] and what there is of them, tensors [n, ...]."""
        part = {"row": torch.tensor(rows), **{name: value.detach().cpu() for name, value in columns.items()}}
        if self.parts and (self._held + len(rows) > self.most or _shapes(part) != _shapes(self.parts[0])):
            self._write()
        self.parts.append(part)
        if self._held + len(rows) > self.most:  # there is no room for another batch
            self._write()

    @property
    def _held(self) -> int:
        return sum(len(part["row"]) for part in self.parts)

    def _write(self) -> None:
        if not self.parts:
            return
        columns = {name: torch.cat([part[name] for part in self.parts]) for name in self.parts[0]}
        self.parts = []
        path = path_of(self.folder, self.manifest, int(columns["row"][0]))
        FORMATS[self.manifest["format"]].write(path, columns, json.dumps(_header(self.manifest)))


def begin(folder: Path, manifest: dict[str, Any]) -> None:
    """Make a folder of shards, or find out whether one that is there can be filled up.

    Raises
    ------
    ValueError
        The folder is a file, or holds something else.
    """
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file; a folder is needed")
    folder.mkdir(parents=True, exist_ok=True)
    for left in folder.glob(f"{STEM}*.part"):  # by processes that were killed
        left.unlink()
    if not (folder / MANIFEST).exists():
        if found := files(folder):
            raise ValueError(f"{folder} holds {found[0].name} and no {MANIFEST}; take another folder")
        with staged_file(folder / MANIFEST) as partial:
            partial.write_text(json.dumps(manifest, indent=1), encoding="utf-8")
    elif name := differing(folder, manifest):
        there, now = (_short(some.get(name)) for some in (read_manifest(folder), manifest))
        raise ValueError(
            f"{folder} holds attributions that differ in {name}: {there} there, {now} now; take another folder, "
            "or remove it"
        )


def differing(folder: Path, manifest: dict[str, Any]) -> str | None:
    """The first of the names in a manifest for which a folder's own says something else."""
    known, wanted = read_manifest(folder), _json(manifest)
    return next((name for name in wanted if wanted[name] != known.get(name)), None)


def read_manifest(folder: Path) -> dict[str, Any]:
    """What the shards of a folder are about.

    Raises
    ------
    FileNotFoundError, ValueError
        No manifest, one that is damaged, or one of another program or version.
    """
    path = folder / MANIFEST
    if not path.is_file():
        raise FileNotFoundError(f"{folder} holds no attributions: it has no {MANIFEST}")
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}") from None
    if not isinstance(manifest, dict) or manifest.get("kind") != KIND or manifest.get("format") not in FORMATS:
        raise ValueError(f"{path} was not written by neonxc.attribute_dataset, or is damaged")
    if manifest.get("version") != VERSION:
        raise ValueError(f"{path} is of version {manifest.get('version')}, known is {VERSION}")
    return manifest


def path_of(folder: Path, manifest: dict[str, Any], row: int) -> Path:
    """The shard whose first row this is; no other one has it."""
    return folder / f"{STEM}{row:012d}.{manifest['format']}"


def files(folder: Path) -> list[Path]:
    """The shards of a folder, by their first rows."""
    return sorted(path for form in FORMATS for path in folder.glob(f"{STEM}*.{form}"))


def rows_of(path: Path, manifest: dict[str, Any]) -> np.ndarray:
    """The rows [n] of a shard, which ascend.

    Raises
    ------
    ValueError
        A damaged file, or one that belongs to something else.
    """
    return read(path, manifest, ["row"])["row"]


def read(path: Path, manifest: dict[str, Any], names: list[str], some: slice = slice(None)) -> Columns:
    """Columns of some of a shard's rows; the file is named by what is wrong with it."""
    form = FORMATS.get(path.suffix[1:])
    if form is None or path.suffix[1:] != manifest["format"]:
        raise ValueError(f"{path} is no shard of {path.parent}, whose format is {manifest['format']}")
    try:
        header, columns = form.read(path, names, some)
        known = json.loads(header or "null")
    except (OSError, ValueError, LookupError, RuntimeError) as error:
        raise ValueError(f"{path} is damaged, or no shard: {error}") from None
    if known != _header(manifest):
        raise ValueError(f"{path} is no shard of {path.parent}: it belongs to something else")
    return columns


def done(folder: Path, manifest: dict[str, Any], rank: int, size: int) -> np.ndarray:
    """Which of a process's own rows, every `size`-th from `rank` on, are in a shard; as far as any is."""
    every = (rows_of(path, manifest) for path in files(folder))
    own = np.concatenate([np.zeros(0, dtype=np.int64), *(rows[rows % size == rank] // size for rows in every)])
    found = np.zeros(int(own.max(initial=-1)) + 1, dtype=bool)
    found[own] = True
    return found


def index(folder: Path, manifest: dict[str, Any]) -> tuple[list[Path], np.ndarray, np.ndarray, np.ndarray]:
    """All shards; and all rows [n] in their order, the number of each one's shard, and its place in that.

    Raises
    ------
    ValueError
        Two shards that have a row in common.
    """
    paths = files(folder)
    each = [rows_of(path, manifest) for path in paths]
    rows = np.concatenate(each) if each else np.zeros(0, dtype=np.int64)
    shard = np.repeat(np.arange(len(paths)), [len(some) for some in each])
    place = np.concatenate([np.arange(len(some)) for some in each]) if each else rows
    order = np.argsort(rows, kind="stable")
    rows, shard, place = rows[order], shard[order], place[order]
    if len(twice := np.flatnonzero(rows[1:] == rows[:-1])):
        one, other = (paths[shard[i]] for i in (twice[0], twice[0] + 1))
        raise ValueError(f"{one} and {other} both have row {rows[twice[0]]}; remove one of them")
    return paths, rows, shard, place


def _header(manifest: dict[str, Any]) -> dict[str, Any]:
    return {"kind": KIND, "version": VERSION, "of": hash_of(_json(manifest), {})}


def _shapes(part: dict[str, Tensor]) -> dict[str, torch.Size]:
    return {name: value.shape[1:] for name, value in part.items()}


def _json(value: dict[str, Any]) -> dict[str, Any]:
    return json.loads(json.dumps(value))


def _short(value: Any, most: int = 100) -> str:
    text = json.dumps(value)
    return text if len(text) <= most else f"{text[:most]} ..."
