"""Attributions of a whole data set, by one process or several, kept in files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from neonxc.attribution import NEON
from neonxc.blocks import at_once, network_bytes
from neonxc.carriers import Backbone, Columns, rows, unrows
from neonxc.dataset.formats import FORMATS, arrow
from neonxc.dataset.items import source_of
from neonxc.dataset.run import manifest_of, run
from neonxc.fingerprint import fingerprint, hash_of, plain_text
from neonxc.inputs import NOISE, as_array
from neonxc.network import NeuralizedClustering
from neonxc.parameters import check_whole
from neonxc.ranks import Ranks
from neonxc.targets import as_columns, some_columns
from neonxc.terms import is_texts

COPIES = 3  # of the rows of a shard while it is written: batches, the whole, and the one in the file's order


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
    group: Any = None,
) -> None:
    """Attribute the cluster decisions of a whole data set, which need not fit into memory, and keep them in files.

    The folder `out` gets shards of rows, each of which is there whole or not at all. Where a run was ended, the
    same call goes on: rows that are in a shard are not explained again, also if the number of processes is another
    one. :func:`read_attributions` reads the folder.

    Parameters
    ----------
    net : NeuralizedClustering or NEON
        From :func:`neonxc.neuralize`; or a :class:`NEON` of it, with rules of its own.
    data : Dataset, DataLoader, array, sparse matrix, frame, tensor or list of str
        Of the rows, or of items x or (x, ...) of which x is explained. Of a DataLoader the dataset, `batch_size`,
        `collate_fn` and workers are used, and not the sampler: every item is explained once. Rows are numbered as
        they are in the data. The items of an iterable data set are numbered as they come, which has to be the same
        order every time; every process goes through all of them, without workers, and explains its own.
    out : path-like
        A folder; made if need be. Several processes need to share it.
    target, competitor : optional
        As in :meth:`NEON.attribute`: one for all rows, or a sequence with one for each row of the data.
    clusters : sequence of int, optional
        Columns of clusters. Where the network has a feature network: keep the heatmaps of these clusters,
        :meth:`NEON.heatmaps`, and not the relevance of one target.
    format : {"safetensors", "parquet"}
        Of the shards. Parquet keeps what is not a number by the row as lists, row-major, and needs pyarrow.
    rows_per_shard : int, optional
        At most; default: as many as memory is set aside for, some 40 MB. A process that is killed loses the rows
        of the shard that it has begun; one that fails with an error loses at most a batch.
    progress : bool
        Show a progress bar, of the first process's rows.
    group : torch.distributed.ProcessGroup, optional
        The processes that share the work: that of rank r explains the rows r, r + size, r + 2 size ... Default:
        all processes, if :func:`torch.distributed.init_process_group` was called, else this one alone.

    Raises
    ------
    ValueError
        Unusable data (the message names the item), an unknown target, or a folder with attributions by another
        network, of other data or with other options. With a group, in all its processes; those that have no error
        of their own first explain their own rows.
    RuntimeError
        Another process of the group has ended. The rows that this one explained are kept.
    ImportError
        Parquet without pyarrow.

    Notes
    -----
    The columns of a shard are, for n rows:

    - ``row`` [n]: the number of the row in the data, ascending;
    - ``cluster`` [n] (or [n, ...] on a map): the column of the cluster that the clustering assigns, -1 for noise;
      the clusterer's labels are ``classes`` in the manifest;
    - ``logits`` [n, K] (or [n, K, ...]);
    - ``target`` [n], and ``competitor`` [n] if one was given: the columns that were explained; on a map without
      a target [n, ...], every location's own;
    - ``relevance`` [n, ...]: as :meth:`NEON.attribute` gives it, or the heatmaps [n, clusters, ...].

    Memory holds one batch, one shard and a byte for each row of the process. Types are those of
    :meth:`NEON.attribute`; the work is done on the network's device.

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
    if group is None and dist.is_available() and dist.is_initialized():
        group = dist.group.WORLD
    ranks, folder = Ranks(group), Path(out)
    with ranks.agreed():
        neon = net if isinstance(net, NEON) else NEON(net)
        if format not in FORMATS:
            raise ValueError(f"format needs {' or '.join(map(repr, FORMATS))}, got {format!r}")
        if format == "parquet":
            arrow()
        if rows_per_shard is not None:
            check_whole("rows_per_shard", rows_per_shard)
        source = source_of(data)
        question = _Question(neon, target, competitor, clusters, source.n)
        _, x = next(source.batches([0], 1), (None, None))
        if x is None:
            raise ValueError("data is empty")
        first = question([0], x)
        manifest = manifest_of(source, format, {**question.described(), "columns": _described(first)})
        most = rows_per_shard or at_once(COPIES * sum(value.nbytes for value in first.values()))
        some = source.batch_size or at_once(network_bytes(first["relevance"]), neon.carrier.device)
    run(
        source,
        question,
        folder,
        manifest,
        ranks,
        batch_size=min(some, most),
        rows_per_shard=most,
        progress=progress,
    )


