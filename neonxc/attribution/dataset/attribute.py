"""Attribution of a whole data set, by one process or several, into a folder of shard files."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from neonxc.attribution.dataset.items import RowSource, as_row_source, item_names, sampled
from neonxc.attribution.dataset.shards import FORMATS, KIND, VERSION, Shards
from neonxc.attribution.fingerprint import fingerprint, hash_of, plain_text
from neonxc.attribution.neon import NEON
from neonxc.carriers import Backbone, Columns, rows, unrows
from neonxc.common.arguments import check_whole
from neonxc.common.memory import at_once, network_bytes
from neonxc.common.processes import Ranks
from neonxc.common.progress import progress_bar
from neonxc.common.targets import as_columns, some_columns
from neonxc.data.frames import as_pandas
from neonxc.data.inputs import NOISE, as_array
from neonxc.data.table import Table, is_texts
from neonxc.network import NeuralizedClustering

Explain = Callable[[list[int], Any], dict[str, Tensor]]
"""Computes the columns to save, tensors [n, ...], from row numbers [n] and the rows themselves."""

COPIES = 3  # copies of a shard's rows in memory while it is written: batches, their concatenation, the file's


def attribute_dataset(
    net: NeuralizedClustering | NEON,
    data: Any,
    out: str | os.PathLike[str],
    *,
    target: Any = None,
    competitor: Any = None,
    clusters: Sequence[int] | None = None,
    format: Literal["safetensors", "parquet"] = "safetensors",
    rows_per_shard: int | None = None,
    progress: bool = True,
) -> None:
    """Attribute the cluster decisions of a whole data set, which may be larger than memory, and save them.

    The results are saved in the folder `out` as shards, files that hold some rows each. A shard is always
    complete. If a run was interrupted, the same call continues it, even with another number of processes: rows
    that are in a shard are not explained again. :func:`read_attributions` reads the folder.

    After :func:`torch.distributed.init_process_group` all processes share the work: rank r explains the rows r,
    r + size, r + 2 size ...

    Parameters
    ----------
    net : NeuralizedClustering or NEON
        From :func:`neonxc.neuralize`, or a :class:`NEON` of it with options of its own.
    data : Dataset, DataLoader, array, sparse matrix, data frame, tensor or list of str
        The rows. The items of a data set are x, or tuples (x, ...) whose x is explained. From a DataLoader, the
        data set, `batch_size`, `collate_fn` and the worker options are used, but not the sampler: every item is
        explained once. Rows are numbered in the order of the data, and a row has to be the same every time. An
        iterable data set has to yield its items in the same order; each process iterates over all of them, without
        workers, and explains its own.
    out : path-like
        The folder, created if it does not exist. Several processes need to share it.
    target, competitor : int or sequence, optional
        As in :meth:`NEON.attribute`: one for all rows, or one for each row of the data.
    clusters : sequence of int, optional
        For networks with a feature network: save the heatmaps of these clusters (:meth:`NEON.heatmaps`) instead of
        the relevance for one target.
    format : {"safetensors", "parquet"}
        File format of the shards. Parquet stores arrays as lists in row-major order.
    rows_per_shard : int, optional
        Largest number of rows in a shard. Default: about 40 MB of results. A process that is killed loses the rows
        of its current shard; one that fails with an error loses at most one batch.
    progress : bool
        Show a progress bar with the rows of the first process.

    Raises
    ------
    ValueError
        Invalid data (the message names the item), an unknown target, or a folder with attributions of another
        network, other data or other options. All processes raise the error; those without an error of their own
        finish their rows first.
    RuntimeError
        Another process has ended. The rows that this process has explained are kept.

    Notes
    -----
    A shard with n rows has these columns:

    - ``row`` [n]: number of the row in the data, ascending;
    - ``cluster`` [n] (or [n, ...] on a map): column of the cluster that the row is assigned to, -1 for noise; the
      clusterer's labels are ``classes`` in the manifest;
    - ``logits`` [n, K] (or [n, K, ...]);
    - ``target`` [n], and ``competitor`` [n] if one was given: the columns that were explained; on a map without
      a target [n, ...], the own cluster of every location;
    - ``relevance`` [n, ...]: the result of :meth:`NEON.attribute`, or the heatmaps [n, clusters, ...].

    Memory holds one batch, one shard and one byte per row of the process. The dtypes are those of
    :meth:`NEON.attribute`; the computation runs on the network's device.

    Examples
    --------
    >>> import neonxc, tempfile
    >>> from sklearn.cluster import KMeans
    >>> from sklearn.datasets import load_iris
    >>> X = load_iris().data
    >>> net = neonxc.neuralize(KMeans(3, random_state=0).fit(X), X)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     neonxc.attribute_dataset(net, X, folder)
    ...     found = neonxc.read_attributions(folder)
    ...     relevance = found["relevance"]
    >>> bool((relevance == neonxc.NEON(net).attribute(X)).all())
    True
    """
    ranks = Ranks(dist.group.WORLD if dist.is_available() and dist.is_initialized() else None)
    with ranks.agreed():
        neon = net if isinstance(net, NEON) else NEON(net)
        if format not in FORMATS:
            raise ValueError(f"format needs {' or '.join(map(repr, FORMATS))}, got {format!r}")
        check_whole("rows_per_shard", rows_per_shard, optional=True)
        source = as_row_source(as_pandas(data, "data"))
        question = _question(neon, target, competitor, clusters, source.n)
        explain: Explain = partial(_explain, neon, **question)
        sample = sampled(source, ranks.rank, ranks.size)
        x = sample[0] if 0 in sample else next(source.batches([0], 1), (None, None))[1]
        if x is None:
            raise ValueError("data is empty")
        first = explain([0], x)
        hashes = {row: hash_of(None, {"x": x}) for row, x in sample.items()}
        most = rows_per_shard or at_once(COPIES * sum(value.nbytes for value in first.values()))
        block = source.batch_size or at_once(network_bytes(first["relevance"]), neon.carrier.device)
    every = sorted(pair for text in ranks.texts(json.dumps(list(hashes.items()))) for pair in json.loads(text))
    columns = {
        name: {"dtype": str(value.dtype).removeprefix("torch."), "shape": list(value.shape[1:])}
        for name, value in first.items()
    }
    for name, value in question.items():
        if isinstance(value, Tensor):
            question[name] = hash_of("one for each row", {"columns": value})
    net = neon.net
    manifest = {
        "kind": KIND,
        "version": VERSION,
        "format": format,
        "rows": source.n,
        "network": fingerprint(net),
        "classes": [value if isinstance(value, str) else int(value) for value in net.classes_.tolist()],
        "feature_names": net.carrier.units if isinstance(net.carrier, Columns) else None,
        **question,
        "composite": plain_text(neon.composite),
        "head_rule": neon.head_rule,
        "beta": neon.beta,
        "along": None if neon.along is None else hash_of(None, {"along": neon.along, "groups": neon.groups}),
        "steps": neon.steps,
        "columns": columns,
        "data": hash_of(every, {}),
    }
    texts = {name: json.dumps(value) for name, value in manifest.items()}
    ranks.same(**texts)
    shards = Shards(Path(out), {name: json.loads(text) for name, text in texts.items()})
    _run(source, explain, shards, ranks, min(block, most), most, progress)


def _run(
    source: RowSource,
    explain: Explain,
    shards: Shards,
    ranks: Ranks,
    batch_size: int,
    rows_per_shard: int,
    progress: bool,
) -> None:
    """Explain the rows that are in no shard of a folder yet.

    Processes communicate at the beginning, when they agree on the rows that are done, and at the end. A process
    that fails waits at the end for the others, which finish their rows.

    A shard holds whole batches, so that a continued run computes the same batches: the last digits of a row's
    results may depend on the other rows of its batch. Rows of different shapes are in different shards.
    """
    with ranks.agreed():
        if ranks.rank == 0:
            shards.prepare()
    with ranks.agreed():
        done = shards.rows_done(ranks.rank, ranks.size)
    own = count(ranks.rank, ranks.size) if source.n is None else range(ranks.rank, source.n, ranks.size)
    bar = progress_bar(
        total=len(own) if isinstance(own, range) else None,
        initial=int(done.sum()),
        desc="rows" if ranks.size == 1 else f"rows of process 0 of {ranks.size}",
        unit=" rows",
        disable=not progress or ranks.rank > 0,
    )
    pending = (row for i, row in enumerate(own) if i >= len(done) or not done[i])
    parts: list[dict[str, Tensor]] = []
    shapes: list[torch.Size] = []

    def write() -> None:
        whole = {name: torch.cat([part[name] for part in parts]) for name in (parts or [{}])[0]}
        parts.clear()
        if whole:
            shards.write(whole)

    with ranks.agreed(), bar, ExitStack() as finally_:
        finally_.callback(write)
        for numbers, x in source.batches(pending, batch_size):
            found = _explained(explain, numbers, x)
            part = {"row": torch.tensor(numbers), **{name: value.detach().cpu() for name, value in found.items()}}
            last, shapes = shapes, [value.shape[1:] for value in part.values()]
            if shapes != last:
                write()
            parts.append(part)
            if sum(len(some["row"]) for some in parts) + len(numbers) > rows_per_shard:  # another would not fit
                write()
            bar.update(len(numbers))


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


def _question(
    neon: NEON, target: Any, competitor: Any, clusters: Sequence[int] | None, n: int | None
) -> dict[str, Any]:
    """Check what the user asks for; a target and competitor for each of the n rows become tensors [n]."""
    K = neon.net.head.n_clusters
    if clusters is not None:
        if target is not None or competitor is not None:
            raise ValueError("clusters can't be combined with a target or a competitor")
        clusters = some_columns(clusters, K)
    if not (isinstance(target, tuple) and isinstance(neon.net.carrier, Backbone)):  # else a location of a map
        target = _one_or_each(target, "target", K, n)
    return {"target": target, "competitor": _one_or_each(competitor, "competitor", K, n), "clusters": clusters}


def _one_or_each(value: Any, name: str, K: int, n: int | None) -> int | Tensor | None:
    if value is None:
        return None
    given = as_array(value)
    columns = as_columns(value, given.size, K, name, torch.device("cpu"))
    if not given.ndim:
        return int(columns)
    if n not in (None, len(columns)):
        raise ValueError(f"{name} needs one column or one per row ({n}), got {len(columns)}")
    return columns


def _explain(
    neon: NEON, numbers: list[int], x: Any, target: Any, competitor: Any, clusters: Sequence[int] | None
) -> dict[str, Tensor]:
    """Compute the columns to save for a batch of rows x with these row numbers [n]."""
    if neon.net.carrier.missing == "word" and is_texts(x):
        raise ValueError(
            "data needs word indices of one width, as the relevance of texts has a value per word; pass "
            "net.features.encode(texts)"
        )
    for value in (target, competitor):
        if isinstance(value, Tensor) and numbers[-1] >= len(value):
            raise ValueError(
                f"target or competitor has {len(value)} entries, but the data has a row {numbers[-1]}"
            )
    target, competitor = (value[numbers] if isinstance(value, Tensor) else value for value in (target, competitor))
    cluster, logits, own = _decided(neon.net, x)
    found = {"cluster": cluster, "logits": logits}
    if clusters is not None:
        relevance = neon.heatmaps(x, clusters)
    else:
        relevance = neon.attribute(x, target, competitor)
        if isinstance(target, tuple):
            target = target[0]
        for name, value in {"target": own if target is None else target, "competitor": competitor}.items():
            if value is not None:
                found[name] = value if isinstance(value, Tensor) else torch.full((len(numbers),), value)
    relevance = relevance if isinstance(relevance, Tensor) else torch.from_numpy(np.array(relevance))
    return {**found, "relevance": relevance}


@torch.no_grad()
def _decided(net: NeuralizedClustering, X: Any) -> Iterator[Tensor]:
    """Compute the clusters of rows, -1 for noise [n, ...], the logits [n, K, ...], and the clusters of all."""
    parts, carrier = [], net.carrier
    for x in carrier.parts(X):
        a = carrier.features(x)
        points = rows(a)
        logits, own, noise = (
            torch.cat([function(points[block]) for block in carrier.of_points(points)])
            for function in (net.head, net.head.assign, net.is_noise)
        )
        place = (a.shape[0], *a.shape[2:])
        parts.append((own.masked_fill(noise, NOISE).reshape(place), unrows(logits, a), own.reshape(place)))
    return (torch.cat(values).cpu() for values in zip(*parts, strict=True))
