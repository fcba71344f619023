"""Functions of batches of rows that other engines run in their processes: Spark, Ray, Dask, DuckDB, polars."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
import pyarrow as pa
import torch

from neonxc.attribution.neon import NEON
from neonxc.common.storage import load
from neonxc.data.inputs import as_array
from neonxc.network import NeuralizedClustering
from neonxc.rules.collection import Rules

loaded = lru_cache(maxsize=8)(load)  # once per process
What = Literal["attribute", "predict", "rules"]


class BatchFunction:
    """Maps batches of rows to their clusters and explanations; :func:`batch_function` makes it.

    It can be pickled: a path is read in each process, and an object is sent along.

    Attributes
    ----------
    schema : pyarrow.Schema
        Of the results.
    """

    def __init__(self, model: Any, what: What, keep: pa.Schema) -> None:
        self.model, self.what, self.keep = model, what, keep
        fitted: Any = self._fitted()
        names = getattr(fitted, "feature_names_", None) if what != "rules" else [one.key for one in fitted.columns]
        if not names or not all(isinstance(name, str) for name in names):
            raise ValueError("model needs names of columns: fit it to a data frame")
        self.names = [*names]
        labels = [*fitted.clusters] if what == "rules" else fitted.classes_.tolist()
        fields = [*keep, pa.field("cluster", pa.array(labels).type)]
        if what == "rules":
            fields.append(pa.field("rule", pa.string()))
        else:
            fields.append(pa.field("logit", pa.float64()))
        if what == "attribute":
            fields += [pa.field(name, pa.float64()) for name in fitted.carrier.units]
        if len({field.name for field in fields}) < len(fields):
            raise ValueError(f"the results have several columns of one name: {[field.name for field in fields]}")
        self.schema = pa.schema(fields)

    def __call__(self, batch: Any) -> Any:
        """Compute the results of a batch, in the order of its rows.

        Parameters
        ----------
        batch : pyarrow.RecordBatch or Table, or data frame of any library
            Rows with the columns of the model, in any order; other columns are ignored.

        Returns
        -------
        RecordBatch, Table or DataFrame of pandas, as the batch is
        """
        table = batch if isinstance(batch, pa.Table) else pa.table(batch)
        columns: dict[str, Any] = {name: table[name] for name in self.keep.names}
        if len(table):
            columns |= self._results(table.select(self.names).to_pandas())
        made = pa.table({name: columns.get(name, []) for name in self.schema.names}, schema=self.schema)
        if isinstance(batch, pa.RecordBatch):
            arrays = [column.combine_chunks() for column in made.columns]
            return pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        return made.to_pandas() if isinstance(batch, pd.DataFrame) else made

    def _results(self, rows: pd.DataFrame) -> dict[str, Any]:
        fitted = self._fitted()
        if self.what == "rules":
            masks = np.stack([as_array(rule.matches(rows)) for rule in fitted.rules])
            texts = np.array([*(rule.text() for rule in fitted.rules), None], dtype=object)
            first = np.where(masks.any(0), masks.argmax(0), len(masks))
            return {"cluster": fitted.predict(rows), "rule": texts[first]}
        found = clusters_of(fitted, rows)
        if self.what == "attribute":
            found |= {str(name): own.to_numpy() for name, own in NEON(fitted).attribute(rows).items()}
        return found

    def _fitted(self) -> Any:
        model = loaded(self.model) if isinstance(self.model, str) else self.model
        if self.what == "rules" and not isinstance(model, Rules):
            model = getattr(model, "tree_", model).rules()
        return model


@torch.no_grad()
def clusters_of(net: NeuralizedClustering, X: Any) -> dict[str, np.ndarray]:
    """The ``cluster`` of every row, and its ``logit``, which is the largest, block by block."""
    tensor = net.batch(X).tensor
    logits = [net(tensor[part]).amax(dim=1).double().cpu() for part in net.carrier.blocks(tensor)]
    return {"cluster": net.predict(X), "logit": torch.cat(logits).numpy()}


def batch_function(
    model: Any, what: What = "attribute", *, keep: pa.Schema | Mapping[str, pa.DataType] | None = None
) -> BatchFunction:
    """Make a function of batches of rows, for engines that send functions to their processes.

    Parameters
    ----------
    model : NeuralizedClustering, Rules, tree or path
        A network, or for "rules" the rules of a tree; or the path of a file that :func:`neonxc.save` wrote, which
        every process reads once. It needs names of columns.
    what : {"attribute", "predict", "rules"}
        The results: the cluster of every row, its logit, and the relevance of every column; the cluster and the
        logit; or the cluster and the text of the first rule that the row meets.
    keep : pyarrow.Schema or dict of names to pyarrow.DataType, optional
        Columns that are passed on, such as identifiers.

    Returns
    -------
    BatchFunction
        Maps a RecordBatch (or a Table or data frame) to results of the type ``schema``. It can be pickled.

    Raises
    ------
    ValueError
        `what` is unknown, the model has no names of columns, or a column would be there twice.

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
    return BatchFunction(model, what, pa.schema(keep or {}))
