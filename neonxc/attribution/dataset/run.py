"""The loop that explains the rows of a data set in batches, by one process or several, into a folder of shards."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from neonxc.attribution.dataset.items import PendingRows, RowSource, item_names
from neonxc.attribution.dataset.shards import KIND, VERSION, ShardWriter, prepare_folder, rows_done
from neonxc.common.processes import Ranks
from neonxc.common.progress import progress_bar
from neonxc.data.inputs import some_rows

if TYPE_CHECKING:
    from tqdm import tqdm

Explain = Callable[[list[int], Any], dict[str, Tensor]]
"""Computes the columns to save, tensors [n, ...], from row numbers [n] and the rows themselves."""


def manifest_of(source: RowSource, format: str, described: dict[str, Any]) -> dict[str, Any]:
    """Return the manifest: JSON values that need to be the same when an interrupted run is continued."""
    return {"kind": KIND, "version": VERSION, "format": format, "rows": source.n, **described}


def run(
    source: RowSource,
    explain: Explain,
    folder: Path,
    manifest: dict[str, Any],
    ranks: Ranks,
    *,
    batch_size: int,
    rows_per_shard: int,
    progress: bool = True,
    what: str = "rows",
    fresh: Callable[[], None] = lambda: None,
) -> None:
    """Explain the rows that are in no shard of a folder yet.

    Processes communicate at the beginning, when they agree on the rows that are done, and at the end. A process
    that fails waits at the end for the others, which finish their rows.

    Parameters
    ----------
    source : RowSource
    explain : callable
        Computes the columns to save for a batch of rows.
    folder : Path
    manifest : dict
        From :func:`manifest_of`.
    ranks : Ranks
    batch_size, rows_per_shard : int
    progress : bool
        Show a progress bar.
    what : str
        Name of the rows in the progress bar.
    fresh : callable
        Called by the first process before the folder is created or read.

    Raises
    ------
    ValueError
        In all processes: the processes explain different things, the folder holds other results, or a row is
        invalid; the message names it.
    """
    ranks.same(**{name: json.dumps(value) for name, value in manifest.items()})
    with ranks.agreed():
        if ranks.rank == 0:
            fresh()
            prepare_folder(folder, manifest)
    with ranks.agreed():
        own = PendingRows(ranks.rank, ranks.size, source.n, rows_done(folder, manifest, ranks.rank, ranks.size))
    failure: Exception | None = None
    try:
        with ranks.agreed():
            try:
                with _bar(own, what, progress) as bar, ShardWriter(folder, manifest, rows_per_shard) as writer:
                    for rows, x in source.batches(own, batch_size):
                        writer.add(rows, _explained(explain, rows, x))
                        bar.update(len(rows))
            except Exception as error:
                failure = error
                raise
    except RuntimeError as group_error:  # this process's own error says more than that another process has ended
        if failure is None or failure in (group_error, group_error.__cause__):
            raise
        raise failure from group_error


def _bar(own: PendingRows, what: str, progress: bool) -> tqdm[Any]:
    return progress_bar(
        total=own.total,
        initial=int(own.done.sum()),
        desc=what if own.size == 1 else f"{what} of process 0 of {own.size}",
        unit=f" {what}",
        disable=not progress or own.rank > 0,
    )


def _explained(explain: Explain, rows: list[int], x: Any) -> dict[str, Tensor]:
    """Explain a batch of rows; if that fails, explain them one by one to name the first invalid row."""
    try:
        return explain(rows, x)
    except (ValueError, TypeError) as error:
        for i, row in enumerate(rows if len(rows) > 1 else []):
            try:
                explain([row], some_rows(x, [i]))
            except (ValueError, TypeError) as own:
                raise ValueError(f"item {row} of data: {own}") from error
        raise ValueError(f"{item_names(rows)} of data: {error}") from error
