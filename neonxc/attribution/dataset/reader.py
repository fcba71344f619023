"""Reader of the attributions that :func:`neonxc.attribute_dataset` has saved."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from neonxc.attribution.dataset.shards import Columns, Shards, read_manifest
from neonxc.common.arguments import check_whole
from neonxc.common.memory import at_once


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
