"""Batches of selected rows of a data set, with their row numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol

import numpy as np
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, default_collate

from neonxc.carriers.terms import is_texts
from neonxc.data.inputs import some_rows
from neonxc.data.sparse import is_sparse

OPTIONS = ("num_workers", "pin_memory", "timeout", "worker_init_fn", "multiprocessing_context", "prefetch_factor")
"""Options of a user's DataLoader that are kept."""

SAMPLED = 16
"""Rows at most that tell data from other data of the same size."""


class RowSelection(Protocol):
    """A selection of rows; iterating over it requires that the number of rows is known."""

    def __contains__(self, row: int, /) -> bool: ...
    def __iter__(self) -> Iterator[int]: ...


@dataclass
class PendingRows:
    """The rows of one process that are not done: every `size`-th row from row `rank` on.

    Attributes
    ----------
    rank, size : int
        Number of this process, and number of processes.
    n : int or None
        Number of rows of the data, if known.
    done : ndarray of bool
        Whether the process's own rows are done, up to the last one that is.
    """

    rank: int
    size: int
    n: int | None
    done: np.ndarray

    def __contains__(self, row: int) -> bool:
        own, off = divmod(row - self.rank, self.size)
        return off == 0 and not (own < len(self.done) and bool(self.done[own]))

    def __iter__(self) -> Iterator[int]:
        assert self.n is not None
        return (row for row in range(self.rank, self.n, self.size) if row in self)

    @property
    def total(self) -> int | None:
        """Number of rows of this process, done or not."""
        return None if self.n is None else len(range(self.rank, self.n, self.size))


class RowSource(Protocol):
    """A data set whose rows can be read in batches."""

    n: int | None
    """Number of rows; None if unknown."""
    batch_size: int | None
    """Number of rows per batch; None: as many as fit into memory."""

    def batches(self, wanted: RowSelection, size: int) -> Iterator[tuple[list[int], Any]]:
        """Yield the numbers of the selected rows and the rows themselves, at most `size` at a time."""


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
        return _filled(DatasetRows(data.dataset, data.batch_size, data.collate_fn, options))
    if isinstance(data, Dataset):
        return _filled(DatasetRows(data))
    if is_texts(data) and isinstance(data, str):
        raise ValueError("data needs a sequence of strings; a single one is [text]")
    if isinstance(data, Tensor | np.ndarray) or is_sparse(data) or hasattr(data, "iloc"):
        return _filled(ArrayRows(data.tocsr() if is_sparse(data) else data))
    if isinstance(data, list | tuple):
        return _filled(ArrayRows(list(data) if is_texts(data) else np.asarray(data)))
    raise TypeError(
        "data needs a torch Dataset or DataLoader, an array, a tensor, a data frame or a list of texts, got "
        f"{type(data).__name__}"
    )


def sampled(source: RowSource, rank: int, size: int) -> dict[int, Any]:
    """Return those of some rows that belong to one of `size` processes, by number.

    The rows are at equal distances from the first to the last, or the first ones of a stream.
    """
    n = source.n
    rows = range(SAMPLED) if n is None else np.unique(np.linspace(0, n - 1, SAMPLED, dtype=int)).tolist()
    own = [row for row in rows if row % size == rank]
    return {row: x for (row,), x in islice(source.batches(own, 1), len(own))}


def _filled(source: RowSource) -> RowSource:
    if source.n == 0:
        raise ValueError("data is empty")
    return source


class ArrayRows:
    """Rows of an array, tensor, data frame, sparse matrix or list of texts."""

    n: int | None
    batch_size: int | None = None

    def __init__(self, X: Any) -> None:
        if not isinstance(X, list) and not np.shape(X):
            raise ValueError("data needs rows, got a single number")
        self.X, self.n = X, len(X) if isinstance(X, list) else int(X.shape[0])

    def batches(self, wanted: RowSelection, size: int) -> Iterator[tuple[list[int], Any]]:
        """See :class:`RowSource`."""
        rows = iter(wanted)
        while some := list(islice(rows, size)):
            yield some, some_rows(self.X, some)


@dataclass
class DatasetRows:
    """Items of a torch data set, batched by a DataLoader.

    Every process iterates over an iterable data set from its beginning, without workers: the i-th item is row i.
    """

    dataset: Any
    batch_size: int | None = None
    collate: Callable[[list[Any]], Any] = default_collate
    options: dict[str, Any] = field(default_factory=dict)
    n: int | None = field(init=False)

    def __post_init__(self) -> None:
        self.n = None
        if not isinstance(self.dataset, IterableDataset):
            try:
                self.n = len(self.dataset)
            except (TypeError, NotImplementedError) as error:
                raise TypeError(f"data needs a dataset with a length: {error}") from None

    def batches(self, wanted: RowSelection, size: int) -> Iterator[tuple[list[int], Any]]:
        """See :class:`RowSource`."""
        together: Any = _NumberedCollate(self.collate)
        if self.n is None:
            loader = DataLoader(_NumberedStream(self.dataset, wanted), batch_size=size, collate_fn=together)
        else:
            rows: Any = wanted
            loader = DataLoader(
                _NumberedDataset(self.dataset), batch_size=size, sampler=rows, collate_fn=together, **self.options
            )
        for numbers, batch in loader:
            yield numbers, first_input(batch)


def first_input(batch: Any) -> Any:
    """Return the inputs of a batch: the batch itself, or the first element of a tuple.

    Raises
    ------
    TypeError
        The batch is of another type, such as a dictionary.
    """
    while isinstance(batch, list | tuple) and batch and not isinstance(batch[0], str):
        batch = batch[0]
    if isinstance(batch, Tensor | np.ndarray | list | tuple) or is_sparse(batch) or hasattr(batch, "iloc"):
        return list(batch) if isinstance(batch, tuple) else batch
    raise TypeError(
        f"items of data need to be x or (x, ...), got {type(batch).__name__}; pass a DataLoader with a collate_fn "
        "that returns x"
    )


class _NumberedDataset(Dataset[tuple[int, Any]]):
    """Items with their row numbers; errors name the item."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __getitem__(self, row: int) -> tuple[int, Any]:
        try:
            return row, self.dataset[row]
        except Exception as error:
            raise ValueError(f"item {row} of data can't be read: {_error_text(error)}") from error


class _NumberedStream(IterableDataset[tuple[int, Any]]):
    """The selected items of an iterable data set, with their row numbers."""

    def __init__(self, dataset: Iterable[Any], wanted: RowSelection) -> None:
        self.dataset, self.wanted = dataset, wanted

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        row = 0
        try:
            for item in self.dataset:
                if row in self.wanted:
                    yield row, item
                row += 1
        except Exception as error:
            raise ValueError(f"item {row} of data can't be read: {_error_text(error)}") from error


class _NumberedCollate:
    """Collates items, and lists their row numbers."""

    def __init__(self, collate: Callable[[list[Any]], Any]) -> None:
        self.collate = collate

    def __call__(self, pairs: list[tuple[int, Any]]) -> tuple[list[int], Any]:
        rows = [row for row, _ in pairs]
        try:
            return rows, self.collate([item for _, item in pairs])
        except Exception as error:
            hint = "; items of different sizes need a DataLoader with batch_size=1" if len(rows) > 1 else ""
            what = f"{item_names(rows)} of data can't be put into one batch"
            raise ValueError(f"{what}: {_error_text(error)}{hint}") from error


def item_names(rows: list[int]) -> str:
    """The numbers of items as text for errors."""
    return f"item {rows[0]}" if len(rows) == 1 else f"items {rows[0]} ... {rows[-1]}"


def _error_text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
