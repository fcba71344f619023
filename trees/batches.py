"""Sources of batches: memory-mapped arrays, Parquet files, and functions that return an iterator of batches."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from neonxc.common.memory import CPU, at_once
from neonxc.data.frames import as_pandas
from neonxc.data.inputs import check_names
from neonxc.data.table import Table

if TYPE_CHECKING:
    from neonxc.trees.tree import ThresholdTree

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
    width : int or None
    dtype : torch.dtype or None
        Names, number and data type of the columns, which are known once the first batch has been read.
    """

    def __init__(self, open: Callable[[], Any]) -> None:
        self._open = open
        self.names: list[str] | None = None
        self.width: int | None = None
        self.dtype: torch.dtype | None = None

    def raw_batches(self) -> Iterator[Any]:
        """Yield the batches unchanged."""
        batches = self._open()
        if not hasattr(batches, "__iter__"):
            raise ValueError(
                "X as a function needs to return an iterator of batches each time it is called, got "
                f"{type(batches).__name__}"
            )
        yield from map(as_pandas, batches)

    def __iter__(self) -> Iterator[Tensor]:
        """Yield checked batches as tensors on the CPU; large batches are split to fit into memory.

        Raises
        ------
        ValueError
            If a batch is not a table of finite numbers, or has other columns than the previous ones.
        """
        for number, batch in enumerate(self.raw_batches()):
            if not np.shape(batch)[0]:
                continue
            name = f"batch {number} of X"
            checked = Table.read(batch, name=name)
            values = checked.numbers.cpu()
            self._check(values, checked.names, name)
            yield from values.split(at_once(COPIES * values.shape[1]))

    def leaf_of(self, tree: ThresholdTree) -> Tensor:
        """Leaf of every point, [n]."""
        names = None if tree.feature_names is None else list(tree.feature_names)
        leaves = []
        for values in self:
            check_names(self.names, names)
            leaves.append(tree.leaf_of(values))
        return torch.cat(leaves) if leaves else torch.empty(0, dtype=torch.int64)

    def _check(self, values: Tensor, names: list[str] | None, name: str) -> None:
        if values.ndim != 2:
            raise ValueError(f"{name} needs shape [points, features], got {list(values.shape)}")
        if self.width is None:
            self.names, self.width, self.dtype = names, values.shape[1], values.dtype
        if values.shape[1] != self.width:
            raise ValueError(f"{name} has {values.shape[1]} columns, the previous ones have {self.width}")
        if values.dtype != self.dtype:
            kinds = (str(dtype).removeprefix("torch.") for dtype in (values.dtype, self.dtype))
            raise ValueError("{} has dtype {}, the previous ones have {}".format(name, *kinds))
        check_names(names, self.names, name=name)


def batch_source(X: Any) -> BatchSource | None:
    """Create a source of batches for X; None if X is a table in memory.

    Parameters
    ----------
    X : numpy.memmap of at least 128 MB, path of a Parquet file or of a folder of them, callable, or anything else

    Raises
    ------
    ValueError
        If the file does not exist.
    """
    if isinstance(X, np.memmap) and X.ndim == 2 and X.nbytes >= LARGE:
        return BatchSource(lambda: _of_memmap(X))
    if isinstance(X, str | PathLike):
        files = _parquet_files(Path(X))
        return BatchSource(lambda: _of_parquet(files))
    if callable(X) and not hasattr(X, "__array__") and not hasattr(X, "shape"):
        return BatchSource(X)
    return None


def _of_memmap(X: np.memmap[Any, Any]) -> Iterator[np.ndarray]:
    step = at_once(COPIES * X.shape[1])
    for first in range(0, len(X), step):
        yield np.array(X[first : first + step])
        _release(X)


def _release(X: np.memmap[Any, Any]) -> None:
    """Free the memory of the pages that were read from the file."""
    if X.mode == "c":  # copy-on-write: changes are stored only in these pages
        return
    base: Any = X
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, mmap.mmap) and hasattr(base, "madvise"):
        with suppress(OSError, ValueError):
            base.madvise(mmap.MADV_DONTNEED)


def _parquet_files(path: Path) -> list[Path]:
    """The Parquet files of a folder sorted by name, without hidden and metadata files."""
    if not path.exists():
        raise ValueError(f"X is a path, but there is no such file or folder: {str(path)!r}")
    if path.is_file():
        return [path]
    files = sorted(file for file in path.rglob("*.parquet") if not file.name.startswith((".", "_")))
    if not files:
        raise ValueError(f"X is a folder without Parquet files (*.parquet): {str(path)!r}")
    return files


def _of_parquet(files: list[Path]) -> Iterator[Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    for file in files:
        try:
            opened = pq.ParquetFile(file)
        except pa.ArrowInvalid as error:
            raise ValueError(f"X: {str(file)!r} can't be read as a Parquet file: {error}") from None
        with opened:
            width = max(1, len(opened.schema_arrow))
            for batch in opened.iter_batches(batch_size=at_once(COPIES * width)):
                yield batch.to_pandas()
