"""Tables that are read batch by batch: memory-mapped arrays, Parquet files, and functions that give batches."""

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

from neonxc.blocks import CPU, at_once
from neonxc.inputs import as_batch, check_names

if TYPE_CHECKING:
    from neonxc.trees.tree import ThresholdTree

LARGE = CPU  # bytes of a memory-mapped array from which on it is read batch by batch
COPIES = 32  # bytes per number that working on a batch takes


class Source:
    """A table that can be read again and again, a batch of rows at a time.

    Parameters
    ----------
    open : callable
        () -> an iterator of batches [b, d]: arrays, tensors or data frames.

    Attributes
    ----------
    names : list of str or None
        Of the columns; known once a batch was read, as `width` and `dtype` are.
    """

    def __init__(self, open: Callable[[], Any]) -> None:
        self._open = open
        self.names: list[str] | None = None
        self.width: int | None = None
        self.dtype: torch.dtype | None = None

    def given(self) -> Iterator[Any]:
        """The batches as they come."""
        batches = self._open()
        if not hasattr(batches, "__iter__"):
            raise ValueError(
                "X is a function, which needs to return an iterator of batches each time it is called; it "
                f"returned {type(batches).__name__}"
            )
        yield from batches

    def __iter__(self) -> Iterator[Tensor]:
        """The batches as tensors, checked, in parts that fit into memory; on the CPU.

        Raises
        ------
        ValueError
            A batch that is no table of finite numbers, or has other columns than those before.
        """
        for number, batch in enumerate(self.given()):
            if not np.shape(batch)[0]:
                continue
            name = f"batch {number} of X"
            checked = as_batch(batch, name=name, device="cpu", integers=True)
            self._check(checked.tensor, checked.names, name)
            yield from checked.tensor.split(at_once(COPIES * checked.tensor.shape[1]))

    def leaf_of(self, tree: ThresholdTree) -> Tensor:
        """The leaf of every point, [n]."""
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
            raise ValueError(f"{name} has {values.shape[1]} columns, those before have {self.width}")
        if values.dtype != self.dtype:
            kinds = (str(dtype).removeprefix("torch.") for dtype in (values.dtype, self.dtype))
            raise ValueError("{} has numbers of type {}, those before {}".format(name, *kinds))
        check_names(names, self.names, name=name)


def source_of(X: Any) -> Source | None:
    """What is read batch by batch; None for a table that is read at once.

    Parameters
    ----------
    X : numpy.memmap of at least 128 MB, path of a Parquet file or of a folder of them, callable, or anything else

    Raises
    ------
    ValueError
        There is no such file, or it is no Parquet file.
    """
    if isinstance(X, np.memmap) and X.ndim == 2 and X.nbytes >= LARGE:
        return Source(lambda: _of_memmap(X))
    if isinstance(X, str | PathLike):
        files = _parquet_files(Path(X))
        return Source(lambda: _of_parquet(files))
    if callable(X) and not hasattr(X, "__array__") and not hasattr(X, "shape"):
        return Source(X)
    return None


def _of_memmap(X: np.memmap[Any, Any]) -> Iterator[np.ndarray]:
    step = at_once(COPIES * X.shape[1])
    for first in range(0, len(X), step):
        yield np.array(X[first : first + step])
        _release(X)


def _release(X: np.memmap[Any, Any]) -> None:
    """Let go of pages of the file that were read, which the process would hold on to otherwise."""
    if X.mode == "c":  # changes are in these pages alone
        return
    base: Any = X
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, mmap.mmap) and hasattr(base, "madvise"):
        with suppress(OSError, ValueError):
            base.madvise(mmap.MADV_DONTNEED)


def _parquet_files(path: Path) -> list[Path]:
    """The files of a folder in the order of their names; hidden ones and those of metadata are left out."""
    if not path.exists():
        raise ValueError(f"X is the path of no file or folder: {str(path)!r}")
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
            raise ValueError(f"X: {str(file)!r} is no Parquet file that can be read: {error}") from None
        with opened:
            width = max(1, len(opened.schema_arrow))
            for batch in opened.iter_batches(batch_size=at_once(COPIES * width)):
                yield batch.to_pandas()
