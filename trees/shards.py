"""Rows that are distributed over processes: what these have to agree on, and a common reference clustering."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np
import torch
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import Pipeline
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from neonxc.inputs import as_array, as_batch, label_array
from neonxc.parameters import plain_parameters
from neonxc.ranks import Ranks
from neonxc.trees.reference import Reference, centers_of, from_centers
from neonxc.trees.table import Table


def check_alike(ranks: Ranks, model: Any, table: Table, names: Any, given: dict[str, Any]) -> Table:
    """Check that all processes fit the same model to the same columns.

    Parameters
    ----------
    ranks : Ranks
    model : estimator
    table : Table
    names : list of str or None
    given : dict of str to anything
        Further arguments, of which every process has to give the same ones.

    Returns
    -------
    Table
        One without rows in the type of the others.

    Raises
    ------
    ValueError
        In all processes: other columns, types, parameters or arguments in some, or no rows in any.
    """
    ranks.same(model=f"{type(model).__name__}({plain_parameters(model)})", columns=table.d)
    ranks.same(**{name: "missing" if value is None else "given" for name, value in given.items()})
    ranks.same(**{"the names of columns": names})
    if given["centers"] is not None:
        ranks.same(centers=_digest(given["centers"]))
    types = [kind for kind in ranks.texts(str(table.dtype) if table.n else "") if kind]
    if not types:
        raise ValueError("X has no rows in any process of the group")
    if len(set(types)) > 1:
        raise ValueError(f"the type of X differs between processes: {', '.join(sorted(set(types)))}")
    return table if table.n else Table(table.data.to(getattr(torch, types[0].removeprefix("torch."))))


def _digest(centers: Any) -> str:
    values = np.ascontiguousarray(as_array(centers), dtype=np.float64)
    return f"{list(values.shape)} with digest {hashlib.sha256(values.tobytes()).hexdigest()[:12]}"


def one_row(X: Any) -> Any:
    """A row of zeros like a table without rows, which can be read as other tables are."""
    if isinstance(X, Tensor):
        return X.new_zeros(1, *X.shape[1:])
    if hasattr(X, "iloc"):
        return type(X)(np.zeros((1, X.shape[1])), columns=X.columns)
    return np.zeros((1, *np.shape(X)[1:]), dtype=np.asarray(X).dtype)


def common_seed(random_state: Any, ranks: Ranks) -> int:
    """A seed that all processes have, also where `random_state` is None."""
    return int(ranks.max(torch.tensor(check_random_state(random_state).randint(1 << 31))))


def reference_of_shards(
    table: Table,
    X: Any,
    *,
    labels: Any,
    centers: Any,
    reference: Any,
    n_clusters: int,
    metric: str,
    weight: Tensor | None,
    random_state: Any,
    ranks: Ranks,
    names: Any,
) -> Reference:
    """The reference clustering of the rows of all processes.

    Raises
    ------
    ValueError
        In all processes: a reference that has to be fitted and is not "kmeans", medians of labels, or anything
        else that :func:`neonxc.trees.reference.from_centers` refuses in one of them.
    """
    if centers is None and labels is None and isinstance(reference, str):
        if reference != "kmeans" or metric != "l2":
            raise ValueError(
                'reference in a group needs "kmeans" with metric="l2", or a fitted clusterer; or pass centers or '
                f"labels; got {reference!r} with metric={metric!r}"
            )
        centers = kmeans_of_shards(table, n_clusters, weight, common_seed(random_state, ranks), ranks)
    with ranks.agreed():
        if centers is not None:
            return from_centers(table, centers, metric, names)
        if labels is None:
            labels = _predicted(reference, X, table.n)
        if metric != "l2":
            raise ValueError('labels in a group need metric="l2": medians need all rows; pass centers')
    return labels_of_shards(table, labels, weight, ranks)


def kmeans_of_shards(table: Table, k: int, weight: Tensor | None, seed: int, ranks: Ranks) -> Tensor:
    """Centers [k, d] of k-means on the rows of all processes."""
    from neonxc.models import KernelKMeans

    model = KernelKMeans(k, n_support=1, n_init=10, random_state=seed % (1 << 31))
    weights = None if weight is None else weight.cpu().numpy()
    model.fit(table.data.to(torch.float64), sample_weight=weights, group=ranks.group)
    return torch.as_tensor(model.support_vectors_).to(table.device, torch.float64)


def labels_of_shards(table: Table, labels: Any, weight: Tensor | None, ranks: Ranks) -> Reference:
    """Centers are the means of the labels over all processes."""
    with ranks.agreed():
        values = label_array(labels) if len(labels) else np.empty(0, dtype=np.int64)
        own = json.dumps(np.unique(values).tolist())
    every = [value for text in ranks.texts(own) for value in json.loads(text)]
    classes = np.unique(label_array(np.array(every)))
    index = torch.from_numpy(np.searchsorted(classes, values.astype(classes.dtype))).to(table.device)
    centers = centers_of(table, index, len(classes), "l2", weight, ranks)
    return Reference(index, centers, classes, table, centers)


def _predicted(reference: Any, X: Any, n: int) -> Any:
    """The labels that a fitted clusterer predicts."""
    final = reference[-1] if isinstance(reference, Pipeline) else reference
    try:
        check_is_fitted(final)
    except (NotFittedError, TypeError):
        raise ValueError("reference in a group has to be fitted; or pass centers or labels") from None
    if not hasattr(reference, "predict"):
        raise ValueError(f"reference in a group needs predict, which {type(final).__name__} has not; pass labels")
    if not n:
        return np.empty(0, dtype=np.int64)
    return reference.predict(as_batch(X, integers=True).tensor.cpu().numpy() if isinstance(X, Tensor) else X)
