"""Batches of selected rows of a data set, with their row numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
from torch.utils.data import DataLoader, Dataset, IterableDataset, default_collate

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
    read : callable
        Reads the rows with given ascending numbers, at most so many at a time.
    batch_size : int or None
        Number of rows per batch; None: as many as fit into memory.
    """

    n: int | None
    read: Callable[[Iterable[int], int], Batches]
    batch_size: int | None = None

    def batches(self, wanted: Iterable[int], size: int) -> Batches:
        """Yield the ascending row numbers `wanted` and the rows themselves, at most `size` at a time."""
        for numbers, batch in self.read(wanted, size):
            yield numbers, first_input(batch)


def as_row_source(data: Any) -> RowSource:
    """Return the row source of a user's data.

    Raises
    ------
    TypeError, ValueError
        Data without rows, an unsupported type, or a DataLoader with a batch sampler.
    """
    if isinstance(data, DataLoader):
        if data.batch_size is None:
            raise ValueError(
                "data needs a DataLoader with a batch_size, so that items can be numbered; got one with a "
                "batch_sampler or with batches from its data set"
            )
        options = {name: getattr(data, name) for name in OPTIONS}
        source = rows_of_dataset(data.dataset, data.batch_size, data.collate_fn, options)
    elif isinstance(data, Dataset):
        source = rows_of_dataset(data)
    elif isinstance(data, str):
        raise ValueError("data needs a sequence of strings; a single one is [text]")
    elif isinstance(data, list | tuple) or getattr(data, "shape", None):
        source = _rows_of_array(data)
    else:
        raise TypeError(
            "data needs a torch Dataset or DataLoader, an array, a tensor, a data frame or a list of texts, got "
            f"{type(data).__name__}"
        )
    if source.n == 0:
        raise ValueError("data is empty")
    return source


def _rows_of_array(X: Any) -> RowSource:
    """Return the rows of an array, tensor, data frame, sparse matrix or list."""
    table = Table.read(X)

    def read(wanted: Iterable[int], size: int) -> Batches:
        rows = iter(wanted)
        while some := list(islice(rows, size)):
            yield some, table.take(some).data

    return RowSource(len(table), read)


def rows_of_dataset(
    dataset: Any,
    batch_size: int | None = None,
    collate: Collate = default_collate,
    options: dict[str, Any] | None = None,
) -> RowSource:
    """Return the items of a torch data set, batched by a DataLoader with these options.

    Every process iterates over an iterable data set from its beginning, without workers: the i-th item is row i.
    """
    if isinstance(dataset, IterableDataset):
        return RowSource(None, partial(_stream_batches, dataset, collate), batch_size)
    try:
        n = len(dataset)
    except (TypeError, NotImplementedError) as error:
        raise TypeError(f"data needs a dataset with a length: {error}") from None

    def read(wanted: Any, size: int) -> Batches:
        numbers: Any = range(n)
        items = partial(_dataset_batch, dataset, collate)
        return iter(DataLoader(numbers, batch_size=size, sampler=wanted, collate_fn=items, **(options or {})))

    return RowSource(n, read, batch_size)


def _dataset_batch(dataset: Any, collate: Collate, rows: list[int]) -> tuple[list[int], Any]:
    return rows, _collated(collate, rows, [_item(dataset, row) for row in rows])


def _item(dataset: Any, row: int) -> Any:
    try:
        return dataset[row]
    except Exception as error:
        raise _unreadable(row, error) from error


def _stream_batches(dataset: Iterable[Any], collate: Collate, wanted: Iterable[int], size: int) -> Batches:
    numbered = _stream_items(dataset, iter(wanted))
    while some := list(islice(numbered, size)):
        rows, items = map(list, zip(*some, strict=True))
        yield rows, _collated(collate, rows, items)


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


def _collated(collate: Collate, rows: list[int], items: list[Any]) -> Any:
    try:
        return collate(items)
    except Exception as error:
        hint = "; items of different sizes need a DataLoader with batch_size=1" if len(rows) > 1 else ""
        what = f"{item_names(rows)} of data can't be put into one batch"
        raise ValueError(f"{what}: {_error_text(error)}{hint}") from error


def item_names(rows: list[int]) -> str:
    """The numbers of items as text for errors."""
    return f"item {rows[0]}" if len(rows) == 1 else f"items {rows[0]} ... {rows[-1]}"


def _unreadable(row: int, error: Exception) -> ValueError:
    return ValueError(f"item {row} of data can't be read: {_error_text(error)}")


def _error_text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
