"""Batches of selected rows of a data set, with their row numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, default_collate

from neonxc.data.table import Table

OPTIONS = ("num_workers", "pin_memory", "timeout", "worker_init_fn", "multiprocessing_context", "prefetch_factor")
"""Options of a user's DataLoader that are kept."""

SAMPLED = 16
"""Rows at most that tell data from other data of the same size."""


Batches = Iterator[tuple[list[int], Any]]
"""Numbers of rows, and the rows themselves."""
Collate = Callable[[list[Any]], Any]


@dataclass
class RowSource:
    """A data set whose rows can be read in batches.

    Attributes
    ----------
    n : int or None
        Number of rows; None if unknown.
    batches : callable
        Reads the rows with given ascending numbers, at most so many at a time.
    batch_size : int or None
        Number of rows per batch; None: as many as fit into memory.
    """

    n: int | None
    batches: Callable[[Iterable[int], int], Batches]
    batch_size: int | None = None


def as_row_source(data: Any) -> RowSource:
    """Return the row source of a user's data.

    Every process iterates over an iterable data set from its beginning, without workers: the i-th item is row i.

    Raises
    ------
    TypeError, ValueError
        Data without rows, an unsupported type, or a DataLoader with a batch sampler.
    """
    loader, options = data if isinstance(data, DataLoader) else None, dict[str, Any]()
    collate, batch_size, n = default_collate, None, None
    if loader is not None:
        if loader.batch_size is None:
            raise ValueError(
                "data needs a DataLoader with a batch_size, so that items can be numbered; got one with a "
                "batch_sampler or with batches from its data set"
            )
        options = {name: getattr(loader, name) for name in OPTIONS}
        data, collate, batch_size = loader.dataset, loader.collate_fn, loader.batch_size
    if isinstance(data, IterableDataset):

        def read(wanted: Any, size: int) -> Batches:
            items: Any = _stream_items(data, iter(wanted))
            for some in BatchSampler(items, size, drop_last=False):
                yield _collated(collate, *map(list, zip(*some, strict=True)))

    elif loader is not None or isinstance(data, Dataset):
        try:
            numbers: Any = range(n := len(data))
        except (TypeError, NotImplementedError) as error:
            raise TypeError(f"data needs a dataset with a length: {error}") from None

        def read(wanted: Any, size: int) -> Batches:
            items = partial(_dataset_batch, data, collate)
            return iter(DataLoader(numbers, batch_size=size, sampler=wanted, collate_fn=items, **options))

    elif isinstance(data, str):
        raise ValueError("data needs a sequence of strings; a single one is [text]")
    elif isinstance(data, list | tuple) or getattr(data, "shape", None):
        table = Table.read(data)
        n = len(table)

        def read(wanted: Any, size: int) -> Batches:
            return ((some, table.take(some).data) for some in BatchSampler(wanted, size, drop_last=False))

    else:
        raise TypeError(
            "data needs a torch Dataset or DataLoader, an array, a tensor, a data frame or a list of texts, got "
            f"{type(data).__name__}"
        )
    if n == 0:
        raise ValueError("data is empty")
    return RowSource(n, read, batch_size)


def _dataset_batch(dataset: Any, collate: Collate, rows: list[int]) -> tuple[list[int], Any]:
    items = []
    for row in rows:
        try:
            items.append(dataset[row])
        except Exception as error:
            raise _unreadable(row, error) from error
    return _collated(collate, rows, items)


def _stream_items(dataset: Iterable[Any], wanted: Iterator[int]) -> Iterator[tuple[int, Any]]:
    following, row = next(wanted, None), 0
    try:
        for item in dataset:
            if row == following:
                yield row, item
                following = next(wanted, None)
            row += 1
    except Exception as error:
        raise _unreadable(row, error) from error


def sampled(source: RowSource, rank: int, size: int) -> dict[int, Any]:
    """Return those of some rows that belong to one of `size` processes, by number.

    The rows are at equal distances from the first to the last, or the first ones of a stream.
    """
    n = source.n
    rows = range(SAMPLED) if n is None else np.unique(np.linspace(0, n - 1, SAMPLED, dtype=int)).tolist()
    own = [row for row in rows if row % size == rank]
    return {row: x for (row,), x in islice(source.batches(own, 1), len(own))}


def first_input(batch: Any) -> Any:
    """Return the inputs of a batch: the batch itself, or the first element of a tuple.

    Raises
    ------
    TypeError
        The batch is of another type, such as a dictionary.
    """
    while isinstance(batch, list | tuple) and batch and not isinstance(batch[0], str):
        batch = batch[0]
    if isinstance(batch, list | tuple) or hasattr(batch, "shape"):
        return list(batch) if isinstance(batch, tuple) else batch
    raise TypeError(
        f"items of data need to be x or (x, ...), got {type(batch).__name__}; pass a DataLoader with a collate_fn "
        "that returns x"
    )


def _collated(collate: Collate, rows: list[int], items: list[Any]) -> tuple[list[int], Any]:
    try:
        batch = collate(items)
    except Exception as error:
        hint = "; items of different sizes need a DataLoader with batch_size=1" if len(rows) > 1 else ""
        what = f"{item_names(rows)} of data can't be put into one batch"
        raise ValueError(f"{what}: {type(error).__name__}: {error}{hint}") from error
    return rows, first_input(batch)


def item_names(rows: list[int]) -> str:
    """The numbers of items as text for errors."""
    return f"item {rows[0]}" if len(rows) == 1 else f"items {rows[0]} ... {rows[-1]}"


def _unreadable(row: int, error: Exception) -> ValueError:
    return ValueError(f"item {row} of data can't be read: {type(error).__name__}: {error}")