@dataclass
class _Question:
    """What is asked of every row."""

    neon: NEON
    target: Any
    competitor: Any
    clusters: Sequence[int] | None
    n: int | None

    def __post_init__(self) -> None:
        K = self.neon.net.head.n_clusters
        for name in ("target", "competitor"):
            value = getattr(self, name)
            if value is None or (isinstance(value, tuple) and name == "target" and self._deep):
                continue
            columns = as_columns(value, np.size(as_array(value)), K, name, torch.device("cpu"))
            if np.ndim(as_array(value)) and self.n not in (None, len(columns)):
                raise ValueError(f"{name} needs one column or one per row ({self.n}), got {len(columns)}")
            setattr(self, name, columns if np.ndim(as_array(value)) else int(columns))
        if self.clusters is not None:
            if self.target is not None or self.competitor is not None:
                raise ValueError("heatmaps of clusters have no other target and no competitor")
            self.clusters = some_columns(self.clusters, K)

    @property
    def _deep(self) -> bool:
        return isinstance(self.neon.net.carrier, Backbone)

    def __call__(self, numbers: list[int], x: Any) -> dict[str, Tensor]:
        """What is kept of the rows of these numbers [n]."""
        if self.neon.net.carrier.missing == "word" and is_texts(x):
            raise ValueError(
                "data has texts of different lengths, and their relevance is by the word; pass word numbers of "
                "one width, net.features.encode(texts)"
            )
        target, competitor = (_of_rows(value, numbers) for value in (self.target, self.competitor))
        found = _decided(self.neon.net, x)
        if self.clusters is None:
            relevance = self.neon.attribute(x, target, competitor)
            own = found.pop("own")
            found["target"] = own if target is None else _column(target, len(numbers))
            if competitor is not None:
                found["competitor"] = _column(competitor, len(numbers))
        else:
            relevance = self.neon.heatmaps(x, self.clusters)
            del found["own"]
        relevance = relevance if isinstance(relevance, Tensor) else torch.from_numpy(np.array(relevance))
        return {**found, "relevance": relevance}

    def described(self) -> dict[str, Any]:
        """What is asked, in JSON values."""
        net, neon = self.neon.net, self.neon
        names = net.carrier.units if isinstance(net.carrier, Columns) else None
        along = None if neon.along is None else hash_of(None, {"along": neon.along})
        return {
            "network": fingerprint(net),
            "classes": [value if isinstance(value, str) else int(value) for value in net.classes_.tolist()],
            "feature_names": names,
            "target": _text(self.target),
            "competitor": _text(self.competitor),
            "clusters": self.clusters,
            "composite": plain_text(neon.composite),
            "head_rule": neon.head_rule,
            "beta": neon.beta,
            "along": along,
            "steps": neon.steps,
        }


@torch.no_grad()
def _decided(net: NeuralizedClustering, X: Any) -> dict[str, Tensor]:
    """Logits [n, K, ...] of rows, their own clusters [n, ...], and the same with noise told apart."""
    parts = []
    carrier = net.carrier
    for x in carrier.parts(X):
        a = carrier.features(x)
        points = rows(a)
        logits, own, noise = [], [], []
        for some in carrier.of_points(points):
            logits.append(net.head(points[some]))
            own.append(net.head.assign(points[some]))
            noise.append(net.is_noise(points[some]))
        column = torch.cat(own)
        cluster = column.masked_fill(torch.cat(noise), NOISE)
        place = (a.shape[0], *a.shape[2:])
        parts.append((cluster.reshape(place), unrows(torch.cat(logits), a), column.reshape(place)))
    return {
        name: torch.cat(values).cpu()
        for name, values in zip(("cluster", "logits", "own"), zip(*parts, strict=True), strict=True)
    }


def _of_rows(value: Any, numbers: list[int]) -> Any:
    """The target of some rows, if each has one of its own."""
    if not isinstance(value, Tensor):
        return value
    if numbers[-1] >= len(value):
        raise ValueError(f"target or competitor has {len(value)} entries, and there is a row {numbers[-1]}")
    return value[numbers]


def _column(value: Any, n: int) -> Tensor:
    if isinstance(value, Tensor):
        return value
    return torch.full((n,), value[0] if isinstance(value, tuple) else value)


def _text(value: Any) -> Any:
    return hash_of("one for each row", {"columns": value}) if isinstance(value, Tensor) else value


def _described(columns: dict[str, Tensor]) -> dict[str, Any]:
    return {
        name: {"dtype": str(value.dtype).removeprefix("torch."), "shape": list(value.shape[1:])}
        for name, value in columns.items()
    }
