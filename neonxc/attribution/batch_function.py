"""Functions of batches of rows that other engines run in their processes: Spark, Ray, Dask, DuckDB, polars.

1. Where the function is made, the model tells which columns it needs, and the names and types of its results
   (:mod:`neonxc.attribution.batch_schema`). Engines ask for this schema before they have any rows.
2. The function is sent to other processes with the model, or with the path of its file, which each process reads.
3. Each batch there is a table, of which the needed columns are selected by name. Its rows, or its images by their
   shape, are explained at once.
4. The results have the container of the batch, and the order of its rows.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, get_args

import numpy as np
import pandas as pd
import pyarrow as pa

from neonxc.attribution.batch_schema import (
    Signature,
    What,
    as_lists,
    image_signature,
    table_signature,
    type_in_lists,
)
from neonxc.attribution.neon import NEON
from neonxc.common.arguments import check_columns, result_names
from neonxc.common.storage import load
from neonxc.common.types import Label, TableLike
from neonxc.data.frames import from_named
from neonxc.data.inputs import as_array
from neonxc.network import clusters_of
from neonxc.rules.collection import Rules

SETTLED = 2_000_000_000  # nanoseconds after which a file that is rewritten has another time


class BatchFunction:
    """Maps batches of rows to their clusters and explanations; :func:`batch_function` makes it.

    It can be pickled: an object is sent along, and a path is read in each process, and again when it is rewritten.

    Attributes
    ----------
    schema : pyarrow.Schema
        Of the results.
    """

    def __init__(self, model: object, what: What, keep: pa.Schema, images: str | None, size: int | None) -> None:
        self.model: Any = model
        self.what = what
        self.keep = keep
        self.images = images
        self.size = size
        self.signature = self._signature(self._fitted())

        # a result is numbered (cluster_2) if a kept column or a column of relevance has its name
        results = [name for name, _ in self.signature.results]
        names = result_names(results, [*keep.names, *self.signature.features])
        self.names = dict(zip(results, names, strict=True))
        result_fields = [(self.names[name], kind) for name, kind in self.signature.results]
        relevance_fields = [(name, pa.float64()) for name in self.signature.features]
        self.schema = pa.schema([*keep, *result_fields, *relevance_fields])
        if len({*self.schema.names}) < len(self.schema):
            raise ValueError(f"the results have several columns of one name: {self.schema.names}")

    def __call__(self, batch: pa.RecordBatch | pa.Table | TableLike) -> pa.RecordBatch | pa.Table | pd.DataFrame:
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
        check_columns("the batch", [*self.keep.names, *self.signature.columns], table.column_names)
        columns: dict[str, object] = {name: table[name] for name in self.keep.names}
        if len(table):
            fitted = self._fitted()
            if isinstance(self.model, str) and self._signature(fitted) != self.signature:
                raise ValueError(
                    f"{self.model} now holds a model with other columns or results; call batch_function again"
                )
            if self.images is None:
                columns |= self._of_rows(fitted, table)
            else:
                columns |= self._of_images(fitted, table, self.images)
        in_order = {name: columns.get(name, []) for name in self.schema.names}
        results = pa.table(in_order, schema=self.schema)
        if isinstance(batch, pa.RecordBatch):
            arrays = [column.combine_chunks() for column in results.columns]
            return pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        return results.to_pandas() if isinstance(batch, pd.DataFrame) else results

    def _of_rows(self, fitted: Rules | NEON, table: pa.Table) -> dict[str, object]:
        """Compute the results of the rows of a table, by their names in the schema."""
        rows = table.select(self.signature.columns).to_pandas()
        if isinstance(fitted, Rules):
            labels = self._cells(fitted.predict(rows))
            return self._named({"cluster": labels, "rule": _first_rules(fitted, rows)})
        decisions = clusters_of(fitted.net, rows)
        decisions["cluster"] = self._cells(decisions["cluster"])
        results = self._named(decisions)
        if self.what == "attribute":
            for name, relevance in fitted.attribute(rows).items():
                results[str(name)] = relevance.to_numpy()
        return results

    def _of_images(self, fitted: Rules | NEON, table: pa.Table, column: str) -> dict[str, object]:
        """Compute the results of images, by their names in the schema; those of one shape are computed at once."""
        assert isinstance(fitted, NEON)
        inputs = [self._input(table, column, row, fitted.net.features) for row in range(len(table))]
        rows_by_shape = defaultdict(list)
        for row, x in enumerate(inputs):
            rows_by_shape[x.shape].append(row)

        columns: dict[str, list[Any]] = defaultdict(lambda: [None] * len(inputs))
        for rows in rows_by_shape.values():
            x = np.stack([inputs[row] for row in rows])
            results = clusters_of(fitted.net, x)
            if (results["cluster"].ndim == 3) != pa.types.is_list(self._label_type()):
                raise ValueError("the features need a FeatureExtractor: pool=None for maps, pool='avg' otherwise")
            if self.what == "attribute":
                results["relevance"] = fitted.attribute(x).sum(axis=1)
            elif self.what == "heatmaps":
                results["heatmaps"] = fitted.heatmaps(x)
            results["cluster"] = self._cells(results["cluster"])
            for name, values in results.items():
                for row, value in zip(rows, values, strict=True):
                    columns[name][row] = as_lists(value)
        return self._named(columns)

    def _named(self, results: Mapping[str, object]) -> dict[str, object]:
        """Return results by their names in the schema."""
        return {self.names[name]: values for name, values in results.items()}

    def _label_type(self) -> pa.DataType:
        """Return the type of the column of clusters."""
        return self.schema.field(self.names["cluster"]).type

    def _cells(self, labels: np.ndarray) -> np.ndarray:
        """Return labels [n, ...] as the column holds them: in one of text, noise beside names is "-1"."""
        if type_in_lists(self._label_type()) != pa.string():
            return labels
        as_texts = np.frompyfunc(_as_text, 1, 1)
        return as_texts(labels)

    def _input(self, table: pa.Table, column: str, row: int, features: object) -> np.ndarray:
        """Read an image as input [C, H, W] of the feature network; an error names its row and the kept columns."""
        try:
            return self._image(table[column][row], features)
        except (TypeError, ValueError) as error:
            kept = "".join(f", {name} {table[name][row]}" for name in self.keep.names)
            raise ValueError(f"{column} of row {row} of the batch{kept}: {error}") from error

    def _image(self, value: pa.Scalar, features: object) -> np.ndarray:
        """Convert an image to an input: a path or an encoded image, a decoded image [H, W, 3], or an input."""
        from neonxc.models import load_image, to_tensor  # depends on this package

        if not value.is_valid:
            raise ValueError("it is null")
        data = value.to_numpy() if hasattr(value, "to_numpy") else value.as_py()
        # nested lists have the type of their values in Arrow
        dtype = type_in_lists(value.type).to_pandas_dtype() if isinstance(data, list) else None
        x = np.asarray(data, dtype)
        if isinstance(data, str | bytes):
            image = load_image(data, self.size)
        elif x.dtype == np.uint8:
            image = to_tensor(x, self.size)
        elif x.ndim == 3 and np.isfinite(x).all():
            return x
        else:
            raise ValueError(f"it needs finite values [C, H, W], got {x.dtype} {list(x.shape)}")
        if hasattr(features, "preprocess"):
            image = features.preprocess(image)
        return image.numpy()

    def _fitted(self) -> Rules | NEON:
        """Return the rules, or the explainer of the network, of the model or of its file as it is now."""
        model = self.model
        if isinstance(model, str):
            model = _loaded(model)
        if self.what != "rules":
            return model if isinstance(model, NEON) else NEON(model)
        if isinstance(model, Rules):
            return model
        tree = getattr(model, "tree_", model)
        return tree.rules()

    def _signature(self, fitted: Rules | NEON) -> Signature:
        """Return the columns that a model needs, and the results that it has."""
        if self.images is None:
            return table_signature(fitted, self.what)
        return image_signature(fitted, self.what, self.images)


def _first_rules(rules: Rules, X: pd.DataFrame) -> np.ndarray:
    """Return the text of the first rule that each row meets, [n]; None if it meets none."""
    masks = np.stack([as_array(rule.matches(X)) for rule in rules.rules])  # [rules, n]
    texts = np.array([*(rule.text() for rule in rules.rules), None], dtype=object)
    first = np.where(masks.any(0), masks.argmax(0), len(masks))
    return texts[first]


def _as_text(label: Label | None) -> str | None:
    return None if label is None else str(label)


@lru_cache(maxsize=8)
def _last_model(path: str) -> dict[tuple[int, ...], Any]:
    """Return the last model of a path in this process, by the identity of its file; the caller fills it."""
    return {}


def _loaded(path: str) -> Any:
    """Load a model, unless the file is the one that was loaded last.

    A file of the last two seconds is loaded each time: its times may stay the same when it is rewritten.
    """
    now = time.time_ns()
    status = os.stat(path)
    times = (status.st_mtime_ns, status.st_ctime_ns)
    identity = (status.st_dev, status.st_ino, status.st_size, *times)
    last_model = _last_model(path)
    if identity in last_model:
        return last_model[identity]
    model = load(path)
    last_model.clear()
    if min(abs(now - then) for then in times) > SETTLED:
        last_model[identity] = model
    return model


def batch_function(
    model: object,
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
    if isinstance(model, os.PathLike):
        model = os.fspath(model)
    return BatchFunction(model, what, pa.schema(keep or {}), images, size)
