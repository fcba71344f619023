"""Functions of batches of rows that other engines run in their processes: Spark, Ray, Dask, DuckDB, polars."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
import pyarrow as pa

from neonxc.attribution.neon import NEON
from neonxc.common.arguments import check_columns, result_names
from neonxc.common.storage import load
from neonxc.data.frames import from_named
from neonxc.data.inputs import as_array
from neonxc.network import NeuralizedClustering
from neonxc.rules.collection import Rules

SETTLED = 2_000_000_000  # nanoseconds after which a file that is rewritten has another time
What = Literal["attribute", "heatmaps", "predict", "rules"]


class BatchFunction:
    """Maps batches of rows to their clusters and explanations; :func:`batch_function` makes it.

    It can be pickled: an object is sent along, and a path is read in each process, and again when it is rewritten.

    Attributes
    ----------
    schema : pyarrow.Schema
        Of the results.
    """

    def __init__(self, model: Any, what: What, keep: pa.Schema, images: str | None, size: int | None) -> None:
        self.model = model
        self.what = what
        self.keep = keep
        self.images = images
        self.size = size
        self.names, self.made, self.units = self._columns(self._fitted())
        results = [name for name, _ in self.made]
        numbered = result_names(results, [*keep.names, *self.units])
        self.named = dict(zip(results, numbered, strict=True))
        made = [(self.named[name], kind) for name, kind in self.made]
        self.schema = pa.schema([*keep, *made, *((unit, pa.float64()) for unit in self.units)])
        if len({*self.schema.names}) < len(self.schema):
            raise ValueError(f"the results have several columns of one name: {self.schema.names}")

    def __call__(self, batch: Any) -> Any:
        """Compute the results of a batch, in the order of its rows.

        Parameters
        ----------
        batch : pyarrow.RecordBatch or Table, data frame of any library, or rows or columns with names
            Rows with the columns of the model, in any order; other columns are ignored.

        Returns
        -------
        RecordBatch, Table or DataFrame of pandas, as the batch is

        Raises
        ------
        ValueError
            The batch lacks a column, or a row is invalid; for images the message names it. Or the file has been
            rewritten with a model that has other columns or results.
        """
        table = batch if isinstance(batch, pa.Table) else pa.table(from_named(batch))
        check_columns("the batch", [*self.keep.names, *self.names], table.column_names)
        columns: dict[str, Any] = {name: table[name] for name in self.keep.names}
        if len(table):
            fitted = self._fitted()
            if isinstance(self.model, str) and self._columns(fitted) != (self.names, self.made, self.units):
                what = "a model with other columns or results"
                raise ValueError(f"{self.model} now holds {what}; call batch_function again")
            columns |= self._results(fitted, table) if self.images is None else self._of_images(fitted, table)
        made = pa.table({name: columns.get(name, []) for name in self.schema.names}, schema=self.schema)
        if isinstance(batch, pa.RecordBatch):
            arrays = [column.combine_chunks() for column in made.columns]
            return pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        return made.to_pandas() if isinstance(batch, pd.DataFrame) else made

    def _results(self, fitted: Rules | NEON, table: pa.Table) -> dict[str, Any]:
        rows = table.select(self.names).to_pandas()
        if isinstance(fitted, Rules):
            masks = np.stack([as_array(rule.matches(rows)) for rule in fitted.rules])
            texts = np.array([*(rule.text() for rule in fitted.rules), None], dtype=object)
            first = np.where(masks.any(0), masks.argmax(0), len(masks))
            return self._named({"cluster": self._cells(fitted.predict(rows)), "rule": texts[first]})
        decisions = clusters_of(fitted.net, rows)
        decisions["cluster"] = self._cells(decisions["cluster"])
        relevance = {}
        if self.what == "attribute":
            relevance = {str(name): own.to_numpy() for name, own in fitted.attribute(rows).items()}
        return self._named(decisions) | relevance

    def _named(self, results: dict[str, Any]) -> dict[str, Any]:
        """Return results by their names in the schema, where a kept column may have theirs."""
        return {self.named[name]: values for name, values in results.items()}

    def _labels_type(self) -> pa.DataType:
        """The type of the column of clusters."""
        return self.schema.field(self.named["cluster"]).type

    def _of_images(self, neon: Any, table: pa.Table) -> dict[str, Any]:
        inputs = [self._input(table, row, neon.net.features) for row in range(len(table))]
        alike = defaultdict(list)
        for row, x in enumerate(inputs):
            alike[x.shape].append(row)
        columns: dict[str, Any] = defaultdict(lambda: [None] * len(inputs))
        for rows in alike.values():
            x = np.stack([inputs[row] for row in rows])
            found = clusters_of(neon.net, x)
            if (found["cluster"].ndim == 3) != pa.types.is_list(self._labels_type()):
                raise ValueError("the features need a FeatureExtractor: pool=None for maps, pool='avg' otherwise")
            if self.what == "attribute":
                found["relevance"] = neon.attribute(x).sum(axis=1)
            elif self.what == "heatmaps":
                found["heatmaps"] = neon.heatmaps(x)
            found["cluster"] = self._cells(found["cluster"])
            for name, values in found.items():
                for row, value in zip(rows, values, strict=True):
                    columns[name][row] = _listed(value)
        return self._named(columns)

    def _cells(self, labels: Any) -> Any:
        """Return labels [n, ...] as the column holds them: in one of text, noise beside names is "-1"."""
        if _element_type(self._labels_type()) != pa.string():
            return labels
        return np.frompyfunc(lambda label: None if label is None else str(label), 1, 1)(labels)

    def _input(self, table: pa.Table, row: int, features: Any) -> np.ndarray:
        """Read an image as input [C, H, W] of the feature network."""
        from neonxc.models import load_image, to_tensor  # depends on this package

        value = table[self.images][row]
        try:
            if not value.is_valid:
                raise ValueError("it is null")
            given = value.to_numpy() if hasattr(value, "to_numpy") else value.as_py()
            x = np.asarray(given, _element(value.type) if isinstance(given, list) else None)
            if isinstance(given, str | bytes):
                image = load_image(given, self.size)
            elif x.dtype == np.uint8:
                image = to_tensor(x, self.size)
            elif x.ndim == 3 and np.isfinite(x).all():
                return x
            else:
                raise ValueError(f"it needs finite values [C, H, W], got {x.dtype} {list(x.shape)}")
            return (features.preprocess(image) if hasattr(features, "preprocess") else image).numpy()
        except (TypeError, ValueError) as error:
            kept = "".join(f", {name} {table[name][row]}" for name in self.keep.names)
            raise ValueError(f"{self.images} of row {row} of the batch{kept}: {error}") from error

    def _fitted(self) -> Rules | NEON:
        model = _loaded(self.model) if isinstance(self.model, str) else self.model
        if self.what == "rules":
            return model if isinstance(model, Rules) else getattr(model, "tree_", model).rules()
        return model if isinstance(model, NEON) else NEON(model)

    def _columns(self, fitted: Rules | NEON) -> tuple[list[str], list[tuple[str, pa.DataType]], list[str]]:
        """Names of the columns that the model needs, names and types of the results, and its features."""
        if self.images is not None:
            return [self.images], _image_columns(fitted, self.what), []
        return _table_columns(fitted, self.what)


@lru_cache(maxsize=8)
def _held(path: str) -> dict[tuple[int, ...], Any]:
    """The last model of a path in this process, by the identity of its file."""
    return {}


def _loaded(path: str) -> Any:
    """Load a model, unless the file is the one that was loaded last.

    A file of the last two seconds is loaded each time: its times may stay the same when it is rewritten.
    """
    now = time.time_ns()
    status = os.stat(path)
    held = _held(path)
    times = status.st_mtime_ns, status.st_ctime_ns
    identity = status.st_dev, status.st_ino, status.st_size, *times
    if (model := held.get(identity)) is None:
        model = load(path)
        held.clear()
        if min(abs(now - then) for then in times) > SETTLED:
            held[identity] = model
    return model


def _table_columns(fitted: Rules | NEON, what: What) -> tuple[list[str], list[tuple[str, pa.DataType]], list[str]]:
    """Names of the columns of a table that a model needs, names and types of the results, and names of features.

    The features are those whose relevance is a column.
    """
    if what == "heatmaps":
        raise ValueError("heatmaps need images, the name of their column")
    names: list[Any]
    units: list[str] = []
    if isinstance(fitted, Rules):
        names = [one.key for one in fitted.columns]
        labels = [*fitted.clusters]
        made = [("rule", pa.string())]
    else:
        names = fitted.net.feature_names_ or []
        labels = fitted.net.classes_.tolist()
        made = [("logit", pa.float64())]
        if what == "attribute":
            units = [str(unit) for unit in fitted.net.inputs.units]
    if not names or not all(isinstance(name, str) for name in names):
        raise ValueError("model needs names of columns, not texts: fit it to a data frame, or pass images")
    return [*names], [("cluster", _type_of(labels)), *made], units


def _image_columns(fitted: Rules | NEON, what: What) -> list[tuple[str, pa.DataType]]:
    """Names and types of the results of images."""
    net: Any = None if isinstance(fitted, Rules) else fitted.net
    if net is None or not net.inputs.has_heatmaps:
        raise ValueError("images needs a network with a feature network of images")
    places = 0 if getattr(net.features, "pool", "avg") else 2  # every location of a map has a cluster
    label = _type_of(net.classes_.tolist())
    made = [("cluster", label, places), ("logit", pa.float64(), places)]
    if what == "attribute":
        made.append(("relevance", pa.float32(), 2))
    elif what == "heatmaps":
        made.append(("heatmaps", pa.float32(), 3))
    return [(name, _lists_of(kind, depth)) for name, kind, depth in made]


def _type_of(labels: list[Any]) -> pa.DataType:
    """The type of a column of labels: that of numbers or truth values, and else text."""
    return pa.string() if any(isinstance(label, str) for label in labels) else pa.array(labels).type


def _element_type(kind: pa.DataType) -> pa.DataType:
    """The type of the values in nested lists."""
    return _element_type(kind.value_type) if pa.types.is_list(kind) else kind


def _lists_of(kind: pa.DataType, depth: int) -> pa.DataType:
    return _lists_of(pa.list_(kind), depth - 1) if depth else kind


def _listed(value: Any) -> Any:
    """Nested lists whose last level are arrays, which Arrow reads fast."""
    return [_listed(part) for part in value] if np.ndim(value) > 1 else value


def _element(kind: pa.DataType) -> Any:
    """The type of the numbers in nested lists."""
    return _element(kind.value_type) if hasattr(kind, "value_type") else kind.to_pandas_dtype()


def clusters_of(net: NeuralizedClustering, X: Any) -> dict[str, np.ndarray]:
    """The ``cluster`` of every row, and its ``logit``, which is the largest."""
    _, labels, logits = net.decided(X, logits=True)
    assert logits is not None
    return {"cluster": labels, "logit": logits}


def batch_function(
    model: Any,
    what: What = "attribute",
    *,
    keep: pa.Schema | Mapping[str, pa.DataType] | None = None,
    images: str | None = None,
    size: int | None = None,
) -> BatchFunction:
    """Make a function of batches of rows, for engines that send functions to their processes.

    Parameters
    ----------
    model : NeuralizedClustering, NEON, Rules, tree or path
        A network, or a :class:`NEON` of it with options of its own, or for "rules" the rules of a tree; or the
        path of a file that :func:`neonxc.save` wrote, which every process reads once, and again if it is
        rewritten. It needs names of columns, unless there are images.
    what : {"attribute", "heatmaps", "predict", "rules"}
        The results: the cluster of every row, its logit, and the relevance of every column; for images, the
        cluster, the logit, and a heatmap for every cluster; the cluster and the logit; or the cluster and the text
        of the first rule that the row meets.
    keep : pyarrow.Schema or dict of names to pyarrow.DataType, optional
        Columns that are passed on, such as identifiers. Errors about an image name them. If one of them, or of the
        columns that are explained, is called like a result, the result is numbered (``cluster_2``).
    images : str, optional
        Column of images, for networks with a feature network of images: tensors, encoded images (bytes, such as
        PNG or JPEG) or paths. They may differ in size. Arrays [H, W, 3] of uint8 are images like decoded ones,
        which become inputs by ``features.preprocess`` of a :class:`~neonxc.models.FeatureExtractor`; other tensors
        [C, H, W] are inputs as they are.
    size : int, optional
        Length of the shorter side to which images are resized, as in :func:`neonxc.models.load_image`.

    Returns
    -------
    BatchFunction
        Maps a RecordBatch (or a Table or data frame) to results of the type ``schema``. It can be pickled.

    Notes
    -----
    A column has one type: beside clusters with names, the label of noise is the text "-1".

    The relevance of images is summed over their channels, and comes as the list column ``relevance`` [H, W]
    (:meth:`NEON.attribute`) or ``heatmaps`` [K, H, W] (:meth:`NEON.heatmaps`), in single precision. If the
    features are a map, ``cluster`` and ``logit`` are lists [h, w], of all its locations.

    Raises
    ------
    ValueError
        `what` is unknown, the model has no names of columns or no feature network for images, or a column is kept
        whose relevance has the same name.

    Examples
    --------
    >>> import neonxc, pyarrow as pa
    >>> from sklearn.cluster import KMeans
    >>> from sklearn.datasets import load_iris
    >>> X = load_iris(as_frame=True).data
    >>> net = neonxc.neuralize(KMeans(3, n_init=10, random_state=0).fit(X), X)
    >>> explain = neonxc.batch_function(net)
    >>> explain.schema.names[:3]
    ['cluster', 'logit', 'sepal length (cm)']
    >>> explain(pa.RecordBatch.from_pandas(X[:10])).num_rows
    10
    """
    if what not in get_args(What):
        raise ValueError(f"what needs one of {list(get_args(What))}, got {what!r}")
    model = os.fspath(model) if isinstance(model, os.PathLike) else model
    return BatchFunction(model, what, pa.schema(keep or {}), images, size)
