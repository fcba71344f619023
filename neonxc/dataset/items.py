"""The rows of a data set in batches, each with its number, as far as they are wanted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol

import numpy as np
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, default_collate

from neonxc.sparse import is_sparse
from neonxc.terms import is_texts

OPTIONS = ("num_workers", "pin_memory", "timeout", "worker_init_fn", "multiprocessing_context", "prefetch_factor")
"""What else of a DataLoader is used."""


class Wanted(Protocol):
    """Rows that are wanted; in their order, where it is known how many there are."""

    def __contains__(self, row: int, /) -> bool: ...
    def __iter__(self) -> Iterator[int]: ...


@dataclass
class Share:
    """The rows of one process: every `size`-th from `rank` on, without those that are done.

    Attributes
    ----------
    rank, size : int
    n : int or None
        How many rows there are in all, if that is known.
    done : ndarray of bool
        For the process's own rows, as far as any is done.
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
        """How many rows are the process's own."""
        return None if self.n is None else len(range(self.rank, self.n, self.size))


class Source(Protocol):
    """Where rows come from."""

    n: int | None
    """How many there are; None: that is not known."""
    batch_size: int | None
    """How many a batch has; None: as many as memory has room for."""

    def batches(self, wanted: Wanted, size: int) -> Iterator[tuple[list[int], Any]]:
        """Numbers of rows and these rows, at most `size` at a time."""


def source_of(data: Any) -> Source:
    """What a user gives as data, as a source of rows.

    Raises
    ------
    TypeError, ValueError
        Nothing that has rows, no rows at all, or a loader that makes batches in a way of its own.
    """
    if isinstance(data, DataLoader):
        if data.batch_size is None:
            raise ValueError(
                "data needs a DataLoader with a batch_size, so that items have numbers; got one whose batches are "
                "those of its dataset or of a batch_sampler"
            )
        options = {name: getattr(data, name) for name in OPTIONS}
        return _filled(Items(data.dataset, data.batch_size, data.collate_fn, options))
    if isinstance(data, Dataset):
        return _filled(Items(data))
    if is_texts(data) and isinstance(data, str):
        raise ValueError("data needs a sequence of strings; a single one is [text]")
    if isinstance(data, Tensor | np.ndarray) or is_sparse(data) or hasattr(data, "iloc"):
        return _filled(Rows(data.tocsr() if is_sparse(data) else data))
    if isinstance(data, list | tuple):
        return _filled(Rows(list(data) if is_texts(data) else np.asarray(data)))
    raise TypeError(
        "data needs a torch Dataset or DataLoader, an array, a tensor, a data frame or a list of texts, got "
        f"{type(data).__name__}"
    )


def _filled(source: Source) -> Source:
    if source.n == 0:
        raise ValueError("data is empty")
    return source


class Rows:
    """Rows of an array, tensor, frame, sparse matrix or list of texts."""

    n: int | None
    batch_size: int | None = None

    def __init__(self, X: Any) -> None:
        if not isinstance(X, list) and not np.shape(X):
            raise ValueError("data needs rows, got a single number")
        self.X, self.n = X, len(X) if isinstance(X, list) else int(X.shape[0])

    def batches(self, wanted: Wanted, size: int) -> Iterator[tuple[list[int], Any]]:
        """See :class:`Source`."""
        rows = iter(wanted)
        while some := list(islice(rows, size)):
            yield some, taken(self.X, some)


def taken(X: Any, rows: list[int]) -> Any:
    """Some rows of data."""
    if isinstance(X, list | tuple):
        return [X[row] for row in rows]
    return X.iloc[rows] if hasattr(X, "iloc") else X[rows]


@dataclass
class Items:
    """Items of a data set, put into batches by a DataLoader.

    An iterable data set is gone through by every process from its beginning, in the process itself: the i-th item
    is row i.
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

    def batches(self, wanted: Wanted, size: int) -> Iterator[tuple[list[int], Any]]:
        """See :class:`Source`."""
        together: Any = _Together(self.collate)
        if self.n is None:
            loader = DataLoader(_Stream(self.dataset, wanted), batch_size=size, collate_fn=together)
        else:
            rows: Any = wanted
            loader = DataLoader(
                _Numbered(self.dataset), batch_size=size, sampler=rows, collate_fn=together, **self.options
            )
        for numbers, batch in loader:
            yield numbers, first_of(batch)


def first_of(batch: Any) -> Any:
    """The inputs of a batch: the batch itself, or its first part.

    Raises
    ------
    TypeError
        Something without a first part, such as a dictionary.
    """
    while isinstance(batch, list | tuple) and batch and not isinstance(batch[0], str):
        batch = batch[0]
    if isinstance(batch, Tensor | np.ndarray | list | tuple) or is_sparse(batch) or hasattr(batch, "iloc"):
        return list(batch) if isinstance(batch, tuple) else batch
    raise TypeError(
        f"items of data need to be x or (x, ...), got {type(batch).__name__}; a DataLoader with a collate_fn can "
        "make x of them"
    )


class _Numbered(Dataset[tuple[int, Any]]):
    """Items with their numbers, which errors name."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __getitem__(self, row: int) -> tuple[int, Any]:
        try:
            return row, self.dataset[row]
        except Exception as error:
            raise ValueError(f"item {row} of data can't be read: {_told(error)}") from error


class _Stream(IterableDataset[tuple[int, Any]]):
    """Those items of an iterable data set that are wanted, with their numbers."""

    def __init__(self, dataset: Iterable[Any], wanted: Wanted) -> None:
        self.dataset, self.wanted = dataset, wanted

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        row = 0
        try:
            for item in self.dataset:
                if row in self.wanted:
                    yield row, item
                row += 1
        except Exception as error:
            raise ValueError(f"item {row} of data can't be read: {_told(error)}") from error


class _Together:
    """Items in a batch, and their numbers."""

    def __init__(self, collate: Callable[[list[Any]], Any]) -> None:
        self.collate = collate

    def __call__(self, pairs: list[tuple[int, Any]]) -> tuple[list[int], Any]:
        rows = [row for row, _ in pairs]
        try:
            return rows, self.collate([item for _, item in pairs])
        except Exception as error:
            hint = "; items of different sizes need a DataLoader with batch_size=1" if len(rows) > 1 else ""
            raise ValueError(f"{named(rows)} of data can't be put together: {_told(error)}{hint}") from error


def named(rows: list[int]) -> str:
    """Numbers of items, in short."""
    return f"item {rows[0]}" if len(rows) == 1 else f"items {rows[0]} ... {rows[-1]}"


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
