"""Labels of rows by a fitted clusterer, which may store them, predict them, or both.

Both may differ: online clusterers store labels of an earlier step, and subclasses predict as they like. There are
two questions, and each has an order of its own:

    rows of the fit     stored labels, then predicted ones (`labels_of`)
    any rows            predicted labels, then stored ones, if there are as many as rows (`predicts`)
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from contextlib import suppress

import numpy as np

from neonxc.clusterings.readers import is_precomputed
from neonxc.common.types import ArrayLike, TableLike
from neonxc.data.inputs import as_array
from neonxc.data.table import Table


def labels_of(final: object, rows: Table) -> ArrayLike | None:
    """Return the labels [n] of the rows that a clusterer was fitted on; None if it has none of them.

    Stored labels come first: they are the clustering that was found, and a clusterer may have no `predict`. It is
    asked to predict only if it stores no labels, or those of another number of rows.

    Parameters
    ----------
    final : estimator
        The clusterer, without the steps of a pipeline.
    rows : Table
        The rows as the clusterer takes them, that is, behind these steps.

    Returns
    -------
    ndarray, series, list or None
        Stored labels have their type, as a categorical has an order of its own.
    """
    for name in ("labels_", "labels"):
        stored: ArrayLike | None = getattr(final, name, None)
        if stored is not None and not callable(stored) and _n_labels(stored) == len(rows):
            return stored
    return first_predicted(final, _forms(rows), len(rows))


def predicts(model: object) -> bool:
    """Whether a fitted model, also a pipeline, predicts labels of rows that it was not fitted on.

    Where X may have other rows than those of the fit, predicted labels come first: stored labels are known by
    their number alone, which other rows may have by chance. A clusterer of a precomputed matrix predicts from
    distances to the rows of its fit, and not from columns.
    """
    return hasattr(model, "predict") and not is_precomputed(model)


def first_predicted(model: object, forms: Iterable[TableLike], n: int) -> np.ndarray | None:
    """Return the labels [n] that a model predicts for n rows, in the first of several forms that it takes."""
    for data in forms:
        labels = predicted(model, data)
        if labels is not None and labels.shape == (n,):
            return labels
    return None


def predicted(model: object, data: TableLike) -> np.ndarray | None:
    """Return the labels that a model predicts; None if it can't."""
    for name in ("predict", "assign"):  # the latter is that of faiss
        with suppress(Exception), warnings.catch_warnings():  # data of another type, which another call gives
            warnings.simplefilter("ignore")
            labels = getattr(model, name)(data)
            if isinstance(labels, tuple):  # distances and labels
                labels = labels[-1]
            return as_array(labels)
    return None


def _n_labels(stored: ArrayLike) -> int | None:
    """Return the number of labels; None for values that are not labels, such as a matrix."""
    if isinstance(stored, list | tuple):  # of pairs, which NumPy would take for a matrix
        return len(stored)
    shape = np.shape(stored)  # type: ignore[arg-type]
    return shape[0] if len(shape) == 1 else None


def _forms(rows: Table) -> Iterator[TableLike]:
    """Yield rows as they are, and as the arrays and tensors that clusterers of several libraries take."""
    yield rows.data
    points = Table(rows.dense(limited=True)).tensor.double()
    array = points.cpu().numpy()
    yield array
    yield array.astype(np.float32)
    yield points
    yield points.float()
