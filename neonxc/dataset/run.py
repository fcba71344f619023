"""Rows that are explained batch by batch, by one process or several, into one folder of shards."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor
from tqdm import tqdm

from neonxc.dataset.items import Share, Source, named, taken
from neonxc.dataset.shards import KIND, VERSION, Writer, begin, done
from neonxc.progress_bars import progress_bar
from neonxc.ranks import Ranks

Explain = Callable[[list[int], Any], dict[str, Tensor]]
"""From the numbers [n] of some rows and the rows themselves to what is kept of them, tensors [n, ...]."""


def manifest_of(source: Source, format: str, described: dict[str, Any]) -> dict[str, Any]:
    """What is explained, in JSON values: all that has to be the same when a folder is filled up."""
    return {"kind": KIND, "version": VERSION, "format": format, "rows": source.n, **described}


def run(
    source: Source,
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
    """Explain the rows that no shard in a folder has yet.

    Processes communicate at the beginning, when they agree on what is done, and at the end. A process that fails
    waits there for the others, which go on with their own rows.

    Parameters
    ----------
    what : str
        What the bar calls the rows.
    fresh : callable
        Called by the first process before the folder is made or looked at.

    Raises
    ------
    ValueError
        The processes differ in what they explain, the folder holds something else, or a row can't be explained:
        the message names it. In all processes.
    """
    ranks.same(**{name: json.dumps(value) for name, value in manifest.items()})
    with ranks.agreed():
        if ranks.rank == 0:
            fresh()
            begin(folder, manifest)
    with ranks.agreed():
        own = Share(ranks.rank, ranks.size, source.n, done(folder, manifest, ranks.rank, ranks.size))
    failure: Exception | None = None
    try:
        with ranks.agreed():
            try:
                with _bar(own, what, progress) as bar, Writer(folder, manifest, rows_per_shard) as writer:
                    for rows, x in source.batches(own, batch_size):
                        writer.add(rows, _explained(explain, rows, x))
                        bar.update(len(rows))
            except Exception as error:
                failure = error
                raise
    except RuntimeError as told:  # that another process is gone matters less than what went wrong in this one
        if failure is None or failure in (told, told.__cause__):
            raise
        raise failure from told


def _bar(own: Share, what: str, progress: bool) -> tqdm[Any]:
    return progress_bar(
        total=own.total,
        initial=int(own.done.sum()),
        desc=what if own.size == 1 else f"{what} of process 0 of {own.size}",
        unit=f" {what}",
        disable=not progress or own.rank > 0,
    )


def _explained(explain: Explain, rows: list[int], x: Any) -> dict[str, Tensor]:
    """What is kept of some rows; an error names the first row that has one of its own."""
    try:
        return explain(rows, x)
    except (ValueError, TypeError) as error:
        for i, row in enumerate(rows if len(rows) > 1 else []):
            try:
                explain([row], taken(x, [i]))
            except (ValueError, TypeError) as own:
                raise ValueError(f"item {row} of data: {own}") from error
        raise ValueError(f"{named(rows)} of data: {error}") from error
