"""Shards: files that hold some rows of a data set each, in a folder with a manifest, and the reader of the folder.

They are safetensors files, or Parquet files with lists of fixed length. They are written atomically and store
their row numbers, so that several processes can write to one folder, and an interrupted run can be continued. No
row is in two shards.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet
from safetensors import SafetensorError, safe_open
from torch import Tensor

from neonxc.attribution.fingerprint import hash_of
from neonxc.common.arguments import check_whole
from neonxc.common.memory import at_once
from neonxc.common.processes import short
from neonxc.common.storage import KEY, staged_file, write_tensors

MANIFEST = "manifest.json"
VERSION = 1
KIND = "attributions"
STEM = "rows-"
Columns = dict[str, np.ndarray]
"""Arrays [n, ...] of n rows, by name."""
GROUP = 1 << 23
"""Size in bytes of a row group, which Parquet readers read as a whole."""
FORMATS = ("safetensors", "parquet")
"""Formats, which are the suffixes of the files."""


@dataclass(frozen=True)
class Shards:
    """The shards of a folder.

    Attributes
    ----------
    folder : Path
    manifest : dict
        JSON values that describe what the shards hold.
    """

    folder: Path
    manifest: dict[str, Any]

    def prepare(self) -> None:
        """Create the folder, or check that an existing one belongs to the same run.

        Raises
        ------
        ValueError
            The path is a file, or the folder holds other results.
        """
        folder = self.folder
        if folder.exists() and not folder.is_dir():
            raise ValueError(f"out needs a folder, {folder} is a file")
        folder.mkdir(parents=True, exist_ok=True)
        for leftover in folder.glob(f"{STEM}*.part"):  # of processes that were killed
            leftover.unlink()
        if not (folder / MANIFEST).exists():
            if found := shard_files(folder):
                raise ValueError(f"{folder} holds {found[0].name} but no {MANIFEST}; use another folder")
            with staged_file(folder / MANIFEST) as partial:
                partial.write_text(json.dumps(self.manifest, indent=1), encoding="utf-8")
            return
        known = read_manifest(folder)
        for name, now in self.manifest.items():
            if now != known.get(name):
                was, now = (short(json.dumps(value)) for value in (known.get(name), now))
                raise ValueError(
                    f"{folder} holds attributions with another {name}: {was} there, {now} now; use another "
                    "folder, or remove it"
                )

    def write(self, columns: dict[str, Tensor]) -> None:
        """Write a shard with these columns, tensors [n, ...], among them ``row``."""
        path = self.folder / f"{STEM}{int(columns['row'][0]):012d}.{self.manifest['format']}"
        _write_columns(path, columns, json.dumps(self._header))

    def read(self, path: Path, names: list[str], some: slice = slice(None)) -> Columns:
        """Read columns of some of a shard's rows; errors name the file."""
        if path.suffix[1:] != self.manifest["format"]:
            raise ValueError(f"{path} is no shard of {path.parent}, whose format is {self.manifest['format']}")
        try:
            header, columns = _read_columns(path, names, some)
            known = json.loads(header)
        except (OSError, ValueError, LookupError, RuntimeError, SafetensorError) as error:
            raise ValueError(f"{path} is damaged or no shard: {error}") from None
        if known != self._header:
            raise ValueError(f"{path} is no shard of {path.parent}: it belongs to other attributions")
        return columns

    def rows(self) -> Iterator[np.ndarray]:
        """Read the row numbers [n] of each shard, which are ascending."""
        return (self.read(path, ["row"])["row"] for path in shard_files(self.folder))

    def rows_done(self, rank: int, size: int) -> np.ndarray:
        """Return which of a process's own rows, every `size`-th from `rank` on, are in a shard, up to the last."""
        own = [rows[rows % size == rank] // size for rows in self.rows()]
        done = np.concatenate([np.zeros(0, dtype=np.int64), *own])
        found = np.zeros(int(done.max(initial=-1)) + 1, dtype=bool)
        found[done] = True
        return found

    def index(self) -> tuple[list[Path], np.ndarray, np.ndarray, np.ndarray]:
        """Return the paths of the shards and, for all rows in order: row, index of its shard, position in it [n].

        Raises
        ------
        ValueError
            Two shards have a row in common.
        """
        paths = shard_files(self.folder)
        parts = [
            np.stack([rows, np.full_like(rows, i), np.arange(len(rows))]) for i, rows in enumerate(self.rows())
        ]
        index = np.concatenate([np.zeros((3, 0), dtype=np.int64), *parts], axis=1)
        rows, shard, place = index[:, index[0].argsort(kind="stable")]
        if len(twice := np.flatnonzero(rows[1:] == rows[:-1])):
            one, other = (paths[shard[i]] for i in (twice[0], twice[0] + 1))
            raise ValueError(f"{one} and {other} both have row {rows[twice[0]]}; remove one of them")
        return paths, rows, shard, place

    @property
    def _header(self) -> dict[str, Any]:
        return {"kind": KIND, "version": VERSION, "of": hash_of(self.manifest, {})}


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read the manifest of a folder.

    Raises
    ------
    FileNotFoundError, ValueError
        There is no manifest, or it is damaged, or of another program or version.
    """
    path = folder / MANIFEST
    if not path.is_file():
        raise FileNotFoundError(f"{folder} holds no attributions: it has no {MANIFEST}")
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        known = manifest["kind"] == KIND and manifest["format"] in FORMATS
    except (ValueError, LookupError, TypeError):
        known = False
    if not known:
        raise ValueError(f"{path} was not written by neonxc.attribute_dataset, or is damaged")
    if manifest.get("version") != VERSION:
        raise ValueError(f"{path} has version {manifest.get('version')}, this neonxc reads version {VERSION}")
    return manifest


def shard_files(folder: Path) -> list[Path]:
    """Return the shards of a folder, in the order of their first rows."""
    return sorted(path for form in FORMATS for path in folder.glob(f"{STEM}*.{form}"))


def _write_columns(path: Path, columns: dict[str, Tensor], header: str) -> None:
    """Write columns [n, ...] with a header text to a file, atomically."""
    if path.suffix == ".safetensors":
        write_tensors(columns, path, {KEY: header})
        return
    arrays = {name: _listed(value.contiguous().numpy()) for name, value in columns.items()}
    shapes = {name: list(value.shape[1:]) for name, value in columns.items()}
    table = pa.table(arrays).replace_schema_metadata({KEY: header, f"{KEY}.shapes": json.dumps(shapes)})
    with staged_file(path) as partial:
        parquet.write_table(table, partial, row_group_size=max(1, GROUP * table.num_rows // table.nbytes))


def _read_columns(path: Path, names: list[str], some: slice) -> tuple[str, Columns]:
    """Read the header text of a file ("null" if there is none), and some rows of some columns."""
    if path.suffix == ".safetensors":
        with safe_open(path, framework="np") as file:
            columns = {name: file.get_slice(name)[some] for name in names}
            return (file.metadata() or {}).get(KEY, "null"), columns
    with parquet.ParquetFile(path) as file:
        known = {key.decode(): value.decode() for key, value in (file.schema_arrow.metadata or {}).items()}
        shapes = json.loads(known.get(f"{KEY}.shapes", "{}"))
        sizes = np.array([file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)])
        stops = np.cumsum(sizes)
        first, last, _ = some.indices(file.metadata.num_rows)
        groups = np.flatnonzero((stops > first) & (stops - sizes < last))
        skipped = sizes[: groups[0]].sum()
        table = file.read_row_groups(groups.tolist(), columns=names).slice(first - skipped, last - first)
    return known.get(KEY, "null"), {name: _array(table[name], shapes[name]) for name in names}


def _listed(values: np.ndarray) -> Any:
    """Convert rows [n, ...] to an Arrow array of lists of fixed length."""
    if values.ndim == 1:
        return pa.array(values)
    return pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), values[0].size)


def _array(column: Any, shape: list[int]) -> np.ndarray:
    """Convert an Arrow column of n numbers or lists to an array [n, ...]."""
    values = column.combine_chunks()
    flat = values.flatten() if pa.types.is_fixed_size_list(values.type) else values
    return np.asarray(flat).reshape(len(values), *shape)


def read_attributions(folder: str | os.PathLike[str]) -> Attributions:
    """Open a folder of attributions that :func:`attribute_dataset` has saved, completely or in part.

    Parameters
    ----------
    folder : path-like

    Returns
    -------
    Attributions

    Raises
    ------
    FileNotFoundError
        The folder does not exist, or has no manifest.
    ValueError
        A shard is damaged, belongs to other attributions, or shares a row with another shard; the message names
        the file.
    """
    folder = Path(folder)
    manifest = read_manifest(folder)
    return Attributions(folder, manifest, *Shards(folder, manifest).index())


@dataclass(frozen=True, repr=False)
class Attributions:
    """Attributions that :func:`attribute_dataset` has saved, in the order of the data's rows.

    Only an index of about 24 bytes per row is held in memory; columns are read from the files on access.

    Attributes
    ----------
    folder : Path
    manifest : dict
        Description of the run: a hash of the network, the options, and the dtype and shape of every column at row
        0.
    rows : ndarray [n] of int64
        Numbers of the rows that are saved, ascending.
    """

    folder: Path
    manifest: dict[str, Any]
    _paths: list[Path]
    rows: np.ndarray
    _shard: np.ndarray
    _place: np.ndarray

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def columns(self) -> list[str]:
        """Names of the columns, such as ``"relevance"``; see :func:`attribute_dataset`."""
        return list(self.manifest["columns"])

    @property
    def classes(self) -> np.ndarray:
        """The clusterer's labels [K], in the order of the cluster columns."""
        return np.array(self.manifest["classes"])

    @property
    def feature_names(self) -> list[str] | None:
        """Column names of the explained table; None if the inputs are no table."""
        return self.manifest["feature_names"]

    @property
    def missing(self) -> int | None:
        """Number of rows of the data that are not saved yet; None if the data has no length."""
        n = self.manifest["rows"]
        return None if n is None else n - len(self.rows)

    def __getitem__(self, name: str) -> np.ndarray:
        """Read a column [n, ...] of all rows.

        Raises
        ------
        KeyError
            There is no such column.
        ValueError
            Rows have different shapes; :meth:`blocks` reads rows of one shape at a time.
        """
        if name == "row":
            return self.rows
        if name not in self.columns:
            raise KeyError(f"{name!r}; the columns are {['row', *self.columns]}")
        found = [block[name] for block in self.blocks([name])]
        if len({part.shape[1:] for part in found}) > 1:
            raise ValueError(f"rows have {name} of different shapes; read them with blocks()")
        about = self.manifest["columns"][name]
        return np.concatenate(found) if found else np.zeros((0, *about["shape"]), about["dtype"])

    def blocks(self, columns: Sequence[str] | None = None, size: int | None = None) -> Iterator[Columns]:
        """Iterate over all rows in order, block by block.

        Parameters
        ----------
        columns : sequence of str, optional
            Names of the columns to read. Default: all.
        size : int, optional
            Largest number of rows per block. Default: as many as the memory budget allows.

        Yields
        ------
        dict of str to ndarray
            ``row`` [m] and the columns [m, ...] of the next m rows. All rows of a block have the same shape.
        """
        names = self.columns if columns is None else [name for name in columns if name != "row"]
        if unknown := [name for name in names if name not in self.columns]:
            raise ValueError(f"columns needs names among {['row', *self.columns]}, got {unknown}")
        check_whole("size", size, optional=True)
        described = (self.manifest["columns"][name] for name in names)
        size = size or at_once(
            2 * sum(math.prod(one["shape"]) * np.dtype(one["dtype"]).itemsize for one in described)
        )
        for first in range(0, len(self.rows), size):
            yield from self._read(names, slice(first, first + size))

    def _read(self, names: list[str], some: slice) -> Iterator[Columns]:
        """Read the rows of a slice of the index, as one block unless their shapes differ."""
        rows, shard, place = self.rows[some], self._shard[some], self._place[some]
        shards, shapes = Shards(self.folder, self.manifest), dict[tuple[Any, ...], int]()
        kind, parts = np.zeros(len(rows), dtype=np.int64), []
        for number in np.unique(shard):
            at = np.flatnonzero(shard == number)
            wanted = place[at]
            low = int(wanted.min())
            found = shards.read(self._paths[number], names, slice(low, int(wanted.max()) + 1))
            kind[at] = shapes.setdefault(tuple(found[name].shape[1:] for name in names), len(shapes))
            parts.append((at, wanted - low, found))
        bounds = [0, *(np.flatnonzero(np.diff(kind)) + 1).tolist(), len(rows)]
        for start, stop in pairwise(bounds):
            block: Columns = {"row": rows[start:stop]}
            for at, wanted, found in parts:
                here = (at >= start) & (at < stop)
                for name, values in found.items() if here.any() else ():
                    empty = np.empty((stop - start, *values.shape[1:]), values.dtype)
                    block.setdefault(name, empty)[at[here] - start] = values[wanted[here]]
            yield block

    def __repr__(self) -> str:
        left = "" if not self.missing else f", {self.missing} missing"
        return f"Attributions({str(self.folder)!r}, {len(self)} rows{left}: {', '.join(self.columns)})"
