"""The loop that explains the rows of a data set in batches, by one process or several, into a folder of shards."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from itertools import count
from typing import Any

from torch import Tensor

from neonxc.attribution.dataset.items import RowSource, item_names
from neonxc.attribution.dataset.shards import KIND, VERSION, Shards, ShardWriter
from neonxc.common.processes import Ranks
from neonxc.common.progress import progress_bar
from neonxc.data.table import Table

Explain = Callable[[list[int], Any], dict[str, Tensor]]
"""Computes the columns to save, tensors [n, ...], from row numbers [n] and the rows themselves."""


def manifest_of(source: RowSource, format: str, described: dict[str, Any]) -> dict[str, Any]:
    """Return the manifest: JSON values that need to be the same when an interrupted run is continued."""
    manifest = {"kind": KIND, "version": VERSION, "format": format, "rows": source.n, **described}
    return json.loads(json.dumps(manifest))


def run(
    source: RowSource,
    explain: Explain,
    shards: Shards,
    ranks: Ranks,
    *,
    batch_size: int,
    rows_per_shard: int,
    progress: bool = True,
) -> None:
    """Explain the rows that are in no shard of a folder yet.

    Processes communicate at the beginning, when they agree on the rows that are done, and at the end. A process
    that fails waits at the end for the others, which finish their rows.

    Parameters
    ----------
    source : RowSource
    explain : callable
        Computes the columns to save for a batch of rows.
    shards : Shards
        With a manifest from :func:`manifest_of`.
    ranks : Ranks
    batch_size, rows_per_shard : int
    progress : bool
        Show a progress bar.

    Raises
    ------
    ValueError
        In all processes: the processes explain different things, the folder holds other results, or a row is
        invalid; the message names it.
    """
    ranks.same(**{name: json.dumps(value) for name, value in shards.manifest.items()})
    with ranks.agreed():
        if ranks.rank == 0:
            shards.prepare()
    with ranks.agreed():
        done = shards.rows_done(ranks.rank, ranks.size)
    n = source.n
    own = count(ranks.rank, ranks.size) if n is None else range(ranks.rank, n, ranks.size)
    bar = progress_bar(
        total=len(own) if isinstance(own, range) else None,
        initial=int(done.sum()),
        desc="rows" if ranks.size == 1 else f"rows of process 0 of {ranks.size}",
        unit=" rows",
        disable=not progress or ranks.rank > 0,
    )
    pending = (row for i, row in enumerate(own) if i >= len(done) or not done[i])
    with ranks.agreed(), bar, closing(ShardWriter(shards, rows_per_shard)) as writer:
        for rows, x in source.batches(pending, batch_size):
            writer.add(rows, _explained(explain, rows, x))
            bar.update(len(rows))


def _explained(explain: Explain, rows: list[int], x: Any) -> dict[str, Tensor]:
    """Explain a batch of rows; if that fails, explain them one by one to name the first invalid row."""
    try:
        return explain(rows, x)
    except (ValueError, TypeError) as error:
        if len(rows) == 1:
            raise ValueError(f"item {rows[0]} of data: {error}") from error
        for i, row in enumerate(rows):
            _explained(explain, [row], Table.read(x).take([i]).data)
        raise ValueError(f"{item_names(rows)} of data: {error}") from error
