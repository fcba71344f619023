"""Sources of batches: memory-mapped arrays, Parquet files, and functions that return an iterator of batches."""

from __future__ import annotations

import mmap
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neonxc.common.memory import CPU, at_once
from neonxc.data.frames import as_pandas
from neonxc.data.inputs import check_names
from neonxc.data.table import Table
from neonxc.trees.fitted.tree import ThresholdTree

LARGE = CPU  # memory-mapped arrays of at least this number of bytes are read batch by batch
COPIES = 32  # bytes of working memory per number of a batch


class BatchSource:
    """A table that can be read repeatedly, one batch of rows at a time.

    Parameters
    ----------
    open : callable
        Function without arguments that returns an iterator of batches [b, d]: arrays, tensors or data frames.

    Attributes
    ----------
    names : list of str or None
        Names of the columns, which are known once the first batch has been read.
    n : int
        Number of rows, which is known once all batches have been read; -1 before.
    """

    def __init__(self, open: Callable[[], Any]) -> None:
        self._open = open
        self.names: list[str] | None = None
        self.n, self._checksum, self._kind = -1, 0, ""

    def __iter__(self) -> Iterator[Tensor]:
        """Yield checked batches as tensors on the CPU; large batches are split to fit into memory.

        Raises
        ------
        ValueError
            If a batch is not a table of finite numbers, or has other columns than the previous ones, or if the
            rows are not those that were read the first time.
        """
        n = checksum = 0
        for values in self._checked():
            n, checksum = n + len(values), zlib.crc32(values.sum(1).numpy().data, checksum)
            if -1 < self.n < n:
                break
            yield values
        if self.n > -1 and (n, checksum) != (self.n, self._checksum):
            raise ValueError(
                f"X gave {self.n} points when it was first read, and {n} or others when it was read again; a "
                "function needs to return a new iterator over the same batches each time it is called"
            )
        self.n, self._checksum = n, checksum

    def leaf_of(self, tree: ThresholdTree) -> Tensor:
        """Leaf of every point, [n]."""
        leaves = [torch.empty(0, dtype=torch.int64)]
        for values in self:
            check_names(self.names, tree.feature_names)
            leaves.append(tree.leaf_of(values))
        return torch.cat(leaves)

    def _checked(self) -> Iterator[Tensor]:
        batches = self._open()
        if not hasattr(batches, "__iter__"):
            raise ValueError(
                "X as a function needs to return an iterator of batches each time it is called, got "
                f"{type(batches).__name__}"
            )
        for number, batch in enumerate(map(as_pandas, batches)):
            if not np.shape(batch)[0]:
                continue
            name = f"batch {number} of X"
            found = Table.read(batch, name=name)
            values = found.numbers.cpu()
            if values.ndim != 2:
                raise ValueError(f"{name} needs shape [points, features], got {list(values.shape)}")
            kind = f"{values.shape[1]} columns of {values.dtype}"
            if not self._kind:
                self.names, self._kind = found.names, kind
            if kind != self._kind:
                raise ValueError(f"{name} has {kind}, the previous ones have {self._kind}")
            check_names(found.names, self.names, name=name)
            yield from values.split(at_once(COPIES * values.shape[1]))


def batch_source(X: Any) -> BatchSource | None:
    """Create a source of batches for X; None if X is a table in memory.

    Parameters
    ----------
    X : numpy.memmap of at least 128 MB, path of a Parquet file or of a folder of them, callable, or anything else
    """
    if isinstance(X, np.memmap) and X.ndim == 2 and X.nbytes >= LARGE:
        return BatchSource(partial(_of_memmap, X))
    if isinstance(X, str | PathLike):
        return BatchSource(partial(_of_parquet, Path(X)))
    if callable(X) and not hasattr(X, "__array__") and not hasattr(X, "shape"):
        return BatchSource(X)
    return None


def _of_memmap(X: np.memmap[Any, Any]) -> Iterator[np.ndarray]:
    base: Any = X
    while isinstance(base, np.ndarray):
        base = base.base
    step = at_once(COPIES * X.shape[1])
    for first in range(0, len(X), step):
        yield np.array(X[first : first + step])
        # Free the memory of the pages that were read, unless they are the only place of changes (copy-on-write)
        with suppress(AttributeError, OSError, ValueError):
            if X.mode != "c":
                base.madvise(mmap.MADV_DONTNEED)


def _of_parquet(path: Path) -> Iterator[Any]:
    """Batches of a file, or of the files of a folder sorted by name, without hidden and metadata files."""
    from pyarrow import parquet  # takes long to import

    found = (file for file in path.rglob("*.parquet") if not file.name.startswith((".", "_")))
    files = [path] if path.is_file() else sorted(found)
    if not files:
        raise ValueError(f"X is a path, but there is no file or folder with files *.parquet: {str(path)!r}")
    for file in files:
        try:
            opened = parquet.ParquetFile(file)
        except ValueError as error:
            raise ValueError(f"X: {str(file)!r} can't be read as a Parquet file: {error}") from None
        with opened:
            yield from opened.iter_batches(batch_size=at_once(COPIES * max(1, len(opened.schema_arrow))))
